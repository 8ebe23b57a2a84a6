"""What goes on at a time, out of a long list, without looking through all of it at every tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """Anything that begins and ends."""

    @property
    def onset(self) -> float:
        """Epoch seconds."""

    @property
    def end(self) -> float:
        """Epoch seconds."""


T = TypeVar("T", bound=Timed)


class Agenda(Generic[T]):
    """Hands out what has begun and is not forgotten; time only goes forward.

    Parameters
    ----------
    items
        What happens, in any order.
    is_lasting
        Tells whether an item still counts after its end.
    """

    def __init__(self, items: Sequence[T], is_lasting: Callable[[T], bool]) -> None:
        self._is_lasting = is_lasting
        order = sorted(range(len(items)), key=lambda i: items[i].onset, reverse=True)
        self._ahead = [(i, items[i]) for i in order]
        self._begun: list[tuple[int, T]] = []

    def at(self, at: float) -> list[T]:
        """Return what has begun by a time, in the order in which it was given."""
        grown = False
        while self._ahead and self._ahead[-1][1].onset <= at:
            self._begun.append(self._ahead.pop())
            grown = True
        if grown:
            self._begun.sort(key=lambda pair: pair[0])
        if self._begun:
            self._begun = [(i, x) for i, x in self._begun if at < x.end or self._is_lasting(x)]
        return [x for _, x in self._begun]

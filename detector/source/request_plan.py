"""Which metrics go into one request: as many as the server gives at once, learnt from its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from detector.errors import SourceError
from detector.source.http import HttpRefusal, TooLarge

Names = tuple[str, ...]


class RequestPlan:
    """Splits metric names into groups, one request each, and remembers what worked.

    The first requests have `first_size` names, or all. What the server refuses as too much is halved at
    once; a group that returned more series than wanted is halved for the next time.

    Parameters
    ----------
    max_series
        Series wanted in one answer at most.
    first_size
        Names in one request at first, 0 for all.
    """

    def __init__(self, max_series: int, *, first_size: int = 0) -> None:
        self._max_series = max_series
        self._first_size = first_size
        self._names: Names = ()
        self._groups: list[Names] = []

    @property
    def n_requests(self) -> int:
        """Requests that the next run starts with."""
        return len(self._groups)

    def run(self, names: Sequence[str], ask: Callable[[Sequence[str]], int]) -> None:
        """Call `ask` for groups that together are `names`; it returns the number of series it got.

        Raises
        ------
        SourceError
            As `ask` does; a refusal as too much only when a single metric is too much.
        """
        wanted = tuple(names)
        if wanted != self._names or not self._groups:
            size = self._first_size or len(wanted) or 1
            self._names = wanted
            self._groups = [wanted[i : i + size] for i in range(0, len(wanted), size)] or [()]
        next_groups: list[Names] = []
        todo = self._groups[::-1]
        while todo:
            group = todo.pop()
            try:
                n_series = ask(group)
            except SourceError as error:
                if not _is_too_much(error) or len(group) < 2:
                    raise
                todo.extend(reversed(_halves(group)))
                continue
            too_many = n_series > self._max_series and len(group) > 1
            next_groups.extend(_halves(group) if too_many else [group])
        self._groups = next_groups


def slices(start_ms: int, end_ms: int, slice_s: float) -> Iterator[tuple[int, int]]:
    """Yield ranges ``(low, high]`` that together are ``(start_ms, end_ms]``, none longer than `slice_s`."""
    step = max(1, round(slice_s * 1000))
    low = start_ms
    while low < end_ms:
        high = min(low + step, end_ms)
        yield low, high
        low = high


def _halves(group: Names) -> list[Names]:
    middle = len(group) // 2
    return [group[:middle], group[middle:]]


def _is_too_much(error: SourceError) -> bool:
    return isinstance(error, TooLarge) or (isinstance(error, HttpRefusal) and error.is_too_much)

"""Which metrics go into one request: as many as the server gives at once, learnt from its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, wait

from detector.errors import SourceError
from detector.source.answer import Deadline, HttpRefusal, TooLarge
from detector.source.samples import Part, SampleCollector

Names = tuple[str, ...]
Ask = Callable[[Sequence[str]], Part]


class RequestPlan:
    """Splits metric names into groups, one request each, and remembers what worked.

    The first requests have `first_size` names. A group that the server refuses as too much is halved
    at once; a group that returned more series than wanted is halved for the next time.

    Parameters
    ----------
    max_series
        Series wanted in one answer at most.
    first_size
        Names in one request at first.
    executor
        Runs requests; its number of threads is the number of requests at a time.
    """

    def __init__(self, max_series: int, first_size: int, executor: Executor) -> None:
        self._max_series = max_series
        self._first_size = first_size
        self._executor = executor
        self._names: Names | None = None
        self._groups: list[Names] = []

    def run(self, names: Sequence[str], ask: Ask, collector: SampleCollector, deadline: Deadline) -> None:
        """Ask for groups that together are `names` and commit the answers, all or nothing.

        Raises
        ------
        SourceError
            As `ask` does; a refusal as too much only when a single metric is too much.
        """
        wanted = tuple(names)
        if wanted != self._names:
            size = self._first_size
            self._names = wanted
            self._groups = [wanted[i : i + size] for i in range(0, len(wanted), size)] or [()]
        done: list[tuple[Names, Part]] = []
        todo = self._groups
        while todo:
            answers = self._answers(todo, ask, deadline)
            todo = [half for group, part in answers if part is None for half in _halves(group)]
            done.extend((group, part) for group, part in answers if part is not None)
        self._groups = [half for group, part in done for half in self._next(group, part)]
        for _, part in done:
            collector.commit(part)

    def _answers(self, groups: list[Names], ask: Ask, deadline: Deadline) -> list[tuple[Names, Part | None]]:
        """Ask for all groups; None stands for an answer that was refused as too much."""
        try:
            futures = [self._executor.submit(ask, group) for group in groups]
        except RuntimeError:
            raise SourceError("the source is closed") from None
        can_split = {future: len(group) > 1 for group, future in zip(groups, futures, strict=True)}
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_EXCEPTION)
                for future in done:
                    if not (can_split[future] and _is_too_much(future.exception())):
                        future.result()
        except BaseException:
            deadline.cancel()
            for future in futures:
                future.cancel()
            raise
        parts = [None if future.exception() else future.result() for future in futures]
        return list(zip(groups, parts, strict=True))

    def _next(self, group: Names, part: Part) -> list[Names]:
        return _halves(group) if part.n_lines > self._max_series and len(group) > 1 else [group]


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


def _is_too_much(error: BaseException | None) -> bool:
    return isinstance(error, TooLarge) or (isinstance(error, HttpRefusal) and error.is_too_much)

"""What the service loop needs from others: a pipeline, and what hooks into a tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from detector.control.view import Muted, NothingMuted
from detector.core.neighbours import Neighbours
from detector.core.series_view import SeriesQuery, SeriesView
from detector.core.views import GroupSummary
from detector.core.window import Frame
from detector.explanation import Explanation
from detector.outcome import Incident, Outcome
from detector.service_fetch import Fetcher
from detector.service_recorded import Recorded
from detector.service_view import Coverage
from detector.source.base import Batch, Interner


class PipelineLike(Protocol):
    """What the service needs of `detector.pipeline.Pipeline`."""

    open: dict[str, Incident]
    """Pending and suspect incidents by node."""

    @property
    def interner(self) -> Interner:
        """Numbers the series."""

    def names(self) -> list[str]:
        """Return metric names to fetch."""

    def evaluate(self, batch: Batch, at: float, *, judge: bool = True) -> Outcome:
        """Take in samples and say what is suspect."""

    def groups(self) -> list[GroupSummary]:
        """Return peer groups as of the newest evaluation."""

    def series_view(self, query: SeriesQuery, frames: Sequence[Frame] | None = None) -> list[SeriesView]:
        """Return signals of a node against their peers."""

    def neighbours(self, node: str) -> Sequence[Neighbours]:
        """Return what a node shares with others."""

    def forget(self, node: str, at: float) -> None:
        """Begin anew for a node that was repaired at `at`, epoch seconds."""

    def snapshot(self) -> bytes:
        """Return the learnt state."""

    def restore(self, blob: bytes | None, incidents: Sequence[Incident]) -> list[str]:
        """Continue from the learnt state and the open incidents."""


@dataclass(frozen=True, slots=True)
class ServiceHooks:
    """What else is to be done, for whom it concerns.

    Parameters
    ----------
    before_evaluation
        Called with the fetcher and the evaluation time before the first evaluation of a tick
        (asks for pools); a `SourceError` is logged and counted, and the tick goes on.
    published
        Called with every judged outcome after it was published.
    explain
        Called with a node's name and a number of signals between two evaluations; tells why the node is or
        is not named, None when it is not known.
    coverage
        Called between two evaluations; tells what the newest had to judge by.
    operators
        What operators have said: dismissed suspects are left out of own metrics.
    before_tick
        Called between two ticks, from their thread; must not raise.
    recorded
        What is kept of a recording that is played, None for a live service.
    """

    before_evaluation: Callable[[Fetcher, float], None] | None = None
    published: Callable[[Outcome], None] | None = None
    explain: Callable[[str, int], Explanation | None] | None = None
    coverage: Callable[[], Coverage | None] = lambda: None
    operators: Muted = field(default_factory=NothingMuted)
    before_tick: Callable[[], None] | None = None
    recorded: Recorded | None = None


@dataclass(frozen=True, slots=True)
class Successor:
    """A pipeline that goes on where the one before it was.

    Parameters
    ----------
    pipeline
        A new one.
    take_up
        Hands it what the one before has learnt and its open incidents; returns what could not be used.
    before_evaluation, explain, coverage
        As in `ServiceHooks`, for the new pipeline.
    """

    pipeline: PipelineLike
    take_up: Callable[[], Sequence[str]]
    before_evaluation: Callable[[Fetcher, float], None] | None = None
    explain: Callable[[str, int], Explanation | None] | None = None
    coverage: Callable[[], Coverage | None] = lambda: None

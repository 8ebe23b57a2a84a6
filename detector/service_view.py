"""What the REST interface may see of a running service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from detector.core.neighbours import Neighbours
from detector.core.series_view import SeriesQuery, SeriesView
from detector.core.views import GroupSummary
from detector.errors import OddnodeError
from detector.explanation import Explanation
from detector.outcome import Incident, Outcome
from detector.store_contract import Reading

ONLY_RECORDED = "only a recording that is played can be shown as of another time"


class BusyError(OddnodeError):
    """An evaluation is under way and the question needs what it is changing."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest published evaluation.

    Parameters
    ----------
    outcome
        What it said.
    suspects
        Open incidents in state ``suspect``, strongest first, those of nodes that are silent
        since the start included.
    groups
        Peer groups as of then.
    """

    outcome: Outcome
    suspects: tuple[Incident, ...] = ()
    groups: tuple[GroupSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service can be relied on, and why not.

    Parameters
    ----------
    reasons
        One sentence per thing that is wrong; empty when ready.
    notes
        What a person should know although it is ready.
    """

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True when nothing is wrong."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class TargetCover:
    """Metrics of one monitored target: how many the catalog names, and of how many there are samples."""

    target: str
    n_metrics: int
    n_seen: int


@dataclass(frozen=True, slots=True)
class ExporterCover:
    """Signals of one exporter: how many are expected, and how many have a fresh sample."""

    exporter: str
    n_expected: int
    n_fresh: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the newest evaluation had to judge by.

    Parameters
    ----------
    at
        Evaluation time, epoch seconds.
    targets
        Monitored targets by name.
    exporters
        Exporters that have delivered.
    nodes
        For each node, in the order of `targets`, whether it has a fresh sample of the target.
    """

    at: float
    targets: tuple[TargetCover, ...] = ()
    exporters: tuple[ExporterCover, ...] = ()
    nodes: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)


class NotKeptError(OddnodeError):
    """A time that cannot be shown."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A node was named, or was clear again."""

    at: float
    node: str
    incident_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Extent:
    """What of a recording can be shown.

    Parameters
    ----------
    name
        Of the recording.
    start, end
        Epoch seconds of the recording.
    step_s
        Seconds between evaluations.
    first_at, last_at
        First and newest evaluation that is kept, None before the first.
    n_evaluations
        How many are kept.
    marks
        In order of time, the newest of them when there are too many.
    """

    name: str
    start: float
    end: float
    step_s: float
    first_at: float | None
    last_at: float | None
    n_evaluations: int
    marks: tuple[Mark, ...]


class ServiceView(Protocol):
    """A running service, as the REST interface sees it; every method is safe from any thread."""

    @property
    def store(self) -> Reading:
        """Stored incidents and their history."""

    def latest(self) -> Latest | None:
        """Return the newest published evaluation, None before the first."""

    def data_age_s(self) -> float | None:
        """Return seconds between the newest evaluation time and now, None before the first."""

    def readiness(self) -> Readiness:
        """Tell whether verdicts are fresh and stored. Never waits."""

    def series(self, query: SeriesQuery) -> Sequence[SeriesView]:
        """Return signals of a node against their peers; empty when unknown.

        Raises
        ------
        BusyError
            When an evaluation holds the data for too long.
        """

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        """Tell why a node is or is not named by the newest evaluation; None when it is not known.

        Raises
        ------
        BusyError
            When an evaluation holds the data for too long.
        """

    def coverage(self) -> Coverage | None:
        """Tell what the newest evaluation had to judge by, None before the first.

        Raises
        ------
        BusyError
            When an evaluation holds the data for too long.
        """

    def neighbours(self, node: str) -> Sequence[Neighbours]:
        """Return what a node shares with others, as far as labels tell.

        Raises
        ------
        BusyError
            When an evaluation holds the data for too long.
        """

    def recording(self) -> Extent | None:
        """Tell what of the recording that is played can be shown; None for a live service."""

    def as_of(self, at: float) -> ServiceView:
        """Return the service as it was at `at`, epoch seconds, while a recording is played.

        Raises
        ------
        NotKeptError
            When it is live, or nothing is kept of that time.
        """

    def is_ending(self) -> bool:
        """Tell whether the service was told to end: streams end then."""

    def metrics_text(self) -> bytes:
        """Return own metrics in the Prometheus text format."""

"""What a detector is given, what it answers, and the rules it is scored by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from detector.source.incident_file import Recording

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rules:
    """How flags are matched with labels; times in seconds.

    Parameters
    ----------
    grace_s
        A fault is also found when the flag rises this long after its end ...
    grace_steps
        ... or this many steps after it, whichever is longer.
    merge_s
        Alarms of one node that are less than this apart are one alarm episode; so are labelled
        faults of one node, because one alarm can't tell them apart.
    nodes_per_cluster, days_per_month
        Size of the cluster and the month for which false alarms are told.
    """

    grace_s: float = 600.0
    grace_steps: float = 3.0
    merge_s: float = 600.0
    nodes_per_cluster: int = 63
    days_per_month: float = 30.0

    def grace(self, step_s: float) -> float:
        """Return the grace after a label's end for a case with this step, in seconds."""
        return max(self.grace_s, self.grace_steps * step_s)


@dataclass(frozen=True, slots=True)
class Case:
    """What a detector may know of a case: everything but what was wrong.

    Parameters
    ----------
    id
        Name of the case.
    path
        Its folder.
    start, end
        Epoch seconds.
    step_s
        Seconds between samples.
    pool, spares
        Nodes at work and idle nodes.
    """

    id: str
    path: Path
    start: float
    end: float
    step_s: float
    pool: tuple[str, ...]
    spares: tuple[str, ...]


def blind(recording: Recording) -> Case:
    """Return a recording without its labels."""
    return Case(
        id=recording.id,
        path=recording.path.parent,
        start=recording.start,
        end=recording.end,
        step_s=recording.step_s,
        pool=recording.pool,
        spares=recording.spares,
    )


@dataclass(frozen=True, slots=True)
class Flag:
    """A node was named as a suspect.

    Parameters
    ----------
    node
        Node name.
    raised_at
        Epoch seconds at which the node was named.
    cleared_at
        Epoch seconds at which that ended, None when it lasted to the end.
    part
        Part that was named, empty for the node itself.
    strongest_part
        Part that the strongest evidence named.
    metric
        Metric of the strongest evidence, empty when there is none.
    why
        The strongest evidence in a sentence.

    Raises
    ------
    ValueError
        When a time is not finite or the flag ends before it rises.
    """

    node: str
    raised_at: float
    cleared_at: float | None = None
    part: str = ""
    strongest_part: str = ""
    metric: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        """Refuse times that would compare as false everywhere."""
        end = self.raised_at if self.cleared_at is None else self.cleared_at
        if not (math.isfinite(self.raised_at) and math.isfinite(end)):
            raise ValueError(f"flag of node {self.node!r}: times must be finite")
        if end < self.raised_at:
            raise ValueError(f"flag of node {self.node!r}: cleared before it was raised")


@dataclass(frozen=True, slots=True)
class Call:
    """Something that is nobody's fault was called: a group event or a monitoring problem.

    Parameters
    ----------
    kind
        ``group_event`` or the kind of a data quality finding.
    start, end
        Epoch seconds; `end` is None while it lasts or when it is not known.
    nodes
        Nodes named; empty means the whole cluster.
    reason
        One sentence.
    """

    kind: str
    start: float
    end: float | None
    nodes: tuple[str, ...] = ()
    reason: str = ""


GROUP_EVENT = "group_event"


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a detector said of one case.

    Parameters
    ----------
    flags
        In any order.
    calls
        Group events and monitoring problems, in any order.
    notes
        What a reader of the report should know.
    undetermined_share
        Share of node-evaluations that could not be judged, NaN when not told.
    """

    flags: tuple[Flag, ...] = ()
    calls: tuple[Call, ...] = ()
    notes: tuple[str, ...] = ()
    undetermined_share: float = float("nan")


class Detector(Protocol):
    """Anything that turns a case into flags.

    It is sent to other processes, so it must be picklable; the same case must give the same
    answer every time.
    """

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    def flag(self, case: Case) -> Sequence[Flag] | Findings:
        """Return the flags of a case; `Findings` when there is more to say."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """A node and a time worth a picture.

    Parameters
    ----------
    node
        Node name.
    at
        Epoch seconds of the last sample shown.
    metric, part
        What to show; empty for the signal that deviates most.
    """

    node: str
    at: float
    metric: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """One signal of one node against its peers.

    Parameters
    ----------
    moment
        What was asked for.
    metric, part
        What is shown.
    reason
        What the detector said of it, empty when nothing.
    n_peers
        Number of members compared with.
    times, value, median, low, high : ndarray of shape (n_samples,)
        Epoch seconds; the member, the peers' median and ordinary band; NaN means no sample.
    """

    moment: Moment
    metric: str
    part: str
    reason: str
    n_peers: int
    times: FloatArray
    value: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray


@runtime_checkable
class Explaining(Protocol):
    """A detector that can show the signals behind a moment."""

    def explain(self, case: Case, moments: Sequence[Moment]) -> Sequence[Trace]:
        """Return at most one trace per moment."""
        ...


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A case that was not evaluated, and why in one sentence."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CaseList:
    """Cases found, and what was left out.

    Parameters
    ----------
    cases
        Labelled recordings, in order of path.
    left_out
        In order of path.
    """

    cases: tuple[Recording, ...] = ()
    left_out: tuple[LeftOut, ...] = field(default=())

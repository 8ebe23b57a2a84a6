"""Why a node was or was not named at one evaluation: the words in which that is told."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from detector.explanation_signals import PeerSignal
from detector.outcome import DataQuality, GroupEvent, Incident, Status, Transition

NEAR_NAMES = 3


def near(node: str, known: Iterable[str]) -> str:
    """Return a hint at known names like a wrong one, empty when there is none.

    Parameters
    ----------
    node
        Name that is not known.
    known
        All names.
    """
    by_lower = {name.lower(): name for name in sorted(known)}
    found = difflib.get_close_matches(node.lower(), by_lower, n=NEAR_NAMES, cutoff=0.6)
    return f"; names near it: {', '.join(by_lower[name] for name in found)}" if found else ""


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of the decision.

    Parameters
    ----------
    name
        What is asked.
    value, needed
        What there is and from where on it is enough; in the unit that `unit` tells.
    passed
        True when it is fulfilled.
    unit
        Empty for scores, ``s`` for seconds.
    text
        What follows from it, in plain words.
    """

    name: str
    value: float
    needed: float
    passed: bool
    unit: str
    text: str


@dataclass(frozen=True, slots=True)
class DirectSignal:
    """An error counter that rose or a state with a fault value.

    Parameters
    ----------
    metric, labels, part
        Which.
    severity
        What the code, value or rise is worth: ``critical``, ``error``, ``warning`` or ``info``.
    value, event_value
        Newest value, and the code or the sum of rises of the event that is held.
    n_events
        Evaluations with an event within the hold.
    since, expires_at
        Epoch seconds of the first event, and when it is forgotten if nothing follows.
    faulty_s
        Seconds for which a state has had its fault value.
    score
        What it is worth; 1 is the node's threshold.
    why
        What became of it.
    """

    metric: str
    labels: Mapping[str, str]
    part: str
    severity: str
    value: float | None
    event_value: float | None
    n_events: int
    since: float | None
    expires_at: float | None
    faulty_s: float
    score: float
    why: str


@dataclass(frozen=True, slots=True)
class Absence:
    """A part, an exporter or the node itself that is missing, and counts."""

    part: str
    metric: str
    reason: str
    score: float
    since: float


@dataclass(frozen=True, slots=True)
class MissingSeries:
    """Signals of one exporter that should be there and are not.

    Parameters
    ----------
    exporter
        Name of the exporter.
    n_missing, n_expected
        Signals without a fresh sample, of those that are expected.
    last_at
        Epoch seconds of the newest sample of the missing ones.
    text
        For how long, and from when on that is evidence.
    """

    exporter: str
    n_missing: int
    n_expected: int
    last_at: float
    text: str


@dataclass(frozen=True, slots=True)
class TargetScore:
    """What one monitored target adds to the node's score.

    Parameters
    ----------
    target, metric
        The target and its strongest signal.
    n_signals
        Different signals that agree.
    instant, lasting
        What it adds now, and weighed by how long it has lasted.
    shifted
        What it adds by changes of habit alone.
    """

    target: str
    metric: str
    n_signals: int
    instant: float
    lasting: float
    shifted: float


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """Who the node is compared with.

    Parameters
    ----------
    name
        Pool, empty for none.
    n_peers
        Other nodes of the pool.
    min_peers
        Smaller groups are not judged.
    joined_at
        Epoch seconds, None for none.
    in_grace
        True while the node is too new in its pool to be compared.
    text
        The same in one sentence.
    """

    name: str
    n_peers: int
    min_peers: int
    joined_at: float | None
    in_grace: bool
    text: str


@dataclass(frozen=True, slots=True)
class IncidentState:
    """Where the node's incident stands.

    Parameters
    ----------
    id, state
        As in `detector.outcome.Incident`.
    active_at, suspect_at, cleared_at
        Epoch seconds of the first sign, of the naming and of the end; None when it has not happened.
    healthy_s
        Seconds of healthy data seen since the newest evidence.
    clears_after_s
        Seconds of healthy data after which it ends.
    peak_score
        Highest score so far.
    reason
        Reason of its newest step.
    """

    id: str
    state: str
    active_at: float
    suspect_at: float | None
    cleared_at: float | None
    healthy_s: float
    clears_after_s: float
    peak_score: float
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one node was or was not named at one evaluation.

    Parameters
    ----------
    node, at
        Whom and when, epoch seconds.
    status, summary
        What was concluded and the main reason.
    diagnosis
        What the evidence looks like, in sentences; none without an open incident.
    pool
        Who it is compared with.
    hard, instant, lasting, shifted
        Scores of the node: direct signals and absences alone; all evidence of this evaluation; all
        evidence weighed by how long it has lasted; direct signals, absences and changes of habit. 1 is
        the threshold.
    checks
        Conditions of the decision in order.
    targets
        What evidence by peers and by habit is made of.
    direct, n_direct
        Direct signals that have something to tell, of all that are watched.
    absences, missing
        What is gone and counts, and what is merely missing now.
    signals
        Strongest signals against peers, strongest first.
    fates
        Number of all the node's signals by what became of them.
    undetermined
        Why the node could not be judged, empty when it could.
    notes
        What else was missing or in doubt.
    incident
        Open incident, or the one that was cleared at this evaluation.
    group_events, data_quality
        Those that concern the node.
    """

    node: str
    at: float
    status: Status
    summary: str
    diagnosis: tuple[str, ...]
    pool: PoolPlace
    hard: float
    instant: float
    lasting: float
    shifted: float
    checks: tuple[Check, ...]
    targets: tuple[TargetScore, ...]
    direct: tuple[DirectSignal, ...]
    n_direct: int
    absences: tuple[Absence, ...]
    missing: tuple[MissingSeries, ...]
    signals: tuple[PeerSignal, ...]
    fates: Mapping[str, int]
    undetermined: str
    notes: tuple[str, ...]
    incident: IncidentState | None
    group_events: tuple[GroupEvent, ...]
    data_quality: tuple[DataQuality, ...]


@dataclass(frozen=True, slots=True)
class PastIncident:
    """A stored incident that was open at the time asked for.

    Parameters
    ----------
    id, part, active_at, suspect_at, cleared_at, peak_score
        As in `detector.outcome.Incident`, as of now.
    evidence
        Evidence at the peak in sentences, strongest first.
    """

    id: str
    part: str
    active_at: float
    suspect_at: float | None
    cleared_at: float | None
    peak_score: float
    evidence: tuple[str, ...]

    @classmethod
    def of(cls, item: Incident) -> PastIncident:
        """Return what is told of a stored incident."""
        found = (
            f"{e.layer.value} {e.metric}{f' [{e.part}]' if e.part else ''}: {e.reason}" for e in item.evidence
        )
        peak = item.peak_score if math.isfinite(item.peak_score) else 0.0
        return cls(item.id, item.part, item.active_at, item.suspect_at, item.cleared_at, peak, tuple(found))


class Basis(StrEnum):
    """What an answer rests on: an evaluation with all its numbers, or stored incidents alone."""

    EVALUATION = "evaluation"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to "why was this node named then, or why not".

    Parameters
    ----------
    node
        Node name.
    asked_at
        Epoch seconds that were asked for, None for now.
    basis
        See `Basis`.
    note
        What the reader must know of the answer, empty for nothing.
    explanation
        None when the answer rests on history.
    incidents
        Incidents of the node that were open at that time.
    transitions
        Their steps up to that time, in order.
    """

    node: str
    asked_at: float | None
    basis: Basis
    note: str = ""
    explanation: Explanation | None = None
    incidents: tuple[PastIncident, ...] = ()
    transitions: tuple[Transition, ...] = ()

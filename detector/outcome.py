"""What one evaluation says: evidence, verdicts, incidents, group events, data quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Layer(StrEnum):
    """Which kind of observation a piece of evidence is."""

    DIRECT = "direct"
    ABSENCE = "absence"
    PEER = "peer"
    HABIT = "habit"
    TREND = "trend"

    @property
    def is_soft(self) -> bool:
        """Tell whether it rests on a comparison: it must last, and no single piece speaks for itself."""
        return self in (Layer.PEER, Layer.HABIT)


class Status(StrEnum):
    """State of a node."""

    CLEAR = "clear"
    PENDING = "pending"
    SUSPECT = "suspect"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason to suspect a node, with enough numbers to argue with.

    Parameters
    ----------
    metric
        Metric name as stored in the database.
    labels
        Role and part labels of the signal.
    part
        Part of the node, empty for the node itself.
    layer
        See `Layer`.
    reason
        One sentence in plain words.
    score
        Strength on the scale where 1 is the threshold; capped.
    value
        Newest value (rate per second for counters); NaN is never stored, None means "no value".
    peer_median
        Median of the peers at the same time, None when there are none.
    band
        (low, high) inside which peers are ordinary, None when there are none.
    since
        Epoch seconds at which this deviation began.
    n_peers
        Number of members compared with.
    target
        Monitored target of the metric (GPU, NFS ...).
    side
        ``above`` or ``below`` the peers, for a change of habit the side to which it moved; empty when
        there is none.
    parts
        All parts of the node on which this signal deviates, strongest first.
    n_siblings
        How many such parts the node has, 0 when it is not known.
    with_pool
        True when the peers' median moved to the same side a moment ago: the node went along.
    """

    metric: str
    labels: Mapping[str, str]
    part: str
    layer: Layer
    reason: str
    score: float
    value: float | None
    peer_median: float | None
    band: tuple[float, float] | None
    since: float
    n_peers: int
    target: str
    side: str = ""
    parts: tuple[str, ...] = ()
    n_siblings: int = 0
    with_pool: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the evidence against a node looks like; never stated as certain.

    Parameters
    ----------
    fault_class
        Key of the likely class of fault, ``unclassified`` when no class has its reasons.
    title
        The class in words; ``unclassified: GPU`` names the monitored target instead.
    confidence
        ``likely``, ``possible``, or empty when unclassified.
    reasons
        What speaks for it, strongest first.
    order
        Which targets moved first, in words, empty when there is one only.
    check
        What to check or do first.
    also
        Titles of other classes that have their reasons too.
    role
        ``culprit`` when it differed first, ``victim`` when it followed, empty when nothing tells.
    role_reason
        Why, in one sentence.
    part
        Part that the class points to, empty for the node as a whole.
    weight
        How much evidence speaks for the class, on the scale of the node threshold.
    """

    fault_class: str
    title: str
    confidence: str = ""
    reasons: tuple[str, ...] = ()
    order: str = ""
    check: str = ""
    also: tuple[str, ...] = ()
    role: str = ""
    role_reason: str = ""
    part: str = ""
    weight: float = 0.0

    def plain(self) -> dict[str, object]:
        """Return what is shown of it: the same keys in all outputs."""
        return {
            "class": self.fault_class,
            "title": self.title,
            "part": self.part,
            "confidence": self.confidence,
            "reasons": list(self.reasons),
            "order": self.order,
            "check": self.check,
            "also": list(self.also),
            "role": self.role,
            "role_reason": self.role_reason,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one node at one evaluation.

    Parameters
    ----------
    node, pool
        Node name; name of the pool it is compared in.
    status
        See `Status`.
    score
        Fused evidence, >= 0; 1 is the threshold.
    part
        The part that the evidence points to, empty when it is the whole node.
    since
        Epoch seconds of the first sign, None when clear.
    reason
        Why it is undetermined, or what decided.
    evidence
        Ranked, strongest first.
    diagnosis
        What the evidence looks like, None without an open incident.
    """

    node: str
    pool: str
    status: Status
    score: float
    part: str = ""
    since: float | None = None
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """The life of one suspicion: pending, suspect, cleared.

    Parameters
    ----------
    id
        Stable text identifier: node and the time of the first sign.
    node
        Node name.
    state
        ``pending``, ``suspect`` or ``cleared``.
    active_at, suspect_at, cleared_at
        Epoch seconds of each transition, None when it has not happened.
    last_evidence_at
        Epoch seconds of the newest evaluation with evidence over the threshold.
    healthy_s
        Seconds of healthy data seen since then; a gap adds nothing.
    peak_score
        Highest fused score so far.
    part
        Part that the strongest evidence named.
    reason
        Reason of the newest transition.
    evidence
        Evidence at the peak.
    diagnosis
        What the evidence looked like when it told most; None in incidents stored by older versions.
    """

    id: str
    node: str
    state: str
    active_at: float
    suspect_at: float | None = None
    cleared_at: float | None = None
    last_evidence_at: float = 0.0
    healthy_s: float = 0.0
    peak_score: float = 0.0
    part: str = ""
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of an incident's life: stored, logged, counted, served."""

    incident_id: str
    node: str
    at: float
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Many members moved together: nobody is to blame.

    Parameters
    ----------
    id
        Stable identifier.
    pool
        Pool in which it happened.
    started_at, ended_at
        Epoch seconds; `ended_at` is None while it lasts.
    nodes
        Nodes that moved.
    metrics
        Signals that moved, most first.
    reason
        One sentence.
    cause
        The label that all of them share and the rest has not, in words; empty when none does.
    kind
        What befell the whole pool, measured against its own past (``job_slower``, ``hot_room`` ...);
        empty when many members moved away from the others.
    """

    id: str
    pool: str
    started_at: float
    ended_at: float | None
    nodes: tuple[str, ...]
    metrics: tuple[str, ...]
    reason: str
    cause: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class DataQuality:
    """The monitoring is at fault, not the node.

    Parameters
    ----------
    kind
        ``exporter_down``, ``partial_series``, ``monitoring_outage``, ``stale``, ``identity_conflict`` ...
    node
        Node concerned, empty when it is the whole cluster.
    since
        Epoch seconds.
    reason
        One sentence.
    """

    kind: str
    node: str
    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that one evaluation says; what the store keeps and the API serves.

    Parameters
    ----------
    at
        Evaluation time, epoch seconds.
    verdicts
        One per known node, suspects first, then by score.
    incidents
        Open incidents (pending and suspect) and those cleared at this evaluation.
    transitions
        Transitions of this evaluation.
    group_events
        Open group events and those that ended at this evaluation.
    data_quality
        Findings about the monitoring itself.
    is_partial
        True when the data may be incomplete: nothing was raised or cleared by what is missing.
    undetermined
        Count of cells or nodes that could not be judged, by reason.
    n_series, n_cells, n_groups
        Size of the evaluation.
    """

    at: float
    verdicts: tuple[Verdict, ...] = ()
    incidents: tuple[Incident, ...] = ()
    transitions: tuple[Transition, ...] = ()
    group_events: tuple[GroupEvent, ...] = ()
    data_quality: tuple[DataQuality, ...] = ()
    is_partial: bool = False
    undetermined: Mapping[str, int] = field(default_factory=dict)
    n_series: int = 0
    n_cells: int = 0
    n_groups: int = 0

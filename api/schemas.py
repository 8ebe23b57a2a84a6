"""What the REST interface returns. Times are epoch seconds; null means "no value", never zero."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["clear", "pending", "suspect", "undetermined"]
IncidentState = Literal["pending", "suspect", "cleared"]


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="forbid")


class Timed(Answer):
    """An answer that rests on an evaluation."""

    at: float | None = Field(description="Time of the newest evaluation; null before the first.")
    data_age_s: float | None = Field(description="Seconds between that time and now.")
    is_partial: bool = Field(description="True when the database said that data may be missing.")


class EvidenceOut(Answer):
    """One reason to suspect a node."""

    metric: str
    labels: dict[str, str]
    part: str = Field(description="Part of the node, empty for the node itself.")
    layer: Literal["direct", "absence", "peer", "habit", "trend"]
    reason: str
    score: float = Field(description="Strength; 1 is the threshold.")
    value: float | None = Field(description="Newest value; rate per second for counters.")
    peer_median: float | None
    band: tuple[float, float] | None = Field(description="Inside it peers are ordinary.")
    since: float
    n_peers: int
    target: str = Field(description="Monitored target of the metric.")
    side: Literal["above", "below", ""] = Field(
        "", description="Side of the peers or of the move, empty without one."
    )
    parts: list[str] = Field([], description="All parts on which this signal deviates, strongest first.")
    n_siblings: int = Field(0, description="How many such parts the node has; 0 when not known.")
    with_pool: bool = Field(False, description="The peers' median moved to the same side.")


class DiagnosisOut(Answer):
    """What the evidence looks like; never certain."""

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)

    fault_class: str = Field(alias="class", description="Key of the class, `unclassified` for none.")
    title: str = Field(description="The class in words.")
    part: str = Field(description="Part that it points to, empty for the node as a whole.")
    confidence: Literal["likely", "possible", ""] = Field(description="Empty when unclassified.")
    reasons: list[str] = Field(description="What speaks for it, strongest first.")
    order: str = Field(description="Which targets moved first, empty when there is one only.")
    check: str = Field(description="What to check or do first.")
    also: list[str] = Field(description="Other classes that have their reasons too.")
    role: Literal["culprit", "victim", ""] = Field(description="Among nodes that deviate together.")
    role_reason: str


class AcknowledgedOut(Answer):
    """Who looks after an incident."""

    by: str
    at: float
    note: str


class DismissedOut(Answer):
    """Who said that an incident is a false alarm, and why."""

    by: str
    at: float
    reason: str


class MutedOut(Answer):
    """The mute of a suspect that holds longest."""

    id: str
    until: float
    reason: str
    by: str


class SuspectOut(Answer):
    """A machine that deviates, and why."""

    node: str
    score: float | None = Field(description="Fused evidence now; 1 is the threshold; null without data.")
    since: float = Field(description="First sign.")
    suspect_since: float | None
    part: str
    reason: str
    pool: str
    incident_id: str
    diagnosis: DiagnosisOut | None = Field(None, description="Likely class of fault; null for old incidents.")
    evidence: list[EvidenceOut] = Field(description="Strongest first.")
    acknowledged: AcknowledgedOut | None = Field(None, description="Null when nobody looks after it.")
    muted: MutedOut | None = Field(None, description="Null when neither the node nor its pool is muted.")


class SuspectsOut(Timed):
    """Machines to look at now, strongest first."""

    suspects: list[SuspectOut]
    n_nodes: int
    undetermined: dict[str, int] = Field(description="Nodes that cannot be judged, by reason.")


class TransitionOut(Answer):
    """One step of an incident's life."""

    incident_id: str
    node: str
    at: float
    before: str
    after: str
    reason: str


class IncidentOut(Answer):
    """One suspicion from first sign to end."""

    id: str
    node: str
    state: IncidentState
    active_at: float
    suspect_at: float | None
    cleared_at: float | None
    last_evidence_at: float
    healthy_s: float
    peak_score: float | None
    part: str
    reason: str
    diagnosis: DiagnosisOut | None = Field(None, description="Likely class of fault; null for old incidents.")
    evidence: list[EvidenceOut] = Field(description="Evidence at the peak.")
    acknowledged: AcknowledgedOut | None = Field(None, description="Null when nobody said it is a fault.")
    dismissed: DismissedOut | None = Field(
        None, description="Null when it is no false alarm, or came back for other evidence."
    )


class IncidentDetailOut(Timed):
    """An incident and its transitions."""

    incident: IncidentOut
    transitions: list[TransitionOut]


class IncidentsOut(Timed):
    """Incidents, newest first."""

    total: int
    limit: int
    offset: int
    incidents: list[IncidentOut]


class NodeOut(Answer):
    """What is known of one node now."""

    node: str
    pool: str
    status: Status
    score: float | None
    part: str
    since: float | None
    reason: str
    diagnosis: DiagnosisOut | None = Field(None, description="Null without an open incident.")
    acknowledged: AcknowledgedOut | None = Field(None, description="Of a suspect's incident.")
    dismissed: DismissedOut | None = Field(None, description="Of a suspect's incident: then it is none.")
    muted: MutedOut | None = Field(None, description="Null when neither the node nor its pool is muted.")


class NodesOut(Timed):
    """Nodes, suspects first."""

    total: int
    limit: int
    offset: int
    nodes: list[NodeOut]


class DataQualityOut(Answer):
    """The monitoring is at fault, not the node."""

    kind: str
    node: str
    since: float
    reason: str


class NodeDetailOut(Timed):
    """One node with its evidence and its incidents."""

    node: NodeOut
    evidence: list[EvidenceOut]
    incidents: list[IncidentOut] = Field(description="Newest first, at most 50.")
    data_quality: list[DataQualityOut]


class GroupOut(Answer):
    """Members that are compared with each other."""

    pool: str
    unit: str
    n_nodes: int
    n_members: int
    n_signals: int
    undetermined: str = Field(description="Why the group is not judged, empty when it is.")


class GroupEventOut(Answer):
    """Many members moved together: nobody is to blame."""

    id: str
    pool: str
    started_at: float
    ended_at: float | None
    nodes: list[str]
    metrics: list[str]
    reason: str
    cause: str = Field("", description="Label that all of them share and the others do not have.")
    kind: str = Field("", description="What befell the whole pool, against its own past; empty otherwise.")


class GroupsOut(Timed):
    """Peer groups, and what moved whole groups."""

    total: int
    limit: int
    offset: int
    groups: list[GroupOut]
    group_events: list[GroupEventOut] = Field(description="Newest first, at most 50.")
    data_quality: list[DataQualityOut] = Field(description="Findings about the monitoring as a whole.")


class PeerLineOut(Answer):
    """One of the peers."""

    node: str
    part: str
    value: list[float | None]


class SeriesViewOut(Answer):
    """One signal of a node's part against its peers, over the kept window."""

    metric: str
    node: str
    part: str
    labels: dict[str, str]
    times: list[float]
    value: list[float | None]
    median: list[float | None]
    low: list[float | None]
    high: list[float | None]
    lower_quartile: list[float | None] = Field(description="Half of the peers lie between the quartiles.")
    upper_quartile: list[float | None]
    above: list[float | None] = Field(
        description="Above it the signal by itself passes its threshold; null where it has no vote."
    )
    below: list[float | None] = Field(description="Below it the signal by itself passes its threshold.")
    usual: list[float | None] = Field(description="Where the member would be by its habit.")
    habit: float | None = Field(description="Habitual offset in robust deviations; null while it is learnt.")
    n_peers: int
    scope: Literal["all", "slot"] = Field(description="Whom it is shown with.")
    has_slots: bool = Field(description="Whether the same slot of other nodes can be asked for.")
    peers: list[PeerLineOut] = Field(description="Some of the peers, spread over their range.")


class SeriesOut(Timed):
    """Signals of one metric of one node."""

    every_s: float | None = Field(
        None, description="With `since`: seconds between times; of a long time not every evaluation is told."
    )
    note: str = Field("", description="With `since`: why what lies further back is not told.")
    series: list[SeriesViewOut]


class NeighbourOut(Answer):
    """A node that shares the label."""

    node: str
    status: Status | None = Field(description="Null without a verdict.")


class NeighboursOfLabelOut(Answer):
    """Nodes that hang on the same thing."""

    label: str
    value: str
    n_nodes: int = Field(description="With the node itself.")
    nodes: list[NeighbourOut] = Field(description="The others: those that are not clear first; at most 50.")


class NeighboursOut(Timed):
    """What a node shares with others, as far as labels tell."""

    node: str
    shared: list[NeighboursOfLabelOut] = Field(description="Exports and switches first.")


class HealthOut(Answer):
    """The process answers."""

    status: Literal["ok"]


class ReadyOut(Answer):
    """Whether verdicts are fresh and stored."""

    status: Literal["ready", "not ready"]
    reasons: list[str]
    notes: list[str]


class RootOut(Answer):
    """Where to look."""

    name: str
    links: dict[str, str]


class ErrorBody(Answer):
    """What went wrong."""

    code: str
    message: str


class ErrorOut(Answer):
    """The one shape of errors."""

    error: ErrorBody

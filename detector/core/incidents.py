"""The life of a suspicion as a pure state machine: pending, suspect, cleared.

=========  ==========================================  =========  =====================================
from       when                                        to         what it means
=========  ==========================================  =========  =====================================
(none)     evidence over the threshold                 pending    a first sign, not shown as a suspect
pending    evidence decided                            suspect    the machine is named
pending    no evidence for `PENDING_QUIET_S` of data   cleared    it was nothing
suspect    healthy data for `clear_after_s`            cleared    it is like its peers again
suspect    gone for so long that nobody expects it     cleared    it was taken away
=========  ==========================================  =========  =====================================

Unknown evaluations change nothing: a gap neither clears nor raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from detector.core.fusion import TARGET_SHARE
from detector.outcome import Evidence, Incident, Transition

PENDING, SUSPECT, CLEARED = "pending", "suspect", "cleared"

PENDING_QUIET_S = 120.0
"""Seconds of data without evidence after which a first sign is forgotten."""

QUIET_SHARE = TARGET_SHARE
"""Evidence below this share of the threshold counts as healthy: less than one signal at its threshold."""

WEAK_SHARE = 0.25
"""Of the time with evidence between that and the threshold this share counts as healthy: what would not name
a node does not hold it for ever either."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one evaluation says of one node.

    Parameters
    ----------
    known
        False when there is no data to judge the node by.
    score
        Fused evidence of this instant; 1 is the threshold.
    decided
        True when the evidence has lasted long enough, or is strong enough, to name the node.
    part, reason
        What the evidence points to.
    evidence
        Ranked evidence.
    gone
        True when the node has been silent for so long that it is no longer expected.
    since
        Epoch seconds of the first sign in the evidence.
    """

    known: bool
    score: float = 0.0
    decided: bool = False
    part: str = ""
    reason: str = ""
    evidence: Sequence[Evidence] = ()
    gone: bool = False
    since: float | None = None


def rename(open_incidents: dict[str, Incident], renamed: Mapping[str, str]) -> None:
    """Let open incidents go on under the better names of their nodes; changed in place."""
    for old, new in renamed.items():
        if old in open_incidents and new not in open_incidents:
            open_incidents[new] = replace(open_incidents.pop(old), node=new)


def step(
    node: str, incident: Incident | None, seen: Observation, *, at: float, dt: float, clear_after_s: float
) -> tuple[Incident | None, list[Transition]]:
    """Advance one node's incident by one evaluation.

    Parameters
    ----------
    node
        Node name.
    incident
        The open incident, None when there is none.
    seen
        What this evaluation says.
    at, dt
        Evaluation time and seconds since the one before.
    clear_after_s
        Healthy data that clears a suspect.

    Returns
    -------
    incident
        The incident after the step (also when it was just cleared), None when there is none.
    transitions
        What happened, in order.
    """
    if incident is None:
        if not seen.known or seen.score < 1.0:
            return None, []
        incident = Incident(
            id=f"{node}@{int(at)}",
            node=node,
            state=PENDING,
            active_at=min(at, seen.since or at),
            last_evidence_at=at,
        )
        made = [Transition(incident.id, node, at, "clear", PENDING, seen.reason)]
        return _advance(incident, seen, made, at, dt, clear_after_s)
    return _advance(incident, seen, [], at, dt, clear_after_s)


def _advance(
    incident: Incident, seen: Observation, made: list[Transition], at: float, dt: float, clear_after_s: float
) -> tuple[Incident, list[Transition]]:
    if seen.gone:
        return _move(incident, CLEARED, at, "gone for so long that it is no longer expected", made)
    if not seen.known:
        return incident, made
    if seen.score >= 1.0:
        incident = replace(incident, last_evidence_at=at, healthy_s=0.0)
    if seen.score >= QUIET_SHARE:
        if seen.score > incident.peak_score and seen.evidence:
            incident = replace(
                incident,
                peak_score=seen.score,
                part=seen.part,
                evidence=tuple(seen.evidence),
                reason=seen.reason,
            )
        if seen.decided and incident.state == PENDING:
            fresh = replace(incident, part=seen.part, evidence=tuple(seen.evidence))
            return _move(fresh, SUSPECT, at, seen.reason, made)
    if seen.score >= 1.0:
        return incident, made
    healthy_s = dt if seen.score < QUIET_SHARE else WEAK_SHARE * dt
    incident = replace(incident, healthy_s=incident.healthy_s + healthy_s)
    if incident.state == PENDING and incident.healthy_s >= min(PENDING_QUIET_S, clear_after_s):
        return _move(incident, CLEARED, at, "the first sign did not last", made)
    if incident.state == SUSPECT and incident.healthy_s >= clear_after_s:
        reason = f"like its peers for {incident.healthy_s / 60:.0f} min of data"
        return _move(incident, CLEARED, at, reason, made)
    return incident, made


def _move(
    incident: Incident, state: str, at: float, reason: str, made: list[Transition]
) -> tuple[Incident, list[Transition]]:
    made = [*made, Transition(incident.id, incident.node, at, incident.state, state, reason)]
    changed = replace(incident, state=state, reason=reason)
    if state == SUSPECT:
        changed = replace(changed, suspect_at=at, healthy_s=0.0)
    elif state == CLEARED:
        changed = replace(changed, cleared_at=at)
    return changed, made

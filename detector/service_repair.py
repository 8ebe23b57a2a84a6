"""What a repair changes: the node's incident, the newest evaluation, and a learnt state from before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from detector.control.model import Repair
from detector.outcome import Incident, Status, Transition, Verdict
from detector.service_view import Latest
from detector.store_contract import Keeping
from detector.store_control import ControlStore
from detector.store_read import CLEARED

AFRESH = "repaired a moment ago"
"""Why a node is undetermined between its repair and the next evaluation."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repair with what it clears: one incident and its transition, or none."""

    repair: Repair
    incidents: tuple[Incident, ...] = ()
    transitions: tuple[Transition, ...] = ()


def repair(
    open_incident: Incident | None, node: str, at: float, reason: str, evaluated_at: float
) -> Repaired:
    """Return what a repair changes.

    Parameters
    ----------
    open_incident
        Of the node, None when it has none.
    node, at, reason
        Which node, epoch seconds, and the reason of the transition.
    evaluated_at
        Newest evaluation time, epoch seconds.
    """
    done = Repair(node=node, at=at, evaluated_at=evaluated_at)
    if open_incident is None:
        return Repaired(done)
    cleared = replace(open_incident, state=CLEARED, cleared_at=at, reason=reason)
    step = Transition(cleared.id, node, at, open_incident.state, CLEARED, reason)
    return Repaired(done, (cleared,), (step,))


def after_repair(latest: Latest, done: Repaired) -> Latest:
    """Return the newest evaluation as it reads once a node is repaired; the next one judges it afresh."""
    cleared = {incident.id: incident for incident in done.incidents}
    node = done.repair.node
    outcome = latest.outcome
    verdicts = tuple(
        Verdict(v.node, v.pool, Status.UNDETERMINED, 0.0, reason=AFRESH) if v.node == node else v
        for v in outcome.verdicts
    )
    changed = replace(
        outcome,
        verdicts=verdicts,
        incidents=tuple(cleared.get(incident.id, incident) for incident in outcome.incidents),
    )
    return replace(latest, outcome=changed, suspects=tuple(i for i in latest.suspects if i.id not in cleared))


def repairs_to_repeat(store: Keeping, since: float) -> list[tuple[str, float]]:
    """Return nodes and times of repairs that a pipeline which begins anew must be told of.

    Parameters
    ----------
    store
        Holds the repairs.
    since
        Samples from then on are evaluated again, epoch seconds: what they say against a node that was
        repaired later does not count any more. Repairs of which the saved learnt state knows nothing are
        returned whenever they were.
    """
    kept = ControlStore(store)
    saved_at = kept.snapshot_at()
    return [
        (r.node, r.at)
        for r in kept.repairs()
        if r.at >= since or (saved_at is not None and r.evaluated_at >= saved_at)
    ]

"""Why a node is, was, or was not named: from the newest evaluation with all numbers, else from history."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from api import examples_explain, present
from api.errors import INTERNAL, INVALID, UNAVAILABLE, UNKNOWN
from api.parameters import ok, seen_at
from api.schemas import Timed
from detector.explanation import Answer, Basis, Explanation, PastIncident, near
from detector.outcome import Transition
from detector.service_repair import AFRESH
from detector.service_view import Latest, ServiceView
from detector.store_read import IncidentFilter

MAX_SIGNALS = 200
MAX_INCIDENTS = 20

AHEAD_S = 60.0
"""A clock may be ahead of the service's by this much before what it calls now lies in the future."""

NOT_KEPT = (
    "of the past only incidents are kept, the numbers only of the newest evaluation ({newest:.0f}): "
    "for the numbers then, record that time with `oddnode record` and explain the recording"
)

NOT_KEPT_OF_RECORDING = (
    "of the recording's past the numbers are kept only of nodes that were pending or suspect: "
    "`oddnode explain {node} CASE --at {at:.0f}` tells them, CASE being the folder of {name}"
)


class ExplainOut(Timed):
    """Why a node was or was not named at one time."""

    node: str
    asked_at: float | None = Field(description="Time that was asked for; null for now.")
    basis: Basis = Field(description="`evaluation`: with all numbers; `history`: stored incidents alone.")
    note: str
    explanation: Explanation | None = Field(description="Null when the answer rests on history.")
    incidents: list[PastIncident] = Field(description="Incidents open then, as of now; newest first.")
    transitions: list[Transition] = Field(description="Their steps up to then, in order.")


def add_explain(router: APIRouter, view: ServiceView) -> None:
    """Add ``GET /explain`` to the routes of a running service."""

    @router.get(
        "/explain",
        response_model=ExplainOut,
        tags=["verdicts"],
        summary="Why a node is named, or is not",
        responses={
            **ok(examples_explain.EXPLAIN, "The reasons."),
            **UNKNOWN,
            **INVALID,
            **UNAVAILABLE,
            **INTERNAL,
        },
    )
    def explain(
        node: Annotated[str, Query(min_length=1, max_length=253, description="Node name.")],
        at: Annotated[
            float | None,
            Query(ge=0, le=1e11, allow_inf_nan=False, description="Epoch seconds; without it now."),
        ] = None,
        signals: Annotated[
            int, Query(ge=1, le=MAX_SIGNALS, description="How many signals against peers at most.")
        ] = 12,
    ) -> dict[str, Any]:
        """Tell each layer's evidence with its thresholds, and what was missing or undetermined."""
        # a live service answers of its past from history, a recording from what is kept of it
        seen = view if at is None or view.recording() is None else seen_at(view, at)
        latest = seen.latest()
        if latest is None:
            reasons = "; ".join(view.readiness().reasons) or "nothing was evaluated yet"
            raise HTTPException(503, reasons, headers={"Retry-After": "10"})
        newest = latest.outcome.at
        if at is not None and seen is view and at > newest + (view.data_age_s() or 0.0) + AHEAD_S:
            raise HTTPException(422, f"at: {at:.0f} lies in the future")
        is_now = (at is None or at >= newest) and not _is_afresh(latest, node)
        found = seen.explain(node, signals) if is_now else None
        answer = _now(seen, node, at, found) if found is not None else _then(seen, latest, node, at)
        return {**present.timed(seen, latest), **msgspec.to_builtins(answer)}


def _is_afresh(latest: Latest, node: str) -> bool:
    """Tell whether a node was set healthy since the newest evaluation, whose reasons are void then."""
    return any(v.node == node and v.reason == AFRESH for v in latest.outcome.verdicts)


def _now(view: ServiceView, node: str, at: float | None, found: Explanation) -> Answer:
    steps: list[Transition] = []
    if found.incident is not None:
        steps = view.store.transitions(incident_id=found.incident.id, limit=MAX_SIGNALS)
    until = [step for step in steps if step.at <= found.at]
    return Answer(node, at, Basis.EVALUATION, "", found, (), tuple(until))


def _then(view: ServiceView, latest: Latest, node: str, at: float | None) -> Answer:
    """Answer from history, for a time in the past or a node that is silent since the start."""
    newest = latest.outcome.at
    then = newest if at is None else min(at, newest)
    known = {verdict.node for verdict in latest.outcome.verdicts}
    stored = view.store.incidents(IncidentFilter(node=node, since=then, until=then), limit=MAX_INCIDENTS)
    if node not in known and not stored and not view.store.count_incidents(IncidentFilter(node=node)):
        raise HTTPException(404, f"node {node!r} is not known{near(node, sorted(known))}")
    steps = [
        step
        for incident in stored
        for step in view.store.transitions(incident_id=incident.id, limit=MAX_SIGNALS)
        if step.at <= then
    ]
    # an incident begins with its first evidence, which may lie before the evaluation that opened it
    opened = {step.incident_id for step in steps}
    kept = [item for item in stored if item.id in opened]
    note = NOT_KEPT.format(newest=newest)
    if (played := view.recording()) is not None and at is not None:
        note = NOT_KEPT_OF_RECORDING.format(name=played.name, node=node, at=then)
    if node not in known:
        note = "the node has had no series since the service was started; what is known are its incidents"
    elif (at is None or at >= newest) and _is_afresh(latest, node):
        why = next(
            (i.reason for i in stored if i.cleared_at is not None and i.cleared_at >= newest), "repaired"
        )
        note = f"set healthy ({why}): what was against it is void, and the next evaluation judges it afresh"
        kept, steps = [], []
    elif not kept:
        note = f"no incident of it was open then: clear, or it could not be judged; {note}"
    return Answer(
        node,
        at,
        Basis.HISTORY,
        note,
        None,
        tuple(PastIncident.of(item) for item in kept),
        tuple(sorted(steps, key=lambda step: step.at)),
    )

"""Routes of operators: acknowledge, dismiss, mute, set healthy, and what was done."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import AfterValidator
from starlette.exceptions import HTTPException

from api import examples_control as examples
from api import schemas_control as schemas
from api.errors import CONFLICT, INTERNAL, INVALID, UNAVAILABLE, UNKNOWN
from api.parameters import Limit, Offset, Time, ok
from api.present import Plain
from detector.control.desk import Desk
from detector.control.model import Feedback, Mute

IncidentId = Annotated[str, Path(min_length=1, max_length=300)]
NodeName = Annotated[str, Path(min_length=1, max_length=schemas.MAX_NAME), AfterValidator(schemas.one_line)]

TAGS: list[str | Enum] = ["control"]


def _body(example: Plain) -> Plain:
    """Show an example of what is sent."""
    return {"requestBody": {"content": {"application/json": {"example": example}}}}


def mute_mark(mute: Mute | None) -> Plain | None:
    """Return what is told of a suspect's mute, None without one."""
    if mute is None:
        return None
    return {"id": mute.id, "until": mute.until, "reason": mute.reason, "by": mute.by}


def acknowledged_mark(label: Feedback | None) -> Plain | None:
    """Return what is told of a suspect's acknowledgement, None without one."""
    if label is None or not label.acknowledges:
        return None
    return {"by": label.by, "at": label.at, "note": label.note}


def dismissed_mark(label: Feedback | None) -> Plain | None:
    """Return what is told of an incident that is dismissed, None when it is not."""
    if label is None or not label.hides:
        return None
    return {"by": label.by, "at": label.at, "reason": label.note}


def who(request: Request, given: str) -> str:
    """Return who acts: the token's name, else the name given."""
    return str(getattr(request.state, "token_name", "") or given or schemas.ANYBODY)


def _mute(mute: Mute, now: float) -> Plain:
    state = "over" if mute.is_over(now) else "active" if mute.is_active(now) else "planned"
    return {**msgspec.to_builtins(mute), "state": state}


def _feedback(label: Feedback) -> Plain:
    plain = dict(msgspec.to_builtins(label))
    del plain["told"]
    return plain


def _needed(desk: Desk | None) -> Desk:
    if desk is None:
        raise HTTPException(503, "operators' requests are not taken here")
    return desk


def add_control(router: APIRouter, desk: Desk | None) -> None:
    """Add the routes of operators to those of a running service; None answers 503."""
    _add_incidents(router, desk)
    _add_repaired(router, desk)
    _add_mutes(router, desk)
    _add_trail(router, desk)


def _add_incidents(router: APIRouter, desk: Desk | None) -> None:
    @router.post(
        "/incidents/{incident_id:path}/acknowledge",
        response_model=schemas.FeedbackDetailOut,
        tags=TAGS,
        summary="Acknowledge an incident",
        responses={
            **ok(examples.ACKNOWLEDGED, "It is acknowledged."),
            **UNKNOWN, **CONFLICT, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
        openapi_extra=_body(examples.NOTE_IN),
    )  # fmt: skip
    def acknowledge(request: Request, incident_id: IncidentId, sent: schemas.NoteIn) -> Plain:
        """Say that it is a fault that is being looked after. A dismissed incident comes back by this."""
        made = _needed(desk).acknowledge(incident_id, who(request, sent.by), sent.note)
        return {"feedback": _feedback(made)}

    @router.post(
        "/incidents/{incident_id:path}/dismiss",
        response_model=schemas.FeedbackDetailOut,
        tags=TAGS,
        summary="Dismiss an incident as a false alarm",
        responses={
            **ok(examples.DISMISSED, "It is no suspect any more."),
            **UNKNOWN, **CONFLICT, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
        openapi_extra=_body(examples.DISMISS_IN),
    )  # fmt: skip
    def dismiss(request: Request, incident_id: IncidentId, sent: schemas.DismissIn) -> Plain:
        """Take it off the suspects until it has cleared, or until there is evidence of another kind."""
        reason = sent.reason + (f"\n{sent.note}" if sent.note else "")
        made = _needed(desk).dismiss(incident_id, who(request, sent.by), reason)
        return {"feedback": _feedback(made)}


def _add_repaired(router: APIRouter, desk: Desk | None) -> None:
    @router.post(
        "/nodes/{node:path}/repaired",
        response_model=schemas.RepairedOut,
        tags=TAGS,
        summary="Set a node healthy after its repair",
        responses={
            **ok(examples.REPAIRED, "It is judged afresh."),
            **UNKNOWN, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
        openapi_extra=_body(examples.NOTE_IN),
    )  # fmt: skip
    def repaired(request: Request, node: NodeName, sent: schemas.NoteIn) -> Plain:
        """Clear its incident and forget what was learnt against it; what is still faulty shows again."""
        taken = _needed(desk)
        cleared = taken.repaired(node, who(request, sent.by), sent.note)
        at = taken.now() if cleared is None or cleared.cleared_at is None else cleared.cleared_at
        return {"node": node, "at": at, "cleared": None if cleared is None else cleared.id}


def _add_mutes(router: APIRouter, desk: Desk | None) -> None:
    @router.get(
        "/mutes",
        response_model=schemas.MutesOut,
        tags=TAGS,
        summary="Mutes and maintenance windows",
        responses={**ok(examples.MUTES, "In order of start."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def mutes(
        ended: Annotated[bool, Query(description="Also those that are over.")] = False,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> Plain:
        """List what is muted now and what is planned."""
        taken = _needed(desk)
        now = taken.now()
        if ended:
            total, found = taken.ledger.count_mutes(), taken.ledger.mutes(limit=limit, offset=offset)
        else:
            live = taken.live_mutes()
            total, found = len(live), sorted(live, key=lambda m: (m.start, m.id))[offset : offset + limit]
        return {
            "at": now,
            "total": total,
            "limit": limit,
            "offset": offset,
            "mutes": [_mute(mute, now) for mute in found],
        }

    @router.post(
        "/mutes",
        status_code=201,
        response_model=schemas.MuteDetailOut,
        tags=TAGS,
        summary="Mute a node, a pool or a metric",
        responses={
            **ok(examples.MUTE, "It is muted, or will be.", 201),
            **UNKNOWN, **CONFLICT, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
        openapi_extra=_body(examples.MUTE_IN),
    )  # fmt: skip
    def mute(request: Request, sent: schemas.MuteIn) -> Plain:
        """Mark suspects of a node or pool as muted for a while, or let a metric be no evidence."""
        taken = _needed(desk)
        now = taken.now()
        start = now if sent.start is None else sent.start
        until = sent.until if sent.until is not None else start + (sent.for_s or 0.0)
        by = who(request, sent.by)
        wanted = Mute(
            id="", node=sent.node, pool=sent.pool, metric=sent.metric, apart=sent.apart, start=start,
            until=until, reason=sent.reason, note=sent.note, by=by, made_at=now,
        )  # fmt: skip
        return {"mute": _mute(taken.mute(wanted), now)}

    @router.delete(
        "/mutes/{mute_id}",
        response_model=schemas.MuteDetailOut,
        tags=TAGS,
        summary="End a mute",
        responses={**ok(examples.ENDED, "It is over."), **UNKNOWN, **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def unmute(
        request: Request,
        mute_id: Annotated[str, Path(min_length=1, max_length=64, description="The mute's `id`.")],
        by: Annotated[
            str, Query(max_length=schemas.MAX_BY, description="Who acts."), AfterValidator(schemas.one_line)
        ] = "",
        note: Annotated[
            str, Query(max_length=schemas.MAX_REASON, description="Why."), AfterValidator(schemas.one_line)
        ] = "",
    ) -> Plain:
        """End a mute early, or call off a maintenance window."""
        taken = _needed(desk)
        ended = taken.unmute(mute_id, who(request, by), note)
        return {"mute": _mute(ended, taken.now())}


def _add_trail(router: APIRouter, desk: Desk | None) -> None:
    @router.get(
        "/feedback",
        response_model=schemas.FeedbacksOut,
        tags=TAGS,
        summary="What incidents were, as told by operators",
        responses={**ok(examples.FEEDBACK, "Labels."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def feedback(since: Time = None, until: Time = None, limit: Limit = 100, offset: Offset = 0) -> Plain:
        """List acknowledged and dismissed incidents that were open at some time in `since` to `until`."""
        ledger = _needed(desk).ledger
        found = ledger.feedback(since=since, until=until, limit=limit, offset=offset)
        return {
            "total": ledger.count_feedback(since=since, until=until),
            "limit": limit,
            "offset": offset,
            "feedback": [_feedback(label) for label in found],
        }

    @router.get(
        "/audit",
        response_model=schemas.AuditsOut,
        tags=TAGS,
        summary="Who did what, and when",
        responses={**ok(examples.AUDIT, "Newest first."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def audit(limit: Limit = 100, offset: Offset = 0) -> Plain:
        """Show the audit trail, to which lines are only ever added."""
        ledger = _needed(desk).ledger
        return {
            "total": ledger.count_audit(),
            "limit": limit,
            "offset": offset,
            "entries": [msgspec.to_builtins(entry) for entry in ledger.audit(limit=limit, offset=offset)],
        }

"""Nodes that were suspects again and again, from the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from api import present
from api.errors import INTERNAL, INVALID, UNAVAILABLE
from api.parameters import ok
from api.schemas import Timed
from detector.offenders import Offender, rank
from detector.service_view import ServiceView
from detector.store_read import MAX_ROWS, IncidentFilter

DAY_S = 86_400.0

EXAMPLE: dict[str, Any] = {
    "at": 1767225600.0,
    "data_age_s": 31.2,
    "is_partial": False,
    "since": 1764633600.0,
    "until": 1767225600.0,
    "total": 1,
    "is_complete": True,
    "offenders": [
        {
            "node": "gpu068",
            "n_incidents": 3,
            "n_open": 1,
            "suspect_s": 8130.0,
            "first_at": 1765101240.0,
            "last_at": 1767001560.0,
            "peak_score": 7.3,
            "parts": {"gpu 3": 2, "": 1},
            "classes": {"NVLink fault": 2, "unclassified: Scheduler": 1},
        }
    ],
}


class OffendersOut(Timed):
    """Nodes by how often they were suspects."""

    since: float
    until: float
    total: int = Field(description="Nodes with at least as many incidents as asked for.")
    is_complete: bool = Field(description="False when there were more incidents than are read at once.")
    offenders: list[Offender] = Field(description="Most incidents first.")


def add_offenders(
    router: APIRouter, view: ServiceView, is_dismissed: Callable[[str], bool] = lambda incident_id: False
) -> None:
    """Add ``GET /offenders`` to the routes of a running service; dismissed incidents are not counted."""

    @router.get(
        "/offenders",
        response_model=OffendersOut,
        tags=["incidents"],
        summary="Nodes that were suspects again and again",
        responses={
            **ok(EXAMPLE, "A ranking."),
            **INVALID,
            **UNAVAILABLE,
            **INTERNAL,
        },
    )
    def offenders(
        days: Annotated[float, Query(gt=0, le=3660, allow_inf_nan=False, description="How far back.")] = 30.0,
        least: Annotated[int, Query(ge=1, le=1000, description="Incidents a node must have had.")] = 2,
        limit: Annotated[int, Query(ge=1, le=1000, description="How many nodes at most.")] = 100,
    ) -> dict[str, Any]:
        """Rank nodes by incidents in which they were named, over the days before the newest evaluation."""
        latest = view.latest()
        until = view.store.last_evaluation() if latest is None else latest.outcome.at
        if until is None:
            reasons = "; ".join(view.readiness().reasons) or "nothing was evaluated yet"
            raise HTTPException(503, reasons, headers={"Retry-After": "10"})
        wanted = IncidentFilter(since=until - days * DAY_S, until=until, was_suspect=True)
        stored = view.store.incidents(wanted, limit=MAX_ROWS)
        counted = [incident for incident in stored if not is_dismissed(incident.id)]
        found = [item for item in rank(counted, until - days * DAY_S, until) if item.n_incidents >= least]
        return {
            **present.timed(view, latest),
            "since": until - days * DAY_S,
            "until": until,
            "total": len(found),
            "is_complete": len(stored) < MAX_ROWS,
            "offenders": [_plain(item) for item in found[:limit]],
        }


def _plain(item: Offender) -> dict[str, Any]:
    return {**msgspec.to_builtins(item), "peak_score": present.finite(item.peak_score) or 0.0}

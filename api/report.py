"""The report of an incident, to be downloaded."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from api.errors import INTERNAL, INVALID, UNAVAILABLE, UNKNOWN
from api.parameters import At, seen_at
from detector.reporter import Reporter
from detector.service_view import ServiceView

POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""What the file holds of the same kind is stricter; this is for who opens it right here."""


def add_report(router: APIRouter, view: ServiceView, reporter: Reporter | None) -> None:
    """Add ``GET /incidents/{incident_id}/report``; without a reporter it answers 503."""

    @router.get(
        "/incidents/{incident_id:path}/report",
        response_class=Response,
        tags=["incidents"],
        summary="The report of an incident",
        responses={
            200: {
                "description": "One HTML file, without anything beside it.",
                "content": {"text/html": {"schema": {"type": "string"}, "example": "<!doctype html>..."}},
            },
            **UNKNOWN, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
    )  # fmt: skip
    def report(
        incident_id: Annotated[str, Path(min_length=1, max_length=300)], at: At = None
    ) -> HTMLResponse:
        """Tell its story with charts against the peers, as one file: for a vendor or a post-mortem."""
        seen = seen_at(view, at)
        incident = seen.store.incident(incident_id)
        if incident is None:
            raise HTTPException(404, f"incident {incident_id!r} is not known")
        if reporter is None:
            raise HTTPException(503, "reports are not made here: ask the replica that leads")
        made = reporter.report(seen, incident)
        headers = {
            "content-disposition": f'attachment; filename="{made.name}"',
            "content-security-policy": POLICY,
        }
        return HTMLResponse(made.page, headers=headers)

"""An incident as a recorded case, to be downloaded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from api import examples_control as examples
from api.control import TAGS, who
from api.errors import CONFLICT, INTERNAL, INVALID, UNAVAILABLE, UNKNOWN
from api.schemas_control import ExportIn
from detector.control.desk import Desk
from detector.export import Case, Exporter

MEDIA_TYPE = "application/x-tar"
SEND_S = 600.0
"""A client may take this long to fetch it: meanwhile no other one is made."""


class _Download(StreamingResponse):
    """Sends a case, and deletes it however that ends."""

    def __init__(self, case: Case) -> None:
        headers = {
            "content-disposition": f'attachment; filename="{case.name}.tar"',
            "content-length": str(case.n_bytes),
        }
        super().__init__(iterate_in_threadpool(case.pieces()), media_type=MEDIA_TYPE, headers=headers)
        self._case = case

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(TimeoutError):  # the connection ends early, which the client notices by the length
                async with asyncio.timeout(SEND_S):
                    await super().__call__(scope, receive, send)
        finally:
            self._case.close()


def add_export(router: APIRouter, desk: Desk | None, exporter: Exporter | None) -> None:
    """Add ``POST /incidents/{incident_id}/export``; without an exporter it answers 503."""

    @router.post(
        "/incidents/{incident_id:path}/export",
        response_class=StreamingResponse,
        tags=TAGS,
        summary="Export an incident as a recorded case",
        responses={
            200: {
                "description": "A tar of the case: series, description, and what was said of the incident.",
                "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}, "example": "..."}},
            },
            **UNKNOWN, **CONFLICT, **INVALID, **UNAVAILABLE, **INTERNAL,
        },
        openapi_extra={"requestBody": {"content": {"application/json": {"example": examples.EXPORT_IN}}}},
    )  # fmt: skip
    def export(
        request: Request, incident_id: Annotated[str, Path(min_length=1, max_length=300)], sent: ExportIn
    ) -> StreamingResponse:
        """Read its telemetry with a margin from the source, and hand it out in the form of recordings."""
        if desk is None or exporter is None:
            raise HTTPException(503, "exports are not made here")
        case = exporter.export(incident_id, sent.before_s, sent.after_s)
        try:
            desk.exported(incident_id, who(request, sent.by), sent.note)
            return _Download(case)
        except BaseException:
            case.close()
            raise

"""Server-sent events: that something has changed, so that pages ask anew only then."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from api import present
from api.errors import INTERNAL, INVALID, UNAVAILABLE
from detector.service_view import Latest, Readiness, ServiceView

MAX_LISTENERS = 64
LOOK_S = 1.0
"""How often it is looked whether something has changed; never touches store or detection."""

BEAT_S = 5.0
"""A state is told at least this often, so that a listener knows that the line is alive."""

STREAM_S = 900.0
"""A stream ends after this long; the listener begins anew, and its token is looked at again."""

EXAMPLE = (
    "event: state\n"
    'data: {"at": 1767003300.0, "data_age_s": 2.1, "is_partial": false, "change": 4, '
    '"is_ready": true, "reasons": [], "notes": []}\n\n'
)


class Listeners:
    """Counts open streams."""

    def __init__(self, most: int = MAX_LISTENERS) -> None:
        self.most = most
        self.n = 0

    @property
    def are_full(self) -> bool:
        """True when no further one is taken."""
        return self.n >= self.most


class _Stream(StreamingResponse):
    """Counts itself for as long as it is sent, however it ends."""

    def __init__(self, events: AsyncIterator[str], listeners: Listeners) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._listeners.n += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listeners.n -= 1


def add_events(
    router: APIRouter,
    view: ServiceView,
    holds: Callable[[], object],
    *,
    listeners: Listeners | None = None,
) -> None:
    """Add ``GET /events`` to the routes of a running service.

    Parameters
    ----------
    router, view
        Where to, and of what.
    holds
        What operators have said, to compare by identity.
    listeners
        Bounds the streams; None for a bound of its own.
    """
    counted = listeners or Listeners()

    @router.get(
        "/events",
        response_class=StreamingResponse,
        tags=["verdicts"],
        summary="Changes, as they happen",
        responses={
            200: {
                "description": "Server-sent events without end.",
                "content": {"text/event-stream": {"example": EXAMPLE}},
            },
            **INVALID,
            **UNAVAILABLE,
            **INTERNAL,
        },
    )
    async def events() -> StreamingResponse:
        """Tell of every new evaluation and every change by operators, and every few seconds that it lives."""
        if counted.are_full:
            raise HTTPException(503, f"{counted.most} listeners are there already", {"Retry-After": "30"})
        return _Stream(_told(view, holds), counted)


async def _told(view: ServiceView, holds: Callable[[], object]) -> AsyncIterator[str]:
    seen: tuple[object, ...] | None = None
    change = 0
    begun = told_at = time.monotonic()
    while not view.is_ending() and time.monotonic() - begun < STREAM_S:
        latest, ready = view.latest(), view.readiness()
        # compared by identity: both are replaced as a whole, and kept here so that no other takes their place
        now = (latest, holds(), ready.is_ready, len(ready.reasons), len(ready.notes))
        is_new = seen is None or now[0] is not seen[0] or now[1] is not seen[1] or now[2:] != seen[2:]
        if is_new or time.monotonic() - told_at >= BEAT_S:
            change += is_new
            seen, told_at = now, time.monotonic()
            yield _event(view, latest, ready, change)
        await asyncio.sleep(LOOK_S)


def _event(view: ServiceView, latest: Latest | None, ready: Readiness, change: int) -> str:
    state: dict[str, Any] = {
        **present.timed(view, latest),
        "change": change,
        "is_ready": ready.is_ready,
        "reasons": list(ready.reasons),
        "notes": list(ready.notes),
    }
    return f"event: state\ndata: {json.dumps(state)}\n\n"

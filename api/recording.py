"""What of a recording that is played can be shown: the extent of the slider in the pages."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from pydantic import Field

from api.errors import INTERNAL, INVALID, UNAVAILABLE
from api.parameters import ok
from api.schemas import Answer
from detector.service_view import ServiceView

EXAMPLE: dict[str, Any] = {
    "recording": {
        "name": "gpu068-nvlink",
        "start": 1767000000.0,
        "end": 1767003300.0,
        "step_s": 30.0,
        "first_at": 1767000030.0,
        "last_at": 1767003300.0,
        "n_evaluations": 110,
        "marks": [
            {
                "at": 1767001500.0,
                "node": "gpu068",
                "incident_id": "gpu068@1767001500",
                "state": "suspect",
            }
        ],
    }
}


class MarkOut(Answer):
    """A node was named, or was clear again."""

    at: float
    node: str
    incident_id: str
    state: Literal["pending", "suspect", "cleared"]


class ExtentOut(Answer):
    """Which times of a recording can be shown."""

    name: str
    start: float
    end: float
    step_s: float = Field(description="Seconds between evaluations.")
    first_at: float | None = Field(description="First evaluation that is kept; null before the first.")
    last_at: float | None = Field(description="Newest evaluation.")
    n_evaluations: int = Field(description="How many are kept.")
    marks: list[MarkOut] = Field(description="When nodes were named and cleared; the newest 500.")


class RecordingOut(Answer):
    """The recording that is played."""

    recording: ExtentOut | None = Field(description="Null for a live service.")


def add_recording(router: APIRouter, view: ServiceView) -> None:
    """Add ``GET /recording`` to the routes of a running service."""

    @router.get(
        "/recording",
        response_model=RecordingOut,
        tags=["service"],
        summary="The recording that is played",
        responses={**ok(EXAMPLE, "Its extent."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def recording() -> dict[str, Any]:
        """Tell which times `at` of other routes may name, and when nodes were named."""
        found = view.recording()
        return {"recording": None if found is None else msgspec.to_builtins(found)}

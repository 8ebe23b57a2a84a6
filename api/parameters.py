"""Parameters and answers that many routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.exceptions import HTTPException

from api.present import Plain
from detector.service_view import NotKeptError, ServiceView

MAX_LIMIT, MAX_OFFSET = 1000, 1_000_000

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most.")]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="How many to pass over.")]
NodeName = Annotated[str, Query(min_length=1, max_length=253, description="Node name.")]
Time = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="Epoch seconds.")]

At = Annotated[
    float | None,
    Query(
        ge=0,
        le=1e11,
        allow_inf_nan=False,
        description="Epoch seconds: as of then, while a recording is played; without it now.",
    ),
]


def seen_at(view: ServiceView, at: float | None) -> ServiceView:
    """Return a service as of a time, or answer that it cannot be shown then."""
    if at is None:
        return view
    try:
        return view.as_of(at)
    except NotKeptError as error:
        raise HTTPException(422, f"at: {error}") from None


def answer(example: Plain, description: str) -> Plain:
    """Describe an answer by an example."""
    return {"description": description, "content": {"application/json": {"example": example}}}


def ok(example: Plain, description: str, status: int = 200) -> dict[int | str, Plain]:
    """Describe the answer of a route that went well."""
    return {status: answer(example, description)}

"""Parameters and answers that many routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from api.present import Plain

MAX_LIMIT, MAX_OFFSET = 1000, 1_000_000

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most.")]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="How many to pass over.")]
NodeName = Annotated[str, Query(min_length=1, max_length=253, description="Node name.")]
Time = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="Epoch seconds.")]


def answer(example: Plain, description: str) -> Plain:
    """Describe an answer by an example."""
    return {"description": description, "content": {"application/json": {"example": example}}}


def ok(example: Plain, description: str, status: int = 200) -> dict[int | str, Plain]:
    """Describe the answer of a route that went well."""
    return {status: answer(example, description)}

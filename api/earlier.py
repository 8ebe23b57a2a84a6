"""Route for a node's own past, beside the present in its charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from api import present
from api.errors import CONFLICT, INTERNAL, INVALID, UNAVAILABLE
from api.parameters import At, NodeName, ok, seen_at
from api.schemas import Answer, Timed
from api.series import Labels, MaxSignals, MetricName, PartName, pairs
from detector.core.series_view import SeriesQuery
from detector.earlier import Earlier
from detector.service_view import Latest, ServiceView

LONGEST_S = 31 * 86400.0

EXAMPLE: dict[str, Any] = {
    "at": 1767003300.0,
    "data_age_s": 2.1,
    "is_partial": False,
    "before_s": 86400.0,
    "series": [
        {
            "metric": "DCGM_FI_DEV_GPU_TEMP",
            "node": "gpu068",
            "part": "gpu 3",
            "labels": {"gpu": "3"},
            "times": [1766916870.0, 1766916900.0],
            "value": [61.0, None],
        }
    ],
}


class EarlierSeriesOut(Answer):
    """One signal of a node some time ago."""

    metric: str
    node: str
    part: str
    labels: dict[str, str]
    times: list[float] = Field(description="Of then: `before_s` before those that a chart shows.")
    value: list[float | None]


class EarlierOut(Timed):
    """A node's own past."""

    before_s: float
    series: list[EarlierSeriesOut] = Field(description="Empty when there are no samples of then.")


def add_earlier(
    router: APIRouter,
    view: ServiceView,
    evaluated: Callable[[ServiceView], Latest],
    earlier: Earlier | None,
) -> None:
    """Add ``GET /earlier`` to the routes of a running service.

    Parameters
    ----------
    evaluated
        Returns the newest evaluation or answers that there is none.
    earlier
        Reads the past; None where nothing can be read.
    """

    @router.get(
        "/earlier",
        response_model=EarlierOut,
        tags=["verdicts"],
        summary="A node's own past",
        responses={**ok(EXAMPLE, "One entry per signal."), **INVALID, **CONFLICT, **UNAVAILABLE, **INTERNAL},
    )
    def read(
        node: NodeName,
        metric: MetricName,
        part: PartName = "",
        label: Labels = [],  # noqa: B006 - never changed
        before_s: Annotated[float, Query(ge=60, le=LONGEST_S, description="Seconds earlier.")] = 86400.0,
        limit: MaxSignals = 20,
        at: At = None,
    ) -> dict[str, Any]:
        """Return the values of the same signals some time before what a chart shows, from the database."""
        seen = seen_at(view, at)
        latest = evaluated(seen)
        if earlier is None:
            raise HTTPException(409, "no past is read here: ask the replica that leads")
        query = SeriesQuery(node, metric, part, pairs(label), limit=limit)
        found = earlier.read(query, latest.outcome.at - before_s)
        return {
            **present.timed(seen, latest),
            "before_s": before_s,
            "series": [present.earlier(item) for item in found],
        }

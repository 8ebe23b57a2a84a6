"""Routes for the charts of a node: its signals against its peers, and what it shares with others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from api import examples, present, schemas
from api.errors import INTERNAL, INVALID, UNAVAILABLE, UNKNOWN
from api.parameters import At, NodeName, Time, ok, seen_at
from detector.core.neighbours import Neighbours
from detector.core.series_view import Scope, SeriesQuery
from detector.outcome import Status
from detector.past import Past, Told
from detector.service_view import Latest, ServiceView

MAX_SHOWN = 50

MetricName = Annotated[str, Query(min_length=1, max_length=200, description="Metric of the catalog.")]
PartName = Annotated[str, Query(max_length=200, description="Part of the node, empty for all.")]
Labels = Annotated[
    list[Annotated[str, Field(min_length=2, max_length=1200, pattern="^[^=]+=")]],
    Query(max_length=10, description="Only signals with this label, as `name=value`; repeatable."),
]
MaxSignals = Annotated[int, Query(ge=1, le=100, description="How many signals at most.")]

_ORDER = [Status.SUSPECT, Status.PENDING, Status.UNDETERMINED, None, Status.CLEAR]


def pairs(labels: list[str]) -> tuple[tuple[str, str], ...]:
    """Return labels as (name, value)."""
    parted = [text.partition("=") for text in labels]
    return tuple((name, value) for name, _, value in parted)


def add_series(
    router: APIRouter, view: ServiceView, evaluated: Callable[[ServiceView], Latest], past: Past | None = None
) -> None:
    """Add ``GET /series`` and ``GET /neighbours`` to the routes of a running service.

    Parameters
    ----------
    evaluated
        Returns the newest evaluation or answers that there is none.
    past
        Reads what lies before the window that is kept; None where that is not done.
    """
    answers: dict[int | str, Any] = {**UNKNOWN, **INVALID, **UNAVAILABLE, **INTERNAL}

    @router.get(
        "/series",
        response_model=schemas.SeriesOut,
        tags=["verdicts"],
        summary="A node's signal against its peers",
        responses={**ok(examples.SERIES, "One entry per signal."), **answers},
    )
    def series(
        node: NodeName,
        metric: MetricName,
        part: PartName = "",
        label: Labels = [],  # noqa: B006 - never changed
        scope: Annotated[
            Literal["all", "slot"], Query(description="All peers, or the same slot of other nodes.")
        ] = "all",
        peers: Annotated[
            int, Query(ge=0, le=24, description="Lines of so many single peers with each signal.")
        ] = 0,
        since: Annotated[Time, Query(description="Epoch seconds: from then on, not the kept window.")] = None,
        until: Annotated[Time, Query(description="Epoch seconds: with `since`, up to then.")] = None,
        limit: MaxSignals = 20,
        at: At = None,
    ) -> dict[str, Any]:
        """Return values over the kept window, or a longer time, beside the peers' median and their band."""
        seen = seen_at(view, at)
        latest = evaluated(seen)
        query = SeriesQuery(node, metric, part, pairs(label), Scope(scope), peers, limit)
        if since is not None:
            query = replace(query, since=since, until=math.inf if until is None else max(since, until))
            if past is None:
                told = Told(list(seen.series(query)), 0.0, "no past is read here: ask the replica that leads")
            else:
                told = past.series(query, latest.outcome.at)
            return {
                **present.timed(seen, latest),
                "every_s": told.every_s,
                "note": told.note,
                "series": [present.series(item) for item in told.series],
            }
        found = seen.series(query)
        if not found:
            where = f"node {node!r}" + (f", part {part!r}," if part else "")
            like = " with these labels" if label else ""
            raise HTTPException(404, f"{where} has no metric {metric!r} that is compared{like}")
        return {**present.timed(seen, latest), "series": [present.series(item) for item in found]}

    @router.get(
        "/neighbours",
        response_model=schemas.NeighboursOut,
        tags=["verdicts"],
        summary="Nodes on the same switch, rack or export",
        responses={**ok(examples.NEIGHBOURS, "One entry per label and value."), **answers},
    )
    def neighbours(node: NodeName, at: At = None) -> dict[str, Any]:
        """List what a node shares with others, as far as labels of its series tell, and how those are."""
        seen = seen_at(view, at)
        latest = evaluated(seen)
        states = {verdict.node: verdict.status for verdict in latest.outcome.verdicts}
        if node not in states:
            raise HTTPException(404, f"node {node!r} is not known")
        return {
            **present.timed(seen, latest),
            "node": node,
            "shared": [_shared(item, node, states) for item in seen.neighbours(node)],
        }


def _shared(item: Neighbours, node: str, states: dict[str, Status]) -> dict[str, Any]:
    others = [name for name in item.nodes if name != node]
    others.sort(key=lambda name: _ORDER.index(states.get(name)))
    return {
        "label": item.label,
        "value": item.value,
        "n_nodes": len(item.nodes),
        "nodes": [
            {"node": name, "status": states[name].value if name in states else None}
            for name in others[:MAX_SHOWN]
        ],
    }

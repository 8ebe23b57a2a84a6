"""All nodes against all monitored targets, and how much there is to judge by: what the heat map shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter
from pydantic import Field

from api import present
from api.errors import INTERNAL, INVALID, UNAVAILABLE
from api.marks import Marks
from api.parameters import At, ok, seen_at
from api.schemas import Answer, Status, Timed
from detector.outcome import Verdict
from detector.service_view import Coverage, Latest, ServiceView

EXAMPLE: dict[str, Any] = {
    "at": 1767003300.0,
    "data_age_s": 2.1,
    "is_partial": False,
    "targets": [
        {"target": "GPU", "n_metrics": 95, "n_seen": 31},
        {"target": "NFS", "n_metrics": 22, "n_seen": 0},
    ],
    "exporters": [{"exporter": "dcgm", "n_expected": 7200, "n_fresh": 7180}],
    "nodes": [
        {
            "node": "gpu068", "pool": "main", "status": "suspect", "score": 5.951, "is_muted": False,
            "cells": [4.0, None],
        },
        {
            "node": "gpu020", "pool": "main", "status": "clear", "score": 0.4, "is_muted": False,
            "cells": [0.0, None],
        },
    ],
    "n_series": 28735,
}  # fmt: skip


class TargetCoverOut(Answer):
    """Metrics of one monitored target."""

    target: str
    n_metrics: int = Field(description="How many the catalog names.")
    n_seen: int = Field(description="Of how many there is a fresh sample.")


class ExporterCoverOut(Answer):
    """Signals of one exporter."""

    exporter: str
    n_expected: int = Field(description="Signals that were there of late.")
    n_fresh: int = Field(description="Those with a fresh sample.")


class FleetNodeOut(Answer):
    """One row of the heat map."""

    node: str
    pool: str
    status: Status
    score: float | None
    is_muted: bool
    cells: list[float | None] = Field(
        description="For each target the strongest evidence, 1 is the threshold; null without data."
    )


class FleetOut(Timed):
    """Nodes against targets."""

    targets: list[TargetCoverOut]
    exporters: list[ExporterCoverOut]
    nodes: list[FleetNodeOut] = Field(description="All of them, suspects first.")
    n_series: int = Field(description="Series that are compared.")


def add_fleet(
    router: APIRouter,
    view: ServiceView,
    evaluated: Callable[[ServiceView], Latest],
    marks: Marks,
) -> None:
    """Add ``GET /fleet`` to the routes of a running service.

    Parameters
    ----------
    evaluated
        Returns the newest evaluation or answers that there is none.
    marks
        What operators have said.
    """

    @router.get(
        "/fleet",
        response_model=FleetOut,
        tags=["verdicts"],
        summary="Nodes against monitored targets",
        responses={
            **ok(EXAMPLE, "All nodes."),
            **INVALID,
            **UNAVAILABLE,
            **INTERNAL,
        },
    )
    def fleet(at: At = None) -> dict[str, Any]:
        """Return each node's strongest evidence in each monitored target, and what there is to judge by."""
        seen = seen_at(view, at)
        latest = evaluated(seen)
        said = marks.as_of(seen, view)
        known = seen.coverage() or Coverage(latest.outcome.at)
        return {
            **present.timed(seen, latest),
            "targets": [msgspec.to_builtins(item) for item in known.targets],
            "exporters": [msgspec.to_builtins(item) for item in known.exporters],
            "nodes": [
                {
                    "node": verdict.node,
                    "pool": verdict.pool,
                    "status": verdict.status.value,
                    "score": present.finite(verdict.score),
                    "is_muted": said.is_muted(verdict),
                    "cells": _cells(verdict, known),
                }
                for verdict in latest.outcome.verdicts
            ],
            "n_series": latest.outcome.n_series,
        }


def _cells(verdict: Verdict, known: Coverage) -> list[float | None]:
    has_data = known.nodes.get(verdict.node, ())
    strongest: dict[str, float] = {}
    for item in verdict.evidence:
        strongest[item.target] = max(strongest.get(item.target, 0.0), present.finite(item.score) or 0.0)
    return [
        round(strongest[cover.target], 2)
        if cover.target in strongest
        else (0.0 if k < len(has_data) and has_data[k] else None)
        for k, cover in enumerate(known.targets)
    ]

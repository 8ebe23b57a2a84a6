"""Routes under ``/v1``: what is suspect, what was, and why."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException

from api import examples, present, schemas
from api.control import add_control
from api.errors import INTERNAL, INVALID, UNAVAILABLE, UNKNOWN
from api.events import add_events
from api.explain import add_explain
from api.export import add_export
from api.fleet import add_fleet
from api.marks import Marks
from api.offenders import add_offenders
from api.parameters import MAX_LIMIT, At, Limit, Offset, Time, ok, seen_at
from api.recording import add_recording
from api.report import add_report
from api.series import add_series
from api.suspects import add_suspects
from api.what_if import add_what_if
from detector.control.desk import Desk
from detector.export import Exporter
from detector.past import Past
from detector.reporter import Reporter
from detector.service_view import Latest, ServiceView
from detector.store_read import IncidentFilter
from detector.what_if.trials import Trials

SHOWN_WITH_NODE = 50

NodeQuery = Annotated[str | None, Query(min_length=1, max_length=253, description="Node name.")]


def create_router(
    view: ServiceView,
    desk: Desk | None = None,
    trials: Trials | None = None,
    exporter: Exporter | None = None,
    past: Past | None = None,
    reporter: Reporter | None = None,
) -> APIRouter:
    """Return the routes of a running service; without a desk nobody has said anything."""
    router = APIRouter(prefix="/v1")
    marks = Marks(desk)
    add_suspects(router, view, _evaluated, marks)
    add_report(router, view, reporter)  # its address would be an incident's name to the route of one incident
    _add_incidents(router, view, marks)
    _add_nodes(router, view, marks)
    _add_groups(router, view)
    add_series(router, view, _evaluated, past)
    add_fleet(router, view, _evaluated, marks)
    add_events(router, view, lambda: None if desk is None else desk.holds())
    add_explain(router, view)
    add_recording(router, view)
    add_offenders(router, view, marks.is_dismissed)
    add_control(router, desk)
    add_what_if(router, view, trials)
    add_export(router, desk, exporter)
    return router


def _evaluated(view: ServiceView) -> Latest:
    latest = view.latest()
    if latest is None:
        reasons = "; ".join(view.readiness().reasons) or "nothing was evaluated yet"
        raise HTTPException(503, reasons, headers={"Retry-After": "10"})
    return latest


def _add_incidents(router: APIRouter, view: ServiceView, marks: Marks) -> None:
    @router.get(
        "/incidents",
        response_model=schemas.IncidentsOut,
        tags=["incidents"],
        summary="Incidents, newest first",
        responses={**ok(examples.INCIDENTS, "Newest first."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def incidents(
        node: NodeQuery = None,
        state: Annotated[
            Literal["open", "pending", "suspect", "cleared"] | None,
            Query(description="State; `open` is pending or suspect."),
        ] = None,
        since: Time = None,
        until: Time = None,
        was_suspect: Annotated[
            bool, Query(description="Leave out first signs that never made a suspect.")
        ] = False,
        limit: Limit = 100,
        offset: Offset = 0,
        at: At = None,
    ) -> dict[str, Any]:
        """List stored incidents that were open at some time between `since` and `until`."""
        wanted = IncidentFilter(node, state, since, until, was_suspect)
        seen = seen_at(view, at)
        said = marks.as_of(seen, view)
        return {
            **present.timed(seen, seen.latest()),
            "total": seen.store.count_incidents(wanted),
            "limit": limit,
            "offset": offset,
            "incidents": [
                said.incident(item) for item in seen.store.incidents(wanted, limit=limit, offset=offset)
            ],
        }

    @router.get(
        "/incidents/{incident_id:path}",
        response_model=schemas.IncidentDetailOut,
        tags=["incidents"],
        summary="One incident with its transitions",
        responses={
            **ok(examples.INCIDENT, "The incident."), **UNKNOWN, **INVALID, **UNAVAILABLE, **INTERNAL
        },
    )  # fmt: skip
    def incident(
        incident_id: Annotated[str, Path(min_length=1, max_length=300)], at: At = None
    ) -> dict[str, Any]:
        """Tell the life of one incident."""
        seen = seen_at(view, at)
        found = seen.store.incident(incident_id)
        if found is None:
            raise HTTPException(404, f"incident {incident_id!r} is not known")
        return {
            **present.timed(seen, seen.latest()),
            "incident": marks.as_of(seen, view).incident(found),
            "transitions": [
                present.plain(item)
                for item in seen.store.transitions(incident_id=incident_id, limit=MAX_LIMIT)
            ],
        }


def _add_nodes(router: APIRouter, view: ServiceView, marks: Marks) -> None:
    @router.get(
        "/nodes",
        response_model=schemas.NodesOut,
        tags=["verdicts"],
        summary="All nodes, suspects first",
        responses={
            **ok(examples.NODES, "Suspects first, then by score."), **INVALID, **UNAVAILABLE, **INTERNAL
        },
    )  # fmt: skip
    def nodes(
        status: Annotated[schemas.Status | None, Query(description="Only nodes in this state.")] = None,
        pool: Annotated[str | None, Query(max_length=253, description="Only nodes of this pool.")] = None,
        limit: Limit = 100,
        offset: Offset = 0,
        at: At = None,
    ) -> dict[str, Any]:
        """List what is known of every node."""
        seen = seen_at(view, at)
        latest, said = _evaluated(seen), marks.as_of(seen, view)
        found = [
            verdict
            for verdict in latest.outcome.verdicts
            if (status is None or verdict.status.value == status) and (pool is None or verdict.pool == pool)
        ]
        return {
            **present.timed(seen, latest),
            "total": len(found),
            "limit": limit,
            "offset": offset,
            "nodes": [said.node(verdict, latest) for verdict in found[offset : offset + limit]],
        }

    @router.get(
        "/nodes/{node:path}",
        response_model=schemas.NodeDetailOut,
        tags=["verdicts"],
        summary="One node with its evidence and incidents",
        responses={**ok(examples.NODE, "The node."), **UNKNOWN, **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def one_node(node: Annotated[str, Path(min_length=1, max_length=253)], at: At = None) -> dict[str, Any]:
        """Tell all that is known of one node."""
        seen = seen_at(view, at)
        latest = _evaluated(seen)
        verdict = next((v for v in latest.outcome.verdicts if v.node == node), None)
        if verdict is None:
            raise HTTPException(404, f"node {node!r} is not known")
        said = marks.as_of(seen, view)
        return {
            **present.timed(seen, latest),
            "node": said.node(verdict, latest),
            "evidence": [present.evidence(item) for item in verdict.evidence],
            "incidents": [
                said.incident(item)
                for item in seen.store.incidents(IncidentFilter(node=node), limit=SHOWN_WITH_NODE)
            ],
            "data_quality": [present.plain(f) for f in latest.outcome.data_quality if f.node == node],
        }


def _add_groups(router: APIRouter, view: ServiceView) -> None:
    @router.get(
        "/groups",
        response_model=schemas.GroupsOut,
        tags=["verdicts"],
        summary="Peer groups and group events",
        responses={**ok(examples.GROUPS, "All groups."), **INVALID, **UNAVAILABLE, **INTERNAL},
    )
    def groups(limit: Limit = 100, offset: Offset = 0, at: At = None) -> dict[str, Any]:
        """List who is compared with whom, and what moved whole groups so that nobody is blamed."""
        seen = seen_at(view, at)
        latest = _evaluated(seen)
        return {
            **present.timed(seen, latest),
            "total": len(latest.groups),
            "limit": limit,
            "offset": offset,
            "groups": [
                {
                    "pool": group.pool,
                    "unit": group.unit,
                    "n_nodes": group.n_nodes,
                    "n_members": group.n_members,
                    "n_signals": group.n_signals,
                    "undetermined": group.undetermined,
                }
                for group in latest.groups[offset : offset + limit]
            ],
            "group_events": [
                present.plain(event) for event in seen.store.group_events(limit=SHOWN_WITH_NODE)
            ],
            "data_quality": [present.plain(f) for f in latest.outcome.data_quality if not f.node],
        }

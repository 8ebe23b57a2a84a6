"""The REST interface as one app."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from api import errors, examples, schemas
from api.access import Access, Entrance, Policy
from api.console import Pages, add_console, wants_page
from api.documented import document_access
from api.errors import INTERNAL
from api.parameters import answer, ok
from api.routes import create_router
from detector.control.desk import Desk
from detector.export import Exporter
from detector.past import Past
from detector.reporter import Reporter
from detector.service_view import ServiceView
from detector.what_if.trials import Trials

DESCRIPTION = (
    "Finds the odd node out: machines of a GPU training cluster that deviate from their peers, with the "
    "evidence. Times are epoch seconds. Every answer that rests on an evaluation says its time and age."
)
LINKS = {
    "suspects": "/v1/suspects",
    "incidents": "/v1/incidents",
    "nodes": "/v1/nodes",
    "groups": "/v1/groups",
    "fleet": "/v1/fleet",
    "mutes": "/v1/mutes",
    "feedback": "/v1/feedback",
    "audit": "/v1/audit",
    "what_if": "/v1/what-if",
    "ready": "/readyz",
    "metrics": "/metrics",
    "openapi": "/openapi.json",
}


def create_app(
    view: ServiceView,
    version: str = "0",
    *,
    desk: Desk | None = None,
    entrance: Entrance | None = None,
    trials: Trials | None = None,
    exporter: Exporter | None = None,
    past: Past | None = None,
    reporter: Reporter | None = None,
) -> FastAPI:
    """Return the REST interface of a running service.

    Parameters
    ----------
    view
        The service.
    version
        Version to show.
    desk
        Takes operators' requests; None for an interface that only reads.
    entrance
        What is asked of clients; None asks for no token and takes the service for local.
    trials
        Tries other settings; None where that is not done.
    exporter
        Makes recorded cases of incidents; None for an interface that does not.
    past
        Reads what charts show beyond the window that is kept; None for an interface that does not.
    reporter
        Makes reports of incidents; None for an interface that does not.
    """
    app = FastAPI(
        title="Oddnode",
        version=version,
        description=DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    errors.install(app)
    app.include_router(create_router(view, desk, trials, exporter, past, reporter))
    pages = Pages(version)
    _add_root(app, pages)
    _add_probes(app, view)
    add_console(app, pages)
    document_access(app)
    app.add_middleware(Access, entrance=entrance or Entrance(Policy()))
    return app


def _add_root(app: FastAPI, pages: Pages) -> None:
    @app.get(
        "/",
        response_model=schemas.RootOut,
        tags=["service"],
        summary="Where to look",
        responses={**ok(examples.ROOT, "Links."), **INTERNAL},
    )
    async def root(request: Request) -> Any:
        """Name the other routes; a browser gets the console."""
        if wants_page(request.headers.get("accept", "")):
            return pages.page(request, "now")
        return JSONResponse({"name": "oddnode", "links": LINKS}, headers={"vary": "Accept"})


def _add_probes(app: FastAPI, view: ServiceView) -> None:
    @app.get(
        "/healthz",
        response_model=schemas.HealthOut,
        tags=["service"],
        summary="The process answers",
        responses={**ok(examples.HEALTH, "It does."), **INTERNAL},
    )
    async def healthz() -> JSONResponse:
        """Answer at once, whatever else goes on: for liveness probes."""
        return JSONResponse({"status": "ok"})

    @app.get(
        "/readyz",
        response_model=schemas.ReadyOut,
        tags=["service"],
        summary="Verdicts are fresh and stored",
        responses={
            **ok(examples.READY, "They are."),
            503: {"model": schemas.ReadyOut, **answer(examples.NOT_READY, "They are not, and why.")},
            **INTERNAL,
        },
    )
    async def readyz() -> JSONResponse:
        """Tell whether verdicts can be relied on: fresh data, series found, incidents stored."""
        found = view.readiness()
        body = {
            "status": "ready" if found.is_ready else "not ready",
            "reasons": list(found.reasons),
            "notes": list(found.notes),
        }
        return JSONResponse(body, status_code=200 if found.is_ready else 503)

    @app.get(
        "/metrics",
        response_class=Response,
        tags=["service"],
        summary="Own metrics",
        responses={
            200: {
                "description": "Prometheus text format.",
                "content": {"text/plain": {"example": examples.METRICS}},
            },
            **INTERNAL,
        },
    )
    def metrics() -> Response:
        """Return own metrics for Prometheus."""
        return Response(view.metrics_text(), media_type=CONTENT_TYPE_LATEST)

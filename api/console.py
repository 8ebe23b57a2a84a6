"""Pages for people: shells that the REST interface fills, so they tell nothing of the cluster themselves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).resolve().parent
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "vary": "Accept",
}
STATIC_HEADERS = {"cache-control": "no-cache"}
"""A browser may keep a file, and asks each time whether it is still the same."""

OPEN_PREFIXES = ("/static/", "/nodes/", "/incidents/")
OPEN_PAGES = frozenset({"/incidents", "/tune"})

MAX_NAME = 300


def is_page(path: str) -> bool:
    """Tell whether a path is a page or one of its files: these need no token, as what they show does."""
    return path in OPEN_PAGES or path.startswith(OPEN_PREFIXES)


def wants_page(accept: str) -> bool:
    """Tell whether a client would rather have a page than JSON, by its header ``Accept``."""
    weights: dict[str, float] = {}
    for item in accept.lower().split(",")[:50]:
        kind, *options = (piece.strip() for piece in item.split(";"))
        weight = 1.0
        for option in options:
            if option.startswith("q="):
                try:
                    weight = float(option[2:])
                except ValueError:
                    weight = 0.0
        weights[kind] = weight
    page = weights.get("text/html", 0.0)
    return page > 0 and page >= weights.get("application/json", 0.0)


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    kind: str
    etag: str


def _files(folder: Path) -> dict[str, _File]:
    """Read all files at once: nothing that a client sends ever becomes a path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in KINDS:
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found[path.relative_to(folder).as_posix()] = _File(body, KINDS[path.suffix], etag)
    return found


class Pages:
    """Makes the pages.

    Parameters
    ----------
    version
        Version to show.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def page(self, request: Request, name: str, subject: str = "") -> Response:
        """Return a page about a node or an incident, or about all of them.

        Parameters
        ----------
        request
            Tells at which address the page is shown.
        name
            Template without its ending.
        subject
            Name of the node or identifier of the incident.
        """
        # relative, as a proxy may serve all of it under a prefix that only the browser knows; a slash that
        # is encoded in a name is none to the browser
        depth = request.scope.get("raw_path", b"/").partition(b"?")[0].count(b"/") - 1
        text = self._templates.get_template(f"{name}.html").render(
            page=name, root="../" * depth or "./", subject=subject[:MAX_NAME], version=self._version
        )
        return Response(text, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)


def add_console(app: FastAPI, pages: Pages) -> None:
    """Add the pages and their files to the app; the page at ``/`` is the caller's."""
    files = _files(HERE / "static")
    hidden: dict[str, Any] = {"include_in_schema": False}

    @app.get("/nodes/{node:path}", **hidden)
    async def node(request: Request, node: str) -> Response:
        return pages.page(request, "node", node)

    @app.get("/incidents", **hidden)
    async def incidents(request: Request) -> Response:
        return pages.page(request, "incidents")

    @app.get("/incidents/{incident_id:path}", **hidden)
    async def incident(request: Request, incident_id: str) -> Response:
        return pages.page(request, "incident", incident_id)

    @app.get("/tune", **hidden)
    async def tune(request: Request) -> Response:
        return pages.page(request, "tune")

    @app.get("/static/{name:path}", **hidden)
    async def static(request: Request, name: str) -> Response:
        found = files.get(name)
        if found is None:
            return Response("there is no such file", 404, media_type="text/plain")
        headers = {**STATIC_HEADERS, "etag": found.etag}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, media_type=found.kind, headers=headers)

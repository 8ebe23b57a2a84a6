"""Who may do what at the REST interface, checked before any route: tokens, scopes, origins, sizes, rates."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.console import is_page
from api.errors import answer
from api.headers import HEADERS
from api.limits import Rate, client_key
from detector.settings_auth import AuthSettings
from detector.tokens import Tokens

log = logging.getLogger("oddnode.api")

OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})
"""Answered without a token: they tell nothing of the cluster."""

METRICS_PATH = "/metrics"
BOUNDED = "/v1/"
"""Reading below it is bounded in rate; probes, scrapes and files of the pages are not."""

MAX_BODY_BYTES = 64 << 10
BODY_WAIT_S = 10.0
"""A body that is not there after this long is not waited for."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWN_PATH = 100


def _no_tokens() -> Tokens:
    return Tokens(AuthSettings())


@dataclass(frozen=True, slots=True)
class Policy:
    """What is asked of clients.

    Parameters
    ----------
    tokens
        Who is who.
    is_local
        True when only this machine can reach the service: then changes need no token if none is set.
    auth
        Bounds, and whether own metrics are open.
    """

    tokens: Tokens = field(default_factory=_no_tokens)
    is_local: bool = True
    auth: AuthSettings = field(default_factory=AuthSettings)


@dataclass(frozen=True, slots=True)
class _Ruling:
    """A policy and how much of its bounds is used up."""

    policy: Policy
    reads: Rate
    writes: Rate
    failures: Rate


class Entrance:
    """The policy in effect; may be replaced while requests come in.

    Parameters
    ----------
    policy
        What is asked of clients.
    """

    def __init__(self, policy: Policy) -> None:
        self.replace(policy)

    def replace(self, policy: Policy) -> None:
        """Ask this of clients from the next request on; what they have used of the bounds is forgotten."""
        auth = policy.auth
        rates = (Rate(n) for n in (auth.reads_per_minute, auth.writes_per_minute, auth.failures_per_minute))
        self.now = _Ruling(policy, *rates)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let through."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Access:
    """Lets requests through to the app, or answers itself.

    Parameters
    ----------
    app
        What is behind.
    entrance
        What is asked of clients.
    """

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _with_headers(send)
        is_write = scope["method"] not in READING
        refusal = self._refusal(scope, Headers(scope=scope), is_write=is_write)
        if refusal is None and is_write:
            body = await _body(receive)
            if isinstance(body, Refusal):
                refusal = body
            else:
                receive = _replayed(body, receive)
        if refusal is not None:
            response = answer(refusal.status, refusal.message, dict(refusal.headers))
            await response(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers, *, is_write: bool) -> Refusal | None:
        client = client_key(scope["client"][0] if scope.get("client") else "")
        ruling = self._entrance.now  # one for the whole request
        if is_write and (why := _cross_site(headers)):
            return Refusal(403, why)
        who, refusal = _who(ruling, scope, headers, client, is_write=is_write)
        if refusal is not None:
            return refusal
        asking = f"token {who}" if who else client
        if not is_write:
            bounded = scope["path"].startswith(BOUNDED)
            wait_s = ruling.reads.take(asking) if bounded else 0.0
            return _wait(wait_s, "too many questions in a short time") if wait_s > 0 else None
        scope.setdefault("state", {})["token_name"] = who
        if (wait_s := ruling.writes.take(asking)) > 0:
            return _wait(wait_s, "too many changes in a short time")
        if scope["method"] != "DELETE" and not _is_json(headers):
            return Refusal(415, "the body must be JSON: Content-Type: application/json")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > MAX_BODY_BYTES:
            return Refusal(413, f"the body must be at most {MAX_BODY_BYTES} bytes", {"Connection": "close"})
        return None


def _who(
    ruling: _Ruling, scope: Scope, headers: Headers, client: str, *, is_write: bool
) -> tuple[str, Refusal | None]:
    """Return the name of the token, empty when none is needed, or why it is refused."""
    path, policy = scope["path"], ruling.policy
    if not policy.tokens.are_set:
        return "", _without_tokens(headers, is_local=policy.is_local) if is_write else None
    if path in OPEN_PATHS or is_page(path) or (path == METRICS_PATH and policy.auth.metrics_open):
        return "", None
    given = headers.getlist("authorization")
    if not given:
        return "", Refusal(401, "a token is needed: Authorization: Bearer ...", _challenge())
    kind, _, token = given[0].partition(" ")
    owner = policy.tokens.find(token.strip()) if len(given) == 1 and kind.lower() == "bearer" else None
    if owner is None:
        if (wait_s := ruling.failures.take(client)) > 0:
            return "", _wait(wait_s, "too many refused tokens")
        log.warning(
            "access refused=401 client=%s method=%s path=%r", client, scope["method"], path[:SHOWN_PATH]
        )
        return "", Refusal(401, "the token is not valid", _challenge("invalid_token"))
    if is_write and owner.scope != "operate":
        return "", Refusal(403, "the token may only read: changes need one of scope operate")
    return owner.name, None


def _challenge(error: str = "") -> dict[str, str]:
    more = f', error="{error}"' if error else ""
    return {"WWW-Authenticate": f'Bearer realm="oddnode"{more}'}


def _wait(wait_s: float, why: str) -> Refusal:
    seconds = max(1, math.ceil(wait_s))
    return Refusal(429, f"{why}: ask again in {seconds} s", {"Retry-After": str(seconds)})


def _without_tokens(headers: Headers, *, is_local: bool) -> Refusal | None:
    """Say why a change is refused although no token is set, None when it is not."""
    if not is_local:
        return Refusal(
            403,
            "changes are refused: the service listens beyond this machine and no token is set; "
            "make one with oddnode token and set auth.tokens",
        )
    # a page that lets its own name point to this machine would count as the same origin
    if not _is_local_name(_host_of(f"//{headers.get('host', '')}")):
        return Refusal(403, "changes without a token must be sent to localhost by that name or its address")
    return None


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_local_name(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _cross_site(headers: Headers) -> str:
    """Say why a change comes from a foreign page, empty when it does not.

    Browsers tell the relation themselves, also behind a proxy that changes the host; where one does not,
    the origin must be this host.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return "" if site in ("same-origin", "none") else "changes from pages of other sites are refused"
    origin = headers.get("origin")
    host = headers.get("host", "").lower()
    if origin is None or (host and origin.lower() in (f"http://{host}", f"https://{host}")):
        return ""
    return "changes from pages of other sites are refused"


def _is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


async def _body(receive: Receive) -> bytes | Refusal:
    """Take in a whole body, bounded in size and time."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_WAIT_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return Refusal(400, "the request ended early")
                found += message.get("body", b"")
                if len(found) > MAX_BODY_BYTES:
                    return Refusal(
                        413, f"the body must be at most {MAX_BODY_BYTES} bytes", {"Connection": "close"}
                    )
                if not message.get("more_body", False):
                    return bytes(found)
    except TimeoutError:
        return Refusal(408, "the body did not come in time", {"Connection": "close"})


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_told = False

    async def replay() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return guarded

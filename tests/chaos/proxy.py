"""A proxy in front of a real database that, when told to, does what goes wrong in the field.

What a request meets is drawn from the seed and the request alone, and an answer is put in order before it
is changed: neither the order in which requests arrive nor that of the database's lines changes a run.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SLOW = frozenset({"silence", "drip"})
"""Last until the client gives up."""

FAILING = SLOW | {"reset", "reset_inside", "status", "too_many_requests", "cut", "cut_inside_a_line", "page"}
"""A client that does not ask again must fail."""

LOSING = frozenset({"stale", "missing"})
"""Data are lost and nobody says so; no client can know."""

KINDS = (*sorted(FAILING), *sorted(LOSING), "corrupt", "corrupt_digits", "late", "partial")
PROMETHEUS_ONLY = frozenset({"partial"})
"""An export has no way to say that it is incomplete."""

LATE_S = 0.03
DRIP_S = 0.02
PAGE = b"<!doctype html><title>Log in</title>"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with the way to the database.

    Parameters
    ----------
    kind
        One of `KINDS`.
    share
        Share of requests that meet it, more than 0 and at most 1.
    """

    kind: str
    share: float = 1.0

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind
        assert 0 < self.share <= 1, self.share


@dataclass(slots=True)
class _Answer:
    status: int
    content_type: str
    body: bytes


class Proxy:
    """Passes requests on to a database, through the trouble of the moment.

    Parameters
    ----------
    upstream
        Address of the database.
    seed
        Of all that is drawn.
    """

    def __init__(self, upstream: str, seed: int) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._seed = seed
        self._n_made = 0
        self._asked: Counter[bytes] = Counter()
        self._trouble: Trouble | None = None
        self._met: list[str] = []
        self._lock = threading.Lock()
        self._earlier: dict[tuple[str, str], _Answer] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server: asyncio.Server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong now, None when all is well."""
        return self._trouble

    def make(self, trouble: Trouble | None) -> None:
        """Begin a trouble, or end the one there is."""
        with self._lock:
            self._trouble = trouble
            self._n_made += 1
            self._asked.clear()
            self._met.clear()

    def met(self) -> list[str]:
        """Return the kinds that requests have met since the last `make`."""
        with self._lock:
            return list(self._met)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is over."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        body = await reader.readexactly(length)
        path = head.split(b" ", 2)[1].decode()
        kind, rng = self._draw(body)
        if kind == "silence":
            await reader.read()  # until the client hangs up
            return False
        if kind == "reset":
            _reset(writer)
            return False
        if kind in ("status", "too_many_requests", "page"):
            return await self._refuse(kind, rng, writer)
        answer = await self._ask(head, body)
        key = (path.partition("?")[0], _what_is_asked(body))
        earlier = self._earlier.setdefault(key, answer)
        return await self._troubled(kind, rng, earlier if kind == "stale" else answer, writer)

    def _draw(self, question: bytes) -> tuple[str, random.Random]:
        """Return what a request meets, and where more is drawn from."""
        with self._lock:
            self._asked[question] += 1
            drawn_from = f"{self._seed} {self._n_made} {self._asked[question]} {question!r}"
            rng, trouble = random.Random(drawn_from), self._trouble
            if trouble is None or rng.random() >= trouble.share:
                return "", rng
            self._met.append(trouble.kind)
            return trouble.kind, rng

    async def _refuse(self, kind: str, rng: random.Random, writer: asyncio.StreamWriter) -> bool:
        if kind == "page":
            await _send(writer, _Answer(200, "text/html", PAGE))
        elif kind == "too_many_requests":
            # more than any tick can wait
            await _send(writer, _Answer(429, "text/plain", b"try later"), "Retry-After: 1000\r\n")
        else:
            status = rng.choice((500, 502, 503, 504))
            await _send(writer, _Answer(status, "text/plain", b"storage is not reachable"))
        return True

    async def _ask(self, head: bytes, body: bytes) -> _Answer:
        """Ask the database; HTTP/1.0, so that the answer ends where the connection does."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            request, _, fields = head.partition(b"\r\n")
            writer.write(request.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + fields + body)
            await writer.drain()
            data = await reader.read(-1)
        finally:
            writer.close()
        answer_head, _, answer_body = data.partition(b"\r\n\r\n")
        lines = answer_head.split(b"\r\n")
        found = {n.strip().lower(): v.strip() for n, _, v in (line.partition(b":") for line in lines[1:])}
        return _Answer(int(lines[0].split()[1]), found.get(b"content-type", b"").decode(), answer_body)

    async def _troubled(
        self, kind: str, rng: random.Random, answer: _Answer, writer: asyncio.StreamWriter
    ) -> bool:
        body = _in_order(answer.body)
        if kind == "late":
            await asyncio.sleep(rng.uniform(0.0, LATE_S))
        elif kind == "drip":
            await _send_head(writer, answer, len(body) + 1)
            for k in range(len(body)):
                writer.write(body[k : k + 1])
                await writer.drain()
                await asyncio.sleep(DRIP_S)
            return False
        elif kind in ("reset_inside", "cut"):
            # one byte more is promised than will come, also of an empty answer
            await _send_head(writer, answer, len(body) + 1)
            writer.write(body[: rng.randint(0, len(body))])
            await writer.drain()
            if kind == "reset_inside":
                _reset(writer)
            return False
        changed = self._changed(kind, body, rng)
        await _send(writer, _Answer(answer.status, answer.content_type, changed))
        return True

    def _changed(self, kind: str, body: bytes, rng: random.Random) -> bytes:
        change: Callable[[random.Random, bytes], bytes] | None = {
            "cut_inside_a_line": _cut_inside_a_line,
            "corrupt": _corrupt,
            "corrupt_digits": _corrupt_digits,
            "missing": _without_half,
            "partial": _partial,
        }.get(kind)
        return body if change is None else change(rng, body)


def _what_is_asked(form: bytes) -> str:
    """Return the question without its times."""
    fields = parse_qsl(form.decode("utf-8", "replace"))
    return repr([(k, v.partition("}[")[0]) for k, v in fields if k not in ("start", "end", "time")])


def _in_order(body: bytes) -> bytes:
    """Return an answer with its series in an order of their own; databases give them in any."""
    if body.startswith(b'{"status"'):
        answer = json.loads(body)
        rows = answer.get("data", {}).get("result", [])
        rows.sort(key=lambda row: json.dumps(row["metric"], sort_keys=True))
        return json.dumps(answer, separators=(",", ":")).encode()
    return b"".join(sorted(body.splitlines(keepends=True)))


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _send_head(writer: asyncio.StreamWriter, answer: _Answer, length: int, more: str = "") -> None:
    writer.write(
        f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {length}\r\n{more}\r\n".encode()
    )
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, answer: _Answer, more: str = "") -> None:
    await _send_head(writer, answer, len(answer.body), more)
    writer.write(answer.body)
    await writer.drain()


def _cut_inside_a_line(rng: random.Random, body: bytes) -> bytes:
    """End a complete answer in form, and too early in content."""
    if len(body) < 4:
        return b"{"
    at = rng.randrange(1, len(body) - 1)
    while body[at - 1] == 10:
        at += 1
    return body[:at]


def _corrupt(rng: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(rng.randint(1, 30) if data else 0):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _corrupt_digits(rng: random.Random, body: bytes) -> bytes:
    """Damage that no parser can notice: digits of values, times and labels become other digits."""
    data = bytearray(body)
    places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    for at in rng.sample(places, min(len(places), rng.randint(1, 5))):
        data[at] = rng.randint(48, 57)
    return bytes(data)


def _without_half(rng: random.Random, body: bytes) -> bytes:
    if body.startswith(b'{"status"'):
        answer = json.loads(body)
        rows = answer["data"]["result"]
        answer["data"]["result"] = [row for row in rows if rng.random() < 0.5]
        return json.dumps(answer, separators=(",", ":")).encode()
    return b"".join(line for line in body.splitlines(keepends=True) if rng.random() < 0.5)


def _partial(rng: random.Random, body: bytes) -> bytes:
    answer = json.loads(_without_half(rng, body))
    answer["isPartial"] = True
    return json.dumps(answer, separators=(",", ":")).encode()

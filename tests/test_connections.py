"""Clients that hold connections and ask nothing, or do not read: they take no place from others for long."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from detector import app_connection
from detector.app_connection import DESCRIPTORS, MAX_CONNECTIONS, Connection
from tests.servers import wait_until

BIG = 64 << 20
SHORT_S = 0.2
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, with very much, or not before the client goes."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    body = bytes(BIG) if scope["path"] == "/big" else b"ok"
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def server() -> Iterator[uvicorn.Server]:
    config = uvicorn.Config(application, port=0, log_config=None, lifespan="off", http=Connection)
    made = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(made.serve()), daemon=True)
    thread.start()
    wait_until(lambda: made.started, "it answers")
    yield made
    made.should_exit = made.force_exit = True
    thread.join(10)


def port(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


@contextlib.contextmanager
def connected(server: uvicorn.Server, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port(server)), timeout=10) as made:
        made.sendall(said)
        yield made


def is_over(connection: socket.socket) -> bool:
    """Tell whether the other side has ended it; what was sent before that is read."""
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def answered(server: uvicorn.Server) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port(server), timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a head"])
def test_a_request_that_does_not_come_is_not_waited_for(
    said: bytes, server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_connection, "REQUEST_WAIT_S", SHORT_S)
    with connected(server, said) as silent:
        assert is_over(silent)
    wait_until(lambda: not server.server_state.connections, "it is forgotten")
    assert answered(server) == b"ok"


def test_half_a_second_request_is_not_waited_for_either(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_connection, "REQUEST_WAIT_S", SHORT_S)
    with connected(server, ASK + ASK[:9]) as half:
        assert is_over(half)


def test_an_answer_that_takes_long_is_not_ended(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_connection, "REQUEST_WAIT_S", SHORT_S)
    with connected(server, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n") as stream:
        stream.settimeout(4 * SHORT_S)
        assert not is_over(stream)


def test_with_too_many_the_longest_quiet_one_makes_room(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Connection, "most", 3)
    monkeypatch.setattr(Connection, "_told_at", float("-inf"))
    with (
        caplog.at_level(logging.WARNING, "oddnode.detector.app"),
        connected(server, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n") as stream,
        connected(server, ASK[:9]) as oldest,
        connected(server) as newer,
    ):
        assert stream.recv(9)
        for _ in range(2):
            assert answered(server) == b"ok"
        assert is_over(oldest)
        for connection in (stream, newer):
            connection.settimeout(SHORT_S)
            assert not is_over(connection), "one that is answered, and one that came later, stay"
    assert [record.message for record in caplog.records] == [
        "http connections=3 reason=too_many: those that ask nothing make room"
    ], "a flood is told once"


def test_many_at_once_are_no_more_than_may_be(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "most", 3)
    loop = next(iter(server.servers)).get_loop()
    with contextlib.ExitStack() as held:
        goes_on = threading.Event()
        loop.call_soon_threadsafe(goes_on.wait, 10)
        connections = [held.enter_context(connected(server)) for _ in range(12)]
        goes_on.set()  # the loop meets all of them in one turn
        for connection in connections[:9]:
            connection.settimeout(5)  # half of the time after which each would be ended anyway
            assert is_over(connection)
        assert len(server.server_state.connections) == 3


def test_an_answer_that_is_not_read_is_given_up(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_connection, "READ_WAIT_S", SHORT_S)
    with connected(server, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"):
        wait_until(lambda: bool(server.server_state.connections), "it was sent")
        wait_until(lambda: not server.server_state.connections, "it is given up")


@pytest.mark.parametrize(
    ("limits", "taken", "most"),
    [
        ((256, 1 << 19), DESCRIPTORS, MAX_CONNECTIONS),
        ((256, 600), 600, 300),
        ((1 << 16, 1 << 19), None, MAX_CONNECTIONS),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, MAX_CONNECTIONS),
        ((1024, resource.RLIM_INFINITY), DESCRIPTORS, MAX_CONNECTIONS),
    ],
)
def test_connections_leave_half_of_the_file_descriptors(
    limits: tuple[int, int], taken: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, wanted: asked.append(wanted))
    monkeypatch.setattr(Connection, "most", 0)
    Connection.bound()
    assert Connection.most == most
    assert asked == ([] if taken is None else [(taken, limits[1])])

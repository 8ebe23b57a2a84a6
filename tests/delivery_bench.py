"""Delivery without a detector before it, and a receiver that keeps what it gets."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from detector.control.view import Muted
from detector.delivery.delivery import Delivery
from detector.outcome import Diagnosis, Evidence, GroupEvent, Incident, Layer, Outcome, Status, Verdict
from detector.service_clock import SystemClock
from detector.settings_delivery import DeliverySettings
from detector.store import Store
from detector.telemetry import Telemetry
from tests.servers import wait_until

HOT = "GPU temperature 91 C, the peers have 58 to 64"
SLOW = "NVLink traffic 12 GB/s, the peers have 170 to 185"


def now_s() -> float:
    return SystemClock().now()


def evidence(metric: str, reason: str, score: float) -> Evidence:
    return Evidence(
        metric, {"gpu": "3"}, "gpu 3", Layer.PEER, reason, score, 91.0, 60.0, (58.0, 64.0), 0.0, 95, "GPU"
    )


def suspect(node: str = "gpu007", at: float | None = None, **changes: Any) -> Incident:
    at = now_s() if at is None else at
    made = Incident(
        id=f"{node}@{int(at)}",
        node=node,
        state="suspect",
        active_at=at - 240,
        suspect_at=at,
        peak_score=2.5,
        part="gpu 3",
        reason="lasted for 4 min",
        evidence=(
            evidence("DCGM_FI_PROF_NVLINK_TX_BYTES", SLOW, 1.5),
            evidence("DCGM_FI_DEV_GPU_TEMP", HOT, 2.0),
        ),
        diagnosis=Diagnosis("gpu_hot", "GPU too hot", "likely", check="look at the fans of GPU 3"),
    )
    return replace(made, **changes)


def cleared(incident: Incident, at: float) -> Incident:
    return replace(incident, state="cleared", cleared_at=at, reason="like its peers for 10 min of data")


def outcome(
    at: float,
    incidents: Iterable[Incident] = (),
    events: Iterable[GroupEvent] = (),
    *,
    n_nodes: int = 40,
    score: float = 2.0,
) -> Outcome:
    incidents = tuple(incidents)
    odd = {i.node for i in incidents if i.state == "suspect"}
    named = [*odd, *(f"quiet{n:03d}" for n in range(n_nodes - len(odd)))]
    verdicts = tuple(
        Verdict(
            node,
            "main",
            Status.SUSPECT if node in odd else Status.CLEAR,
            score if node in odd else 0.1,
        )
        for node in named
    )
    return Outcome(at, verdicts, incidents, group_events=tuple(events))


@dataclass
class Caught:
    """One request that a `Catcher` got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Catcher(AbstractContextManager["Catcher"]):
    """A receiver that keeps requests; answers with the statuses given, in turn, then with 200.

    A status of 0 gives no answer at all.
    """

    statuses: list[int] = field(default_factory=list)
    got: list[Caught] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> Catcher:
        catcher = self
        self._released = threading.Event()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    status = catcher.statuses.pop(0) if catcher.statuses else 200
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    catcher.got.append(Caught(self.command, self.path, headers, body, status))
                if status == 0:
                    catcher._released.wait(60)
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_PATCH = do_POST  # noqa: N815 - the name the base class looks for

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self._server = Quiet(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def taken(self) -> list[Caught]:
        return [one for one in list(self.got) if 200 <= one.status < 300]

    def wait(self, count: int) -> list[Caught]:
        """Wait until so many requests were taken."""
        wait_until(lambda: len(self.taken()) >= count, f"{count} requests are taken")
        return self.taken()


class Operators:
    """Says what a test tells it to say."""

    def __init__(self) -> None:
        self.muted: set[str] = set()
        self.acknowledged: set[str] = set()
        self.dismissed: set[str] = set()

    def mute_of(self, node: str, pool: str, at: float) -> Any:
        return "muted" if node in self.muted or f"pool:{pool}" in self.muted else None

    def is_acknowledged(self, incident_id: str) -> bool:
        return incident_id in self.acknowledged

    def is_dismissed(self, incident_id: str) -> bool:
        return incident_id in self.dismissed


class Bench(AbstractContextManager["Bench"]):
    """A store and the delivery of a service; made again on the same folder it is that service restarted."""

    def __init__(self, folder: Path, muted: Muted | None = None, **settings: Any) -> None:
        self.store = Store(folder / "oddnode.db")
        self.telemetry = Telemetry()
        self.delivery = Delivery(
            DeliverySettings.model_validate(settings),
            self.store,
            SystemClock().now,
            self.telemetry.delivery,
            muted=muted,
            first_retry_s=0.05,
        )
        self.delivery.start()

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        assert self.delivery.finish(10)
        self.store.close()

    def tell(self, told: Outcome, silent: Sequence[Incident] = ()) -> None:
        """Hand an evaluation over as the service does: stored first."""
        self.store.save(told)
        self.delivery.feed(told, [*(i for i in told.incidents if i.state == "suspect"), *silent])

    def value(self, line: str) -> float | None:
        for row in self.telemetry.text().decode().splitlines():
            if row.rpartition(" ")[0] == line:
                return float(row.rpartition(" ")[2])
        return None

    def wait_for_value(self, line: str, holds: Callable[[float], bool]) -> None:
        wait_until(lambda: (value := self.value(line)) is not None and holds(value), line)


def get_json(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        return json.loads(answer.read())
    finally:
        connection.close()

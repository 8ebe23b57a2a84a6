"""The service as a process: start, answers, signals, and a recording played as if it were live."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from api.app import create_app
from detector.app_door import Server, listen
from detector.errors import SettingsError
from detector.replay import replay_case
from detector.service import Service
from detector.service_clock import SystemClock
from detector.service_loop import Loop
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.telemetry import Telemetry
from grouping.catalog import load_catalog
from tests.service_fakes import ManualClock, ScriptedPipeline, ScriptedSource

ROOT = Path(__file__).resolve().parent.parent
START, STEP, N_STEPS, N_NODES = 1_767_225_600, 30, 90, 12
ONSET, FAULTY = 40, "gpu007"
PROGRAM = """
import sys
from pathlib import Path
from detector.app import serve
from detector.errors import OddnodeError
from detector.reload import Origin
from detector.settings import load_settings
try:
    origin = Origin.of(Path(sys.argv[1]))
    sys.exit(serve(load_settings(origin.path), origin=origin))
except OddnodeError as error:
    print(f"oddnode: {error}", file=sys.stderr)
    sys.exit(2)
"""


def write_recording(folder: Path) -> Path:
    """Make a small cluster of which one GPU gets hot and slow."""
    rng = np.random.default_rng(5)
    folder.mkdir()
    times = [(START + STEP * k) * 1000 for k in range(N_STEPS + 1)]
    lines = []
    for n in range(N_NODES):
        for g in range(4):
            is_bad = np.array([n == 7 and g == 2 and k >= ONSET for k in range(N_STEPS + 1)])
            noise = rng.normal(0, 1, (3, N_STEPS + 1))
            signals = {
                "DCGM_FI_DEV_GPU_UTIL": 97 + noise[0] * 0.5 - 60 * is_bad,
                "DCGM_FI_DEV_GPU_TEMP": np.round(60 + noise[1] + 30 * is_bad),
                "DCGM_FI_DEV_POWER_USAGE": 800 + 5 * noise[2] - 500 * is_bad,
            }
            for name, values in signals.items():
                labels = {"__name__": name, "Hostname": f"gpu{n:03d}", "gpu": str(g), "UUID": f"GPU-{n}-{g}"}
                lines.append({"metric": labels, "values": values.tolist(), "timestamps": times})
    with gzip.open(folder / "series.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    nodes = json.dumps([f"gpu{n:03d}" for n in range(N_NODES)])
    (folder / "incident.yaml").write_text(
        f"id: small\nstart: {START}\nend: {START + STEP * N_STEPS}\nstep_s: {STEP}\npool: {nodes}\n"
        "spares: []\nhealthy: true\nfaults: []\nprovenance: {source: test, licence: none, made: synthetic}\n"
    )
    return folder


class Process:
    """A running service."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        path = self.file = folder / f"settings-{time.monotonic_ns()}.yaml"
        self.put(settings)
        self.log = path.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(path)], cwd=ROOT, stderr=log, stdout=log
            )

    def put(self, settings: dict[str, Any]) -> None:
        """Write the settings file, at once as a whole."""
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"http": {"port": 0}, "store": {"path": "oddnode.db"}} | settings))
        part.replace(self.file)

    def port(self) -> int:
        return int(wait_for(lambda: self._listening(), what=self.text))

    def _listening(self) -> str | None:
        assert self.process.poll() is None, self.text()
        found = [line for line in self.text().splitlines() if "listening url=" in line]
        return found[0].split("url=")[1].split()[0].rsplit(":", 1)[1] if found else None

    def text(self) -> str:
        return self.log.read_text()

    def get(self, path: str) -> tuple[int, Any]:
        return ask(self.port(), path)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


def ask(port: int, path: str, timeout: float = 10) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        is_json = "json" in answer.headers["content-type"]
        return answer.status, json.loads(body) if is_json else body.decode()
    finally:
        connection.close()


def wait_for(look: Callable[[], Any], *, seconds: float = 60, what: Callable[[], str] = str) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {seconds} s: {what()}")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Process]]:
    running: list[Process] = []

    def begin(settings: dict[str, Any]) -> Process:
        running.append(Process(tmp_path, settings))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait(30)


Start = Callable[[dict[str, Any]], Process]


def test_a_recording_played_as_live_says_what_the_replay_says(tmp_path: Path, start: Start) -> None:
    case = write_recording(tmp_path / "small")
    expected = replay_case(case, load_catalog())
    assert [flag.node for flag in expected.flags] == [FAULTY]
    service = start({"recording": {"path": str(case), "speed": 500}})
    suspects = wait_for(lambda: service.get("/v1/suspects")[1].get("suspects"), what=service.text)
    assert [s["node"] for s in suspects] == [FAULTY]
    assert suspects[0]["part"] == "gpu 2"
    assert {e["metric"] for e in suspects[0]["evidence"]} & {
        "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
    }  # fmt: skip
    status, ready = wait_for(
        lambda: found if (found := service.get("/readyz"))[1]["notes"] else None, what=service.text
    )
    assert (status, ready["notes"]) == (200, ["the recording has ended: these are its last verdicts"])
    last = START + STEP * N_STEPS
    wait_for(lambda: service.get("/v1/nodes")[1]["at"] == last, what=service.text)
    incidents = service.get("/v1/incidents?was_suspect=true")[1]["incidents"]
    assert [
        (i["id"], i["active_at"], i["suspect_at"], i["cleared_at"], i["peak_score"]) for i in incidents
    ] == [(f.id, f.active_at, f.suspect_at, f.cleared_at, f.peak_score) for f in expected.flags]
    node = service.get(f"/v1/nodes/{FAULTY}")[1]
    assert node["node"]["status"] == "suspect"
    series = service.get(f"/v1/series?node={FAULTY}&metric=DCGM_FI_DEV_GPU_TEMP&part=gpu%202")[1]["series"]
    assert series
    assert series[0]["value"][-1] > series[0]["high"][-1]
    assert 'oddnode_suspect{node="gpu007"} 1.0' in service.get("/metrics")[1]
    assert service.end() == 0
    assert "ended" in service.text()


def test_the_same_recording_can_be_played_again(tmp_path: Path, start: Start) -> None:
    case = write_recording(tmp_path / "small")
    settings = {"recording": {"path": str(case), "speed": 3000}}
    for _ in range(2):
        service = start(settings)
        wait_for(lambda s=service: s.get("/v1/suspects")[1].get("suspects"), what=service.text)
        assert service.end() == 0
    assert (tmp_path / "oddnode-recording.db").exists()
    assert not (tmp_path / "oddnode.db").exists(), "a live store is never touched"


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_seconds_while_a_fetch_hangs(
    start: Start, silent_server: int, number: signal.Signals
) -> None:
    service = start({"source": {"url": f"http://127.0.0.1:{silent_server}", "kind": "victoriametrics"}})
    assert service.get("/healthz") == (200, {"status": "ok"})
    began = time.monotonic()
    assert service.end(number) == 0
    assert time.monotonic() - began < 10
    assert "ended" in service.text()


def test_a_database_that_is_down_is_waited_for(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    service = start({"source": {"url": f"http://127.0.0.1:{port}"}})
    wait_for(lambda: "tick failed=true" in service.text(), what=service.text)
    status, ready = service.get("/readyz")
    assert status == 503
    assert "no connection" in ready["reasons"][0]
    assert service.get("/healthz")[0] == 200
    status, body = service.get("/v1/suspects")
    assert status == 503
    assert "no connection" in body["error"]["message"]
    assert service.get("/v1/incidents")[1]["total"] == 0
    assert 'oddnode_ticks_failed_total{kind="source"}' in service.get("/metrics")[1]
    assert service.end() == 0


def test_a_second_evaluator_stands_by_and_says_why(start: Start, silent_server: int, tmp_path: Path) -> None:
    source = {"url": f"http://127.0.0.1:{silent_server}", "kind": "victoriametrics"}
    first = start({"source": source})
    first.port()
    second = start({"source": source, "store": {"path": "oddnode.db", "lock_wait_s": 0.3}})
    assert second.process.wait(60) == 2
    assert f"another evaluator (process {first.process.pid}) uses this store" in second.text()
    third = start({"source": source, "store": {"path": "oddnode.db", "lock_wait_s": 60}})
    wait_for(lambda: "standing_by=true" in third.text(), what=third.text)
    assert first.end() == 0
    assert third.get("/healthz")[0] == 200, "takes over"


def test_ending_while_it_stands_by(start: Start, silent_server: int) -> None:
    source = {"url": f"http://127.0.0.1:{silent_server}", "kind": "victoriametrics"}
    first = start({"source": source})
    first.port()
    second = start({"source": source, "store": {"path": "oddnode.db", "lock_wait_s": 600}})
    wait_for(lambda: "standing_by=true" in second.text(), what=second.text)
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(15) == 0


def test_a_taken_port_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            SettingsError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: Address already in"
        ):
            listen("127.0.0.1", port)
    with pytest.raises(SettingsError, match=r"cannot listen on no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 1)


def test_without_an_address_nothing_starts(start: Start) -> None:
    service = start({})
    assert service.process.wait(60) == 2
    assert "source.url (or ODDNODE_SOURCE__URL) is missing" in service.text()


class Running:
    """A service with its loop and its interface, in threads of this process."""

    def __init__(
        self, path: Path, work: Callable[[float], None], step_s: float, backfill_s: float = 0.0
    ) -> None:
        self.store = Store(path)
        self.telemetry = Telemetry()
        self.pipeline = ScriptedPipeline(work=work)
        schedule = ScheduleSettings(
            step_s=30.0, evaluation_delay_s=0, backfill_s=backfill_s, tick_timeout_s=60
        )
        self.clock = ManualClock(1_767_225_600.0)
        self.service = Service(
            schedule, ScriptedSource, self.pipeline, self.store, self.telemetry, self.clock
        )
        self.loop = Loop(self.service, step_s=step_s, delay_s=0.0, stuck_after_s=60)
        self.socket = listen("127.0.0.1", 0)
        answers = threading.Event()
        app = create_app(self.service)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
        self.server = Server(config, answers.set)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()
        assert answers.wait(30)
        self.port = self.socket.getsockname()[1]

    def close(self) -> None:
        assert self.loop.stop(30)
        self.server.should_exit = True
        self.thread.join(30)
        self.socket.close()
        self.store.close()


def test_the_interface_answers_while_an_evaluation_computes(tmp_path: Path) -> None:
    """A tick of pure Python holds the interpreter as badly as anything can."""
    ends = threading.Event()

    def work(at: float) -> None:
        while not ends.is_set():
            sum(k * k for k in range(2000))

    running = Running(tmp_path / "oddnode.db", work, 30.0)
    try:
        running.loop.start()
        wait_for(lambda: running.pipeline.calls)
        took = []
        for _ in range(40):
            began = time.monotonic()
            assert ask(running.port, "/healthz", timeout=1) == (200, {"status": "ok"})
            took.append(time.monotonic() - began)
        assert ask(running.port, "/readyz")[0] == 503
        began = time.monotonic()
        with ThreadPoolExecutor(50) as clients:
            answers = list(clients.map(lambda _: ask(running.port, "/v1/incidents", 30)[0], range(100)))
        assert answers == [200] * 100
        assert time.monotonic() - began < 20
        assert running.service.tick_runs_for_s() > 0
        assert sorted(took)[20] < 0.3, took
    finally:
        ends.set()
        running.close()


def test_ticks_run_on_the_grid_one_at_a_time_and_missed_ones_count(tmp_path: Path) -> None:
    began: list[float] = []
    held = threading.Event()

    def work(at: float) -> None:
        began.append(time.time())  # noqa: TID251 - the grid is one of wall time
        if at == 1_767_225_600.0 + 60:
            held.wait(30)

    running = Running(tmp_path / "oddnode.db", work, 0.25, backfill_s=3000.0)
    stop = threading.Event()

    def advance() -> None:
        # one step of data per real step
        start = time.monotonic()
        while not stop.wait(0.01):
            running.clock.t = 1_767_225_600.0 + 30.0 * int((time.monotonic() - start) / 0.25)

    mover = threading.Thread(target=advance)
    mover.start()
    try:
        running.loop.start()
        wait_for(lambda: running.pipeline.calls and running.pipeline.calls[-1][0] >= 1_767_225_660.0)
        n_held = len(began)
        held_at = time.monotonic()
        wait_for(lambda: time.monotonic() - held_at > 1.3)
        n_before = len(began)
        held.set()
        wait_for(lambda: len(began) > n_before + 6)
        missed = running.telemetry.registry.get_sample_value("oddnode_ticks_missed_total") or 0.0
        assert n_before == n_held, "no second tick beside the one that hangs"
        assert missed >= 3
        times = [at for at, _, _, _ in running.pipeline.calls]
        assert times == [times[0] + 30.0 * k for k in range(len(times))], "each time once, in order"
    finally:
        held.set()
        stop.set()
        mover.join(10)
        running.close()


def test_the_system_clock_is_the_time(tmp_path: Path) -> None:
    assert abs(SystemClock().now() - time.time()) < 5  # noqa: TID251


STUCK = """
import sys, time
from pathlib import Path
from detector import app, pipeline
from detector.settings import load_settings

def stuck(self, batch, at, *, judge=True):
    print("evaluates", file=sys.stderr, flush=True)
    time.sleep(600)

pipeline.Pipeline.evaluate, app.STOP_S = stuck, 0.5
sys.exit(app.serve(load_settings(Path(sys.argv[1]))))
"""


@pytest.mark.timeout(90)
def test_an_evaluation_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    case = write_recording(tmp_path / "small")
    settings = tmp_path / "stuck.yaml"
    settings.write_text(json.dumps({"recording": {"path": str(case), "speed": 500}, "http": {"port": 0}}))
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(settings)], cwd=ROOT, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "ODDNODE_STORE__PATH": str(tmp_path / "a.db")},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        while "evaluates" not in (line := process.stderr.readline()):
            assert line, "ended before it began"
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(30) == 0
        assert time.monotonic() - began < 10
        assert "tick_still_runs=true" in process.stderr.read()
    finally:
        process.kill()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """The first signal waits for an evaluation that does not end; the second does not."""
    program = """
import os, threading, sys, time
from detector.app_signals import Signals
signals = Signals()
signals.on_first = lambda: print("first", flush=True)
signals.install()
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "first\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()

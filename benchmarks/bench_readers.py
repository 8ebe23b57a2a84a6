"""Many readers of /v1/suspects while ticks run: ``python -m benchmarks.bench_readers --readers 200``.

One process holds the service and its interface, as in production; another one holds all readers, each with a
connection and a token that asks again and again, a pause after each answer. Blocks of ticks with readers and
without take turns in going first. As a section of the results: ``python -m benchmarks.run readers``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import numpy as np

from api.access import Entrance, Policy
from benchmarks.database import SEED, database, fill
from benchmarks.report import Row, table
from detector.app import make_server
from detector.app_door import Door, listen
from detector.control.desk import Desk
from detector.pipeline import Pipeline
from detector.service import Service
from detector.settings import ScheduleSettings
from detector.settings_auth import AuthSettings, TokenSettings
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.store import Store
from detector.store_control import ControlStore
from detector.telemetry import Telemetry
from detector.tokens import Tokens, hash_of, make_token
from grouping.catalog import load_catalog
from simulator.config import ClusterConfig
from simulator.metric_sets import reference_shape
from tests.service_fakes import ManualClock

WARM_TICKS = 5
STEP_S = 30.0
PAUSE_S = 1.0
"""A console asks once an evaluation, every 30 s; a script that waits for something asks every second."""

ANSWER_S = 0.050
SLOWER = 1.10


async def _read(url: str, token: str, begin_s: float, pause_s: float, until: asyncio.Event) -> list[float]:
    """Ask until told to end; return the seconds of each answer."""
    parts = urlsplit(url)
    took: list[float] = []
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    request = (
        f"GET /v1/suspects HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    wait_s = begin_s
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(until.wait(), wait_s)
            break
        begun = time.perf_counter()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200 "):
            raise RuntimeError(head.decode(errors="replace"))
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        took.append(time.perf_counter() - begun)
        wait_s = pause_s
    writer.close()
    return took


async def _read_all(url: str, token: str, n_readers: int, pause_s: float) -> list[float]:
    until = asyncio.Event()
    starts = random.Random(SEED)
    readers = [
        asyncio.create_task(_read(url, token, starts.uniform(0.0, pause_s), pause_s, until))
        for _ in range(n_readers)
    ]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    until.set()
    return [one for took in await asyncio.gather(*readers) for one in took]


class _Readers:
    """A process of readers; has what they saw when it is over."""

    def __init__(self, url: str, token: str, n_readers: int, pause_s: float) -> None:
        child = [sys.executable, "-m", "benchmarks.bench_readers", "--child", url, token]
        self._process = subprocess.Popen(
            [*child, "--readers", str(n_readers), "--pause", str(pause_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the readers did not start")

    def finish(self) -> list[float]:
        """End them; return the seconds of each answer."""
        told = self._process.communicate(timeout=60)[0]
        if self._process.returncode:
            raise RuntimeError("a reader was not answered")
        return [float(one) for one in json.loads(told)]


class _Ticker:
    """A service over a filled database whose clock is moved on by hand, and its interface."""

    def __init__(self, url: str, folder: Path, start: float) -> None:
        self._clock = ManualClock(start)
        self._telemetry = Telemetry()
        self._store = Store(folder / "oddnode.db")
        self.cpu_s = 0.0
        """Processor time of this process during the ticks before."""

        options = SourceOptions(url, kind="victoriametrics")
        self.service = Service(
            ScheduleSettings(evaluation_delay_s=0, backfill_s=STEP_S),
            lambda: open_source(options),
            Pipeline(load_catalog()),
            self._store,
            self._telemetry,
            self._clock,
        )

    @contextlib.contextmanager
    def listening(self, token: str) -> Iterator[str]:
        """Answer as `oddnode serve` does, for one token; yield the address."""
        known = TokenSettings(name="readers", sha256=hash_of(token), scope="read")
        policy = Policy(Tokens(AuthSettings(tokens=(known,), reads_per_minute=10_000_000)))
        desk = Desk(ControlStore(self._store), self._clock.now)
        started = threading.Event()
        with listen("127.0.0.1", 0) as bound:
            door = Door(bound, None)
            server = make_server(self.service, desk, Entrance(policy), door, started.set)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
            thread.start()
            if not started.wait(30):
                raise RuntimeError("the interface did not start")
            try:
                yield door.url()
            finally:
                server.should_exit = True
                thread.join()

    def ticks(self, n: int) -> list[float]:
        """Return the seconds of each tick."""
        took = []
        cpu_s = time.process_time()
        for _ in range(n):
            self._clock.t += STEP_S
            begun = time.perf_counter()
            self.service.tick()
            took.append(time.perf_counter() - begun)
        self.cpu_s = time.process_time() - cpu_s
        latest = self.service.latest()
        if latest is None or latest.outcome.at != self._clock.t:
            raise RuntimeError(f"a tick failed: {self.service.readiness().reasons}")
        return took


def readers_rows(
    config: ClusterConfig, n_readers: int = 200, n_pairs: int = 6, n_ticks: int = 5, pause_s: float = PAUSE_S
) -> Iterator[Row]:
    """Measure ticks without readers, and ticks and answers with them.

    Parameters
    ----------
    config
        The cluster.
    n_readers
        Each with a connection of its own.
    n_pairs, n_ticks
        Pairs of blocks of ticks, and ticks of a block.
    pause_s
        Seconds that a reader waits after an answer.
    """
    alone, beside, answers, ratios = [], [], [], []
    cpu_s = {False: 0.0, True: 0.0}
    with database() as server, tempfile.TemporaryDirectory() as folder:
        n_series = fill(server, config, WARM_TICKS + 2 * n_pairs * n_ticks + 1)
        ticker, token = _Ticker(server.url, Path(folder), config.start), make_token()
        ticker.ticks(WARM_TICKS)
        with ticker.listening(token) as url:
            for pair in range(n_pairs):
                took: dict[bool, list[float]] = {}
                for is_beside in (pair % 2 == 0, pair % 2 != 0):
                    readers = _Readers(url, token, n_readers, pause_s) if is_beside else None
                    took[is_beside] = ticker.ticks(n_ticks)
                    cpu_s[is_beside] += ticker.cpu_s
                    answers += [] if readers is None else readers.finish()
                alone += took[False]
                beside += took[True]
                ratios.append(median(took[True]) / median(took[False]))
    shape = f"{config.n_nodes} nodes, {n_series} series, {n_readers} readers, pause {pause_s:g} s"
    p50, p99 = np.percentile(answers, [50, 99]).tolist()
    rate = len(answers) / sum(beside)
    yield Row(
        "answer of /v1/suspects, 99 of 100 within", shape, f"{1000 * p99:.0f} ms",
        f"< {1000 * ANSWER_S:.0f} ms", p99 < ANSWER_S,
    )  # fmt: skip
    yield Row(
        "- half of them within, and the slowest", shape, f"{1000 * p50:.1f} ms, {1000 * max(answers):.0f} ms"
    )
    yield Row("- answers, and a second of ticks", shape, f"{len(answers)}, {rate:.0f} / s")
    yield Row("tick, without / with readers", shape, f"{median(alone):.3f} s / {median(beside):.3f} s")
    yield Row(
        "- with / without, median of pairs of blocks", f"{shape}, {n_pairs} x {n_ticks} ticks",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"< {SLOWER:.2f}", median(ratios) < SLOWER,
    )  # fmt: skip
    per_tick = " / ".join(f"{cpu_s[kind] / len(alone):.3f} s" for kind in (False, True))
    per_answer = max(0.0, cpu_s[True] - cpu_s[False]) / len(answers)
    yield Row("processor time of the service a tick, without / with readers", shape, per_tick)
    yield Row("- of an answer, from these", shape, f"{1e6 * per_answer:.0f} µs")
    yield Row("load average, after it", f"{os.cpu_count()} processors", f"{os.getloadavg()[0]:.1f}")


def main() -> None:
    """Run and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_readers", description=__doc__)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--cpus", type=int, default=224, help="processors per node")
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds a reader waits after an answer")
    parser.add_argument("--child", nargs=2, metavar=("URL", "TOKEN"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child is not None:
        print(json.dumps(asyncio.run(_read_all(*chosen.child, chosen.readers, chosen.pause))))
        return
    config = ClusterConfig(
        train_nodes=chosen.nodes - 3, spares=3, cpus=chosen.cpus, metrics=reference_shape()
    )
    rows = readers_rows(config, chosen.readers, chosen.pairs, pause_s=chosen.pause)
    print(table(rows))


if __name__ == "__main__":
    main()

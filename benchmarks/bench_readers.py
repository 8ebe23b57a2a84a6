"""Many readers of /v1/suspects while ticks run: ``python -m benchmarks.bench_readers --readers 100``.

One process holds the service and its interface, as in production; another one holds all readers, each with a
connection of its own that asks again and again. Figures hang on the machine and its load, which are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from api.app import create_app
from benchmarks.database import database, fill
from detector.pipeline import Pipeline
from detector.service import Service
from detector.settings import ScheduleSettings
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.store import Store
from detector.telemetry import Telemetry
from grouping.catalog import load_catalog
from simulator.config import ClusterConfig
from tests.servers import listening
from tests.service_fakes import ManualClock

WARM_TICKS = 5
STEP_S = 30.0


async def _read(host: str, port: int, pause_s: float, until: float) -> tuple[list[float], int]:
    """Ask until the time is over; returns the seconds of each answer and the number of failures."""
    took: list[float] = []
    n_failed = 0
    reader, writer = await asyncio.open_connection(host, port)
    request = f"GET /v1/suspects HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    while time.monotonic() < until:
        begun = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        took.append(time.perf_counter() - begun)
        n_failed += b" 200 " not in head.split(b"\r\n", 1)[0]
        await asyncio.sleep(pause_s)
    writer.close()
    return took, n_failed


async def _read_all(url: str, n_readers: int, pause_s: float, seconds: float) -> dict[str, Any]:
    parts = urlsplit(url)
    until = time.monotonic() + seconds
    asked = await asyncio.gather(
        *(_read(parts.hostname or "", parts.port or 0, pause_s, until) for _ in range(n_readers))
    )
    took = np.array([one for seen, _ in asked for one in seen])
    p50, p99 = np.percentile(took, [50, 99]).tolist()
    n_failed = sum(n for _, n in asked)
    return {"n": len(took), "failed": n_failed, "p50_s": p50, "p99_s": p99, "max_s": float(took.max())}


class _Ticker:
    """A service over a filled database whose clock is moved on by hand."""

    def __init__(self, url: str, folder: Path, start: float) -> None:
        self._clock = ManualClock(start)
        self._telemetry = Telemetry()
        options = SourceOptions(url, kind="victoriametrics")
        self.service = Service(
            ScheduleSettings(evaluation_delay_s=0, backfill_s=STEP_S),
            lambda: open_source(options),
            Pipeline(load_catalog()),
            Store(folder / "oddnode.db"),
            self._telemetry,
            self._clock,
        )

    def ticks(self, n: int) -> list[float]:
        """Return the seconds of each tick."""
        took = []
        for _ in range(n):
            self._clock.t += STEP_S
            begun = time.perf_counter()
            self.service.tick()
            took.append(time.perf_counter() - begun)
        good = self._telemetry.registry.get_sample_value("oddnode_ticks_total")
        failed = self._telemetry.registry.get_sample_value("oddnode_ticks_failed_total")
        assert good
        assert not failed, failed
        return took


def run(config: ClusterConfig, n_readers: int, n_ticks: int, pause_s: float) -> dict[str, Any]:
    """Measure ticks alone, then ticks with readers.

    Returns
    -------
    dict
        Seconds of a median tick without and with readers, and what the readers saw.
    """
    with database() as server, tempfile.TemporaryDirectory() as folder:
        n_series = fill(server, config, WARM_TICKS + 2 * n_ticks + 1)
        ticker = _Ticker(server.url, Path(folder), config.start)
        ticker.ticks(WARM_TICKS)
        alone = ticker.ticks(n_ticks)
        with listening(create_app(ticker.service)) as url:
            seconds = max(2.0, 1.5 * sum(alone))
            ask = [sys.executable, "-m", "benchmarks.bench_readers", "--child", url, str(seconds)]
            readers = subprocess.Popen(
                [*ask, "--readers", str(n_readers), "--pause", str(pause_s)],
                stdout=subprocess.PIPE,
                text=True,
            )
            together = ticker.ticks(n_ticks)
            told = json.loads(readers.communicate(timeout=600)[0])
    return {
        "series": n_series,
        "readers": n_readers,
        "tick_alone_s": float(np.median(alone)),
        "tick_with_readers_s": float(np.median(together)),
        **told,
        "load": os.getloadavg()[0],
        "cpus": os.cpu_count(),
    }


def main() -> None:
    """Run and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_readers", description=__doc__)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--cpus", type=int, default=8, help="processors per node")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two questions of a reader")
    parser.add_argument("--child", nargs=2, metavar=("URL", "SECONDS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child is not None:
        url, seconds = chosen.child
        print(json.dumps(asyncio.run(_read_all(url, chosen.readers, chosen.pause, float(seconds)))))
        return
    config = ClusterConfig(train_nodes=chosen.nodes, spares=0, cpus=chosen.cpus)
    print(json.dumps(run(config, chosen.readers, chosen.ticks, chosen.pause), indent=1))


if __name__ == "__main__":
    main()

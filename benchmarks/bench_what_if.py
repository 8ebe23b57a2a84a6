"""Ticks beside a try of other settings: what the try costs, and whether the ticks notice it."""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import Child
from benchmarks.database import SEED, database, make_visible, tick_range_ms
from benchmarks.report import Row
from detector.settings import ScheduleSettings, Settings, SourceSettings
from detector.what_if.knobs import changed
from detector.what_if.messages import Done, Message, told
from detector.what_if.run import Job
from detector.what_if.trials import COMMAND, THREADS
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.feed import Feeder

BESIDE = 1.25
"""A tick beside a try may take so many times as long: there is one processor for each."""


class _Try:
    """A try under way, as the service starts one."""

    def __init__(self, job: Job) -> None:
        self.end: Message | None = None
        self.took_s = 0.0
        self.peak_mib = 0.0
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        self._process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._thread = threading.Thread(target=self._follow, args=(pickle.dumps(job), time.perf_counter()))
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _follow(self, job: bytes, begun: float) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job)
        process.stdin.flush()
        status = Path(f"/proc/{process.pid}/status")
        for message in told(process.stdout):
            self.end, self.took_s = message, time.perf_counter() - begun
            for line in status.read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_mib = int(line.split()[1]) / 1024

    def finish(self) -> None:
        """Wait for it, and end it."""
        self._thread.join(600)
        self._process.kill()
        self._process.communicate()


def what_if_rows(config: ClusterConfig, history: int, n_ticks: int) -> Iterator[Row]:
    """Measure ticks before, beside and after a try on the same database.

    Parameters
    ----------
    config
        The cluster.
    history
        Ticks that are tried, those in which nothing is judged included.
    n_ticks
        Measured ticks before and after; beside the try as many as fit in.
    """
    last = history + 1000
    with database() as server:
        feeder = Feeder(server.url, Cluster(config, SEED))
        feeder.load(config.start, config.start + (history - 1) * config.step_s)
        make_visible(server)
        warm_s = history // 2 * config.step_s
        settings = Settings(
            source=SourceSettings(url=server.url), schedule=ScheduleSettings(backfill_s=warm_s)
        )
        end = config.start + (history - 1) * config.step_s
        start = config.start + warm_s
        job = Job(settings, changed(settings, {"detection.z_threshold": 8.0}), start, end)
        with Child("benchmarks.oddnode_child", server.url) as oddnode:
            times = iter(range(history, last))

            def tick() -> dict[str, Any]:
                at = next(times)
                feeder.push(config.start + at * config.step_s)
                make_visible(server)
                start_ms, end_ms = tick_range_ms(config, at)
                return oddnode.ask(do="tick", start_ms=start_ms, end_ms=end_ms)

            for _ in range(3):
                tick()
            alone = [tick() for _ in range(n_ticks)]
            attempt = _Try(job)
            beside = []
            while attempt.is_running and len(beside) < 200:
                beside.append(tick())
            attempt.finish()
            alone += [tick() for _ in range(n_ticks)]
    found = attempt.end.comparison if isinstance(attempt.end, Done) else None
    if found is None:
        raise RuntimeError(f"the try did not end well: {attempt.end}")
    shape = f"{config.n_nodes} nodes, {found.n_series} series"
    n_tried = f"{shape}, {history} steps, {found.n_evaluations} of them judged, twice each"
    alone_s, beside_s = (median(t["total_s"] for t in ticks) for ticks in (alone, beside))
    cpu_s, beside_cpu_s = (median(t["cpu_s"] for t in ticks) for ticks in (alone, beside))
    ratio = beside_s / alone_s
    yield Row("tick without a try", f"{shape}, {len(alone)} ticks", f"{alone_s:.2f} s")
    yield Row("tick beside a try", f"{shape}, {len(beside)} ticks", f"{beside_s:.2f} s")
    yield Row("- beside / without", shape, f"{ratio:.2f}", f"<= {BESIDE:g}", ratio <= BESIDE)
    yield Row("- processor time, without / beside", shape, f"{cpu_s:.2f} s / {beside_cpu_s:.2f} s")
    yield Row("- longest tick, without / beside", shape, " / ".join(
        f"{max(t['total_s'] for t in ticks):.2f} s" for ticks in (alone, beside)
    ))  # fmt: skip
    yield Row("the try itself", n_tried, f"{attempt.took_s:.0f} s")
    yield Row("peak memory of the try", n_tried, f"{attempt.peak_mib:.0f} MiB")

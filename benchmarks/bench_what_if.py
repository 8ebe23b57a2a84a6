"""Ticks beside a try of other settings: what the try costs, and whether the ticks notice it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
        self.cpu_s = 0.0
        self.peak_mib = 0.0
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        self._process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._thread = threading.Thread(target=self._follow, args=(pickle.dumps(job),))
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _follow(self, job: bytes) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job)
        process.stdin.flush()
        status = Path(f"/proc/{process.pid}/status")
        for message in told(process.stdout):
            self.end = message
            times = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            self.cpu_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
            for line in status.read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_mib = int(line.split()[1]) / 1024

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold it for a moment, so that ticks without it are of the same minutes as those beside it."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Wait for it, and end it."""
        self._thread.join(600)
        self._process.kill()
        self._process.communicate()


def what_if_rows(config: ClusterConfig, history: int, n_pairs: int) -> Iterator[Row]:
    """Measure ticks beside a try and, in turns, while it is held.

    Parameters
    ----------
    config
        The cluster.
    history
        Ticks that are tried, those in which nothing is judged included.
    n_pairs
        Pairs of measured ticks at most.
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
            attempt = _Try(job)
            pairs = []
            while attempt.is_running and len(pairs) < n_pairs:
                if is_first := len(pairs) % 2 == 0:
                    beside = tick()
                with attempt.paused():
                    alone = tick()
                if not is_first:
                    beside = tick()
                if attempt.is_running:
                    pairs.append((alone, beside))
            attempt.finish()
    found = attempt.end.comparison if isinstance(attempt.end, Done) else None
    if found is None:
        raise RuntimeError(f"the try did not end well: {attempt.end}")
    shape = f"{config.n_nodes} nodes, {found.n_series} series"
    n_tried = f"{shape}, {history} steps, {found.n_evaluations} of them judged, twice each"
    sides = [[pair[k] for pair in pairs] for k in (0, 1)]
    ratio = median(beside["total_s"] / alone["total_s"] for alone, beside in pairs)

    def both(key: str, of: Callable[[Iterable[float]], float] = median) -> str:
        return " / ".join(f"{of(told[key] for told in side):.2f} s" for side in sides)

    ticks = f"{shape}, {len(pairs)} pairs"
    yield Row("tick, try held / beside it", ticks, both("total_s"))
    yield Row("- beside / held, median of pairs", ticks, f"{ratio:.2f}", f"<= {BESIDE:g}", ratio <= BESIDE)
    yield Row("- processor time", ticks, both("cpu_s"))
    yield Row("- longest", ticks, both("total_s", max))
    yield Row("processor time of the try", n_tried, f"{attempt.cpu_s:.0f} s")
    yield Row("peak memory of the try", n_tried, f"{attempt.peak_mib:.0f} MiB")

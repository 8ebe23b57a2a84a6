"""A simulated cluster in a process of its own, so that its memory is no part of what is measured."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import numpy as np

from benchmarks.detect.simulated import FloatArray, IntArray
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault


def rss_mib(pid: int | str = "self") -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/status tells no resident memory")


def _simulate(to: Connection, config: ClusterConfig, seed: int, faults: Sequence[Fault]) -> None:
    cluster = Cluster(config, seed, faults)
    to.send(cluster.series)
    at = config.start
    try:
        while True:
            values, ts_ms = cluster.tick(at)
            to.send_bytes(np.ascontiguousarray(values, dtype=np.float64))
            to.send_bytes(np.ascontiguousarray(ts_ms, dtype=np.int64))
            at += config.step_s
    except (BrokenPipeError, ConnectionResetError):
        return  # nobody asks any more


class RemoteCluster:
    """A cluster that ticks in another process, one tick ahead (see `benchmarks.detect.simulated.Ticking`).

    Parameters
    ----------
    config, seed, faults
        As of `simulator.cluster.Cluster`.
    """

    def __init__(self, config: ClusterConfig, seed: int, faults: Sequence[Fault]) -> None:
        self.config = config
        context = multiprocessing.get_context("spawn")
        self._from, to = context.Pipe(duplex=False)
        self.process = context.Process(target=_simulate, args=(to, config, seed, faults), daemon=True)
        self.process.start()
        to.close()
        self.series: list[dict[str, str]] = self._from.recv()
        self._next = config.start

    def tick(self, at: float) -> tuple[FloatArray, IntArray]:
        """Return values and times of all series; times must be asked for in order."""
        if at != self._next:
            raise ValueError(f"the cluster is at {self._next}, not at {at}")
        self._next += self.config.step_s
        values = np.frombuffer(self._from.recv_bytes(), dtype=np.float64)
        return values, np.frombuffer(self._from.recv_bytes(), dtype=np.int64)

    def rss_mib(self) -> float:
        """Return the resident memory of the simulation."""
        return rss_mib(self.process.pid or "self")

    def __enter__(self) -> RemoteCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._from.close()
        self.process.terminate()
        self.process.join(30)

"""Hand-made healthy history with bursts: five metrics of a small cluster, ready-made as arrays."""

import json
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from detector.calibration.history import Stretch
from detector.source.base import Batch, Interner
from tests.builders import START, STEP, node_labels

LEVELS = {
    "node_load1": (40.0, 4.0),
    "node_procs_running": (100.0, 15.0),
    "node_procs_blocked": (20.0, 3.0),
    "node_memory_MemAvailable_bytes": (1e12, 2e10),
    "node_sockstat_sockets_used": (2000.0, 300.0),
}
"""Level and floor of each metric."""

NAMES = list(LEVELS)
FULL_S = 240.0


@dataclass(frozen=True)
class Case:
    """History of some nodes: values of shape (n_ticks, n_nodes, n_metrics), in floors around the level."""

    units: NDArray[np.float64]

    @property
    def n_ticks(self) -> int:
        return self.units.shape[0]

    @property
    def nodes(self) -> list[str]:
        return [f"gpu{k + 1:03d}" for k in range(self.units.shape[1])]

    def with_fault(self, node: int, start: int, end: int, size: float, metrics=(0, 1)) -> "Case":
        units = self.units.copy()
        units[start:end, node, list(metrics)] += size
        return replace(self, units=units)

    def stretch(self, name="week", masks=()) -> Stretch:
        end = START + STEP * self.n_ticks
        return Stretch(name, START, end, STEP, lambda: CaseSource(self), tuple(masks))


def history(seed: int, n_ticks=720, n_nodes=24, bursts_per_hour=0.12, mean=6.0) -> Case:
    """Noise, and bursts of 6 to 12 minutes of single metrics with exponential heights."""
    rng = np.random.default_rng([seed, 77])
    units = rng.normal(0.0, 0.5, (n_ticks, n_nodes, len(NAMES)))
    n_bursts = rng.poisson(bursts_per_hour * n_ticks * STEP / 3600.0 * n_nodes * len(NAMES))
    for _ in range(n_bursts):
        start, length = rng.integers(0, n_ticks), rng.integers(12, 24)
        node, metric = rng.integers(n_nodes), rng.integers(len(NAMES))
        units[start : start + length, node, metric] += 2.5 + rng.exponential(mean)
    return Case(units)


class CaseSource:
    """The samples of a case, with one scrape 3 s before each evaluation."""

    def __init__(self, case: Case) -> None:
        level = np.array([LEVELS[name][0] for name in NAMES])
        floor = np.array([LEVELS[name][1] for name in NAMES])
        self.values = (level + floor * case.units).reshape(case.n_ticks, -1)
        self.keys = [
            json.dumps({"__name__": name, **node_labels(node)}).encode()
            for node in case.nodes
            for name in NAMES
        ]
        self.closed = False

    def fetch(self, names: object, start_ms: int, end_ms: int, interner: Interner) -> Batch:
        unknown = [key for key in self.keys if key not in interner.codes]
        if unknown:
            interner.add_many(unknown)
        codes = np.array([interner.codes[key] for key in self.keys], dtype=np.int32)
        times = np.round((START + STEP * np.arange(1, len(self.values) + 1) - 3.0) * 1000).astype(np.int64)
        chosen = np.flatnonzero((times > start_ms) & (times <= end_ms))
        values = self.values[chosen]
        series = np.tile(codes, len(chosen))
        there = np.isfinite(values.reshape(-1)) & (series >= 0)
        return Batch(series[there], np.repeat(times[chosen], len(codes))[there], values.reshape(-1)[there])

    def close(self) -> None:
        self.closed = True

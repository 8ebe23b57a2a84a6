"""Running a small simulated cluster in tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault, GroupEvent
from simulator.recording import collect, ticks

STEP = 30.0
QUIET = {"missed_scrape": 0.0, "benign_per_node_hour": 0.0}
SMALL = ClusterConfig(train_nodes=6, spares=2, cpus=4, **QUIET)


class Run:
    """A cluster that has run for some ticks.

    Parameters
    ----------
    cluster
        The cluster.
    n
        Number of ticks.
    """

    def __init__(self, cluster: Cluster, n: int) -> None:
        self.cluster = cluster
        start = cluster.config.start
        self.values, self.ts_ms = collect(cluster, ticks(start, start + (n - 1) * STEP, STEP))

    def rows(self, name: str, **labels: str) -> list[int]:
        return [
            i
            for i, series in enumerate(self.cluster.series)
            if series["__name__"] == name and all(series.get(k) == v for k, v in labels.items())
        ]

    def of(self, name: str, node: str, **labels: str) -> NDArray[np.float64]:
        """Values of a node's series of one metric, shape (time, series)."""
        index = self.cluster.config.node_names.index(node)
        hosts = (f"10.1.{index // 250}.{index % 250 + 1}:", f"{node}:")
        rows = [i for i in self.rows(name, **labels) if self.cluster.series[i]["instance"].startswith(hosts)]
        assert rows, (name, node, labels)
        return self.values[:, rows]


def small_run(n: int, *faults: Fault, events: tuple[GroupEvent, ...] = (), **changes: object) -> Run:
    values = {**{f: getattr(SMALL, f) for f in SMALL.__slots__}, **changes}
    return Run(Cluster(ClusterConfig(**values), 5, faults, events), n)  # type: ignore[arg-type]


def fault(
    kind: str,
    node: str = "gpu003",
    part: str = "",
    severity: float = 1.0,
    minutes: float = 20,
    *,
    options: Mapping[str, object] | None = None,
) -> Fault:
    onset = SMALL.start + 5 * STEP
    return Fault(kind, node, onset, onset + minutes * 60, part, severity, options or {})

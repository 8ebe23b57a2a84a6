"""What happens every day in a cluster in which nothing is wrong, at a stated density."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.detect.splits import MINUTE
from simulator.config import ClusterConfig
from simulator.faults import Fault, GroupEvent
from simulator.topology import EXPORTERS

DAY_S = 86400.0

PER_NODE_DAY: Mapping[str, float] = {
    "maintenance": 1 / 60,
    "exporter_down": 1 / 50,
    "exporter_restart": 1 / 25,
    "target_renamed": 1 / 100,
}
PER_CLUSTER_DAY: Mapping[str, float] = {
    "job_restart": 1.0,
    "job_slowdown": 0.3,
    "nfs_cluster_slow": 0.2,
    "fabric_congestion": 0.2,
    "hot_room": 0.1,
    "monitoring_outage": 0.1,
}
"""Rates of everyday events in long healthy runs, see `incidents_everyday.everyday_events`."""

BENIGN_PER_NODE_HOUR = 0.02
"""Bursts of single nodes in long healthy runs; checkpoints are every 20 to 30 minutes."""

MAINTENANCE_MIN, REBOOT_SHARE = (30.0, 180.0), 0.5
REBOOT_MIN = (4.0, 12.0)
"""How long a node is out of work, how often it is started anew then, and how long that takes."""


@dataclass(frozen=True, slots=True)
class Everyday:
    """Events to give to a cluster.

    Parameters
    ----------
    faults
        What happens to one node or target and is no fault of a node; ``maintenance`` is masked time.
    events
        What happens to many nodes.
    """

    faults: tuple[Fault, ...]
    events: tuple[GroupEvent, ...]


def everyday_events(config: ClusterConfig, seed: int, start: float, end: float) -> Everyday:
    """Draw what happens between two times; a longer time has the same events and more.

    Give the result to a `CaseSpec` (``faults=found.faults, events=found.events``): `recording_of` then
    makes masked time of every ``maintenance``, an alarm of that node counts neither way, and group
    events of dead exporters and of `events`; restarts and new names of single targets are benign.
    Cron jobs and package upgrades come by ``benign_per_node_hour`` of the configuration (use
    `BENIGN_PER_NODE_HOUR`), checkpoints by its ``checkpoint_s``. A node that goes for maintenance
    leaves its job, which is started anew without it, and again when the node is back; the first node,
    of rank 0, never goes.

    Parameters
    ----------
    config
        The cluster.
    seed
        The same seed gives the same events.
    start, end
        Epoch seconds; events begin in between, and end by then.
    """
    faults: list[Fault] = []
    events: list[GroupEvent] = []
    for day in range(int(start // DAY_S), int(end // DAY_S) + 1):
        rng = np.random.default_rng([seed, 31, max(day, 0)])
        for fault in _of_nodes(config, rng, day):
            faults.append(fault)
            if fault.kind == "maintenance":
                events += [GroupEvent("job_restart", at, at + 150.0) for at in (fault.onset, fault.end)]
        events += _of_clusters(rng, day)
    inside = sorted((f for f in faults if start <= f.onset and f.end <= end), key=lambda f: f.onset)
    return Everyday(
        tuple(inside),
        tuple(sorted((e for e in events if start <= e.onset and e.end <= end), key=lambda e: e.onset)),
    )


def _of_nodes(config: ClusterConfig, rng: np.random.Generator, day: int) -> Iterator[Fault]:
    for kind, rate in PER_NODE_DAY.items():
        for _ in range(rng.poisson(rate * config.n_nodes)):
            onset = (day + rng.random()) * DAY_S
            node = config.node_name(int(rng.integers(1, config.n_nodes)))
            exporter = EXPORTERS[int(rng.integers(len(EXPORTERS)))]
            length = {
                "maintenance": rng.uniform(*MAINTENANCE_MIN) * MINUTE,
                "exporter_down": rng.uniform(3, 60) * MINUTE,
                "exporter_restart": rng.uniform(20, 90),
            }.get(kind, 1.0)
            options: dict[str, object] = {}
            if kind == "maintenance" and rng.random() < REBOOT_SHARE:
                reboot = rng.uniform(*REBOOT_MIN) * MINUTE
                options = {
                    "reboot_after_s": float(rng.uniform(300, length - reboot)),
                    "reboot_s": float(reboot),
                }
            part = "" if kind == "maintenance" else exporter
            yield Fault(kind, node, float(onset), float(onset + length), part, 1.0, options)


def _of_clusters(rng: np.random.Generator, day: int) -> Iterator[GroupEvent]:
    for kind, rate in PER_CLUSTER_DAY.items():
        for _ in range(rng.poisson(rate)):
            onset = (day + rng.random()) * DAY_S
            length = rng.uniform(2, 5) if kind in ("job_restart", "monitoring_outage") else rng.uniform(5, 40)
            yield GroupEvent(kind, float(onset), float(onset + length * MINUTE), float(rng.uniform(0.1, 0.9)))

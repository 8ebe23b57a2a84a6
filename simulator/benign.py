"""Bursts of one node that are no fault (cron jobs, package upgrades), and gaps of single targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simulator.config import ClusterConfig
from simulator.habits import Quirks
from simulator.mods import Mods
from simulator.topology import EXPORTERS

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Benign:
    """A burst that must not be called a fault.

    Parameters
    ----------
    kind
        ``cron`` or ``package_upgrade``.
    node
        Index of the node.
    onset, end
        Epoch seconds.
    size
        0 to 1.
    """

    kind: str
    node: int
    onset: float
    end: float
    size: float


def benign_between(config: ClusterConfig, seed: int, start: float, end: float) -> Iterator[Benign]:
    """Yield the bursts that overlap a time range; they depend on nothing but seed and time."""
    for hour in range(int(start // HOUR_S) - 1, int(end // HOUR_S) + 1):
        rng = np.random.default_rng([seed, 77, max(hour, 0)])
        for _ in range(rng.poisson(config.benign_per_node_hour * config.n_nodes)):
            onset = (hour + rng.random()) * HOUR_S
            kind = "cron" if rng.random() < 0.7 else "package_upgrade"
            length = rng.uniform(60, 150) if kind == "cron" else rng.uniform(90, 200)
            burst = Benign(kind, int(rng.integers(config.n_nodes)), onset, onset + length, rng.random())
            if burst.end > start and burst.onset < end:
                yield burst


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a target does not answer although nothing is wrong with the node.

    Parameters
    ----------
    node
        Index of the node.
    exporter
        Index of the exporter.
    onset, end
        Epoch seconds.
    """

    node: int
    exporter: int
    onset: float
    end: float


@lru_cache(maxsize=8)
def gaps_of_hour(quirks: Quirks, n_nodes: int, seed: int, hour: int) -> tuple[Gap, ...]:
    """Return the gaps that begin in one hour since the epoch."""
    rng = np.random.default_rng([seed, 78, max(hour, 0)])
    n_gaps = rng.poisson(quirks.gaps_per_target_day / 24 * n_nodes * len(EXPORTERS))
    found = []
    for _ in range(n_gaps):
        onset = (hour + rng.random()) * HOUR_S
        node, exporter = int(rng.integers(n_nodes)), int(rng.integers(len(EXPORTERS)))
        found.append(Gap(node, exporter, onset, onset + rng.uniform(*quirks.gap_s)))
    return tuple(found)


def apply_benign(mods: Mods, bursts: list[Benign]) -> None:
    """Change the hidden state by bursts that go on now."""
    for burst in bursts:
        if burst.kind == "cron":
            mods.cpu_extra[burst.node] += 4 + 36 * burst.size
        else:
            mods.cpu_extra[burst.node] += 2 + 4 * burst.size
            mods.fork_burst[burst.node] += 0.3 + 0.7 * burst.size

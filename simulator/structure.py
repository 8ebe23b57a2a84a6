"""How much each node has to do by its place in the job, and the offsets of racks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.config import ClusterConfig
from simulator.layout import Ints, layout_of
from simulator.mods import Floats
from simulator.moment import Drift, Load, column

ITERATION_S = 4.7
DRIFT_TAU_S = 4 * 3600.0


class Structure:
    """Loads of the nodes by their place in the job, and offsets of racks.

    Parameters
    ----------
    config
        The cluster.
    seed
        Its seed; nothing here takes chance from elsewhere, so a plain cluster stays as it is.
    """

    def __init__(self, config: ClusterConfig, seed: int) -> None:
        self.layout = layout_of(config)
        self._config = config
        rng = np.random.default_rng([seed, 21])
        self._static = self._lasting(rng)
        n = config.n_nodes
        self._expert = Drift((n, 1), config.workload.moe_tau_s, np.random.default_rng([seed, 22]))
        self._drift = Drift((n, 3), DRIFT_TAU_S, np.random.default_rng([seed, 23]))
        racks = int(self.layout.rack.max()) + 1
        heat = np.random.default_rng([seed, 24]).standard_normal(racks)
        self.rack_heat: Floats = (config.quirks.rack_heat * heat)[self.layout.rack]

    def step(self, dt: float) -> Load:
        """Move wandering loads on and return all loads."""
        work, drift = self._config.workload, self._config.quirks.drift
        load = self._static
        if work.moe > 0:
            wander = work.moe * self._expert.step(dt)
            traffic = np.exp(wander)
            load = replace(
                load,
                gpu=load.gpu * (1 + 0.25 * wander),
                nvlink=load.nvlink * traffic,
                ib=load.ib * traffic,
                util_drop=load.util_drop - 8 * np.minimum(wander, 0.0),
            )
        if drift > 0:
            slow = drift * self._drift.step(dt)
            load = replace(
                load,
                heat=load.heat + 1.2 * slow[:, :1],
                kernel=load.kernel * (1 + 0.12 * np.abs(slow[:, 1:2])),
                cpu=load.cpu * np.exp(0.06 * slow[:, 2:]),
            )
        return load

    def _lasting(self, rng: np.random.Generator) -> Load:
        config, work, layout = self._config, self._config.workload, self.layout
        n = config.n_nodes
        one, none = np.ones((n, 1)), np.zeros((n, 1))
        load = Load(one, one, one, one, one, one, none, none, np.full((n, 1), ITERATION_S))
        if work.stage_spread > 0 and work.stages > 1:
            load = _times(load, layout.job * work.stages + layout.stage, work.stage_spread, rng, wide=True)
        if work.shard_spread > 0 and work.shard_nodes:
            load = _times(load, layout.job * n + layout.shard, work.shard_spread, rng, wide=False)
        if work.n_jobs > 1:
            load = _second_job(load, layout.job == 1, rng)
        return replace(load, memory=np.minimum(load.memory, 1.1))


def _times(load: Load, group: Ints, spread: float, rng: np.random.Generator, *, wide: bool) -> Load:
    """Give each group levels of its own; only traffic unless `wide`."""
    n_groups = int(group.max()) + 1
    draws = rng.standard_normal((4, n_groups))
    depth = rng.random((2, n_groups)) if wide else np.zeros((2, n_groups))

    def of(levels: Floats) -> Floats:
        return column(levels[group])

    return replace(
        load,
        ib=load.ib * of(np.exp(spread * draws[0])),
        nvlink=load.nvlink * of(np.exp(spread * draws[1])),
        gpu=load.gpu * of(1 - 0.5 * spread * depth[0]),
        memory=load.memory * of(np.exp(0.5 * spread * draws[2])) if wide else load.memory,
        cpu=load.cpu * of(np.exp(0.3 * spread * draws[3])) if wide else load.cpu,
        util_drop=load.util_drop + of(40 * spread * depth[1]),
    )


def _second_job(load: Load, mine: NDArray[np.bool_], rng: np.random.Generator) -> Load:
    """Let the second job be another model: other steps, loads, memory and traffic."""
    here = column(mine)

    def factor(low: float, high: float) -> Floats:
        return np.where(here > 0, rng.uniform(low, high), 1.0)

    return replace(
        load,
        gpu=load.gpu * factor(0.55, 1.0),
        memory=load.memory * factor(0.5, 1.0),
        nvlink=load.nvlink * factor(0.4, 1.1),
        ib=load.ib * factor(0.2, 1.1),
        cpu=load.cpu * factor(0.5, 1.6),
        util_drop=load.util_drop + here * rng.uniform(0, 25),
        iteration_s=np.where(here > 0, rng.uniform(1.5, 12.0), load.iteration_s),
    )

"""Which node belongs to which job, stage, shard group and rack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.config import ClusterConfig

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Lasting membership; arrays have the shape (nodes,).

    Parameters
    ----------
    job
        Index of the node's job; the number of jobs for a spare.
    stage, shard
        Pipeline stage and shard group within the job, 0 when there are none.
    rack
        Index of the rack.
    """

    job: Ints
    stage: Ints
    shard: Ints
    rack: Ints


def layout_of(config: ClusterConfig) -> Layout:
    """Return who belongs where; jobs, stages, groups and racks are contiguous."""
    n, work = config.n_nodes, config.workload
    job = np.full(n, work.n_jobs, dtype=np.int64)
    job[: config.train_nodes] = 0
    if work.n_jobs > 1:
        second = min(config.train_nodes - 1, max(1, round(work.second_share * config.train_nodes)))
        job[config.train_nodes - second : config.train_nodes] = 1
    stage, shard = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for j in range(work.n_jobs):
        members = np.flatnonzero(job == j)
        within = np.arange(len(members))
        stage[members] = within * min(work.stages, len(members)) // len(members)
        if work.shard_nodes:
            shard[members] = within // work.shard_nodes
    return Layout(job, stage, shard, np.arange(n) // max(config.quirks.rack_nodes, 1))

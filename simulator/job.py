"""The training jobs: what all nodes of a job do together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from simulator.config import ClusterConfig
from simulator.layout import Layout, layout_of
from simulator.mods import Floats, Mods

LOADING_S = 120.0
WRITERS = 6
"""One node in this many writes checkpoints."""


class Mode(StrEnum):
    """What the job is doing."""

    TRAIN = "train"
    LOADING = "loading"
    STALLED = "stalled"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class JobView:
    """The jobs at one tick; arrays have the shape (nodes,).

    Parameters
    ----------
    mode
        What the first job is doing.
    train
        1 where the node computes for its job, 0 elsewhere.
    spin
        1 where processes wait in a collective call that does not return.
    loading
        1 where the node reads data before the first step.
    work
        Share of the time in which a training node computes, 1 at full pace.
    limit
        Most steps per second that what befalls the job allows, 1 is normal.
    pace
        Steps per second, 1 is normal.
    checkpoint
        1 on nodes that write a checkpoint now.
    dip
        Share of the tick in which the job waits for the checkpoint.
    evaluating
        1 where the model is evaluated instead of trained.
    rank0
        1 on the nodes of rank 0 while their jobs run.
    stages
        What each job does besides computing: ``loading``, ``evaluation``, ``checkpoint`` or nothing.
    """

    mode: Mode
    train: Floats
    spin: Floats
    loading: Floats
    work: Floats
    limit: Floats
    pace: Floats
    checkpoint: Floats
    dip: Floats
    evaluating: Floats
    rank0: Floats
    stages: tuple[str, ...]


class Jobs:
    """Life of the training jobs.

    Parameters
    ----------
    config
        Size of the cluster.
    layout
        Which node belongs to which job.
    seed
        Seed of the cluster.
    rng
        Source of chance of the first job.
    start
        Epoch seconds at which the simulation begins.
    """

    def __init__(
        self, config: ClusterConfig, layout: Layout, seed: int, rng: np.random.Generator, start: float
    ) -> None:
        self._jobs = [
            _Job(config, layout, j, seed, rng if j == 0 else np.random.default_rng([seed, 25, j]), start)
            for j in range(config.workload.n_jobs)
        ]

    def advance(self, at: float, mods: Mods) -> JobView:
        """Return what the jobs do at a time later than the one before."""
        views = [job.advance(at, mods) for job in self._jobs]
        if len(views) == 1:
            return views[0]
        first, second = views
        mine = self._jobs[1].member > 0
        both = {
            name: np.where(mine, getattr(second, name), getattr(first, name))
            for name in JobView.__slots__
            if name not in ("mode", "stages")
        }
        return replace(first, **both, stages=(first.stages[0], *second.stages))


class _Job:
    """Life of one job."""

    def __init__(
        self,
        config: ClusterConfig,
        layout: Layout,
        index: int,
        seed: int,
        rng: np.random.Generator,
        start: float,
    ) -> None:
        self._config, self._index, self._rng = config, index, rng
        self.member = (layout.job == index).astype(float)
        self._writer = _writers(config, layout, index)
        self._rank0 = int(np.flatnonzero(layout.job == index)[0])
        self._mode = Mode.TRAIN
        self._since = start
        low, high = config.checkpoint_s
        self._next_checkpoint = start + rng.uniform(0.3, 1.0) * high
        self._writes_until = start
        self._interval = (low, high)
        own = np.random.default_rng([seed, 26, index])
        self._eval_rng = own
        every = config.workload.eval_every_s
        self._next_eval = start + own.uniform(0.1, 1.0) * every[1] if every else np.inf
        self._evaluates_until = start
        self._delay = own.uniform(0, 1, config.n_nodes) * config.workload.start_stagger_s

    def advance(self, at: float, mods: Mods) -> JobView:
        self._move(at, mods)
        n = self._config.n_nodes
        running = self.member * ~mods.hung * ~mods.down * ~mods.drained
        train = running if self._mode is Mode.TRAIN else np.zeros(n)
        loading = running * (at - self._since >= self._delay) if self._mode is Mode.LOADING else np.zeros(n)
        spin = running if self._mode is Mode.STALLED else np.zeros(n)
        own = np.where(train > 0, mods.capability, 1.0)
        limit = float(mods.pace[self._index])
        pace = min(limit, float(own.min()))
        checkpoint, dip = self._checkpoint(at, train)
        evaluating = self._evaluating(at) * self.member
        rank0 = np.zeros(n)
        rank0[self._rank0] = float(train[self._rank0])
        return JobView(
            mode=self._mode,
            train=train,
            spin=spin,
            loading=loading,
            work=np.clip(pace / own, 0.0, 1.0),
            limit=np.full(n, limit),
            pace=np.full(n, pace),
            checkpoint=checkpoint,
            dip=np.full(n, dip),
            evaluating=evaluating,
            rank0=rank0,
            stages=(self._stage(dip, evaluating), ""),
        )

    def _stage(self, dip: float, evaluating: Floats) -> str:
        if self._mode is Mode.LOADING:
            return "loading"
        if self._mode is not Mode.TRAIN:
            return ""
        return "checkpoint" if dip > 0 else "evaluation" if evaluating.any() else ""

    def _move(self, at: float, mods: Mods) -> None:
        mode = self._mode
        if mods.restarts[self._index]:
            wanted = Mode.IDLE
        elif mods.stalls[self._index]:
            gave_up = mode is Mode.STALLED and at - self._since > self._config.watchdog_s
            wanted = Mode.IDLE if gave_up or mode is Mode.IDLE else Mode.STALLED
        elif mode in (Mode.STALLED, Mode.IDLE):
            wanted = Mode.LOADING
        elif mode is Mode.LOADING and at - self._since >= LOADING_S:
            wanted = Mode.TRAIN
        else:
            wanted = mode
        if wanted is not mode:
            self._mode, self._since = wanted, at

    def _checkpoint(self, at: float, train: Floats) -> tuple[Floats, float]:
        if at >= self._next_checkpoint:
            self._next_checkpoint = at + self._rng.uniform(*self._interval)
            if train.any():
                self._writes_until = at + self._rng.uniform(35.0, 85.0)
        writes = at < self._writes_until
        return self._writer * train * writes, 0.3 if writes else 0.0

    def _evaluating(self, at: float) -> float:
        every = self._config.workload.eval_every_s
        if every and at >= self._next_eval:
            self._evaluates_until = at + self._eval_rng.uniform(*self._config.workload.eval_s)
            self._next_eval = at + self._eval_rng.uniform(*every)
        return float(at < self._evaluates_until and self._mode is Mode.TRAIN)


def _writers(config: ClusterConfig, layout: Layout, index: int) -> Floats:
    """Return who writes checkpoints: the first shard group, some nodes of each stage, or the first nodes."""
    members = np.flatnonzero(layout.job == index)
    found = np.zeros(config.n_nodes)
    if config.workload.shard_nodes:
        found[members[layout.shard[members] == 0]] = 1.0
    elif config.workload.stages > 1:
        found[members[::WRITERS]] = 1.0
    else:
        found[members[: max(1, len(members) // WRITERS)]] = 1.0
    return found


def checkpoint_writers(config: ClusterConfig) -> tuple[str, ...]:
    """Return the nodes of the first job that write its checkpoints."""
    found = np.flatnonzero(_writers(config, layout_of(config), 0))
    return tuple(config.node_name(int(node)) for node in found)

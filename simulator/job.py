"""The training job: what all its nodes do together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from simulator.config import ClusterConfig
from simulator.faults import Floats, Mods

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
    """The job at one tick; arrays have the shape (nodes,).

    Parameters
    ----------
    mode
        What the job is doing.
    train
        1 where the node computes for the job, 0 elsewhere.
    spin
        1 where processes wait in a collective call that does not return.
    loading
        1 where the node reads data before the first step.
    work
        Share of the time in which a training node computes, 1 at full pace.
    pace
        Steps per second, 1 is normal.
    checkpoint
        1 on nodes that write a checkpoint now.
    dip
        Share of the tick in which the job waits for the checkpoint.
    rank0
        1 on the node of rank 0 while the job runs.
    """

    mode: Mode
    train: Floats
    spin: Floats
    loading: Floats
    work: Floats
    pace: float
    checkpoint: Floats
    dip: float
    rank0: Floats


class Job:
    """Life of the training job.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    start
        Epoch seconds at which the simulation begins.
    """

    def __init__(self, config: ClusterConfig, rng: np.random.Generator, start: float) -> None:
        self._config = config
        self._rng = rng
        self._member = (np.arange(config.n_nodes) < config.train_nodes).astype(float)
        writers = max(1, config.train_nodes // WRITERS)
        self._writer = (np.arange(config.n_nodes) < writers).astype(float)
        self._mode = Mode.TRAIN
        self._since = start
        low, high = config.checkpoint_s
        self._next_checkpoint = start + rng.uniform(0.3, 1.0) * high
        self._writes_until = start
        self._interval = (low, high)

    def advance(self, at: float, mods: Mods) -> JobView:
        """Return what the job does at a time later than the one before."""
        self._move(at, mods)
        n = self._config.n_nodes
        running = self._member * ~mods.hung * ~mods.down
        train = running if self._mode is Mode.TRAIN else np.zeros(n)
        loading = running if self._mode is Mode.LOADING else np.zeros(n)
        spin = running if self._mode is Mode.STALLED else np.zeros(n)
        own = np.where(train > 0, mods.capability, 1.0)
        pace = min(mods.pace, float(own.min()))
        checkpoint, dip = self._checkpoint(at, train)
        rank0 = np.zeros(n)
        rank0[0] = float(train[0])
        return JobView(
            mode=self._mode,
            train=train,
            spin=spin,
            loading=loading,
            work=np.clip(pace / own, 0.0, 1.0),
            pace=pace,
            checkpoint=checkpoint,
            dip=dip,
            rank0=rank0,
        )

    def _move(self, at: float, mods: Mods) -> None:
        mode = self._mode
        if mods.restarts:
            wanted = Mode.IDLE
        elif mods.stalls:
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

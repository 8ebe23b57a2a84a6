"""The simulated cluster: series, and their samples tick by tick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.agenda import Agenda
from simulator.benign import apply_benign, benign_between
from simulator.block import Block
from simulator.columns import Column
from simulator.config import ClusterConfig
from simulator.faults import EVENTS, KINDS, LASTING, Fault, GroupEvent, part_index
from simulator.job import Jobs
from simulator.mods import Floats, Mods
from simulator.moment import Moment
from simulator.names import XID, Names
from simulator.physics_gpu import GpuPhysics, IbPhysics
from simulator.physics_host import HostPhysics, InterfacePhysics
from simulator.physics_nfs import NfsPhysics
from simulator.physics_targets import TargetPhysics
from simulator.shapes import shaped
from simulator.structure import Structure
from simulator.symptoms import apply_fault
from simulator.tables import all_columns
from simulator.tables.runtime import UNAME
from simulator.topology import EXPORTERS, PARTS, SCRAPE

Int64s = NDArray[np.int64]

_PER_CPU = frozenset({"cpu", "cpu_mode"})
_REBORN = (("node_exporter", 0), ("backend_ai", 1))
"""Exporters that tell when their process began, and their place in the host's account of it."""


class Cluster:
    """A cluster whose telemetry is a function of configuration, seed and faults.

    Parameters
    ----------
    config
        Size and habits.
    seed
        The same seed gives the same samples.
    faults
        Faults of single nodes.
    events
        Events of many nodes.

    Raises
    ------
    ValueError
        When a fault names an unknown node or part, or a metric name is unknown.
    """

    def __init__(
        self,
        config: ClusterConfig,
        seed: int,
        faults: Sequence[Fault] = (),
        events: Sequence[GroupEvent] = (),
    ) -> None:
        self.config, self.seed = config, seed
        self._faults, self.events = tuple(faults), tuple(events)
        self._index = {name: i for i, name in enumerate(config.node_names)}
        for fault in self._faults:
            if fault.node not in self._index:
                raise ValueError(f"fault {fault.kind} is on {fault.node}, which is no node of the cluster")
            part_index(fault.part)
        for happening in self.events:
            if unknown := set(happening.nodes) - set(self._index):
                raise ValueError(
                    f"event {happening.kind} is on {min(unknown)}, which is no node of the cluster"
                )
        rng = np.random.default_rng([seed, 1])
        began = config.start - config.warm_up_s
        columns = _wanted(config)
        blocks = _grouped(columns)
        tails = config.quirks.tail_scale
        uptime = rng.uniform(15, 60, config.n_nodes) * 86400
        self._blocks = [
            Block(group, config.n_nodes, len(PARTS[group[0].space](config, 0)), seed, uptime, tails)
            for group in blocks
        ]
        samples = {
            x: sum(b.shape[0] * b.shape[2] for b in self._blocks if b.exporter == x) for x in EXPORTERS
        }
        self._samples = samples
        self._structure = Structure(config, seed)
        heat = self._structure.rack_heat
        self._jobs = Jobs(config, self._structure.layout, seed, rng, began)
        self._gpu, self._ib = GpuPhysics(config, rng, heat), IbPhysics(config, rng)
        self._host, self._nfs = HostPhysics(config, rng, began, heat), NfsPhysics(config, rng)
        self._interfaces = InterfacePhysics(config, rng)
        self._targets = TargetPhysics(config, rng, samples, seed)
        self._cpu_rng = np.random.default_rng([seed, 2])
        weights = np.exp(0.5 * self._cpu_rng.standard_normal((config.n_nodes, config.cpus)))
        self._cpu_weights = weights / weights.mean(axis=1, keepdims=True)
        self._was_down = np.zeros(config.n_nodes, dtype=bool)
        self._was_ended = np.zeros((config.n_nodes, len(EXPORTERS)), dtype=bool)
        self._stages: tuple[str, ...] = ("",) * (config.workload.n_jobs + 1)
        self.faults = self._faults
        self._events_now = Agenda(self.events, lambda _: False)
        self._names = Names(config, seed, self._blocks, self._targets.phase_s, self._structure.layout)
        self._names.rename(self._faults, self.events)
        self.series, self._offsets_ms = self._names.series, self._names.offsets_ms()
        self._last = began
        while self._last < config.start - config.step_s - 1e-6:
            self._drivers(self._last + config.step_s)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults of single nodes; others may be set while the cluster runs, with series that are there."""
        return self._faults

    @faults.setter
    def faults(self, faults: Sequence[Fault]) -> None:
        self._faults = tuple(faults)
        self._faults_now = Agenda(self._faults, lambda fault: fault.kind in LASTING)

    @property
    def mode(self) -> str:
        """What the job is doing as of the newest tick."""
        return self._mode

    @property
    def blocks(self) -> list[tuple[int, tuple[int, int, int]]]:
        """First series of each block, and its shape: metrics (with roles), nodes, parts."""
        return [
            (start, (block.shape[0], block.shape[1], block.shape[2]))
            for start, block in zip(self._names.starts, self._blocks, strict=True)
        ]

    def tick(self, at: float) -> tuple[Floats, Int64s]:
        """Scrape every target once and return all samples.

        Parameters
        ----------
        at
            Epoch seconds, later than the tick before; samples are from ``(at - step, at]``.

        Returns
        -------
        values : ndarray of shape (n_series,)
            NaN where a series was not scraped.
        ts_ms : ndarray of shape (n_series,), int64
            Time of the scrape in epoch milliseconds.
        """
        dt = at - self._last
        drivers, mods, up = self._drivers(at)
        back = self._was_down & ~mods.down
        self._was_down = mods.down.copy()
        ended = self._was_ended & ~mods.process_ended
        self._was_ended = mods.process_ended
        found = []
        for block in self._blocks:
            if back.any():
                block.restart(back)
            if block.exporter != SCRAPE and ended.any():
                block.restart_process(ended[:, EXPORTERS.index(block.exporter)])
            values = block.tick(drivers, dt, mods.odd)
            self._hide(block, values, mods, up)
            found.append(values.reshape(-1))
        values = np.concatenate(found)
        values = self._names.shown(values, at)
        if mods.outage:
            values[:] = np.nan
        return values, self._offsets_ms + round(at * 1000)

    def _drivers(self, at: float) -> tuple[dict[str, Floats], Mods, NDArray[np.bool_]]:
        """Move the hidden state on and return the drivers of all columns, the changes, and who answers."""
        if at <= self._last:
            raise ValueError(f"tick at {at} is not after the one before, {self._last}")
        dt, self._last = at - self._last, at
        mods = self._mods(at)
        job = self._jobs.advance(at, mods)
        self._mode, self._stages = str(job.mode), job.stages
        m = Moment(at, dt, mods, job, self._targets.scraped(at), self._structure.step(dt))
        for exporter, place in _REBORN:
            x = EXPORTERS.index(exporter)
            reborn = (self._was_ended[:, x] & ~mods.process_ended[:, x]) | (self._was_down & ~mods.down)
            if reborn.any():
                self._host.begin_process(place, reborn, at - dt)
        nfs = self._nfs.drivers(m)
        links = self._interfaces.drivers(m, nfs)
        gpu = self._gpu.drivers(m)
        ib = self._ib.drivers(m, nfs["nfs_read"], nfs["nfs_write"])
        host = self._host.drivers(m, nfs)
        found = {**nfs, **links, **gpu, **ib, **host}
        if any(block.space in _PER_CPU for block in self._blocks):
            found |= self._host.processors(m, found, self._cpu_rng, self._cpu_weights)
        up = self._targets.answers(m)
        present = np.ones(up.shape)
        gone = mods.gpu_gone.mean(axis=1)
        present[:, EXPORTERS.index("dcgm")] = np.where(mods.dcgm_blank, 1 / 104, 1 - gone)
        return found | self._targets.drivers(m, up, present), mods, up

    def _mods(self, at: float) -> Mods:
        mods = Mods(self._structure.layout.job, self.config.workload.n_jobs)
        mods.stages[:] = self._stages
        for fault in self._faults_now.at(at):
            node, part = self._index[fault.node], part_index(fault.part)
            now, active = shaped(fault, at)
            apply_fault(mods, KINDS[fault.kind], now, node, part, at - fault.onset, active)
        for event in self._events_now.at(at):
            EVENTS[event.kind](mods, event, self._concerned(event))
        if self.config.benign_per_node_hour > 0:
            apply_benign(mods, list(benign_between(self.config, self.seed, at, at + 1e-3)))
        return mods

    def _concerned(self, event: GroupEvent) -> Int64s:
        nodes = event.nodes or self.config.node_names
        return np.array([self._index[node] for node in nodes], dtype=np.int64)

    def _hide(self, block: Block, values: Floats, mods: Mods, up: NDArray[np.bool_]) -> None:
        """Put NaN where nothing is reported."""
        if block.exporter == SCRAPE:
            return
        answers = up[:, EXPORTERS.index(block.exporter)]
        if not answers.all():
            values[:, ~answers] = np.nan
        if block.space == "gpu":
            self._hide_gpus(block, values, mods)
        elif block.space == "smi_gpu" and mods.gpu_gone.any():
            values[:, mods.gpu_gone] = np.nan
        elif block.space.endswith("_failure"):
            values[values == 0] = np.nan

    def _hide_gpus(self, block: Block, values: Floats, mods: Mods) -> None:
        names = [column.name for column in block.columns]
        others = [i for i, name in enumerate(names) if name != XID]
        for i in others:
            values[i][mods.gpu_gone] = np.nan
            values[i][mods.dcgm_blank] = np.nan
        if XID in names:
            xid = values[names.index(XID)]
            xid[mods.gpu_gone & (mods.xid == 0)] = np.nan
            xid[mods.dcgm_blank[:, None] & (mods.xid == 0)] = np.nan
            if not self.config.gives_xid_zero:
                xid[xid == 0] = np.nan


def _wanted(config: ClusterConfig) -> list[Column]:
    columns = all_columns()
    if config.metrics is None:
        return columns
    wanted = set(config.metrics)
    unknown = wanted - {column.name for column in columns}
    if unknown:
        raise ValueError(f"unknown metrics: {', '.join(sorted(unknown)[:5])}")
    return [column for column in columns if column.name in wanted or column.name == UNAME]


def _grouped(columns: Sequence[Column]) -> list[list[Column]]:
    groups: dict[tuple[str, str], list[Column]] = {}
    for column in columns:
        groups.setdefault((column.exporter, column.space), []).append(column)
    return list(groups.values())

"""The simulated cluster: series, and their samples tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.benign import apply_benign, benign_between
from simulator.block import Block
from simulator.columns import Column
from simulator.config import ClusterConfig
from simulator.faults import EVENTS, KINDS, Fault, Floats, GroupEvent, Mods, part_index
from simulator.job import Job
from simulator.moment import Moment
from simulator.physics_gpu import GpuPhysics, IbPhysics
from simulator.physics_host import HostPhysics, InterfacePhysics
from simulator.physics_nfs import NfsPhysics
from simulator.physics_targets import TargetPhysics
from simulator.shapes import shaped
from simulator.tables import all_columns
from simulator.tables.runtime import UNAME
from simulator.topology import EXPORTERS, N_GPUS, PARTS, SCRAPE, gpu_all_smi, target_labels

Int64s = NDArray[np.int64]

_PER_CPU = frozenset({"cpu", "cpu_mode"})
XID = "DCGM_FI_DEV_XID_ERRORS"
XID_TEXT = {
    0: "No Error",
    48: "Double Bit ECC Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    119: "GSP RPC Timeout",
    145: "NVLink: RLW Error",
    149: "NVLink: NETIR Error",
}


@dataclass(frozen=True, slots=True)
class _Renamed:
    """A series under which a cell shows for some time instead of under its usual labels."""

    cell: int
    onset: float
    end: float


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
        self.faults, self.events = tuple(faults), tuple(events)
        self._index = {name: i for i, name in enumerate(config.node_names)}
        for fault in self.faults:
            if fault.node not in self._index:
                raise ValueError(f"fault {fault.kind} is on {fault.node}, which is no node of the cluster")
            part_index(fault.part)
        rng = np.random.default_rng([seed, 1])
        began = config.start - config.warm_up_s
        columns = _wanted(config)
        blocks = _grouped(columns)
        uptime = rng.uniform(15, 60, config.n_nodes) * 86400
        self._blocks = [
            Block(group, config.n_nodes, len(PARTS[group[0].space](config, 0)), seed, uptime)
            for group in blocks
        ]
        samples = {
            x: sum(b.shape[0] * b.shape[2] for b in self._blocks if b.exporter == x) for x in EXPORTERS
        }
        self._samples = samples
        self._job = Job(config, rng, began)
        self._gpu, self._ib = GpuPhysics(config, rng), IbPhysics(config, rng)
        self._host, self._nfs = HostPhysics(config, rng, began), NfsPhysics(config, rng)
        self._interfaces = InterfacePhysics(config, rng)
        self._targets = TargetPhysics(config, rng, samples)
        self._cpu_rng = np.random.default_rng([seed, 2])
        weights = np.exp(0.5 * self._cpu_rng.standard_normal((config.n_nodes, config.cpus)))
        self._cpu_weights = weights / weights.mean(axis=1, keepdims=True)
        self._was_down = np.zeros(config.n_nodes, dtype=bool)
        self.series: list[dict[str, str]] = []
        self._phase_ms: list[Int64s] = []
        self._name_series()
        self._renamed: list[_Renamed] = []
        self._rename_series()
        self._offsets_ms = np.concatenate(self._phase_ms)
        self._last = began
        while self._last < config.start - config.step_s - 1e-6:
            self._drivers(self._last + config.step_s)

    @property
    def mode(self) -> str:
        """What the job is doing as of the newest tick."""
        return self._mode

    @property
    def blocks(self) -> list[tuple[int, tuple[int, int, int]]]:
        """First series of each block, and its shape: metrics (with roles), nodes, parts."""
        return [
            (start, (block.shape[0], block.shape[1], block.shape[2]))
            for start, block in zip(self._starts, self._blocks, strict=True)
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
        found = []
        for block in self._blocks:
            if back.any():
                block.restart(back)
            values = block.tick(drivers, dt)
            self._hide(block, values, mods, up)
            found.append(values.reshape(-1))
        values = np.concatenate(found)
        values = self._rename(values, at)
        if mods.outage:
            values[:] = np.nan
        return values, self._offsets_ms + round(at * 1000)

    def _drivers(self, at: float) -> tuple[dict[str, Floats], Mods, NDArray[np.bool_]]:
        """Move the hidden state on and return the drivers of all columns, the changes, and who answers."""
        if at <= self._last:
            raise ValueError(f"tick at {at} is not after the one before, {self._last}")
        dt, self._last = at - self._last, at
        mods = self._mods(at)
        job = self._job.advance(at, mods)
        self._mode = str(job.mode)
        m = Moment(at, dt, mods, job, self._targets.scraped(at))
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
        mods = Mods(self.config.n_nodes)
        for fault in self.faults:
            if at >= fault.onset:
                node, part = self._index[fault.node], part_index(fault.part)
                now, active = shaped(fault, at)
                KINDS[fault.kind](mods, now, node, part, at - fault.onset, active)
        for event in self.events:
            if event.onset <= at < event.end:
                EVENTS[event.kind](mods, event)
        if self.config.benign_per_node_hour > 0:
            apply_benign(mods, list(benign_between(self.config, self.seed, at, at + 1e-3)))
        return mods

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

    def _name_series(self) -> None:
        config = self.config
        self._starts: list[int] = []
        for block in self._blocks:
            self._starts.append(len(self.series))
            n_parts = block.shape[2]
            if block.exporter == SCRAPE:
                phase = self._targets.phase_s
                bases: list[dict[str, str]] = [{} for _ in range(config.n_nodes)]
            else:
                phase = np.repeat(
                    self._targets.phase_s[:, [EXPORTERS.index(block.exporter)]], n_parts, axis=1
                )
                bases = [target_labels(config, n, block.exporter) for n in range(config.n_nodes)]
            parts = [PARTS[block.space](config, n) for n in range(config.n_nodes)]
            for column in block.columns:
                extra = {"err_code": "0", "err_msg": XID_TEXT[0]} if column.name == XID else {}
                for base, of_node in zip(bases, parts, strict=True):
                    self.series.extend({"__name__": column.name, **base, **part, **extra} for part in of_node)
            ms = np.rint((phase - config.step_s) * 1000).astype(np.int64)
            self._phase_ms.append(np.tile(ms.reshape(-1), block.shape[0]))

    def _rename_series(self) -> None:
        """Add the series that XIDs and shifted GPU indexes will need."""
        for fault in self.faults:
            n, g = self._index[fault.node], part_index(fault.part)
            codes = fault.codes
            for k, (code, after) in enumerate(codes):
                until = fault.onset + codes[k + 1][1] if k + 1 < len(codes) else np.inf
                labels = {"err_code": str(code), "err_msg": XID_TEXT.get(code, "Unknown Error")}
                self._add_renamed(XID, n, g, labels, fault.onset + after, until)
            if fault.kind == "gpu_lost":
                for later in range(g + 1, N_GPUS):
                    labels = gpu_all_smi(fault.node, later, later - 1)
                    for block in self._blocks:
                        if block.space == "smi_gpu":
                            for column in block.columns:
                                self._add_renamed(
                                    column.name, n, later, labels, fault.onset + 30.0, fault.end
                                )

    def _add_renamed(
        self, name: str, node: int, part: int, labels: dict[str, str], onset: float, end: float
    ) -> None:
        for start, block in zip(self._starts, self._blocks, strict=True):
            for i, column in enumerate(block.columns):
                if column.name == name:
                    cell = start + (i * block.shape[1] + node) * block.shape[2] + part
                    self.series.append({**self.series[cell], **labels})
                    self._renamed.append(_Renamed(cell, onset, end))
                    phases = np.concatenate(self._phase_ms)
                    self._phase_ms.append(phases[[cell]])

    def _rename(self, values: Floats, at: float) -> Floats:
        if not self._renamed:
            return values
        extra = np.full(len(self._renamed), np.nan)
        for k, renamed in enumerate(self._renamed):
            if renamed.onset <= at < renamed.end:
                extra[k] = values[renamed.cell]
        for renamed in self._renamed:
            if renamed.onset <= at < renamed.end:
                values[renamed.cell] = np.nan
        return np.concatenate([values, extra])


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

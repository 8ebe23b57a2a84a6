"""Labels of all series, and under which of them a cell shows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.block import Block
from simulator.config import ClusterConfig
from simulator.faults import Fault, GroupEvent, part_index
from simulator.layout import Layout
from simulator.mods import Floats
from simulator.topology import (
    EXPORTERS,
    JOBS,
    N_GPUS,
    PARTS,
    SCRAPE,
    gpu_all_smi,
    job_labels,
    pod_name,
    target_labels,
)

Int64s = NDArray[np.int64]
Labels = dict[str, str]

XID = "DCGM_FI_DEV_XID_ERRORS"
XID_TEXT = {
    0: "No Error",
    31: "GPU memory page fault",
    48: "Double Bit ECC Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    119: "GSP RPC Timeout",
    145: "NVLink: RLW Error",
    149: "NVLink: NETIR Error",
}


class _Span(NamedTuple):
    cells: Int64s
    onset: float
    end: float


@dataclass(frozen=True, slots=True)
class _Renamed:
    """Series that show cells for some time instead of the series under which they usually show."""

    cells: Int64s
    onset: Floats
    end: Floats

    @classmethod
    def of(cls, spans: Sequence[_Span]) -> _Renamed:
        if not spans:
            return cls(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        sizes = [len(span.cells) for span in spans]
        return cls(
            np.concatenate([span.cells for span in spans]),
            np.repeat([span.onset for span in spans], sizes),
            np.repeat([span.end for span in spans], sizes),
        )

    def applied(self, values: Floats, at: float) -> Floats:
        """Return the values with those of the other series behind them."""
        if not len(self.cells):
            return values
        active = (self.onset <= at) & (at < self.end)
        extra = np.where(active, values[self.cells], np.nan)
        values[self.cells[active]] = np.nan
        return np.concatenate([values, extra])


class Names:
    """All series of a cluster.

    Parameters
    ----------
    config
        The cluster.
    seed
        Its seed.
    blocks
        Metrics, in the order of their values.
    phase_s
        Second of the step at which each target is scraped, shape (nodes, exporters).
    layout
        Which node belongs to which job.
    """

    def __init__(
        self, config: ClusterConfig, seed: int, blocks: Sequence[Block], phase_s: Floats, layout: Layout
    ) -> None:
        self._config, self._seed, self._blocks = config, seed, blocks
        self._phase_s, self._layout = phase_s, layout
        self.series: list[Labels] = []
        self.starts: list[int] = []
        self._phase_ms: list[Int64s] = []
        for block in blocks:
            self._name(block)
        self._stages: tuple[_Renamed, _Renamed] = (_Renamed.of(()), _Renamed.of(()))
        self._copied = np.zeros(0, dtype=np.int64)

    def offsets_ms(self) -> Int64s:
        """Return the milliseconds from the tick to each series' scrape."""
        return np.concatenate(self._phase_ms)

    def shown(self, values: Floats, at: float) -> Floats:
        """Return one value per series, given those of the blocks; NaN where a series does not show."""
        for stage in self._stages:
            values = stage.applied(values, at)
        return np.concatenate([values, values[self._copied]]) if len(self._copied) else values

    def rename(self, faults: Sequence[Fault], events: Sequence[GroupEvent]) -> None:
        """Add the series that faults and events will need, and those of a second scrape job."""
        codes = [span for fault in faults for span in self._codes_of(fault)]
        pods = self._target_pods(faults) + self._job_pods(events)
        self._stages = (_Renamed.of(codes), _Renamed.of(pods))
        self._copy_twice()

    def _name(self, block: Block) -> None:
        config = self._config
        self.starts.append(len(self.series))
        n_parts = block.shape[2]
        n = config.n_nodes
        if block.exporter == SCRAPE:
            phase = self._phase_s
            bases: list[Labels] = [{} for _ in range(n)]
        else:
            phase = np.repeat(self._phase_s[:, [EXPORTERS.index(block.exporter)]], n_parts, axis=1)
            bases = [target_labels(config, i, block.exporter) for i in range(n)]
        if block.space == "gpu":
            bases = [base | self._job_of(i) for i, base in enumerate(bases)]
        parts = [PARTS[block.space](config, i) for i in range(n)]
        for column in block.columns:
            extra = {"err_code": "0", "err_msg": XID_TEXT[0]} if column.name == XID else {}
            for base, of_node in zip(bases, parts, strict=True):
                self.series.extend({"__name__": column.name, **base, **part, **extra} for part in of_node)
        ms = np.rint((phase - config.step_s) * 1000).astype(np.int64)
        self._phase_ms.append(np.tile(ms.reshape(-1), block.shape[0]))

    def _job_of(self, node: int, run: int = 0) -> Labels:
        job = int(self._layout.job[node])
        if job >= self._config.workload.n_jobs:
            return {}
        return job_labels(self._config.workload.job_label, job, self._config.node_name(node), run)

    def _add(self, cells: Int64s, labels: Labels, onset: float, end: float) -> _Span:
        self.series.extend({**self.series[cell], **labels} for cell in cells.tolist())
        self._phase_ms = [np.concatenate(self._phase_ms)]
        self._phase_ms.append(self._phase_ms[0][cells])
        return _Span(cells, onset, end)

    def _codes_of(self, fault: Fault) -> list[_Span]:
        """Return the series that the XIDs and shifted GPU indexes of a fault will need."""
        n, found = self._config.node_names.index(fault.node), []
        codes = fault.codes
        if codes:
            cells = self._cells(XID, n, part_index(fault.part))
            for k, (code, after) in enumerate(codes):
                until = fault.onset + codes[k + 1][1] if k + 1 < len(codes) else np.inf
                labels = {"err_code": str(code), "err_msg": XID_TEXT.get(code, "Unknown Error")}
                if len(cells):
                    found.append(self._add(cells, labels, fault.onset + after, until))
        if fault.kind == "gpu_lost":
            g = part_index(fault.part)
            for later in range(g + 1, N_GPUS):
                labels = gpu_all_smi(fault.node, later, later - 1)
                for block in self._blocks:
                    if block.space == "smi_gpu":
                        for column in block.columns:
                            cells = self._cells(column.name, n, later)
                            found.append(self._add(cells, labels, fault.onset + 30.0, fault.end))
        return found

    def _cells(self, name: str, node: int, part: int) -> Int64s:
        found = [
            start + (i * block.shape[1] + node) * block.shape[2] + part
            for start, block in zip(self.starts, self._blocks, strict=True)
            for i, column in enumerate(block.columns)
            if column.name == name
        ]
        return np.array(found, dtype=np.int64)

    def _target_pods(self, faults: Sequence[Fault]) -> list[_Span]:
        """Return the series of targets whose pod gets another name."""
        renamed = sorted((f for f in faults if f.kind == "target_renamed"), key=lambda f: f.onset)
        found, cells_of = [], self._cells_of_targets() if renamed else {}
        for k, fault in enumerate(renamed):
            same = [f.onset for f in renamed[k + 1 :] if (f.node, f.part) == (fault.node, fault.part)]
            n = self._config.node_names.index(fault.node)
            target = target_labels(self._config, n, fault.part)
            cells = cells_of[target["job"], target["instance"]]
            labels = {"pod": pod_name(fault.part, fault.node, k + 1)}
            found.append(self._add(cells, labels, fault.onset, min(same, default=np.inf)))
        return found

    def _job_pods(self, events: Sequence[GroupEvent]) -> list[_Span]:
        """Return the series of GPUs whose job is started anew, in pods with other names."""
        if self._config.workload.job_label != "kubernetes":
            return []
        blocks = [(s, b) for s, b in zip(self.starts, self._blocks, strict=True) if b.space == "gpu"]
        found = []
        for job in range(self._config.workload.n_jobs):
            nodes = np.flatnonzero(self._layout.job == job)
            names = {self._config.node_name(int(n)) for n in nodes}
            onsets = sorted(
                e.onset for e in events if e.kind == "job_restart" and (not e.nodes or names & set(e.nodes))
            )
            for run, onset in enumerate(onsets):
                end = onsets[run + 1] if run + 1 < len(onsets) else np.inf
                for n in nodes.tolist():
                    for start, block in blocks:
                        c, n_nodes, k = block.shape
                        cells = start + (np.arange(c)[:, None] * n_nodes + n) * k + np.arange(k)
                        labels = self._job_of(n, run + 1)
                        found.append(self._add(cells.reshape(-1), labels, onset, end))
        return found

    def _cells_of_targets(self) -> dict[tuple[str, str], Int64s]:
        found: dict[tuple[str, str], list[int]] = {}
        for i, labels in enumerate(self.series):
            found.setdefault((labels["job"], labels["instance"]), []).append(i)
        return {key: np.array(cells, dtype=np.int64) for key, cells in found.items()}

    def _copy_twice(self) -> None:
        """Add the series of a second scrape job that reads the same exporters at other times."""
        config, quirks = self._config, self._config.quirks
        if not quirks.scraped_twice:
            return
        rng = np.random.default_rng([self._seed, 27])
        n = config.n_nodes
        chosen = np.sort(rng.permutation(n)[: max(1, round(quirks.twice_share * n))])
        phases = rng.uniform(0.01, config.step_s, (n, len(EXPORTERS)))
        cells_of = self._cells_of_targets()
        copied = []
        for exporter in quirks.scraped_twice:
            for node in chosen.tolist():
                target = target_labels(config, node, exporter)
                cells = cells_of[target["job"], target["instance"]]
                self.series.extend({**self.series[c], "job": f"{JOBS[exporter]}-2"} for c in cells.tolist())
                ms = round((phases[node, EXPORTERS.index(exporter)] - config.step_s) * 1000)
                self._phase_ms.append(np.full(len(cells), ms, dtype=np.int64))
                copied.append(cells)
        self._copied = np.concatenate(copied)

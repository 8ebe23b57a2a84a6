"""The aligned samples of a case that every rival works on: the cells of Oddnode's own ingest.

Rivals are told which nodes work and don't look at spares; Oddnode has to find out. What may be
compared with what (unit, role, class of port) is the catalog's knowledge for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.evaluation.model import Flag
from detector.outcome import Outcome
from detector.pipeline import Pipeline
from detector.source.incident_file import Recording
from grouping.layout import Block, Layout, build_layout
from grouping.model import Kind

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

MIN_TICKS = 3
"""One or two samples are no continuity, however far apart they are."""


@dataclass(frozen=True, slots=True)
class CaseMatrix:
    """One case as arrays.

    Parameters
    ----------
    times : ndarray of shape (n_ticks,)
        Epoch seconds of the evaluations.
    values : ndarray of shape (n_ticks, n_cells)
        Newest value, or rate of a counter; NaN for missing.
    errors : ndarray of shape (n_ticks, n_cells), bool
        An error counter rose or a fault code appeared.
    is_code : ndarray of shape (n_cells,), bool
        The cell holds fault codes (XIDs).
    is_telling : ndarray of shape (n_cells,), bool
        The cell holds fault codes, or an error counter of which the catalog says that any rise is a fault.
    layout
        Peer groups of working nodes.
    nodes, parts, metrics
        Names; `metrics` has one entry per signal.
    cell_node, cell_part, cell_signal : ndarray of shape (n_cells,)
        Where each cell belongs.
    signal_keys
        Metric and role of each signal, empty for means over parts.
    pool : ndarray of shape (n_pool,)
        Nodes at work.
    """

    times: NDArray[np.float64]
    values: Floats
    errors: Bools
    is_code: Bools
    is_telling: Bools
    layout: Layout
    nodes: tuple[str, ...]
    parts: tuple[str, ...]
    metrics: tuple[str, ...]
    cell_node: NDArray[np.int64]
    cell_part: NDArray[np.int64]
    cell_signal: NDArray[np.int64]
    signal_keys: tuple[str, ...]
    pool: NDArray[np.int64]

    @property
    def step_s(self) -> float:
        """Seconds between evaluations."""
        return float(np.median(np.diff(self.times))) if len(self.times) > 1 else 30.0

    def ticks(self, seconds: float) -> int:
        """Return how many evaluations a duration is, at least three."""
        return max(MIN_TICKS, round(seconds / self.step_s))

    def row_signals(self, block: Block) -> NDArray[np.int64]:
        """Return the signal of each row of a block, -1 for a row without cells."""
        signals = np.full(block.n_rows, -1, dtype=np.int64)
        signals[block.positions // block.n_columns] = self.cell_signal[block.cells]
        return signals

    def groups(self) -> Iterator[tuple[Block, Floats]]:
        """Yield every block with its values, shape (n_ticks, n_rows, n_columns); each cell once."""
        for block in self.layout.blocks:
            if block.by_slot and (self.layout.row_of_cell[block.cells] >= 0).any():
                continue
            dense = np.full((len(self.times), block.n_rows * block.n_columns), np.nan, dtype=np.float32)
            dense[:, block.positions] = self.values[:, block.cells]
            yield block, dense.reshape(-1, block.n_rows, block.n_columns)

    def by_node(self) -> tuple[tuple[str, ...], Floats]:
        """Return the mean over each working node's parts.

        Returns
        -------
        tuple
            Keys of signals, and values of shape (n_ticks, n_signals, n_pool).
        """
        chosen = [i for i, key in enumerate(self.signal_keys) if key]
        row = np.full(len(self.signal_keys), -1, dtype=np.int64)
        row[chosen] = np.arange(len(chosen))
        column = np.full(len(self.nodes), -1, dtype=np.int64)
        column[self.pool] = np.arange(len(self.pool))
        cells = np.flatnonzero((row[self.cell_signal] >= 0) & (column[self.cell_node] >= 0))
        flat = row[self.cell_signal[cells]] * len(self.pool) + column[self.cell_node[cells]]
        size = len(chosen) * len(self.pool)
        out = np.full((len(self.times), size), np.nan, dtype=np.float32)
        for t in range(len(self.times)):
            here = self.values[t, cells]
            known = np.isfinite(here)
            count = np.bincount(flat[known], minlength=size)
            total = np.bincount(flat[known], weights=here[known], minlength=size)
            out[t] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        keys = tuple(self.signal_keys[i] for i in chosen)
        return keys, out.reshape(len(self.times), len(chosen), len(self.pool))


class Collector:
    """Watches a replay and keeps what a `CaseMatrix` needs.

    Parameters
    ----------
    pipeline
        The pipeline that is replayed.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._times: list[float] = []
        self._values: list[Floats] = []
        self._risen: list[NDArray[np.int64]] = []

    def __call__(self, outcome: Outcome) -> None:
        """Take in one evaluation."""
        index, series = self._pipeline.interner, self._pipeline.memory.series
        self._times.append(outcome.at)
        self._values.append(self._pipeline.window.frames()[-1].values.copy())
        cells = index.component_cell[index.series_component[np.flatnonzero(series.rise > 0)]]
        self._risen.append(np.unique(cells[cells >= 0]).astype(np.int64))

    def matrix(self, recording: Recording) -> CaseMatrix:
        """Return all that was taken in, grouped by the case's pool and spares."""
        index = self._pipeline.interner
        n = index.n_cells
        values = np.full((len(self._times), n), np.nan, dtype=np.float32)
        for t, row in enumerate(self._values):
            values[t, : len(row)] = row
        specs = [index.signals[s].spec for s in index.cell_signal.tolist()]
        counts = np.array([s.kind is Kind.ERROR_COUNTER for s in specs], dtype=bool)
        codes = np.array([s.fault is not None and s.fault.on == "change" for s in specs], dtype=bool)
        rises = np.array([s.fault is not None and s.fault.on == "rise" for s in specs], dtype=bool)
        errors = np.zeros(values.shape, dtype=bool)
        for t, cells in enumerate(self._risen):
            errors[t, cells[counts[cells]]] = True
        errors[:, codes] |= _appeared(values[:, codes])
        working = set(recording.pool)
        pools = np.array([0 if node in working else -1 for node in index.nodes], dtype=np.int32)
        layout = build_layout(index, pools, ("pool",), self._pipeline.part_classes.classes)
        return CaseMatrix(
            times=np.array(self._times),
            values=values,
            errors=errors,
            is_code=codes,
            is_telling=codes | (counts & rises),
            layout=layout,
            nodes=tuple(index.nodes),
            parts=tuple(index.parts),
            metrics=tuple(s.spec.name for s in index.signals),
            cell_node=index.cell_node.astype(np.int64),
            cell_part=index.cell_part.astype(np.int64),
            cell_signal=index.cell_signal.astype(np.int64),
            signal_keys=tuple("" if s.per_node else f"{s.spec.name} {s.role}" for s in index.signals),
            pool=np.flatnonzero(pools == 0),
        )


def _appeared(codes: Floats) -> Bools:
    """Tell where a code other than 0 is there that was not there before."""
    found = np.zeros(codes.shape, dtype=bool)
    last = np.zeros(codes.shape[1], dtype=np.float32)
    for t, now in enumerate(codes):
        found[t] = (now > 0) & (now != last)
        last = np.where(np.isfinite(now), now, last)
    return found


def lasting(odd: Bools, n_ticks: int) -> Bools:
    """Tell where a column has been true for `n_ticks` rows without a break."""
    run = np.zeros(odd.shape[1:], dtype=np.int32)
    found = np.zeros(odd.shape, dtype=bool)
    for t, now in enumerate(odd):
        run = (run + 1) * now
        found[t] = run >= n_ticks
    return found


def flags_of_cells(matrix: CaseMatrix, alarmed: Bools) -> list[Flag]:
    """Return the flags of nodes of which at least one cell is alarmed.

    Parameters
    ----------
    matrix
        The case.
    alarmed : ndarray of shape (n_ticks, n_cells), bool
        As of each evaluation.
    """
    node_on = np.zeros((len(matrix.times), len(matrix.nodes)), dtype=bool)
    ever = np.flatnonzero(alarmed.any(axis=0))
    ever = ever[np.isin(matrix.cell_node[ever], np.flatnonzero(_pooled(matrix)))]
    for cell in ever.tolist():
        node_on[:, matrix.cell_node[cell]] |= alarmed[:, cell]
    found = []
    for node, first, last in spans_of(node_on):
        mine = ever[matrix.cell_node[ever] == node]
        cell = int(mine[np.argmax(alarmed[first, mine])])
        part = matrix.parts[matrix.cell_part[cell]]
        metric = matrix.metrics[matrix.cell_signal[cell]]
        found.append(_flag(matrix, node, first, last, part, metric))
    return found


def flags_of_nodes(matrix: CaseMatrix, alarmed: Bools) -> list[Flag]:
    """Return the flags of working nodes; `alarmed` has the shape (n_ticks, n_pool)."""
    return [
        _flag(matrix, int(matrix.pool[column]), first, last, "", "")
        for column, first, last in spans_of(alarmed)
    ]


def _pooled(matrix: CaseMatrix) -> Bools:
    told = np.zeros(len(matrix.nodes), dtype=bool)
    for block in matrix.layout.blocks:
        told[block.column_node] = True
    return told


def _flag(matrix: CaseMatrix, node: int, first: int, last: int, part: str, metric: str) -> Flag:
    end = None if last == len(matrix.times) else float(matrix.times[last])
    return Flag(matrix.nodes[node], float(matrix.times[first]), end, part, part, metric)


def spans_of(on: Bools) -> Iterator[tuple[int, int, int]]:
    """Yield column, first row and the row after the last of every run of true values."""
    padded = np.zeros((on.shape[0] + 2, on.shape[1]), dtype=np.int8)
    padded[1:-1] = on
    change = np.diff(padded, axis=0)
    for column in np.flatnonzero(on.any(axis=0)).tolist():
        starts = np.flatnonzero(change[:, column] == 1)
        ends = np.flatnonzero(change[:, column] == -1)
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
            yield column, first, last

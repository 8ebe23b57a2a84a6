"""Readings that are not to be believed, and scrapes that fail now and then.

None of this counts against a node: a sensor that stands still says nothing about the machine, and a sample
that was not taken says nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.figure import figure
from detector.core.ingest import CellValues, grow
from detector.outcome import DataQuality
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.model import Kind

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

FROZEN_S, FROZEN_WHOLE_S = 1200.0, 7200.0
"""A reading that has been the same to the last digit for this long, while its peers' change, is frozen; a
whole number, which comes again by chance, after the second."""

PEERS_CHANGE, PEERS_CHANGE_S = 0.9, 300.0
"""So many of its peers must have changed in the last seconds."""

LOOKED_AT_S = 60.0
"""Readings are looked at this often."""

SCRAPES_S = 1800.0
"""Time constant of the share of scrapes that failed."""

FAILING, GONE = 0.05, 0.95
"""Share of failed scrapes of a job from which it is told; a target that fails more often than the second is
gone."""

SCRAPED = "up"
MAX_FINDINGS = 100


@dataclass(slots=True)
class Readings:
    """Since when each reading has been what it is, and how often each target's scrape failed.

    Parameters
    ----------
    value : ndarray of shape (n_cells,)
        Newest reading, NaN for none yet.
    changed : ndarray of shape (n_cells,)
        Epoch seconds at which it was first what it is now, NaN for none yet.
    failed : ndarray of shape (n_cells,)
        For the scraper's own flag of each target, the share of its scrapes that failed; 0 for other cells.
    """

    value: FloatArray = field(default_factory=lambda: np.zeros(0))
    changed: FloatArray = field(default_factory=lambda: np.zeros(0))
    failed: FloatArray = field(default_factory=lambda: np.zeros(0))
    _is_gauge: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    _flags: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _looked_at: float = -np.inf
    _found: tuple[DataQuality, ...] = ()

    def step(
        self, cells: CellValues, index: SeriesIndex, layout: Layout, *, at: float, dt: float
    ) -> tuple[DataQuality, ...]:
        """Take in an evaluation and return what is odd.

        Parameters
        ----------
        cells
            Newest values.
        index, layout
            Cells and their groups.
        at, dt
            Evaluation time and seconds since the one before.
        """
        self._grow_to(index)
        known = cells.fresh & np.isfinite(cells.value)
        new = np.flatnonzero(known & (cells.value != self.value))
        self.value[new], self.changed[new] = cells.value[new], at
        flags = self._flags[known[self._flags]]
        self.failed[flags] += min(1.0, dt / SCRAPES_S) * ((cells.value[flags] == 0.0) - self.failed[flags])
        if at - self._looked_at >= LOOKED_AT_S:
            self._looked_at = at
            self._found = (*self._frozen(index, layout, known, at), *self._failing(index, at))
        return self._found

    def _grow_to(self, index: SeriesIndex) -> None:
        start, size = len(self.value), index.n_cells
        if start == size:
            return
        for name, fill in (("value", np.nan), ("changed", np.nan), ("failed", 0.0)):
            setattr(self, name, grow(getattr(self, name), size, fill))
        reads = np.array([s.spec.kind is Kind.GAUGE and s.spec.weight > 0 for s in index.signals], dtype=bool)
        is_flag = np.array([s.spec.name == SCRAPED for s in index.signals], dtype=bool)
        # means over parts have no reading of their own
        self._is_gauge = reads[index.cell_signal] & (index.cell_first_series >= 0)
        self._flags = np.flatnonzero(is_flag[index.cell_signal])

    def _frozen(self, index: SeriesIndex, layout: Layout, known: BoolArray, at: float) -> list[DataQuality]:
        lasted_s = at - self.changed
        row = layout.any_row_of_cell
        judged = self._is_gauge & known & (row >= 0)
        least_s = np.where(self.value == np.rint(self.value), FROZEN_WHOLE_S, FROZEN_S)
        still = np.flatnonzero(judged & (lasted_s >= least_s))
        if not len(still):
            return []
        n_rows = len(layout.row_nodes)
        members = np.bincount(row[judged], minlength=n_rows)
        lively = np.bincount(row[judged & (lasted_s <= PEERS_CHANGE_S)], minlength=n_rows)
        others = members[row[still]] - 1
        still = still[(others > 0) & (lively[row[still]] >= PEERS_CHANGE * others)]
        found = []
        for cell in still[:MAX_FINDINGS].tolist():
            spec, part = index.signals[index.cell_signal[cell]].spec, index.parts[index.cell_part[cell]]
            where = f"{spec.name} of {part}" if part else spec.name
            text = (
                f"{where} has read {figure(float(self.value[cell]))} {spec.measure} to the last digit "
                f"for {lasted_s[cell] / 60:.0f} min, while its peers' readings change"
            )
            node = index.nodes[index.cell_node[cell]]
            found.append(DataQuality("frozen", node, float(self.changed[cell]), text))
        return found

    def _failing(self, index: SeriesIndex, at: float) -> list[DataQuality]:
        there = self._flags[self.failed[self._flags] <= GONE]
        found = []
        for signal in np.unique(index.cell_signal[there]).tolist():
            mine = there[index.cell_signal[there] == signal]
            share, some = float(self.failed[mine].mean()), int(np.sum(self.failed[mine] >= FAILING))
            if share >= FAILING and some > 1:
                job = index.signals[signal].role
                text = (
                    f"{100 * share:.0f} % of the scrapes of job {job} failed lately, on {some} of "
                    f"{len(mine)} targets: what they missed is neither evidence nor health"
                )
                found.append(DataQuality("scrapes_fail", "", at, text))
        return found

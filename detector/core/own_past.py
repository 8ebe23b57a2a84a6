"""A member's own past as the yardstick, for metrics of which nobody has said what spread means anything.

Where the catalog knows a metric, its floors say what a difference is worth. Of a metric without a known
target only the samples are there, and members that sit at levels of their own make every spread among
peers look wide. So each member's distance to the median of its peers is compared with its own past:
many signals of one node that moved a little, together and for long, count; one signal never does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import grow
from detector.core.peers import RowStats, stack_stats
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DAY_S = 86_400.0
"""Time constant of the past, and its least length: a past without a whole day takes a rhythm for a change."""

PAST_SAMPLES = 300
"""The past is the mean of at least about this many samples, however far apart they are."""

LEAST_SAMPLES = 100
"""A past of fewer samples than this is none."""

SHIFT_S, SHIFT_SAMPLES = 2700.0, 9
"""A shift is the mean over about this time and at least about this many samples."""

CLIP = 4.0
"""Residuals are clipped to this many spreads before they are learnt."""

REACH = 8.0
"""One sample counts as this many spreads at most."""

DISPERSAL_SHARE = 0.5
"""How much of the present dispersal among peers widens the scale: when all scatter, nobody is odd."""

SHIFT_THRESHOLD = 3.0
"""A node's score is 1 when its agreeing signals have shifted by this many spreads."""

BEGUN = 0.5
"""Share of the threshold from which a shift has begun, and is shown as evidence."""

ALMOST = 0.99
"""Score of a node that has shifted and does not stand out."""

AGREEING, AGREEING_SHARE = 4, 0.2
"""So many metrics of a node, and this share of those that are compared, must have shifted."""

STANDS_OUT, CULPRITS = 1.25, 2
"""A node's score must be this many times that of the next after so many: else the pool moves."""

ABS_TO_SIGMA = 1.2533


@dataclass(slots=True)
class OwnPast:
    """Usual distance of each cell to the median of its peers, and how far it is from that now.

    Parameters
    ----------
    offset, spread : ndarray of shape (n_cells,)
        Usual distance, and usual absolute residual, in the metric's unit.
    shift : ndarray of shape (n_cells,)
        Mean of the newest residuals in spreads, signed.
    seen_s, n_seen : ndarray of shape (n_cells,)
        Seconds and samples learnt from.
    lasted_s : ndarray of shape (n_cells,)
        Seconds since the present shift began, 0 for none.
    """

    offset: FloatArray = field(default_factory=lambda: np.zeros(0))
    spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    shift: FloatArray = field(default_factory=lambda: np.zeros(0))
    seen_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_seen: FloatArray = field(default_factory=lambda: np.zeros(0))
    lasted_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    def grow_to(self, size: int) -> None:
        """Make room for new cells."""
        for name in self.__slots__:
            setattr(self, name, grow(getattr(self, name), size, 0.0))

    def forget(self, cells: BoolArray) -> None:
        """Begin anew for cells whose peers are new to them: what they used to differ is void."""
        for name in self.__slots__:
            getattr(self, name)[cells] = 0.0

    def step(
        self,
        values: FloatArray,
        chosen: BoolArray,
        stats: RowStats,
        layout: Layout,
        floor: FloatArray,
        *,
        min_peers: int,
        dt: float,
        skip: BoolArray | None = None,
    ) -> None:
        """Compare the newest values with the past, then learn from them.

        Parameters
        ----------
        values : ndarray of shape (n_cells,)
            Newest values, NaN for missing.
        chosen : ndarray of shape (n_cells,), bool
            Cells that are judged this way.
        stats, layout
            Medians of the rows, and the rows.
        floor : ndarray of shape (n_rows,)
            Smallest spread, in the metric's unit.
        min_peers
            Groups with fewer members that report are not judged.
        dt
            Seconds since the evaluation before.
        skip : ndarray of shape (n_cells,), bool
            Cells of which nothing is learnt now, None for none: a fault must not become its node's past.
        """
        cells = np.flatnonzero(chosen & (layout.row_of_cell >= 0) & np.isfinite(values))
        rows = layout.row_of_cell[cells]
        known = np.isfinite(stats.median[rows])
        cells, rows = cells[known], rows[known]
        if not len(cells):
            return
        residual = values[cells] - stats.median[rows] - self.offset[cells]
        width = np.maximum(self.spread[cells] * ABS_TO_SIGMA, floor[rows])
        away = np.full(len(values), np.nan)
        away[cells] = np.where(self.n_seen[cells] < LEAST_SAMPLES, np.nan, residual / width)
        centre, dispersal = _among_peers(away, layout, min_peers)
        away = (away[cells] - centre[rows]) / np.fmax(1.0, DISPERSAL_SHARE * dispersal[rows])
        away = np.clip(np.nan_to_num(away), -REACH, REACH)
        self.shift[cells] += min(1.0 / SHIFT_SAMPLES, dt / SHIFT_S) * (away - self.shift[cells])
        moved = np.abs(self.shift[cells]) >= BEGUN * SHIFT_THRESHOLD
        self.lasted_s[cells] = np.where(moved, self.lasted_s[cells] + dt, 0.0)
        learnt = np.ones(len(cells), dtype=bool) if skip is None else ~skip[cells]
        self._learn(cells[learnt], residual[learnt], width[learnt], dt)

    def _learn(self, cells: IntArray, residual: FloatArray, width: FloatArray, dt: float) -> None:
        n = self.n_seen[cells]
        rate = np.maximum(1.0 / (n + 1.0), min(1.0 / PAST_SAMPLES, dt / DAY_S))
        limit = np.where(n < 20, np.inf, CLIP * width)
        near = np.clip(residual, -limit, limit)
        self.offset[cells] += rate * near
        self.spread[cells] += rate * (np.where(n == 0, 0.0, np.abs(near)) - self.spread[cells])
        self.seen_s[cells] += dt
        self.n_seen[cells] = n + 1.0

    def scores(
        self, chosen: BoolArray, node: IntArray, metric: IntArray, pool_of: NDArray[np.int32]
    ) -> FloatArray:
        """Return one score per node: how far its agreeing metrics have shifted.

        Parameters
        ----------
        chosen : ndarray of shape (n_cells,), bool
            Cells that are judged this way.
        node, metric : ndarray of shape (n_cells,)
            Number of the node and of the metric of each cell.
        pool_of : ndarray of shape (n_nodes,)
            Number of the pool of each node.

        Returns
        -------
        ndarray of shape (n_nodes,)
            1 is the threshold; 0 for nodes with too few metrics or too short a past.
        """
        n_nodes = len(pool_of)
        found = np.zeros(n_nodes)
        cells = np.flatnonzero(chosen & (self.seen_s >= DAY_S) & (self.n_seen >= LEAST_SAMPLES))
        if not len(cells):
            return found
        n_metrics = int(metric[cells].max()) + 1
        shifted = np.full(n_nodes * n_metrics, -1.0)
        np.maximum.at(shifted, node[cells] * n_metrics + metric[cells], np.abs(self.shift[cells]))
        ordered = -np.sort(-shifted.reshape(n_nodes, n_metrics), axis=1)
        count = (ordered >= 0).sum(axis=1)
        needed = np.maximum(AGREEING, np.ceil(AGREEING_SHARE * count)).astype(np.int64)
        enough = np.flatnonzero(count >= needed)
        found[enough] = ordered[enough, needed[enough] - 1] / SHIFT_THRESHOLD
        for pool in np.unique(pool_of[enough]).tolist():
            peers = enough[pool_of[enough] == pool]
            if len(peers) > CULPRITS:
                bar = STANDS_OUT * np.sort(found[peers])[-CULPRITS - 1]
                found[peers] = np.where(found[peers] >= bar, found[peers], np.minimum(found[peers], ALMOST))
        return found


def _among_peers(away: FloatArray, layout: Layout, min_peers: int) -> tuple[FloatArray, FloatArray]:
    """Median and robust spread of each row; rows without values get NaN."""
    centre = np.full(len(layout.row_key), np.nan)
    dispersal = np.full(len(layout.row_key), np.nan)
    padded = np.append(away, np.nan)
    for stack in layout.stacks:
        if np.isfinite(padded.take(stack.source)).any():
            centre[stack.rows], dispersal[stack.rows], _, _ = stack_stats(padded, stack, min_peers)
    return centre, dispersal

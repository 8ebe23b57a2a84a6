"""Signals that move together in all healthy nodes are one physical cause and count once.

NFS traffic and the traffic of the interface that carries it are two monitored targets and one thing.
How much two signals share is read from the peers: the correlation, over the other nodes, of how far
each is off its habit in both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.judge import ActiveCells
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MIN_NODES = 10
"""Fewer peers than this say nothing about what belongs together."""

NEAR = 3.0
"""Values are brought this close to the median, in MADs, so that no single node makes a correlation."""

CANDIDATE = 1.2
"""Nodes whose targets sum to less than this many thresholds are left as they are."""


def independent(
    active: ActiveCells, left: FloatArray, index: SeriesIndex, layout: Layout, n_targets: int
) -> ActiveCells:
    """Weigh down what a stronger target of the same node already says.

    Parameters
    ----------
    active
        Cells that count against their node.
    left : ndarray of shape (n_cells,)
        How far each cell is off its habit over the newest window, NaN where unknown.
    index, layout
        Cells and groups.
    n_targets
        Number of monitored targets.

    Returns
    -------
    ActiveCells
        With scores times ``1 - r^2`` where r is the correlation with a stronger target.
    """
    if not len(active.cell):
        return active
    factor = np.ones(len(active.cell))
    key = active.node * n_targets + active.target
    best = np.zeros(len(index.nodes) * n_targets)
    np.maximum.at(best, key, active.score)
    per_node = best.reshape(-1, n_targets)
    several = ((per_node > 0).sum(axis=1) > 1) & (per_node.sum(axis=1) >= CANDIDATE)
    vectors: dict[int, FloatArray] = {}
    rows = np.where(layout.row_of_cell >= 0, layout.row_of_cell, layout.slot_row_of_cell)
    for node in np.flatnonzero(several).tolist():
        targets = np.flatnonzero(per_node[node] > 0)
        kept: list[int] = []
        for target in targets[np.argsort(-per_node[node, targets], kind="stable")].tolist():
            mine = np.flatnonzero(key == node * n_targets + target)
            row = int(rows[active.cell[mine[np.argmax(active.score[mine])]]])
            if row < 0:
                continue
            shared = max((_correlation(row, other, node, rows, left, index, vectors) for other in kept), default=0.0)
            factor[mine] = 1.0 - shared**2
            kept.append(row)
    return active.weighed(factor)


def _correlation(
    one: int,
    other: int,
    node: int,
    rows: NDArray[np.integer],
    left: FloatArray,
    index: SeriesIndex,
    vectors: dict[int, FloatArray],
) -> float:
    a, b = (_by_node(row, rows, left, index, vectors) for row in (one, other))
    both = np.isfinite(a) & np.isfinite(b)
    both[node] = False
    if both.sum() < MIN_NODES:
        return 0.0
    x, y = _near(a[both]), _near(b[both])
    width = float(np.std(x) * np.std(y))
    return 0.0 if width <= 0 else float(abs(np.mean(x * y) - np.mean(x) * np.mean(y)) / width)


def _by_node(
    row: int,
    rows: NDArray[np.integer],
    left: FloatArray,
    index: SeriesIndex,
    vectors: dict[int, FloatArray],
) -> FloatArray:
    if row not in vectors:
        cells = np.flatnonzero((rows == row) & np.isfinite(left))
        n = len(index.nodes)
        count = np.bincount(index.cell_node[cells], minlength=n)
        total = np.bincount(index.cell_node[cells], weights=left[cells], minlength=n)
        vectors[row] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return vectors[row]


def _near(values: FloatArray) -> FloatArray:
    middle = float(np.median(values))
    mad = float(np.median(np.abs(values - middle)))
    return np.clip(values - middle, -NEAR * mad, NEAR * mad)

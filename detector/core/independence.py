"""Signals that move together in all healthy nodes are one physical cause and count once.

NFS traffic and the traffic of the interface that carries it are two monitored targets and one thing.
How much two signals share is read from the peers: the correlation, over the other nodes, of how far
each is off its habit in both.
"""

from __future__ import annotations

from collections.abc import Callable

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
"""Nodes whose cells sum to less than this many thresholds are left as they are."""

MOST = 12
"""A node's signals are compared with at most this many stronger ones."""


def independent(active: ActiveCells, left: FloatArray, index: SeriesIndex, layout: Layout) -> ActiveCells:
    """Weigh down what a stronger target of the same node already says.

    Parameters
    ----------
    active
        Cells that count against their node.
    left : ndarray of shape (n_cells,)
        How far each cell is off its habit over the newest window, NaN where unknown.
    index, layout
        Cells and groups.

    Returns
    -------
    ActiveCells
        With shares of their own: ``1 - r^2`` where r is the correlation with a stronger signal.
    """
    if not len(active.cell):
        return active
    strong = np.bincount(active.node, weights=active.score, minlength=len(index.nodes)) >= CANDIDATE
    own = np.ones(len(active.cell))
    vectors: dict[int, FloatArray] = {}
    rows = layout.any_row_of_cell

    def by_node(row: int) -> FloatArray:
        if row not in vectors:
            vectors[row] = index.mean_by_node(layout.cells_of_any_row[row], left)
        return vectors[row]

    for node in np.flatnonzero(strong).tolist():
        mine = np.flatnonzero(active.node == node)
        kept: list[int] = []
        share: dict[int, float] = {}
        for k in mine[np.argsort(-active.score[mine], kind="stable")].tolist():
            signal, row = int(active.signal[k]), int(rows[active.cell[k]])
            if signal not in share:
                alike = (_correlation(row, other, node, by_node) for other in kept)
                share[signal] = 1.0 - max(alike, default=0.0) ** 2
                if row >= 0 and len(kept) < MOST:
                    kept.append(row)
            own[k] = share[signal]
    return active.with_own(own)


def _correlation(
    one: int,
    other: int,
    node: int,
    by_node: Callable[[int], FloatArray],
) -> float:
    if one < 0 or one == other:
        return float(one == other)
    a, b = by_node(one), by_node(other)
    both = np.isfinite(a) & np.isfinite(b)
    both[node] = False
    if both.sum() < MIN_NODES:
        return 0.0
    x, y = _near(a[both]), _near(b[both])
    width = float(np.std(x) * np.std(y))
    return 0.0 if width <= 0 else float(abs(np.mean(x * y) - np.mean(x) * np.mean(y)) / width)


def _near(values: FloatArray) -> FloatArray:
    middle = float(np.median(values))
    mad = float(np.median(np.abs(values - middle)))
    return np.clip(values - middle, -NEAR * mad, NEAR * mad)

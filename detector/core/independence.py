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
"""Nodes whose cells sum to less than this many thresholds are left as they are."""

TINY = 1e-9
"""Signals that vary less than this, in squared MADs of both, say nothing of each other."""

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
        mine = mine[np.argsort(-active.score[mine], kind="stable")]
        _, first, which = np.unique(active.signal[mine], return_index=True, return_inverse=True)
        order = np.argsort(first)  # signals by their strongest cell
        row = rows[active.cell[mine[first[order]]]]
        placed = np.flatnonzero(row >= 0)
        if not len(placed):
            continue
        values = np.stack([by_node(r) for r in row[placed].tolist()])
        values[:, node] = np.nan
        share = np.ones(len(order))
        share[order[placed]] = _own_shares(values, row[placed])
        own[mine] = share[which]
    return active.with_own(own)


def _own_shares(values: FloatArray, row: IntArray) -> FloatArray:
    """Return the share of each signal that none of the stronger ones tells.

    Parameters
    ----------
    values : ndarray of shape (n_signals, n_nodes)
        Strongest signal first, NaN where unknown.
    row : ndarray of shape (n_signals,)
        Group of each; those of one group tell the same.

    Returns
    -------
    ndarray of shape (n_signals,)
    """
    near = _near(values)
    known = np.isfinite(near)
    has, x = known.astype(np.float64), np.where(known, near, 0.0)
    stronger, weight = x[:MOST].T, has[:MOST].T
    n = has @ weight
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, other = (x @ weight) / n, (has @ stronger) / n
        width = ((x * x) @ weight / n - mean**2) * (has @ (stronger * stronger) / n - other**2)
        alike = (x @ stronger / n - mean * other) ** 2 / width
    alike = np.where((n >= MIN_NODES) & (width > TINY) & np.isfinite(alike), np.minimum(alike, 1.0), 0.0)
    alike[row[:, None] == row[None, :MOST]] = 1.0
    k, later = np.arange(len(row)), np.arange(alike.shape[1])
    return np.asarray(1.0 - np.where(later[None, :] < k[:, None], alike, 0.0).max(axis=1, initial=0.0))


def _near(values: FloatArray) -> FloatArray:
    """Return each row less its median and brought near to it, in MADs of the row; NaN stays."""
    ordered = np.sort(values, axis=1)
    middle = _middle(ordered)
    off = values - middle
    mad = _middle(np.sort(np.abs(off), axis=1))
    return np.asarray(np.clip(off / np.where(mad > 0, mad, np.nan), -NEAR, NEAR))


def _middle(ordered: FloatArray) -> FloatArray:
    """Return the median of each sorted row as a column, NaN of a row without numbers."""
    n = np.count_nonzero(np.isfinite(ordered), axis=1)
    low, high = np.maximum((n - 1) // 2, 0), np.minimum(n // 2, ordered.shape[1] - 1)
    k = np.arange(len(ordered))
    return np.asarray((ordered[k, low] + ordered[k, high])[:, None] / 2.0)

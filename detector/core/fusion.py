"""From deviating cells to one score per node: correlated signals count once, no sensor decides by size.

Within a monitored target (GPU, NFS ...) the strongest signal counts, a little more when
others agree; across targets the scores add. A signal's score is capped, so a sensor stuck at
a huge value is worth no more than a clear deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CELL_CAP = 4.0
"""A cell's score is at most this many thresholds."""

TARGET_CAP = 2.0
"""One monitored target is worth at most this; one and a half thresholds of one target alone decide."""

NAMELESS_CAP = 0.5
"""A metric of which nobody has said what it measures is worth at most this: three of them must agree."""

AGREEMENT = 0.3
"""What each further deviating quantity of a target adds, as a share, up to `AGREEMENT_LIMIT` of them."""

AGREEMENT_LIMIT = 4

TARGET_SHARE = 0.7
"""Share of the node threshold that a target at its plain threshold is worth."""


@dataclass(frozen=True, slots=True)
class CellWeights:
    """Constants of each cell for fusion.

    Parameters
    ----------
    weight : ndarray of shape (n_cells,)
        Share of a full vote.
    sign : ndarray of shape (n_cells,), int8
        +1 when only a value above the peers is worse, -1 for below, 0 for both.
    target : ndarray of shape (n_cells,), int64
        Number of the monitored target.
    quantity : ndarray of shape (n_cells,), int64
        Number of what is measured. The mean over a node's parts measures the same as the parts: that both
        deviate is no second opinion.
    n_targets
        Number of targets.
    """

    weight: FloatArray
    sign: NDArray[np.int8]
    target: IntArray
    quantity: IntArray
    n_targets: int


def one_sided(score: FloatArray, sign: NDArray[np.int8]) -> FloatArray:
    """Return scores with deviations to the better side set to 0; NaN stays NaN."""
    better = (sign > 0) & (score < 0) | (sign < 0) & (score > 0)
    return np.where(better, 0.0, score)


def count_nodes(key: IntArray, node: IntArray, size: int) -> IntArray:
    """Count the different nodes under each key.

    Parameters
    ----------
    key, node : ndarray of shape (n,)
        Key (>= 0) and node of each observation.
    size
        Number of keys, at least the highest plus one.

    Returns
    -------
    ndarray of shape (size,)
    """
    if not len(key):
        return np.zeros(size, dtype=np.int64)
    n_nodes = int(node.max()) + 1
    pairs = np.unique(key * n_nodes + node)
    return np.bincount(pairs // n_nodes, minlength=size)


def common_rows(
    active: IntArray,
    rows: IntArray,
    nodes: NDArray[np.integer[Any]],
    row_nodes: IntArray,
    *,
    share: float,
    least: int,
) -> BoolArray:
    """Say in which rows so many nodes deviate together that nobody is to blame.

    Parameters
    ----------
    active : ndarray of shape (n_active,)
        Deviating cells.
    rows, nodes : ndarray of shape (n_cells,)
        Row and node of every cell.
    row_nodes : ndarray of shape (n_rows,)
        Nodes in each row.
    share, least
        Both must be reached.

    Returns
    -------
    ndarray of shape (n_rows,), bool
    """
    common = np.zeros(len(row_nodes), dtype=bool)
    placed = active[rows[active] >= 0]
    if not len(placed):
        return common
    deviating = count_nodes(rows[placed], nodes[placed].astype(np.int64), len(row_nodes))
    return np.asarray((deviating >= least) & (deviating >= share * row_nodes))


def cell_scores(strength: FloatArray, weight: FloatArray, threshold: float | FloatArray) -> FloatArray:
    """Return capped scores of deviating cells on the scale where 1 is the cell threshold.

    Parameters
    ----------
    strength, weight : ndarray of shape (n_active,)
        Smoothed signed deviation and share of a vote.
    threshold
        Score at which a cell deviates; one for all, or of shape (n_active,).
    """
    return np.minimum(np.abs(strength) / threshold, CELL_CAP) * weight


def fuse(
    score: FloatArray,
    own: FloatArray,
    node: IntArray,
    target: IntArray,
    quantity: IntArray,
    *,
    n_nodes: int,
    n_targets: int,
    cap: FloatArray | None = None,
) -> FloatArray:
    """Combine the scores of deviating cells to one score per node.

    Parameters
    ----------
    score, own, node, target, quantity : ndarray of shape (n_active,)
        Score, share that no stronger signal tells already, node, target and quantity of each deviating cell.
    n_nodes, n_targets
        Sizes.
    cap : ndarray of shape (n_targets,)
        The most that each target is worth, None for `TARGET_CAP`.

    Returns
    -------
    ndarray of shape (n_nodes,)
        On the scale where 1 is the node threshold; 0 for nodes without deviating cells.
    """
    if not len(score):
        return np.zeros(n_nodes)
    key = node * n_targets + target
    size = n_nodes * n_targets
    strongest = np.zeros(size)
    np.maximum.at(strongest, key, score * own)
    n_quantities = int(quantity.max()) + 1
    pair, place = np.unique(key * n_quantities + quantity, return_inverse=True)
    tells = np.zeros(len(pair))
    np.maximum.at(tells, place, own)
    agreeing = np.bincount(pair // n_quantities, weights=tells, minlength=size)
    most = np.zeros(size)
    np.maximum.at(most, pair // n_quantities, tells)
    bonus = 1.0 + AGREEMENT * np.clip(agreeing - most, 0, AGREEMENT_LIMIT)
    per_target = np.minimum(
        (strongest * bonus).reshape(n_nodes, n_targets), TARGET_CAP if cap is None else cap
    )
    return np.asarray(TARGET_SHARE * per_target.sum(axis=1))

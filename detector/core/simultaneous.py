"""Machines fail one by one: what begins in several nodes at one moment has a cause outside of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.judge import ActiveCells, Common
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TOGETHER_NODES, TOGETHER_SHARE = 3, 0.02
"""So many nodes of a group, and this share of it, in which one signal leaves the peers to the same side at
once are not to blame: two can fail together, more are a mount, a switch, a rack, or another job."""

TOGETHER_TARGETS = 3
"""Two nodes that leave the peers to the same sides at once in so many monitored targets are a job of their
own: machines that fail together share their cause, and not all that they do."""

TOGETHER_STEPS, TOGETHER_SHIFT_STEPS = 2.0, 16.0
"""Deviations that begin within this many steps begin together; changes of habit, of which a whole window
tells when they began, within the second."""

TOLD_SHARE = 0.5
"""Such deviations are told as a group event once they have lasted for this share of the continuity."""


def one_by_one(
    active: ActiveCells, index: SeriesIndex, layout: Layout, *, at: float, dt: float, full_s: float
) -> tuple[ActiveCells, Common, IntArray]:
    """Leave out what began in several nodes at one moment.

    Parameters
    ----------
    active
        Cells that count against their node.
    index, layout
        Cells and groups.
    at, dt, full_s
        Evaluation time, seconds since the one before, and the continuity.

    Returns
    -------
    active
        What is left.
    common
        What was left out and has lasted.
    together : ndarray of shape (n_left_out,)
        Cells that were left out.
    """
    row = layout.any_row_of_cell[active.cell]
    side = np.sign(active.strength)
    began = row, active.node, side
    shared = began_together(*began, active.since, layout.row_nodes, TOGETHER_STEPS * dt)
    moved = np.where(active.is_shift, active.since, np.nan)
    shared |= began_together(*began, moved, layout.row_nodes, TOGETHER_SHIFT_STEPS * dt)
    told = shared & active.now & (at - active.since >= TOLD_SHARE * full_s)
    paired = in_pairs(*began, active.since, active.target, TOGETHER_STEPS * dt)
    paired |= in_pairs(*began, moved, active.target, TOGETHER_SHIFT_STEPS * dt)
    left = shared | paired
    return active.only(~left), Common.of(active.cell[told], index, layout), active.cell[left]


def in_pairs(
    row: IntArray, node: IntArray, side: FloatArray, since: FloatArray, target: IntArray, within_s: float
) -> BoolArray:
    """Say which deviations began together in the same two nodes in so many targets that they are a job.

    Parameters
    ----------
    row, node, side, since, within_s
        As of `began_together`.
    target : ndarray of shape (n_active,)
        Monitored target of each.

    Returns
    -------
    ndarray of shape (n_active,), bool
    """
    found = np.zeros(len(row), dtype=bool)
    placed = np.flatnonzero((row >= 0) & np.isfinite(since))
    if len(placed) < 2 * TOGETHER_TARGETS:
        return found
    key = 2 * row[placed] + (side[placed] > 0)
    first = _earliest(key, node[placed], since[placed])
    first = first[np.lexsort((since[placed][first], key[first]))]
    k, began, who = key[first], since[placed][first], node[placed][first]
    next_to = (k[1:] == k[:-1]) & (began[1:] - began[:-1] <= within_s)
    size = int(node.max()) + 1
    one, two = np.minimum(who[1:], who[:-1])[next_to], np.maximum(who[1:], who[:-1])[next_to]
    pair, place = one * size + two, k[1:][next_to] * size
    told = np.unique(np.stack([pair, target[placed][first][1:][next_to]]), axis=1)[0]
    pairs, n_targets = np.unique(told, return_counts=True)
    alike = np.isin(pair, pairs[n_targets >= TOGETHER_TARGETS])
    found[placed] = np.isin(key * size + node[placed], np.r_[(place + one)[alike], (place + two)[alike]])
    return found


def began_together(
    row: IntArray, node: IntArray, side: FloatArray, since: FloatArray, row_nodes: IntArray, within_s: float
) -> BoolArray:
    """Say which deviations began in so many nodes of their row at once that nobody is to blame.

    Parameters
    ----------
    row, node : ndarray of shape (n_active,)
        Row (-1 for none) and node of each deviating cell.
    side, since : ndarray of shape (n_active,)
        Sign of the deviation, and when it began; NaN is never together with anything.
    row_nodes : ndarray of shape (n_rows,)
        Nodes in each row.
    within_s
        Seconds.

    Returns
    -------
    ndarray of shape (n_active,), bool
    """
    found = np.zeros(len(row), dtype=bool)
    placed = np.flatnonzero((row >= 0) & np.isfinite(since))
    if len(placed) < TOGETHER_NODES:
        return found
    key = 2 * row[placed] + (side[placed] > 0)
    began = since[placed] - since[placed].min()
    first = _earliest(key, node[placed], began)
    # rows behind each other on one line, too far apart for one to reach into the next
    place = key * (began.max() + 2 * within_s + 1.0) + began
    line = np.sort(place[first])
    near = np.searchsorted(line, place + within_s, "right") - np.searchsorted(line, place - within_s, "left")
    found[placed] = near >= np.maximum(TOGETHER_NODES, TOGETHER_SHARE * row_nodes[row[placed]])
    return found


def _earliest(key: IntArray, node: IntArray, began: FloatArray) -> IntArray:
    """Return the place of the earliest deviation of each node under each key."""
    order = np.lexsort((began, node, key))
    again = (np.diff(key[order]) == 0) & (np.diff(node[order]) == 0)
    return order[np.r_[True, ~again]]

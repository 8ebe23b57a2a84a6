"""Evidence that is measured over a long time already and so decides without further continuity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.fusion import cell_scores
from detector.core.judge import ActiveCells
from detector.core.memory import Memory
from detector.core.own_past import BEGUN, SHIFT_THRESHOLD
from detector.core.peers import RowStats
from detector.core.standing import PLAINLY
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SHOWN_FROM = 0.5
"""Nodes with a lower score get no evidence of this kind."""


def scores_over_time(
    memory: Memory,
    values: FloatArray,
    stats: RowStats,
    layout: Layout,
    floor: FloatArray,
    pool_of: NDArray[np.int32],
    *,
    fresh_nodes: BoolArray,
    suspects: BoolArray,
    min_peers: int,
    at: float,
    dt: float,
) -> tuple[FloatArray, ActiveCells]:
    """Return one score per node: unlike its own past, or unlike its peers since its first sample.

    Parameters
    ----------
    memory
        Its `past` and `standing` move on by one evaluation.
    values : ndarray of shape (n_cells,)
        Newest values, NaN for missing.
    stats, layout
        Medians and scales of the rows, and the rows.
    floor : ndarray of shape (n_rows,)
        Smallest spread, in the metric's unit.
    pool_of : ndarray of shape (n_nodes,)
        Pool of each node.
    fresh_nodes, suspects : ndarray of shape (n_nodes,), bool
        Nodes that are new to their pool, and nodes that no past is learnt from.
    min_peers
        Groups with fewer members that report are not judged.
    at, dt
        Epoch seconds of the evaluation; seconds since the one before.

    Returns
    -------
    score : ndarray of shape (n_nodes,)
        1 is the threshold.
    shown
        The cells behind scores from `SHOWN_FROM` on: evidence, counted in `score` already.
    """
    if not len(stats.median) or not (memory.nameless | memory.of_job).any():
        return np.zeros(len(pool_of)), _shown(
            memory, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), 1.0
        )
    node = memory.index.cell_node.astype(np.int64)
    rows = layout.any_row_of_cell
    heard = ~memory.unheard
    nameless = memory.nameless & heard
    # Who is idle among the busy differs for good in what nodes tell, and not in what jobs tell.
    tells = (nameless | (memory.of_job & heard)) & (rows >= 0) & (memory.weights.weight != 0)
    told = np.flatnonzero(tells)
    row = rows.take(told)
    plain = np.full(len(values), np.nan)
    plain[told] = (values.take(told) - stats.median.take(row)) / stats.plain.take(row)
    memory.standing.step(plain, dt)
    standing = memory.standing.scores(node, pool_of, heard)
    if fresh_nodes.any():
        memory.past.forget(fresh_nodes[node])
    memory.past.step(
        values, nameless, stats, layout, floor, min_peers=min_peers, dt=dt, skip=suspects.take(node)
    )
    shifted = memory.past.scores(nameless, node, memory.weights.target, pool_of)
    always = np.flatnonzero(memory.standing.cells() & np.isfinite(plain))
    always = always[standing[node.take(always)] >= SHOWN_FROM]
    moved = np.flatnonzero(nameless & (np.abs(memory.past.shift) >= BEGUN * SHIFT_THRESHOLD))
    moved = moved[shifted[node.take(moved)] >= SHOWN_FROM]
    shown = _shown(
        memory, always, plain[always], at - memory.standing.seen_s[always], PLAINLY, is_shift=False
    )
    further = _shown(
        memory, moved, memory.past.shift[moved], at - memory.past.lasted_s[moved], SHIFT_THRESHOLD
    )
    return np.maximum(standing, shifted), shown.and_also(further)


def _shown(
    memory: Memory,
    cell: IntArray,
    strength: FloatArray,
    since: FloatArray,
    threshold: float,
    *,
    is_shift: bool = True,
) -> ActiveCells:
    every = np.ones(len(cell), dtype=bool)
    score = cell_scores(strength, memory.weights.weight[cell], threshold)
    return ActiveCells(
        cell=cell,
        node=memory.index.cell_node[cell].astype(np.int64),
        target=memory.weights.target[cell],
        signal=memory.index.cell_signal[cell].astype(np.int64),
        quantity=memory.weights.quantity[cell],
        score=score,
        plain=score,
        ramp=np.ones(len(cell)),
        now=every,
        strength=strength,
        since=since,
        is_shift=every & is_shift,
        own=np.ones(len(cell)),
    )

"""Who is to blame when a whole job waits: the one node of which a GPU reported an error just before.

The code of a program's error names no machine. When all GPUs of the job wait for one another from about that
moment on, nothing else explains it, and no GPU of another node has a code, it does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.direct import CODES, DirectState
from detector.core.figure import first_of
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]

BEFORE_S, AFTER_S = 300.0, 60.0
"""A code from so long before the job began to wait until so long after belongs to it, seconds."""

BLAMED = 1.0
"""What the code is worth then: it names its node."""

SHOWN_CODES = 3
"""Codes named in the sentence of an event at most."""


def blame(
    score: FloatArray,
    state: DirectState,
    index: SeriesIndex,
    pool_of: NDArray[np.int32],
    stalled_since: FloatArray,
) -> FloatArray:
    """Let a code count in full when the whole job has waited since about then and no other node has one.

    Parameters
    ----------
    score : ndarray of shape (n_direct,)
        Scores of the cells of direct signals.
    state
        When their events were.
    index
        Numbering.
    pool_of : ndarray of shape (n_nodes,)
        Pool of each node, -1 for none.
    stalled_since : ndarray of shape (n_pools,)
        Epoch seconds since when each pool's job waits, NaN where none does.

    Returns
    -------
    ndarray of shape (n_direct,)
    """
    if not np.isfinite(stalled_since).any():
        return score
    held = _about(state, index, pool_of, stalled_since)
    held = held[score[held] > 0]
    pool = pool_of[index.cell_node[state.cells[held]]]
    raised = score.copy()
    for number in np.unique(pool).tolist():
        mine = held[pool == number]
        if len(np.unique(index.cell_node[state.cells[mine]])) == 1:
            raised[mine] = np.maximum(raised[mine], BLAMED)
    return raised


def codes_about(
    state: DirectState, index: SeriesIndex, pool_of: NDArray[np.int32], began: FloatArray
) -> dict[int, str]:
    """Name the codes that GPUs reported about when something befell their pool.

    Parameters
    ----------
    state, index, pool_of
        As for `blame`.
    began : ndarray of shape (n_pools,)
        Epoch seconds, NaN for pools that are not asked for.

    Returns
    -------
    dict
        Codes, parts and nodes in words by number of the pool, for pools with any.
    """
    told: dict[int, list[str]] = {}
    for k in _about(state, index, pool_of, began).tolist():
        cell = state.cells[k]
        node, part = int(index.cell_node[cell]), index.parts[index.cell_part[cell]]
        code = f"code {state.event_value[k]:.0f} on {index.nodes[node]} {part}".rstrip()
        told.setdefault(int(pool_of[node]), []).append(code)
    return {pool: first_of(codes, SHOWN_CODES) for pool, codes in told.items()}


def _about(
    state: DirectState, index: SeriesIndex, pool_of: NDArray[np.int32], began: FloatArray
) -> NDArray[np.int64]:
    """Return the places of the codes held that came about when something befell their pool."""
    held: NDArray[np.int64] = np.flatnonzero(np.isfinite(state.event_at) & (state.rule == CODES))
    signals = [index.signals[s] for s in index.cell_signal[state.cells[held]].tolist()]
    held = held[np.array([signal.spec.unit == "gpu" for signal in signals], dtype=bool)]
    then = np.append(began, np.nan)[pool_of[index.cell_node[state.cells[held]]]]  # the last one: of no pool
    about = np.zeros(len(held), dtype=bool)
    for times in (state.since[held], state.event_at[held]):
        about |= (times >= then - BEFORE_S) & (times <= then + AFTER_S)
    return np.asarray(held[about])

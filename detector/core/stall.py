"""Who is to blame when a whole job waits: the one node of which a GPU reported an error just before.

The code of a program's error names no machine. When all GPUs of the job wait for one another from about that
moment on, nothing else explains it, and no GPU of another node has a code, it does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.direct import CODES, DirectState
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]

BEFORE_S, AFTER_S = 300.0, 60.0
"""A code from so long before the job began to wait until so long after belongs to it, seconds."""

BLAMED = 1.0
"""What the code is worth then: it names its node."""


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
    held = np.flatnonzero((score > 0) & np.isfinite(state.event_at) & (state.rule == CODES))
    if not len(held) or not np.isfinite(stalled_since).any():
        return score
    node = index.cell_node[state.cells[held]]
    pool = pool_of[node]
    began = np.append(stalled_since, np.nan)[pool]  # the last one is for nodes of no pool
    about_then = (state.since[held] >= began - BEFORE_S) & (state.since[held] <= began + AFTER_S)
    raised = score.copy()
    for number in np.unique(pool[about_then]).tolist():
        mine = held[about_then & (pool == number)]
        if len(np.unique(index.cell_node[state.cells[mine]])) == 1:
            raised[mine] = np.maximum(raised[mine], BLAMED)
    return raised

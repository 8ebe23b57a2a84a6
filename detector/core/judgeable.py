"""Which nodes can be judged at an evaluation, and why others can not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.conclusion import FORGET_S
from detector.core.habit import WARM_UP_SAMPLES
from detector.core.memory import Memory
from detector.core.teller import Evaluation
from grouping.index import SeriesIndex

BoolArray = NDArray[np.bool_]

KNOWN_SHARE = 0.3
"""Share of its expected cells that must be fresh for a node to be judged."""


def judgeable(
    ev: Evaluation, index: SeriesIndex, memory: Memory, min_peers: int
) -> tuple[BoolArray, dict[int, str], BoolArray]:
    """Tell which nodes have data, why others are undetermined, and of which nothing is expected.

    Parameters
    ----------
    ev, index, memory
        The evaluation, and what is known of cells.
    min_peers
        Nodes of smaller pools are undetermined.

    Returns
    -------
    known : ndarray of shape (n_nodes,), bool
        Nodes with data.
    reasons
        Why a node is undetermined, by number.
    forgotten : ndarray of shape (n_nodes,), bool
        Nodes of which nothing is expected any more.
    """
    expected, fresh = memory.presence.expected(ev.at, FORGET_S), ev.cells.fresh
    warm = (memory.habit.n_seen >= WARM_UP_SAMPLES) & (memory.weights.weight > 0)
    had, here, reporting, learnt = index.count_by_node(expected, expected & fresh, fresh, warm)
    known = np.asarray((here >= KNOWN_SHARE * had) & (reporting > 0))
    for item in ev.absence.absent:
        known[item.node] = True
    sizes = np.bincount(ev.pools.pool_of[ev.pools.pool_of >= 0], minlength=len(ev.pools.names))
    reasons: dict[int, str] = {}
    for node in np.flatnonzero(index.inhabited).tolist():
        pool = int(ev.pools.pool_of[node])
        if not known[node]:
            reasons[node] = "no data"
        elif pool < 0:
            reasons[node] = "in no pool"
        elif sizes[pool] < min_peers:
            reasons[node] = f"fewer than {min_peers} peers"
        elif ev.pools.in_grace[node]:
            reasons[node] = "joined its pool a moment ago"
        elif not learnt[node]:
            reasons[node] = "too few samples"
    return known, reasons, np.asarray(had == 0)

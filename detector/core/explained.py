"""What deviates for an everyday reason: more work, rest, use of an idle node, a way back to the peers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detector.core.judge import ActiveCells
from detector.core.resting import explained_by_rest, follows_activity
from detector.core.window import Frame
from detector.core.workload import explained_by_work
from grouping.index import SeriesIndex
from grouping.model import MetricSpec
from grouping.pools import IDLE, SPARES, Pools

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

OF_USE = ("celsius",)
"""What one-sided metrics measure that rise when an idle node is used."""


def explained(
    active: ActiveCells,
    index: SeriesIndex,
    activity: IntArray,
    frames: Sequence[Frame],
    pools: Pools,
    sign: NDArray[np.int8],
    z: FloatArray,
) -> ActiveCells:
    """Hold back what has an everyday reason.

    Parameters
    ----------
    active
        Cells that count against their node.
    index
        Cells and their metrics.
    activity, frames
        As of `explained_by_rest`.
    pools
        Pools now.
    sign : ndarray of shape (n_cells,), int8
        Which side is for the worse, see `CellWeights`.
    z : ndarray of shape (n_cells,)
        Robust z-scores of this evaluation, NaN where unknown.

    Returns
    -------
    ActiveCells
        With less worth, or none, for what is held back.
    """
    active = explained_by_work(active, index)
    active = explained_by_rest(active, index, activity, frames)
    return active.without_worth(of_use(active, index, pools, sign) | on_the_way_back(active, sign, z))


def of_use(active: ActiveCells, index: SeriesIndex, pools: Pools, sign: NDArray[np.int8]) -> BoolArray:
    """Say which deviations tell only that somebody uses a node among idle ones; shape (n_active,).

    Of signals that are worse on one side only the temperatures are among them.
    """
    idle = idle_nodes(pools)[active.node]
    if not idle.any():
        return idle
    warm = np.array([warms(index.signals[s].spec) for s in active.signal.tolist()], dtype=bool)
    return np.asarray(idle & ((sign[active.cell] == 0) | warm))


def on_the_way_back(active: ActiveCells, sign: NDArray[np.int8], z: FloatArray) -> BoolArray:
    """Say which changes of habit end on the better side of the peers' median; shape (n_active,).

    A node that was cooler than all others and no longer is has begun to work.
    """
    return np.asarray(active.is_shift & (sign[active.cell] * z[active.cell] < 0))


def idle_nodes(pools: Pools) -> BoolArray:
    """Say which nodes are in a pool of nodes without work; shape (n_nodes,)."""
    idle = np.array([name in (IDLE, SPARES) for name in pools.names] + [False], dtype=bool)
    return idle[pools.pool_of]  # -1, no pool, is the last


def warms(spec: MetricSpec) -> bool:
    """Say whether a metric that is worse on one side rises when an idle node is used."""
    return spec.measure in OF_USE


def everyday_reason(spec: MetricSpec, sign: int, *, is_idle: bool) -> str:
    """Return in words why a deviation is worth nothing.

    Parameters
    ----------
    spec, sign
        Its metric, and which side of it is for the worse.
    is_idle
        Whether its node is in a pool of nodes without work.
    """
    if is_idle and (sign == 0 or warms(spec)):
        return "its node is among idle ones, where use is no symptom"
    if follows_activity(spec) and sign < 0:
        return "its part has little to do"
    return "it has come nearer to its peers"

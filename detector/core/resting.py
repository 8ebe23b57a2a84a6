"""A part that has nothing to do runs at a low clock and draws little power: its activity tells it already.

An inference GPU without requests, or one of a job that uses half of a node, is below its peers in what its
activity leads to. Only the activity itself counts then: a part that is throttled is slow while it works.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detector.core.judge import ActiveCells
from detector.core.window import Frame
from grouping.index import SeriesIndex
from grouping.model import Kind, MetricSpec

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

RESTS_BELOW = 50.0
"""A part that is less active than this, in percent, rests."""

RESTED_SHARE = 0.5
"""What is measured over the window is no symptom when the part has rested for this share of it."""

FOLLOWING = ("megahertz", "watts")
"""What metrics measure that fall when their part rests."""


def explained_by_rest(
    active: ActiveCells, index: SeriesIndex, activity: IntArray, frames: Sequence[Frame]
) -> ActiveCells:
    """Hold back low clocks and low power of parts that rest.

    Parameters
    ----------
    active
        Cells that count against their node.
    index
        Cells and their metrics.
    activity : ndarray of shape (n_activity,)
        Cells that tell how active a part is, percent.
    frames
        Newest evaluations, oldest first.

    Returns
    -------
    ActiveCells
        Clocks and power below the peers are worth nothing while their part rests, and no more so the mean
        over a node one of whose parts does; all else is as it was. Where nothing tells how active a part is,
        nothing is held back.
    """
    follows = np.array([follows_activity(index.signals[s].spec) for s in active.signal.tolist()], dtype=bool)
    follows &= active.strength < 0
    if not follows.any() or not frames:
        return active
    nodes = np.zeros(len(index.nodes), dtype=bool)
    nodes[active.node[follows]] = True
    asked = activity[nodes[index.cell_node[activity]]]
    resting = asked[_rest(asked, frames)]
    n_parts = len(index.parts)
    node, part = index.cell_node[resting].astype(np.int64), index.cell_part[resting]
    place = active.node * n_parts + index.cell_part[active.cell]
    held = follows & np.isin(place, np.concatenate([node * n_parts + part, node * n_parts]))
    return active.without_worth(held)


def follows_activity(spec: MetricSpec) -> bool:
    """Say whether a metric falls when its part rests."""
    return spec.kind is Kind.GAUGE and spec.measure in FOLLOWING


def _rest(cells: IntArray, frames: Sequence[Frame]) -> BoolArray:
    """Say which parts rest now or did for much of the time; shape (n_cells,)."""
    if not len(cells):
        return np.zeros(0, dtype=bool)
    known = [frame.values[cells] for frame in frames if len(frame.values) > cells.max()]
    rested = np.array(known, dtype=np.float64) < RESTS_BELOW  # NaN is never below
    return np.asarray(rested[-1] | (rested.mean(axis=0) >= RESTED_SHARE))

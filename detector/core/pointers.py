"""Which part a node-wide deviation points to, when no part deviates enough to be evidence by itself.

A slow disk makes the whole machine wait: the pressure of the node is plain while the disk's own busy time
has only begun to differ. Among the parts that could be the cause the one that has moved is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from detector.outcome import Evidence
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

POINTS_TO = {"node_pressure_io_*": "disk"}
"""Comparison unit whose parts can be the cause, by glob of the node-wide metric."""

POINTS_FROM = 0.3
"""Robust deviations above its habit from which a part is told."""

STANDS_OUT = 3.0
"""... and it must have moved this many times as far as any other part of the unit."""

POINTED_SCORE = 0.1
"""What such evidence is shown with: it names the part, and adds nothing to the score of the node."""


def units_pointed_to(evidence: Iterable[Evidence]) -> dict[str, float]:
    """Return the comparison units that node-wide evidence points to, and since when, epoch seconds."""
    found: dict[str, float] = {}
    for item in evidence:
        for glob, unit in POINTS_TO.items():
            if item.layer.is_soft and fnmatchcase(item.metric, glob):
                found[unit] = min(found.get(unit, item.since), item.since)
    return found


def part_that_stands_out(index: SeriesIndex, unit: str, cells: IntArray, moved: FloatArray) -> int | None:
    """Find the one part of a unit that has moved from its habit while the others have not.

    Parameters
    ----------
    index
        Numbering.
    unit
        Comparison unit.
    cells : ndarray of shape (n,)
        Cells of one node.
    moved : ndarray of shape (n_cells,)
        Signed distance of every cell from its habit, robust deviations; NaN for unknown, and for metrics of
        which more is not worse.

    Returns
    -------
    int or None
        The part's cell that has moved farthest.
    """
    farthest: dict[int, tuple[float, int]] = {}
    for cell in cells[np.isfinite(moved[cells])].tolist():
        signal = index.signals[index.cell_signal[cell]]
        if signal.per_node or signal.spec.unit != unit:
            continue
        part, found = int(index.cell_part[cell]), (float(moved[cell]), cell)
        farthest[part] = max(farthest.get(part, found), found)
    if len(farthest) < 2:
        return None
    second, first = sorted(farthest.values())[-2:]
    return first[1] if first[0] >= max(POINTS_FROM, STANDS_OUT * second[0]) else None

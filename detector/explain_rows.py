"""What explanations of signals share: thresholds, rows, and how many nodes are off in one at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.conclusion import Concluded
from detector.core.fusion import count_nodes
from detector.core.thresholds import of_chosen
from detector.pipeline import Pipeline

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DIGITS = 4
"""Behind the point, in scores and in robust deviations."""


def finite(value: float, digits: int | None = None) -> float | None:
    """Return the number, None when it is none; rounded to some digits behind the point when asked for."""
    if not math.isfinite(value):
        return None
    return float(value) if digits is None else round(float(value), digits)


@dataclass(frozen=True, slots=True)
class Rows:
    """The row of every cell, how many nodes of each row are off now, and whether those are too many."""

    of_cell: IntArray
    n_shared: IntArray
    is_common: BoolArray

    def shared_by(self, cell: int) -> int:
        """Return how many nodes of a cell's row are off, 0 without a row."""
        row = int(self.of_cell[cell])
        return int(self.n_shared[row]) if row >= 0 else 0

    def common_to(self, cell: int) -> bool:
        """Tell whether so many are that nobody is blamed."""
        row = int(self.of_cell[cell])
        return row >= 0 and bool(self.is_common[row])


def threshold_of(pipeline: Pipeline, cell: IntArray) -> FloatArray:
    """Return the threshold of each of some cells."""
    index = pipeline.interner
    found = of_chosen(pipeline.cell_thresholds.of_cells(index.signals, index.cell_signal), cell)
    return np.broadcast_to(np.asarray(found, dtype=np.float64), cell.shape)


def rows_of(pipeline: Pipeline, told: Concluded, far: BoolArray) -> Rows:
    """Count in each row the nodes that are off.

    Parameters
    ----------
    pipeline, told
        State right after the evaluation.
    far : ndarray of shape (n_cells,), bool
        Cells that are off.
    """
    p, layout = pipeline.parameters, told.evaluation.layout
    of_cell = layout.any_row_of_cell
    cell = np.flatnonzero(far & (pipeline.memory.weights.weight[: len(far)] > 0) & (of_cell[: len(far)] >= 0))
    nodes = pipeline.interner.cell_node[cell].astype(np.int64)
    n_shared = count_nodes(of_cell[cell], nodes, len(layout.row_nodes))
    is_common = (n_shared >= p.group_event_min_nodes) & (n_shared >= p.group_event_share * layout.row_nodes)
    return Rows(of_cell, n_shared, is_common)

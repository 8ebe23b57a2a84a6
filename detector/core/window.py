"""The last few evaluations, kept for similarity and for plots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.peers import RowStats
from detector.core.similarity import distance_ratio, mean_distances
from grouping.layout import Layout

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frame:
    """One evaluation: values of all cells, and medians and scales of all rows."""

    at: float
    values: NDArray[np.float32]
    median: FloatArray
    scale: FloatArray
    layout: Layout


REACH = 30.0
"""Values are brought this close to the median (in scales) before distances are taken: one sensor
stuck at a huge value is far from everybody and would make every distance look usual."""


class Window:
    """The newest frames, oldest first.

    Parameters
    ----------
    n_kept
        How many are kept.
    """

    def __init__(self, n_kept: int) -> None:
        self._frames: deque[Frame] = deque(maxlen=n_kept)
        self._order: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._sorted_rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._ordered_layout: Layout | None = None
        self._ratios: dict[tuple[int, int], FloatArray] = {}

    def add(self, at: float, values: FloatArray, stats: RowStats, layout: Layout) -> None:
        """Keep one evaluation."""
        with np.errstate(over="ignore"):
            small = values.astype(np.float32)
        self._frames.append(Frame(at, small, stats.median, stats.scale, layout))
        self._ratios.clear()

    def frames(self) -> list[Frame]:
        """Kept frames, oldest first."""
        return list(self._frames)

    def members(self, layout: Layout, row: int) -> NDArray[np.int64]:
        """Cells of one row."""
        if self._ordered_layout is not layout:
            self._order = np.argsort(layout.row_of_cell, kind="stable")
            self._sorted_rows = layout.row_of_cell[self._order]
            self._ordered_layout = layout
        low, high = np.searchsorted(self._sorted_rows, [row, row + 1])
        return self._order[low:high]

    def similarity(self, layout: Layout, row: int, cell: int, n_frames: int) -> float:
        """Return a member's mean distance to its peers over the window, relative to what is usual.

        Parameters
        ----------
        layout, row, cell
            Group and member.
        n_frames
            How many of the newest frames count.

        Returns
        -------
        float
            1 is usual; NaN when the member or the group has no values.

        Notes
        -----
        All members of a row are measured at once and kept until the next evaluation.
        """
        members = self.members(layout, row)
        key = (row, n_frames)
        if key not in self._ratios:
            self._ratios[key] = self._row_ratios(members, row, n_frames)
        return float(self._ratios[key][np.searchsorted(members, cell)])

    def _row_ratios(self, members: NDArray[np.int64], row: int, n_frames: int) -> FloatArray:
        recent = list(self._frames)[-n_frames:]
        unknown = np.full(len(members), np.nan)
        size = int(members.max()) + 1 if len(members) else 0
        rows = [frame.values[members].astype(np.float64) for frame in recent if len(frame.values) >= size]
        if not rows or len(members) < 3:
            return unknown
        median, scale = float(recent[-1].median[row]), float(recent[-1].scale[row])
        if not (np.isfinite(median) and scale > 0):
            return unknown
        near = np.clip(np.array(rows), median - REACH * scale, median + REACH * scale)
        return distance_ratio(mean_distances(near), scale)

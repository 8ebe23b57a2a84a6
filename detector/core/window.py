"""The last few evaluations, kept for similarity and for plots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.peers import RowStats
from detector.core.similarity import BoolArray, distance_ratio, distances_to_all, mean_over_time
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


@dataclass(frozen=True, slots=True)
class Measured:
    """Distances of the members of one row to each other at one evaluation, and between what values they lie.

    Parameters
    ----------
    least, most
        Smallest and largest value.
    distances, met : ndarray of shape (n_members,)
        From `distances_to_all`.
    """

    least: float
    most: float
    distances: FloatArray
    met: BoolArray


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
        self._measured: dict[int, dict[float, Measured]] = {}

    def add(self, at: float, values: FloatArray, stats: RowStats, layout: Layout) -> None:
        """Keep one evaluation."""
        with np.errstate(over="ignore"):
            small = values.astype(np.float32)
        self._frames.append(Frame(at, small, stats.median, stats.scale, layout))
        asked = {row for row, _ in self._ratios}
        self._measured = {row: times for row, times in self._measured.items() if row in asked}
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
            self._measured.clear()
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
        All members of a row are measured at once and kept until the next evaluation, distances within one
        evaluation for longer: those of values that are all within `REACH` hang on nothing else.
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
        frames = [frame for frame in recent if len(frame.values) >= size]
        if not frames or len(members) < 3:
            return unknown
        median, scale = float(recent[-1].median[row]), float(recent[-1].scale[row])
        if not (np.isfinite(median) and scale > 0):
            return unknown
        low, high = median - REACH * scale, median + REACH * scale
        found = {at: m for at, m in self._measured.get(row, {}).items() if low <= m.least and m.most <= high}
        new = [frame for frame in frames if frame.at not in found]
        if new:
            values = np.array([frame.values[members] for frame in new], dtype=np.float64)
            least, most = np.fmin.reduce(values, axis=1).tolist(), np.fmax.reduce(values, axis=1).tolist()
            measured = map(Measured, least, most, *distances_to_all(np.clip(values, low, high)))
            found.update(zip((frame.at for frame in new), measured, strict=True))
        wanted = [found[frame.at] for frame in frames]
        self._measured[row] = {
            frame.at: m for frame, m in zip(frames, wanted, strict=True) if low <= m.least and m.most <= high
        }
        distances = mean_over_time(np.array([m.distances for m in wanted]), np.array([m.met for m in wanted]))
        return distance_ratio(distances, scale)

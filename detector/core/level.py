"""Windows of one length: what enough of a member's newest differences exceed, and what is usual for it.

A shift is what enough samples of a window exceed: a burst shorter than that gives nothing. It is measured in
what such windows of the peers, and the member's own, usually do: noise that averages out makes small
shifts visible, noise that does not, does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.core.habit import ABS_TO_SIGMA, add_where, learning_rate
from detector.core.ingest import grow
from detector.core.peers import Floors, RowState, by_row, row_stats
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
FloatArray32 = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

HABIT_SAMPLES = 240
"""Later the habitual difference is the mean of at least about this many samples, however far apart."""

CLIP = 4.0
"""Residuals are clipped to this many scales before they are learnt."""

OVER_SHARE, SECOND, PLAIN = 0.5, 1.25, 5.0
"""A burst of which less than this share is left is over; the second farthest of ten values of plain noise is
this many standard deviations off; that is at most so many scales of windows, and farther off are bursts."""


@cache
def network(size: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs to compare and swap, in order, that sort `size` values (odd-even merge sort)."""
    pairs = []
    step = 1
    while step < size:
        stride = step
        while stride >= 1:
            for start in range(stride % step, size - stride, 2 * stride):
                for i in range(min(stride, size - start - stride)):
                    if (i + start) // (2 * step) == (i + start + stride) // (2 * step):
                        pairs.append((i + start, i + start + stride))
            stride //= 2
        step *= 2
    return tuple(pairs)


@dataclass(slots=True)
class Level:
    """Windows of one length of all members, and what such windows usually do.

    Parameters
    ----------
    size
        Values in a window.
    needed
        How many of them must exceed a shift.
    """

    size: int
    needed: int
    rows: RowState = field(default_factory=RowState)
    spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    middle: FloatArray = field(default_factory=lambda: np.zeros(0))
    shift: FloatArray = field(default_factory=lambda: np.zeros(0))
    second_above: FloatArray = field(default_factory=lambda: np.zeros(0))
    second_below: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))
    _values: FloatArray32 = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    _count: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    _at: int = 0

    def __post_init__(self) -> None:
        self._values = np.zeros((self.size, 0), dtype=np.float32)

    def grow_to(self, n_cells: int) -> None:
        """Make room for new cells, which have no values yet."""
        larger = np.full((self.size, n_cells), np.inf, dtype=np.float32)
        larger[:, : self._values.shape[1]] = self._values
        self._values = larger
        self._count = grow(self._count, n_cells, 0)  # type: ignore[assignment]
        for name, empty in (("spread", 0.0), ("n_spread", 0.0), ("middle", np.nan), ("scale", np.nan)):
            setattr(self, name, grow(getattr(self, name), n_cells, empty))

    def push(self, newest: FloatArray) -> None:
        """Let the newest value of each cell take the oldest one's place."""
        place = self._values[self._at]
        self._count -= np.isfinite(place)
        # what is missing comes last when sorted
        place[:] = np.where(np.isfinite(newest), newest, np.inf)
        self._count += np.isfinite(place)
        self._at = (self._at + 1) % self.size

    def forget(self, cells: BoolArray) -> None:
        """Empty the windows of some cells."""
        self._values[:, cells] = np.inf
        self._count[cells] = 0

    def score(
        self,
        layout: Layout,
        row_of: IntArray,
        floors: Floors,
        bursts: FloatArray,
        *,
        min_peers: int,
        dt: float,
    ) -> FloatArray:
        """Return the shift of each cell, in scales.

        Parameters
        ----------
        layout, row_of, floors
            Groups, the group of each cell (-1 for none) and the smallest scale of each group.
        bursts : ndarray of shape (n_cells,)
            How far the member's bursts usually go, a smallest scale of each cell.
        min_peers
            Smaller groups are not judged.
        dt
            Seconds since the call before.

        Returns
        -------
        ndarray of shape (n_cells,)
            Signed; 0 where too few samples agree, NaN where unknown.
        """
        rows, needed = self._ordered(), self.needed
        partial = np.flatnonzero(self._count < self.size)
        some, n = np.array([row.take(partial) for row in rows]), self._count.take(partial).astype(np.int64)
        columns = np.arange(len(partial))

        def ranked(rank: Callable[[Any], Any]) -> FloatArray32:
            """Return the value of one rank in each window; `rank` tells it by the number of values."""
            chosen: FloatArray32 = rows[rank(self.size)].copy()
            chosen[partial] = some[np.maximum(rank(n), 0), columns]
            return chosen

        middle = ranked(lambda count: (count - 1) // 2).astype(np.float64)
        middle[partial[n < needed]] = np.nan
        found = row_stats(middle, layout, floors, self.rows, min_peers=min_peers, dt=dt)
        centre, scale = by_row(found.median, row_of), by_row(found.scale, row_of)
        self.middle = middle - centre
        usual = np.fmax(scale, ABS_TO_SIGMA * self.spread)
        self.scale = np.where(bursts > SECOND * PLAIN * usual, bursts / SECOND, usual)
        with np.errstate(invalid="ignore"):
            up, down = ranked(lambda count: count - needed) - centre, rows[needed - 1] - centre
            self.shift = np.fmax(up, 0.0) + np.fmin(down, 0.0)  # one of them is 0: up is never above down
            self.second_above = ranked(lambda count: count - 2) - centre
            self.second_below = rows[1] - centre
            return np.asarray(np.where(np.isfinite(self.middle), self.shift / self.scale, np.nan))

    def _ordered(self) -> list[FloatArray32]:
        """Return the windows with each cell's values in ascending order, missing ones last.

        A sorting network over whole rows: every cell is sorted at once (Batcher 1968).
        """
        rows = list(self._values)
        for i, j in network(self.size):
            rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
        return rows

    def learn(self, skip: BoolArray, *, dt: float, habit_s: float, bursts: FloatArray | None = None) -> None:
        """Learn how far the member's own windows usually lie from its habit, and its bursts go.

        Parameters
        ----------
        skip : ndarray of shape (n_cells,), bool
            Cells of which nothing is learnt now.
        dt, habit_s
            Seconds since the call before, and time constant.
        bursts : ndarray of shape (n_cells,)
            How far bursts of each member go that are over, changed in place; what goes on is not learnt.
        """
        rate = learning_rate(self.n_spread + self.size, HABIT_SAMPLES, dt=dt, habit_s=habit_s)
        if bursts is not None:
            self._learn_bursts(bursts, rate, skip)
        chosen = np.isfinite(self.middle) & np.isfinite(self.scale) & ~skip
        size = np.minimum(np.abs(self.middle), CLIP * self.scale)
        add_where(self.spread, rate * (size - self.spread), chosen)
        self.n_spread += chosen

    def _learn_bursts(self, bursts: FloatArray, rate: FloatArray, skip: BoolArray) -> None:
        farthest = np.fmax(self.second_above, -self.second_below)
        with np.errstate(invalid="ignore"):
            over = np.abs(self._values[self._at - 1]) <= OVER_SHARE * farthest
            over &= np.isfinite(farthest) & ~skip
            add_where(bursts, rate * (farthest - bursts), over)

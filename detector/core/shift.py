"""Lasting changes of a member's habitual difference from its peers, seen in windows.

What a member differs from its peers' median now is compared with what it usually differs, so that
neither persistent differences between members nor a move that all make together count. A shift is
what enough samples of a window exceed: a burst shorter than that gives nothing. It is measured in
what such windows of the peers, and the member's own, usually do: noise that averages out makes small
shifts visible, noise that does not, does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from detector.core.habit import ABS_TO_SIGMA
from detector.core.ingest import grow
from detector.core.peers import PHASE_SHARE, Floors, RowState, RowStats, row_stats
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
FloatArray32 = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

WARM_UP_SAMPLES = 20
"""Samples of which the median is a member's first habitual difference."""

HABIT_SAMPLES = 240
"""Later the habitual difference is the mean of at least about this many samples, however far apart."""

CLIP = 4.0
"""Residuals are clipped to this many scales before they are learnt."""

FLOOR_SHARE = 0.3
"""Share of the catalog's floors that holds for windows: what lasts matters from a smaller size on."""

YOUNG_SAMPLES = 10
"""A habit of n samples is known by ``sqrt(1 + this / n)`` times the scale."""

MOVED_SCALES, UNREST_SHARE = 2.0, 0.2
"""A group whose median is this many scales from its habit has moved; with this share of its pool's groups
moved, members' habits count half."""

FARTHEST = 1e30
"""No difference is taken for more than this, so that a sensor stuck at a huge value stays a number."""

SPARE_SAMPLES = 2
"""Samples of the short window that may be missing or ordinary."""

LONG_BLOCKS, LONG_NEEDED = 10, 6
"""Blocks of the long window, each half as long as the short one must last, and how many must exceed."""

SEEN_SHARE = 0.7
"""Share of the threshold from which a shift adds to the evidence: several weak ones can decide."""

STILL_SHARE = 0.5
"""Two samples of the short window must be this share of a long shift off, or it is over."""

HELD_SHARE = 0.6
"""Share of that down to which a shift is the same one as before."""


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


def _unrest(moved: FloatArray, scale: FloatArray, layout: Layout) -> FloatArray:
    """Say of each group how far its pool is from what is usual, 0 to 1; shape (n_rows,)."""
    judged = np.isfinite(scale) & (layout.row_pool >= 0)
    with np.errstate(invalid="ignore"):
        away = judged & (moved > MOVED_SCALES * scale)
    pool = np.maximum(layout.row_pool, 0).astype(np.int64)
    n_pools = int(pool.max(initial=0)) + 1
    count = np.bincount(pool[judged], minlength=n_pools)
    share = np.bincount(pool[away], minlength=n_pools) / np.maximum(count, 1)
    return np.asarray(np.minimum(share / UNREST_SHARE, 1.0)[pool])


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
    _at: int = 0

    def __post_init__(self) -> None:
        self._values = np.zeros((self.size, 0), dtype=np.float32)

    def grow_to(self, n_cells: int) -> None:
        """Make room for new cells, which have no values yet."""
        larger = np.full((self.size, n_cells), np.nan, dtype=np.float32)
        larger[:, : self._values.shape[1]] = self._values
        self._values = larger
        for name, empty in (("spread", 0.0), ("n_spread", 0.0), ("middle", np.nan), ("scale", np.nan)):
            setattr(self, name, grow(getattr(self, name), n_cells, empty))

    def push(self, newest: FloatArray) -> None:
        """Let the newest value of each cell take the oldest one's place."""
        self._values[self._at] = newest
        self._at = (self._at + 1) % self.size

    def forget(self, cells: BoolArray) -> None:
        """Empty the windows of some cells."""
        self._values[:, cells] = np.nan

    def score(
        self, layout: Layout, row_of: IntArray, floors: Floors, *, min_peers: int, dt: float
    ) -> FloatArray:
        """Return the shift of each cell, in scales.

        Parameters
        ----------
        layout, row_of, floors
            Groups, the group of each cell (-1 for none) and the smallest scale of each group.
        min_peers
            Smaller groups are not judged.
        dt
            Seconds since the call before.

        Returns
        -------
        ndarray of shape (n_cells,)
            Signed; 0 where too few samples agree, NaN where unknown.
        """
        ordered, count = self._ordered()
        columns = np.arange(ordered.shape[1])
        middle = ordered[np.clip((count - 1) // 2, 0, None), columns].astype(np.float64)
        middle[count < self.needed] = np.nan
        above = ordered[np.clip(count - self.needed, 0, None), columns]
        below = ordered[self.needed - 1]
        found = row_stats(middle, layout, floors, self.rows, min_peers=min_peers, dt=dt)
        row = np.maximum(row_of, 0)
        centre = np.where(row_of >= 0, found.median[row], np.nan) if len(found.median) else np.nan * middle
        scale = found.scale[row] if len(found.scale) else np.nan * middle
        self.middle = middle - centre
        self.scale = np.fmax(scale, ABS_TO_SIGMA * self.spread)
        with np.errstate(invalid="ignore"):
            up, down = above - centre, below - centre
            self.shift = np.where(up > 0, up, np.where(down < 0, down, 0.0))
            self.second_above = ordered[np.clip(count - 2, 0, None), columns] - centre
            self.second_below = ordered[1] - centre
            return np.asarray(np.where(np.isfinite(self.middle), self.shift / self.scale, np.nan))

    def _ordered(self) -> tuple[FloatArray32, IntArray]:
        """Return the windows with each cell's values in ascending order, missing ones last, and their number.

        A sorting network over whole rows: every cell is sorted at once (Batcher 1968).
        """
        missing = np.isnan(self._values)
        rows = list(np.where(missing, np.float32(np.inf), self._values))
        for i, j in network(self.size):
            rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
        return np.array(rows), self.size - missing.sum(axis=0)

    def learn(self, skip: BoolArray, *, dt: float, habit_s: float) -> None:
        """Learn how far the member's own windows usually lie from its habit."""
        chosen = np.flatnonzero(np.isfinite(self.middle) & np.isfinite(self.scale) & ~skip)
        n = self.n_spread[chosen]
        rate = np.maximum(1.0 / (n + self.size), min(1.0 / HABIT_SAMPLES, dt / habit_s))
        size = np.minimum(np.abs(self.middle[chosen]), CLIP * self.scale[chosen])
        self.spread[chosen] += rate * (size - self.spread[chosen])
        self.n_spread[chosen] = n + 1.0


class Shift:
    """Habitual differences of all cells, and how far each has moved from its own.

    Parameters
    ----------
    n_window
        Samples that a shift must last for.

    Attributes
    ----------
    offset : ndarray of shape (n_cells,)
        Habitual difference from the peers' median, in the metric's unit.
    n_seen : ndarray of shape (n_cells,)
        Samples learnt from.
    score : ndarray of shape (n_cells,)
        Newest shift in scales, NaN where unknown.
    since : ndarray of shape (n_cells,)
        Epoch seconds at which the present shift began, NaN for none.
    """

    def __init__(self, n_window: int) -> None:
        self.offset, self.n_seen = np.zeros(0), np.zeros(0)
        self.score, self.since = np.zeros(0), np.zeros(0)
        self.short = Level(n_window + SPARE_SAMPLES, n_window)
        self.long = Level(LONG_BLOCKS, LONG_NEEDED)
        self._block = max(1, n_window // 2)
        self._in_block = 0
        self._sum, self._count = np.zeros(0), np.zeros(0)
        self._long_score, self._long_shift = np.zeros(0), np.zeros(0)
        self._first: FloatArray32 = np.zeros((WARM_UP_SAMPLES, 0), dtype=np.float32)
        self._difference = np.zeros(0)
        self._usual = RowState()

    def grow_to(self, n_cells: int) -> None:
        """Make room for new cells."""
        if n_cells == len(self.n_seen):
            return
        for name in ("offset", "n_seen", "_sum", "_count"):
            setattr(self, name, grow(getattr(self, name), n_cells, 0.0))
        for name in ("score", "since", "_long_score", "_long_shift"):
            setattr(self, name, grow(getattr(self, name), n_cells, np.nan))
        first = np.full((WARM_UP_SAMPLES, n_cells), np.nan, dtype=np.float32)
        first[:, : self._first.shape[1]] = self._first
        self._first = first
        self.short.grow_to(n_cells)
        self.long.grow_to(n_cells)

    def row_states(self) -> dict[str, RowState]:
        """Return what is known of groups, by name."""
        return {"short": self.short.rows, "long": self.long.rows, "usual": self._usual}

    def take_rows(self, name: str, rows: RowState) -> None:
        """Replace what is known of groups."""
        if name == "usual":
            self._usual = rows
        else:
            (self.short if name == "short" else self.long).rows = rows

    def carry_to(self, keys: tuple[str, ...]) -> None:
        """Arrange what is known of groups for another layout."""
        for name, rows in self.row_states().items():
            self.take_rows(name, rows.carry_to(keys))

    def remembered(self) -> dict[str, FloatArray]:
        """Return the arrays of shape (n_cells,) that a restart must not lose, by name."""
        return {
            "offset": self.offset,
            "n_seen": self.n_seen,
            "short_spread": self.short.spread,
            "short_n": self.short.n_spread,
            "long_spread": self.long.spread,
            "long_n": self.long.n_spread,
        }

    def step(
        self,
        values: FloatArray,
        stats: RowStats,
        layout: Layout,
        floors: Floors,
        fresh_start: BoolArray,
        *,
        min_peers: int,
        dt: float,
        habit_s: float,
    ) -> FloatArray:
        """Take in the newest values and return how far each cell has moved.

        Parameters
        ----------
        values : ndarray of shape (n_cells,)
            Newest value per cell, NaN for missing.
        stats, layout, floors
            Peers of this evaluation, and the catalog's floors of each group.
        fresh_start : ndarray of shape (n_cells,), bool
            Cells whose peers are new to them: what they used to differ is void.
        min_peers, dt, habit_s
            Smallest group that is judged; seconds since the evaluation before; time constant of a habit.

        Returns
        -------
        ndarray of shape (n_cells,)
            Signed, in scales; NaN where unknown.
        """
        row_of = layout.any_row_of_cell
        if fresh_start.any():
            self.start_anew(fresh_start)
        if len(stats.median):
            against = stats.median[np.maximum(row_of, 0)]
            near = np.clip(values - against, -FARTHEST, FARTHEST)
            self._difference = np.where((row_of >= 0) & ~fresh_start, near, np.nan)
        else:
            self._difference = np.full(len(values), np.nan)
        left = np.where(self.n_seen >= WARM_UP_SAMPLES, self._difference - self.offset, np.nan)
        size = np.maximum(floors.absolute, floors.relative * np.abs(np.nan_to_num(stats.median)))
        moved = self._moved(stats.median, dt, habit_s)
        small = Floors(FLOOR_SHARE * size + PHASE_SHARE * moved, np.zeros_like(size))
        self.short.push(left)
        short = self.short.score(layout, row_of, small, min_peers=min_peers, dt=dt)
        known = np.isfinite(left)
        self._sum[known] += left[known]
        self._count += known
        self._in_block += 1
        if self._in_block == self._block:
            self.long.push(self._block_means())
            dt_block = self._block * dt
            self._long_score = self.long.score(layout, row_of, small, min_peers=min_peers, dt=dt_block)
            self._long_shift = self.long.shift
        long = np.where(self._still_there(), self._long_score, np.nan)
        score = np.where(np.abs(np.nan_to_num(long)) > np.abs(np.nan_to_num(short)), long, short)
        doubt = np.sqrt(1.0 + YOUNG_SAMPLES / np.maximum(self.n_seen, 1.0))
        doubt *= 1.0 + _unrest(moved, stats.scale, layout)[np.maximum(row_of, 0)] if len(moved) else 1.0
        self.score = score / doubt
        return self.score

    def _moved(self, median: FloatArray, dt: float, habit_s: float) -> FloatArray:
        """Return how far each group's median is from its habit, shape (n_rows,)."""
        rows = self._usual
        known = np.isfinite(median)
        first = known & (rows.n_seen == 0)
        rows.centre[first] = median[first]
        moved = np.where(known, np.abs(median - rows.centre), 0.0)
        rate = np.maximum(1.0 / (rows.n_seen + 1.0), min(1.0 / HABIT_SAMPLES, dt / habit_s))
        rows.centre[known] += (rate * (median - rows.centre))[known]
        rows.n_seen[known] += 1.0
        return np.nan_to_num(moved)

    def _still_there(self) -> BoolArray:
        """Tell where the short window still shows some of the long one's shift: it is not over."""
        size = self._long_shift
        with np.errstate(invalid="ignore"):
            far = np.where(
                size > 0,
                self.short.second_above >= STILL_SHARE * size,
                self.short.second_below <= STILL_SHARE * size,
            )
        return np.asarray(far & np.isfinite(size))

    def start_anew(self, cells: BoolArray) -> None:
        """Forget what the chosen cells used to differ, and all shifts of them."""
        self.n_seen[cells] = 0.0
        self._sum[cells] = self._count[cells] = 0.0
        self._long_score[cells] = self.since[cells] = np.nan
        self.short.forget(cells)
        self.long.forget(cells)

    def _block_means(self) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(self._count >= (self._block + 1) // 2, self._sum / self._count, np.nan)
        self._sum[:] = 0.0
        self._count[:] = 0.0
        self._in_block = 0
        return mean

    def mark(
        self, shifted: FloatArray, threshold: float | FloatArray, *, at: float, lasted_s: float
    ) -> BoolArray:
        """Note since when cells are shifted.

        Parameters
        ----------
        shifted : ndarray of shape (n_cells,)
            Shifts that count, NaN where unknown.
        threshold
            Shift that counts, one for all or of shape (n_cells,).
        at, lasted_s
            Evaluation time; how long a shift has lasted when it is first seen, seconds.

        Returns
        -------
        ndarray of shape (n_cells,), bool
            Cells that are shifted now.
        """
        size = np.abs(np.nan_to_num(shifted))
        over = size >= SEEN_SHARE * threshold
        self.since[over & np.isnan(self.since)] = at - lasted_s
        self.since[np.isfinite(shifted) & (size < HELD_SHARE * SEEN_SHARE * threshold)] = np.nan
        return np.asarray(over)

    def learn(self, skip: BoolArray, *, dt: float, habit_s: float) -> None:
        """Fold the newest differences into the habits.

        Parameters
        ----------
        skip : ndarray of shape (n_cells,), bool
            Cells of which nothing is learnt now.
        dt
            Seconds since the evaluation before.
        habit_s
            Time constant of a habit, seconds.
        """
        chosen = np.flatnonzero(np.isfinite(self._difference) & ~skip)
        n = self.n_seen[chosen].astype(np.int64)
        young = n < WARM_UP_SAMPLES
        self._first[n[young], chosen[young]] = self._difference[chosen[young]]
        self.n_seen[chosen] += 1.0
        ready = chosen[n == WARM_UP_SAMPLES - 1]
        self.offset[ready] = np.median(self._first[:, ready], axis=0)
        old, n = chosen[~young], n[~young]
        rate = np.maximum(1.0 / (n + 1.0), min(1.0 / HABIT_SAMPLES, dt / habit_s))
        residual = self._difference[old] - self.offset[old]
        limit = CLIP * np.nan_to_num(self.short.scale[old], nan=np.inf)
        self.offset[old] += rate * np.clip(residual, -limit, limit)
        self.short.learn(skip, dt=dt, habit_s=habit_s)
        if self._in_block == 0:
            self.long.learn(skip, dt=self._block * dt, habit_s=habit_s)

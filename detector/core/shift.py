"""Lasting changes of a member's habitual difference from its peers, seen in windows.

What a member differs from its peers' median now is compared with what it usually differs, so that
neither persistent differences between members nor a move that all make together count. A shift is
what enough samples of a window exceed: a burst shorter than that gives nothing. It is measured in
what such windows of the peers, and the member's own, usually do: noise that averages out makes small
shifts visible, noise that does not, does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.habit import add_where, learning_rate
from detector.core.ingest import grow
from detector.core.level import CLIP, HABIT_SAMPLES, Level
from detector.core.peers import PHASE_SHARE, Floors, RowState, RowStats, by_row
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
FloatArray32 = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

WARM_UP_SAMPLES = 20
"""Samples of which the median is a member's first habitual difference."""

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


def _unrest(moved: FloatArray, scale: FloatArray, layout: Layout, befallen: BoolArray) -> FloatArray:
    """Say of each group how far its pool is from what is usual, 0 to 1; shape (n_rows,)."""
    judged = np.isfinite(scale) & (layout.row_pool >= 0)
    with np.errstate(invalid="ignore"):
        away = judged & (moved > MOVED_SCALES * scale)
    pool = np.maximum(layout.row_pool, 0).astype(np.int64)
    n_pools = max(int(pool.max(initial=0)) + 1, len(befallen))
    count = np.bincount(pool[judged], minlength=n_pools)
    share = np.bincount(pool[away], minlength=n_pools) / np.maximum(count, 1)
    unrest = np.minimum(share / UNREST_SHARE, 1.0)
    unrest[np.flatnonzero(befallen)] = 1.0
    return np.asarray(unrest[pool])


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
    bursts : ndarray of shape (n_cells,)
        How far bursts of the member usually go, in the metric's unit. Who writes the checkpoints of a job
        differs again and again: that he does so longer or more often is no change of habit.
    """

    def __init__(self, n_window: int) -> None:
        self.offset, self.n_seen = np.zeros(0), np.zeros(0)
        self.score, self.since, self.bursts = np.zeros(0), np.zeros(0), np.zeros(0)
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
        for name in ("offset", "n_seen", "bursts", "_sum", "_count"):
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
            "bursts": self.bursts,
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
        befallen: BoolArray,
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
        befallen : ndarray of shape (n_pools,), bool
            Pools that something befalls which no single machine causes.
        min_peers, dt, habit_s
            Smallest group that is judged; seconds since the evaluation before; time constant of a habit.

        Returns
        -------
        ndarray of shape (n_cells,)
            Signed, in scales; NaN where unknown.
        """
        row_of = layout.any_row_of_cell
        difference = values - by_row(stats.median, row_of)
        self._difference = np.minimum(np.maximum(difference, -FARTHEST), FARTHEST)
        if fresh_start.any():
            self.start_anew(fresh_start)
            self._difference[fresh_start] = np.nan
        left = self._difference - self.offset
        left[np.flatnonzero(self.n_seen < WARM_UP_SAMPLES)] = np.nan
        level = np.where(np.isfinite(stats.median), np.abs(stats.median), 0.0)
        size = np.maximum(floors.absolute, floors.relative * level)
        moved = self._moved(stats.median, dt, habit_s)
        small = Floors(floors.lasting * size + PHASE_SHARE * moved, np.zeros_like(size))
        self.short.push(left)
        short = self.short.score(layout, row_of, small, self.bursts, min_peers=min_peers, dt=dt)
        known = np.isfinite(left)
        add_where(self._sum, left, known)
        self._count += known
        self._in_block += 1
        if self._in_block == self._block:
            self.long.push(self._block_means())
            dt_block = self._block * dt
            self._long_score = self.long.score(
                layout, row_of, small, self.bursts, min_peers=min_peers, dt=dt_block
            )
            self._long_shift = self.long.shift
        with np.errstate(invalid="ignore"):
            is_long = self._still_there() & (np.abs(self._long_score) > np.fmax(np.abs(short), 0.0))
        score = np.where(is_long, self._long_score, short)
        doubt = np.sqrt(1.0 + YOUNG_SAMPLES / np.maximum(self.n_seen, 1.0))
        unrest = _unrest(moved, stats.scale, layout, befallen)
        if unrest.any():
            doubt *= (1.0 + unrest).take(np.maximum(row_of, 0))
        self.score = score / doubt
        return self.score

    def _moved(self, median: FloatArray, dt: float, habit_s: float) -> FloatArray:
        """Return how far each group's median is from its habit, shape (n_rows,)."""
        rows = self._usual
        known = np.isfinite(median)
        first = known & (rows.n_seen == 0)
        rows.centre[first] = median[first]
        moved = np.where(known, np.abs(median - rows.centre), 0.0)
        rate = learning_rate(rows.n_seen + 1.0, HABIT_SAMPLES, dt=dt, habit_s=habit_s)
        rows.centre[known] += (rate * (median - rows.centre))[known]
        rows.n_seen[known] += 1.0
        return np.where(np.isfinite(moved), moved, 0.0)

    def _still_there(self) -> BoolArray:
        """Tell where the short window still shows some of the long one's shift: it is not over."""
        size = self._long_shift
        needed = STILL_SHARE * size
        with np.errstate(invalid="ignore"):
            above = (size > 0) & (self.short.second_above >= needed)
            below = (size <= 0) & (self.short.second_below <= needed)
        return np.asarray((above | below) & np.isfinite(size))

    def start_anew(self, cells: BoolArray) -> None:
        """Forget what the chosen cells used to differ, and all shifts of them."""
        self.n_seen[cells] = self.bursts[cells] = 0.0
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
        size = np.abs(shifted)
        with np.errstate(invalid="ignore"):
            over = np.asarray(size >= SEEN_SHARE * threshold)
            fell = np.isfinite(self.since) & (size < HELD_SHARE * SEEN_SHARE * threshold)
        self.since[np.flatnonzero(over & np.isnan(self.since))] = at - lasted_s
        self.since[np.flatnonzero(fell)] = np.nan
        return over

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
        chosen = np.isfinite(self._difference) & ~skip
        young = np.flatnonzero(chosen & (self.n_seen < WARM_UP_SAMPLES))
        old = chosen & (self.n_seen >= WARM_UP_SAMPLES)
        self.n_seen += chosen
        if len(young):
            n = self.n_seen.take(young).astype(np.int64)
            self._first[n - 1, young] = self._difference.take(young)
            ready = young[n == WARM_UP_SAMPLES]
            self.offset[ready] = np.median(self._first[:, ready], axis=0)
        rate = learning_rate(np.maximum(self.n_seen, 1.0), HABIT_SAMPLES, dt=dt, habit_s=habit_s)
        limit = np.fmin(CLIP * self.short.scale, np.inf)
        residual = np.minimum(np.maximum(self._difference - self.offset, -limit), limit)
        add_where(self.offset, rate * residual, old)
        self.short.learn(skip, dt=dt, habit_s=habit_s, bursts=self.bursts)
        if self._in_block == 0:
            self.long.learn(skip, dt=self._block * dt, habit_s=habit_s)

"""The levels that deviations keep: the thresholds at which the clock of a cell or node would be full now.

The clocks are those of `detector.core.continuity`, one for each level of a grid, so that "reached
this level" means the same as "would have counted in full at this threshold", leaks included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.continuity import LEAK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CELL_LEVELS: FloatArray = np.geomspace(0.5, 0.5 * 1.25**16, 17)
"""Levels of signals, as multiples of the plain threshold: 0.5 to 17.8."""

NODE_LEVELS: FloatArray = np.geomspace(0.5, 0.5 * 1.1**27, 28)
"""Levels of the nodes' evidence: 0.5 to 6.6."""


class KeptLevels:
    """Leaking clocks of many members at every level of a grid.

    Parameters
    ----------
    levels : ndarray of shape (n_levels,)
        Ascending.
    full_s
        Dwell at which a level is kept.
    max_gap_s
        Unknown for longer than this resets the clocks.
    """

    def __init__(self, levels: FloatArray, full_s: float, max_gap_s: float) -> None:
        self._levels = levels
        self._full_s = full_s
        self._max_gap_s = max_gap_s
        self._dwell = np.zeros((0, len(levels)), dtype=np.float32)
        self._sign = np.zeros(0, dtype=np.int8)
        self._unknown_s = np.zeros(0)

    def step(self, score: FloatArray, dt: float) -> tuple[IntArray, IntArray]:
        """Advance by one evaluation.

        Parameters
        ----------
        score : ndarray of shape (n,)
            Signed deviation on the scale of the levels; NaN is unknown and stops the clocks. Grows only.
        dt
            Seconds since the evaluation before.

        Returns
        -------
        member, level : ndarray of shape (n_kept,)
            Members that keep a level now, and the number of the highest one.
        """
        self._grow_to(len(score))
        known = np.isfinite(score)
        size = np.abs(np.where(known, score, 0.0))
        self._unknown_s = np.where(known, 0.0, self._unknown_s + dt)
        chosen = np.flatnonzero((size >= self._levels[0]) | (self._sign != 0))
        if not len(chosen):
            return chosen, chosen
        here, dwell = size[chosen], self._dwell[chosen]
        on = here[:, None] >= self._levels
        sign = np.where(on[:, 0], np.sign(np.nan_to_num(score[chosen])), self._sign[chosen]).astype(np.int8)
        dwell[(sign != self._sign[chosen]) | (self._unknown_s[chosen] > self._max_gap_s)] = 0.0
        moved = np.where(on, np.minimum(dwell + dt, self._full_s), np.maximum(dwell - LEAK * dt, 0.0))
        dwell = np.where(known[chosen][:, None], moved, dwell).astype(np.float32)
        self._dwell[chosen] = dwell
        self._sign[chosen] = np.where(dwell[:, 0] > 0, sign, 0)
        count = np.count_nonzero(dwell >= self._full_s - 1e-3, axis=1)
        kept = (count > 0) & known[chosen]
        return chosen[kept], count[kept].astype(np.int64) - 1

    def begun(self, dwell_s: float) -> IntArray:
        """Return the number of each member's highest level with more dwell than `dwell_s`, -1 for none."""
        return np.asarray(np.count_nonzero(self._dwell > dwell_s, axis=1)) - 1

    def _grow_to(self, size: int) -> None:
        added = size - len(self._sign)
        if added > 0:
            self._dwell = np.concatenate(
                [self._dwell, np.zeros((added, len(self._levels)), dtype=np.float32)]
            )
            self._sign = np.concatenate([self._sign, np.zeros(added, dtype=np.int8)])
            self._unknown_s = np.concatenate([self._unknown_s, np.zeros(added)])


@dataclass(frozen=True, slots=True)
class Episodes:
    """Times in which a group kept a level, breaks of up to a full continuity included.

    Parameters
    ----------
    group : ndarray of shape (n,)
        Number of the group.
    level : ndarray of shape (n,)
        Number of the highest level kept.
    start, end : ndarray of shape (n,)
        Epoch seconds, the time in which the clock filled included.
    """

    group: IntArray
    level: IntArray
    start: FloatArray
    end: FloatArray


def level_at(size: FloatArray, levels: FloatArray) -> IntArray:
    """Return the number of the highest level that each size reaches, -1 for none; NaN reaches none."""
    return np.searchsorted(levels, np.nan_to_num(size) + 1e-9, side="right") - 1


class EpisodeTracker:
    """Joins levels that groups of members keep to episodes.

    Parameters
    ----------
    full_s
        Full continuity: a longer break ends an episode.
    """

    def __init__(self, full_s: float) -> None:
        self._full_s = full_s
        self._level = np.full(0, -1, dtype=np.int64)
        self._start = np.zeros(0)
        self._end = np.zeros(0)
        self._done: list[Episodes] = []

    def step(self, n_groups: int, group: IntArray, level: IntArray, at: float) -> None:
        """Take in who keeps which level at `at`; a group may be named several times."""
        added = n_groups - len(self._level)
        if added > 0:
            self._level = np.concatenate([self._level, np.full(added, -1, dtype=np.int64)])
            self._start = np.concatenate([self._start, np.zeros(added)])
            self._end = np.concatenate([self._end, np.zeros(added)])
        self._close(np.flatnonzero((self._level >= 0) & (at - self._end > self._full_s)))
        begun = group[self._level[group] < 0]
        self._start[begun] = at - self._full_s
        np.maximum.at(self._level, group, level)
        self._end[group] = at

    def finish(self) -> Episodes:
        """End what goes on and return all episodes."""
        self._close(np.flatnonzero(self._level >= 0))
        parts = self._done or [Episodes(*(np.zeros(0, dtype=t) for t in (np.int64, np.int64, float, float)))]
        return Episodes(
            np.concatenate([e.group for e in parts]),
            np.concatenate([e.level for e in parts]),
            np.concatenate([e.start for e in parts]),
            np.concatenate([e.end for e in parts]),
        )

    def _close(self, ended: IntArray) -> None:
        if not len(ended):
            return
        self._done.append(
            Episodes(ended, self._level[ended].copy(), self._start[ended].copy(), self._end[ended].copy())
        )
        self._level[ended] = -1


def highest(episodes: Episodes, most: int) -> Episodes:
    """Return the episodes of the highest levels, at most so many, in their order."""
    if len(episodes.level) <= most:
        return episodes
    kept = np.sort(np.argsort(-episodes.level, kind="stable")[:most])
    return Episodes(episodes.group[kept], episodes.level[kept], episodes.start[kept], episodes.end[kept])


def spread(level: IntArray, levels: FloatArray) -> FloatArray:
    """Return sizes for numbers of levels: ties are spread evenly up to the next level.

    A grid knows only between which levels a peak lies; equal numbers would give the tail steps.
    """
    sizes = np.zeros(len(level))
    ratio = levels[1] / levels[0]
    for number in np.unique(level).tolist():
        tied = np.flatnonzero(level == number)
        share = (np.arange(len(tied)) + 0.5) / len(tied)
        sizes[tied] = levels[number] * (1.0 + (ratio - 1.0) * share)
    return sizes

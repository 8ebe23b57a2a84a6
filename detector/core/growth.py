"""How much members have grown over a stretch of time, against what their peers allow; plain functions.

Counts of rare events are compared by what the rate of the others allows, gauges by how steadily
they move away from the others. A row is a peer group: the same signal of members that are peers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from detector.core.peers import MAD_TO_SIGMA, TAIL_NODES

FloatArray = NDArray[np.float64]
BlockArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

COUNT_TAIL = 1e-6
"""Probability, over all members of a row, at which a count of events has the score 1."""

LEAST_BLOCKS = 3
"""Events of fewer different blocks of time are one occurrence and no growth."""

COUNT_RATIO = 3.0
"""A count must be this many times what peers, and the member's own past, let expect."""

GOES_ON = 3.0
"""Growth has ended when it has been quiet for this many times the usual distance of its events."""

PAST_WINDOWS = 4.0
"""A member's past tells what is usual for it once it is this many times as long as the window."""

LEAST_MEMBERS = 5
"""Gauges of fewer members with a full window have no growth to compare."""

GAUGE_SIGMAS = 6.0
"""Growth of a gauge, in robust deviations of its peers' growth, that has the score 1."""

STEADY_LEAST = 0.02
"""Every step of a steady growth is at least this share of the whole."""

STEADY_MOST = 0.4
"""No step of a steady growth is more than this share of the whole: one jump is no trend."""

OUTER_SIGMAS = 3.0
"""Peers farthest out, a few left out, are taken to lie this many deviations out."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Which member is in which row.

    Parameters
    ----------
    of : ndarray of shape (n,), int64
        Row of each member, below `n_rows`.
    members, left_out : ndarray of shape (n_rows,), int64
        Members of each row, and how many of the farthest ones are not learnt from.
    """

    of: IntArray
    members: IntArray
    left_out: IntArray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of each member over one window.

    Parameters
    ----------
    score : ndarray of shape (n,)
        0 for none or unknown; 1 is where it begins to count.
    amount : ndarray of shape (n,)
        Events, or signed growth against the peers.
    low, high : ndarray of shape (n,)
        What the peers show, the farthest ones left out.
    n_blocks : ndarray of shape (n,), int64
        Blocks of time with events.
    first : ndarray of shape (n,), int64
        First of them, counted from the start of the window.
    """

    score: FloatArray
    amount: FloatArray
    low: FloatArray
    high: FloatArray
    n_blocks: IntArray
    first: IntArray


def rows_of(row: IntArray, parts_per_node: IntArray) -> Rows:
    """Return rows numbered anew from 0.

    Parameters
    ----------
    row : ndarray of shape (n,)
        Row of each member, all >= 0.
    parts_per_node : ndarray of shape (n_rows,)
        Parts of a node in each of those rows, at least 1.
    """
    present, of = np.unique(row, return_inverse=True)
    members = np.bincount(of, minlength=len(present))
    left_out = np.minimum(TAIL_NODES * parts_per_node[present], members // 3)
    return Rows(of.astype(np.int64), members.astype(np.int64), left_out.astype(np.int64))


def rank_from_top(size: FloatArray, rows: Rows) -> IntArray:
    """Rank each member within its row, 0 for the largest."""
    order = np.lexsort((-size, rows.of))
    start = np.cumsum(rows.members) - rows.members
    rank = np.empty(len(size), dtype=np.int64)
    rank[order] = np.arange(len(size)) - start[rows.of[order]]
    return rank


def row_medians(values: FloatArray, rows: Rows) -> FloatArray:
    """Return the median of each row over its finite values, NaN for none; shape (n_rows,)."""
    finite = np.flatnonzero(np.isfinite(values))
    found = np.full(rows.n_rows, np.nan)
    if not len(finite):
        return found
    row = rows.of[finite]
    order = np.lexsort((values[finite], row))
    ordered = values[finite][order]
    n = np.bincount(row, minlength=rows.n_rows)
    start = np.cumsum(n) - n
    some = n > 0
    low, high = start[some] + (n[some] - 1) // 2, start[some] + n[some] // 2
    found[some] = 0.5 * (ordered[low] + ordered[high])
    return found


def count_growth(blocks: BlockArray, rows: Rows, past: FloatArray, past_blocks: FloatArray) -> Growth:
    """Say which members have had far more events than the others' rate allows.

    Under one rate for all, and with T events among peers whose time is m times the member's, its
    count follows a negative binomial law: P(>= k) = I_{1/(1+m)}(k, T + 1/2). Peers whose counts differ
    by more than chance have a gamma distribution of rates: its shape r takes the place of T + 1/2 as
    1 / (1 / (T + 1/2) + 1 / r). Events that come in bursts are divided by the ratio of variance to mean
    over the member's blocks.

    Parameters
    ----------
    blocks : ndarray of shape (n_blocks, n)
        Events per block of time, oldest first; NaN where nothing was seen.
    rows
        Peer groups.
    past, past_blocks : ndarray of shape (n,)
        Events of each member before the window, and the blocks of time they are from.
    """
    length, n = blocks.shape
    seen = np.isfinite(blocks)
    events = np.where(seen, blocks, 0.0).astype(np.float64)
    total, exposure = events.sum(axis=0), seen.sum(axis=0).astype(np.float64)
    happened = events > 0
    n_blocks = happened.sum(axis=0)
    first = np.argmax(happened, axis=0)
    zero = np.zeros(n)
    chosen = np.flatnonzero(n_blocks >= LEAST_BLOCKS)
    if not len(chosen):
        return Growth(zero, total, zero, zero, n_blocks, first)
    kept = rank_from_top(total, rows) >= rows.left_out[rows.of]
    single = total / _burst(events, total, exposure)
    row_time = np.bincount(rows.of[kept], weights=exposure[kept], minlength=rows.n_rows)
    row_total = np.bincount(rows.of[kept], weights=total[kept], minlength=rows.n_rows)
    row_single = np.bincount(rows.of[kept], weights=single[kept], minlength=rows.n_rows)
    alike = _alike(single[kept], rows.of[kept], rows.n_rows)
    row = rows.of[chosen]
    time, mine = exposure[chosen], np.where(kept[chosen], 1.0, 0.0)
    times = (row_time[row] - mine * time) / time
    others = row_single[row] - mine * single[chosen] + 0.5
    shape = 1.0 / (1.0 / others + 1.0 / alike[row])
    mean = others / np.maximum(times, 1e-9)
    tail = special.betainc(single[chosen], shape, mean / (mean + shape))
    worth = np.log(np.maximum(tail * rows.members[row], 1e-300)) / np.log(COUNT_TAIL)
    expected = (row_total[row] - mine * total[chosen]) / np.maximum(times, 1e-9)
    expected[times <= 0] = np.inf
    told = past_blocks[chosen] >= PAST_WINDOWS * length
    own = np.where(told, past[chosen] / np.maximum(past_blocks[chosen], 1.0) * time, 0.0)
    last = length - 1 - np.argmax(happened[::-1, chosen], axis=0)
    goes_on = length - 1 - last <= GOES_ON * length / n_blocks[chosen]
    counts = goes_on & (total[chosen] >= COUNT_RATIO * np.maximum(expected, own))
    score = zero.copy()
    score[chosen] = np.where(counts, np.maximum(worth, 0.0), 0.0)
    low, high = _range(total, kept, rows)
    return Growth(score, total, low[rows.of], high[rows.of], n_blocks, first)


def _burst(events: FloatArray, total: FloatArray, exposure: FloatArray) -> FloatArray:
    """Return the ratio of variance to mean of each member's blocks, at least 1."""
    time = np.maximum(exposure, 1.0)
    mean = np.maximum(total / time, 1e-9)
    return np.asarray(np.maximum(1.0, ((events**2).sum(axis=0) / time - mean**2) / mean))


def _alike(count: FloatArray, row: IntArray, n_rows: int) -> FloatArray:
    """Return the shape of the gamma distribution of rates within each row, infinite for equal rates."""
    n = np.maximum(np.bincount(row, minlength=n_rows), 1)
    mean = np.bincount(row, weights=count, minlength=n_rows) / n
    excess = np.bincount(row, weights=count**2, minlength=n_rows) / n - mean**2 - mean
    return np.where(excess > 0, mean**2 / np.maximum(excess, 1e-9), np.inf)


def gauge_growth(stages: FloatArray, rows: Rows, side: IntArray, floor: FloatArray) -> Growth:
    """Say which members move steadily away from the others.

    Parameters
    ----------
    stages : ndarray of shape (n_stages, n)
        Means over equal stretches of time, oldest first; NaN where nothing was seen.
    rows
        Peer groups.
    side : ndarray of shape (n,)
        +1 where only growth is for the worse, -1 where only decline is, 0 for both.
    floor : ndarray of shape (n,)
        Smallest spread of growths that means anything.
    """
    n_stages, n = stages.shape
    centre = np.array([row_medians(stage, rows)[rows.of] for stage in stages]).reshape(stages.shape)
    apart = stages - centre
    growth = apart[-1] - apart[0]
    known = np.isfinite(apart).all(axis=0)
    growth = np.where(known, growth, np.nan)
    middle = row_medians(growth, rows)[rows.of]
    off = np.abs(growth - middle)
    size = np.where(known, off, -1.0)
    kept = known & (rank_from_top(size, rows) >= rows.left_out[rows.of])
    outer = np.zeros(rows.n_rows)
    np.maximum.at(outer, rows.of[kept], off[kept])
    mad = MAD_TO_SIGMA * row_medians(off, rows)[rows.of]
    scale = np.maximum(np.maximum(mad, outer[rows.of] / OUTER_SIGMAS), floor)
    n_known = np.bincount(rows.of[known], minlength=rows.n_rows)[rows.of]
    with np.errstate(invalid="ignore"):
        steps = np.diff(apart, axis=0) * np.sign(growth)
        whole = np.abs(growth)
        steady = (steps.min(axis=0) >= STEADY_LEAST * whole) & (steps.max(axis=0) <= STEADY_MOST * whole)
        worse = (side == 0) | (np.sign(growth) == side)
        counts = known & steady & worse & (n_known >= LEAST_MEMBERS)
        score = np.where(counts, off / scale / GAUGE_SIGMAS, 0.0)
    low, high = _range(growth, kept, rows)
    nothing = np.zeros(n, dtype=np.int64)
    return Growth(score, growth, low[rows.of], high[rows.of], nothing + n_stages, nothing)


def stages_of(blocks: BlockArray, n_stages: int) -> FloatArray:
    """Average blocks of time over equal stretches; NaN where half of a stretch or more is missing.

    Parameters
    ----------
    blocks : ndarray of shape (n_blocks, n)
        `n_blocks` is a multiple of `n_stages`.

    Returns
    -------
    ndarray of shape (n_stages, n)
    """
    grouped = blocks.reshape(n_stages, -1, blocks.shape[1]).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(grouped, axis=1)
    enough = 2 * np.isfinite(grouped).sum(axis=1) > grouped.shape[1]
    return np.where(enough, mean, np.nan)


def _range(amount: FloatArray, kept: BoolArray, rows: Rows) -> tuple[FloatArray, FloatArray]:
    low, high = np.full(rows.n_rows, np.inf), np.full(rows.n_rows, -np.inf)
    np.minimum.at(low, rows.of[kept], amount[kept])
    np.maximum.at(high, rows.of[kept], amount[kept])
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)

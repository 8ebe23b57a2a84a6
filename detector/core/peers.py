"""Robust statistics of every peer group at one instant, and each member's robust z-score.

One sort per stack of blocks gives the median, a second one the MAD and the upper order statistics,
from which heavy tails are learnt. Nothing here divides by a spread that can be zero: the
scale has a floor from the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import norm, t

from detector.core.ingest import grow
from grouping.layout import Layout, Stack

FloatArray = NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
"""MAD times this estimates the standard deviation of normal data (Rousseeuw and Croux 1993)."""

TYPICAL_S = 1800.0
"""Time constant of a group's typical spread."""

PHASE_S = 600.0
"""Time constant against which a common move of all peers is seen."""

TYPICAL_SAMPLES, PHASE_SAMPLES = 40, 8
"""... and in samples: with minutes between samples the times above would be forgotten at once."""

PHASE_SHARE = 0.25
"""Share of a common move that is added to the scale: who stays behind scores at most 1 / this."""

TAIL_NODES = 2
"""As many members as this many nodes have are left out when tails are learnt: faults are not learnt."""

SMALL_GROUP_TAIL = 1e-5
"""Tail probability at which the small-group correction equals the normal score."""


@dataclass(slots=True)
class RowState:
    """What each group (row) remembers between evaluations, by row key.

    Parameters
    ----------
    keys
        Row keys, to carry memory over to a new layout.
    typical : ndarray of shape (n_rows,)
        Usual spread (sigma), NaN before the first evaluation.
    tail : ndarray of shape (n_rows,)
        How much farther than normal data the outer members usually lie, >= 1.
    centre : ndarray of shape (n_rows,)
        Recent usual median, NaN before the first evaluation.
    n_seen : ndarray of shape (n_rows,)
        Evaluations so far.
    """

    keys: tuple[str, ...] = ()
    typical: FloatArray = field(default_factory=lambda: np.zeros(0))
    tail: FloatArray = field(default_factory=lambda: np.zeros(0))
    centre: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_seen: FloatArray = field(default_factory=lambda: np.zeros(0))
    _outer: tuple[NDArray[np.int64], FloatArray] | None = field(default=None, init=False)

    def expected_outer(self, count: NDArray[np.int64], left_out: NDArray[np.int64]) -> FloatArray:
        """Return `_expected_outer`, worked out anew only when the numbers of members are others."""
        if self._outer is None or not np.array_equal(self._outer[0], count):
            self._outer = count, _expected_outer(count, left_out)
        return self._outer[1]

    def arrays(self) -> dict[str, FloatArray]:
        """Return what is remembered, by name."""
        return {name: getattr(self, name) for name in ("typical", "tail", "centre", "n_seen")}

    @classmethod
    def of_arrays(cls, keys: tuple[str, ...], arrays: Mapping[str, FloatArray]) -> RowState:
        """Return the memory of which `arrays` was told; other names are passed over."""
        return cls(keys, *(arrays[name] for name in ("typical", "tail", "centre", "n_seen")))

    def carry_to(self, keys: tuple[str, ...]) -> RowState:
        """Return the same memory arranged for another layout; new rows start empty."""
        old = {key: i for i, key in enumerate(self.keys)}
        source = np.array([old.get(key, -1) for key in keys], dtype=np.int64)
        known = source >= 0
        fresh = RowState(
            keys,
            np.full(len(keys), np.nan),
            np.ones(len(keys)),
            np.full(len(keys), np.nan),
            np.zeros(len(keys)),
        )
        for name in ("typical", "tail", "centre", "n_seen"):
            getattr(fresh, name)[known] = getattr(self, name)[source[known]]
        return fresh


@dataclass(frozen=True, slots=True)
class RowStats:
    """Peer statistics of this instant, one entry per row; NaN where fewer than `min_peers` report.

    Parameters
    ----------
    median : ndarray of shape (n_rows,)
        Median over members.
    scale : ndarray of shape (n_rows,)
        Robust standard deviation with floors, tail and small-group correction; > 0.
    n_valid : ndarray of shape (n_rows,)
        Members with a value.
    plain : ndarray of shape (n_rows,)
        The scale before the corrections for tails, small groups and common moves.
    """

    median: FloatArray
    scale: FloatArray
    n_valid: NDArray[np.int64]
    plain: FloatArray


@dataclass(frozen=True, slots=True)
class Floors:
    """Scale floors of each row, from the catalog; shape (n_rows,) each.

    Parameters
    ----------
    absolute, relative
        Smallest scale, and as a share of the median.
    lasting
        Share of them that holds for windows.
    """

    absolute: FloatArray
    relative: FloatArray
    lasting: FloatArray = field(default_factory=lambda: np.ones(1))


def row_stats(
    values: FloatArray, layout: Layout, floors: Floors, memory: RowState, *, min_peers: int, dt: float
) -> RowStats:
    """Compute medians and scales of all rows and update the rows' memory in place.

    Parameters
    ----------
    values : ndarray of shape (n_cells,)
        Newest value per cell, NaN for missing.
    layout, floors
        Groups and their floors.
    memory
        Updated in place: typical spread, tails, centre.
    min_peers
        Smaller groups get NaN.
    dt
        Seconds since the evaluation before.

    Returns
    -------
    RowStats
        ``scale = max(1.4826 MAD, typical, floor) * tail + share of a common move``.
    """
    n_rows = len(layout.row_key)
    median, sigma = np.full(n_rows, np.nan), np.full(n_rows, np.nan)
    outer, count = np.full(n_rows, np.nan), np.zeros(n_rows, dtype=np.int64)
    left_out = np.ones(n_rows, dtype=np.int64)
    padded = np.append(values, np.nan)
    for stack in layout.stacks:
        rows = stack.rows
        left_out[rows] = TAIL_NODES * stack.parts_per_node
        median[rows], sigma[rows], outer[rows], count[rows] = stack_stats(padded, stack, min_peers)
    judged = count >= min_peers
    median[~judged] = np.nan
    floor = np.maximum(floors.absolute, floors.relative * np.abs(median))
    usual = np.fmax(memory.typical, sigma)
    scale = np.fmax(usual, floor)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = outer / (scale * memory.expected_outer(count, left_out))
    moved = np.where(np.isfinite(memory.centre), np.abs(median - memory.centre), 0.0)
    tail = np.maximum(memory.tail, 1.0)
    corrected = scale * tail * _small_group(count, memory.n_seen) + PHASE_SHARE * moved
    _remember(memory, judged, median, sigma, excess, dt)
    return RowStats(median, np.where(judged, corrected, np.nan), count, np.where(judged, scale, np.nan))


def stack_stats(
    padded: FloatArray, stack: Stack, min_peers: int
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.int64]]:
    """Median, sigma, outer order statistic and count of each row of one stack.

    Parameters
    ----------
    padded : ndarray of shape (n_cells + 1,)
        Newest values, NaN for missing, with one more NaN at the end for empty places.
    stack, min_peers
        Rows, and the smallest group that is judged.
    """
    n_rows, width = len(stack.rows), stack.n_columns
    flat = padded.take(stack.source)
    ordered = flat.reshape(n_rows, width)
    ordered.sort(axis=1)
    start, count, (low, high) = stack.first, stack.members, stack.middle
    gaps = np.flatnonzero(np.isnan(flat.take(stack.last)))  # what is missing comes last
    if len(gaps):
        count = count.copy()
        count[gaps] = width - np.count_nonzero(np.isnan(ordered[gaps]), axis=1)
        low, high = start + np.maximum((count - 1) // 2, 0), start + np.minimum(count // 2, width - 1)
    median = _middle(flat, low, high)
    np.subtract(ordered, median[:, None], out=ordered)
    np.abs(ordered, out=ordered)
    ordered.sort(axis=1)
    sigma = MAD_TO_SIGMA * _middle(flat, low, high)
    left_out = TAIL_NODES * stack.parts_per_node
    outer = flat[start + np.maximum(count - 1 - left_out, 0)]
    outer[count < np.maximum(min_peers, 2 * left_out + 2)] = np.nan
    return median, sigma, outer, count


def _middle(flat: FloatArray, low: NDArray[np.int64], high: NDArray[np.int64]) -> FloatArray:
    """Median of each sorted row from the flat positions of its middle; NaN when a row has no numbers."""
    a = flat[low]
    return np.asarray(a + (flat[high] - a) / 2.0)


def _expected_outer(count: NDArray[np.int64], left_out: NDArray[np.int64]) -> FloatArray:
    """Return the expected absolute z at rank ``count - left_out`` of normal data (Blom 1958)."""
    n = np.maximum(count, 2 * left_out + 2).astype(np.float64)
    p = (n - left_out - 0.375) / (n + 0.25)
    return np.asarray(ndtri(0.5 + p / 2.0), dtype=np.float64)


_LARGE_GROUP, _TRUSTS = 200, 8
_SMALL_GROUP = np.full((_LARGE_GROUP + 1) * _TRUSTS, np.nan)
"""Filled as needed: quantiles of t take long."""


def _small_group(count: NDArray[np.int64], n_seen: FloatArray) -> FloatArray:
    """How much wider a scale from few members must be: t against normal quantiles.

    The degrees of freedom grow as the typical spread is learnt over time.
    """
    trust = 1 + np.minimum(n_seen.astype(np.int64), 40) // 10
    code = np.minimum(count, _LARGE_GROUP) * _TRUSTS + trust
    result = _SMALL_GROUP[code]
    unknown = np.isnan(result)
    if unknown.any():
        for new in np.unique(code[unknown]).tolist():
            n, k = divmod(int(new), _TRUSTS)
            wider = 1.0
            if n >= 2:
                wider = float(t.isf(SMALL_GROUP_TAIL, (n - 1) * k) / norm.isf(SMALL_GROUP_TAIL))
            _SMALL_GROUP[new] = wider
        result = _SMALL_GROUP[code]
    return np.asarray(result, dtype=np.float64)


def _remember(
    memory: RowState,
    judged: NDArray[np.bool_],
    median: FloatArray,
    sigma: FloatArray,
    excess: FloatArray,
    dt: float,
) -> None:
    first = judged & (memory.n_seen == 0)
    memory.typical[first] = sigma[first]
    memory.centre[first] = median[first]
    later = judged & ~first
    warm = 1.0 / (memory.n_seen[later] + 1.0)
    slow = np.maximum(warm, min(1.0 / TYPICAL_SAMPLES, dt / TYPICAL_S))
    memory.typical[later] += slow * (sigma[later] - memory.typical[later])
    memory.centre[later] += np.maximum(warm, min(1.0 / PHASE_SAMPLES, dt / PHASE_S)) * (
        median[later] - memory.centre[later]
    )
    known = judged & np.isfinite(excess)
    rate = np.maximum(1.0 / (memory.n_seen[known] + 1.0), min(1.0 / TYPICAL_SAMPLES, dt / TYPICAL_S))
    memory.tail[known] += rate * (np.clip(excess[known], 1.0, 20.0) - memory.tail[known])
    memory.n_seen[judged] += 1


def by_row(of_rows: FloatArray, rows: NDArray[np.int64]) -> FloatArray:
    """Return for each cell what its row has, NaN for cells without a group.

    Parameters
    ----------
    of_rows : ndarray of shape (n_rows,)
        One number per row.
    rows : ndarray of shape (n,)
        Row of each cell, -1 for none.
    """
    return np.append(of_rows, np.nan).take(rows)  # -1 is where the NaN stands


def nearer_zero(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the one that is nearer to zero where both have the same sign, else 0; NaN where one is."""
    return np.asarray(np.maximum(np.minimum(a, b), 0.0) + np.minimum(np.maximum(a, b), 0.0))


def scores(values: FloatArray, stats: RowStats, layout: Layout) -> FloatArray:
    """Signed robust z-score of each cell against its peers.

    A cell that is compared both with all members and with its own slot gets the smaller
    of the two scores when they agree in sign, else 0: it must differ from both.

    Returns
    -------
    ndarray of shape (n_cells,)
        NaN where there is no value or no judged group.
    """
    rows = layout.row_of_cell
    z = (values - by_row(stats.median, rows)) / by_row(stats.scale, rows)
    cells = layout.slot_cells
    if not len(cells):
        return np.asarray(z)
    rows, whole = layout.slot_row_of_cell.take(cells), z.take(cells)
    slot = (values.take(cells) - by_row(stats.median, rows)) / by_row(stats.scale, rows)
    agreed = nearer_zero(whole, slot)
    lacks = np.flatnonzero(~(np.isfinite(whole) & np.isfinite(slot)))
    agreed[lacks] = np.where(np.isfinite(whole[lacks]), whole[lacks], slot[lacks])
    z[cells] = agreed
    return np.asarray(z)


__all__ = ["Floors", "RowState", "RowStats", "grow", "row_stats", "scores"]

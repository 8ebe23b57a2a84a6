"""Rivals after commercial outlier monitors: MAD and DBSCAN over a window, 1-D DBSCAN per timestamp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect.matrix import Bools, CaseMatrix, Floats, flags_of_cells
from benchmarks.detect.rivals_rules import (
    EVERY,
    FOUR_MINUTES,
    TEN_MINUTES,
    Setting,
    chosen_cells,
    lasting_above,
    median_of,
)
from detector.evaluation.model import Flag
from grouping.layout import Block

TWO_MINUTES = 120.0
PCT = (0.1, 0.2, 0.3, 0.6, 0.9, 1.0)
SCALED = 0.01
"""The scaled forms take at least this share of the median as the deviation: theirs is not published."""

NEAREST_TOLERANCE = 2.0
"""Below this tolerance the cluster around the median series need not be in one piece."""


class Windows(NamedTuple):
    """Where windows end, how long they are and how often one is looked at, in evaluations."""

    ends: range
    length: int
    every: int


def windows_of(matrix: CaseMatrix) -> Windows:
    """Return windows of ten minutes, one every two minutes."""
    length = matrix.ticks(TEN_MINUTES)
    every = max(1, round(TWO_MINUTES / matrix.step_s))
    return Windows(range(length, len(matrix.times) + 1, every), length, every)


class Looks(NamedTuple):
    """What monitors computed at each look; all have the shape (n_looks, n_cells).

    Parameters
    ----------
    apart
        Deviation or distance of the member; one entry per pct for MAD.
    plain, scaled
        What a tolerance of one allows.
    """

    apart: tuple[Floats, ...]
    plain: Floats
    scaled: Floats


def _spread(matrix: CaseMatrix, odd: Bools) -> Bools:
    """Hold what a look found until the next one."""
    windows = windows_of(matrix)
    alarmed = np.zeros(matrix.values.shape, dtype=bool)
    for found, end in zip(odd, windows.ends, strict=True):
        alarmed[end - 1 : end - 1 + windows.every] = found
    return alarmed


def _looks(matrix: CaseMatrix, n: int, look: Callable[[Block, Floats], tuple[Floats, ...]]) -> list[Floats]:
    """Apply `look` to every window of every block: (rows, members, samples) to n arrays (rows, members)."""
    windows = windows_of(matrix)
    out = [np.full((len(windows.ends), matrix.values.shape[1]), np.nan, np.float32) for _ in range(n)]
    with np.errstate(all="ignore"):
        for block, values in matrix.groups():
            for i, end in enumerate(windows.ends):
                points = values[end - windows.length : end].transpose(1, 2, 0)
                for target, result in zip(out, look(block, points), strict=True):
                    flat = np.broadcast_to(result, points.shape[:2]).reshape(-1)
                    target[i, block.cells] = flat[block.positions]
    return out


@dataclass(frozen=True, slots=True)
class DatadogMad:
    """MAD outliers: tolerance for a sample, pct of samples of the window for a member.

    Median and MAD are those of all samples of all members in the window of ten minutes, as
    published, so that members that do the same a little later are not outliers.
    """

    name: str = "MAD (tolerance, pct)"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, tolerance, pct, scaled."""
        return tuple(
            (which, tolerance, pct, scaled)
            for which in EVERY
            for tolerance in (2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
            for pct in PCT
            for scaled in (False, True)
        )

    def prepare(self, matrix: CaseMatrix) -> Looks:
        """Compute for each pct the deviation that this share of the samples exceeds."""
        *apart, plain, scaled = _looks(matrix, len(PCT) + 2, _pooled)
        return Looks(tuple(apart), plain, scaled)

    def flags(self, matrix: CaseMatrix, prepared: Looks, setting: Setting) -> list[Flag]:
        """Compare with the tolerance."""
        which, tolerance, pct, scaled = setting
        allowed = prepared.scaled if scaled else prepared.plain
        odd = prepared.apart[PCT.index(pct)] > tolerance * allowed
        return flags_of_cells(matrix, _spread(matrix, odd & chosen_cells(matrix, which)))


def _pooled(_block: Block, points: Floats) -> tuple[Floats, ...]:
    n_rows, _, n_samples = points.shape
    middle = median_of(points.reshape(n_rows, -1))
    apart = np.abs(points - middle[:, :, None])
    spread = 1.4826 * median_of(apart.reshape(n_rows, -1))
    ordered = np.sort(np.where(np.isfinite(apart), apart, -1.0), axis=2)
    shares = [ordered[:, :, n_samples - max(1, int(np.ceil(pct * n_samples - 1e-9)))] for pct in PCT]
    tiny = 1e-6 * np.abs(middle) + 1e-9
    return (*shares, np.maximum(spread, tiny), np.maximum(spread, SCALED * np.abs(middle) + 1e-9))


@dataclass(frozen=True, slots=True)
class DatadogDbscan:
    """DBSCAN outliers: a member is a point of as many dimensions as the window has samples.

    The radius is the median distance to the median series times the tolerance; every member
    that no chain of steps within the radius joins to the largest cluster is an outlier. From
    a tolerance of two on, the half of the members nearest to the median series is in one cluster.
    """

    name: str = "DBSCAN (tolerance)"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, tolerance, scaled."""
        return tuple(
            (which, tolerance, scaled)
            for which in EVERY
            for tolerance in (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 200.0, 1000.0)
            for scaled in (False, True)
        )

    def prepare(self, matrix: CaseMatrix) -> Looks:
        """Compute the radius at which each member joins the cluster."""
        apart, plain, scaled = _looks(matrix, 3, _joining)
        return Looks((apart,), plain, scaled)

    def flags(self, matrix: CaseMatrix, prepared: Looks, setting: Setting) -> list[Flag]:
        """Compare with the radius."""
        which, tolerance, scaled = setting
        odd = prepared.apart[0] > tolerance * (prepared.scaled if scaled else prepared.plain)
        return flags_of_cells(matrix, _spread(matrix, odd & chosen_cells(matrix, which)))


def _joining(_block: Block, points: Floats) -> tuple[Floats, ...]:
    """Return the radius at which a member joins, and the radius of a tolerance of one."""
    there = np.isfinite(points)
    series = median_of(points.transpose(0, 2, 1)).transpose(0, 2, 1)
    apart = np.sqrt(np.sum(np.where(there, (points - series) ** 2, 0), axis=2))
    apart[there.mean(axis=2) < 0.8] = np.nan
    middle = median_of(apart)
    size = np.sqrt(np.nansum(series**2, axis=2))
    plain = np.maximum(middle, 1e-6 * size + 1e-9)
    scaled = np.maximum(middle, SCALED * size + 1e-9)
    far = apart > NEAREST_TOLERANCE * plain
    joins = np.where(far, apart, 0).astype(np.float32)
    for row in np.flatnonzero(far.any(axis=1)).tolist():
        waiting = np.flatnonzero(far[row])
        filled = np.where(there[row], points[row], series[row])
        inside = filled[np.flatnonzero(apart[row] <= NEAREST_TOLERANCE * plain[row])]
        joins[row, waiting] = _steps(inside, filled[waiting])
    return joins, plain, scaled


def _steps(inside: Floats, waiting: Floats) -> Floats:
    """Return the smallest radius at which each waiting point is joined to the cluster by steps."""
    nearest = np.sqrt(np.maximum(_squares(waiting, inside).min(axis=1), 0))
    if len(waiting) == 1:
        return np.asarray(nearest)
    between = np.sqrt(np.maximum(_squares(waiting, waiting), 0))
    joins = np.zeros(len(waiting), dtype=np.float32)
    best, radius = nearest.copy(), 0.0
    for _ in range(len(waiting)):
        k = int(np.argmin(best))
        radius = max(radius, float(best[k]))
        joins[k] = radius
        best = np.where(np.isinf(best), np.inf, np.minimum(best, between[k]))
        best[k] = np.inf
    return joins


def _squares(a: Floats, b: Floats) -> NDArray[np.float64]:
    one, two = a.astype(np.float64), b.astype(np.float64)
    return np.asarray((one**2).sum(axis=1)[:, None] + (two**2).sum(axis=1) - 2 * one @ two.T)


@dataclass(frozen=True, slots=True)
class OneDimensional:
    """DBSCAN of one dimension per timestamp: from the middle outward as long as gaps are small.

    The radius is (1 - sensitivity) * span * 1.1, the span being that of the data so far. The
    cluster must hold more than half of the members; without one nobody is odd, though the
    original then calls everybody odd. Made an alarm by four minutes of it.
    """

    name: str = "1-D DBSCAN per timestamp"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, sensitivity."""
        return tuple(
            (w, s) for w in EVERY for s in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
        )

    def prepare(self, matrix: CaseMatrix) -> tuple[Floats, Floats]:
        """Compute the share of the span that joins each member, and that joins a majority."""
        joins, majority = (np.full(matrix.values.shape, np.nan, np.float32) for _ in range(2))
        with np.errstate(all="ignore"):
            for block, values in matrix.groups():
                for target, result in zip((joins, majority), _walked(values), strict=True):
                    flat = np.broadcast_to(result, values.shape).reshape(len(values), -1)
                    target[:, block.cells] = flat[:, block.positions]
        return joins, majority

    def flags(self, matrix: CaseMatrix, prepared: tuple[Floats, Floats], setting: Setting) -> list[Flag]:
        """Compare the shares with the sensitivity."""
        which, sensitivity = setting
        radius = (1 - sensitivity) * 1.1
        joins, majority = prepared
        outside = np.where(majority <= radius, joins, 0)
        n_ticks = matrix.ticks(FOUR_MINUTES)
        return flags_of_cells(matrix, lasting_above(outside, radius, chosen_cells(matrix, which), n_ticks))


def _walked(x: Floats) -> tuple[Floats, Floats]:
    """Return the widest gap between each member and the middle over the span so far.

    The second is the gap within which more than half of the members are.
    """
    known = np.isfinite(x)
    high = np.maximum.accumulate(np.where(known, x, -np.inf).max(axis=-1), axis=0)
    low = np.minimum.accumulate(np.where(known, x, np.inf).min(axis=-1), axis=0)
    span = (high - low)[..., None]
    order = np.argsort(x, axis=-1)
    ordered = np.take_along_axis(x, order, axis=-1)
    count = known.sum(axis=-1, keepdims=True)
    position = np.arange(x.shape[-1])
    middle = np.clip((count - 1) // 2, 0, None)
    gaps = np.diff(ordered, axis=-1)
    none = np.zeros_like(ordered[..., :1])
    above = np.where(position > middle, np.concatenate([none, gaps], axis=-1), 0)
    below = np.where(position < middle, np.concatenate([gaps, none], axis=-1), 0)
    up = np.maximum.accumulate(above, axis=-1)
    down = np.maximum.accumulate(below[..., ::-1], axis=-1)[..., ::-1]
    widest = np.where(position < count, np.maximum(up, down), np.nan)
    half = np.clip(count // 2, 0, x.shape[-1] - 1)
    majority = np.take_along_axis(np.sort(widest, axis=-1), half, axis=-1)
    result = np.full(x.shape, np.nan, dtype=np.float32)
    np.put_along_axis(result, order, (widest / span).astype(np.float32), axis=-1)
    return result, (majority / span).astype(np.float32)


def density_rivals() -> tuple[DatadogMad, DatadogDbscan, OneDimensional]:
    """Return the outlier monitors."""
    return DatadogMad(), DatadogDbscan(), OneDimensional()

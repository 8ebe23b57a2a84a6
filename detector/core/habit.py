"""Each member's habitual offset from its peers: a hot slot or a rank 0 is no fault, a change of it is.

The offset is an exponentially weighted mean of the member's own z-score, its spread the
weighted mean absolute residual. What deviates now is not learnt, or a fault would become a habit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import grow
from detector.core.peers import nearer_zero
from detector.outcome import DataQuality
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]

WARM_UP_SAMPLES = 20
"""Samples after which an offset counts as known; before that a member is not judged by its peers."""

HABIT_SAMPLES = 120
"""A habit is the mean of at least about this many samples, however far apart they are."""

CLIP = 3.0
"""Residuals are clipped to this many spreads before they are learnt."""

ABS_TO_SIGMA = 1.2533
"""Mean absolute deviation of normal data times this is its standard deviation."""

TOLD_FROM = 10.0
"""Habitual offset, in robust standard deviations, from which it is told: it may be an old fault."""

TOLD_WEIGHT = 0.7
"""Metrics with a smaller vote are not told."""

MAX_TOLD = 20


def learning_rate(n: NDArray[np.floating[Any]], least: int, *, dt: float, habit_s: float) -> FloatArray:
    """Return the weight of a new value: the mean of all at first, later an exponential mean.

    Parameters
    ----------
    n : ndarray
        Values in it with the new one.
    least
        The mean is of at least about this many values, however far apart they are.
    dt, habit_s
        Seconds since the value before, and time constant.
    """
    return np.asarray(np.maximum(1.0 / n, min(1.0 / least, dt / habit_s)))


def add_where(total: FloatArray, amount: FloatArray, chosen: NDArray[np.bool_]) -> None:
    """Add to the chosen ones in place: as nearly all are, adding to all and taking back is faster."""
    others = np.flatnonzero(~chosen)
    before = total.take(others)
    total += amount
    total[others] = before


@dataclass(slots=True)
class Habit:
    """Offset and spread of each cell's z-score.

    Parameters
    ----------
    offset : ndarray of shape (n_cells,)
        Usual z-score.
    spread : ndarray of shape (n_cells,)
        Usual absolute residual, in z units.
    n_seen : ndarray of shape (n_cells,)
        Samples learnt from.
    """

    offset: FloatArray = field(default_factory=lambda: np.zeros(0))
    spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_seen: FloatArray = field(default_factory=lambda: np.zeros(0))

    def grow_to(self, size: int) -> None:
        """Make room for new cells, which have no habit yet."""
        self.offset = grow(self.offset, size, 0.0)  # type: ignore[assignment]
        self.spread = grow(self.spread, size, 0.0)  # type: ignore[assignment]
        self.n_seen = grow(self.n_seen, size, 0.0)  # type: ignore[assignment]

    def excess(self, z: FloatArray) -> FloatArray:
        """Return how far each cell deviates from its peers *and* from its own habit.

        Parameters
        ----------
        z : ndarray of shape (n_cells,)
            Robust z-scores against peers, NaN where unknown.

        Returns
        -------
        ndarray of shape (n_cells,)
            Signed; the smaller of the two deviations where they agree in sign, else 0.
            NaN where z is, and during warm-up.
        """
        change = (z - self.offset) / np.maximum(1.0, self.spread * ABS_TO_SIGMA)
        result = nearer_zero(z, change)
        result[np.flatnonzero(self.n_seen < WARM_UP_SAMPLES)] = np.nan
        return result

    def learn(self, z: FloatArray, deviating: NDArray[np.bool_], *, dt: float, habit_s: float) -> None:
        """Fold the newest z-scores in, except where a cell deviates now."""
        chosen = np.isfinite(z) & ~deviating
        rate = learning_rate(self.n_seen + 1.0, HABIT_SAMPLES, dt=dt, habit_s=habit_s)
        limit = CLIP * np.maximum(1.0, self.spread * ABS_TO_SIGMA)
        limit[np.flatnonzero(self.n_seen < WARM_UP_SAMPLES)] = np.inf
        residual = np.minimum(np.maximum(z - self.offset, -limit), limit)
        size = np.abs(residual)
        size[np.flatnonzero(self.n_seen == 0)] = 0.0
        add_where(self.offset, rate * residual, chosen)
        add_where(self.spread, rate * (size - self.spread), chosen)
        self.n_seen += chosen


def habit_findings(habit: Habit, index: SeriesIndex, weight: FloatArray, at: float) -> list[DataQuality]:
    """Tell which members are far from their peers by habit, strongest first, one per node and metric.

    A fault that was there before the first sample looks just like a habit, so it must be seen somewhere.

    Parameters
    ----------
    habit
        Learnt offsets.
    index
        Cells and names.
    weight : ndarray of shape (n_cells,)
        Share of a vote of each cell.
    at
        Evaluation time, epoch seconds.
    """
    known = (habit.n_seen >= WARM_UP_SAMPLES) & (weight >= TOLD_WEIGHT)
    far = np.flatnonzero(known & (np.abs(habit.offset) >= TOLD_FROM))
    found: dict[tuple[str, str], DataQuality] = {}
    for cell in far[np.argsort(-np.abs(habit.offset[far]), kind="stable")].tolist():
        node = index.nodes[index.cell_node[cell]]
        name = index.signals[index.cell_signal[cell]].spec.name
        if (node, name) in found:
            continue
        part = index.parts[index.cell_part[cell]]
        where = f"{name} on {part}" if part else name
        far_by = f"{habit.offset[cell]:.0f} robust deviations from its peers by habit"
        text = f"{where} is {far_by}: no evidence, but worth a look"
        found[node, name] = DataQuality("habit", node, at, text)
        if len(found) >= MAX_TOLD:
            break
    return list(found.values())

"""How long a deviation has lasted, so that flapping is found and a single spike is not.

A leaking clock per cell: it gains the time between evaluations while the cell deviates and
loses a part of it while it does not. A missing sample changes nothing for a while, then resets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import grow

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LEAK = 0.5
"""Seconds lost per second without a deviation: 90 s on and 60 s off still gains."""

MEMORY = 0.3
"""Weight of the newest evaluation in a deviation's strength."""


@dataclass(slots=True)
class Continuity:
    """Dwell of each cell's deviation.

    Parameters
    ----------
    dwell_s : ndarray of shape (n_cells,)
        Leaky duration of the deviation, seconds.
    strength : ndarray of shape (n_cells,)
        Smoothed signed score while deviating, 0 otherwise.
    since : ndarray of shape (n_cells,)
        Epoch seconds at which the present deviation began, NaN for none.
    unknown_s : ndarray of shape (n_cells,)
        Seconds without a sample in a row.
    """

    dwell_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    strength: FloatArray = field(default_factory=lambda: np.zeros(0))
    since: FloatArray = field(default_factory=lambda: np.zeros(0))
    unknown_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    def grow_to(self, size: int) -> None:
        """Make room for new cells."""
        self.dwell_s = grow(self.dwell_s, size, 0.0)  # type: ignore[assignment]
        self.strength = grow(self.strength, size, 0.0)  # type: ignore[assignment]
        self.since = grow(self.since, size, np.nan)  # type: ignore[assignment]
        self.unknown_s = grow(self.unknown_s, size, 0.0)  # type: ignore[assignment]

    def step(
        self,
        score: FloatArray,
        threshold: float | FloatArray,
        *,
        at: float,
        dt: float,
        full_s: float,
        max_gap_s: float,
    ) -> BoolArray:
        """Advance all clocks by one evaluation.

        Parameters
        ----------
        score : ndarray of shape (n_cells,)
            Signed deviation; NaN means unknown, and freezes the clock.
        threshold
            Absolute score from which a cell deviates; one for all, or of shape (n_cells,).
        at, dt
            Evaluation time and seconds since the one before.
        full_s
            Dwell at which a deviation counts in full; the clock stops there.
        max_gap_s
            Unknown for longer than this resets the clock.

        Returns
        -------
        ndarray of shape (n_cells,), bool
            Cells that deviate now.
        """
        known = np.isfinite(score)
        size = np.where(known, np.abs(np.where(known, score, 0.0)), 0.0)
        deviating = size >= threshold
        turned = deviating & (self.strength * np.where(known, score, 0.0) < 0)
        self.dwell_s[turned] = 0.0
        self.since[turned] = np.nan
        self.dwell_s[deviating] = np.minimum(self.dwell_s[deviating] + dt, full_s)
        quiet = known & ~deviating & (self.dwell_s > 0)
        self.dwell_s[quiet] = np.maximum(0.0, self.dwell_s[quiet] - LEAK * dt)
        self.unknown_s = np.where(known, 0.0, self.unknown_s + dt)
        lost = (self.unknown_s > max_gap_s) & (self.dwell_s > 0)
        self.dwell_s[lost] = 0.0
        ended = (self.dwell_s == 0.0) & ~deviating
        self.strength[ended] = 0.0
        self.since[ended] = np.nan
        begun = deviating & np.isnan(self.since)
        self.since[begun] = at
        self.strength[begun | turned] = score[begun | turned]
        going_on = deviating & ~begun & ~turned
        self.strength[going_on] += MEMORY * (score[going_on] - self.strength[going_on])
        return deviating

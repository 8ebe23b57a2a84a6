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

    def forget(self, chosen: BoolArray) -> None:
        """Reset the clocks of the chosen cells."""
        self.dwell_s[chosen] = self.strength[chosen] = self.unknown_s[chosen] = 0.0
        self.since[chosen] = np.nan

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
        deviating = np.asarray(known & (np.abs(score) >= threshold))
        self.unknown_s += dt
        self.unknown_s *= ~known
        running = (self.dwell_s > 0) | (self.strength != 0) | ~np.isnan(self.since)
        cells = np.flatnonzero(deviating | running)
        if len(cells):
            self._advance(cells, score[cells], known[cells], deviating[cells], at, dt, full_s, max_gap_s)
        return deviating

    def _advance(
        self,
        cells: NDArray[np.int64],
        score: FloatArray,
        known: BoolArray,
        deviating: BoolArray,
        at: float,
        dt: float,
        full_s: float,
        max_gap_s: float,
    ) -> None:
        """Advance the clocks of the cells that deviate or did; all arrays are of shape (n_cells,)."""
        dwell, strength, since = self.dwell_s[cells], self.strength[cells], self.since[cells]
        turned = deviating & (strength * np.where(known, score, 0.0) < 0)
        dwell[turned] = 0.0
        since[turned] = np.nan
        dwell[deviating] = np.minimum(dwell[deviating] + dt, full_s)
        quiet = known & ~deviating & (dwell > 0)
        dwell[quiet] = np.maximum(0.0, dwell[quiet] - LEAK * dt)
        dwell[(self.unknown_s[cells] > max_gap_s) & (dwell > 0)] = 0.0
        ended = (dwell == 0.0) & ~deviating
        strength[ended] = 0.0
        since[ended] = np.nan
        begun = deviating & np.isnan(since)
        since[begun] = at
        strength[begun | turned] = score[begun | turned]
        going_on = deviating & ~begun & ~turned
        strength[going_on] += MEMORY * (score[going_on] - strength[going_on])
        self.dwell_s[cells], self.strength[cells], self.since[cells] = dwell, strength, since

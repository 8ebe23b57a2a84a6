"""Changes of habit that are too small to name a node at one moment, and do not go away: they add up.

What exceeds a reference is summed over time and sinks again below it, never under zero (a one-sided CUSUM:
E. S. Page, Continuous inspection schemes, Biometrika 41, 1954, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import grow

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

REFERENCE = 0.7
"""Changes of habit, in node thresholds, above which the sum rises: sound nodes seldom stay there."""

ENOUGH = 0.125
"""Sum, in node thresholds times full continuities, that names a node: by default 0.8 for five minutes or
0.75 for ten."""

AT_MOST = 2.0
"""The sum never rises over this many times what is enough, so that it sinks again when the cause is gone."""


@dataclass(slots=True)
class AddedUp:
    """The sum of each node.

    Parameters
    ----------
    total_s : ndarray of shape (n_nodes,)
        Node thresholds times seconds.
    """

    total_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    def step(self, moved: FloatArray, *, dt: float, full_s: float) -> BoolArray:
        """Take in one evaluation.

        Parameters
        ----------
        moved : ndarray of shape (n_nodes,)
            Changes of habit alone, 1 is the node threshold; NaN where a node is not judged, which changes
            nothing.
        dt, full_s
            Seconds since the evaluation before, and full continuity.

        Returns
        -------
        ndarray of shape (n_nodes,), bool
            Nodes that are named by it now.
        """
        self.total_s = np.asarray(grow(self.total_s, len(moved), 0.0))
        over = np.nan_to_num(moved, nan=REFERENCE) - REFERENCE
        self.total_s = np.clip(self.total_s + over * dt, 0.0, AT_MOST * ENOUGH * full_s)
        with np.errstate(invalid="ignore"):
            return np.asarray((self.total_s >= ENOUGH * full_s) & (moved >= REFERENCE))

    def forget(self, node: int) -> None:
        """Begin anew for a node that was repaired."""
        self.total_s[node : node + 1] = 0.0

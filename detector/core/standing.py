"""Faults that were there before the first sample: nobody knows what is usual for the node, only its peers.

A single signal that always differs is a hot slot or a rank 0. A node of which most signals have differed
from its peers, plainly and in nearly every sample since its first one, is not like them at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import grow

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

PLAINLY = 5.0
"""A sample differs plainly when it is this many uncorrected scales from its peers."""

NEARLY_ALWAYS = 0.9
"""Share of a cell's samples that must differ plainly."""

MANY = 0.4
"""Share of a node's signals that must differ so."""

STANDS_OUT = 1.25
"""It must be this many times the share of the next node: who waits for a slow node differs too."""

ALMOST = 0.99
"""Score of a node that differs and does not stand out."""

LEAST_SIGNALS = 8
"""Nodes with fewer signals are not judged this way."""

FADES_S = 86_400.0
"""Older counts fade with this time constant, so that a repaired node is clear within hours, not days."""

LEAST_SAMPLES, LEAST_S = 20, 900.0
"""Samples, and seconds, for which a cell must have been seen."""


@dataclass(slots=True)
class Standing:
    """How often each cell differed plainly from its peers.

    Parameters
    ----------
    far, seen, seen_s : ndarray of shape (n_cells,)
        Samples that differed plainly, samples compared (older ones fade), and seconds in which they lie.
    """

    far: FloatArray = field(default_factory=lambda: np.zeros(0))
    seen: FloatArray = field(default_factory=lambda: np.zeros(0))
    seen_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    def grow_to(self, size: int) -> None:
        """Make room for new cells."""
        for name in self.__slots__:
            setattr(self, name, grow(getattr(self, name), size, 0.0))

    def forget(self, cells: BoolArray) -> None:
        """Begin anew for the chosen cells."""
        for name in self.__slots__:
            getattr(self, name)[cells] = 0.0

    def step(self, plain: FloatArray, dt: float) -> None:
        """Count one evaluation.

        Parameters
        ----------
        plain : ndarray of shape (n_cells,)
            Distance to the peers' median in uncorrected scales, NaN for unknown.
        dt
            Seconds since the evaluation before.
        """
        known = np.flatnonzero(np.isfinite(plain))
        old = known[self.seen_s.take(known) > FADES_S]
        self.far[old] *= max(0.0, 1.0 - dt / FADES_S)
        self.seen[old] *= max(0.0, 1.0 - dt / FADES_S)
        self.far[known] += np.abs(plain.take(known)) >= PLAINLY
        self.seen[known] += 1.0
        self.seen_s[known] += dt

    def _judged(self) -> BoolArray:
        return np.asarray((self.seen >= LEAST_SAMPLES) & (self.seen_s >= LEAST_S))

    def cells(self) -> BoolArray:
        """Tell which cells have differed plainly in nearly every sample, shape (n_cells,)."""
        return np.asarray(self._judged() & (self.far >= NEARLY_ALWAYS * self.seen))

    def scores(
        self, node: IntArray, pool_of: NDArray[np.int32], heard: BoolArray | None = None
    ) -> FloatArray:
        """Return one score per node: the share of its signals that differ for good, over `MANY`.

        Parameters
        ----------
        node : ndarray of shape (n_cells,)
            Number of the node of each cell.
        pool_of : ndarray of shape (n_nodes,)
            Number of the pool of each node.
        heard : ndarray of shape (n_cells,), bool
            Cells that count, None for all.

        Returns
        -------
        ndarray of shape (n_nodes,)
            1 is the threshold; 0 for nodes with too few signals.
        """
        n_nodes = len(pool_of)
        judged = self._judged()
        standing = self.cells()
        if heard is not None:
            judged, standing = judged & heard, standing & heard
        if not standing.any():
            return np.zeros(n_nodes)
        count = np.bincount(node[judged], minlength=n_nodes)
        share = np.bincount(node[standing], minlength=n_nodes) / np.maximum(count, 1)
        score = np.where(count >= LEAST_SIGNALS, share, 0.0) / MANY
        for pool in np.unique(pool_of[score >= 1.0]).tolist():
            peers = np.flatnonzero(pool_of == pool)
            bar = STANDS_OUT * np.sort(score[peers])[-2] if len(peers) > 1 else np.inf
            score[peers] = np.where(score[peers] >= bar, score[peers], np.minimum(score[peers], ALMOST))
        return score

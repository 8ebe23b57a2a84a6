"""Two exporters that measure one thing: a deviation that only one of them sees is a matter of the reading."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.thresholds import of_chosen
from detector.outcome import DataQuality
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ORDINARY_SHARE = 0.5
"""A twin whose score is below this share of the threshold says that the member is ordinary."""

MAX_FINDINGS = 100


@dataclass(slots=True)
class Twins:
    """Which cell measures the same as which other one; grows with the index.

    Parameters
    ----------
    other : ndarray of shape (n_cells,)
        Cell of the twin metric for the same node and part, -1 for none.
    disputed_s : ndarray of shape (n_cells,)
        Seconds for which a deviation has been denied by the twin.
    since : ndarray of shape (n_cells,)
        Epoch seconds at which that began, NaN for never.
    """

    other: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    disputed_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    since: FloatArray = field(default_factory=lambda: np.zeros(0))
    _paired: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _cell_of: dict[tuple[str, str, bool, int, int], int] = field(default_factory=dict)

    def _grow_to(self, index: SeriesIndex) -> None:
        start, size = len(self.other), index.n_cells
        if start == size:
            return
        added = size - start
        self.other = np.concatenate([self.other, np.full(added, -1, dtype=np.int64)])
        self.disputed_s = np.concatenate([self.disputed_s, np.zeros(added)])
        self.since = np.concatenate([self.since, np.full(added, np.nan)])
        has_twin = np.array([signal.spec.twin is not None for signal in index.signals], dtype=bool)
        for cell in (start + np.flatnonzero(has_twin.take(index.cell_signal[start:]))).tolist():
            signal = index.signals[index.cell_signal[cell]]
            spec = signal.spec
            rest = (signal.role, signal.per_node, int(index.cell_node[cell]), int(index.cell_part[cell]))
            self._cell_of[(spec.name, *rest)] = cell
            twin = self._cell_of.get((spec.twin or "", *rest), -1)
            if twin >= 0:
                self.other[cell], self.other[twin] = twin, cell
        self._paired = np.flatnonzero(self.other >= 0)

    def settle(
        self, index: SeriesIndex, score: FloatArray, threshold: float | FloatArray, *, at: float, dt: float
    ) -> FloatArray:
        """Return the scores with those unknown that a twin denies.

        Parameters
        ----------
        index
            All cells.
        score : ndarray of shape (n_cells,)
            Signed deviation, NaN for unknown.
        threshold
            Absolute score from which a cell deviates; one for all, or of shape (n_cells,).
        at, dt
            Evaluation time and seconds since the one before.
        """
        self._grow_to(index)
        denied, agreed = self._denied(score, threshold)
        if not len(denied) and not self.disputed_s.any():
            return score
        self.disputed_s[agreed] = 0.0
        self.since[agreed] = np.nan
        self.since[denied] = np.where(np.isnan(self.since[denied]), at, self.since[denied])
        self.disputed_s[denied] += dt
        return _unknown(score, denied)

    def undenied(self, score: FloatArray, threshold: float | FloatArray) -> FloatArray:
        """Return further scores of the cells last settled, those unknown that a twin denies."""
        return _unknown(score, self._denied(score, threshold)[0])

    def _denied(self, score: FloatArray, threshold: float | FloatArray) -> tuple[IntArray, IntArray]:
        """Return cells whose deviation the twin denies, and those that have no dispute."""
        paired, other = self._paired, self.other.take(self._paired)
        mine, its = np.abs(score.take(paired)), np.abs(score.take(other))
        least, ordinary = of_chosen(threshold, paired), ORDINARY_SHARE * of_chosen(threshold, other)
        with np.errstate(invalid="ignore"):
            denied = paired[(mine >= least) & (its < ordinary)]
            agreed = paired[(mine < least) | (its >= ordinary)]
        return denied, agreed

    def findings(self, index: SeriesIndex, lasting_s: float) -> list[DataQuality]:
        """Tell of disputes that have lasted, one for each metric and part."""
        found = []
        for cell in np.flatnonzero(self.disputed_s >= lasting_s)[:MAX_FINDINGS].tolist():
            spec = index.signals[index.cell_signal[cell]].spec
            part = index.parts[index.cell_part[cell]] or "the node's mean"
            text = f"{spec.name} of {part} is unlike its peers while {spec.twin} of it is like them"
            found.append(
                DataQuality(
                    "twins_disagree", index.nodes[index.cell_node[cell]], float(self.since[cell]), text
                )
            )
        return found


def _unknown(score: FloatArray, cells: IntArray) -> FloatArray:
    if not len(cells):
        return score
    settled = score.copy()
    settled[cells] = np.nan
    return settled

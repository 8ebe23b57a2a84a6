"""Which parts of a node are of a kind: told by metrics that the catalog marks as dividing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from grouping.index import SeriesIndex

CONFIRMED_AFTER = 3
"""Evaluations in a row that must agree before known classes change."""


@dataclass(slots=True)
class PartClasses:
    """Classes of parts over time.

    Parameters
    ----------
    classes : ndarray of shape (n_parts,), int64
        Class of each part; 0 where nothing tells parts apart.
    """

    classes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _proposed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _agreed: int = 0
    _dividing: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, dtype=np.int64))

    def step(self, index: SeriesIndex, value: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the classes after this evaluation.

        Parameters
        ----------
        index
            Cells and parts.
        value : ndarray of shape (n_cells,)
            Newest values, NaN for none.

        Notes
        -----
        A part's value is the median over nodes, so one node's slow link makes no new class.
        """
        if self._dividing[0] != index.n_cells:
            divides = np.array([s.spec.divides and not s.per_node for s in index.signals], dtype=bool)
            self._dividing = index.n_cells, np.flatnonzero(divides.take(index.cell_signal))
        cells = self._dividing[1]
        if not len(cells):
            return self.classes
        cells = cells[np.isfinite(value[cells])]
        found = np.zeros(len(index.parts), dtype=np.int64)
        found[: len(self.classes)] = self.classes
        part, known = index.cell_part[cells], value[cells]
        order = np.lexsort((known, part))
        part, known = part[order], known[order]
        parts, start, count = np.unique(part, return_index=True, return_counts=True)
        low, high = known[start + (count - 1) // 2], known[start + count // 2]
        found[parts] = np.unique((low + high) / 2.0, return_inverse=True)[1]
        if np.array_equal(found, self._proposed):
            self._agreed += 1
        else:
            self._proposed, self._agreed = found, 1
        if not self.classes.any() or self._agreed >= CONFIRMED_AFTER:
            self.classes = found
        return self.classes

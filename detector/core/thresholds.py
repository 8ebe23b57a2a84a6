"""Thresholds learnt on healthy history, in place of one for all signals; without them nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grouping.index import Signal

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

ANY_ROLE = "*"
"""Role of an entry that holds for all roles of a metric which have none of their own."""


def of_chosen(threshold: float | FloatArray, chosen: NDArray[np.integer[Any]]) -> float | FloatArray:
    """Return the thresholds of the chosen cells; one for all stays one for all."""
    return threshold[chosen] if isinstance(threshold, np.ndarray) else threshold


@dataclass(frozen=True, slots=True, order=True)
class SignalKey:
    """Name of a signal that outlives the process.

    Parameters
    ----------
    metric
        Metric name of the catalog.
    role
        Role label values joined in the catalog's order; `ANY_ROLE` for all.
    per_node
        True for the mean over a node's parts.
    """

    metric: str
    role: str = ""
    per_node: bool = False

    @classmethod
    def of(cls, signal: Signal) -> SignalKey:
        """Return the key of a signal."""
        return cls(signal.spec.name, signal.role, signal.per_node)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What a calibration asks of each signal and of a node.

    Parameters
    ----------
    signals
        Robust z-score at which a signal deviates.
    node
        Peer evidence of a node is divided by this, at least 1.
    floor
        Share of the plain threshold below which no signal goes.
    notes
        What of the calibration is not used, in sentences.
    """

    signals: Mapping[SignalKey, float] = field(default_factory=dict)
    node: float = 1.0
    floor: float = 1.0
    notes: tuple[str, ...] = ()

    def of(self, key: SignalKey, plain: float) -> float:
        """Return the threshold of one signal, `plain` when none was learnt."""
        found = self.signals.get(key)
        if found is None:
            found = self.signals.get(SignalKey(key.metric, ANY_ROLE, key.per_node), plain)
        return max(found, plain * self.floor)


class CellThresholds:
    """The threshold of every cell, computed anew only when cells were added.

    Parameters
    ----------
    thresholds
        What was learnt, None for nothing.
    plain
        Threshold of signals without one of their own.
    """

    def __init__(self, thresholds: Thresholds | None, plain: float) -> None:
        self._thresholds = thresholds if thresholds is not None and thresholds.signals else None
        self._plain = plain
        self._of_signal: list[float] = []
        self._of_cell: FloatArray = np.zeros(0)

    def of_cells(self, signals: list[Signal], cell_signal: IntArray) -> float | FloatArray:
        """Return thresholds of shape (n_cells,), or one number when it is the same for all.

        Parameters
        ----------
        signals
            All signals; grows only.
        cell_signal : ndarray of shape (n_cells,)
            Signal of each cell; grows only.
        """
        learnt = self._thresholds
        if learnt is None:
            return self._plain
        if len(self._of_cell) != len(cell_signal):
            for signal in signals[len(self._of_signal) :]:
                self._of_signal.append(learnt.of(SignalKey.of(signal), self._plain))
            self._of_cell = np.array(self._of_signal)[cell_signal]
        return self._of_cell

"""The one path from samples to verdicts; `serve` and `replay` both run this and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.parameters import Parameters
from detector.outcome import Incident, Outcome


@dataclass(frozen=True, slots=True)
class SeriesView:
    """One member of a signal against its peers over the kept window, for plots.

    Parameters
    ----------
    metric, node, part
        What is shown.
    labels
        Role and part labels.
    times : ndarray of shape (n_ticks,)
        Epoch seconds.
    value, median, low, high : ndarray of shape (n_ticks,)
        The member, the peers' median and the ordinary band; NaN where there is no sample.
    n_peers
        Members compared with at the newest tick.
    """

    metric: str
    node: str
    part: str
    labels: dict[str, str]
    times: NDArray[np.float64]
    value: NDArray[np.float64]
    median: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n_peers: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A peer group as it stands: pool, comparison unit, size, and why it is not judged if so."""

    pool: str
    unit: str
    n_nodes: int
    n_members: int
    n_signals: int
    undetermined: str


class Pipeline:
    """Samples in, verdicts out; all state of a running detection lives here.

    Not thread-safe: one caller at a time. The evaluation time is passed in.
    """

    parameters: Parameters

    def names(self) -> list[str]:
        """Metric names to fetch each tick: the catalog's, its aliases and identity metrics."""
        raise NotImplementedError

    def evaluate(self, batch: object, at: float, *, judge: bool = True) -> Outcome:
        """Take in new samples and say what is suspect at `at`.

        With ``judge=False`` signals are learnt and no incident moves (warm-up on past data).
        """
        raise NotImplementedError

    def groups(self) -> list[GroupSummary]:
        """Peer groups as of the newest evaluation."""
        raise NotImplementedError

    def series_view(self, node: str, metric: str, part: str = "", limit: int = 20) -> list[SeriesView]:
        """Signals of one metric of one node against their peers; empty when unknown."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """What must survive a restart beyond the incidents: habits, pools, expected series."""
        raise NotImplementedError

    def restore(self, blob: bytes | None, incidents: Sequence[Incident]) -> list[str]:
        """Continue from a snapshot and the open incidents; returns notes on what could not be used."""
        raise NotImplementedError

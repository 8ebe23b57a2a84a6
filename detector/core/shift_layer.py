"""The layer of evidence that compares members with their own habit: from samples to cells that count."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from detector.core.fusion import CellWeights, one_sided
from detector.core.judge import ActiveCells, Common, shifted_cells
from detector.core.parameters import Parameters
from detector.core.peers import Floors, RowStats
from detector.core.shift import Shift
from detector.core.twins import Twins
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class ShiftLayer:
    """Changes of habit, and the twins that may deny them.

    Parameters
    ----------
    shift
        Habitual differences, kept by the pipeline's memory.
    twins
        Pairs of the pipeline, which has settled this evaluation's deviations with them.
    n_window
        Samples that a shift must last for.
    """

    def __init__(self, shift: Shift, twins: Twins, n_window: int) -> None:
        self.shift = shift
        self._twins = twins
        self._n_window = n_window

    def step(
        self,
        values: FloatArray,
        stats: RowStats,
        layout: Layout,
        floors: Floors,
        index: SeriesIndex,
        weights: CellWeights,
        parameters: Parameters,
        *,
        fresh_nodes: BoolArray,
        suspects: BoolArray,
        voting: BoolArray,
        befallen: BoolArray,
        threshold: float | FloatArray,
        at: float,
        dt: float,
    ) -> tuple[ActiveCells, Common]:
        """Take in one evaluation.

        Parameters
        ----------
        values : ndarray of shape (n_cells,)
            Newest value per cell, NaN for missing.
        voting : ndarray of shape (n_cells,), bool
            Cells whose changes of habit count.
        fresh_nodes, suspects : ndarray of shape (n_nodes,), bool
            Nodes that are new to their pool, and nodes of which nothing is learnt.
        befallen : ndarray of shape (n_pools,), bool
            Pools that something befalls which no single machine causes: habits count half.

        Returns
        -------
        active, common
            Cells that count against their node, and what nobody is to blame for.
        """
        p, shift = parameters, self.shift
        fresh_start = fresh_nodes.take(index.cell_node)
        found = shift.step(
            values,
            stats,
            layout,
            floors,
            fresh_start,
            befallen,
            min_peers=p.min_peers,
            dt=dt,
            habit_s=p.habit_s,
        )
        counted = one_sided(np.where(voting, found, np.nan), weights.sign)
        counted = self._twins.undenied(counted, threshold)
        over = shift.mark(counted, threshold, at=at, lasted_s=(self._n_window - 1) * p.step_s)
        shift.learn(suspects.take(index.cell_node), dt=dt, habit_s=p.habit_s)
        return shifted_cells(
            counted, shift.since, over, weights, index, layout, p, threshold, at=at, full_s=p.full_s
        )


def together(one: Common, other: Common) -> Common:
    """Merge what two layers found common to many nodes."""
    merged = {pool: (set(nodes), Counter(metrics)) for pool, (nodes, metrics) in one.by_pool.items()}
    for pool, (nodes, metrics) in other.by_pool.items():
        known, counted = merged.setdefault(pool, (set(), Counter()))
        known |= nodes
        counted.update(metrics)
    return Common(merged)

"""Deviating cells, direct signals and absences of each node to one score and one decision."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.absence import AbsenceReport
from detector.core.continuity import Continuity
from detector.core.direct import DirectState
from detector.core.fusion import CellWeights, cell_scores, common_rows, fuse
from detector.core.parameters import Parameters
from detector.core.thresholds import of_chosen
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DIRECT_FURTHER = 0.3
"""Share that direct signals after the strongest one of a node add."""

POINTS_THE_SAME_WAY = 0.5
"""Direct signals and absences from this score on halve the time that peer evidence must have lasted."""

HARD_CAP = 3.0
"""Direct signals and absences together are worth at most this."""


@dataclass(frozen=True, slots=True)
class ActiveCells:
    """Cells that deviate now or did a moment ago, and count.

    Parameters
    ----------
    cell, node, target, signal : ndarray of shape (n_active,)
        What each is.
    score, ramp : ndarray of shape (n_active,)
        Capped score times weight, and the share of the continuity already lasted.
    now : ndarray of shape (n_active,), bool
        True for cells that deviate at this evaluation.
    """

    cell: IntArray
    node: IntArray
    target: IntArray
    signal: IntArray
    score: FloatArray
    ramp: FloatArray
    now: BoolArray

    def only(self, keep: BoolArray) -> ActiveCells:
        """Return the chosen ones."""
        return ActiveCells(
            self.cell[keep],
            self.node[keep],
            self.target[keep],
            self.signal[keep],
            self.score[keep],
            self.ramp[keep],
            self.now[keep],
        )


@dataclass(frozen=True, slots=True)
class Common:
    """Pools in which many nodes deviate together: nodes and signals concerned."""

    by_pool: dict[int, tuple[set[int], Counter[str]]]


def active_cells(
    clock: Continuity,
    deviating: BoolArray,
    weights: CellWeights,
    index: SeriesIndex,
    layout: Layout,
    parameters: Parameters,
    full_s: float,
    threshold: float | FloatArray,
) -> tuple[ActiveCells, Common]:
    """Collect deviating cells, without those whose whole group deviates.

    Returns
    -------
    active
        Cells that count against their node.
    common
        What was left out because nobody is to blame.
    """
    cell = np.flatnonzero((clock.dwell_s > 0) & (weights.weight > 0))
    rows = np.where(layout.row_of_cell >= 0, layout.row_of_cell, layout.slot_row_of_cell)
    nodes = index.cell_node.astype(np.int64)
    now = cell[deviating[cell]]
    common = common_rows(
        now,
        rows,
        nodes,
        layout.row_nodes,
        share=parameters.group_event_share,
        least=parameters.group_event_min_nodes,
    )
    row = rows[cell]
    shared = (row >= 0) & common[np.maximum(row, 0)] if len(common) else np.zeros(len(cell), dtype=bool)
    events: dict[int, tuple[set[int], Counter[str]]] = {}
    for c in cell[shared & deviating[cell]].tolist():
        pool_nodes, metrics = events.setdefault(int(layout.row_pool[rows[c]]), (set(), Counter()))
        pool_nodes.add(int(nodes[c]))
        metrics[index.signals[index.cell_signal[c]].spec.name] += 1
    cell = cell[~shared]
    score = cell_scores(clock.strength[cell], weights.weight[cell], of_chosen(threshold, cell))
    ramp = np.minimum(clock.dwell_s[cell] / full_s, 1.0)
    found = ActiveCells(
        cell=cell,
        node=nodes[cell],
        target=weights.target[cell],
        signal=index.cell_signal[cell].astype(np.int64),
        score=score,
        ramp=ramp,
        now=deviating[cell],
    )
    return found, Common(events)


@dataclass(frozen=True, slots=True)
class NodeScores:
    """Scores of every node; 1 is the threshold.

    Parameters
    ----------
    instant : ndarray of shape (n_nodes,)
        Evidence of this very evaluation.
    lasting : ndarray of shape (n_nodes,)
        With peer evidence weighed by how long it has lasted, a short break included.
    hard : ndarray of shape (n_nodes,)
        Direct signals and absences alone.
    """

    instant: FloatArray
    lasting: FloatArray
    hard: FloatArray


def node_scores(
    active: ActiveCells,
    direct: DirectState,
    direct_score: FloatArray,
    absence: AbsenceReport,
    index: SeriesIndex,
    n_targets: int,
    node_threshold: float = 1.0,
    trend: FloatArray | float = 0.0,
) -> NodeScores:
    """Fuse all layers of evidence to scores per node; peer evidence is divided by `node_threshold`."""
    n_nodes = len(index.nodes)
    sizes = {"n_nodes": n_nodes, "n_targets": max(n_targets, 1)}
    now = active.only(active.now)
    instant = fuse(now.score, now.node, now.target, now.signal, **sizes)
    lasting = fuse(active.score * active.ramp, active.node, active.target, active.signal, **sizes)
    hard = np.zeros(n_nodes)
    strongest = np.zeros(n_nodes)
    if len(direct_score):
        node = index.cell_node[direct.cells]
        np.maximum.at(strongest, node, direct_score)
        total = np.bincount(node, weights=direct_score, minlength=n_nodes)
        hard = strongest + DIRECT_FURTHER * (total - strongest)
    for item in absence.absent:
        hard[item.node] += item.score
    hard = np.minimum(hard + trend, HARD_CAP)
    return NodeScores(instant / node_threshold + hard, lasting / node_threshold + hard, hard)


def decide(scores: NodeScores, clock: Continuity, full_s: float) -> BoolArray:
    """Say which nodes are named now.

    Direct signals and absences decide at once; peer evidence must have lasted for the full
    continuity, or half of it when a direct signal of weight points the same way.
    """
    needed = np.where(scores.hard >= POINTS_THE_SAME_WAY, 0.5 * full_s, full_s)
    return np.asarray((scores.hard >= 1.0) | ((scores.lasting >= 1.0) & (clock.dwell_s >= needed - 1e-6)))


def blast_guard(
    decided: BoolArray, scores: NodeScores, pool_of: NDArray[np.int32], parameters: Parameters
) -> dict[int, IntArray]:
    """Find pools in which so many nodes would be named by peer evidence that it is one event.

    Returns
    -------
    dict
        Pool to the nodes that are not named. Nodes with deciding direct signals or absences are.
    """
    guarded: dict[int, IntArray] = {}
    soft = decided & (scores.hard < 1.0) & (pool_of >= 0)
    for pool in np.unique(pool_of[soft]).tolist():
        nodes = np.flatnonzero(soft & (pool_of == pool))
        size = int((pool_of == pool).sum())
        if len(nodes) >= max(parameters.group_event_min_nodes, parameters.group_event_share * size):
            guarded[int(pool)] = nodes
    return guarded

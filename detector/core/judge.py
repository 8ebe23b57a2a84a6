"""Deviating cells, direct signals and absences of each node to one score and one decision."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.core.absence import AbsenceReport
from detector.core.continuity import Continuity
from detector.core.direct import DirectState
from detector.core.fusion import CellWeights, cell_scores, common_rows, fuse
from detector.core.parameters import Parameters
from detector.core.thresholds import of_chosen
from detector.core.window import Window
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

DIRECT_FURTHER = 0.3
"""Share that direct signals after the strongest one of a node add."""

POINTS_THE_SAME_WAY = 0.5
"""Direct signals and absences from this score on halve the time that peer evidence must have lasted."""

SOONER_FROM, SOONEST = 1.4, 0.5
"""Plainer evidence at one moment than the first need not last as long, in proportion, down to this share."""

BACKED_HARD, BACKED = 0.7, 2.0
"""An error this plain, with so much evidence in all at one moment, decides at that moment: the port that went
down is the port that carries nothing."""

PER_DOUBLING, LONGER_LIMIT = 0.25, 1.5
"""What deviates weighs this share more with each doubling of its time, up to a limit: one signal at its plain
threshold decides alone after a quarter of an hour at the earliest."""

SHIFT_SHARE = 0.75
"""A change of habit is worth this share of an equal deviation from the peers: what sound members usually
differ changes with their work, too."""

SIMILARITY_GATE = 2.0
"""A member whose distance to its peers over the window is less than this times the usual does not count."""

HARD_CAP = 3.0
"""Direct signals and absences together are worth at most this."""


@dataclass(frozen=True, slots=True)
class ActiveCells:
    """Cells that deviate now or did a moment ago, and count.

    Parameters
    ----------
    cell, node, target, signal, quantity : ndarray of shape (n_active,)
        What each is; see `CellWeights` for the last.
    score, plain, ramp : ndarray of shape (n_active,)
        Capped score times weight, the same without what it weighs more for having lasted, and the share of
        the continuity already lasted.
    now : ndarray of shape (n_active,), bool
        True for cells that deviate at this evaluation.
    strength, since : ndarray of shape (n_active,)
        Signed deviation in scales, and epoch seconds at which it began.
    is_shift : ndarray of shape (n_active,), bool
        True for lasting changes of habit, which have lasted by nature.
    own : ndarray of shape (n_active,)
        Share of the deviation that no stronger signal of the node tells already.
    """

    cell: IntArray
    node: IntArray
    target: IntArray
    signal: IntArray
    quantity: IntArray
    score: FloatArray
    plain: FloatArray
    ramp: FloatArray
    now: BoolArray
    strength: FloatArray
    since: FloatArray
    is_shift: BoolArray
    own: FloatArray

    def only(self, keep: BoolArray) -> ActiveCells:
        """Return the chosen ones."""
        if keep.all():
            return self
        return ActiveCells(*(getattr(self, item.name)[keep] for item in fields(self)))

    def when(self, takes_part: bool) -> ActiveCells:
        """Return these, or none of them."""
        return self if takes_part else self.only(np.zeros(len(self.cell), dtype=bool))

    def without_worth(self, held: BoolArray) -> ActiveCells:
        """Return the same cells of which the chosen ones are worth nothing."""
        score, plain, own = (np.where(held, 0.0, one) for one in (self.score, self.plain, self.own))
        return replace(self, score=score, plain=plain, own=own)

    def with_own(self, own: FloatArray) -> ActiveCells:
        """Return these with other shares that are their own."""
        return replace(self, own=own)

    def and_also(self, other: ActiveCells) -> ActiveCells:
        """Return these and others; a cell may be in both."""
        if not len(other.cell):
            return self
        pairs = ((getattr(self, item.name), getattr(other, item.name)) for item in fields(self))
        return ActiveCells(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class Common:
    """Pools in which many nodes deviate together: nodes and signals concerned."""

    by_pool: dict[int, tuple[set[int], Counter[str]]]

    @classmethod
    def of(cls, cell: IntArray, index: SeriesIndex, layout: Layout) -> Common:
        """Collect nodes and signals of cells that are in a row each."""
        pool, node = layout.row_pool[layout.any_row_of_cell[cell]], index.cell_node[cell]
        found: dict[int, tuple[set[int], Counter[str]]] = {}
        for p, n, s in zip(pool.tolist(), node.tolist(), index.cell_signal[cell].tolist(), strict=True):
            nodes, metrics = found.setdefault(p, (set(), Counter()))
            nodes.add(n)
            metrics[index.signals[s].spec.name] += 1
        return cls(found)


def active_cells(
    clock: Continuity,
    deviating: BoolArray,
    weights: CellWeights,
    index: SeriesIndex,
    layout: Layout,
    parameters: Parameters,
    threshold: float | FloatArray,
    *,
    at: float,
) -> tuple[ActiveCells, Common]:
    """Collect deviating cells, without those whose whole group deviates; what lasts for longer weighs more.

    Returns
    -------
    active
        Cells that count against their node.
    common
        What was left out because nobody is to blame.
    """
    cell = np.flatnonzero((clock.dwell_s > 0) & (weights.weight > 0))
    cell, common = _not_common(cell, deviating, index, layout, parameters)
    full_s = parameters.full_s
    longer = longer_weight(clock.since[cell], at=at, full_s=full_s)
    strength, kinds = clock.strength[cell], (weights.weight[cell], of_chosen(threshold, cell))
    found = ActiveCells(
        cell=cell,
        node=index.cell_node[cell].astype(np.int64),
        target=weights.target[cell],
        signal=index.cell_signal[cell].astype(np.int64),
        quantity=weights.quantity[cell],
        score=cell_scores(strength * longer, *kinds),
        plain=cell_scores(strength, *kinds),
        ramp=np.minimum(clock.dwell_s[cell] / full_s, 1.0),
        now=deviating[cell],
        strength=strength,
        since=clock.since[cell],
        is_shift=np.zeros(len(cell), dtype=bool),
        own=np.ones(len(cell)),
    )
    return found, common


def longer_weight(since: FloatArray, *, at: float, full_s: float) -> FloatArray:
    """Return what deviations weigh more for having lasted, from 1 to `LONGER_LIMIT`.

    Parameters
    ----------
    since : ndarray
        Epoch seconds at which they began, NaN where they have not.
    at, full_s
        Evaluation time, and the full continuity in seconds.
    """
    lasted_s = at - np.nan_to_num(since, nan=at)
    doublings = np.log2(np.maximum(lasted_s, full_s) / full_s)
    return np.asarray(np.minimum(1.0 + PER_DOUBLING * doublings, LONGER_LIMIT))


def shifted_cells(
    shift: FloatArray,
    since: FloatArray,
    over: BoolArray,
    weights: CellWeights,
    index: SeriesIndex,
    layout: Layout,
    parameters: Parameters,
    threshold: float | FloatArray,
    *,
    at: float,
    full_s: float,
) -> tuple[ActiveCells, Common]:
    """Collect cells whose habit has changed, without those of whose group many have.

    Parameters
    ----------
    shift, since : ndarray of shape (n_cells,)
        Size in scales, and when it began.
    over : ndarray of shape (n_cells,), bool
        Cells that are shifted now.
    at, full_s
        Evaluation time, and the continuity: what has lasted for longer weighs more.

    Returns
    -------
    active, common
        As of `active_cells`.
    """
    cell, common = _not_common(np.flatnonzero(over & (weights.weight > 0)), over, index, layout, parameters)
    every = np.ones(len(cell), dtype=bool)
    longer = longer_weight(since[cell], at=at, full_s=full_s)
    kinds = weights.weight[cell], of_chosen(threshold, cell)
    found = ActiveCells(
        cell=cell,
        node=index.cell_node[cell].astype(np.int64),
        target=weights.target[cell],
        signal=index.cell_signal[cell].astype(np.int64),
        quantity=weights.quantity[cell],
        score=SHIFT_SHARE * cell_scores(shift[cell] * longer, *kinds),
        plain=SHIFT_SHARE * cell_scores(shift[cell], *kinds),
        ramp=np.ones(len(cell)),
        now=every,
        strength=shift[cell],
        since=since[cell],
        is_shift=every,
        own=np.ones(len(cell)),
    )
    return found, common


def _not_common(
    cell: IntArray, deviating: BoolArray, index: SeriesIndex, layout: Layout, parameters: Parameters
) -> tuple[IntArray, Common]:
    """Leave out cells of groups in which so many nodes deviate that nobody is to blame."""
    rows = layout.any_row_of_cell
    common = common_rows(
        cell[deviating[cell]],
        rows,
        index.cell_node,
        layout.row_nodes,
        share=parameters.group_event_share,
        least=parameters.group_event_min_nodes,
    )
    row = rows[cell]
    shared = (row >= 0) & common[np.maximum(row, 0)] if len(common) else np.zeros(len(cell), dtype=bool)
    return cell[~shared], Common.of(cell[shared & deviating[cell]], index, layout)


def unusual_over_window(
    active: ActiveCells, window: Window, layout: Layout, n_nodes: int, n_window: int
) -> ActiveCells:
    """Drop cells that are not farther from their peers over the window than is usual.

    Parameters
    ----------
    active
        Deviating cells; only those that have lasted, of nodes with much evidence, are measured.
    window, layout
        Newest frames and groups.
    n_nodes, n_window
        Number of nodes, and frames over which distances are taken.
    """
    keep = np.ones(len(active.cell), dtype=bool)
    strong = np.bincount(active.node, weights=active.score, minlength=n_nodes) >= 1.0
    for k in np.flatnonzero((active.ramp >= 0.5) & strong[active.node]).tolist():
        cell = int(active.cell[k])
        row = int(layout.row_of_cell[cell])
        if row >= 0:
            keep[k] = not window.similarity(layout, row, cell, n_window) < SIMILARITY_GATE
    return active.only(keep)


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
    shifted : ndarray of shape (n_nodes,)
        Lasting changes of habit, which weigh no more here for having lasted, with direct signals, absences
        and trends.
    own : ndarray of shape (n_nodes,)
        What is measured over a long time already, see `over_time`.
    peers : ndarray of shape (n_nodes,)
        What deviates from the peers or from its habit at this very evaluation alone.
    """

    instant: FloatArray
    lasting: FloatArray
    hard: FloatArray
    shifted: FloatArray
    own: FloatArray
    peers: FloatArray


def node_scores(
    active: ActiveCells,
    direct: DirectState,
    direct_score: FloatArray,
    absence: AbsenceReport,
    index: SeriesIndex,
    n_targets: int,
    node_threshold: float = 1.0,
    cap: FloatArray | None = None,
    own: FloatArray | None = None,
    trend: FloatArray | float = 0.0,
) -> NodeScores:
    """Fuse all layers of evidence to scores per node; peer evidence is divided by `node_threshold`.

    Parameters
    ----------
    cap : ndarray of shape (n_targets,)
        The most that each target is worth, None for `TARGET_CAP`.
    own : ndarray of shape (n_nodes,)
        Evidence measured over a long time, see `over_time`; None for none.
    trend : ndarray of shape (n_nodes,)
        Worth of growth over hours or days, which has lasted when it is seen.
    """
    n_nodes = len(index.nodes)
    sizes: dict[str, Any] = {"n_nodes": n_nodes, "n_targets": max(n_targets, 1), "cap": cap}
    now = active.only(active.now)
    instant = fuse(now.score, now.own, now.node, now.target, now.quantity, **sizes)
    lasting = fuse(
        active.score * active.ramp, active.own, active.node, active.target, active.quantity, **sizes
    )
    slow = active.only(active.is_shift)
    moved = fuse(slow.plain, slow.own, slow.node, slow.target, slow.quantity, **sizes) / node_threshold
    hard = np.zeros(n_nodes)
    strongest = np.zeros(n_nodes)
    if len(direct_score):
        seen = np.flatnonzero(direct_score)
        node = index.cell_node[direct.cells[seen]]
        np.maximum.at(strongest, node, direct_score[seen])
        total = np.bincount(node, weights=direct_score[seen], minlength=n_nodes)
        hard = strongest + DIRECT_FURTHER * (total - strongest)
    for item in absence.absent:
        hard[item.node] += item.score
    hard = np.minimum(hard, HARD_CAP)
    own = np.zeros(n_nodes) if own is None else own
    besides = hard + trend
    now_by_peers, lasting = instant / node_threshold, lasting / node_threshold
    instant, lasting = (np.maximum(peers, own) + besides for peers in (now_by_peers, lasting))
    return NodeScores(instant, lasting, hard, moved + besides, own, now_by_peers)


def needed_s(scores: NodeScores, full_s: float) -> FloatArray:
    """Return how long the evidence against each node must have lasted, seconds; shape (n_nodes,)."""
    share = np.maximum(SOONER_FROM / np.maximum(scores.instant, SOONER_FROM), SOONEST)
    return np.asarray(full_s * np.where(scores.hard >= POINTS_THE_SAME_WAY, SOONEST, share))


def decide(scores: NodeScores, clock: Continuity, full_s: float, dt: float) -> BoolArray:
    """Say which nodes are named now.

    Direct signals and absences decide at once; peer evidence must have lasted for the full
    continuity, for less of it the plainer it is, for half of it when a direct signal of weight points
    the same way; an error with strong peer evidence at the same moment decides at once. Changes of habit
    have lasted when they are seen: they decide at the second evaluation in a row. What comes back is told
    apart, see `recurrence`.
    """
    lasted = (scores.lasting >= 1.0) & (clock.dwell_s >= needed_s(scores, full_s) - 1e-6)
    backed = (scores.hard >= BACKED_HARD) & (scores.instant >= BACKED)
    at_once = (scores.hard >= 1.0) | (scores.own >= 1.0) | backed
    return np.asarray(at_once | lasted | ((scores.shifted >= 1.0) & (clock.dwell_s > dt)))

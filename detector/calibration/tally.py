"""Watches a replay of history: which levels signals and nodes kept, and for how long they were seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.calibration.levels import (
    CELL_LEVELS,
    NODE_LEVELS,
    EpisodeTracker,
    KeptLevels,
    highest,
    level_at,
)
from detector.core.conclusion import Evaluation
from detector.core.fusion import one_sided
from detector.core.judge import longer_weight
from detector.core.shift import SEEN_SHARE
from detector.core.thresholds import SignalKey
from detector.pipeline import Pipeline

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MAX_EPISODES = 300_000
"""Episodes of signals that are kept of one stretch, the highest ones: bounds memory."""

EVERY_NODE = ""
"""Node of a span that concerns all of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """A node's time that is not learnt from.

    Parameters
    ----------
    node
        Node name, `EVERY_NODE` for all.
    start, end
        Epoch seconds.
    reason
        Why, in words.
    """

    node: str
    start: float
    end: float
    reason: str


@dataclass(frozen=True, slots=True)
class Raised:
    """An episode of one signal, or of the evidence of a node (`key` None).

    Parameters
    ----------
    node
        Node name.
    key
        Signal.
    level
        Number of the highest level kept.
    start, end
        Epoch seconds.
    """

    node: str
    key: SignalKey | None
    level: int
    start: float
    end: float


@dataclass(slots=True)
class Watched:
    """What one stretch of history showed.

    Parameters
    ----------
    name
        Of the stretch.
    start, end, step_s
        Time covered, epoch seconds.
    signals, nodes
        Episodes of signals, and of the nodes' evidence.
    signal_s
        Seconds for which each signal was judged, added up over nodes.
    moving
        Signals that ever deviated at all.
    node_s
        Seconds for which each node was judged.
    hard
        Times in which direct signals or absences named a node by themselves.
    suspects
        Node and time of every suspect raised, masked ones left out.
    n_nodes
        Most nodes judged at once.
    targets, weights
        Monitored target and share of a vote of each signal.
    """

    name: str
    start: float
    end: float
    step_s: float
    signals: list[Raised] = field(default_factory=list)
    nodes: list[Raised] = field(default_factory=list)
    signal_s: dict[SignalKey, float] = field(default_factory=dict)
    moving: set[SignalKey] = field(default_factory=set)
    node_s: dict[str, float] = field(default_factory=dict)
    hard: list[Span] = field(default_factory=list)
    suspects: list[tuple[str, float]] = field(default_factory=list)
    n_nodes: int = 0
    targets: dict[SignalKey, str] = field(default_factory=dict)
    weights: dict[SignalKey, float] = field(default_factory=dict)


class Tally:
    """Follows one pipeline through one stretch of history.

    Parameters
    ----------
    pipeline
        Fresh; `see` is called after each of its evaluations.
    masks
        Times that are not learnt from.
    """

    def __init__(self, pipeline: Pipeline, masks: Sequence[Span] = ()) -> None:
        self._pipeline = pipeline
        self._masks = masks
        full_s = pipeline.full_s
        self._cells = KeptLevels(CELL_LEVELS, full_s, full_s)
        self._nodes = KeptLevels(NODE_LEVELS, full_s, 2 * full_s)
        self._of_signals = EpisodeTracker(full_s)
        self._of_nodes = EpisodeTracker(full_s)
        self._group_of_cell = np.zeros(0, dtype=np.int64)
        self._groups: dict[tuple[int, int], int] = {}
        self._group_s = np.zeros(0)
        self._group_moves = np.zeros(0)
        self._node_s = np.zeros(0)
        self._hard: dict[int, tuple[float, float]] = {}
        self._hard_spans: list[Span] = []
        self._suspects: list[tuple[str, float]] = []
        self._n_nodes = 0

    def see(self) -> None:
        """Take in the newest evaluation of the pipeline."""
        concluded = self._pipeline.concluded
        assert concluded is not None  # noqa: S101 (narrowing: called after an evaluation)
        ev, index = concluded.evaluation, self._pipeline.interner
        masked = self._masked(index.nodes, ev.at)
        self._grow()
        self._see_cells(masked)
        held = np.zeros(len(index.nodes), dtype=bool)
        for nodes in concluded.guarded.values():
            held[nodes] = True
        instant = np.where(held, 0.0, ev.scores.instant - ev.scores.hard)
        judged = concluded.known & (ev.pools.pool_of >= 0) & ~ev.pools.in_grace & ~masked & index.inhabited
        judged &= self._node_seen
        level = self._node_levels(ev, np.where(judged, instant, np.nan))
        member = np.flatnonzero(level >= 0)
        self._of_nodes.step(len(index.nodes), member, level[member], ev.at)
        self._node_s[judged] += ev.dt
        self._n_nodes = max(self._n_nodes, int(judged.sum()))
        self._see_hard(ev.scores.hard, ev.at)
        number = {name: n for n, name in enumerate(index.nodes)}
        for change in concluded.outcome.transitions:
            if change.after == "suspect" and not masked[number.get(change.node, 0)]:
                self._suspects.append((change.node, change.at))

    def finish(self, name: str, start: float, end: float) -> Watched:
        """Return what was seen."""
        index = self._pipeline.interner
        keys = [SignalKey.of(signal) for signal in index.signals]
        found = Watched(name, start, end, self._pipeline.parameters.step_s, suspects=self._suspects)
        pairs = list(self._groups)
        episodes = highest(self._of_signals.finish(), MAX_EPISODES)
        for g, level, begin, until in zip(
            episodes.group.tolist(),
            episodes.level.tolist(),
            episodes.start.tolist(),
            episodes.end.tolist(),
            strict=True,
        ):
            signal, node = pairs[g]
            found.signals.append(Raised(index.nodes[node], keys[signal], level, begin, until))
        episodes = self._of_nodes.finish()
        for n, level, begin, until in zip(
            episodes.group.tolist(),
            episodes.level.tolist(),
            episodes.start.tolist(),
            episodes.end.tolist(),
            strict=True,
        ):
            found.nodes.append(Raised(index.nodes[n], None, level, begin, until))
        for (signal, _), seconds in zip(pairs, self._group_s.tolist(), strict=True):
            if seconds > 0:
                found.signal_s[keys[signal]] = found.signal_s.get(keys[signal], 0.0) + seconds
        found.moving = {keys[pairs[g][0]] for g in np.flatnonzero(self._group_moves).tolist()}
        for signal in {signal for signal, _ in pairs}:
            spec = index.signals[signal].spec
            found.targets[keys[signal]], found.weights[keys[signal]] = spec.target, spec.weight
        found.node_s = {n: s for n, s in zip(index.nodes, self._node_s.tolist(), strict=False) if s > 0}
        for node, (begin, until) in self._hard.items():
            self._hard_spans.append(Span(index.nodes[node], begin, until, _HARD))
        found.hard, found.n_nodes = self._hard_spans, self._n_nodes
        return found

    def _node_levels(self, ev: Evaluation, instant: FloatArray) -> IntArray:
        """Return the highest level at which `judge.decide` would name each node now, -1 for none.

        Parameters
        ----------
        ev
            Newest evaluation.
        instant : ndarray of shape (n_nodes,)
            Peer evidence of this very evaluation, NaN where it is not judged.
        """
        member, kept = self._nodes.step(instant, ev.dt)
        named = np.full(len(instant), -1, dtype=np.int64)
        named[member] = np.minimum(kept, level_at((ev.scores.lasting - ev.scores.hard)[member], NODE_LEVELS))
        # what is held back, or not judged, is in the instant score alone
        slow = np.where(np.isfinite(instant), np.minimum(instant, ev.scores.shifted - ev.scores.hard), 0.0)
        at_once = np.minimum(self._nodes.begun(ev.dt), level_at(slow, NODE_LEVELS))
        return np.maximum(named, at_once)

    def _see_cells(self, masked: BoolArray) -> None:
        """Take in how far each signal is from its peers, by the stricter of both layers that compare them."""
        concluded, index = self._pipeline.concluded, self._pipeline.interner
        assert concluded is not None  # noqa: S101 (narrowing: called after an evaluation)
        ev, plain = concluded.evaluation, self._pipeline.parameters.z_threshold
        left_out = (self._pipeline.memory.weights.weight <= 0) | masked[index.cell_node]
        deviation, shift = (np.where(left_out, np.nan, x) for x in self._counted(ev))
        member, level = self._cells.step(deviation / plain, ev.dt)
        # a shift is of a whole window: it has lasted when it is seen
        moved = level_at(np.abs(shift) / plain, CELL_LEVELS)
        shifted = np.flatnonzero(moved >= 0)
        member, level = np.concatenate([member, shifted]), np.concatenate([level, moved[shifted]])
        self._of_signals.step(len(self._groups), self._group_of_cell[member], level, ev.at)
        known = np.isfinite(deviation) | np.isfinite(shift)
        seen = np.zeros(len(self._groups), dtype=bool)
        seen[self._group_of_cell[known]] = True
        self._group_s[seen] += ev.dt
        moves = (np.nan_to_num(deviation) != 0) | (np.nan_to_num(shift) != 0)
        self._group_moves[self._group_of_cell[moves]] = 1.0
        self._node_seen = np.zeros(len(index.nodes), dtype=bool)
        self._node_seen[index.cell_node[known]] = True

    def _counted(self, ev: Evaluation) -> tuple[FloatArray, FloatArray]:
        """Return deviations and shifts of all cells, signed, in scales; 0 where they count against nobody.

        Shared by the whole group, denied by a twin, or not borne out by similarity: never counted. What is
        counted weighs more for having lasted, as `judge.active_cells` has it.
        """
        pipeline = self._pipeline
        index, active = pipeline.interner, ev.active
        threshold = pipeline.cell_thresholds.of_cells(index.signals, index.cell_signal)
        shift = one_sided(pipeline.shifts.shift.score, pipeline.memory.weights.sign)
        found = []
        for score, least, counts, since in (
            (ev.deviation.copy(), threshold, active.now & ~active.is_shift, pipeline.memory.clock.since),
            (shift, SEEN_SHARE * threshold, active.is_shift, pipeline.shifts.shift.since),
        ):
            counted = np.zeros(len(score), dtype=bool)
            counted[active.cell[counts]] = True
            with np.errstate(invalid="ignore"):
                score[(np.abs(score) >= least) & ~counted] = 0.0
            longer = longer_weight(since, at=ev.at, full_s=pipeline.full_s)
            found.append(np.where(counted, score * longer, score))
        return found[0], found[1]

    def _grow(self) -> None:
        index, start = self._pipeline.interner, len(self._group_of_cell)
        self._node_s = _longer(self._node_s, len(index.nodes))
        if start == index.n_cells:
            return
        pairs = zip(index.cell_signal[start:].tolist(), index.cell_node[start:].tolist(), strict=True)
        added = [self._groups.setdefault(pair, len(self._groups)) for pair in pairs]
        self._group_of_cell = np.concatenate([self._group_of_cell, np.array(added, dtype=np.int64)])
        self._group_s = _longer(self._group_s, len(self._groups))
        self._group_moves = _longer(self._group_moves, len(self._groups))

    def _masked(self, nodes: Sequence[str], at: float) -> BoolArray:
        now = {span.node for span in self._masks if span.start <= at <= span.end}
        return np.array([EVERY_NODE in now or node in now for node in nodes], dtype=bool)

    def _see_hard(self, hard: FloatArray, at: float) -> None:
        full_s = self._pipeline.full_s
        for node in np.flatnonzero(hard >= 1.0).tolist():
            begun, until = self._hard.get(node, (at, at))
            if at - until > 2 * full_s:
                self._hard_spans.append(Span(self._pipeline.interner.nodes[node], begun, until, _HARD))
                begun = at
            self._hard[node] = (begun, at)


_HARD = "direct signals or absences name it"


def _longer(array: FloatArray, size: int) -> FloatArray:
    return np.concatenate([array, np.zeros(max(0, size - len(array)))])


def judged_s(watched: Sequence[Watched]) -> float:
    """Return node-seconds judged in all stretches."""
    return float(sum(sum(one.node_s.values()) for one in watched))


def without(watched: Watched, spans: Sequence[Span]) -> Watched:
    """Return what was seen without episodes and suspects of nodes in the given times.

    Seconds are reduced by the same times, for each signal in proportion.
    """
    by_node: dict[str, list[Span]] = {}
    for span in spans:
        by_node.setdefault(span.node, []).append(span)

    def is_out(node: str, start: float, end: float) -> bool:
        return any(s.start <= end and start <= s.end for s in by_node.get(node, ()))

    removed: Mapping[str, float] = {
        node: min(
            watched.node_s.get(node, 0.0),
            sum(min(s.end, watched.end) - max(s.start, watched.start) for s in found),
        )
        for node, found in by_node.items()
    }
    node_s = {node: max(0.0, s - removed.get(node, 0.0)) for node, s in watched.node_s.items()}
    before = sum(watched.node_s.values())
    share = sum(node_s.values()) / before if before else 1.0
    return Watched(
        watched.name,
        watched.start,
        watched.end,
        watched.step_s,
        [e for e in watched.signals if not is_out(e.node, e.start, e.end)],
        [e for e in watched.nodes if not is_out(e.node, e.start, e.end)],
        {key: s * share for key, s in watched.signal_s.items()},
        watched.moving,
        node_s,
        watched.hard,
        [(node, at) for node, at in watched.suspects if not is_out(node, at, at)],
        watched.n_nodes,
        watched.targets,
        watched.weights,
    )

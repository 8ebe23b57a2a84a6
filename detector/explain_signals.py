"""One node's signals against peers and habit: every number of the comparison, and what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from detector.core.conclusion import Concluded
from detector.core.evidence import labels_of, name_parts
from detector.core.explained import everyday_reason, idle_nodes
from detector.core.fusion import cell_scores
from detector.core.habit import WARM_UP_SAMPLES, Habit
from detector.core.judge import SIMILARITY_GATE
from detector.core.workload import CAPS, kind_of
from detector.explain_changes import Changes, change_of, changes
from detector.explain_rows import DIGITS, Rows, finite, rows_of, threshold_of
from detector.explanation_signals import Fate, PeerSignal
from detector.pipeline import Pipeline
from grouping.model import Kind

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_LET_OFF = (Fate.SHARED, Fate.AT_ONCE, Fate.SIMILAR, Fate.LEFT_OUT, Fate.TWIN_DENIES)
_RANK = {Fate.COUNTS: 0, Fate.MOVED: 0, Fate.FADING: 1, **dict.fromkeys(_LET_OFF, 2)}
"""Signals that count come first, then those that would but for a rule, then the rest."""


@dataclass(frozen=True, slots=True)
class _Mine:
    """The node's cells that have a vote; all arrays are parallel to `cell`.

    `row` is the one whose z-score holds, `ratio` the distance to its peers over the window (NaN where
    it was not needed), `excess` what is left of z beyond the habit.
    """

    cell: IntArray
    row: IntArray
    z: FloatArray
    excess: FloatArray
    threshold: FloatArray
    deviates: BoolArray
    counts: BoolArray
    moved: BoolArray


def peer_signals(
    pipeline: Pipeline, told: Concluded, node: int, limit: int
) -> tuple[tuple[PeerSignal, ...], dict[str, int]]:
    """Tell a node's signals against their peers, strongest first.

    Parameters
    ----------
    pipeline, told
        State right after the evaluation.
    node
        Number of the node.
    limit
        How many at most; parts, roles and the twin of one metric with the same fate are told as one.

    Returns
    -------
    tuple
        The signals, and the number of all of the node's cells with a vote by fate.
    """
    far = np.abs(np.nan_to_num(told.evaluation.deviation))
    far_enough = far >= threshold_of(pipeline, np.arange(len(far)))
    rows, moves = rows_of(pipeline, told, far_enough), changes(pipeline, told)
    mine = _mine(pipeline, told, moves, node)
    fates = [_fate(pipeline, told, rows, mine, i) for i in range(len(mine.cell))]
    groups: dict[tuple[str, Fate], list[int]] = {}
    for i in _order(pipeline, mine, moves, fates):
        spec = pipeline.interner.signals[pipeline.interner.cell_signal[mine.cell[i]]].spec
        groups.setdefault((min(spec.name, spec.twin or spec.name), fates[i]), []).append(i)
    shown = [
        _signal(pipeline, told, rows, moves, mine, fate, members)
        for (_, fate), members in list(groups.items())[:limit]
    ]
    return tuple(shown), dict(Counter(fate.value for fate in fates).most_common())


def _mine(pipeline: Pipeline, told: Concluded, moves: Changes, node: int) -> _Mine:
    ev, index, memory = told.evaluation, pipeline.interner, pipeline.memory
    n = len(ev.z)
    has_series = (index.cell_components[:n] > 0) | (index.cell_first_series[:n] < 0)
    cell = np.flatnonzero((index.cell_node[:n] == node) & (memory.weights.weight[:n] > 0) & has_series)
    row, raw = _against(told, cell)
    z = np.where(np.isfinite(ev.z[cell]), ev.z[cell], raw)
    habit = Habit(memory.habit.offset[cell], memory.habit.spread[cell], memory.habit.n_seen[cell])
    excess = habit.excess(z)
    threshold = threshold_of(pipeline, cell)
    deviates = np.abs(np.nan_to_num(ev.deviation[cell])) >= threshold
    # what was used, where it was; a habit learns from every sample, and has so since then
    excess = np.where(deviates, ev.deviation[cell], excess)
    by_peers = np.isin(cell, ev.active.cell[~ev.active.is_shift])
    return _Mine(cell, row, z, excess, threshold, deviates, by_peers, moves.counts[cell])


def _against(told: Concluded, cell: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the row whose z-score holds, and that score: of two rows the one it differs less from."""
    layout, stats = told.evaluation.layout, told.evaluation.stats
    whole, slot = layout.row_of_cell[cell], layout.slot_row_of_cell[cell]
    if not len(stats.median):
        return np.full(len(cell), -1, dtype=np.int64), np.full(len(cell), np.nan)

    def z_in(row: IntArray) -> FloatArray:
        safe = np.maximum(row, 0)
        z = (told.evaluation.cells.value[cell] - stats.median[safe]) / stats.scale[safe]
        return np.asarray(np.where(row >= 0, z, np.nan))

    z_whole, z_slot = z_in(whole), z_in(slot)
    by_slot = (whole < 0) | (np.isfinite(z_slot) & ~(np.abs(z_whole) <= np.abs(z_slot)))
    return np.where(by_slot, slot, whole), np.where(by_slot, z_slot, z_whole)


def _ratio(pipeline: Pipeline, told: Concluded, cell: int) -> float:
    layout = told.evaluation.layout
    row = int(layout.row_of_cell[cell])
    return pipeline.window.similarity(layout, row, cell, pipeline.n_window) if row >= 0 else float("nan")


def _fate(pipeline: Pipeline, told: Concluded, rows: Rows, mine: _Mine, i: int) -> Fate:
    by_peers = _by_peers(pipeline, told, rows, mine, i)
    return Fate.MOVED if mine.moved[i] and by_peers is not Fate.COUNTS else by_peers


def _by_peers(pipeline: Pipeline, told: Concluded, rows: Rows, mine: _Mine, i: int) -> Fate:
    """Say what became of a signal in the comparison with peers alone."""
    ev, memory = told.evaluation, pipeline.memory
    cell, row = int(mine.cell[i]), int(mine.row[i])
    if mine.counts[i]:
        return Fate.COUNTS if mine.deviates[i] else Fate.FADING
    if mine.deviates[i] or memory.clock.dwell_s[cell] > 0:
        if rows.common_to(cell):
            return Fate.SHARED
        if cell in ev.at_once:
            return Fate.AT_ONCE
        return Fate.SIMILAR if _ratio(pipeline, told, cell) < SIMILARITY_GATE else Fate.LEFT_OUT
    if not np.isfinite(ev.cells.value[cell]):
        return Fate.NO_VALUE
    if row < 0 or not np.isfinite(ev.stats.median[row]):
        return Fate.NO_PEERS
    if ev.pools.in_grace[pipeline.interner.cell_node[cell]]:
        return Fate.IN_GRACE
    if memory.habit.n_seen[cell] < WARM_UP_SAMPLES:
        return Fate.WARMING_UP
    if abs(mine.excess[i]) < mine.threshold[i]:
        return Fate.HABIT if abs(mine.z[i]) >= mine.threshold[i] else Fate.ORDINARY
    if mine.excess[i] * memory.weights.sign[cell] < 0:
        return Fate.BETTER_SIDE
    return Fate.TWIN_DENIES if np.isnan(ev.deviation[cell]) else Fate.LEFT_OUT


def _order(pipeline: Pipeline, mine: _Mine, moves: Changes, fates: Sequence[Fate]) -> list[int]:
    clock, weight = pipeline.memory.clock, pipeline.memory.weights.weight
    reach = np.maximum(np.abs(clock.strength[mine.cell]), np.abs(np.nan_to_num(mine.excess)))
    lasted = 0.5 + np.minimum(clock.dwell_s[mine.cell] / pipeline.full_s, 1.0)
    worth = np.minimum(reach / mine.threshold, 1e6) * weight[mine.cell] * lasted
    worth = np.maximum(worth, 1.5 * moves.score[mine.cell])
    # what cannot be judged yet is ordered by the plain score, behind all that can
    far = np.abs(np.nan_to_num(mine.z, nan=0.0, posinf=0.0, neginf=0.0))
    rank = np.array([_RANK.get(fate, 3) for fate in fates], dtype=np.int64)
    return [int(i) for i in np.lexsort((-far, -worth, rank))]


def _signal(
    pipeline: Pipeline,
    told: Concluded,
    rows: Rows,
    moves: Changes,
    mine: _Mine,
    fate: Fate,
    members: Sequence[int],
) -> PeerSignal:
    """Tell the strongest of the members in numbers, and others of the same signal by their parts.

    What is seen on parts is told of them and not of their mean.
    """
    ev, index, memory = told.evaluation, pipeline.interner, pipeline.memory
    of = index.cell_signal[mine.cell]
    i = next((k for k in members if not index.signals[of[k]].per_node), members[0])
    same = [k for k in members if of[k] == of[i]]
    cell, row, ratio = int(mine.cell[i]), int(mine.row[i]), _ratio(pipeline, told, int(mine.cell[i]))
    signal = index.signals[index.cell_signal[cell]]
    spec, clock = signal.spec, memory.clock
    is_rate = spec.kind in (Kind.COUNTER, Kind.ERROR_COUNTER)
    parts = [index.parts[index.cell_part[mine.cell[k]]] for k in same]
    has_row, shared_row = row >= 0, int(rows.of_cell[cell])
    strength, weight = float(clock.strength[cell]), float(memory.weights.weight[cell])
    score = cell_scores(np.array([strength]), np.array([weight]), mine.threshold[i : i + 1])
    other = int(pipeline.twins.other[cell]) if cell < len(pipeline.twins.other) else -1
    last_at = float(memory.presence.last_s[cell])
    made = PeerSignal(
        metric=spec.name,
        labels=labels_of(index, cell),
        part="mean over parts" if signal.per_node else name_parts(parts, spec.unit),
        target=spec.target,
        measure=spec.measure + ("/s" if is_rate else ""),
        n_parts=len(same),
        n_alike=len({int(of[k]) for k in members}) - 1,
        value=finite(ev.cells.value[cell]),
        peer_median=finite(ev.stats.median[row]) if has_row else None,
        scale=finite(ev.stats.scale[row]) if has_row else None,
        n_peers=max(0, int(ev.stats.n_valid[row]) - int(np.isfinite(ev.cells.value[cell]))) if has_row else 0,
        z=finite(mine.z[i], DIGITS),
        offset=finite(memory.habit.offset[cell], DIGITS) if memory.habit.n_seen[cell] else None,
        spread=finite(memory.habit.spread[cell], DIGITS) if memory.habit.n_seen[cell] else None,
        n_habit=int(memory.habit.n_seen[cell]),
        deviation=finite(mine.excess[i], DIGITS),
        threshold=float(mine.threshold[i]),
        strength=round(strength, DIGITS),
        dwell_s=float(clock.dwell_s[cell]),
        needed_s=pipeline.full_s,
        since=finite(clock.since[cell]),
        weight=weight,
        similarity=finite(ratio, DIGITS),
        similarity_gate=SIMILARITY_GATE,
        n_shared=rows.shared_by(cell),
        n_nodes=int(ev.layout.row_nodes[shared_row]) if shared_row >= 0 else 0,
        twin=(spec.twin or "") if other >= 0 else "",
        twin_deviation=_of_cell(told, memory.habit, other),
        change=change_of(pipeline, told, moves, cell),
        own=_own(told, cell),
        score=round(float(score[0]), DIGITS) if mine.counts[i] else 0.0,
        fate=fate,
        why="",
    )
    why = _why(made, last_at, ev.at, pipeline.parameters.min_peers)
    by_peers = _by_peers(pipeline, told, rows, mine, i)
    if fate is Fate.MOVED and by_peers in _LET_OFF:
        let_off = _why(replace(made, fate=by_peers), last_at, ev.at, pipeline.parameters.min_peers)
        why += f"; against its peers {let_off}"
    score_told = max(made.score, made.change.score)
    active = ev.active.score[ev.active.cell == cell]
    cap = CAPS.get(kind_of(spec.name))
    if len(active) and active.max() == 0 < score_told:
        score_told = 0.0
        sign = int(pipeline.memory.weights.sign[cell])
        is_idle = bool(idle_nodes(ev.pools)[pipeline.interner.cell_node[cell]])
        why += f"; held back: {everyday_reason(spec, sign, is_idle=is_idle)}"
    elif cap is not None and len(active) and active.max() == cap < score_told:
        score_told = cap
        why += "; held back: its node works more than its peers"
    return replace(made, why=why, score=score_told)


def _own(told: Concluded, cell: int) -> float | None:
    """Return the share of a cell's evidence that no stronger signal tells, None when it does not count."""
    active = told.evaluation.active
    entries = np.flatnonzero(active.cell == cell)
    if not len(entries):
        return None
    return round(float(active.own[entries[np.argmax(active.score[entries])]]), DIGITS)


def _of_cell(told: Concluded, habit: Habit, cell: int) -> float | None:
    """Return how far one cell deviates beyond its habit."""
    if not 0 <= cell < len(told.evaluation.z):
        return None
    one = slice(cell, cell + 1)
    known = Habit(habit.offset[one], habit.spread[one], habit.n_seen[one])
    return finite(known.excess(told.evaluation.z[one])[0], DIGITS)


def _why(s: PeerSignal, last_at: float, at: float, min_peers: int) -> str:
    """Say in one sentence what became of a signal."""
    match s.fate:
        case Fate.FADING:
            return f"not over {s.threshold:.3g} now: what it was worth leaks away with its {s.dwell_s:.0f} s"
        case Fate.MOVED:
            return s.change.why
        case Fate.COUNTS:
            lasted = "in full" if s.dwell_s >= s.needed_s else f"for {s.dwell_s:.0f} of {s.needed_s:.0f} s"
            return f"worth {s.score:.2f}, has lasted {lasted}"
        case Fate.SHARED:
            return f"{s.n_shared} of {s.n_nodes} nodes deviate in it: nobody is blamed"
        case Fate.AT_ONCE:
            return "it left the peers in several nodes at one moment: nobody is blamed"
        case Fate.SIMILAR:
            return (
                f"over the window {s.similarity or 0:.1f} times as far as usual, "
                f"under {s.similarity_gate:g}: does not count"
            )
        case Fate.NO_VALUE if last_at <= 0:
            return "never had a usable sample"
        case Fate.NO_VALUE if last_at >= at:
            return "a sample, but no rate yet: a counter needs two that are near each other"
        case Fate.NO_VALUE:
            return f"no sample for {at - last_at:.0f} s"
        case Fate.NO_PEERS:
            return f"fewer than {min_peers} members report it"
        case Fate.IN_GRACE:
            return "the node is new in its pool"
        case Fate.WARMING_UP:
            return f"{s.n_habit} of {WARM_UP_SAMPLES} samples until it is judged"
        case Fate.BETTER_SIDE:
            return "it differs to the better side"
        case Fate.TWIN_DENIES:
            return f"{s.twin} of the same is like its peers: a matter of the reading"
        case Fate.HABIT:
            return f"it is usually {s.offset or 0:+.1f} from its peers: no change"
        case Fate.LEFT_OUT:
            return "left out by another rule"
        case _:
            return "like its peers"

"""Signals that speak for themselves: error counters that rise and states with a fault value.

A level or a code that stands still is no event: only a rise, a change, or a fault value that
the peers do not share. Codes such as XIDs stay in their metric for days, so their *change* counts
and expires after a quiet time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.fusion import count_nodes
from detector.core.ingest import CellValues
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.model import FaultRule, Severity

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BASE_SCORE = {Severity.CRITICAL: 1.5, Severity.ERROR: 0.7, Severity.WARNING: 0.25, Severity.INFO: 0.0}
"""Share of the node threshold that one event of each severity is worth."""

REPEAT_SHARE = 0.3
"""What each further evaluation with an event adds, as a share of the base."""

REPEAT_LIMIT = 2.0
"""Repeats never make more than this of the base."""

LASTING_ERROR = 1.6
"""An error state that lasts for the full continuity is worth this times its base."""

COMMON_EVENT_SHARE = 0.1
"""Share of a pool's nodes with events of one metric within the hold from which the cause is shared.

Independent hardware faults are rare, so a tenth of the nodes is already a server, a fabric or the job.
"""

MIN_SEEN = 2
"""Evaluations for which a cell's exporter must have been seen before an appearance is an event."""


@dataclass(slots=True)
class DirectState:
    """Memory of the direct layer, one entry per direct cell (see `cells`).

    Parameters
    ----------
    cells : ndarray of shape (n,)
        Cells of error counters and states.
    last : ndarray of shape (n,)
        Newest value seen of a state, NaN before the first.
    event_at, since : ndarray of shape (n,)
        Epoch seconds of the newest and the first event still held, NaN for none.
    n_events : ndarray of shape (n,)
        Evaluations with an event within the hold.
    base : ndarray of shape (n,)
        Worth of the strongest event held.
    event_value : ndarray of shape (n,)
        Code, value or sum of rises of the held event.
    faulty_s : ndarray of shape (n,)
        Seconds for which a state has had its fault value.
    codes
        Codes when a cell that has had a series for each of them was last fresh.
    """

    cells: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    last: FloatArray = field(default_factory=lambda: np.zeros(0))
    event_at: FloatArray = field(default_factory=lambda: np.zeros(0))
    since: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_events: FloatArray = field(default_factory=lambda: np.zeros(0))
    base: FloatArray = field(default_factory=lambda: np.zeros(0))
    event_value: FloatArray = field(default_factory=lambda: np.zeros(0))
    faulty_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    metric: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rule: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    metric_ids: dict[str, int] = field(default_factory=dict)
    value_rules: list[tuple[FaultRule, IntArray]] = field(default_factory=list)
    codes: dict[int, frozenset[float]] = field(default_factory=dict)
    n_indexed: int = 0

    def worth_of_events(self) -> FloatArray:
        """Return what the events held are worth on the scale of the node threshold, 0 for none."""
        repeat = np.minimum(1.0 + REPEAT_SHARE * np.maximum(self.n_events - 1, 0), REPEAT_LIMIT)
        return np.where(np.isfinite(self.event_at), self.base * repeat, 0.0)

    def forget(self, cells: BoolArray) -> None:
        """Drop held events and times of the chosen cells; their newest values stay, so that they are no news.

        Parameters
        ----------
        cells : ndarray of shape (n_cells,), bool
            Chosen among all cells.
        """
        mine = self.cells[self.cells < len(cells)]
        chosen = np.flatnonzero(cells[mine])
        self.event_at[chosen] = self.since[chosen] = np.nan
        for name in ("n_events", "base", "event_value", "faulty_s"):
            getattr(self, name)[chosen] = 0.0


CODES = 3
"""Number of the rule of metrics that hold a code, such as XIDs: a change is an event."""

_RULES = {"rise": 0, "rate": 1, "value": 2, "change": CODES}


Recall = Callable[[int, str], float | None]
"""Gives what is remembered of a cell's field from before a restart, None for nothing."""

REMEMBERED = ("last", "event_at", "since", "n_events", "base", "event_value", "faulty_s")


def _extend(state: DirectState, index: SeriesIndex, restored: Recall | None) -> None:
    """Add the direct cells that the index has gained."""
    start, size = state.n_indexed, index.n_cells
    if start == size:
        return
    state.n_indexed = size
    new: list[int] = []
    rules: list[int] = []
    metrics: list[int] = []
    by_rule: dict[int, tuple[FaultRule, list[int]]] = {}
    cell_signal = index.cell_signal[start:size]
    is_direct = np.array([s.spec.fault is not None and not s.per_node for s in index.signals], dtype=bool)
    found = np.flatnonzero(is_direct[cell_signal])
    for cell, s in zip((found + start).tolist(), cell_signal[found].tolist(), strict=True):
        spec = index.signals[s].spec
        if spec.fault is None:
            continue
        if spec.fault.on == "value":
            rule = by_rule.setdefault(id(spec.fault), (spec.fault, []))
            rule[1].append(len(state.cells) + len(new))
        new.append(cell)
        rules.append(_RULES[spec.fault.on])
        metrics.append(state.metric_ids.setdefault(spec.name, len(state.metric_ids)))
    if not new:
        return
    state.value_rules.extend((rule, np.array(members, dtype=np.int64)) for rule, members in by_rule.values())
    n = len(new)
    state.cells = np.concatenate([state.cells, np.array(new, dtype=np.int64)])
    state.metric = np.concatenate([state.metric, np.array(metrics, dtype=np.int64)])
    state.rule = np.concatenate([state.rule, np.array(rules, dtype=np.int8)])
    for name, fill in (("last", np.nan), ("event_at", np.nan), ("since", np.nan)):
        setattr(state, name, np.concatenate([getattr(state, name), np.full(n, fill)]))
    for name in ("n_events", "base", "event_value", "faulty_s"):
        setattr(state, name, np.concatenate([getattr(state, name), np.zeros(n)]))
    if restored is None:
        return
    for k, cell in enumerate(new, start=len(state.cells) - n):
        for name in REMEMBERED:
            remembered = restored(cell, name)
            if remembered is not None:
                getattr(state, name)[k] = remembered


def severity_of(index: SeriesIndex, cell: int, value: float) -> Severity:
    """Return what a value or a rise of a direct cell is worth."""
    rule = index.signals[index.cell_signal[cell]].spec.fault
    if rule is None:
        return Severity.INFO
    if rule.on in ("value", "change"):
        if value in rule.healthy:
            return Severity.INFO
        return Severity(rule.severities.get(value, rule.severity))
    return Severity(rule.severity)


def step_direct(
    state: DirectState,
    index: SeriesIndex,
    layout: Layout,
    cells: CellValues,
    *,
    exporter_known: BoolArray,
    at: float,
    dt: float,
    continuity_s: float,
    hold_s: float,
    group_share: float,
    group_min: int,
    restored: Recall | None = None,
) -> FloatArray:
    """Advance the direct layer by one evaluation.

    Parameters
    ----------
    state
        Changed in place.
    cells
        Values, rises and appearances of this evaluation.
    exporter_known : ndarray of shape (n_cells,), bool
        True where the cell's node and exporter had been seen before, so that an
        appearance is an event and not a start.
    at, dt
        Evaluation time and seconds since the one before.
    continuity_s, hold_s, group_share, group_min
        See `Parameters`.
    restored
        Memory from before a restart, asked once per new cell; None for no such memory.

    Returns
    -------
    ndarray of shape (n_direct_cells,)
        Evidence of each direct cell on the scale of the node threshold; parallel to `state.cells`.
    """
    _extend(state, index, restored)
    mine = state.cells
    if not len(mine):
        return np.zeros(0)
    value, fresh = cells.value[mine], cells.fresh[mine] & np.isfinite(cells.value[mine])
    rise = cells.rise[mine]
    known = exporter_known[mine]
    seen_before = np.isfinite(state.last)
    first_code = cells.appeared[mine] & known & ~seen_before & (state.rule == CODES)
    changed = fresh & (state.rule == CODES) & (seen_before & (value != state.last) | first_code)
    risen = (rise > 0) & (state.rule == 0)
    _expire(state, at, hold_s)
    _separate_codes(state, index, cells.codes, known, fresh, value, changed)
    for k in np.flatnonzero(changed | risen).tolist():
        _record(
            state, index, k, float(value[k]) if changed[k] else float(rise[k]), at, is_rise=bool(risen[k])
        )
    levels = _levels(state, index, value, fresh, dt)
    held = np.isfinite(state.event_at)
    score = state.worth_of_events()
    lasting = np.minimum(state.faulty_s / continuity_s, 1.0)
    ramp = np.where(levels >= BASE_SCORE[Severity.CRITICAL], 1.0, LASTING_ERROR * lasting)
    confirmed = state.faulty_s >= 2 * dt
    score = np.maximum(score, np.where((levels > 0) & confirmed, levels * ramp, 0.0))
    begun = (levels > 0) & np.isnan(state.since)
    state.since[begun] = at
    state.last = np.where(fresh, value, state.last)
    common = _common_states(state, index, layout, levels > 0, group_share, group_min)
    common |= _common_events(state, index, layout, held, group_min)
    common |= _without_peers(state, layout, levels, group_min)
    return np.where(common & (state.base < BASE_SCORE[Severity.CRITICAL]), 0.0, score)


def _separate_codes(
    state: DirectState,
    index: SeriesIndex,
    codes: Mapping[int, tuple[float, ...]],
    known: BoolArray,
    fresh: BoolArray,
    value: FloatArray,
    changed: BoolArray,
) -> None:
    """Judge cells that have a series for each code; `value` and `changed` are corrected in place.

    The gravest new code is the event. Right after a start the codes before are not known, only the
    gravest of them is, so that it alone tells whether something is new.
    """
    if not codes and not state.codes:
        return

    def worth(k: int, code: float) -> tuple[float, float]:
        return BASE_SCORE[severity_of(index, int(state.cells[k]), code)], code

    for k, seen in state.codes.items():
        if int(state.cells[k]) not in codes and fresh[k]:
            changed[k] &= float(value[k]) not in seen
            state.codes[k] = frozenset({float(value[k])})
    for cell, found in codes.items():
        k = int(np.searchsorted(state.cells, cell))  # cells are numbered in the order they came in
        now = frozenset(found)
        gravest = max(now, key=lambda code: worth(k, code))
        if known[k]:
            new = now - state.codes.get(k, frozenset({float(state.last[k])}))
        else:
            new = frozenset({gravest} if np.isfinite(state.last[k]) else ()) - {float(state.last[k])}
        changed[k] = bool(new)
        value[k] = max(new, key=lambda code: worth(k, code)) if new else gravest
        state.codes[k] = now


def _expire(state: DirectState, at: float, hold_s: float) -> None:
    over = np.flatnonzero(np.isfinite(state.event_at) & (at - state.event_at > hold_s))
    state.event_at[over] = np.nan
    state.n_events[over] = 0.0
    state.base[over] = 0.0
    state.event_value[over] = 0.0
    state.since[over] = np.nan
    state.since[np.isnan(state.event_at) & (state.faulty_s == 0)] = np.nan


def _record(
    state: DirectState, index: SeriesIndex, k: int, number: float, at: float, *, is_rise: bool
) -> None:
    base = BASE_SCORE[severity_of(index, int(state.cells[k]), number)]
    if base <= 0.0:
        return
    if base >= state.base[k] or is_rise:
        state.event_value[k] = state.event_value[k] + number if is_rise else number
        state.base[k] = max(base, state.base[k])
    state.event_at[k] = at
    state.n_events[k] += 1
    if np.isnan(state.since[k]):
        state.since[k] = at


def _levels(
    state: DirectState, index: SeriesIndex, value: FloatArray, fresh: BoolArray, dt: float
) -> FloatArray:
    """Worth of states that have a fault value now; advances `faulty_s`."""
    levels = np.zeros(len(value))
    for rule, members in state.value_rules:
        now = value.take(members)
        is_odd = fresh.take(members)
        for healthy in rule.healthy:
            is_odd &= now != healthy
        odd = members[is_odd]
        for k in odd.tolist():
            levels[k] = BASE_SCORE[severity_of(index, int(state.cells[k]), float(value[k]))]
    judged = fresh & (state.rule == 2)
    state.faulty_s = np.where(judged, np.where(levels > 0, state.faulty_s + dt, 0.0), state.faulty_s)
    return levels


def _common_states(
    state: DirectState, index: SeriesIndex, layout: Layout, faulty: BoolArray, share: float, least: int
) -> BoolArray:
    """Find states that so many members of a group share that they tell nothing of one of them."""
    if not faulty.any():
        return np.zeros(len(faulty), dtype=bool)
    slot_rows = layout.slot_row_of_cell[state.cells]
    rows = np.where(slot_rows >= 0, slot_rows, layout.row_of_cell[state.cells])
    counted = faulty & (rows >= 0)
    if not counted.any():
        return np.zeros(len(rows), dtype=bool)
    nodes = index.cell_node[state.cells[counted]].astype(np.int64)
    nodes_in_row = count_nodes(rows[counted], nodes, len(layout.row_nodes))
    common = (nodes_in_row >= least) & (nodes_in_row >= share * layout.row_nodes)
    return np.asarray((rows >= 0) & common[np.maximum(rows, 0)] & faulty)


def _rows_of(state: DirectState, layout: Layout) -> IntArray:
    """Return a group of each cell, -1 for none."""
    return np.maximum(layout.row_of_cell[state.cells], layout.slot_row_of_cell[state.cells])


def _without_peers(state: DirectState, layout: Layout, levels: FloatArray, least: int) -> BoolArray:
    """Find states, short of critical ones, of machines with too few peers: it may be how they always are."""
    if not levels.any():
        return np.zeros(len(levels), dtype=bool)
    rows = _rows_of(state, layout)
    few = np.append(layout.row_nodes < least, False)[rows]
    return np.asarray(few & (levels > 0) & (levels < BASE_SCORE[Severity.CRITICAL]))


def _common_events(
    state: DirectState, index: SeriesIndex, layout: Layout, held: BoolArray, least: int
) -> BoolArray:
    """Find metrics of which so many nodes of a pool had events within the hold that the cause is shared."""
    if not held.any():
        return np.zeros(len(held), dtype=bool)
    rows = _rows_of(state, layout)
    counted = held & (rows >= 0)
    if not counted.any():
        return np.zeros(len(rows), dtype=bool)
    n_pools = int(layout.row_pool.max()) + 1
    pool_nodes = np.zeros(n_pools, dtype=np.int64)
    np.maximum.at(pool_nodes, layout.row_pool, layout.row_nodes)
    key = np.where(rows >= 0, state.metric * n_pools + layout.row_pool[np.maximum(rows, 0)], 0)
    nodes = index.cell_node[state.cells[counted]].astype(np.int64)
    n_nodes = count_nodes(key[counted], nodes, int(key.max()) + 1)
    of_pool = pool_nodes[np.arange(len(n_nodes)) % n_pools]
    common = (n_nodes >= least) & (n_nodes >= COMMON_EVENT_SHARE * of_pool)
    return np.asarray((rows >= 0) & common[key] & held)

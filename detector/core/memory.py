"""What the detection remembers of every cell and group between evaluations, and across restarts."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.absence import Presence
from detector.core.continuity import Continuity
from detector.core.direct import MIN_SEEN, REMEMBERED, DirectState
from detector.core.fusion import NAMELESS_CAP, TARGET_CAP, CellWeights
from detector.core.habit import Habit
from detector.core.ingest import CellValues, SeriesState
from detector.core.own_past import OwnPast
from detector.core.peers import RowState
from detector.core.shift import WARM_UP_SAMPLES, Shift
from detector.core.snapshots import Snapshot, cell_keys, pack, unpack
from detector.core.standing import Standing
from detector.core.trend import Trend
from grouping.index import SeriesIndex
from grouping.model import Direction, Kind

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

UNKNOWN_TARGET = "Other"
"""Monitored target of metrics of which only the name is known."""

JOB_TARGET = "Training"
"""Target of what a training job itself tells, which a node without work does not have."""

_SIDE = {Direction.BOTH: 0, Direction.ABOVE: 1, Direction.BELOW: -1}


def _no_weights() -> CellWeights:
    return CellWeights(
        np.zeros(0),
        np.zeros(0, dtype=np.int8),
        np.zeros(0, dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        0,
    )


@dataclass(slots=True)
class Memory:
    """All arrays over series, cells, groups and nodes that live from one evaluation to the next.

    Parameters
    ----------
    index
        Numbers and names of series and cells; the arrays grow with it.
    targets
        Monitored targets in the order of their numbers; grows by metrics without a known target.
    shift
        Habitual differences and the windows in which changes of them are seen.
    """

    index: SeriesIndex
    targets: list[str]
    shift: Shift
    series: SeriesState = field(default_factory=SeriesState)
    presence: Presence = field(default_factory=Presence)
    habit: Habit = field(default_factory=Habit)
    clock: Continuity = field(default_factory=Continuity)
    node_clock: Continuity = field(default_factory=Continuity)
    past: OwnPast = field(default_factory=OwnPast)
    standing: Standing = field(default_factory=Standing)
    nameless: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    of_job: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    direct: DirectState = field(default_factory=DirectState)
    rows: RowState = field(default_factory=RowState)
    trend: Trend = field(default_factory=Trend)
    weights: CellWeights = field(default_factory=_no_weights)
    exporter_seen: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    activity: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Cells that tell whether a node works."""
    unheard: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Cells of muted metrics, of shape (n_cells,): they are no evidence."""
    _caps: FloatArray = field(default_factory=lambda: np.zeros(0))
    _exporters_known: tuple[BoolArray, BoolArray] | None = None
    _reporting: tuple[BoolArray, BoolArray] | None = None
    _forgotten: dict[str, float] = field(default_factory=dict)
    _to_forget_again: dict[str, float] = field(default_factory=dict)
    _saved: Snapshot | None = None
    _saved_row: dict[str, int] = field(default_factory=dict)
    _saved_direct: dict[int, int] = field(default_factory=dict)
    _moves: dict[int, int] = field(default_factory=dict)

    def grow(self) -> dict[str, str]:
        """Make room for series, cells and nodes that the index has gained.

        Returns
        -------
        dict
            Old to new names of nodes that were renamed since the last call.
        """
        start, size = len(self.habit.n_seen), self.index.n_cells
        if start < size:
            self.habit.grow_to(size)
            self.clock.grow_to(size)
            self.shift.grow_to(size)
            self.past.grow_to(size)
            self.standing.grow_to(size)
            self.presence.grow_to(self.index)
            self.trend.grow_to(self.index)
            self._extend_weights(start)
            self.unheard = np.concatenate([self.unheard, np.zeros(size - start, dtype=bool)])
            if self._saved is not None:
                self._recall(self._saved, start)
        self.node_clock.grow_to(len(self.index.nodes))
        shape = (len(self.index.nodes), len(self.presence.exporters))
        if self.exporter_seen.shape != shape:
            larger = np.zeros(shape)
            old = self.exporter_seen
            larger[: old.shape[0], : old.shape[1]] = old
            self.exporter_seen = larger
        moves = self.index.take_moves()
        return self._carry(moves) if moves is not None else {}

    def mute(self, cells: BoolArray) -> None:
        """Let cells be no evidence until the next call; events that they had are not held either."""
        before, self.unheard = self.unheard, cells
        self.presence.unheard = cells
        if before.any() or cells.any():
            self.direct.forget(before | cells)

    def forget(self, node: str, at: float) -> None:
        """Begin anew for a node that was repaired: what speaks against it must show again.

        Its habits stay: they were not learnt while it was under suspicion, they excuse what is usual for
        its place, and without them a fault that is still there would be learnt as usual.

        Parameters
        ----------
        node
            Node name; cells of it that come back later from a snapshot begin anew as well.
        at
            Epoch seconds; what is missing counts as missing from then on.
        """
        self._forgotten[node] = at
        self._to_forget_again[node] = at
        if node not in self.index.nodes:
            return
        number = self.index.nodes.index(node)
        size = len(self.habit.n_seen)  # the index may have gained cells in a fetch since
        self._begin_anew(self.index.cell_node[:size] == number, at)
        if number < len(self.node_clock.dwell_s):
            self.node_clock.forget(np.arange(len(self.node_clock.dwell_s)) == number)
        if number < len(self.exporter_seen):
            self.exporter_seen[number] = 0.0

    def forget_again(self, at: float) -> None:
        """Begin anew once more where samples from before a repair have followed it; they end before `at`."""
        for node, repaired_at in list(self._to_forget_again.items()):
            if at >= repaired_at:
                self.forget(node, repaired_at)
                del self._to_forget_again[node]

    def _begin_anew(self, cells: BoolArray, at: float) -> None:
        self.clock.forget(cells)
        self.past.forget(cells)
        self.standing.forget(cells)
        self.shift.start_anew(cells)
        self.direct.forget(cells)
        self.trend.forget(cells)
        known = cells & (self.presence.n_fresh > 0)
        self.presence.last_s[known] = np.maximum(self.presence.last_s[known], at)

    def caps(self) -> FloatArray:
        """Return the most that each target is worth; a metric without a known target never decides alone."""
        if len(self._caps) != len(self.targets):
            known = {s.spec.target for s in self.index.signals} - {UNKNOWN_TARGET}
            caps = [TARGET_CAP if t in known else NAMELESS_CAP for t in self.targets]
            self._caps = np.array(caps, dtype=np.float64)
        return self._caps

    def exporter_known(self) -> BoolArray:
        """Tell for each cell whether its node's exporter was seen often enough before.

        Only then is the appearance of a series an event and not a start.
        """
        n_cells = self.index.n_cells
        if not self.exporter_seen.size:
            return np.zeros(n_cells, dtype=bool)
        often, before = self.exporter_seen >= MIN_SEEN, self._exporters_known
        if before is None or len(before[1]) != n_cells or not np.array_equal(before[0], often):
            key = self.index.cell_node * often.shape[1] + self.presence.exporter_of
            before = self._exporters_known = often, often.ravel().take(key)
        return before[1]

    def count_appearances(self, cells: CellValues, first: NDArray[np.int64]) -> None:
        """Count the first value of a labelled error counter as a rise: it exists since its first event."""
        if not len(first):
            return
        index = self.index
        specs = [signal.spec for signal in index.signals]
        counted = np.array([s.kind is Kind.ERROR_COUNTER and bool(s.sum_over) for s in specs], dtype=bool)
        cell = index.component_cell[index.series_component[first]]
        placed = cell >= 0
        first, cell = first[placed], cell[placed]
        chosen = counted[index.cell_signal[cell]] & self.exporter_known()[cell]
        np.add.at(cells.rise, cell[chosen], self.series.last_value[first[chosen]])

    def note_exporters(self, fresh: BoolArray) -> None:
        """Count an evaluation for each exporter of each node that reported."""
        if not self.exporter_seen.size:
            return
        before, shape = self._reporting, self.exporter_seen.shape
        if before is None or before[1].shape != shape or not np.array_equal(before[0], fresh):
            cells = np.flatnonzero(fresh)
            key = self.index.cell_node.take(cells) * shape[1] + self.presence.exporter_of.take(cells)
            seen = np.bincount(key, minlength=self.exporter_seen.size) > 0
            before = self._reporting = fresh, seen.reshape(shape)
        self.exporter_seen += before[1]

    @property
    def remembers_direct(self) -> bool:
        """True when `direct_memory` may know of some cell."""
        return bool(self._moves or self._saved_direct)

    def direct_memory(self, cell: int, name: str) -> float | None:
        """Return what is known of a direct cell by its earlier name or from a snapshot, None for nothing."""
        if cell in self._moves:
            k = int(np.searchsorted(self.direct.cells, self._moves[cell]))
            if k < len(self.direct.cells) and self.direct.cells[k] == self._moves[cell]:
                return float(getattr(self.direct, name)[k])
        row = self._saved_direct.get(cell)
        if row is None or self._saved is None:
            return None
        if name != "last" and self.index.nodes[self.index.cell_node[cell]] in self._forgotten:
            return None
        return float(self._saved.cells[f"direct_{name}"][row])

    def dump(self, plain: dict[str, object]) -> bytes:
        """Write everything that a restart needs, with some plain values beside it."""
        # The index may have gained cells in a fetch that no evaluation has followed yet.
        n = len(self.habit.n_seen)
        cells = {
            "offset": self.habit.offset,
            "spread": self.habit.spread,
            "n_habit": self.habit.n_seen,
            "n_fresh": self.presence.n_fresh.astype(np.float64),
            "last_s": self.presence.last_s,
            "dwell_s": self.clock.dwell_s,
            "strength": self.clock.strength,
            "since": self.clock.since,
        }
        cells |= self._over_time()
        cells |= {f"shift_{name}": array for name, array in self.shift.remembered().items()}
        for name in REMEMBERED:
            cells[f"direct_{name}"] = np.full(n, np.nan)
            cells[f"direct_{name}"][self.direct.cells] = getattr(self.direct, name)
        rows = self.rows.arrays()
        for prefix, state in self.shift.row_states().items():
            rows |= {f"{prefix}_{name}": array for name, array in state.arrays().items()}
        keys = tuple(cell_keys(self.index)[:n])
        return pack(Snapshot(keys, cells, self.rows.keys, rows, plain, self.trend.tables()))

    def _over_time(self) -> dict[str, FloatArray]:
        past = {f"past_{name}": getattr(self.past, name) for name in OwnPast.__slots__}
        return past | {f"standing_{name}": getattr(self.standing, name) for name in Standing.__slots__}

    def load(self, blob: bytes) -> dict[str, object]:
        """Take over a snapshot; cells get their part of it as they appear.

        Returns
        -------
        dict
            The plain values.

        Raises
        ------
        ValueError
            When the bytes are not a snapshot of this version.
        """
        try:
            saved = unpack(blob)
        except zipfile.BadZipFile as error:
            raise ValueError(f"the saved detection state cannot be read: {error}") from error
        self._saved = saved
        n = min((len(array) for array in saved.cells.values()), default=0)
        self._saved_row = {key: i for i, key in enumerate(saved.cell_keys[:n])}
        self.rows = RowState.of_arrays(saved.row_keys, saved.rows)
        for prefix in self.shift.row_states():
            mine = {
                k.removeprefix(f"{prefix}_"): v for k, v in saved.rows.items() if k.startswith(f"{prefix}_")
            }
            if mine:
                self.shift.take_rows(prefix, RowState.of_arrays(saved.row_keys, mine))
        return saved.plain

    def _recall(self, saved: Snapshot, start: int) -> None:
        keys = cell_keys(self.index, start)
        rows = np.array([self._saved_row.get(key, -1) for key in keys], dtype=np.int64)
        found = np.flatnonzero(rows >= 0)
        cells, rows = found + start, rows[found]
        for target, name in (
            (self.habit.offset, "offset"),
            (self.habit.spread, "spread"),
            (self.habit.n_seen, "n_habit"),
            (self.presence.n_fresh, "n_fresh"),
            (self.presence.last_s, "last_s"),
            (self.clock.dwell_s, "dwell_s"),
            (self.clock.strength, "strength"),
            (self.clock.since, "since"),
        ):
            target[cells] = saved.cells[name][rows]
        for name, array in self._over_time().items():
            if name in saved.cells:
                array[cells] = saved.cells[name][rows]
        for name, array in self.shift.remembered().items():
            if f"shift_{name}" in saved.cells:
                array[cells] = saved.cells[f"shift_{name}"][rows]
        self.shift.n_seen[cells[self.shift.n_seen[cells] < WARM_UP_SAMPLES]] = 0.0
        self._saved_direct.update(zip(cells.tolist(), rows.tolist(), strict=True))
        self.trend.recall(saved.tables, dict(zip(cells.tolist(), rows.tolist(), strict=True)))
        for node, at in self._forgotten.items():
            if node in self.index.nodes:
                mine = self.index.cell_node == self.index.nodes.index(node)
                mine[:start] = False
                self._begin_anew(mine, at)

    def _extend_weights(self, start: int) -> None:
        weight, sign, target = [], [], []
        first: dict[tuple[str, str], int] = {}
        quantity = [
            first.setdefault((signal.spec.name, signal.role), k)
            for k, signal in enumerate(self.index.signals)
        ]
        self._caps = np.zeros(0)
        for spec in (signal.spec for signal in self.index.signals):
            by_rate = spec.fault is not None and spec.fault.on == "rate"
            weight.append(spec.weight if spec.kind in (Kind.GAUGE, Kind.COUNTER) or by_rate else 0.0)
            sign.append(_SIDE[spec.direction])
            # How unknown metrics hang together is not known either: each stands for itself.
            name = spec.name if spec.target == UNKNOWN_TARGET else spec.target
            if name not in self.targets:
                self.targets.append(name)
            target.append(self.targets.index(name))
        old, new = self.weights, self.index.cell_signal[start:]
        unknown = np.array([s.spec.target == UNKNOWN_TARGET for s in self.index.signals], dtype=bool)
        voting = np.array(weight, dtype=np.float64) > 0
        self.nameless = np.concatenate([self.nameless, (unknown & voting)[new]])
        of_job = np.array([s.spec.target == JOB_TARGET for s in self.index.signals], dtype=bool)
        self.of_job = np.concatenate([self.of_job, of_job[new]])
        tells = np.array([s.spec.activity and not s.per_node for s in self.index.signals], dtype=bool)
        self.activity = np.flatnonzero(tells.take(self.index.cell_signal))
        self.weights = CellWeights(
            np.concatenate([old.weight, np.array(weight, dtype=np.float64)[new]]),
            np.concatenate([old.sign, np.array(sign, dtype=np.int8)[new]]),
            np.concatenate([old.target, np.array(target, dtype=np.int64)[new]]),
            np.concatenate([old.quantity, np.array(quantity, dtype=np.int64)[new]]),
            len(self.targets),
        )

    def _carry(self, moves: dict[int, int]) -> dict[str, str]:
        """Hand what is known of cells to those that took over, and stop to expect the empty ones."""
        self._moves.update(moves)
        new, old = np.array(list(moves), dtype=np.int64), np.array(list(moves.values()), dtype=np.int64)
        young = (self.presence.n_fresh[new] == 0) & (self.habit.n_seen[new] == 0)
        into, out = new[young], old[young]
        for array in (
            *(self.habit.offset, self.habit.spread, self.habit.n_seen),
            *(self.clock.dwell_s, self.clock.strength, self.clock.since, self.clock.unknown_s),
            *(self.presence.n_fresh, self.presence.last_s),
            *self.shift.remembered().values(),
            *self._over_time().values(),
        ):
            array[into] = array[out]
        # The samples of a habit in its warm-up are not handed over: it begins anew.
        self.shift.n_seen[into[self.shift.n_seen[into] < WARM_UP_SAMPLES]] = 0.0
        self.trend.carry(into, out)
        empty = (self.index.cell_components == 0) & (self.index.cell_first_series >= 0)
        self.presence.n_fresh[empty] = 0
        self.clock.dwell_s[empty] = 0.0
        renamed: dict[str, str] = {}
        pairs = np.unique(np.stack([self.index.cell_node[old], self.index.cell_node[new]]), axis=1)
        for was, now in pairs.T.tolist():
            if was != now and not self.index.inhabited[was]:
                self.exporter_seen[now] = np.maximum(self.exporter_seen[now], self.exporter_seen[was])
                renamed[self.index.nodes[was]] = self.index.nodes[now]
        return renamed

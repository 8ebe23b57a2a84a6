"""The one path from samples to verdicts; `serve` and `replay` both run this and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from detector.control.model import Mute
from detector.core import conclusion
from detector.core import incidents as life
from detector.core.conclusion import Concluded, Evaluation, Teller
from detector.core.data_findings import DataFindings
from detector.core.explained import explained
from detector.core.fusion import one_sided
from detector.core.group_events import GroupEvents
from detector.core.guard import Guard
from detector.core.hard_evidence import hard_evidence
from detector.core.independence import independent
from detector.core.ingest import CellValues, cell_values, spec_arrays, take_in
from detector.core.judge import active_cells, decide, node_scores, unusual_over_window
from detector.core.judgeable import judgeable
from detector.core.memory import Memory
from detector.core.muted import muted_cells
from detector.core.naming import NamingNotes
from detector.core.neighbours import Neighbours, neighbours
from detector.core.over_time import scores_over_time
from detector.core.parameters import Parameters
from detector.core.peers import Floors, row_stats, scores
from detector.core.recurrence import Recurrence
from detector.core.series_view import SeriesQuery, SeriesView, Yardstick, series_views
from detector.core.shift import Shift
from detector.core.shift_layer import ShiftLayer, together
from detector.core.simultaneous import one_by_one
from detector.core.thresholds import CellThresholds, Thresholds
from detector.core.twins import Twins
from detector.core.views import GroupSummary, group_summaries
from detector.core.window import Frame, Window
from detector.outcome import Incident, Outcome
from detector.source.base import Batch
from grouping.catalog import Catalog
from grouping.identity import IdentityRules, NodeIdentity
from grouping.index import SeriesIndex
from grouping.layout import Layout, build_layout
from grouping.part_classes import PartClasses
from grouping.placement import PlacementRules, Placer
from grouping.pools import PoolRules, Pools, PoolTracker

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

STANDING_S = 3600.0
"""A deviation that has not made its node a suspect for this long may be learnt as a habit."""


class Pipeline:
    """Samples in, verdicts out; all state of a running detection lives here.

    Not thread-safe: one caller at a time. The evaluation time is passed in.

    Parameters
    ----------
    catalog
        What is compared, and how.
    parameters
        Knobs of the detection core.
    identity, placement, pools
        Rules for node names, parts and pools; None for the defaults.
    thresholds
        What a calibration has learnt; None for one threshold.
    """

    def __init__(
        self,
        catalog: Catalog,
        parameters: Parameters | None = None,
        *,
        identity: IdentityRules | None = None,
        placement: PlacementRules | None = None,
        pools: PoolRules | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        self.catalog = catalog
        self.parameters = parameters or Parameters()
        self.identity = NodeIdentity(identity or IdentityRules())
        self.placer = Placer(catalog, self.identity, placement or PlacementRules())
        self.interner = SeriesIndex(catalog, self.identity, self.placer)
        self.pool_tracker = PoolTracker(pools or PoolRules())
        self.part_classes = PartClasses()
        p = self.parameters
        self.full_s = p.full_s
        self.n_window = max(8, int(np.ceil(self.full_s / p.step_s)))
        self.thresholds = thresholds or Thresholds()
        self.cell_thresholds = CellThresholds(self.thresholds, p.z_threshold)
        self.declared: Mapping[str, str] | None = None
        self.mutes: Callable[[float], Sequence[Mute]] = lambda at: ()
        self._targets = sorted({spec.target for spec in catalog.specs})
        self.memory = Memory(self.interner, self._targets, Shift(self.n_window))
        self.events = GroupEvents()
        self.twins = Twins()
        self.guard = Guard()
        self.recurrence = Recurrence()
        self.shifts = ShiftLayer(self.memory.shift, self.twins, self.n_window)
        naming = NamingNotes(self.interner, self.identity, self.placer)
        self.findings = DataFindings(self.memory, self.twins, naming, self.thresholds.notes)
        self.window = Window(5 * self.n_window)
        self.open: dict[str, Incident] = {}
        self.pools: Pools | None = None
        self.layout: Layout | None = None
        self.last_at: float | None = None
        self.concluded: Concluded | None = None
        self._layout_key: tuple[int, bytes] = (-1, b"")
        self._floors = Floors(np.zeros(0), np.zeros(0))

    def names(self) -> list[str]:
        """Metric names to fetch each tick: the catalog's, its aliases and identity metrics."""
        return self.catalog.fetched_names()

    def evaluate(self, batch: Batch, at: float, *, judge: bool = True) -> Outcome:
        """Take in new samples and say what is suspect at `at`.

        Parameters
        ----------
        batch
            Samples since the evaluation before, numbered by `interner`.
        at
            Evaluation time, epoch seconds; later than the one before.
        judge
            False on past data: signals are learnt and no incident moves.

        Raises
        ------
        ValueError
            When `at` is not after the evaluation before.
        """
        p, index, memory = self.parameters, self.interner, self.memory
        if self.last_at is not None and at <= self.last_at:
            raise ValueError(f"evaluation time {at} is not after the one before, {self.last_at}")
        dt = p.step_s if self.last_at is None else min(at - self.last_at, p.stale_after_steps * p.step_s)
        cells = self._take_in(batch, at)
        memory.forget_again(at)
        suspects = np.array([name in self.open for name in index.nodes], dtype=bool)
        mutes = self.mutes(at)
        self._choose_pools(cells, suspects, {mute.node for mute in mutes if mute.apart}, at)
        self.part_classes.step(self.interner, cells.value)
        layout, pools = self._arrange()
        memory.mute(muted_cells(mutes, index, pools, self.catalog))
        stats = row_stats(cells.value, layout, self._floors, memory.rows, min_peers=p.min_peers, dt=dt)
        z = scores(cells.value, stats, layout)
        np.putmask(z, (memory.weights.weight == 0) | memory.unheard, np.nan)
        if pools.in_grace.any():
            np.putmask(z, pools.in_grace.take(self.interner.cell_node), np.nan)
        self.window.add(at, cells.value, stats, layout)
        threshold = self.cell_thresholds.of_cells(index.signals, index.cell_signal)
        deviation = one_sided(memory.habit.excess(z), memory.weights.sign)
        deviation = self.twins.settle(self.interner, deviation, threshold, at=at, dt=dt)
        deviating = memory.clock.step(
            deviation, threshold, at=at, dt=dt, full_s=self.full_s, max_gap_s=self.full_s
        )
        self._learn(z, deviating, suspects, at, dt)
        direct_score, absence = hard_evidence(
            *(memory, index, layout, cells, p, pools.pool_of, self.events.stalled_since(pools.names)),
            at=at,
            dt=dt,
            is_partial=batch.is_partial,
        )
        active, common = active_cells(
            memory.clock, deviating, memory.weights, index, layout, p, threshold, at=at
        )
        active = active.when("peer" in p.layers)
        active = unusual_over_window(active, self.window, layout, len(index.nodes), self.n_window)
        shifted, shared = self.shifts.step(
            cells.value,
            stats,
            layout,
            self._floors,
            index,
            memory.weights,
            p,
            voting=(memory.weights.weight > 0) & ~memory.nameless & ~memory.unheard,
            befallen=self.events.befallen(pools.names, at, self.full_s),
            fresh_nodes=pools.in_grace,
            suspects=suspects,
            threshold=threshold,
            at=at,
            dt=dt,
        )
        own, behind = scores_over_time(
            memory,
            cells.value,
            stats,
            layout,
            self._floors.absolute,
            pools.pool_of,
            fresh_nodes=pools.in_grace,
            suspects=suspects,
            min_peers=p.min_peers,
            at=at,
            dt=dt,
        )
        active = active.and_also(shifted.when("habit" in p.layers))
        active = active.only(~memory.unheard[active.cell])
        common = together(common, shared)
        at_once = np.zeros(0, dtype=np.int64)
        if "one by one" in p.layers:
            active, shared, at_once = one_by_one(active, index, layout, at=at, dt=dt, full_s=self.full_s)
            common = together(common, shared)
        if "independence" in p.layers:
            active = independent(active, self.shifts.shift.short.middle, index, layout)
        frames, sign = self.window.frames()[-self.n_window :], memory.weights.sign
        active = explained(active, index, memory.activity, frames, pools, sign, z)
        own = own * ("standing" in p.layers)
        grown = memory.trend.step(cells, index, layout, p, at=at, skip_nodes=pools.in_grace)
        grown = grown.only(~memory.unheard[grown.cell])
        by_trend = grown.by_node(len(index.nodes)) * ("trend" in p.layers)
        fused = node_scores(
            active,
            memory.direct,
            direct_score,
            absence,
            index,
            len(self._targets),
            self.thresholds.node,
            cap=memory.caps(),
            own=own,
            trend=by_trend,
        )
        active = active.and_also(behind.when("standing" in p.layers))  # its worth is in `own` already
        self.last_at = at
        worse = np.where(memory.weights.sign > 0, self.shifts.shift.score, np.nan)
        arrays = (cells, stats, layout, pools, active, common, direct_score, absence, fused, z, deviation)
        return self._conclude(Evaluation(at, dt, *arrays, worse, grown, at_once), batch, judge=judge)

    def groups(self) -> list[GroupSummary]:
        """Peer groups as of the newest evaluation."""
        if self.layout is None or self.pools is None:
            return []
        return group_summaries(self.layout, tuple(self.pools.names), self.parameters.min_peers)

    def series_view(self, query: SeriesQuery, frames: Sequence[Frame] | None = None) -> list[SeriesView]:
        """Signals of a node against their peers, in the kept window or in frames that the caller has kept."""
        return series_views(self.interner, frames or self.window.frames(), self.yardstick(), query)

    def yardstick(self) -> Yardstick:
        """Tell by what deviations are measured now."""
        threshold = self.cell_thresholds.of_cells(self.interner.signals, self.interner.cell_signal)
        return Yardstick(self.memory.habit, self.memory.weights, threshold)

    def neighbours(self, node: str) -> tuple[Neighbours, ...]:
        """Return what a node shares with others, as far as labels tell."""
        return neighbours(self.interner, node)

    def snapshot(self) -> bytes:
        """Return what must survive a restart beyond the incidents: habits, pools, expected series."""
        plain: dict[str, object] = {"pools": self.pool_tracker.dump(), "last_at": self.last_at}
        plain |= {"pool_changes": self.events.dump(), "recurrence": self.recurrence.dump()}
        return self.memory.dump(plain)

    def restore(self, blob: bytes | None, incidents: Sequence[Incident]) -> list[str]:
        """Continue from a snapshot, None for none, and the open of the stored incidents.

        Returns
        -------
        list of str
            What could not be used, in sentences.
        """
        self.open = {i.node: i for i in incidents if i.state != life.CLEARED}
        if blob is None:
            return []
        try:
            plain = self.memory.load(blob)
        except ValueError as error:
            return [str(error)]
        pools = plain.get("pools")
        if isinstance(pools, dict):
            self.pool_tracker.load(pools)
        self.events.load(plain.get("pool_changes"))
        self.recurrence.load(plain.get("recurrence"))
        return []

    def take_up(self, old: Pipeline) -> list[str]:
        """Go on where a pipeline with other rules was; return in sentences what could not be used.

        Samples are not taken over: the window is to be filled again.
        """
        notes = self.restore(old.snapshot(), list(old.open.values()))
        self.events.take_up(old.events)
        self.guard = old.guard
        return notes

    def forget(self, node: str, at: float) -> None:
        """Begin anew for a node that was repaired at `at`, epoch seconds; its incident is the caller's."""
        self.memory.forget(node, at)
        self.recurrence.forget(node)

    def _take_in(self, batch: Batch, at: float) -> CellValues:
        p, index = self.parameters, self.interner
        renamed = self.memory.grow()
        life.rename(self.open, renamed)
        self.recurrence.rename(renamed)
        spec_arrays(self.memory.series, index)
        first = take_in(
            self.memory.series,
            batch.series,
            batch.ts_ms,
            batch.values,
            max_gap_ms=1000.0 * 5 * p.step_s,
        )
        stale = p.stale_after_steps * p.step_s
        cells = cell_values(self.memory.series, index, first, at=at, stale_after_s=stale)
        self.memory.count_appearances(cells, first)
        self.memory.presence.see(cells.fresh, at)
        return cells

    def _choose_pools(self, cells: CellValues, suspects: BoolArray, apart: set[str], at: float) -> None:
        index = self.interner
        load = index.mean_by_node(self.memory.activity, cells.value)
        empty = {index.nodes[n] for n in np.flatnonzero(~index.inhabited).tolist()}
        self.pools = self.pool_tracker.step(
            index.nodes, load, at, declared=self.declared, hold=suspects, muted=empty | apart
        )

    def _arrange(self) -> tuple[Layout, Pools]:
        """Return the layout of the present pools, computed anew only when something changed."""
        assert self.pools is not None  # noqa: S101  (set by `_choose_pools`)
        classes = self.part_classes.classes
        key = (self.interner.version, self.pools.pool_of.tobytes() + classes.tobytes())
        if self.layout is None or key != self._layout_key:
            self.layout = build_layout(self.interner, self.pools.pool_of, self.pools.names, classes)
            self._layout_key = key
            specs = [self.interner.signals[s].spec for s in self.layout.row_signal.tolist()]
            self._floors = Floors(
                np.array([spec.floor_abs for spec in specs]),
                np.array([spec.floor_rel for spec in specs]),
                np.array([spec.floor_lasting for spec in specs]),
            )
            self.memory.rows = self.memory.rows.carry_to(self.layout.row_key)
            self.shifts.shift.carry_to(self.layout.row_key)
        return self.layout, self.pools

    def _learn(self, z: FloatArray, deviating: BoolArray, suspects: BoolArray, at: float, dt: float) -> None:
        """Learn habits, but nothing from nodes under suspicion and nothing from young deviations."""
        index = self.interner
        standing = deviating & (at - self.memory.clock.since > STANDING_S)
        skip = (deviating & ~standing) | suspects.take(index.cell_node)
        self.memory.habit.learn(z, skip, dt=dt, habit_s=self.parameters.habit_s)

    def _conclude(self, ev: Evaluation, batch: Batch, *, judge: bool) -> Outcome:
        p, index = self.parameters, self.interner
        known, reasons, forgotten = judgeable(ev, index, self.memory, p.min_peers)
        instant = np.where(known, ev.scores.instant, np.nan)
        self.memory.node_clock.step(
            instant, 1.0, at=ev.at, dt=ev.dt, full_s=self.full_s, max_gap_s=2 * self.full_s
        )
        decided = decide(ev.scores, self.memory.node_clock, self.full_s, ev.dt)
        if "recurrence" in p.layers:
            peers = np.where(known, ev.scores.peers, np.nan)
            fresh = ev.pools.in_grace
            decided |= self.recurrence.step(peers, index.nodes, fresh, at=ev.at, full_s=self.full_s)
        suspects = {name for name, incident in self.open.items() if incident.state == life.SUSPECT}
        fresh_suspects = decided & ~np.array([name in suspects for name in index.nodes], dtype=bool)
        guarded, held = self.guard.step(
            decided, fresh_suspects, ev.scores, ev.pools.pool_of, index.nodes, p, ev.at
        )
        decided &= ~held
        teller = Teller(index, self.memory.clock, self.memory.direct, self.window, self.n_window)
        gone = ev.absence.silent & forgotten
        if judge:
            # What a partial answer lacks may be the evidence: it never clears anything.
            told_enough = ev.scores.instant >= life.QUIET_SHARE
            seen = known & (told_enough | (not batch.is_partial))
            incidents, transitions, told = conclusion.step_incidents(
                self.open, ev, teller, decided, seen, gone, p.clear_after_s
            )
        else:
            incidents, transitions, told = list(self.open.values()), [], {}
        events = conclusion.step_group_events(self.events, ev, teller, guarded, self.open, self.full_s)
        odd = self.findings.step(ev, p, is_partial=batch.is_partial, notes=batch.notes)
        outcome = Outcome(
            at=ev.at,
            verdicts=conclusion.verdicts(ev, index, self.open, told, reasons),
            incidents=tuple(incidents),
            transitions=tuple(transitions),
            group_events=events,
            data_quality=(*ev.absence.quality, *odd),
            is_partial=batch.is_partial,
            undetermined=dict(Counter(reasons.values())),
            n_series=index.n_series,
            n_cells=index.n_cells,
            n_groups=len(ev.layout.blocks),
        )
        self.concluded = Concluded(ev, outcome, decided, guarded, held, known)
        return outcome

"""Builds the evidence against one node from the arrays of an evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from detector.core.absence import AbsenceReport
from detector.core.continuity import Continuity
from detector.core.diagnosis import is_hard, worth
from detector.core.direct import CODES, DirectState
from detector.core.evidence import PLURAL, direct_evidence, peer_evidence
from detector.core.grown import NOTHING, Grown, trend_evidence
from detector.core.ingest import CellValues
from detector.core.judge import ActiveCells, Common, NodeScores
from detector.core.peers import RowStats
from detector.core.pointers import POINTED_SCORE, part_that_stands_out, units_pointed_to
from detector.core.stall import BLAMED
from detector.core.window import Window
from detector.outcome import Evidence, Layer
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.pools import Pools

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_EVIDENCE = 20
"""Pieces of evidence kept per node."""

PER_METRIC = 2
"""Pieces of peer evidence that a metric with roles (NFS operations, interfaces) gives at most."""

POOL_MOVED = 2.0
"""A move of the peers' median by more than this many scales of before is a move of the pool."""

BEFORE_FRAMES = 5
"""Evaluations before a deviation began whose medians tell where the pool was."""

PART_SHARE = 0.5
"""Parts that deviate at least this much of what the strongest one does are named with it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All arrays of one evaluation, as far as conclusions need them.

    `z` is each cell's robust z-score against its peers, `deviation` what is left of it without
    habit, better side and what a twin denies; both NaN where unknown. `worse` is how far each cell has moved
    above its own habit, NaN where unknown or where more is not worse. `at_once` are cells left out because
    several nodes began to deviate in one signal at one moment.
    """

    at: float
    dt: float
    cells: CellValues
    stats: RowStats
    layout: Layout
    pools: Pools
    active: ActiveCells
    common: Common
    direct_score: FloatArray
    absence: AbsenceReport
    scores: NodeScores
    z: FloatArray
    deviation: FloatArray
    worse: FloatArray
    grown: Grown = NOTHING
    at_once: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Teller:
    """Builds evidence from an evaluation and the memory behind it.

    Parameters
    ----------
    index, clock, direct, window
        Memory of the pipeline.
    n_window
        Evaluations over which similarity is measured.
    """

    index: SeriesIndex
    clock: Continuity
    direct: DirectState
    window: Window
    n_window: int

    def evidence(self, ev: Evaluation, node: int) -> tuple[Evidence, ...]:
        """Return ranked evidence against one node: what speaks for itself, then by weight."""
        found: list[Evidence] = []
        cells = np.flatnonzero(self.index.cell_node == node)
        direct = np.flatnonzero(ev.direct_score > 0)
        worth_of_events = self.direct.worth_of_events()
        for k in direct[self.index.cell_node[self.direct.cells[direct]] == node].tolist():
            score = float(ev.direct_score[k])
            found.append(
                direct_evidence(
                    *(self.index, ev.layout, ev.stats, ev.cells.value, self.direct, k),
                    score=score,
                    n_siblings=len(self._siblings(int(self.index.cell_signal[self.direct.cells[k]]), cells)),
                    is_blamed=bool(self.direct.rule[k] == CODES and worth_of_events[k] < BLAMED <= score),
                )
            )
        found.extend(self._absences(ev, node))
        found.extend(trend_evidence(self.index, ev.grown, node))
        found.sort(key=lambda item: -item.score)
        found.extend(self._peers(ev, node, cells, MAX_EVIDENCE - len(found)))
        found.extend(self._pointed_to(ev, cells, found))
        found.sort(key=lambda item: (not is_hard(item), -worth(item)))
        return tuple(found[:MAX_EVIDENCE])

    def _pointed_to(self, ev: Evaluation, cells: IntArray, found: Sequence[Evidence]) -> list[Evidence]:
        """Describe the parts that node-wide deviations point to and that do not deviate enough themselves."""
        told: list[Evidence] = []
        units = units_pointed_to(found)
        if not units:
            return told
        active = np.intersect1d(ev.active.cell, cells)
        signals = [self.index.signals[s] for s in self.index.cell_signal[active].tolist()]
        deviating = {signal.spec.unit for signal in signals if not signal.per_node}
        for unit, since in units.items():
            cell = part_that_stands_out(self.index, unit, cells, ev.worse)
            if cell is None or unit in deviating:
                continue
            item = peer_evidence(
                self.index,
                ev.layout,
                ev.stats,
                ev.cells.value,
                cell,
                score=POINTED_SCORE,
                strength=float(ev.worse[cell]),
                since=since,
                at=ev.at,
                similarity=None,
                parts=[self.index.parts[self.index.cell_part[cell]]],
                siblings=self._siblings(int(self.index.cell_signal[cell]), cells),
                with_pool=False,
                is_shift=True,
            )
            others = f"the node's other {PLURAL.get(unit, 'parts')} have not"
            told.append(replace(item, reason=f"{item.reason}; {others}"))
        return told

    def _siblings(self, signal: int, cells: IntArray) -> list[str]:
        """Return the parts of a node that have a signal; of a mean over parts, the parts that it is of."""
        index = self.index
        signals = [signal]
        if index.signals[signal].per_node:
            name, role = index.signals[signal].spec.name, index.signals[signal].role
            signals = [
                s
                for s in np.unique(index.cell_signal[cells]).tolist()
                if index.signals[s].spec.name == name and index.signals[s].role == role and s != signal
            ]
        of = index.cell_signal.take(cells)
        same = cells[of == signals[0]] if len(signals) == 1 else cells[np.isin(of, signals)]
        return [index.parts[p] for p in index.cell_part[same].tolist()]

    def _peers(self, ev: Evaluation, node: int, cells: IntArray, limit: int) -> list[Evidence]:
        """Describe the strongest cells: a metric and its twin once, for all parts together; roles twice."""
        mine = np.flatnonzero(ev.active.node == node)
        order = mine[np.argsort(-(ev.active.score * (0.5 + ev.active.ramp))[mine], kind="stable")]
        first: dict[int, int] = {}
        means: dict[str, int] = {}
        times: Counter[str] = Counter()
        for k in order.tolist():
            signal = int(ev.active.signal[k])
            if signal in first:
                continue
            spec, per_node = self.index.signals[signal].spec, self.index.signals[signal].per_node
            quantity = min(spec.name, spec.twin or spec.name)
            mean = means.get(quantity)
            if mean is not None and not per_node and self._says_more(ev, k, first.get(mean, k)):
                del first[mean], means[quantity]  # which part it is tells more than the mean over parts
                times[quantity] -= 1
            times[quantity] += 1
            if times[quantity] > (PER_METRIC if spec.role else 1) or len(first) >= limit:
                continue
            first[signal] = k
            if per_node:
                means[quantity] = signal
        return [self._peer(ev, k, mine, cells) for k in first.values()]

    def _says_more(self, ev: Evaluation, part: int, mean: int) -> bool:
        """Tell whether a deviating part is about as far from its peers as the mean over the parts."""
        return bool(ev.active.score[part] >= PART_SHARE * ev.active.score[mean])

    def _absences(self, ev: Evaluation, node: int) -> list[Evidence]:
        return [
            Evidence(
                metric=item.metric,
                labels={},
                part=item.part,
                layer=Layer.ABSENCE,
                reason=item.reason,
                score=item.score,
                value=None,
                peer_median=None,
                band=None,
                since=item.since,
                n_peers=0,
                target="Absence",
            )
            for item in ev.absence.absent
            if item.node == node
        ]

    def _parts(self, ev: Evaluation, k: int, mine: IntArray) -> list[str]:
        """Return the parts that deviate about as much as the strongest and to its side, that one first."""
        cell = ev.active.cell[k]
        same = mine[ev.active.signal[mine] == ev.active.signal[k]]
        same = same[ev.active.score[same] >= PART_SHARE * ev.active.score[k]]
        same = same[ev.active.strength[same] * ev.active.strength[k] > 0]
        cells = ev.active.cell[same[np.argsort(-ev.active.score[same], kind="stable")]]
        names = [self.index.parts[p] for p in self.index.cell_part[cells].tolist()]
        own = self.index.parts[self.index.cell_part[cell]]
        return [name for name in dict.fromkeys([own, *names]) if name]

    def _peer(self, ev: Evaluation, k: int, mine: IntArray, cells: IntArray) -> Evidence:
        cell = int(ev.active.cell[k])
        row = int(ev.layout.row_of_cell[cell])
        since = float(np.nan_to_num(ev.active.since[k], nan=ev.at))
        ratio = float("nan")
        if row >= 0:
            ratio = self.window.similarity(ev.layout, row, cell, self.n_window)
        return peer_evidence(
            self.index,
            ev.layout,
            ev.stats,
            ev.cells.value,
            cell,
            score=float(ev.active.score[k]),
            strength=float(ev.active.strength[k]),
            since=since,
            at=ev.at,
            similarity=ratio if np.isfinite(ratio) else None,
            parts=self._parts(ev, k, mine),
            siblings=self._siblings(int(ev.active.signal[k]), cells),
            with_pool=bool(self._pool_moved(ev, cell, mine) * ev.active.strength[k] > 0),
            is_shift=bool(ev.active.is_shift[k]),
        )

    def _pool_moved(self, ev: Evaluation, cell: int, mine: IntArray) -> int:
        """Say to which side the median of a cell's peers has moved since the node's first sign, 0 for none.

        The first sign of any signal counts: what shows later, when the peers stand still again, is
        still the same move.
        """
        row = max(int(ev.layout.row_of_cell[cell]), int(ev.layout.slot_row_of_cell[cell]))
        if row < 0:
            return 0
        frames = [f for f in self.window.frames() if f.layout is ev.layout]
        began = ev.active.since[mine]
        began = began[np.isfinite(began) & (began > (frames[0].at if frames else ev.at))]
        if not len(began):
            return 0
        first_sign = float(began.min())
        before = [f for f in frames if f.at < first_sign][-BEFORE_FRAMES:]
        median = float(np.median([frame.median[row] for frame in before]))
        moved = float(ev.stats.median[row]) - median
        return int(np.sign(moved)) if abs(moved) > POOL_MOVED * float(before[-1].scale[row]) else 0

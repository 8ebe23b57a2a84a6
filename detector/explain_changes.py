"""One node's signals against their own habit: how far each has moved, and what became of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.conclusion import Concluded
from detector.core.fusion import one_sided
from detector.core.judge import SHIFT_SHARE, longer_weight
from detector.core.shift import SEEN_SHARE, WARM_UP_SAMPLES
from detector.core.twins import ORDINARY_SHARE
from detector.explain_rows import DIGITS, Rows, finite, rows_of, threshold_of
from detector.explanation_signals import Fate, HabitChange
from detector.pipeline import Pipeline

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of habit of all cells at one evaluation.

    Parameters
    ----------
    shift : ndarray of shape (n_cells,)
        Signed, in scales, NaN where unknown.
    threshold : ndarray of shape (n_cells,)
        Absolute shift from which one counts.
    denied : ndarray of shape (n_cells,), bool
        Cells whose twin has not moved.
    rows
        How many nodes of each row have moved.
    score : ndarray of shape (n_cells,)
        What each is worth, 0 where it does not count.
    """

    shift: FloatArray
    threshold: FloatArray
    denied: BoolArray
    rows: Rows
    score: FloatArray

    @property
    def counts(self) -> BoolArray:
        """Cells whose change counts against their node."""
        return np.asarray(self.score > 0)


def changes(pipeline: Pipeline, told: Concluded) -> Changes:
    """Return the changes of habit of all cells as they were judged."""
    ev, weights = told.evaluation, pipeline.memory.weights
    n = len(ev.z)
    shift = pipeline.shifts.shift.score[:n]
    threshold = threshold_of(pipeline, np.arange(n))
    size = np.abs(np.nan_to_num(one_sided(shift, weights.sign[:n])))
    other = np.full(n, -1, dtype=np.int64)
    known = pipeline.twins.other[:n]
    other[: len(known)] = known
    of_twin = np.where(np.isfinite(shift[other]), size[other], np.inf)
    denied = (other >= 0) & (size >= threshold) & (of_twin < ORDINARY_SHARE * threshold[other])
    over = (size >= SEEN_SHARE * threshold) & ~denied
    score = np.zeros(n)
    counted = ev.active.only(ev.active.is_shift)
    score[counted.cell] = counted.score
    return Changes(shift, SEEN_SHARE * threshold, denied, rows_of(pipeline, told, over), score)


def change_of(pipeline: Pipeline, told: Concluded, found: Changes, cell: int) -> HabitChange:
    """Tell one cell's change of habit in numbers and words."""
    habits = pipeline.shifts.shift
    n_habit, since = int(habits.n_seen[cell]), float(habits.since[cell])
    fate = _fate(pipeline, told, found, cell)
    shift, least = float(found.shift[cell]), float(found.threshold[cell])
    n_shared = found.rows.shared_by(cell)
    lasted_s = told.evaluation.at - since if np.isfinite(since) else 0.0
    longer = float(longer_weight(np.asarray(since), at=told.evaluation.at, full_s=pipeline.full_s))
    match fate:
        case Fate.COUNTS:
            side = "above" if shift > 0 else "below"
            why = f"moved {abs(shift):.1f} robust deviations {side} its habit, {least:.3g} count"
            why += f", for {lasted_s:.0f} s (times {longer:.2f}, and {SHIFT_SHARE:g} for a habit): "
            why += f"worth {found.score[cell]:.2f}"
        case Fate.SHARED:
            n_nodes = int(told.evaluation.layout.row_nodes[found.rows.of_cell[cell]])
            why = f"{n_shared} of {n_nodes} nodes have moved in it: nobody is blamed"
        case Fate.AT_ONCE:
            why = "it moved in several nodes at one moment: nobody is blamed"
        case Fate.WARMING_UP if n_habit < WARM_UP_SAMPLES:
            why = f"{n_habit} of {WARM_UP_SAMPLES} samples until its habit is known"
        case Fate.WARMING_UP:
            why = "too few samples since its habit is known"
        case Fate.BETTER_SIDE:
            why = "it has moved to the better side"
        case Fate.TWIN_DENIES:
            why = "another exporter's reading of the same has not moved: a matter of the reading"
        case Fate.ORDINARY:
            why = "no lasting change of its habit"
        case Fate.LEFT_OUT:
            why = "left out by another rule"
        case _:
            why = "nothing to compare with its habit now"
    return HabitChange(
        shift=finite(shift, DIGITS),
        threshold=round(least, DIGITS),
        since=finite(since),
        longer=round(longer, DIGITS),
        offset=finite(habits.offset[cell]) if n_habit >= WARM_UP_SAMPLES else None,
        n_habit=n_habit,
        n_needed=WARM_UP_SAMPLES,
        n_shared=n_shared,
        score=round(float(found.score[cell]), DIGITS),
        fate=fate,
        why=why,
    )


def _fate(pipeline: Pipeline, told: Concluded, found: Changes, cell: int) -> Fate:
    ev, shift = told.evaluation, float(found.shift[cell])
    if found.score[cell] > 0:
        return Fate.COUNTS
    row = int(found.rows.of_cell[cell])
    if not np.isfinite(shift):
        if not np.isfinite(ev.cells.value[cell]):
            return Fate.NO_VALUE
        if row < 0 or not np.isfinite(ev.stats.median[row]):
            return Fate.NO_PEERS
        return Fate.IN_GRACE if ev.pools.in_grace[pipeline.interner.cell_node[cell]] else Fate.WARMING_UP
    if abs(shift) < found.threshold[cell]:
        return Fate.ORDINARY
    if shift * pipeline.memory.weights.sign[cell] < 0:
        return Fate.BETTER_SIDE
    if found.denied[cell]:
        return Fate.TWIN_DENIES
    if found.rows.common_to(cell):
        return Fate.SHARED
    return Fate.AT_ONCE if cell in ev.at_once else Fate.LEFT_OUT

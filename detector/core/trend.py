"""Growth over an hour, a day and a week: faults that never raise an alarm of their own.

Only cells that the catalog marks (`trend`) are followed. Each keeps means, or sums of events, of the
last hour in blocks of five minutes and of the last week in blocks of an hour: memory is bounded by
the number of such cells. Growth is compared when a block has ended, so most evaluations only add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from detector.core.grown import (
    BLOCK_S,
    COUNTED,
    NOTHING,
    PER_HOUR,
    SCALES,
    Grown,
    grown_of,
    joined,
    parts_per_node,
    uncommon,
)
from detector.core.growth import (
    LEAST_BLOCKS,
    count_growth,
    gauge_growth,
    row_medians,
    rows_of,
    stages_of,
)
from detector.core.ingest import CellValues
from detector.core.parameters import Parameters
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.model import Direction, MetricSpec

FloatArray = NDArray[np.float64]
BlockArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

HOURS = 168
"""Hours that are kept: a week."""

DECIDES = 1.0
"""Growth is worth at most this: plain growth may decide alone."""

FULL_WITHIN_S = 3600.0
"""Room on a filesystem that shrinks counts when at that pace it is used up within so long."""

SUPPORTS = 0.5
"""... and at most this where a rise is normal: such growth never decides alone."""

_SIDE = {Direction.BOTH: 0, Direction.ABOVE: 1, Direction.BELOW: -1}


@dataclass(slots=True)
class Trend:
    """What the followed cells did in the last hour and week; grows with the index.

    Parameters
    ----------
    cells : ndarray of shape (n,)
        Cells that are followed, ascending.
    fast, slow : ndarray of shape (12, n) and (168, n), float32
        Sums of events or means of a gauge by block and by hour, NaN for nothing seen; the block or hour
        number k is in line k modulo the length.
    block
        Number of the block that is being added up, None before the first evaluation.
    last_at
        Evaluations up to this time, epoch seconds, are in already.
    """

    cells: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    fast: BlockArray = field(default_factory=lambda: np.zeros((PER_HOUR, 0), dtype=np.float32))
    slow: BlockArray = field(default_factory=lambda: np.zeros((HOURS, 0), dtype=np.float32))
    block: int | None = None
    last_at: float = -np.inf
    found: Grown = NOTHING
    _sum: FloatArray = field(default_factory=lambda: np.zeros(0))
    _n: FloatArray = field(default_factory=lambda: np.zeros(0))
    _is_count: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    _column: dict[int, int] = field(default_factory=dict)
    _n_cells: int = 0
    _hours_compared: bool = False
    _by_scale: list[Grown] = field(default_factory=lambda: [NOTHING] * len(SCALES))

    def grow_to(self, index: SeriesIndex) -> IntArray:
        """Follow new cells that the catalog marks; return them."""
        start, self._n_cells = self._n_cells, index.n_cells
        if start == index.n_cells:
            return np.zeros(0, dtype=np.int64)
        follows = np.array([s.spec.trend is not None and not s.per_node for s in index.signals], dtype=bool)
        counts = np.array([s.spec.kind in COUNTED for s in index.signals], dtype=bool)
        new = start + np.flatnonzero(follows[index.cell_signal[start:]])
        self._column.update(
            zip(new.tolist(), range(len(self.cells), len(self.cells) + len(new)), strict=True)
        )
        self.cells = np.concatenate([self.cells, new])
        self._is_count = np.concatenate([self._is_count, counts[index.cell_signal[new]]])
        self._sum = np.concatenate([self._sum, np.zeros(len(new))])
        self._n = np.concatenate([self._n, np.zeros(len(new))])
        self.fast = np.hstack([self.fast, np.full((PER_HOUR, len(new)), np.nan, dtype=np.float32)])
        self.slow = np.hstack([self.slow, np.full((HOURS, len(new)), np.nan, dtype=np.float32)])
        return new

    def step(
        self,
        cells: CellValues,
        index: SeriesIndex,
        layout: Layout,
        parameters: Parameters,
        *,
        at: float,
        skip_nodes: BoolArray,
    ) -> Grown:
        """Take in one evaluation and return what has grown, as of the newest finished block.

        Parameters
        ----------
        cells
            Values and rises of all cells.
        index, layout, parameters
            Cells, rows of peers, and knobs of the core.
        at
            Evaluation time, epoch seconds; times that are known already are passed over.
        skip_nodes : ndarray of shape (n_nodes,), bool
            Nodes whose gauges say nothing of a trend now: they have just joined their pool.
        """
        if at <= self.last_at - HOURS * PER_HOUR * BLOCK_S:
            # What is known is of a time to come: the clock was wrong when it was saved.
            self.fast[:], self.slow[:], self.block = np.nan, np.nan, None
            self._sum[:], self._n[:] = 0.0, 0.0
        elif at <= self.last_at:
            return self.found
        self.last_at = at
        number = int(at // BLOCK_S)
        if self.block is None:
            self.block = number
        elif number > self.block:
            old_hour = self.block // PER_HOUR
            self._close(number)
            # After a restart the windows of hours are looked at once, not only when the hour has ended.
            hour_ended = number // PER_HOUR > old_hour or not self._hours_compared
            self._compare(index, layout, hour_ended, parameters)
            self._hours_compared = True
        value = np.where(self._is_count, cells.rise.take(self.cells), cells.value.take(self.cells))
        here = cells.fresh.take(self.cells) & np.isfinite(value)
        here &= self._is_count | ~skip_nodes.take(index.cell_node.take(self.cells))
        # A rise over a gap is told once, though the rate over it is unknown: it must not be lost.
        self._sum += np.where(here, value, 0.0)
        self._n += here
        return self.found

    def forget(self, cells: BoolArray) -> None:
        """Begin anew for the chosen of all cells."""
        mine = cells[self.cells]
        self.fast[:, mine] = self.slow[:, mine] = np.nan
        self._sum[mine] = self._n[mine] = 0.0
        self._by_scale = [part.only(~cells[part.cell]) for part in self._by_scale]
        self.found = self.found.only(~cells[self.found.cell])

    def carry(self, new: IntArray, old: IntArray) -> None:
        """Hand what is known of cells to those that took over from them."""
        for into, out in zip(new.tolist(), old.tolist(), strict=True):
            if into in self._column and out in self._column:
                a, b = self._column[into], self._column[out]
                for array in (self.fast, self.slow):
                    line = np.isnan(array[:, a])
                    array[line, a] = array[line, b]

    def tables(self) -> dict[str, NDArray[np.generic]]:
        """Return what must survive a restart."""
        return {
            "trend_cells": self.cells,
            "trend_fast": self.fast,
            "trend_slow": self.slow,
            "trend_open": np.stack([self._sum, self._n]),
            "trend_times": np.array([-1 if self.block is None else self.block, self.last_at]),
        }

    def recall(self, tables: Mapping[str, NDArray[np.generic]], rows: Mapping[int, int]) -> None:
        """Take over what a snapshot tells of cells that have come back.

        Parameters
        ----------
        tables
            From `tables` of an earlier run; without these nothing happens.
        rows
            Cell now, and its number at the time of the snapshot.
        """
        if "trend_cells" not in tables or not rows:
            return
        place = {cell: k for k, cell in enumerate(tables["trend_cells"].tolist())}
        pairs = [(self._column[c], place[r]) for c, r in rows.items() if c in self._column and r in place]
        block, last_at = (float(x) for x in tables["trend_times"])
        if not pairs or block < 0:
            return
        if self.block is None:
            self.block, self.last_at = int(block), last_at
        now, then = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
        if self.block == int(block):
            self._sum[now], self._n[now] = tables["trend_open"][:, then]
        # Lines of blocks that have passed since then are of another time.
        age = self.block - int(block)
        if 0 <= age < PER_HOUR:
            lines = (int(block) - 1 - np.arange(PER_HOUR - age)) % PER_HOUR
            self.fast[np.ix_(lines, now)] = tables["trend_fast"][np.ix_(lines, then)]
        hour = int(block) // PER_HOUR
        age = self.block // PER_HOUR - hour
        if 0 <= age < HOURS:
            lines = (hour - 1 - np.arange(HOURS - age)) % HOURS
            self.slow[np.ix_(lines, now)] = tables["trend_slow"][np.ix_(lines, then)]

    def _close(self, number: int) -> None:
        """End the present block, and those up to `number` in which nothing was evaluated."""
        assert self.block is not None  # noqa: S101  (set by `step`)
        if number - self.block > HOURS * PER_HOUR:
            self.fast[:], self.slow[:] = np.nan, np.nan
            self._sum[:], self._n[:] = 0.0, 0.0
            self.block = number
            return
        while self.block < number:
            filled = self._sum / np.where(self._is_count, 1.0, np.maximum(self._n, 1.0))
            self.fast[self.block % PER_HOUR] = np.where(self._n > 0, filled, np.nan)
            self._sum[:], self._n[:] = 0.0, 0.0
            self.block += 1
            if self.block % PER_HOUR == 0:
                seen = np.isfinite(self.fast)
                n, total = seen.sum(axis=0), np.where(seen, self.fast, 0.0).sum(axis=0)
                hour = np.where(self._is_count, total, total / np.maximum(n, 1))
                self.slow[(self.block // PER_HOUR - 1) % HOURS] = np.where(n > 0, hour, np.nan)

    def _compare(self, index: SeriesIndex, layout: Layout, hour_ended: bool, parameters: Parameters) -> None:
        """Compare growth over those windows that have a new block."""
        assert self.block is not None  # noqa: S101  (set by `step`)
        hour = self.block // PER_HOUR
        quick = self.fast[(self.block - PER_HOUR + np.arange(PER_HOUR)) % PER_HOUR]
        recent = self.slow[(hour - HOURS + np.arange(HOURS)) % HOURS] if hour_ended else self.slow[:0]
        if not len(layout.row_members):
            return
        row = layout.any_row_of_cell[self.cells]
        judged = (row >= 0) & (layout.row_members[row] >= parameters.min_peers)
        for k, scale in enumerate(SCALES):
            if not (scale.is_fast or hour_ended):
                continue
            blocks = quick if scale.is_fast else recent
            end = BLOCK_S * (self.block if scale.is_fast else hour * PER_HOUR)
            counted = self._counted(blocks, judged & self._is_count, row, k, end, index, layout)
            moved = self._moved(blocks, judged & ~self._is_count, row, k, end, index, layout)
            least = parameters.group_event_min_nodes
            self._by_scale[k] = joined([uncommon(part, index, layout, least) for part in (counted, moved)])
        self.found = joined(self._by_scale)

    def _counted(
        self, blocks: BlockArray, mask: BoolArray, row: IntArray, k: int, end: float,
        index: SeriesIndex, layout: Layout,
    ) -> Grown:  # fmt: skip
        """Compare the events of one window, in rows where anything has happened often enough."""
        scale = SCALES[k]
        window = blocks[-scale.n_counted :]
        often = mask & ((window > 0).sum(axis=0) >= LEAST_BLOCKS)
        if not often.any():
            return NOTHING
        wanted = np.zeros(len(layout.row_members), dtype=bool)
        wanted[row[often]] = True
        chosen = np.flatnonzero(mask & wanted[row])
        rows = rows_of(row[chosen], parts_per_node(layout))
        cell = self.cells[chosen]
        most = np.array([_most(signal.spec) for signal in index.signals])[index.cell_signal[cell]]
        past, past_blocks = np.zeros((2, len(chosen)))
        asked = np.flatnonzero(often[chosen])
        past[asked], past_blocks[asked] = self._past(chosen[asked], k)
        found = count_growth(window[:, chosen], rows, past, past_blocks)
        return grown_of(found, cell, k, end - scale.seconds(scale.n_counted), index, rows, most)

    def _moved(
        self, blocks: BlockArray, mask: BoolArray, row: IntArray, k: int, end: float,
        index: SeriesIndex, layout: Layout,
    ) -> Grown:  # fmt: skip
        """Compare how gauges have moved over one window."""
        scale = SCALES[k]
        chosen = np.flatnonzero(mask)
        window = blocks[-scale.n_steady :]
        # A window that is not full yet has no first and last stage to compare.
        chosen = chosen[np.isfinite(window[: len(window) // scale.n_stages, chosen]).any(axis=0)]
        if not len(chosen):
            return NOTHING
        rows = rows_of(row[chosen], parts_per_node(layout))
        cell = self.cells[chosen]
        signal = index.cell_signal[cell]
        stages = stages_of(window[:, chosen], scale.n_stages)
        specs = [one.spec for one in index.signals]
        side = np.array([_SIDE[spec.trend or Direction.BOTH] for spec in specs])[signal]
        level = np.nan_to_num(np.abs(row_medians(stages[-1], rows)[rows.of]))
        floor = np.array([[spec.floor_abs, spec.floor_rel] for spec in specs])[signal]
        least = scale.floor_share * np.maximum(floor[:, 0], floor[:, 1] * level)
        found = gauge_growth(stages, rows, side, least)
        is_room = np.array([spec.unit == "filesystem" for spec in specs])[signal]
        paces = np.abs(found.amount) / scale.seconds(scale.n_steady)
        is_ample = np.nan_to_num(stages[-1]) > FULL_WITHIN_S * paces
        found = replace(found, score=np.where(is_room & is_ample, 0.0, found.score))
        most = np.full(len(chosen), DECIDES)
        return grown_of(found, cell, k, end - scale.seconds(scale.n_steady), index, rows, most)

    def _past(self, chosen: IntArray, k: int) -> tuple[FloatArray, FloatArray]:
        """Return events before a window and the blocks they are from; none before the longest one."""
        assert self.block is not None  # noqa: S101  (set by `step`)
        if k == len(SCALES) - 1:
            return np.zeros(len(chosen)), np.zeros(len(chosen))
        # The hour that the short window began in is left out: its events are counted already.
        skipped = 2 if SCALES[k].is_fast else SCALES[k].n_counted
        hour = self.block // PER_HOUR
        before = self.slow[np.ix_((hour - skipped - 1 - np.arange(HOURS - skipped)) % HOURS, chosen)]
        seen = np.isfinite(before)
        per = PER_HOUR if SCALES[k].is_fast else 1
        return np.where(seen, before, 0.0).sum(axis=0, dtype=np.float64), seen.sum(axis=0) * float(per)


def _most(spec: MetricSpec) -> float:
    return DECIDES if spec.fault is not None and spec.fault.on == "rise" else SUPPORTS

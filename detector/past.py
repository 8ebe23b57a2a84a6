"""A node's signals from before a fault began until now: what a chart shows beyond the window that is kept."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from detector.control.problems import NotPossibleError
from detector.core.eras import Era, with_era_before
from detector.core.fusion import CellWeights
from detector.core.habit import Habit
from detector.core.peers import Floors, row_stats
from detector.core.series_view import SeriesQuery, SeriesView, Yardstick
from detector.core.window import Frame
from detector.errors import SourceError
from detector.pipeline import Pipeline
from detector.plain_text import utc_second
from detector.read_metric import MetricReader
from detector.service import Service
from detector.service_recorded import Recorded
from detector.service_view import BusyError
from grouping.index import SeriesIndex
from grouping.layout import build_layout

FloatArray = NDArray[np.float64]

MAX_POINTS = 120
"""Times of a chart at most: of a longer time every 2nd, 4th ... evaluation is shown."""

LONGEST_S = 31 * 86400.0
MAX_KEPT_BYTES = 64 << 20
"""Samples that were read back beyond this are dropped, those that were asked for longest ago first."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a time.

    Parameters
    ----------
    series
        Signals of the node; where they begin later than was asked for, there is nothing of before.
    every_s
        Seconds between the times.
    note
        Why the past is not there, empty when all of it is.
    """

    series: list[SeriesView]
    every_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Kept:
    pipeline: Pipeline
    until: float
    era: Era

    @property
    def n_bytes(self) -> int:
        return sum(frame.values.nbytes + frame.median.nbytes * 2 for frame in self.era.frames)


class Past:
    """Answers from what is kept of a recording, or from the window and, before it, from the database.

    Parameters
    ----------
    reader
        Reads a metric from the source of the service.
    pipeline
        In effect now.
    service
        Answers what its pipeline knows, between two evaluations.
    recorded
        What is kept of the recording that is played, None for a live service.
    """

    def __init__(
        self,
        reader: MetricReader,
        pipeline: Callable[[], Pipeline],
        service: Service,
        recorded: Recorded | None,
    ) -> None:
        self._reader = reader
        self._pipeline = pipeline
        self._service = service
        self._recorded = recorded
        self._kept: OrderedDict[tuple[str, int, float], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def series(self, query: SeriesQuery, at: float) -> Told:
        """Return signals from `query.since` until `query.until`.

        Parameters
        ----------
        query
            Which.
        at
            Newest evaluation that may be shown, epoch seconds.

        Raises
        ------
        BusyError
            When an evaluation is under way for too long.
        """
        step_s = self._pipeline().parameters.step_s
        until = min(query.until, at)
        since = max(query.since, until - LONGEST_S)
        every = stride(since, until, step_s)
        query = replace(query, since=since, until=until, every_s=every * step_s if every > 1 else 0.0)
        if self._recorded is not None:
            return Told(self._recorded.series(query, until, self._service.series), every * step_s)
        views = list(self._service.series(query))
        begins = min((float(view.times[0]) for view in views), default=until)
        note = ""
        # what is read back begins at a multiple of the steps that are shown
        if begins - since >= max(2, every) * step_s:
            try:
                era = self._read(query, every, begins)
            except (NotPossibleError, BusyError, SourceError) as error:
                note = f"nothing before {utc_second(begins)} is shown: {error}"
            else:
                views = views if era is None else with_era_before(views, era, query)
        return Told(views, every * step_s, note)

    def _read(self, query: SeriesQuery, every: int, needed_until: float) -> Era | None:
        """Return what the database holds of a metric, None when the catalog does not have it."""
        pipeline = self._pipeline()
        step_s = pipeline.parameters.step_s
        key = (query.metric, every, query.since)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if kept is not None and kept.pipeline is pipeline and needed_until <= kept.until:
            return kept.era
        first, last = math.ceil(query.since / step_s / every) * every, math.floor(query.until / step_s)
        found = self._reader.read(query.metric, sorted({*range(first, last, every), last}))
        if found is None:
            return None
        with self._service.between_evaluations():
            era = read_back_era(pipeline, *found)
        with self._lock:
            self._kept[key] = _Kept(pipeline, query.until, era)
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(one.n_bytes for one in self._kept.values()) > MAX_KEPT_BYTES:
                self._kept.popitem(last=False)
        return era


def stride(since: float, until: float, step_s: float) -> int:
    """Return of how many evaluations one is shown: a power of two, so that a chart seldom changes."""
    n = max(1.0, (until - since) / step_s)
    return 1 << max(0, math.ceil(math.log2(n / MAX_POINTS)))


def read_back_era(pipeline: Pipeline, index: SeriesIndex, times: FloatArray, values: FloatArray) -> Era:
    """Return values that were read back, with the peers that the members have now.

    Parameters
    ----------
    pipeline
        Tells pools, usual spreads and habits of now.
    index
        Numbers the cells that were read back.
    times : ndarray of shape (n_times,)
        Epoch seconds.
    values : ndarray of shape (n_times, n_cells)
        NaN where there is no sample.
    """
    now, pools, p = pipeline.interner, pipeline.pools, pipeline.parameters
    names = () if pools is None else pools.names
    pool_of = dict(zip(now.nodes, () if pools is None else pools.pool_of.tolist(), strict=False))
    class_of = dict(zip(now.parts, pipeline.part_classes.classes.tolist(), strict=False))
    layout = build_layout(
        index,
        np.array([pool_of.get(node, -1) for node in index.nodes], dtype=np.int32),
        names,
        np.array([class_of.get(part, 0) for part in index.parts], dtype=np.int64),
    )
    specs = [index.signals[s].spec for s in layout.row_signal.tolist()]
    floors = Floors(
        np.array([spec.floor_abs for spec in specs]), np.array([spec.floor_rel for spec in specs])
    )
    rows = pipeline.memory.rows.carry_to(layout.row_key)
    frames, before = [], None
    for at, row in zip(times.tolist(), values, strict=True):
        dt = p.step_s if before is None else at - before
        stats = row_stats(row, layout, floors, rows, min_peers=p.min_peers, dt=dt)
        with np.errstate(over="ignore"):
            frames.append(Frame(at, row.astype(np.float32), stats.median, stats.scale, layout))
        before = at
    return Era(index, frames, _yardstick(pipeline, index))


def _yardstick(pipeline: Pipeline, index: SeriesIndex) -> Yardstick:
    """Return habits and weights of the same cells now; those of cells that are not known have no say."""
    now, memory = pipeline.interner, pipeline.memory
    n_known = min(len(memory.habit.offset), len(memory.weights.weight))
    names = {signal.spec.name for signal in index.signals}
    wanted = [s for s, signal in enumerate(now.signals) if signal.spec.name in names]
    cells = np.flatnonzero(np.isin(now.cell_signal[:n_known], wanted))
    there = {_name(now, cell): cell for cell in cells.tolist()}
    of = np.array([there.get(_name(index, cell), -1) for cell in range(index.n_cells)], dtype=np.int64)

    def taken(values: NDArray[np.generic]) -> FloatArray:
        padded = np.append(np.asarray(values, dtype=np.float64)[:n_known], 0.0)
        return padded[np.where(of >= 0, of, n_known)]

    habit, weights = memory.habit, memory.weights
    return Yardstick(
        Habit(taken(habit.offset), taken(habit.spread), taken(habit.n_seen)),
        CellWeights(
            taken(weights.weight),
            taken(weights.sign).astype(np.int8),
            taken(weights.target).astype(np.int64),
            taken(weights.quantity).astype(np.int64),
            weights.n_targets,
        ),
        pipeline.cell_thresholds.of_cells(index.signals, index.cell_signal),
    )


def _name(index: SeriesIndex, cell: int) -> tuple[str, str, str, str, bool]:
    signal = index.signals[index.cell_signal[cell]]
    node, part = index.nodes[index.cell_node[cell]], index.parts[index.cell_part[cell]]
    return signal.spec.name, signal.role, node, part, signal.per_node

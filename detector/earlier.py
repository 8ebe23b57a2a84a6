"""A node's own past: the same signals some hours or days earlier, read back when somebody asks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.control.problems import NotPossibleError
from detector.core.evidence import labels_of
from detector.core.read_back import values_over
from detector.core.series_view import SeriesQuery
from detector.pipeline import IDENTITY_METRICS, Pipeline
from detector.service_plan import part
from detector.service_recorded import Recorded, SeriesOf
from detector.service_view import BusyError
from detector.settings import Settings
from detector.source.base import Source
from grouping.identity import NodeIdentity
from grouping.index import SeriesIndex
from grouping.placement import Placer

FloatArray = NDArray[np.float64]

MAX_SERIES = 20_000
"""Series of a metric that are read back at most: all nodes have them, and the database is asked for all."""

WAIT_S = 5.0
"""How long a question waits for the one before it."""

N_STEPS = 40
"""Evaluation times that are read back, as many as a chart shows."""


@dataclass(frozen=True, slots=True)
class EarlierSeries:
    """One signal of a node some time ago.

    Parameters
    ----------
    metric, node, part, labels
        What it is.
    times : ndarray of shape (n_times,)
        Epoch seconds, of then.
    value : ndarray of shape (n_times,)
        NaN where there is no sample.
    """

    metric: str
    node: str
    part: str
    labels: dict[str, str]
    times: FloatArray
    value: FloatArray


class Earlier:
    """Reads back from the source of the service, one question at a time, or from what is kept of a recording.

    Parameters
    ----------
    open_source
        Makes a source that nobody else reads.
    pipeline, settings
        In effect now.
    series
        Answers a query by frames that were kept.
    recorded
        What is kept of the recording that is played, None for a live service.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        pipeline: Callable[[], Pipeline],
        settings: Callable[[], Settings],
        series: SeriesOf,
        recorded: Recorded | None,
    ) -> None:
        self._open_source = open_source
        self._pipeline = pipeline
        self._settings = settings
        self._series = series
        self._recorded = recorded
        self._is_used = threading.Lock()

    def read(self, query: SeriesQuery, until: float) -> list[EarlierSeries]:
        """Return signals of a node up to a time; empty when nothing is there.

        Parameters
        ----------
        query
            Which; whom they are shown with is of no account.
        until
            Epoch seconds.

        Raises
        ------
        NotPossibleError
            When the metric has too many series.
        BusyError
            When another question is under way.
        SourceError
            When the source cannot be read.
        """
        if self._recorded is not None:
            return self._of_recording(self._recorded, query, until)
        if not self._is_used.acquire(timeout=WAIT_S):
            raise BusyError("another past is being read: ask again in a moment")
        try:
            return self._of_source(query, until)
        finally:
            self._is_used.release()

    def _of_recording(self, recorded: Recorded, query: SeriesQuery, until: float) -> list[EarlierSeries]:
        frames = recorded.frames_until(until)
        views = self._series(query, frames) if frames else []
        return [EarlierSeries(v.metric, v.node, v.part, v.labels, v.times, v.value) for v in views]

    def _of_source(self, query: SeriesQuery, until: float) -> list[EarlierSeries]:
        pipeline, settings = self._pipeline(), self._settings()
        spec = pipeline.catalog.by_name.get(query.metric)
        if spec is None:
            return []
        n_series = _n_series(pipeline.interner, spec.name)
        if n_series > MAX_SERIES:
            raise NotPossibleError(
                f"{query.metric} has {n_series} series, at most {MAX_SERIES} are read back for a past"
            )
        identity = NodeIdentity(settings.identity)
        placer = Placer(pipeline.catalog, identity, settings.placement)
        index = SeriesIndex(pipeline.catalog, identity, placer)
        names = [name for name, other in pipeline.catalog.by_name.items() if other.name == spec.name]
        step_s = pipeline.parameters.step_s
        last = math.floor(until / step_s)
        first = last - N_STEPS + 1
        source = self._open_source()
        try:
            # a counter's first rate needs the sample before
            begin_ms, end_ms = round((first - 2) * step_s * 1000), round(last * step_s * 1000)
            batch = source.fetch([*names, *IDENTITY_METRICS], begin_ms, end_ms, index)
        finally:
            source.close()
        pieces = ((k * step_s, piece) for k, piece in part(batch, first, last, step_s))
        times, values = values_over(index, pieces, pipeline.parameters)
        return _matching(index, query, times, values)


def _n_series(index: SeriesIndex, metric: str) -> int:
    signals = [k for k, signal in enumerate(index.signals) if signal.spec.name == metric]
    component = np.asarray(index.series_component)
    cells = index.component_cell[component[component >= 0]]
    return int(np.isin(index.cell_signal[cells[cells >= 0]], signals).sum())


def _matching(
    index: SeriesIndex, query: SeriesQuery, times: FloatArray, values: FloatArray
) -> list[EarlierSeries]:
    if query.node not in index.nodes:
        return []
    number = index.nodes.index(query.node)
    found = []
    for cell in np.flatnonzero(index.cell_node == number).tolist():
        signal, name = index.signals[index.cell_signal[cell]], index.parts[index.cell_part[cell]]
        labels = labels_of(index, cell)
        fits = all(labels.get(key) == value for key, value in query.labels)
        if signal.spec.name != query.metric or not fits or query.part not in ("", name):
            continue
        found.append(EarlierSeries(query.metric, query.node, name, labels, times, values[:, cell]))
    return found[: query.limit]

"""One metric of all nodes, read back from the source of the service when somebody asks for a past."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from detector.control.problems import NotPossibleError
from detector.core.parameters import Parameters
from detector.core.read_back import values_over
from detector.pipeline import Pipeline
from detector.service_plan import part
from detector.service_view import BusyError
from detector.settings import Settings
from detector.source.base import Batch, Source
from grouping.catalog import IDENTITY_METRICS
from grouping.identity import NodeIdentity
from grouping.index import SeriesIndex
from grouping.placement import Placer

FloatArray = NDArray[np.float64]

MAX_SERIES = 20_000
"""Series of a metric that are read back at most: all nodes have them, and the database is asked for all."""

MAX_SAMPLES, MAX_STEPS = 1_500_000, 2000
"""What is asked for at once; of a longer time only what is around each time that is shown."""

MAX_S = 30.0
"""Seconds that reading may take."""

WAIT_S = 5.0
"""How long a question waits for the one before it."""


class MetricReader:
    """Reads from a source of its own, one question at a time.

    Parameters
    ----------
    open_source
        Makes a source that nobody else reads.
    pipeline, settings
        In effect now.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        pipeline: Callable[[], Pipeline],
        settings: Callable[[], Settings],
    ) -> None:
        self._open_source = open_source
        self._pipeline = pipeline
        self._settings = settings
        self._is_used = threading.Lock()

    def read(self, metric: str, steps: Sequence[int]) -> tuple[SeriesIndex, FloatArray, FloatArray] | None:
        """Return what all members held; None when the catalog has no such metric.

        Parameters
        ----------
        metric
            Of the catalog.
        steps
            Evaluation times, as multiples of the step, ascending.

        Returns
        -------
        index
            Numbers the cells.
        times : ndarray of shape (n_steps,)
            Epoch seconds.
        values : ndarray of shape (n_steps, n_cells)
            NaN where there is no sample.

        Raises
        ------
        NotPossibleError
            When the metric has too many series, or reading takes too long.
        BusyError
            When another question is under way.
        SourceError
            When the source cannot be read.
        """
        pipeline, settings = self._pipeline(), self._settings()
        spec = pipeline.catalog.by_name.get(metric)
        if spec is None:
            return None
        n_series = _n_series(pipeline.interner, spec.name)
        if n_series > MAX_SERIES:
            raise NotPossibleError(
                f"{metric} has {n_series} series, at most {MAX_SERIES} are read back for a past"
            )
        identity = NodeIdentity(settings.identity)
        placer = Placer(pipeline.catalog, identity, settings.placement)
        index = SeriesIndex(pipeline.catalog, identity, placer)
        names = [name for name, other in pipeline.catalog.by_name.items() if other.name == spec.name]
        names += IDENTITY_METRICS
        if not self._is_used.acquire(timeout=WAIT_S):
            raise BusyError("another past is being read: ask again in a moment")
        source = self._open_source()
        try:
            pieces = _pieces(source, names, index, steps, pipeline.parameters, n_series)
            times, values = values_over(index, pieces, pipeline.parameters)
        finally:
            source.close()
            self._is_used.release()
        shown = np.isin(np.round(times / pipeline.parameters.step_s), steps)
        return index, times[shown], values[shown]


def _pieces(
    source: Source,
    names: Sequence[str],
    index: SeriesIndex,
    steps: Sequence[int],
    p: Parameters,
    n_series: int,
) -> Iterator[tuple[float, Batch]]:
    """Yield evaluation times and the samples of each: from first to last step, or only of the steps."""
    step_s = p.step_s
    reach = max(2, math.ceil(p.stale_after_steps) + 1)  # a counter's first rate needs the sample before

    def fetch(first: int, last: int) -> Batch:
        return source.fetch(names, round((first - reach) * step_s * 1000), round(last * step_s * 1000), index)

    first, last = steps[0], steps[-1]
    n = last - first + 1
    if len(steps) == n or (n <= MAX_STEPS and n * n_series <= MAX_SAMPLES):
        for k, piece in part(fetch(first, last), first, last, step_s):
            yield k * step_s, piece
        return
    begun = time.monotonic()
    for k in steps:
        if time.monotonic() - begun > MAX_S:
            raise NotPossibleError(f"reading it back takes longer than {MAX_S:.0f} s")
        yield k * step_s, fetch(k, k)


def _n_series(index: SeriesIndex, metric: str) -> int:
    signals = [k for k, signal in enumerate(index.signals) if signal.spec.name == metric]
    component = np.asarray(index.series_component)
    cells = index.component_cell[component[component >= 0]]
    return int(np.isin(index.cell_signal[cells[cells >= 0]], signals).sum())

"""Values of cells over a time that nothing is judged of: a node's own past beside its present."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import SeriesState, cell_values, spec_arrays, take_in
from detector.core.parameters import Parameters
from detector.source.base import Batch
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]


def values_over(
    index: SeriesIndex, pieces: Iterable[tuple[float, Batch]], parameters: Parameters
) -> tuple[FloatArray, FloatArray]:
    """Return what the cells held at each of several times.

    Parameters
    ----------
    index
        Numbers the series of the pieces, as they come.
    pieces
        Evaluation times in order, and the samples of each.
    parameters
        Step, and when a sample is stale.

    Returns
    -------
    times : ndarray of shape (n_times,)
        Epoch seconds.
    values : ndarray of shape (n_times, n_cells)
        NaN where there is no sample.
    """
    p, state = parameters, SeriesState()
    times, values = [], []
    for at, batch in pieces:
        spec_arrays(state, index)  # a piece may have come with series that those before it did not have
        first = take_in(state, batch.series, batch.ts_ms, batch.values, max_gap_ms=5000.0 * p.step_s)
        stale_s = p.stale_after_steps * p.step_s
        cells = cell_values(state, index, first, at=at, stale_after_s=stale_s)
        times.append(at)
        values.append(cells.value)
    filled = np.full((len(times), index.n_cells), np.nan)
    for row, known in zip(filled, values, strict=True):
        row[: len(known)] = known
    return np.array(times), filled

"""From raw samples to one value per cell: rates over real sample distances, resets, staleness.

A gap is never filled. A cell's value is that of its newest sample as long as the sample
is young enough, which is how targets scraped at different phases meet at one time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from grouping.index import REDUCE_LAST, REDUCE_MAX, REDUCE_MEAN, REDUCE_SUM, SeriesIndex
from grouping.model import Kind, MetricSpec

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

LARGEST = 1e30
"""No quantity is larger: sums, rates and 32-bit views of such numbers would overflow, so they are dropped."""

KEPT_REFUSED = 5
"""Batches whose refused values are kept: targets may be scraped more rarely than there are evaluations."""

WRAP = 2.0**32
WRAP_REACH = 0.1
"""A 32-bit counter is taken to have wrapped only if it then rose by at most this share of its range."""


@dataclass(frozen=True, slots=True)
class CellValues:
    """What the newest samples say, one entry per cell.

    Parameters
    ----------
    value : ndarray of shape (n_cells,)
        Newest value (gauge, state) or rate per second (counters); NaN means no fresh value.
    rise : ndarray of shape (n_cells,)
        Increase of a counter since the evaluation before, >= 0; 0 where nothing is known.
    appeared : ndarray of shape (n_cells,), bool
        True where a series of the cell was seen for the first time at this evaluation.
    fresh : ndarray of shape (n_cells,), bool
        True where a young enough sample exists, even if it gives no rate yet.
    codes
        For cells of codes with several fresh series (an XID each): their values.
    """

    value: FloatArray
    rise: FloatArray
    appeared: BoolArray
    fresh: BoolArray
    codes: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Paths:
    """The ways from series to cells, worked out once for each state of the index.

    Parameters
    ----------
    version
        Of the index.
    single, source : ndarray of shape (n_cells,)
        True for cells with one series only, and that series; 0 for other cells.
    other : ndarray of shape (n,)
        The other series that have a cell.
    mean_cell : ndarray of shape (n_means,)
        Node-mean cells.
    feeding, into : ndarray of shape (n_parts,)
        Cells that feed them, and which of `mean_cell` each feeds.
    """

    version: int
    single: BoolArray
    source: IntArray
    other: IntArray
    mean_cell: IntArray
    feeding: IntArray
    into: IntArray


def _paths(index: SeriesIndex) -> Paths:
    component = index.series_component
    cell = index.component_cell[component].astype(np.int64)
    placed = cell >= 0
    is_single = placed & (index.component_copies[component] == 1) & (index.cell_components[cell] == 1)
    single, source = np.zeros(index.n_cells, dtype=bool), np.zeros(index.n_cells, dtype=np.int64)
    single[cell[is_single]], source[cell[is_single]] = True, np.flatnonzero(is_single)
    feeding = np.flatnonzero(index.cell_mean_of >= 0)
    mean_cell, into = np.unique(index.cell_mean_of[feeding], return_inverse=True)
    return Paths(
        version=index.version,
        single=single,
        source=source,
        other=np.flatnonzero(placed & ~is_single),
        mean_cell=mean_cell.astype(np.int64),
        feeding=feeding,
        into=into,
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """Values of one batch that cannot be: beyond what their metric's range allows.

    Parameters
    ----------
    series, ts_ms, values : ndarray of shape (n_refused,)
        As in a `Batch`.
    """

    series: IntArray
    ts_ms: IntArray
    values: FloatArray


@dataclass(slots=True)
class SeriesState:
    """Newest sample of every series and what it meant; grows with the index.

    Parameters
    ----------
    dropped
        Samples that could not be used, by reason.
    refused
        Values that were out of range in the newest batches with such, oldest first.
    """

    last_ms: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    last_value: FloatArray = field(default_factory=lambda: np.zeros(0))
    meaning: FloatArray = field(default_factory=lambda: np.zeros(0))
    rise: FloatArray = field(default_factory=lambda: np.zeros(0))
    is_counter: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    wrap: FloatArray = field(default_factory=lambda: np.zeros(0))
    low: FloatArray = field(default_factory=lambda: np.zeros(0))
    high: FloatArray = field(default_factory=lambda: np.zeros(0))
    zero_is_missing: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    is_code: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    stops_at: FloatArray = field(default_factory=lambda: np.zeros(0))
    dropped: dict[str, int] = field(default_factory=dict)
    refused: deque[Refused] = field(default_factory=lambda: deque(maxlen=KEPT_REFUSED))
    _paths: Paths | None = None

    def paths_of(self, index: SeriesIndex) -> Paths:
        """Return the ways from series to cells as the index is now."""
        if self._paths is None or self._paths.version != index.version:
            self._paths = _paths(index)
        return self._paths


def grow(array: NDArray[np.generic], size: int, fill: float) -> NDArray[np.generic]:
    """Return the array extended to `size` entries, the new ones set to `fill`."""
    if len(array) >= size:
        return array
    longer = np.full(size, fill, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def spec_arrays(state: SeriesState, index: SeriesIndex) -> None:
    """Bring the per-series constants up to date with the index."""
    start, size = len(state.is_counter), index.n_series
    if size == start:
        return
    state.last_ms = grow(state.last_ms, size, 0)  # type: ignore[assignment]
    for name, fill in (("last_value", np.nan), ("meaning", np.nan), ("rise", 0.0)):
        setattr(state, name, grow(getattr(state, name), size, fill))
    components = index.series_component[start:size]
    cells = index.component_cell[components]
    by_signal = np.array([_constants(signal.spec) for signal in index.signals])
    table = by_signal[index.cell_signal[cells]]
    state.is_counter = np.concatenate([state.is_counter, table[:, 0].astype(bool)])
    state.wrap = np.concatenate([state.wrap, table[:, 1]])
    state.low = np.concatenate([state.low, table[:, 2]])
    state.high = np.concatenate([state.high, table[:, 3]])
    state.zero_is_missing = np.concatenate([state.zero_is_missing, table[:, 4].astype(bool)])
    state.is_code = np.concatenate([state.is_code, table[:, 5].astype(bool)])
    state.stops_at = np.concatenate([state.stops_at, table[:, 6]])


def _constants(spec: MetricSpec) -> tuple[float, ...]:
    counter = spec.kind in (Kind.COUNTER, Kind.ERROR_COUNTER)
    wrap = WRAP * spec.wrap_scale if spec.counter_bits == 32 else 0.0
    is_code = spec.fault is not None and spec.fault.on == "change"
    stops_at = spec.fault.saturates_at if spec.fault is not None else 0.0
    return (
        float(counter),
        wrap,
        max(spec.valid_min, -LARGEST),
        min(spec.valid_max, LARGEST),
        float(spec.zero_is_missing),
        float(is_code),
        stops_at or np.inf,
    )


def take_in(
    state: SeriesState,
    series: NDArray[np.int32],
    ts_ms: IntArray,
    values: FloatArray,
    *,
    max_gap_ms: float,
) -> IntArray:
    """Fold raw samples into the state, oldest first within each series.

    Parameters
    ----------
    state
        Changed in place; covers all `series`.
    series, ts_ms, values : ndarray of shape (n_samples,)
        As in a `Batch`: ascending times within each series.
    max_gap_ms
        A counter's rate over a longer gap is unknown.

    Returns
    -------
    ndarray
        Series that were seen for the first time.
    """
    state.rise[:] = 0.0
    if not len(series):
        return np.zeros(0, dtype=np.int64)
    numbers = series.astype(np.int64)  # what numpy indexes by: anything else is converted each time
    ok = (values >= state.low.take(numbers)) & (values <= state.high.take(numbers))
    ok &= ~((values == 0.0) & state.zero_is_missing.take(numbers))
    if not ok.all():
        state.dropped["out of range"] = state.dropped.get("out of range", 0) + int((~ok).sum())
        bad = np.flatnonzero(~ok & ~np.isnan(values))
        if len(bad):
            state.refused.append(Refused(numbers.take(bad), ts_ms.take(bad), values.take(bad)))
        usable = np.flatnonzero(ok)
        numbers, ts_ms, values = numbers.take(usable), ts_ms.take(usable), values.take(usable)
    new = np.flatnonzero(state.last_ms.take(numbers) == 0)
    first = np.unique(numbers[new]) if len(new) else new
    for chosen in _rounds(numbers):
        _one_round(state, numbers[chosen], ts_ms[chosen], values[chosen], max_gap_ms)
    return first


def _rounds(series: IntArray) -> list[IntArray | slice]:
    """Split samples so that no series occurs twice in a round, keeping their order."""
    if not len(series):
        return []
    if (series[1:] > series[:-1]).all():
        return [slice(None)]
    order = np.argsort(series, kind="stable")
    ordered = series[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    number = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    return [order[number == k] for k in range(int(number.max()) + 1)]


def _one_round(
    state: SeriesState, series: IntArray, ts_ms: IntArray, values: FloatArray, max_gap_ms: float
) -> None:
    """Take one sample per series: gauges as they are, counters as a rate."""
    before_ms = state.last_ms.take(series)
    newer = ts_ms > before_ms
    if not newer.all():
        state.dropped["late"] = state.dropped.get("late", 0) + int((~newer).sum())
        series, ts_ms, values, before_ms = series[newer], ts_ms[newer], values[newer], before_ms[newer]
    meaning = values.copy()
    counter = np.flatnonzero(state.is_counter.take(series))
    if len(counter):
        c, new_value, before_ms = series.take(counter), values.take(counter), before_ms.take(counter)
        step = new_value - state.last_value.take(c)
        gap = (ts_ms.take(counter) - before_ms).astype(np.float64)
        fell = np.flatnonzero(step < 0)
        if len(fell):
            wrap = state.wrap.take(c.take(fell))
            around = step[fell] + wrap
            wrapped = (wrap > 0) & (around >= 0) & (around <= WRAP_REACH * wrap)
            step[fell] = np.where(wrapped, around, np.nan)
        seen, near = before_ms > 0, gap <= max_gap_ms
        rate = np.where(seen & near, step / np.maximum(gap, 1.0) * 1000.0, np.nan)
        meaning[counter] = rate
        # A rise over a long gap is still a rise, only its rate is unknown.
        told = np.isfinite(rate) | (seen & ~near & (step > 0))
        state.rise[c] = state.rise.take(c) + np.where(told, step, 0.0)
    state.meaning[series] = meaning
    state.last_value[series] = values
    state.last_ms[series] = ts_ms


def cell_values(
    state: SeriesState, index: SeriesIndex, first_seen: IntArray, *, at: float, stale_after_s: float
) -> CellValues:
    """Reduce series to components and components to cells.

    Parameters
    ----------
    state
        After `take_in`.
    index
        Knows the mapping.
    first_seen : ndarray of shape (n,)
        Result of `take_in`.
    at
        Evaluation time, epoch seconds.
    stale_after_s
        Older samples are missing.

    Returns
    -------
    CellValues
        A cell that is summed over components adds those that are fresh.
    """
    paths = state.paths_of(index)
    newest, oldest = math.floor(at * 1000.0 + 500.0), math.floor((at - stale_after_s) * 1000.0)
    fresh_series = (state.last_ms > oldest) & (state.last_ms <= newest)
    fresh = fresh_series.take(paths.source) & paths.single
    value, rise = state.meaning.take(paths.source), state.rise.take(paths.source)
    value[np.flatnonzero(~fresh)] = np.nan
    rise[np.flatnonzero(~paths.single)] = 0.0
    codes: dict[int, tuple[float, ...]] = {}
    if len(paths.other):
        chosen = paths.other[fresh_series[paths.other]]
        codes = _shared(state, index, chosen, value, fresh)
        into = index.component_cell[index.series_component[paths.other]]
        rise += np.bincount(into, weights=state.rise[paths.other], minlength=index.n_cells)
    _node_means(value, fresh, paths)
    appeared = np.zeros(index.n_cells, dtype=bool)
    if len(first_seen):
        cells_first = index.component_cell[index.series_component[first_seen]]
        appeared[cells_first[cells_first >= 0]] = True
    return CellValues(value, rise, appeared, fresh, codes)


def _shared(
    state: SeriesState, index: SeriesIndex, chosen: IntArray, value: FloatArray, fresh: BoolArray
) -> dict[int, tuple[float, ...]]:
    """Fill the cells of fresh series that are not their cell's only one, in place; return the codes."""
    component, cell_of = index.series_component, index.component_cell
    copies = index.component_copies[component[chosen]] > 1
    codes: dict[int, tuple[float, ...]] = {}
    if copies.any():
        # Copies of one component: the newest sample wins, so it is written last.
        shared = chosen[copies]
        for series in shared[state.is_code[shared]].tolist():
            cell = int(cell_of[component[series]])
            codes[cell] = (*codes.get(cell, ()), float(state.last_value[series]))
        chosen = np.concatenate([chosen[~copies], shared[np.argsort(state.last_ms[shared], kind="stable")]])
    by_component = np.full(len(cell_of), np.nan)
    fresh_component = np.zeros(len(cell_of), dtype=bool)
    by_component[component[chosen]] = state.meaning[chosen]
    fresh_component[component[chosen]] = True
    live = np.flatnonzero(fresh_component)
    fresh[cell_of[live]] = True
    single = index.cell_components[cell_of[live]] == 1
    value[cell_of[live[single]]] = by_component[live[single]]
    several = live[~single]
    several = several[np.isfinite(by_component[several])]
    _reduce_into(value, cell_of[several].astype(np.int64), by_component[several], index.cell_reduce)
    return codes


def _reduce_into(value: FloatArray, cells: IntArray, numbers: FloatArray, how: NDArray[np.int32]) -> None:
    """Reduce the numbers of cells with several components into `value`, in place."""
    if not len(cells):
        return
    n_cells = len(value)
    method = how[cells]
    counts = np.bincount(cells, minlength=n_cells)
    touched = np.flatnonzero(counts)
    sums = np.bincount(cells, weights=numbers, minlength=n_cells)
    by_mean = touched[how[touched] == REDUCE_MEAN]
    value[by_mean] = sums[by_mean] / counts[by_mean]
    by_sum = touched[how[touched] == REDUCE_SUM]
    value[by_sum] = sums[by_sum]
    rest = (method == REDUCE_MAX) | (method == REDUCE_LAST)
    if rest.any():
        peak = np.full(n_cells, -np.inf)
        np.maximum.at(peak, cells[rest], numbers[rest])
        by_max = np.unique(cells[rest])
        value[by_max] = peak[by_max]


def _node_means(value: FloatArray, fresh: BoolArray, paths: Paths) -> None:
    """Fill the node-mean cells from the parts that have a value, in place."""
    if not len(paths.mean_cell):
        return
    parts = value.take(paths.feeding)
    told = np.isfinite(parts)
    into, parts = (paths.into, parts) if told.all() else (paths.into[told], parts[told])
    counts = np.bincount(into, minlength=len(paths.mean_cell))
    sums = np.bincount(into, weights=parts, minlength=len(paths.mean_cell))
    filled = counts > 0
    cells = paths.mean_cell[filled]
    value[cells] = sums[filled] / counts[filled]
    fresh[cells] = True

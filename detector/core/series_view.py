"""One member of a signal against its peers over the kept window, for plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from detector.core.evidence import BAND_SIGMAS, labels_of
from detector.core.fusion import CellWeights
from detector.core.habit import ABS_TO_SIGMA, WARM_UP_SAMPLES, Habit
from detector.core.peers import MAD_TO_SIGMA
from detector.core.window import Frame
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Scope(StrEnum):
    """With whom a member is shown."""

    ALL = "all"
    SLOT = "slot"


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """Which signals are asked for.

    Parameters
    ----------
    node, metric
        Names.
    part
        Part of the node, empty for every part.
    labels
        Labels that a signal must have, as (name, value).
    scope
        All peers, or the same slot of other nodes where a signal has slots.
    n_lines
        Lines of so many single peers, spread over their range.
    limit
        At most this many signals.
    since, until
        Epoch seconds: only evaluations from then to then.
    every_s
        Only evaluations at multiples of this, and the newest; 0 for all.
    lines
        Which single peers, by node and part, instead of `n_lines`.
    """

    node: str
    metric: str
    part: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    scope: Scope = Scope.ALL
    n_lines: int = 0
    limit: int = 20
    since: float = -math.inf
    until: float = math.inf
    every_s: float = 0.0
    lines: tuple[tuple[str, str], ...] | None = None

    def chosen(self, frames: Iterable[Frame]) -> list[Frame]:
        """Return the frames that are shown, of some that are in order of time."""
        found = [frame for frame in frames if self.since <= frame.at <= self.until]
        if self.every_s <= 0:
            return found
        return [frame for frame in found if frame is found[-1] or is_multiple(frame.at, self.every_s)]


def is_multiple(at: float, every_s: float) -> bool:
    """Tell whether a time is a multiple of some seconds."""
    return abs(at / every_s - round(at / every_s)) < 1e-6


@dataclass(frozen=True, slots=True)
class PeerLine:
    """One peer's values; NaN where there is no sample."""

    node: str
    part: str
    value: FloatArray


@dataclass(frozen=True, slots=True)
class SeriesView:
    """One member of a signal against its peers over the kept window.

    Parameters
    ----------
    metric, node, part
        What is shown.
    labels
        Role and part labels.
    times : ndarray of shape (n_ticks,)
        Epoch seconds.
    value, median, low, high : ndarray of shape (n_ticks,)
        The member, the peers' median and the ordinary band; NaN where there is no sample.
    lower_quartile, upper_quartile : ndarray of shape (n_ticks,)
        Half of the peers that are members now lie between them.
    above, below : ndarray of shape (n_ticks,)
        Beyond these the signal by itself deviates enough to count; NaN where it does not vote, is in its
        warm-up, or where that side is of no account.
    usual : ndarray of shape (n_ticks,)
        Where the member would be by its habit; NaN in its warm-up.
    habit : float
        Its habitual offset in robust standard deviations, signed; NaN in its warm-up.
    n_peers
        Members compared with at the newest tick.
    scope, has_slots
        With whom it is shown, and whether the same slot of other nodes could be chosen.
    lines
        Some of the peers.
    """

    metric: str
    node: str
    part: str
    labels: dict[str, str]
    times: FloatArray
    value: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray
    lower_quartile: FloatArray
    upper_quartile: FloatArray
    above: FloatArray
    below: FloatArray
    usual: FloatArray
    habit: float
    n_peers: int
    scope: Scope = Scope.ALL
    has_slots: bool = False
    lines: tuple[PeerLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Yardstick:
    """By what deviations are measured now.

    Parameters
    ----------
    habit, weights
        Of all cells.
    threshold
        Robust standard deviations from which a deviation counts, of each cell or of all.
    """

    habit: Habit
    weights: CellWeights
    threshold: float | FloatArray


def series_views(
    index: SeriesIndex, frames: Sequence[Frame], yardstick: Yardstick, query: SeriesQuery
) -> list[SeriesView]:
    """Collect the kept window of every matching signal.

    Parameters
    ----------
    index
        Cells and their names.
    frames
        Kept evaluations, oldest first.
    yardstick
        By what deviations are measured now.
    query
        What is asked for.
    """
    frames = query.chosen(frames)
    if query.node not in index.nodes or not frames:
        return []
    number = index.nodes.index(query.node)
    wanted = [s for s, signal in enumerate(index.signals) if signal.spec.name == query.metric]
    chosen = np.flatnonzero((index.cell_node == number) & np.isin(index.cell_signal, wanted))
    chosen = chosen[chosen < len(yardstick.habit.offset)]  # others came with a fetch since the evaluation
    crowds = _Crowds(index, frames)
    found = []
    for cell in chosen.tolist():
        if query.part and index.parts[index.cell_part[cell]] != query.part:
            continue
        labels = labels_of(index, cell)
        if any(labels.get(name) != value for name, value in query.labels):
            continue
        found.append(_view(crowds, yardstick, cell, labels, query))
        if len(found) >= query.limit:
            break
    return found


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Members of one group, and their order statistics at each frame, NaN where there are none."""

    cells: IntArray
    values: FloatArray
    lower: FloatArray
    median: FloatArray
    upper: FloatArray
    scale: FloatArray


@dataclass(slots=True)
class _Crowds:
    """Groups as the newest frame has them; one that several signals ask for is collected once."""

    index: SeriesIndex
    frames: Sequence[Frame]
    _known: dict[tuple[int, int], _Crowd] = field(default_factory=dict)

    def of(self, cell: int, scope: Scope) -> _Crowd:
        """Return the group that a cell is shown with; empty when it is in none."""
        layout = self.frames[-1].layout
        row = int(layout.any_row_of_cell[cell]) if cell < len(layout.any_row_of_cell) else -1
        part = int(self.index.cell_part[cell]) if scope is Scope.SLOT else -1
        if (row, part) not in self._known:
            cells = layout.cells_of_any_row[row] if row >= 0 else np.zeros(0, dtype=np.int64)
            if part >= 0:
                cells = cells[self.index.cell_part[cells] == part]
            self._known[row, part] = self._collect(cells)
        return self._known[row, part]

    def _collect(self, cells: IntArray) -> _Crowd:
        values = self.values_of(cells)
        ordered = np.sort(values, axis=1)
        median = _quantile(ordered, 0.5)
        spread = _quantile(np.sort(np.abs(values - median[:, None]), axis=1), 0.5)
        lower, upper = _quantile(ordered, 0.25), _quantile(ordered, 0.75)
        return _Crowd(cells, values, lower, median, upper, MAD_TO_SIGMA * spread)

    def values_of(self, cells: IntArray) -> FloatArray:
        """Return values of shape (n_frames, n_cells), NaN before a cell was there."""
        values = np.full((len(self.frames), len(cells)), np.nan)
        for i, frame in enumerate(self.frames):
            there = cells < len(frame.values)
            values[i, there] = frame.values[cells[there]]
        return values


def _quantile(ordered: FloatArray, share: float) -> FloatArray:
    """Return a quantile of each sorted row, whose NaNs come last; NaN for a row without numbers."""
    count = ordered.shape[1] - np.count_nonzero(np.isnan(ordered), axis=1)
    place = np.maximum(count - 1, 0) * share
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    rows = np.arange(len(ordered))
    if not ordered.shape[1]:
        return np.full(len(ordered), np.nan)
    a, b = ordered[rows, low], ordered[rows, high]
    return np.asarray(a + (b - a) * (place - low))


def _view(
    crowds: _Crowds, yardstick: Yardstick, cell: int, labels: dict[str, str], query: SeriesQuery
) -> SeriesView:
    index, frames = crowds.index, crowds.frames
    signal = index.signals[index.cell_signal[cell]]
    has_slots = signal.by_part and not signal.per_node
    scope = query.scope if has_slots else Scope.ALL
    crowd = crowds.of(cell, scope)
    whole, slot = _judged(frames, cell, by_slot=False), _judged(frames, cell, by_slot=True)
    median, scale = _shown(whole, slot, crowd, scope)
    levels = _levels(yardstick, cell, [rows for rows in (whole, slot) if np.isfinite(rows[0]).any()])
    offset = float(yardstick.habit.offset[cell])
    if yardstick.habit.n_seen[cell] < WARM_UP_SAMPLES:
        offset = np.nan
    plain_median, plain_scale = whole if np.isfinite(whole[0]).any() else slot
    return SeriesView(
        metric=query.metric,
        node=query.node,
        part=index.parts[index.cell_part[cell]],
        labels=labels,
        times=np.array([frame.at for frame in frames]),
        value=crowds.values_of(np.array([cell]))[:, 0],
        median=median,
        low=median - BAND_SIGMAS * scale,
        high=median + BAND_SIGMAS * scale,
        lower_quartile=crowd.lower,
        upper_quartile=crowd.upper,
        above=levels[0],
        below=levels[1],
        usual=plain_median + offset * plain_scale,
        habit=offset,
        n_peers=max(0, len(crowd.cells) - 1),
        scope=scope,
        has_slots=has_slots,
        lines=_lines(index, crowd, cell, query),
    )


def _judged(frames: Sequence[Frame], cell: int, *, by_slot: bool) -> tuple[FloatArray, FloatArray]:
    """Return median and scale that a cell was judged by at each frame, NaN where it was not."""
    median, scale = np.full(len(frames), np.nan), np.full(len(frames), np.nan)
    for i, frame in enumerate(frames):
        rows = frame.layout.slot_row_of_cell if by_slot else frame.layout.row_of_cell
        if cell < len(frame.values) and (row := int(rows[cell])) >= 0:
            median[i], scale[i] = frame.median[row], frame.scale[row]
    return median, scale


def _shown(
    whole: tuple[FloatArray, FloatArray],
    slot: tuple[FloatArray, FloatArray],
    crowd: _Crowd,
    scope: Scope,
) -> tuple[FloatArray, FloatArray]:
    """Return median and scale to show; where nobody is judged by slot, the slot's own."""
    if scope is Scope.SLOT:
        return slot if np.isfinite(slot[0]).any() else (crowd.median, crowd.scale)
    return whole if np.isfinite(whole[0]).any() else slot


def _levels(
    yardstick: Yardstick, cell: int, judged: Sequence[tuple[FloatArray, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """Return the values above and below which a cell deviates from all its groups and from its habit."""
    habit, weights = yardstick.habit, yardstick.weights
    threshold = yardstick.threshold
    limit = float(threshold if np.ndim(threshold) == 0 else np.asarray(threshold)[cell])
    n = len(judged[0][0]) if judged else 0
    above, below = np.full(n, np.nan), np.full(n, np.nan)
    if not judged or weights.weight[cell] <= 0 or habit.n_seen[cell] < WARM_UP_SAMPLES:
        return above, below
    width = limit * max(1.0, float(habit.spread[cell]) * ABS_TO_SIGMA)
    offset, sign = float(habit.offset[cell]), int(weights.sign[cell])
    if sign >= 0:
        reach = max(limit, offset + width)
        above = np.fmax.reduce([median + reach * scale for median, scale in judged])
    if sign <= 0:
        reach = min(-limit, offset - width)
        below = np.fmin.reduce([median + reach * scale for median, scale in judged])
    return above, below


def _lines(index: SeriesIndex, crowd: _Crowd, cell: int, query: SeriesQuery) -> tuple[PeerLine, ...]:
    if query.lines is not None:
        named = {
            (index.nodes[index.cell_node[c]], index.parts[index.cell_part[c]]): k
            for k, c in enumerate(crowd.cells)
        }
        gone = np.full(len(crowd.values), np.nan)
        return tuple(
            PeerLine(*peer, crowd.values[:, named[peer]] if peer in named else gone) for peer in query.lines
        )
    others = np.flatnonzero(index.cell_node[crowd.cells] != index.cell_node[cell])
    if not query.n_lines or not len(others):
        return ()
    values = crowd.values[:, others]
    known = np.isfinite(values)
    count = known.sum(axis=0)
    mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(count, 1)
    order = np.argsort(np.where(count > 0, mean, np.inf), kind="stable")[: np.count_nonzero(count)]
    if not len(order):
        return ()
    ranks = np.unique(np.linspace(0, len(order) - 1, min(query.n_lines, len(order))).round().astype(np.int64))
    return tuple(
        PeerLine(
            index.nodes[index.cell_node[crowd.cells[others[k]]]],
            index.parts[index.cell_part[crowd.cells[others[k]]]],
            values[:, k],
        )
        for k in order[ranks].tolist()
    )

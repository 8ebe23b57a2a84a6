"""Whole series with their labels, for the tools that look at a database before it is watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.source.base import Source

FloatArray = NDArray[np.float64]

MAX_SERIES = 400_000
"""More series than this are not kept: their number is told instead."""

FALLS_MOST = 0.2
"""A counter falls when its process restarts. Falling in more than this share of its moves, it is none."""

MOST_SERIES = 0.5
"""Share of the series that must behave so before the metric is said to."""

MIN_MOVES = 5
"""Fewer changes than this say nothing about behaviour."""

_decode = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class SampledSeries:
    """One series over some time.

    Parameters
    ----------
    labels
        Label set with ``__name__``.
    times : ndarray of shape (n,)
        Sample times in epoch seconds, ascending.
    values : ndarray of shape (n,)
        Finite samples.
    """

    labels: Mapping[str, str]
    times: FloatArray
    values: FloatArray

    @property
    def name(self) -> str:
        """Metric name, empty when the label is missing."""
        return self.labels.get("__name__", "")


@dataclass(frozen=True, slots=True)
class Collected:
    """What was fetched to look at.

    Parameters
    ----------
    series
        In order of first sight.
    dropped
        Samples or series left out, by reason.
    is_partial
        True when the database said that data may be missing.
    """

    series: tuple[SampledSeries, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    is_partial: bool = False


class _Keeper:
    """Numbers every label object; beyond a bound they are refused and counted."""

    def __init__(self, limit: int) -> None:
        self.codes: dict[bytes, int] = {}
        self.keys: list[bytes] = []
        self.refused = 0
        self._limit = limit

    def add_many(self, keys: Sequence[bytes]) -> None:
        """Enter new label objects."""
        for key in keys:
            if key in self.codes:
                continue
            if len(self.keys) >= self._limit:
                self.refused += 1
                continue
            self.codes[key] = len(self.keys)
            self.keys.append(key)
        for key in keys:
            self.codes.setdefault(key, -1)


def collect(
    source: Source,
    names: Sequence[str],
    start_s: float,
    end_s: float,
    *,
    chunk_names: int = 200,
    max_series: int = MAX_SERIES,
) -> Collected:
    """Fetch whole series of the named metrics.

    Parameters
    ----------
    source
        Database or recording.
    names
        Metric names; empty asks a recording for all it has.
    start_s, end_s
        Epoch seconds.
    chunk_names
        Names per request.
    max_series
        Further series are left out and counted.

    Raises
    ------
    SourceError
        As the source says.
    """
    keeper = _Keeper(max_series)
    dropped: dict[str, int] = {}
    series: list[NDArray[np.int32]] = []
    times: list[NDArray[np.int64]] = []
    values: list[FloatArray] = []
    is_partial = False
    chunks: Iterable[Sequence[str]] = (
        [names[i : i + chunk_names] for i in range(0, len(names), chunk_names)] if names else [names]
    )
    for chunk in chunks:
        batch = source.fetch(chunk, int(start_s * 1000) - 1, round(end_s * 1000), keeper)
        series.append(batch.series)
        times.append(batch.ts_ms)
        values.append(batch.values)
        is_partial |= batch.is_partial
        for reason, count in batch.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    if keeper.refused:
        dropped[f"more than {max_series} series"] = keeper.refused
    found = _split(
        keeper.keys, np.concatenate(series), np.concatenate(times), np.concatenate(values), dropped
    )
    return Collected(found, dropped, is_partial)


def _split(
    keys: Sequence[bytes],
    series: NDArray[np.int32],
    ts_ms: NDArray[np.int64],
    values: FloatArray,
    dropped: dict[str, int],
) -> tuple[SampledSeries, ...]:
    order = np.lexsort((ts_ms, series))
    series, ts_ms, values = series[order], ts_ms[order], values[order]
    bounds = np.searchsorted(series, np.arange(len(keys) + 1))
    found: list[SampledSeries] = []
    for number, key in enumerate(keys):
        mine = slice(int(bounds[number]), int(bounds[number + 1]))
        try:
            labels = _decode(key)
        except (msgspec.DecodeError, UnicodeDecodeError):
            dropped["labels are not a JSON object of strings"] = (
                dropped.get("labels are not a JSON object of strings", 0) + 1
            )
            continue
        found.append(SampledSeries(labels, ts_ms[mine] / 1000.0, values[mine]))
    return tuple(found)


def by_metric(series: Iterable[SampledSeries]) -> dict[str, list[SampledSeries]]:
    """Group series by metric name."""
    groups: dict[str, list[SampledSeries]] = {}
    for one in series:
        groups.setdefault(one.name, []).append(one)
    return groups


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the samples of a metric move.

    Parameters
    ----------
    n_series
        Series that have at least `MIN_MOVES` changes.
    falling
        Share of them that fall in more than `FALLS_MOST` of their changes.
    rising
        Share of them that never fall.
    fall_share
        Falls among all changes.
    is_constant
        True when no series ever changes.
    """

    n_series: int
    falling: float
    rising: float
    fall_share: float
    is_constant: bool

    @property
    def falls(self) -> bool:
        """True when most series fall far too often for a counter."""
        return self.n_series > 0 and self.falling > MOST_SERIES

    @property
    def only_rises(self) -> bool:
        """True when nearly all series rise and never fall."""
        return self.n_series > 0 and self.rising >= 0.9


def behaviour(series: Sequence[SampledSeries], *, limit: int = 500) -> Behaviour:
    """Look at the moves of a metric, over at most `limit` of its series taken evenly."""
    chosen = series[:: max(1, len(series) // limit)][:limit]
    n = falling = rising = falls = moves = 0
    constant = all(not len(one.values) or bool((one.values == one.values[0]).all()) for one in series)
    for one in chosen:
        steps = np.diff(one.values)
        moved = int(np.count_nonzero(steps))
        if moved < MIN_MOVES:
            continue
        down = int(np.count_nonzero(steps < 0))
        n += 1
        falls += down
        moves += moved
        falling += down > FALLS_MOST * moved
        rising += down == 0
    if n == 0:
        return Behaviour(0, 0.0, 0.0, 0.0, constant)
    return Behaviour(n, falling / n, rising / n, falls / moves, constant)

"""From lines of a JSON export to clean arrays: the hot path of a tick.

A line is ``{"metric":{...},"values":[...],"timestamps":[...]}``. The label object is never
parsed here: its bytes, as sent, are looked up in the interner.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.errors import SourceDecode
from detector.source.base import Batch, Interner

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
N = TypeVar("N", bound=np.generic)

NOT_COMPARED = -1
_UNKNOWN = -2
_FIRST_PENDING = -3

_BLANK_FROM = 0x7FFFFFF0
_BLANKS = np.array(
    [*range(0x7FFFFFF0, 0x7FFFFFF4), *(2.0**47 + i for i in range(4)), 2.0**63], dtype=np.float64
)
"""Blank values of DCGM as doubles: int32, double and int64 forms (the int64 ones all round to 2**63)."""

UNKNOWN_SPEED = -125000.0
"""What node_exporter computes from a link speed of -1 Mbit/s; only a blank for metrics of that name."""
_SPEED_NAME = b"speed_bytes"


class _Line(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[float | str | None]
    timestamps: list[int]


class _SharedTimesLine(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[float | str | None]
    timestamps: msgspec.Raw


_AnyLine = _Line | _SharedTimesLine
_decoder = msgspec.json.Decoder(_Line)
_shared_times_decoder = msgspec.json.Decoder(_SharedTimesLine)
_times_decoder = msgspec.json.Decoder(list[int])
MAX_TIME_LISTS = 4096
"""Distinct lists of timestamps remembered while reading; scrape targets have one each."""


def drop_sentinels(values: FloatArray) -> BoolArray:
    """Return True where a value is a number that stands for "no reading".

    Parameters
    ----------
    values : ndarray of shape (n,)
        Any numbers, NaN included.

    Returns
    -------
    ndarray of shape (n,), bool
    """
    mask = values >= _BLANK_FROM
    candidates = np.flatnonzero(mask)
    if len(candidates):
        mask[candidates] = np.isin(values[candidates], _BLANKS)
    return mask


@dataclass(frozen=True, slots=True)
class _Block:
    """Decoded lines: `codes` and `counts` per line, `ts_ms` and `values` per sample."""

    codes: Int32Array
    counts: Int32Array
    ts_ms: Int64Array
    values: FloatArray


class SampleCollector:
    """Takes in blocks of lines and gives one `Batch`.

    Parameters
    ----------
    interner
        Knows the label objects; asked for new ones once, in `finish`.
    where
        What is read, for error messages: an address or a file.
    max_series
        Bound of the lines taken in.
    shares_times
        True when many series have the very same list of timestamps, as in recordings: each
        distinct list is then read once.
    """

    def __init__(
        self, interner: Interner, where: str, *, max_series: int = 2**31 - 1, shares_times: bool = False
    ) -> None:
        self._interner = interner
        self._where = where
        self._max_series = max_series
        self._blocks: list[_Block] = []
        self._pending: dict[bytes, int] = {}
        self._dropped: Counter[str] = Counter()
        self._shares_times = shares_times
        self._time_lists: dict[bytes, Int64Array] = {}
        self.n_lines = 0
        self.decode_s = 0.0

    def mark(self) -> tuple[int, int]:
        """Return a point to which `rewind` can return."""
        return len(self._blocks), self.n_lines

    def rewind(self, mark: tuple[int, int]) -> None:
        """Forget everything added since `mark`: the answer it came from can't be trusted."""
        del self._blocks[mark[0] :]
        self.n_lines = mark[1]

    def add(self, block: bytes) -> None:
        """Take in whole lines.

        Raises
        ------
        SourceDecode
            When a line isn't what it should be; names its number within this answer.
        """
        begun = time.perf_counter()
        rows: list[_AnyLine]
        try:
            rows = list[_AnyLine](
                (_shared_times_decoder if self._shares_times else _decoder).decode_lines(block)
            )
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._broken(block, error) from None
        codes = self._codes([bytes(row.metric) for row in rows])
        compared = codes != NOT_COMPARED
        if not compared.all():
            rows = [rows[i] for i in np.flatnonzero(compared).tolist()]
            codes = codes[compared]
        self._blocks.append(self._arrays(rows, codes, block))
        self.n_lines += len(compared)
        self.decode_s += time.perf_counter() - begun

    def add_rows(
        self, keys: Sequence[bytes], counts: Int32Array, ts_ms: Int64Array, values: FloatArray
    ) -> None:
        """Take in samples that come from elsewhere than lines: `counts[i]` samples for each key, in turn."""
        self._blocks.append(_Block(self._codes(keys), counts, ts_ms, values))
        self.n_lines += len(keys)

    def finish(self, start_ms: int, end_ms: int) -> Batch:
        """Resolve new series, drop what is no sample, and return the rest.

        Parameters
        ----------
        start_ms, end_ms
            Samples with ``start_ms < time <= end_ms`` are kept.
        """
        begun = time.perf_counter()
        codes, counts = self._resolved()
        ts_ms = _concatenate([block.ts_ms for block in self._blocks], np.int64)
        values = _concatenate([block.values for block in self._blocks], np.float64)
        is_single = bool((counts == 1).all())
        series = codes if is_single else np.repeat(codes, counts)
        keep = self._usable(series, ts_ms, values, start_ms, end_ms)
        keeps_all = bool(keep.all())
        if not keeps_all:
            series, ts_ms, values = series[keep], ts_ms[keep], values[keep]
        if not _is_ordered(series, ts_ms):
            line = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            series, ts_ms, values = self._ordered(series, ts_ms, values, line if keeps_all else line[keep])
        self.decode_s += time.perf_counter() - begun
        return Batch(series, ts_ms, values, dropped=dict(self._dropped), decode_s=self.decode_s)

    def _codes(self, keys: Sequence[bytes]) -> Int32Array:
        """Return series numbers; new label objects get provisional ones until `finish`."""
        if self.n_lines + len(keys) > self._max_series:
            raise SourceDecode(f"{self._where}: more than {self._max_series} series in one fetch")
        known = self._interner.codes.get
        codes = np.array([known(key, _UNKNOWN) for key in keys], dtype=np.int32)
        pending = self._pending
        for i in np.flatnonzero(codes == _UNKNOWN).tolist():
            codes[i] = pending.setdefault(keys[i], _FIRST_PENDING - len(pending))
        return codes

    def _arrays(self, rows: Sequence[_AnyLine], codes: Int32Array, block: bytes) -> _Block:
        try:
            counts, flat = _flat_values(rows)
            n_times, ts_ms = self._flat_times(rows)
        except (ValueError, TypeError, OverflowError, msgspec.DecodeError) as error:
            raise self._broken(block, error) from None
        if not np.array_equal(counts, n_times):
            raise SourceDecode(f"{self._where}: a series has more values than timestamps, or fewer")
        return _Block(codes, counts, ts_ms, flat)

    def _flat_times(self, rows: Sequence[_AnyLine]) -> tuple[Int32Array, Int64Array]:
        if not self._shares_times:
            lists = [cast(list[int], row.timestamps) for row in rows]
            counts = np.fromiter(map(len, lists), dtype=np.int32, count=len(rows))
            return counts, np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(counts.sum()))
        if len(self._time_lists) > MAX_TIME_LISTS:
            self._time_lists.clear()
        arrays = [self._times(bytes(cast(msgspec.Raw, row.timestamps))) for row in rows]
        counts = np.fromiter(map(len, arrays), dtype=np.int32, count=len(rows))
        return counts, _concatenate(arrays, np.int64)

    def _times(self, raw: bytes) -> Int64Array:
        times = self._time_lists.get(raw)
        if times is None:
            times = np.array(_times_decoder.decode(raw), dtype=np.int64)
            self._time_lists[raw] = times
        return times

    def _broken(self, block: bytes, error: Exception) -> SourceDecode:
        number = self.n_lines
        for line in block.splitlines():
            number += 1
            try:
                row = _decoder.decode(line)
                np.array(row.values, dtype=np.float64)
                np.array(row.timestamps, dtype=np.int64)
            except (msgspec.DecodeError, ValueError, OverflowError) as reason:
                return SourceDecode(
                    f"{self._where}: line {number}: {_one_line(str(reason))}: {_excerpt(line)}"
                )
        return SourceDecode(f"{self._where}: after line {self.n_lines}: {_one_line(str(error))}")

    def _resolved(self) -> tuple[Int32Array, Int32Array]:
        """Return final series numbers and sample counts, one per line; lines not compared have no samples."""
        codes = _concatenate([block.codes for block in self._blocks], np.int32)
        counts = _concatenate([block.counts for block in self._blocks], np.int32)
        if self._pending:
            keys = list(self._pending)
            self._interner.add_many(keys)
            known = self._interner.codes.get
            table = np.array([known(key, NOT_COMPARED) for key in keys], dtype=np.int32)
            is_pending = codes <= _FIRST_PENDING
            codes[is_pending] = table[_FIRST_PENDING - codes[is_pending]]
        return codes, counts

    def _usable(
        self, series: Int32Array, ts_ms: Int64Array, values: FloatArray, start_ms: int, end_ms: int
    ) -> BoolArray:
        compared = series >= 0
        inside = compared & (ts_ms > start_ms)
        self._count("future", inside & (ts_ms > end_ms))
        inside &= ts_ms <= end_ms
        finite = np.isfinite(values)
        if not finite.all():
            self._count("nan", inside & np.isnan(values))
            self._count("inf", inside & np.isinf(values))
        inside &= finite
        blank = drop_sentinels(values) & inside
        unknown_speed = np.flatnonzero((values == UNKNOWN_SPEED) & inside)
        if len(unknown_speed):
            blank[unknown_speed] = np.isin(series[unknown_speed], self._speed_series(series[unknown_speed]))
        self._count("sentinel", blank)
        return inside & ~blank

    def _speed_series(self, candidates: Int32Array) -> Int32Array:
        """Return which of these series are link speeds; reads label objects, so only called when needed."""
        wanted = set(candidates.tolist())
        found = [
            code for key, code in self._interner.codes.items() if code in wanted and _is_named_speed(key)
        ]
        return np.array(found, dtype=np.int32)

    def _ordered(
        self, series: Int32Array, ts_ms: Int64Array, values: FloatArray, line: Int32Array
    ) -> tuple[Int32Array, Int64Array, FloatArray]:
        """Sort by time within each series and keep one value per timestamp."""
        repeated = np.bincount(series)[series] > 1
        alone = ~repeated
        order = np.lexsort((line[repeated], ts_ms[repeated], series[repeated]))
        sorted_series, sorted_ts = series[repeated][order], ts_ms[repeated][order]
        sorted_values = values[repeated][order]
        keep = self._one_per_time(sorted_series, sorted_ts, sorted_values, line[repeated][order])
        return (
            np.concatenate([series[alone], sorted_series[keep]]),
            np.concatenate([ts_ms[alone], sorted_ts[keep]]),
            np.concatenate([values[alone], sorted_values[keep]]),
        )

    def _one_per_time(
        self, series: Int32Array, ts_ms: Int64Array, values: FloatArray, line: Int32Array
    ) -> BoolArray:
        """Choose among samples of one series at one time; input sorted by series, time, line.

        Within a line the last value wins. Lines of one series arrive in any order, so between
        lines the larger value wins, whatever came last: the same data gives the same answer.
        """
        n = len(series)
        starts = np.ones(n, dtype=bool)
        starts[1:] = (series[1:] != series[:-1]) | (ts_ms[1:] != ts_ms[:-1])
        if starts.all():
            return starts
        group = np.cumsum(starts) - 1
        last_of_line = np.ones(n, dtype=bool)
        last_of_line[:-1] = (group[1:] != group[:-1]) | (line[1:] != line[:-1])
        candidates = np.flatnonzero(last_of_line)
        order = np.lexsort((values[candidates], group[candidates]))
        chosen = candidates[order]
        is_best = np.ones(len(chosen), dtype=bool)
        is_best[:-1] = group[chosen][1:] != group[chosen][:-1]
        keep = np.zeros(n, dtype=bool)
        keep[chosen[is_best]] = True
        kept_value = values[keep][group]
        self._count("duplicate", ~keep & (values == kept_value))
        self._count("collision", ~keep & (values != kept_value))
        return keep

    def _count(self, reason: str, mask: BoolArray) -> None:
        n = int(np.count_nonzero(mask))
        if n:
            self._dropped[reason] += n


def _is_ordered(series: Int32Array, ts_ms: Int64Array) -> bool:
    """Tell whether each series is one run of samples with rising times."""
    if not len(series):
        return True
    same = series[1:] == series[:-1]
    n_runs = len(series) - int(np.count_nonzero(same))
    n_series = int(np.count_nonzero(np.bincount(series)))
    return n_runs == n_series and (n_runs == len(series) or bool((ts_ms[1:] > ts_ms[:-1])[same].all()))


def _flat_values(rows: Sequence[_AnyLine]) -> tuple[Int32Array, FloatArray]:
    """Return the number of values of each row and all values in one array."""
    lists = [row.values for row in rows]
    counts = np.fromiter(map(len, lists), dtype=np.int32, count=len(lists))
    try:
        flat = np.fromiter(chain.from_iterable(lists), dtype=np.float64, count=int(counts.sum()))
    except (TypeError, ValueError):
        # np.array, unlike fromiter, reads None as NaN, and both read "Infinity" as what it says
        flat = np.array(list(chain.from_iterable(lists)), dtype=np.float64)
    return counts, flat


def _is_named_speed(key: bytes) -> bool:
    try:
        name = msgspec.json.decode(key, type=dict[str, str]).get("__name__", "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return name.endswith(_SPEED_NAME.decode())


def _concatenate(arrays: list[NDArray[N]], dtype: type[N]) -> NDArray[N]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)


def _one_line(text: str, limit: int = 200) -> str:
    return " ".join(text.split())[:limit]


def _excerpt(line: bytes, limit: int = 80) -> str:
    text = line[:limit].decode("utf-8", "replace")
    return repr(text) + ("..." if len(line) > limit else "")

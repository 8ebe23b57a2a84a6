"""From lines of a JSON export to clean arrays: the hot path of a tick.

A line is ``{"metric":{...},"values":[...],"timestamps":[...]}``. The label object is never
parsed here: its bytes, as sent, are looked up in the interner.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

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


_decoder = msgspec.json.Decoder(_Line)


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
    """

    def __init__(self, interner: Interner, where: str, *, max_series: int = 2**31 - 1) -> None:
        self._interner = interner
        self._where = where
        self._max_series = max_series
        self._blocks: list[_Block] = []
        self._pending: dict[bytes, int] = {}
        self._dropped: Counter[str] = Counter()
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
        try:
            rows = _decoder.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._broken(block, error) from None
        if self.n_lines + len(rows) > self._max_series:
            raise SourceDecode(f"{self._where}: more than {self._max_series} series in one fetch")
        known = self._interner.codes.get
        codes = np.array([known(bytes(row.metric), _UNKNOWN) for row in rows], dtype=np.int32)
        pending = self._pending
        for i in np.flatnonzero(codes == _UNKNOWN).tolist():
            codes[i] = pending.setdefault(bytes(rows[i].metric), _FIRST_PENDING - len(pending))
        compared = codes != NOT_COMPARED
        if not compared.all():
            rows = [rows[i] for i in np.flatnonzero(compared).tolist()]
            codes = codes[compared]
        self._blocks.append(self._arrays(rows, codes, block))
        self.n_lines += len(compared)
        self.decode_s += time.perf_counter() - begun

    def add_arrays(self, key: bytes, ts_ms: Int64Array, values: FloatArray) -> None:
        """Take in the samples of one series that come from elsewhere than a line."""
        code = self._interner.codes.get(key, _UNKNOWN)
        if code == _UNKNOWN:
            code = self._pending.setdefault(key, _FIRST_PENDING - len(self._pending))
        self.n_lines += 1
        if self.n_lines > self._max_series:
            raise SourceDecode(f"{self._where}: more than {self._max_series} series in one fetch")
        if code != NOT_COMPARED:
            counts = np.array([len(ts_ms)], dtype=np.int32)
            self._blocks.append(_Block(np.array([code], dtype=np.int32), counts, ts_ms, values))

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
        line = None if is_single else np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        keep = self._usable(series, ts_ms, values, start_ms, end_ms)
        if not keep.all():
            series, ts_ms, values = series[keep], ts_ms[keep], values[keep]
            line = None if line is None else line[keep]
        if line is None:
            line = np.arange(len(series), dtype=np.int32)
        series, ts_ms, values = self._ordered(series, ts_ms, values, line)
        self.decode_s += time.perf_counter() - begun
        return Batch(series, ts_ms, values, dropped=dict(self._dropped), decode_s=self.decode_s)

    def _arrays(self, rows: list[_Line], codes: Int32Array, block: bytes) -> _Block:
        values = [row.values for row in rows]
        stamps = [row.timestamps for row in rows]
        counts = np.fromiter(map(len, values), dtype=np.int32, count=len(rows))
        if not np.array_equal(counts, np.fromiter(map(len, stamps), dtype=np.int32, count=len(rows))):
            raise SourceDecode(f"{self._where}: a series has more values than timestamps, or fewer")
        try:
            # numpy reads None as NaN and the strings "Infinity" and "NaN" as what they say
            flat = np.array(list(chain.from_iterable(values)), dtype=np.float64)
            ts_ms = np.array(list(chain.from_iterable(stamps)), dtype=np.int64)
        except (ValueError, OverflowError) as error:
            raise self._broken(block, error) from None
        return _Block(codes, counts, ts_ms, flat)

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
        if not len(series):
            return series, ts_ms, values
        counts = np.bincount(series)
        repeated = counts[series] > 1
        if not repeated.any() or _is_ordered(series, ts_ms, int(np.count_nonzero(counts))):
            return series, ts_ms, values
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


def _is_ordered(series: Int32Array, ts_ms: Int64Array, n_series: int) -> bool:
    """Tell whether each series is one run of samples with rising times."""
    same = series[1:] == series[:-1]
    n_runs = len(series) - int(np.count_nonzero(same))
    return n_runs == n_series and bool((ts_ms[1:] > ts_ms[:-1])[same].all())


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

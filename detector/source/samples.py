"""From decoded lines to clean arrays: the hot path of a tick.

Label objects are never parsed here: their bytes, as sent, are looked up in the interner.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import msgspec
import numpy as np

from detector.errors import SourceDecode
from detector.source.base import Batch, Interner
from detector.source.gc_pause import gc_pause
from detector.source.lines import (
    NOT_COMPARED,
    Block,
    BoolArray,
    FloatArray,
    Int32Array,
    Int64Array,
    LineDecoder,
    concatenate,
)

_UNKNOWN = -2
_FIRST_PENDING = -3

_LONG_LINE = 16
"""Lines of this many samples on average are joined line by line, shorter ones sample by sample."""

_BLANK_FROM = 0x7FFFFFF0
_BLANKS = np.array([*range(0x7FFFFFF0, 0x7FFFFFF4), *(2.0**47 + i for i in range(4))], dtype=np.float64)
"""Blank values of DCGM as doubles: int32 and double forms."""
_INT64_BLANK_LOW, _INT64_BLANK_HIGH = 2.0**63 - 2.0**20, 2.0**63
"""The int64 forms are 2**63 less 16 or less; a database that keeps 15 or 16 decimals gives a bit less."""

UNKNOWN_SPEED = -125000.0
"""What node_exporter computes from a link speed of -1 Mbit/s; only a blank for metrics of that name."""
_SPEED_NAME = "speed_bytes"


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
        large = values[candidates]
        is_int64_blank = (large >= _INT64_BLANK_LOW) & (large <= _INT64_BLANK_HIGH)
        mask[candidates] = is_int64_blank | np.isin(large, _BLANKS)
    return mask


class SampleCollector:
    """Takes in the parts of an answer and gives one `Batch`.

    Parts may be filled by several threads at a time; the rest is for one thread.

    Parameters
    ----------
    interner
        Knows the label objects; asked for new ones once, in `finish`.
    where
        What is read, for error messages: an address or a file.
    max_series
        Bound of the lines of a part, and of those committed since `new_slice`.
    shares_times
        As in `LineDecoder`.
    """

    def __init__(
        self, interner: Interner, where: str, *, max_series: int = 2**31 - 1, shares_times: bool = False
    ) -> None:
        self._interner = interner
        self._where = where
        self._max_series = max_series
        self._decoder = LineDecoder(where, shares_times=shares_times)
        self._blocks: list[Block] = []
        self._pending: dict[bytes, int] = {}
        self._lock = threading.Lock()
        self._dropped: Counter[str] = Counter()
        self._n_lines = 0
        self.decode_s = 0.0

    def part(self) -> Part:
        """Return a new part; what it takes in counts once it is committed."""
        return Part(self, self._decoder)

    def commit(self, part: Part) -> None:
        """Take over a complete part."""
        self._n_lines += part.n_lines
        self.require_bound(self._n_lines)
        self._blocks.extend(part.blocks)
        self.decode_s += part.decode_s

    def new_slice(self) -> None:
        """Start the bound of series anew: another time range has the same series again."""
        self._n_lines = 0

    def require_bound(self, n_lines: int) -> None:
        """Raise `SourceDecode` when that many lines are too many."""
        if n_lines > self._max_series:
            raise SourceDecode(f"{self._where}: more than {self._max_series} series in one fetch")

    def codes(self, keys: Sequence[bytes]) -> Int32Array:
        """Return series numbers; new label objects get provisional ones until `finish`."""
        known = self._interner.codes.get
        codes = np.array([known(key, _UNKNOWN) for key in keys], dtype=np.int32)
        unknown = np.flatnonzero(codes == _UNKNOWN).tolist()
        if unknown:
            pending = self._pending
            with self._lock:
                for i in unknown:
                    codes[i] = pending.setdefault(keys[i], _FIRST_PENDING - len(pending))
        return codes

    def finish(self, start_ms: int, end_ms: int) -> Batch:
        """Resolve new series, drop what is no sample, and return the rest, sorted by series and time.

        Parameters
        ----------
        start_ms, end_ms
            Samples with ``start_ms < time <= end_ms`` are kept.
        """
        begun = time.perf_counter()
        codes, counts = self._resolved()
        codes, counts, ts_ms, values = _lines_by_series(codes, counts, self._blocks)
        self._blocks.clear()
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

    def _resolved(self) -> tuple[Int32Array, Int32Array]:
        """Return final series numbers and sample counts, one per line.

        New label objects are given to the interner sorted: lines arrive in any order, and the
        same data shall get the same numbers.
        """
        codes = concatenate([block.codes for block in self._blocks], np.int32)
        counts = concatenate([block.counts for block in self._blocks], np.int32)
        if self._pending:
            keys = list(self._pending)
            self._interner.add_many(sorted(keys))
            known = self._interner.codes.get
            table = np.array([known(key, NOT_COMPARED) for key in keys], dtype=np.int32)
            is_pending = codes <= _FIRST_PENDING
            codes[is_pending] = table[_FIRST_PENDING - codes[is_pending]]
        return codes, counts

    def _usable(
        self, series: Int32Array, ts_ms: Int64Array, values: FloatArray, start_ms: int, end_ms: int
    ) -> BoolArray:
        inside = (series >= 0) & (ts_ms > start_ms)
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
        """Sort by series and time, one value per time; `line` is the line of each sample."""
        order = _order_if_distinct(series, ts_ms)
        if order is not None:
            return series[order], ts_ms[order], values[order]
        order = np.lexsort((line, ts_ms, series))
        series, ts_ms, values = series[order], ts_ms[order], values[order]
        keep = self._one_per_time(series, ts_ms, values, line[order])
        return series[keep], ts_ms[keep], values[keep]

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
        group = np.cumsum(starts) - 1
        last_of_line = np.ones(n, dtype=bool)
        last_of_line[:-1] = (group[1:] != group[:-1]) | (line[1:] != line[:-1])
        candidates = np.flatnonzero(last_of_line)
        chosen = candidates[np.lexsort((values[candidates], group[candidates]))]
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


class Part:
    """Lines that count together or not at all: one request's answer."""

    def __init__(self, collector: SampleCollector, decoder: LineDecoder) -> None:
        self._collector = collector
        self._decoder = decoder
        self.blocks: list[Block] = []
        self.n_lines = 0
        self.decode_s = 0.0

    def add(self, block: bytes) -> None:
        """Take in whole lines.

        Raises
        ------
        SourceDecode
            When a line isn't what it should be, or there are too many.
        """
        begun = time.perf_counter()
        with gc_pause():
            decoded, n_lines = self._decoder.decode(block, self._collector.codes, self.n_lines + 1)
        self._append(decoded, n_lines)
        self.decode_s += time.perf_counter() - begun

    def add_rows(
        self, keys: Sequence[bytes], counts: Int32Array, ts_ms: Int64Array, values: FloatArray
    ) -> None:
        """Take in samples that come from elsewhere than lines: `counts[i]` samples for each key, in turn."""
        self._append(Block(self._collector.codes(keys), counts, [ts_ms], values), len(keys))

    def _append(self, block: Block, n_lines: int) -> None:
        self.n_lines += n_lines
        self._collector.require_bound(self.n_lines)
        self.blocks.append(block)


def places_of_runs(starts: Int64Array, counts: Int64Array | Int32Array) -> Int64Array:
    """Return the positions of runs one after the other: ``counts[i]`` of them from ``starts[i]`` on."""
    ends = np.cumsum(counts, dtype=np.int64)
    places = np.repeat(starts - (ends - counts), counts)
    places += np.arange(len(places))
    return places


def _lines_by_series(
    codes: Int32Array, counts: Int32Array, blocks: Sequence[Block]
) -> tuple[Int32Array, Int32Array, Int64Array, FloatArray]:
    """Join all lines, sorted by series if each series has one line: cheaper than a sort of the samples."""
    order = _order_of_lines(codes)
    if order is not None and int(counts.sum()) >= _LONG_LINE * len(counts):
        times, columns = zip(*chain.from_iterable(block.lines() for block in blocks), strict=True)
        order_list = order.tolist()
        ts_ms = concatenate([times[i] for i in order_list], np.int64)
        return codes[order], counts[order], ts_ms, concatenate([columns[i] for i in order_list], np.float64)
    ts_ms = concatenate([times for block in blocks for times in block.times], np.int64)
    values = concatenate([block.values for block in blocks], np.float64)
    if order is None:
        return codes, counts, ts_ms, values
    starts = np.cumsum(counts, dtype=np.int64) - counts
    places = places_of_runs(starts[order], counts[order])
    return codes[order], counts[order], ts_ms[places], values[places]


def _order_of_lines(codes: Int32Array) -> Int64Array | None:
    """Return the order of lines by series, None when they have it or a series has several lines."""
    if bool((codes[1:] >= codes[:-1]).all()):
        return None
    order = np.argsort(codes)
    ordered = codes[order]
    compared = ordered[np.searchsorted(ordered, 0) :]
    return order if bool((compared[1:] > compared[:-1]).all()) else None


def _is_ordered(series: Int32Array, ts_ms: Int64Array) -> bool:
    """Tell whether samples are sorted by series and time, and no time is there twice."""
    rises = series[1:] > series[:-1]
    if rises.all():
        return True
    return bool((rises | ((series[1:] == series[:-1]) & (ts_ms[1:] > ts_ms[:-1]))).all())


def _order_if_distinct(series: Int32Array, ts_ms: Int64Array) -> Int64Array | None:
    """Return the order by series and time, or None when a time is there twice (or the span is too long).

    One sort of one packed number per sample is several times faster than a sort by two keys.
    """
    first = int(ts_ms.min())
    n_bits = int(ts_ms.max() - first).bit_length()
    if n_bits + int(series.max()).bit_length() > 62:
        return None
    packed = (series.astype(np.int64) << n_bits) | (ts_ms - first)
    order = np.argsort(packed)
    packed = packed[order]
    return order if bool((packed[1:] > packed[:-1]).all()) else None


def _is_named_speed(key: bytes) -> bool:
    try:
        labels = msgspec.json.decode(key, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return labels.get("__name__", "").endswith(_SPEED_NAME)

"""Lines of a JSON export to arrays, without a look into the label objects.

A line is ``{"metric":{...},"values":[...],"timestamps":[...]}``; a value may be ``null``, one of the
strings ``"Infinity"``, ``"-Infinity"`` and ``"NaN"``, or, from VictoriaMetrics 1.79, a bare ``+Inf``,
which is no JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.errors import SourceDecode

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
N = TypeVar("N", bound=np.generic)

NOT_COMPARED = -1
MAX_TIME_LISTS = 4096
"""Distinct lists of timestamps remembered while reading; scrape targets have one each."""


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


_VALUES_MARK = b'},"values":['
_BARE_NUMBER = re.compile(rb'(?<![\w"])(?:[+-]?Inf|NaN)(?![\w"])')
_QUOTED = {b"Inf": b'"Infinity"', b"-Inf": b'"-Infinity"', b"NaN": b'"NaN"'}


@dataclass(frozen=True, slots=True)
class Block:
    """Decoded lines.

    Parameters
    ----------
    codes : ndarray of shape (n_lines,), int32
        Series number per line.
    counts : ndarray of shape (n_lines,), int32
        Samples per line.
    times
        Times of all lines in turn: one array, or one for each line, which lines may share.
    values : ndarray of shape (n_samples,)
        Values of all lines in turn; NaN where there was no number.
    """

    codes: Int32Array
    counts: Int32Array
    times: list[Int64Array]
    values: FloatArray

    def lines(self) -> Iterator[tuple[Int64Array, FloatArray]]:
        """Yield times and values of each line."""
        stop = np.cumsum(self.counts).tolist()
        values = [self.values[first:last] for first, last in zip([0, *stop], stop, strict=False)]
        if len(self.times) == len(values):
            return zip(self.times, values, strict=True)
        times = concatenate(self.times, np.int64)
        return zip((times[a:b] for a, b in zip([0, *stop], stop, strict=False)), values, strict=True)


class LineDecoder:
    """Decodes blocks of lines.

    Parameters
    ----------
    where
        What is read, for error messages: an address or a file.
    shares_times
        True when many series have the very same list of timestamps, as in recordings: each
        distinct list is then read once.
    """

    def __init__(self, where: str, *, shares_times: bool = False) -> None:
        self._where = where
        self._shares_times = shares_times
        self._time_lists: dict[bytes, Int64Array] = {}

    def decode(
        self, block: bytes, codes_of: Callable[[list[bytes]], Int32Array], first_line: int
    ) -> tuple[Block, int]:
        """Return the arrays of whole lines, less those not compared, and the number of all lines.

        Parameters
        ----------
        block
            Whole lines.
        codes_of
            Gives the series numbers of label objects, `NOT_COMPARED` for lines to leave out.
        first_line
            Number of the block's first line, for messages.

        Raises
        ------
        SourceDecode
            When a line isn't what it should be; names it.
        """
        decoder = _shared_times_decoder if self._shares_times else _decoder
        try:
            rows = cast(list[_AnyLine], decoder.decode_lines(block))
        except (msgspec.DecodeError, UnicodeDecodeError):
            block = _with_quoted_infinities(block)
            try:
                rows = cast(list[_AnyLine], decoder.decode_lines(block))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._broken(block, error, first_line) from None
        n_lines = len(rows)
        codes = codes_of([bytes(row.metric) for row in rows])
        compared = codes != NOT_COMPARED
        if not compared.all():
            rows = [rows[i] for i in np.flatnonzero(compared).tolist()]
            codes = codes[compared]
        try:
            counts, values = _flat_values(rows)
            n_times, times = self._times_of(rows)
        except (ValueError, TypeError, OverflowError, msgspec.DecodeError) as error:
            raise self._broken(block, error, first_line) from None
        if not np.array_equal(counts, n_times):
            mismatch = ValueError("a line has more values than timestamps, or fewer")
            raise self._broken(block, mismatch, first_line)
        return Block(codes, counts, times, values), n_lines

    def _times_of(self, rows: Sequence[_AnyLine]) -> tuple[Int32Array, list[Int64Array]]:
        if not self._shares_times:
            lists = [row.timestamps for row in cast(Sequence[_Line], rows)]
            counts = np.fromiter(map(len, lists), dtype=np.int32, count=len(rows))
            return counts, [np.fromiter(chain.from_iterable(lists), np.int64, count=int(counts.sum()))]
        if len(self._time_lists) > MAX_TIME_LISTS:
            self._time_lists.clear()
        arrays = [self._times(bytes(row.timestamps)) for row in cast(Sequence[_SharedTimesLine], rows)]
        return np.fromiter(map(len, arrays), dtype=np.int32, count=len(rows)), arrays

    def _times(self, raw: bytes) -> Int64Array:
        times = self._time_lists.get(raw)
        if times is None:
            times = np.array(_times_decoder.decode(raw), dtype=np.int64)
            self._time_lists[raw] = times
        return times

    def _broken(self, block: bytes, error: Exception, first_line: int) -> SourceDecode:
        """Return an error that names the line to blame, found by decoding one by one."""
        for number, line in enumerate(block.split(b"\n"), start=first_line):
            if not line.strip():
                continue
            try:
                row = _decoder.decode(line)
                np.array(row.values, dtype=np.float64)
                np.array(row.timestamps, dtype=np.int64)
                if len(row.values) != len(row.timestamps):
                    reason: Exception = ValueError(
                        f"{len(row.values)} values but {len(row.timestamps)} timestamps"
                    )
                    return SourceDecode(f"{self._where}: line {number}: {reason}: {_excerpt(line)}")
            except (msgspec.DecodeError, ValueError, OverflowError) as found:
                return SourceDecode(
                    f"{self._where}: line {number}: {_one_line(str(found))}: {_excerpt(line)}"
                )
        return SourceDecode(f"{self._where}: near line {first_line}: {_one_line(str(error))}")


def concatenate(arrays: list[NDArray[N]], dtype: type[N]) -> NDArray[N]:
    """Return the arrays as one; an empty one when there are none."""
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)


def _with_quoted_infinities(block: bytes) -> bytes:
    """Return the lines with bare infinities and NaNs among their values as strings.

    The mark before the values can't be part of a label: a quote inside a JSON string has a backslash
    before it, and here a comma or a colon stands before each.
    """
    lines = block.split(b"\n")
    for i, line in enumerate(lines):
        labels, mark, rest = line.partition(_VALUES_MARK)
        if mark and _BARE_NUMBER.search(rest):
            values, end, stamps = rest.partition(b"]")
            values = _BARE_NUMBER.sub(lambda found: _QUOTED[found[0].lstrip(b"+")], values)
            lines[i] = labels + mark + values + end + stamps
    return b"\n".join(lines)


def _flat_values(rows: Sequence[_AnyLine]) -> tuple[Int32Array, FloatArray]:
    """Return the number of values of each row and all values in one array."""
    lists = [row.values for row in rows]
    counts = np.fromiter(map(len, lists), dtype=np.int32, count=len(lists))
    try:
        flat = np.fromiter(chain.from_iterable(lists), dtype=np.float64, count=int(counts.sum()))
    except (TypeError, ValueError):
        # np.array, unlike fromiter, reads None as NaN; both read "Infinity" as what it says
        flat = np.array(list(chain.from_iterable(lists)), dtype=np.float64)
    return counts, flat


def _one_line(text: str, limit: int = 200) -> str:
    return " ".join(text.split())[:limit]


def _excerpt(line: bytes, limit: int = 80) -> str:
    return repr(line[:limit].decode("utf-8", "replace")) + ("..." if len(line) > limit else "")

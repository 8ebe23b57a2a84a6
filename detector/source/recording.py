"""A recorded incident as a source of samples: read once, then cut by time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np

from detector.errors import SourceDecode
from detector.source.base import Batch, Interner
from detector.source.gc_pause import gc_pause
from detector.source.incident_file import Recording, load_recording
from detector.source.lines import NOT_COMPARED, FloatArray, Int64Array
from detector.source.samples import Part, SampleCollector, places_of_runs

__all__ = ["MAX_UNPACKED_BYTES", "SERIES_FILES", "Recording", "RecordingSource", "load_recording"]

SERIES_FILES = ("series.jsonl.gz", "series.jsonl", "series.parquet")
MAX_UNPACKED_BYTES = 8 << 30
_BLOCK_BYTES = 1 << 20
_UNASKED = -2
_ALWAYS = 2**62
_MAX_STEPS = 8
"""Samples of a series that are passed one by one before the rest is bisected."""


class _Named(msgspec.Struct, gc=False):
    """A label object of which nothing but the metric's name is read."""

    name: str = msgspec.field(default="", name="__name__")


_decode_name = msgspec.json.Decoder(_Named).decode


class _OwnNumbers:
    """Numbers label objects in order of appearance: the recording's own interner."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}

    @property
    def codes(self) -> dict[bytes, int]:
        return self._codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._codes.setdefault(key, len(self._codes))


class RecordingSource:
    """Samples of ``series.jsonl.gz``, ``series.jsonl`` or ``series.parquet``.

    The file is read into memory at once (about 20 bytes per sample). Label objects are given to
    the interner when their first sample is fetched, as they would be live.

    Parameters
    ----------
    path
        Folder of the recording, or a series file.
    max_unpacked_bytes
        Bound of the unpacked series.

    Raises
    ------
    SourceDecode
        When the file is missing, corrupt or too large; names the file and the line.
    """

    def __init__(self, path: Path, *, max_unpacked_bytes: int = MAX_UNPACKED_BYTES) -> None:
        self.path = _series_file(Path(path))
        numbers = _OwnNumbers()
        collector = SampleCollector(numbers, str(self.path), shares_times=True)
        part = collector.part()
        if self.path.suffix == ".parquet":
            _read_parquet(self.path, part, max_unpacked_bytes)
        else:
            _read_lines(self.path, part, max_unpacked_bytes)
        collector.commit(part)
        batch = collector.finish(-_ALWAYS, _ALWAYS)
        self._keys = list(numbers.codes)
        self._unreported = dict(batch.dropped)
        self._interner: Interner | None = None
        self._names: tuple[str, ...] = ()
        self._codes = np.full(len(self._keys), _UNASKED, dtype=np.int32)
        self._arrange(batch)

    @property
    def n_series(self) -> int:
        """Number of label objects in the file."""
        return len(self._keys)

    @property
    def metric_names(self) -> frozenset[str]:
        """Names of the metrics in the file."""
        return frozenset(self._name_of_series)

    @cached_property
    def _name_of_series(self) -> list[str]:
        with gc_pause():
            return [_name_of(key) for key in self._keys]

    @property
    def span_ms(self) -> tuple[int, int]:
        """Times of the first and the last sample in epoch milliseconds, (0, 0) when there are none."""
        if not len(self._ts_ms):
            return 0, 0
        return int(self._ts_ms.min()), int(self._ts_ms.max())

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Return every sample of the named metrics with ``start_ms < time <= end_ms``.

        No names mean all metrics. What was dropped while reading is counted in the first batch.
        """
        wanted = tuple(names)
        if interner is not self._interner or wanted != self._names:
            self._ask_for(wanted, interner)
        local, ts_ms, values = self._between(start_ms, end_ms)
        series = self._codes.take(local)
        if (series < 0).any():
            self._intern(np.unique(local[series == _UNASKED]), interner)
            series = self._codes.take(local)
            compared = np.flatnonzero(series >= 0)
            series, ts_ms, values = series[compared], ts_ms[compared], values[compared]
        dropped, self._unreported = self._unreported, {}
        return Batch(series, ts_ms, values, dropped=dropped)

    def close(self) -> None:
        """Nothing to free: the file was closed after reading."""

    def _arrange(self, batch: Batch) -> None:
        """Keep the samples by series and time, and how far each series has been read."""
        self._ts_ms, self._values = batch.ts_ms, batch.values
        bounds = np.searchsorted(batch.series, np.arange(len(self._keys) + 1, dtype=np.int32))
        self._start, self._stop = bounds[:-1], bounds[1:]
        self._rewind()

    def _between(self, start_ms: int, end_ms: int) -> tuple[Int64Array, Int64Array, FloatArray]:
        """Return series, time and value of the samples with ``start_ms < time <= end_ms``."""
        low = self._after(start_ms)
        series = np.flatnonzero(self._due_ms <= end_ms)
        first, due_ms = low.take(series), self._due_ms.take(series)
        counts = self._after(end_ms).take(series) - first
        if counts.max(initial=0) <= 1:
            return series, due_ms, self._values.take(first)
        places = places_of_runs(first, counts)
        return np.repeat(series, counts), self._ts_ms.take(places), self._values.take(places)

    def _rewind(self) -> None:
        self._read_ms, self._read = -_ALWAYS, self._start
        self._due_ms = self._due_at(self._read)

    def _due_at(self, places: Int64Array) -> Int64Array:
        """Return the time of the next sample of each series from its place; never for those not compared."""
        due_ms = self._times_at(places, self._stop)
        due_ms[self._codes == NOT_COMPARED] = _ALWAYS
        return due_ms

    def _times_at(self, places: Int64Array, stop: Int64Array) -> Int64Array:
        """Return the time at each place, `_ALWAYS` where a series has ended."""
        if not len(self._ts_ms):
            return np.full(len(places), _ALWAYS)
        times = self._ts_ms.take(np.minimum(places, len(self._ts_ms) - 1))
        times[np.flatnonzero(places >= stop)] = _ALWAYS
        return times

    def _after(self, ms: int) -> Int64Array:
        """Return for each series the place of its first sample after `ms`, `_stop` when there is none.

        A replay asks for one step after the other, so the search begins where the last one ended.
        """
        if ms == self._read_ms:
            return self._read
        if ms < self._read_ms:
            self._rewind()
        is_due = self._due_ms <= ms
        places, moving = self._read + is_due, np.flatnonzero(is_due)
        for _ in range(_MAX_STEPS):
            if not len(moving):
                break
            due_ms = self._times_at(places.take(moving), self._stop.take(moving))
            self._due_ms[moving] = due_ms
            moving = moving[np.flatnonzero(due_ms <= ms)]
            places[moving] += 1
        else:
            self._search(places, moving, ms)
            self._due_ms = self._due_at(places)
        self._read_ms, self._read = ms, places
        return places

    def _search(self, places: Int64Array, moving: Int64Array, ms: int) -> None:
        """Bisect all series at once; `places` is changed in place."""
        first, last = places.take(moving), self._stop.take(moving)
        while (first < last).any():
            middle = (first + last) // 2
            is_before = self._times_at(middle, last) <= ms
            first, last = np.where(is_before, middle + 1, first), np.where(is_before, last, middle)
        places[moving] = first

    def _ask_for(self, names: tuple[str, ...], interner: Interner) -> None:
        self._interner, self._names = interner, names
        self._codes = np.full(len(self._keys), _UNASKED, dtype=np.int32)
        if names:
            wanted = set(names)
            others = [i for i, name in enumerate(self._name_of_series) if name not in wanted]
            self._codes[others] = NOT_COMPARED
        self._rewind()

    def _intern(self, local: Int64Array, interner: Interner) -> None:
        known, keys = interner.codes, [self._keys[i] for i in local.tolist()]
        new = [key for key in keys if key not in known]
        if new:
            with gc_pause():
                interner.add_many(new)
        get = interner.codes.get
        self._codes[local] = [get(key, NOT_COMPARED) for key in keys]
        self._due_ms[local[self._codes[local] == NOT_COMPARED]] = _ALWAYS


def _name_of(key: bytes) -> str:
    try:
        return _decode_name(key).name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _series_file(path: Path) -> Path:
    if not path.is_dir():
        if not path.exists():
            raise SourceDecode(f"{path}: no such recording")
        return path
    for name in SERIES_FILES:
        if (path / name).exists():
            return path / name
    raise SourceDecode(f"{path}: holds no {', '.join(SERIES_FILES[:-1])} or {SERIES_FILES[-1]}")


def _read_lines(path: Path, part: Part, max_bytes: int) -> None:
    """Take in all lines; the last one may lack its end."""
    held = b""
    n_bytes = 0
    try:
        with _opened(path) as file:
            while piece := file.read(_BLOCK_BYTES):
                n_bytes += len(piece)
                if n_bytes > max_bytes:
                    raise SourceDecode(f"{path}: unpacks to more than {max_bytes} bytes")
                end = piece.rfind(b"\n") + 1
                if end:
                    part.add(held + piece[:end])
                held = piece[end:] if end else held + piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        n_whole = _n_whole_lines(path, max_bytes)
        if isinstance(error, EOFError):
            reason = f"ends too early after line {n_whole}"
        else:
            reason = f"is damaged at about line {n_whole + 1}"
        raise SourceDecode(f"{path}: the compressed file {reason}") from None
    except OSError as error:
        raise SourceDecode(f"{path}: cannot be read: {error.strerror}") from None
    if held.strip():
        part.add(held)


def _n_whole_lines(path: Path, max_bytes: int) -> int:
    """Count the whole lines of a broken packed file.

    A large read that meets the break gives nothing of what it has unpacked; small ones lose nothing.
    """
    n_lines = n_bytes = 0
    with suppress(EOFError, zlib.error, OSError), gzip.open(path, "rb") as file:
        while n_bytes <= max_bytes and (piece := file.read1(_BLOCK_BYTES)):
            n_bytes += len(piece)
            n_lines += piece.count(b"\n")
    return n_lines


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    if is_packed or path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def _read_parquet(path: Path, part: Part, max_bytes: int) -> None:
    """Take in a table of one row per series, or of one row per sample.

    Columns: ``metric`` (label object as JSON text) with lists ``values`` and ``timestamps``, or
    with numbers ``value`` and ``timestamp``; times in epoch milliseconds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        n_bytes = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if n_bytes > max_bytes:
            raise SourceDecode(f"{path}: unpacks to more than {max_bytes} bytes")
        columns = set(file.schema_arrow.names)
        if {"metric", "values", "timestamps"} <= columns:
            for batch in file.iter_batches(columns=["metric", "values", "timestamps"]):
                _take_series_rows(path, batch, part)
        elif {"metric", "value", "timestamp"} <= columns:
            _take_sample_rows(path, file.read(columns=["metric", "value", "timestamp"]), part)
        else:
            raise SourceDecode(f"{path}: has no columns metric, values and timestamps")
    except (pa.ArrowException, OSError) as error:
        raise SourceDecode(
            f"{path}: cannot be read as parquet: {' '.join(str(error).split())[:200]}"
        ) from None


def _take_series_rows(path: Path, batch: Any, part: Part) -> None:
    values, stamps = batch.column("values"), batch.column("timestamps")
    for i, metric in enumerate(batch.column("metric").to_pylist()):
        key = _json_key(path, metric)
        if not (values[i].is_valid and stamps[i].is_valid):
            raise SourceDecode(f"{path}: {key[:80]!r} has no list of values or timestamps")
        series_ts = _times(path, stamps[i].values)
        series_values = _floats(path, values[i].values)
        if len(series_ts) != len(series_values):
            raise SourceDecode(f"{path}: {key[:80]!r} has more values than timestamps, or fewer")
        part.add_rows([key], np.array([len(series_ts)], dtype=np.int32), series_ts, series_values)


def _take_sample_rows(path: Path, table: Any, part: Part) -> None:
    encoded = table.column("metric").combine_chunks().dictionary_encode()
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    ts_ms = _times(path, table.column("timestamp").combine_chunks())
    values = _floats(path, table.column("value").combine_chunks())
    order = np.argsort(indices, kind="stable")
    keys = [_json_key(path, metric) for metric in encoded.dictionary.to_pylist()]
    counts = np.bincount(indices, minlength=len(keys)).astype(np.int32)
    part.add_rows(keys, counts, ts_ms[order], values[order])


def _json_key(path: Path, metric: object) -> bytes:
    if not isinstance(metric, str):
        raise SourceDecode(f"{path}: column metric must hold label objects as JSON text")
    return metric.encode()


def _times(path: Path, column: Any) -> Int64Array:
    if column.null_count or not str(column.type).startswith("int"):
        raise SourceDecode(f"{path}: times must be whole milliseconds, none of them empty, not {column.type}")
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)


def _floats(path: Path, column: Any) -> FloatArray:
    if not str(column.type).startswith(("int", "uint", "float", "double", "halffloat")):
        raise SourceDecode(f"{path}: values must be numbers, not {column.type}")
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.float64)

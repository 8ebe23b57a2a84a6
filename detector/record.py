"""From a live database to a recorded incident that can be replayed."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML

from detector.errors import OddnodeError
from detector.source.base import Batch, Source
from detector.source.incident_file import FILE_NAME

SERIES_NAME = "series.jsonl.gz"
CHUNK_S = 600.0
LARGEST_EXACT = 2.0**53


class RecordError(OddnodeError):
    """A recording can't be written; names the folder."""


class NothingRecordedError(RecordError):
    """The source has no samples of what was asked for."""


@dataclass(frozen=True, slots=True)
class CaseDetails:
    """What ``incident.yaml`` says beside the times.

    Parameters
    ----------
    id
        Name of the case; empty takes the folder's name.
    step_s
        Seconds between samples.
    pool, spares
        Nodes at work and idle nodes, where known.
    origin, made
        Where the samples came from, without secrets, and how they came to be there (``recorded``,
        ``reconstructed`` or ``synthetic``).
    notes
        Free text.
    labels
        What was wrong, by keys of the description (``faults``, ``masked``, ``benign``, ``healthy``); empty
        for a recording that is not labelled.
    """

    step_s: float = 30.0
    id: str = ""
    pool: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    origin: str = ""
    made: str = "recorded"
    notes: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was written.

    Parameters
    ----------
    path
        Folder of the recording.
    n_series, n_samples
        Size.
    dropped
        Samples left out, by reason.
    is_partial
        True when the database said that data may be missing.
    """

    path: Path
    n_series: int
    n_samples: int
    dropped: dict[str, int] = field(default_factory=dict)
    is_partial: bool = False


class _Keys:
    """Numbers label objects and remembers them."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}
        self.keys: list[bytes] = []

    @property
    def codes(self) -> dict[bytes, int]:
        return self._codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if key not in self._codes:
                self._codes[key] = len(self.keys)
                self.keys.append(key)


def record(
    source: Source,
    names: Sequence[str],
    start: float,
    end: float,
    out_dir: Path,
    details: CaseDetails | None = None,
    *,
    nodes_of: Callable[[Sequence[bytes]], Sequence[str]] | None = None,
    overwrite: bool = False,
    chunk_s: float = CHUNK_S,
    progress: Callable[[float], None] | None = None,
) -> Recorded:
    """Write a time range of a source as a recording.

    Samples are fetched and written in chunks of time, one line per series and chunk, so memory
    doesn't grow with the range. The folder appears complete or not at all.

    Parameters
    ----------
    source
        Where samples come from.
    names
        Metrics to record; none means all.
    start, end
        Epoch seconds, both included.
    out_dir
        Folder to make.
    details
        What else the description says.
    nodes_of
        Finds the nodes of label objects; they become the pool when `details` names none.
    overwrite
        True replaces an existing folder.
    chunk_s
        Seconds per fetch.
    progress
        Called with the share that is done, 0 to 1.

    Raises
    ------
    RecordError
        When the range is empty, the folder exists, can't be written, or there are no samples.
    SourceError
        When samples can't be fetched; nothing is left behind.
    """
    details = details or CaseDetails()
    if not end > start:
        raise RecordError(f"recording {out_dir}: end must be after start")
    if out_dir.exists() and not overwrite:
        raise RecordError(f"recording {out_dir} already exists; say so explicitly to overwrite it")
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}-", dir=out_dir.parent))
    except OSError as error:
        raise RecordError(f"recording {out_dir} cannot be written: {error.strerror}") from None
    try:
        keys = _Keys()
        written = _write_series(source, names, (start, end), work / SERIES_NAME, keys, chunk_s, progress)
        if not written.n_samples:
            raise NothingRecordedError(
                f"recording {out_dir}: the source has no samples of these metrics in this time"
            )
        if nodes_of is not None and not details.pool:
            details = replace(details, pool=tuple(nodes_of(keys.keys)))
        _write_description(work / FILE_NAME, details.id or out_dir.name, (start, end), details, written)
        put_in_place(work, out_dir)
    except OSError as error:
        raise RecordError(f"recording {out_dir} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Recorded(out_dir, written.n_series, written.n_samples, written.dropped, written.is_partial)


def _write_series(
    source: Source,
    names: Sequence[str],
    span: tuple[float, float],
    file: Path,
    keys: _Keys,
    chunk_s: float,
    progress: Callable[[float], None] | None,
) -> Recorded:
    dropped: Counter[str] = Counter()
    n_samples = 0
    is_partial = False
    first_ms, last_ms = round(span[0] * 1000) - 1, round(span[1] * 1000)
    step_ms = max(1, round(chunk_s * 1000))
    # a fixed time in the header: the same samples give the same bytes
    with gzip.GzipFile(file, "wb", compresslevel=6, mtime=0) as packed:
        for low in range(first_ms, last_ms, step_ms):
            high = min(low + step_ms, last_ms)
            batch = source.fetch(names, low, high, keys)
            _write_lines(cast(IO[bytes], packed), batch, keys.keys)
            n_samples += len(batch.series)
            dropped.update(batch.dropped)
            is_partial |= batch.is_partial
            if progress is not None:
                progress((high - first_ms) / (last_ms - first_ms))
    return Recorded(file, len(keys.keys), n_samples, dict(dropped), is_partial)


def _write_lines(file: IO[bytes], batch: Batch, keys: Sequence[bytes]) -> None:
    """Write one line per series of the batch, ordered by label object."""
    if not len(batch.series):
        return
    order = np.argsort(batch.series, kind="stable")
    series = batch.series[order]
    first_rows = np.flatnonzero(np.diff(series, prepend=-1))
    groups = np.split(order, first_rows[1:])
    pieces = [(keys[code], rows) for code, rows in zip(series[first_rows].tolist(), groups, strict=True)]
    encode = msgspec.json.encode
    for key, rows in sorted(pieces, key=lambda piece: piece[0]):
        values = encode(_plain_numbers(batch.values[rows]))
        stamps = encode(batch.ts_ms[rows].tolist())
        file.write(b'{"metric":%b,"values":%b,"timestamps":%b}\n' % (key, values, stamps))


def _plain_numbers(values: NDArray[np.float64]) -> list[Any]:
    """Return whole numbers as integers, which are shorter, and the rest as they are."""
    is_whole = bool((np.abs(values) < LARGEST_EXACT).all() and (values == np.rint(values)).all())
    return cast(list[Any], (values.astype(np.int64) if is_whole else values).tolist())


def _write_description(
    file: Path, case: str, span: tuple[float, float], details: CaseDetails, written: Recorded
) -> None:
    provenance = {"source": details.origin, "made": details.made}
    if written.is_partial:
        provenance["is_partial"] = "the database said that data may be missing"
    content = {
        "id": case,
        "start": float(span[0]),
        "end": float(span[1]),
        "step_s": float(details.step_s),
        "pool": list(details.pool),
        "spares": list(details.spares),
        "healthy": False,
        "faults": [],
        "group_events": [],
        "masked": [],
        "benign": [],
        **details.labels,
        "provenance": provenance,
        "notes": details.notes,
    }
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    with file.open("w", encoding="utf-8") as out:
        yaml.dump(content, out)


def put_in_place(work: Path, out_dir: Path) -> None:
    """Put the finished folder in place; an old one is moved away first and restored if that fails."""
    work.chmod(0o755)
    if not out_dir.exists():
        work.rename(out_dir)
        return
    with tempfile.TemporaryDirectory(prefix=f".{out_dir.name}-old-", dir=out_dir.parent) as aside:
        old = Path(aside) / "old"
        out_dir.rename(old)
        try:
            work.rename(out_dir)
        except OSError:
            old.rename(out_dir)
            raise

"""The ``incident.yaml`` of a recording: what was recorded and, for evaluation only, what was wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from detector.errors import SourceDecode

FILE_NAME = "incident.yaml"
MAX_BYTES = 8 << 20
MADE = ("recorded", "reconstructed", "synthetic")
GRADES = ("faint", "visible")

MAX_EVALUATIONS = 1_000_000
"""Evaluations that a recording may ask for, ``(end - start) / step_s``: 347 days of one every 30 s."""

LATEST_S = 4_102_444_800
"""The year 2100 in epoch seconds; a later time is one in milliseconds, or a slip of the pen."""


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """A fault that is known to have happened.

    Parameters
    ----------
    node
        Faulty node.
    onset, end
        Epoch seconds.
    kind
        What it was, empty when unknown.
    part
        Part of the node, empty for the node itself or when unknown.
    severity
        How strong, empty when not stated.
    visible
        Whether its trace in the samples is plain: ``visible`` or ``faint``, empty when not stated.
    visible_at
        Epoch seconds at which a visible trace begins, None when not stated.
    visible_in
        Metric in which the trace is plainest, empty when not stated.
    """

    node: str
    onset: float
    end: float
    kind: str = ""
    part: str = ""
    severity: str = ""
    visible: str = ""
    visible_at: float | None = None
    visible_in: str = ""


@dataclass(frozen=True, slots=True)
class RecordedGroupEvent:
    """A time in which many nodes moved together and none is to blame."""

    nodes: tuple[str, ...]
    onset: float
    end: float
    kind: str = ""


@dataclass(frozen=True, slots=True)
class MaskedTime:
    """A node's time that counts neither as a hit nor as a false alarm."""

    node: str
    onset: float
    end: float


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded incident without its samples.

    Detection reads only `start`, `end` and `step_s`, and `pool` and `spares` when told to.

    Parameters
    ----------
    id
        Name of the case.
    path
        File it was read from.
    start, end
        Epoch seconds of the first and last evaluation.
    step_s
        Seconds between samples, > 0.
    pool, spares
        Nodes at work and idle nodes.
    healthy
        True when nothing was wrong.
    faults, group_events, masked
        What was wrong, when.
    benign
        Known events that are no faults, as written.
    provenance
        Source, licence and how it was made.
    notes
        Free text.
    """

    id: str
    path: Path
    start: float
    end: float
    step_s: float
    pool: tuple[str, ...]
    spares: tuple[str, ...] = ()
    healthy: bool = False
    faults: tuple[RecordedFault, ...] = ()
    group_events: tuple[RecordedGroupEvent, ...] = ()
    masked: tuple[MaskedTime, ...] = ()
    benign: tuple[Any, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""


def load_recording(path: Path) -> Recording:
    """Read and check the description of a recording.

    Parameters
    ----------
    path
        The recording's folder, its ``incident.yaml``, or a series file beside that.

    Raises
    ------
    SourceDecode
        When it is missing or wrong; names the file and the key.
    """
    file = path / FILE_NAME if path.is_dir() else path.with_name(FILE_NAME)
    if not path.exists() and not file.exists():
        raise SourceDecode(f"{path}: no such recording")
    entry = _Entry(file, "", _read_yaml(file))
    start, end, step_s = _time(entry)
    faults = tuple(_fault(one) for one in entry.entries("faults"))
    return Recording(
        id=entry.text("id"),
        path=file,
        start=start,
        end=end,
        step_s=step_s,
        pool=entry.texts("pool"),
        spares=entry.texts("spares", required=False),
        healthy=entry.flag("healthy", default=not faults),
        faults=faults,
        group_events=tuple(_group_event(one) for one in entry.entries("group_events", required=False)),
        masked=tuple(_masked(one) for one in entry.entries("masked", required=False)),
        benign=tuple(entry.items("benign", required=False)),
        provenance=_provenance(entry),
        notes=entry.text("notes", required=False),
    )


class _Entry:
    """A mapping of the file together with where it stands, for messages."""

    def __init__(self, file: Path, prefix: str, value: object) -> None:
        self._file = file
        self._prefix = prefix
        if not isinstance(value, dict):
            raise SourceDecode(
                f"{file}: {prefix.rstrip('.') or 'the file'} must be a mapping of keys to values"
            )
        self._values: dict[str, Any] = value

    def wrong(self, key: str, rule: str) -> SourceDecode:
        return SourceDecode(f"{self._file}: {self._prefix}{key} {rule}")

    def _get(self, key: str, default: object, *, required: bool) -> Any:
        value = self._values.get(key)
        if value is None:
            if required:
                raise self.wrong(key, "is missing")
            return default
        return value

    @overload
    def number(self, key: str, *, required: Literal[True] = True) -> float: ...

    @overload
    def number(self, key: str, *, required: Literal[False]) -> float | None: ...

    def number(self, key: str, *, required: bool = True) -> float | None:
        value = self._get(key, None, required=required)
        if value is None:
            return None
        if not isinstance(value, bool) and isinstance(value, int | float):
            with suppress(OverflowError):
                if math.isfinite(value):
                    return float(value)
        raise self.wrong(key, f"must be a number, not {_shown(value)}")

    def text(self, key: str, *, required: bool = True) -> str:
        value = self._get(key, "", required=required)
        if not isinstance(value, str | int | float):
            raise self.wrong(key, f"must be text, not {_shown(value)}")
        return str(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key, default, required=False)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {_shown(value)}")
        return value

    def items(self, key: str, *, required: bool = True) -> list[Any]:
        value = self._get(key, [], required=required)
        if not isinstance(value, list):
            raise self.wrong(key, f"must be a list, not {_shown(value)}")
        return value

    def texts(self, key: str, *, required: bool = True) -> tuple[str, ...]:
        items = self.items(key, required=required)
        for i, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, str | int):
                raise self.wrong(f"{key}[{i}]", f"must be text, not {_shown(item)}")
        return tuple(str(item) for item in items)

    def entries(self, key: str, *, required: bool = True) -> list[_Entry]:
        return [
            _Entry(self._file, f"{self._prefix}{key}[{i}].", item)
            for i, item in enumerate(self.items(key, required=required))
        ]

    def span(self) -> tuple[float, float]:
        onset, end = self.number("onset"), self.number("end")
        if end < onset:
            raise self.wrong("end", "must not be before onset")
        return onset, end


def _time(entry: _Entry) -> tuple[float, float, float]:
    """Return start, end and step; what nobody can have recorded would be evaluated for ever."""
    start, end, step_s = entry.number("start"), entry.number("end"), entry.number("step_s")
    for key, value in (("start", start), ("end", end)):
        if not 0 <= value <= LATEST_S:
            raise entry.wrong(key, f"must be epoch seconds from 0 to {LATEST_S}, not {value:g}")
    if end < start:
        raise entry.wrong("end", "must not be before start")
    if not 0 < step_s <= LATEST_S:
        raise entry.wrong("step_s", f"must be above 0 and at most {LATEST_S}, not {step_s:g}")
    if end - start > MAX_EVALUATIONS * step_s:
        asked = f"{step_s:g} asks for {(end - start) / step_s:.4g} evaluations between start and end"
        raise entry.wrong("step_s", f"{asked}; at most {MAX_EVALUATIONS} are made")
    return start, end, step_s


def _fault(entry: _Entry) -> RecordedFault:
    onset, end = entry.span()
    visible = entry.text("visible", required=False)
    if visible not in ("", *GRADES):
        raise entry.wrong("visible", f"must be one of {', '.join(GRADES)}, not {_shown(visible)}")
    visible_at = entry.number("visible_at", required=False)
    if visible_at is not None and visible_at < onset:
        raise entry.wrong("visible_at", "must not be before onset")
    return RecordedFault(
        node=entry.text("node"),
        onset=onset,
        end=end,
        kind=entry.text("kind", required=False),
        part=entry.text("part", required=False),
        severity=entry.text("severity", required=False),
        visible=visible,
        visible_at=visible_at,
        visible_in=entry.text("visible_in", required=False),
    )


def _group_event(entry: _Entry) -> RecordedGroupEvent:
    onset, end = entry.span()
    nodes = entry.texts("nodes", required=False)
    return RecordedGroupEvent(nodes=nodes, onset=onset, end=end, kind=entry.text("kind", required=False))


def _masked(entry: _Entry) -> MaskedTime:
    onset, end = entry.span()
    return MaskedTime(node=entry.text("node"), onset=onset, end=end)


def _provenance(entry: _Entry) -> Mapping[str, Any]:
    value = entry._get("provenance", {}, required=False)
    if not isinstance(value, dict):
        raise entry.wrong("provenance", f"must be a mapping, not {_shown(value)}")
    made = value.get("made")
    if made is not None and made not in MADE:
        raise entry.wrong("provenance.made", f"must be one of {', '.join(MADE)}, not {_shown(made)}")
    return value


def _read_yaml(file: Path) -> object:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise SourceDecode(f"{file}: larger than {MAX_BYTES} bytes")
        text = file.read_text(encoding="utf-8")
        return YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise SourceDecode(f"{file}: cannot be read: {error.strerror}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark is not None else ""
        problem = getattr(error, "problem", None) or "is not YAML"
        raise SourceDecode(f"{file}:{line} {problem}") from None


def _shown(value: object) -> str:
    return " ".join(repr(value).split())[:60]

"""Fields of a catalog entry: what each may hold, and what fits together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from grouping.catalog_yaml import Value
from grouping.model import Direction, FaultRule, Kind, MetricSpec, Severity

TARGETS = (
    "Network",
    "NFS",
    "Memory",
    "Exporter/Runtime",
    "Scheduler",
    "GPU",
    "Disk I/O",
    "OS/Kernel",
    "InfiniBand",
    "CPU",
    "Training",
    "Other",
)
"""Monitored targets."""

COUNTERS = (Kind.COUNTER, Kind.ERROR_COUNTER)
DIRECT = (Kind.ERROR_COUNTER, Kind.STATE)

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_WORD = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]*")
_KINDS = {kind.value: kind for kind in Kind}
_DIRECTIONS = {direction.value: direction for direction in Direction}
_SEVERITIES = {severity.value: severity for severity in Severity}
_REDUCES = {word: word for word in ("last", "sum", "max")}
_COMPARES = {word: word for word in ("all", "slot", "node")}
_TARGETS = {target: target for target in TARGETS}
_FAULT_FIELDS = frozenset({"on", "severity", "healthy", "severities", "saturates_at"})
_EVENTS = {word: word for word in ("rise", "rate", "value", "change")}
_EVENTS_OF = {Kind.ERROR_COUNTER: ("rise", "rate"), Kind.STATE: ("value", "change")}


def metric_name(value: Value) -> str:
    """Read a metric name."""
    name = value.text()
    if not _METRIC.fullmatch(name):
        value.fail(f"{name!r} is not a metric name")
    return name


def _label(value: Value) -> str:
    name = value.text()
    if not _LABEL.fullmatch(name):
        value.fail(f"{name!r} is not a label name")
    return name


def _alternatives(value: Value) -> str:
    names = value.text()
    if not all(_LABEL.fullmatch(name) for name in names.split("|")):
        value.fail(f"{names!r} is not a label name, nor several joined by '|'")
    return names


def _word(value: Value) -> str:
    word = value.text()
    if not _WORD.fullmatch(word):
        value.fail(f"{word!r} is not a word of letters, digits, '_', '-' and '.'")
    return word


def _not_negative(value: Value) -> float:
    number = value.number()
    if not 0.0 <= number < math.inf:
        value.fail(f"must be 0 or more, not {number:g}")
    return number


def _share(value: Value) -> float:
    number = value.number()
    if not 0.0 <= number <= 1.0:
        value.fail(f"must lie between 0 and 1, not {number:g}")
    return number


def _bits(value: Value) -> int:
    number = value.number()
    if number not in (32.0, 64.0):
        value.fail(f"must be 32 or 64, not {number:g}")
    return int(number)


def _positive(value: Value) -> float:
    number = _not_negative(value)
    if number == 0.0:
        value.fail("must be more than 0")
    return number


def _some(read: Callable[[Value], str]) -> Callable[[Value], tuple[str, ...]]:
    return lambda value: value.each(read)


def _compare(value: Value) -> tuple[str, ...]:
    chosen = value.each(lambda item: item.choice(_COMPARES))
    if not chosen:
        value.fail("must name at least one of all, slot, node")
    return chosen


def _fault(value: Value) -> FaultRule:
    fields = value.mapping(_FAULT_FIELDS)
    for needed in ("on", "severity"):
        if needed not in fields:
            value.fail(f"lacks {needed!r}")
    severities: dict[float, Severity] = {}
    if "severities" in fields:
        for name, listed in fields["severities"].mapping(frozenset(_SEVERITIES)).items():
            for item in listed.items():
                code = item.number()
                if code in severities:
                    item.fail(f"gives {code:g} a second severity")
                severities[code] = _SEVERITIES[name]
    return FaultRule(
        on=fields["on"].choice(_EVENTS),
        severity=fields["severity"].choice(_SEVERITIES),
        healthy=fields["healthy"].each(Value.number) if "healthy" in fields else (),
        severities=severities,
        saturates_at=_not_negative(fields["saturates_at"]) if "saturates_at" in fields else 0.0,
    )


READERS: Mapping[str, Callable[[Value], Any]] = {
    "name": metric_name,
    "exporter": _word,
    "target": lambda value: value.choice(_TARGETS),
    "unit": _word,
    "kind": lambda value: value.choice(_KINDS),
    "measure": _word,
    "part": _some(_alternatives),
    "role": _some(_label),
    "sum_over": _some(_label),
    "ignore": _some(_label),
    "reduce": lambda value: value.choice(_REDUCES),
    "compare": _compare,
    "direction": lambda value: value.choice(_DIRECTIONS),
    "floor_abs": _not_negative,
    "floor_rel": _not_negative,
    "floor_lasting": _positive,
    "weight": _share,
    "twin": metric_name,
    "counter_bits": _bits,
    "wrap_scale": _positive,
    "fault": _fault,
    "activity": Value.flag,
    "divides": Value.flag,
    "trend": lambda value: value.choice(_DIRECTIONS),
    "aliases": _some(metric_name),
    "zero_is_missing": Value.flag,
    "valid_min": Value.number,
    "valid_max": Value.number,
}
"""How each field of an entry is read."""

FIELDS = frozenset(READERS)
INHERITED = FIELDS - {"name", "twin", "aliases", "fault", "trend"}
"""Fields that groups, units, exporters and defaults may give."""

REQUIRED = ("exporter", "target", "unit", "kind", "measure")


def read_fields(fields: Mapping[str, Value]) -> dict[str, Any]:
    """Read fields that were found to be known; returns arguments of `MetricSpec`."""
    return {key: READERS[key](value) for key, value in fields.items()}


def build_spec(entry: Value, arguments: Mapping[str, Any], own: Mapping[str, Value]) -> MetricSpec:
    """Make the entry, or say which fields do not fit together.

    Parameters
    ----------
    entry
        For messages about the entry as a whole.
    arguments
        Field values, inherited ones included.
    own
        Fields that the entry itself gives, for messages about them.

    Raises
    ------
    CatalogError
        Naming file, line, entry and field.
    """

    def fail(field: str, problem: str) -> None:
        place = own.get(field)
        if place is not None:
            place.fail(problem)
        Value(entry.node, entry.file, entry.where, field).fail(problem)

    for field in REQUIRED:
        if field not in arguments:
            fail(field, "is missing")
    if not arguments.get("floor_abs"):
        problem = "must be more than 0" if "floor_abs" in arguments else "is missing"
        fail("floor_abs", f"{problem}: peers that are all 0 would have no scale")
    spec = MetricSpec(**{"floor_rel": 0.0, **arguments})
    keys = {label for name in spec.part for label in name.split("|")} | set(spec.role)
    _check_labels(spec, keys, fail)
    _check_values(spec, fail)
    return spec


def _check_labels(spec: MetricSpec, keys: set[str], fail: Callable[[str, str], None]) -> None:
    for label in sorted(keys & set(spec.ignore)):
        fail("ignore", f"lists {label!r}, which names the part or the role")
    for label in sorted(set(spec.sum_over) & (keys | set(spec.ignore))):
        fail("sum_over", f"lists {label!r}, which is a part, a role or ignored")
    if spec.reduce != "last" and not spec.sum_over:
        fail("reduce", f"is {spec.reduce}, but sum_over names no label")
    if set(spec.compare) & {"slot", "node"} and not spec.part:
        fail("compare", "asks for slot or node, but part names no label")
    if spec.twin == spec.name:
        fail("twin", "is the metric itself")


def _check_values(spec: MetricSpec, fail: Callable[[str, str], None]) -> None:
    if spec.kind in DIRECT and spec.fault is None:
        fail("fault", f"is missing: kind is {spec.kind.value}")
    if spec.kind not in DIRECT and spec.fault is not None:
        fail("fault", f"is for error_counter and state, kind is {spec.kind.value}")
    if spec.fault is not None:
        allowed = _EVENTS_OF[spec.kind]
        if spec.fault.on not in allowed:
            fail("fault", f"'on' must be {' or '.join(allowed)} for kind {spec.kind.value}")
        if spec.kind is Kind.STATE and not spec.fault.healthy and not spec.fault.severities:
            fail("fault", "lacks 'healthy' or 'severities'")
    if spec.kind not in COUNTERS and (spec.counter_bits != 64 or spec.wrap_scale != 1.0):
        fail("counter_bits", f"and wrap_scale are for counters, kind is {spec.kind.value}")
    if spec.trend is not None and spec.kind is Kind.STATE:
        fail("trend", "is for counters and gauges, kind is state")
    if spec.trend not in (None, Direction.ABOVE) and spec.kind in COUNTERS:
        fail("trend", "must be above: a counter does nothing but rise")
    if spec.valid_min >= spec.valid_max:
        fail("valid_min", f"is {spec.valid_min:g}, not below valid_max {spec.valid_max:g}")

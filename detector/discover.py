"""Draft a catalog from samples of metrics that nobody has described yet.

Every metric either gets an entry or is dropped with a reason. A draft is a start for a person,
and good enough to replay a recording whose metrics are in no catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from detector.discover_floors import RELATIVE_FLOOR, Track, draft_floor, rates
from detector.discover_labels import Meaning, read_labels
from detector.sampled import Behaviour, SampledSeries, behaviour, by_metric, collect
from detector.source.recording import RecordingSource
from grouping.catalog import Catalog
from grouping.identity import IdentityRules, NodeIdentity
from grouping.model import FaultRule, Kind, MetricSpec, Severity

MIN_NODES = 3
END_OF_TIME_S = 4.0e9
MIN_SAMPLES = 3
MAX_PER_NODE = 2000
"""More series of one metric on one node than this are not worth their cost."""

NodeOf = Callable[[Mapping[str, str]], str | None]
"""Gives the node of a label set, None when no label tells it."""

IN_CATALOG = "is in the catalog already"

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_RUNTIME = re.compile(
    r"(go|process|python|promhttp|scrape|prometheus|vm|vmagent|vm_.*|net_conntrack|jvm|dotnet|nodejs|rust_tokio)_.*|up"
)
_BOOKKEEPING = ("_bucket", "_created", "_info")
_COUNTER_NAME = re.compile(r".*(_total|_count|_sum)")
_FAILURE = re.compile(
    r".*(error|_errs|_err_|fail|retrans|timeout|corrupt|uncorrect|oom|discard).*", re.IGNORECASE
)
_MEASURES = (
    "seconds",
    "bytes",
    "celsius",
    "watts",
    "percent",
    "ratio",
    "hertz",
    "volts",
    "amperes",
    "joules",
)
_EXPORTERS = (
    ("node_", "node_exporter"),
    ("DCGM_FI_", "dcgm"),
    ("all_smi_", "all_smi"),
    ("backendai_", "backend_ai"),
)
_TARGETS = {
    "gpu": "GPU",
    "ib_device": "InfiniBand",
    "network_device": "Network",
    "disk": "Disk I/O",
    "filesystem": "Disk I/O",
    "nfs_export": "NFS",
    "cpu_core": "CPU",
    "cpu_package": "CPU",
    "memory_controller": "Memory",
    "collector": "Exporter/Runtime",
}
_EPOCH = (1.0e9, 5.0e9)
"""Values in this range that look like a point in time are compared with nothing."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A metric that gets no entry.

    Parameters
    ----------
    name
        Metric name.
    reason
        Short reason.
    n_series
        Series that were seen.
    """

    name: str
    reason: str
    n_series: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted catalog.

    Parameters
    ----------
    entries
        One per metric that can be compared, by name.
    drops
        The others.
    notes
        What was decided, by metric.
    """

    entries: tuple[MetricSpec, ...]
    drops: tuple[Dropped, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def catalog(self, path: Path = Path("drafted")) -> Catalog:
        """Return the entries as a catalog."""
        return Catalog.of(self.entries, path=path)

    def to_yaml(self) -> str:
        """Return a catalog file: the entries, and the drops as comments."""
        lines = [
            "# Drafted from samples: look at units, kinds and floors before use.",
            "version: 1",
            "metrics:",
        ]
        if not self.entries:
            lines[-1] = "metrics: []"
        for spec in self.entries:
            lines.extend(f"# {_one_line(note)}" for note in self.notes.get(spec.name, ()))
            lines.append(f"- {_flow(spec)}")
        lines.extend(
            f"# dropped {_one_line(drop.name)}: {_one_line(drop.reason)}"
            for drop in self.drops
            if drop.reason != IN_CATALOG
        )
        return "\n".join(lines) + "\n"


def draft(
    series: Iterable[SampledSeries],
    types: Mapping[str, str] | None = None,
    *,
    known: Catalog | None = None,
    node_of: NodeOf | None = None,
) -> Draft:
    """Draft an entry for every metric, or a reason to leave it out.

    Parameters
    ----------
    series
        Samples of whole series; a quarter of an hour or more tells kinds and floors.
    types
        Declared type by metric, where the database knows it; believed only when the samples agree.
    known
        Metrics of this catalog are left out.
    node_of
        Gives the node of a label set; by default the rules of `grouping.identity`.
    """
    groups = by_metric(series)
    place = node_of or _learnt_identity(groups)
    entries: list[MetricSpec] = []
    drops: list[Dropped] = []
    notes: dict[str, tuple[str, ...]] = {}
    for name in sorted(groups):
        members = groups[name]
        declared = (types or {}).get(name) or (types or {}).get(_family(name), "")
        result = reject_by_name(name, declared, known) or _draft_metric(name, members, declared, place)
        if isinstance(result, str):
            drops.append(Dropped(name, result, len(members)))
        else:
            spec, told = result
            entries.append(spec)
            notes[name] = told
    return Draft(tuple(entries), tuple(drops), notes)


def _learnt_identity(
    groups: Mapping[str, Sequence[SampledSeries]],
) -> Callable[[Mapping[str, str]], str | None]:
    identity = NodeIdentity(IdentityRules())
    for members in groups.values():
        for one in members:
            identity.learn(one.labels)
    return lambda labels: identity.node_of(labels, _exporter(labels.get("__name__", "")))


def _family(name: str) -> str:
    """Name under which a database keeps the type of ``_sum`` and ``_count`` samples."""
    return re.sub(r"_(sum|count|bucket)$", "", name)


def reject_by_name(name: str, declared: str = "", known: Catalog | None = None) -> str:
    """Return why a metric gets no entry whatever its samples are, empty when they decide."""
    if known is not None and name in known.by_name:
        return IN_CATALOG
    if not _METRIC.fullmatch(name):
        return "has no name that a catalog can hold"
    if _RUNTIME.fullmatch(name):
        return "says how an exporter or the monitoring itself runs"
    if name.endswith(_BOOKKEEPING) or declared == "info":
        return "is a histogram bucket, a creation time or a description"
    return ""


def _draft_metric(
    name: str,
    members: Sequence[SampledSeries],
    declared: str,
    place: NodeOf,
) -> str | tuple[MetricSpec, tuple[str, ...]]:
    """Return the entry and its notes, or the reason why there is none."""
    placed = [(node, one) for one in members if (node := place(one.labels)) is not None]
    if not placed:
        return "no label says which node its series belong to"
    spans = [_span(one) for _, one in placed]
    meaning = read_labels([(node, one.labels) for node, one in placed], spans)
    if meaning.n_nodes < MIN_NODES:
        return f"is on {meaning.n_nodes} node{'s' * (meaning.n_nodes != 1)}: nobody to compare with"
    if len(placed) > MAX_PER_NODE * meaning.n_nodes:
        return f"has {len(placed) // meaning.n_nodes} series per node"
    if max(len(one.values) for _, one in placed) < MIN_SAMPLES:
        return "has too few samples"
    moves = behaviour([one for _, one in placed])
    if moves.is_constant:
        return "never changes"
    kind, told = _kind(name, declared, moves, [one for _, one in placed])
    if kind is Kind.GAUGE and _is_timestamp(placed[0][1]):
        return "is a point in time"
    is_rate = kind is not Kind.GAUGE
    floor = draft_floor(_tracks(placed, meaning, is_rate=is_rate), is_rate=is_rate)
    return _entry(name, kind, meaning, floor), (*told, *meaning.notes)


def _span(one: SampledSeries) -> tuple[float, float]:
    return (float(one.times[0]), float(one.times[-1])) if len(one.times) else (0.0, 0.0)


def _kind(
    name: str, declared: str, moves: Behaviour, members: Sequence[SampledSeries]
) -> tuple[Kind, tuple[str, ...]]:
    looks = declared in ("counter", "histogram", "summary") or bool(_COUNTER_NAME.fullmatch(name))
    if declared == "summary" and name == _family(name):
        looks = False
    if looks and moves.falls:
        why = f"typed {declared}" if declared == "counter" else "named like a counter"
        return Kind.GAUGE, (f"{name} is {why}, but falls in {moves.fall_share:.0%} of its changes: a gauge",)
    if not looks and (declared in ("gauge", "gaugehistogram") or not moves.only_rises):
        return Kind.GAUGE, ()
    if not looks and not _counts(members):
        return Kind.GAUGE, ()
    told = () if looks else (f"{name} only rises and counts in whole numbers: a counter",)
    return (Kind.ERROR_COUNTER if _FAILURE.fullmatch(name) else Kind.COUNTER), told


def _counts(members: Sequence[SampledSeries]) -> bool:
    """Tell whether all values are whole numbers that have come far: what counters look like."""
    chosen = [one.values for one in members[:100] if len(one.values)]
    whole = all(bool((values == np.floor(values)).all()) for values in chosen)
    return whole and max(len(values) for values in chosen) >= 20


def _is_timestamp(one: SampledSeries) -> bool:
    inside = (one.values > _EPOCH[0]) & (one.values < _EPOCH[1])
    return "time" in one.name and bool(inside.all())


def _tracks(placed: Sequence[tuple[str, SampledSeries]], meaning: Meaning, *, is_rate: bool) -> list[Track]:
    tracks: list[Track] = []
    for _, one in placed:
        role = "\x00".join(one.labels.get(label, "") for label in meaning.role)
        times, values = rates(one.times, one.values) if is_rate else (one.times, one.values)
        tracks.append(Track(role, times, values))
    return tracks


def _entry(name: str, kind: Kind, meaning: Meaning, floor: float) -> MetricSpec:
    measure = next(
        (word for word in _MEASURES if word in name.lower()), "count" if kind is not Kind.GAUGE else "value"
    )
    fault = FaultRule(on="rate", severity=Severity.WARNING) if kind is Kind.ERROR_COUNTER else None
    by_part = bool(meaning.part) and not set(meaning.part) <= set(meaning.role)
    compare: tuple[str, ...] = ("all",)
    if by_part:
        compare = ("node",) if meaning.unit == "cpu_core" else ("all", "slot")
    return MetricSpec(
        name=name,
        exporter=_exporter(name),
        target=_TARGETS.get(meaning.unit, "Training" if name.startswith("train") else "Other"),
        unit=meaning.unit,
        kind=kind,
        measure=measure,
        part=meaning.part,
        role=meaning.role,
        sum_over=meaning.sum_over,
        ignore=meaning.ignore,
        reduce="sum" if meaning.sum_over else "last",
        compare=compare,
        floor_abs=floor,
        floor_rel=RELATIVE_FLOOR,
        fault=fault,
        activity=meaning.unit == "gpu" and "util" in name.lower() and "mem" not in name.lower(),
    )


def _exporter(name: str) -> str:
    for prefix, exporter in _EXPORTERS:
        if name.startswith(prefix):
            return exporter
    return "other"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


def _flow(spec: MetricSpec) -> str:
    """Write an entry as a YAML flow mapping, without what is default anyway."""
    parts: list[str] = []
    required = {"name", "exporter", "target", "unit", "kind", "measure", "floor_abs", "floor_rel"}
    for item in fields(MetricSpec):
        value = getattr(spec, item.name)
        if item.name not in required and value == item.default:
            continue
        if isinstance(value, FaultRule):
            text = f"{{on: {value.on}, severity: {value.severity.value}}}"
        elif isinstance(value, tuple):
            text = f"[{', '.join(value)}]"
        elif isinstance(value, bool):
            text = str(value).lower()
        else:
            text = str(value)
        parts.append(f"{item.name}: {text}")
    return f"{{{', '.join(parts)}}}"


def catalog_for_recording(catalog: Catalog, source: RecordingSource) -> tuple[Catalog, list[str]]:
    """Return the catalog for a recording: the given one, or a draft when it has none of the metrics.

    Parameters
    ----------
    catalog
        What is normally compared.
    source
        The recording; its samples are looked at only when a draft is needed.

    Returns
    -------
    tuple
        The catalog and notes for the user.
    """
    if not source.metric_names or source.metric_names & set(catalog.by_name):
        return catalog, []
    drafted = draft(collect(source, (), 0.0, END_OF_TIME_S).series)
    if not drafted.entries:
        return catalog, ["none of the recording's metrics is in the catalog, and none could be drafted"]
    n = len(drafted.entries)
    note = f"none of the recording's metrics is in the catalog: {n} entries were drafted from it"
    return drafted.catalog(), [note, *(f"{drop.name} {drop.reason}" for drop in drafted.drops)]

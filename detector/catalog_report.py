"""How well a catalog fits a database: what exists, what is missing, constant or mistyped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from detector.discover import Draft, Dropped, draft, reject_by_name
from detector.sampled import Behaviour, Collected, SampledSeries, behaviour, collect
from detector.source.base import Source
from grouping.catalog import IDENTITY_METRICS, Catalog
from grouping.identity import IdentityRules, NodeIdentity
from grouping.model import Kind, MetricSpec, Refusal
from grouping.placement import PlacementRules, Placer

MIN_PEERS = 3
CHUNK_SERIES = 100_000
"""Series that one request of a discovery may ask for."""

ALL_NAMES = 'count by (__name__) ({__name__!=""})'


class Fit(StrEnum):
    """How one entry fits."""

    GOOD = "good"
    MISSING = "missing"
    CONSTANT = "constant"
    MISTYPED = "mistyped"
    FEW_PEERS = "few peers"
    REFUSED = "refused"


class Questions(Protocol):
    """What a database can be asked beside its samples."""

    def metadata(self) -> Mapping[str, str]:
        """Return the declared type of each metric, where the database knows it."""

    def query(self, promql: str, at: float) -> Sequence[tuple[Mapping[str, str], float]]:
        """Answer an instant query: label set and value of each result."""


@dataclass(frozen=True, slots=True)
class EntryFit:
    """One catalog entry against the database.

    Parameters
    ----------
    name
        Name of the entry.
    stored_as
        Name or aliases found in the database.
    target, unit, kind
        As in the catalog.
    fit
        See `Fit`.
    n_series, n_members, n_nodes
        Series compared, members and nodes they make.
    declared
        Type declared by the exporter, empty when unknown.
    note
        What is odd, empty when nothing is.
    """

    name: str
    stored_as: tuple[str, ...]
    target: str
    unit: str
    kind: str
    fit: Fit
    n_series: int = 0
    n_members: int = 0
    n_nodes: int = 0
    declared: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class UnitFit:
    """One comparison unit: entries in the catalog and in the database, and what they hold."""

    unit: str
    n_entries: int
    n_present: int
    n_series: int
    n_members: int
    n_nodes: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found.

    Parameters
    ----------
    entries
        One per catalog entry, in the catalog's order.
    units
        One per comparison unit.
    identity
        How many nodes got their name from each label.
    conflicts
        Sentences about labels that contradict each other.
    refused
        Series that are not compared, by reason.
    dropped
        Samples left out by the source, by reason.
    unknown
        Series of metrics that are in no entry, by name; empty when only the catalog was asked for.
    is_partial
        True when the database said that data may be missing.
    """

    entries: tuple[EntryFit, ...]
    units: tuple[UnitFit, ...]
    identity: Mapping[str, int] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    is_partial: bool = False

    def count(self, fit: Fit) -> int:
        """Count entries that fit so."""
        return sum(entry.fit is fit for entry in self.entries)


@dataclass(slots=True)
class _Placed:
    """Series of one entry that are compared, and the members they make."""

    series: list[SampledSeries] = field(default_factory=list)
    members: set[tuple[str, str]] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)


def check(
    catalog: Catalog,
    collected: Collected,
    types: Mapping[str, str] | None = None,
    *,
    identity: IdentityRules | None = None,
    placement: PlacementRules | None = None,
    all_names: Mapping[str, int] | None = None,
) -> Report:
    """Compare a catalog with samples of a database.

    Parameters
    ----------
    catalog
        What should be there.
    collected
        Samples of its metrics (and of ``node_uname_info``), a quarter of an hour or more.
    types
        Declared type by metric.
    identity, placement
        Rules as the service has them.
    all_names
        Series by metric of the whole database, to tell which metrics no entry covers.
    """
    nodes = NodeIdentity(identity or IdentityRules())
    placer = Placer(catalog, nodes, placement or PlacementRules())
    for one in collected.series:
        nodes.learn(one.labels)
    placed: dict[str, _Placed] = {}
    refused: Counter[str] = Counter()
    for one in collected.series:
        spec = catalog.by_name.get(one.name)
        if spec is None:
            continue
        mine = placed.setdefault(spec.name, _Placed())
        mine.names.add(one.name)
        where = placer.place(one.labels)
        if isinstance(where, Refusal):
            refused[where.reason] += 1
            mine.refused[where.reason] += 1
            continue
        mine.series.append(one)
        mine.members.add((where.node, where.part))
        mine.nodes.add(where.node)
    entries = tuple(_entry(spec, placed.get(spec.name, _Placed()), types or {}) for spec in catalog.specs)
    known = set(catalog.fetched_names())
    return Report(
        entries=entries,
        units=_units(catalog, entries, placed),
        identity=dict(Counter(nodes.sources().values())),
        conflicts=tuple(str(conflict) for conflict in nodes.conflicts()),
        refused=dict(refused),
        dropped=dict(collected.dropped),
        unknown={name: n for name, n in sorted((all_names or {}).items()) if name not in known},
        is_partial=collected.is_partial,
    )


def _entry(spec: MetricSpec, placed: _Placed, types: Mapping[str, str]) -> EntryFit:
    stored = tuple(sorted(placed.names))
    declared = next((types[name] for name in (*stored, spec.name) if name in types), "")
    moves = behaviour(placed.series)
    fit, note = _fit(spec, placed, moves, declared)
    return EntryFit(
        name=spec.name,
        stored_as=stored,
        target=spec.target,
        unit=spec.unit,
        kind=spec.kind.value,
        fit=fit,
        n_series=len(placed.series),
        n_members=len(placed.members),
        n_nodes=len(placed.nodes),
        declared=declared,
        note=note,
    )


def _fit(spec: MetricSpec, placed: _Placed, moves: Behaviour, declared: str) -> tuple[Fit, str]:
    if not placed.names:
        return Fit.MISSING, ""
    if not placed.series:
        return Fit.REFUSED, placed.refused.most_common(1)[0][0]
    counts = spec.kind in (Kind.COUNTER, Kind.ERROR_COUNTER)
    if counts and moves.falls:
        return Fit.MISTYPED, f"falls in {moves.fall_share:.0%} of its changes: a gauge, no {spec.kind.value}"
    lie = ""
    if not counts and declared == "counter" and moves.falls:
        share = f"{moves.fall_share:.0%}"
        lie = f"declared counter, falls in {share} of its changes: rightly read as {spec.kind.value}"
    if len(placed.nodes) < MIN_PEERS:
        return Fit.FEW_PEERS, lie or f"is on {len(placed.nodes)} node{'s' * (len(placed.nodes) != 1)} only"
    if moves.is_constant:
        quiet = spec.kind in (Kind.ERROR_COUNTER, Kind.STATE)
        return Fit.CONSTANT, "" if quiet else "never changed: it says nothing here"
    return Fit.GOOD, lie


def _units(
    catalog: Catalog, entries: Sequence[EntryFit], placed: Mapping[str, _Placed]
) -> tuple[UnitFit, ...]:
    units: list[UnitFit] = []
    for unit in dict.fromkeys(spec.unit for spec in catalog.specs):
        mine = [entry for entry in entries if entry.unit == unit]
        parts = [placed[entry.name] for entry in mine if entry.name in placed]
        units.append(
            UnitFit(
                unit=unit,
                n_entries=len(mine),
                n_present=sum(bool(entry.n_series) for entry in mine),
                n_series=sum(entry.n_series for entry in mine),
                n_members=len(set().union(*(part.members for part in parts))),
                n_nodes=len(set().union(*(part.nodes for part in parts))),
            )
        )
    return tuple(units)


def check_database(
    catalog: Catalog,
    source: Source,
    questions: Questions | None,
    start_s: float,
    end_s: float,
    *,
    identity: IdentityRules | None = None,
    placement: PlacementRules | None = None,
) -> Report:
    """Fetch what the catalog names, and check it.

    Parameters
    ----------
    questions
        For declared types and the names of all metrics; None for a recording.
    start_s, end_s
        Epoch seconds.

    Raises
    ------
    SourceError
        When the database does not answer.
    """
    collected = collect(source, catalog.fetched_names(), start_s, end_s)
    types = questions.metadata() if questions is not None else {}
    everything = metric_names(questions, end_s) if questions is not None else {}
    return check(catalog, collected, types, identity=identity, placement=placement, all_names=everything)


def metric_names(questions: Questions, at: float) -> dict[str, int]:
    """Ask a database for all metric names and their numbers of series."""
    found = questions.query(ALL_NAMES, at)
    return {labels["__name__"]: int(value) for labels, value in found if "__name__" in labels}


def discover_database(
    source: Source,
    questions: Questions | None,
    start_s: float,
    end_s: float,
    *,
    known: Catalog | None = None,
    identity: IdentityRules | None = None,
) -> Draft:
    """Draft a catalog from a live database, or from a recording when there is nothing to ask.

    Parameters
    ----------
    known
        Metrics of this catalog are left out of the draft.

    Raises
    ------
    SourceError
        When the database does not answer.
    """
    if questions is None:
        return draft(collect(source, (), start_s, end_s).series, known=known, node_of=None)
    types = questions.metadata()
    counts = metric_names(questions, end_s)
    reasons = {name: reject_by_name(name, types.get(name, ""), known) for name in counts}
    wanted = {name: count for name, count in counts.items() if not reasons[name] or name in IDENTITY_METRICS}
    nodes = NodeIdentity(identity or IdentityRules())
    series: list[SampledSeries] = []
    for names in _by_size(wanted):
        series.extend(collect(source, names, start_s, end_s).series)
    for one in series:
        nodes.learn(one.labels)
    undecided = [one for one in series if not reasons.get(one.name)]
    made = draft(undecided, types, node_of=lambda labels: nodes.node_of(labels, ""))
    unfetched = [Dropped(name, reason, counts[name]) for name, reason in reasons.items() if reason]
    drops = sorted([*made.drops, *unfetched], key=lambda drop: drop.name)
    return replace(made, drops=tuple(drops))


def _by_size(counts: Mapping[str, int]) -> Iterable[list[str]]:
    """Split names so that no request asks for too many series."""
    batch: list[str] = []
    size = 0
    for name, count in sorted(counts.items()):
        if batch and size + count > CHUNK_SERIES:
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += count
    if batch:
        yield batch

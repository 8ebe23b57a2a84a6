"""The catalog: which metrics are compared, and how each of them is to be read.

A catalog is one file, or the shipped file with overlays on top. An overlay adds entries,
overrides fields of known ones, disables some, or replaces all that came before.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grouping.catalog_fields import FIELDS, INHERITED, build_spec, metric_name, read_fields
from grouping.catalog_yaml import CatalogError, Value, read_document
from grouping.model import Kind, MetricSpec

FORMAT_VERSION = 1
"""Format of catalog files that this code reads."""

IDENTITY_METRICS = ("node_uname_info",)
"""Fetched beside the catalog's metrics because they tell which labels are one machine."""

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGED = _ROOT / "detector" / "_data" / "metric_catalog.yaml"
_CHECKOUT = _ROOT / "metric_catalog.yaml"

_TOP = frozenset(
    {
        "version",
        "replace",
        "defaults",
        "exporters",
        "units",
        "groups",
        "metrics",
        "override",
        "disable",
    }
)
_GROUP = INHERITED | {"group", "metrics"}


@dataclass(frozen=True, slots=True)
class Catalog:
    """What is compared.

    Parameters
    ----------
    specs
        One entry per metric, in the order of the files.
    by_name
        Entry by name and by alias.
    version
        Format version of the main file.
    sha256
        Hash over the bytes of all files, in order.
    path
        The main file.
    overlays
        Files laid over it.
    """

    specs: tuple[MetricSpec, ...]
    by_name: Mapping[str, MetricSpec]
    version: int
    sha256: str
    path: Path
    overlays: tuple[Path, ...] = ()

    @classmethod
    def of(cls, specs: Iterable[MetricSpec], *, path: Path, sha256: str = "") -> Catalog:
        """Make a catalog of entries that did not come from a file.

        Raises
        ------
        CatalogError
            When two entries share a name or an alias.
        """
        listed = tuple(specs)
        by_name: dict[str, MetricSpec] = {}
        for spec in listed:
            for name in (spec.name, *spec.aliases):
                if name in by_name:
                    raise CatalogError(f"{path}: {name} is in two entries")
                by_name[name] = spec
        digest = sha256 or hashlib.sha256(repr(listed).encode()).hexdigest()
        return cls(listed, MappingProxyType(by_name), FORMAT_VERSION, digest, path)

    def fetched_names(self) -> list[str]:
        """Return the names of metrics to fetch: entries, their aliases and those that tell who is whom."""
        return sorted({*self.by_name, *IDENTITY_METRICS})

    def counts_by_target(self) -> dict[str, int]:
        """Count entries per monitored target."""
        return dict(Counter(spec.target for spec in self.specs))

    def counts_by_unit(self) -> dict[str, int]:
        """Count entries per comparison unit."""
        return dict(Counter(spec.unit for spec in self.specs))

    def counts_by_kind(self) -> dict[Kind, int]:
        """Count entries per kind."""
        return dict(Counter(spec.kind for spec in self.specs))


def find_catalog(path: Path | None = None) -> Path:
    """Return the catalog file to use: the given one, the installed one, or the checkout's.

    Raises
    ------
    CatalogError
        When there is none.
    """
    if path is not None:
        return path
    for candidate in (_PACKAGED, _CHECKOUT):
        if candidate.is_file():
            return candidate
    raise CatalogError(f"no metric catalog is installed: looked for {_PACKAGED} and {_CHECKOUT}")


def load_catalog(path: Path | None = None, overlays: Sequence[Path] = ()) -> Catalog:
    """Load a catalog and lay the overlays over it, in order.

    Parameters
    ----------
    path
        File to use instead of the shipped one.
    overlays
        Files that add, override, disable or replace entries.

    Raises
    ------
    CatalogError
        Naming file, line, entry and field.
    """
    main = find_catalog(path)
    builder = _Builder()
    digest = hashlib.sha256()
    for number, file in enumerate((main, *overlays)):
        document, content = read_document(file)
        digest.update(content)
        builder.add_file(document, is_overlay=number > 0)
    specs = builder.finish(main)
    made = Catalog.of(specs, path=main, sha256=digest.hexdigest())
    return replace(made, overlays=tuple(overlays))


@dataclass(slots=True)
class _Inherited:
    """What entries inherit: defaults, then by exporter, then by unit."""

    defaults: dict[str, Any] = field(default_factory=dict)
    exporters: dict[str, dict[str, Any]] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)

    def extend(self, top: Mapping[str, Value]) -> None:
        if "defaults" in top:
            self.defaults.update(_shared(top["defaults"]))
        for section, known in (("exporters", self.exporters), ("units", self.units)):
            if section in top:
                for name, fields in top[section].mapping().items():
                    known.setdefault(name, {}).update(_shared(fields))

    def under(self, nearest: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the fields of group and entry with what their exporter and unit give."""
        exporter = self.exporters.get(str(nearest.get("exporter")), {})
        unit = self.units.get(str(nearest.get("unit")), {})
        return {**self.defaults, **exporter, **unit, **nearest}


def _shared(value: Value) -> dict[str, Any]:
    return read_fields(value.mapping(INHERITED)) if value.node.value else {}


@dataclass(slots=True)
class _Builder:
    """Entries so far, each with the place it was read from."""

    specs: dict[str, MetricSpec] = field(default_factory=dict)
    places: dict[str, Value] = field(default_factory=dict)
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    inherited: _Inherited = field(default_factory=_Inherited)

    def add_file(self, document: Value, *, is_overlay: bool) -> None:
        top = document.mapping(_TOP)
        if "version" in top and top["version"].number() != FORMAT_VERSION:
            top["version"].fail(f"is not {FORMAT_VERSION}, the format that is read here")
        if not is_overlay:
            for key in ("replace", "override", "disable"):
                if key in top:
                    top[key].fail("is for overlays: there is no catalog under this file")
        if "replace" in top and top["replace"].flag():
            self.specs, self.places, self.arguments = {}, {}, {}
            self.disabled, self.inherited = set(), _Inherited()
        self.inherited.extend(top)
        if "groups" in top:
            for group in top["groups"].items():
                self._add_group(Value(group.node, group.file, "group"))
        if "metrics" in top:
            self._add_entries(top["metrics"], {})
        if "override" in top:
            for entry in top["override"].items():
                self._override(entry)
        if "disable" in top:
            for item in top["disable"].items():
                self._disable(item)

    def _add_group(self, group: Value) -> None:
        fields = group.mapping(_GROUP)
        name = fields.pop("group").text() if "group" in fields else "(without a name)"
        metrics = fields.pop("metrics", None)
        if metrics is None:
            Value(group.node, group.file, f"group {name}").fail("lists no metrics")
        placed = {k: Value(v.node, v.file, f"group {name}", k) for k, v in fields.items()}
        self._add_entries(metrics, read_fields(placed))

    def _add_entries(self, metrics: Value, shared: Mapping[str, Any]) -> None:
        for item in metrics.items():
            entry, fields = _named(item)
            name = entry.where
            known = self.specs.get(name) or next((s for s in self.specs.values() if name in s.aliases), None)
            if known is not None:
                first = self.places[known.name]
                entry.fail(
                    f"is already defined in {first.file}, line {first.line}; use override to change it"
                )
            arguments = self.inherited.under({**shared, **read_fields(fields)})
            self._enter(entry, arguments, fields)

    def _enter(self, entry: Value, arguments: dict[str, Any], fields: Mapping[str, Value]) -> None:
        spec = build_spec(entry, arguments, fields)
        self.specs[spec.name] = spec
        self.places[spec.name] = entry
        self.arguments[spec.name] = arguments

    def _override(self, item: Value) -> None:
        entry, fields = _named(item)
        if entry.where not in self.specs:
            fields["name"].fail("is not in the catalog under this overlay, so it cannot be overridden")
        changed = read_fields(fields)
        self._enter(entry, {**self.arguments[entry.where], **changed}, fields)

    def _disable(self, item: Value) -> None:
        name = metric_name(item)
        if name not in self.specs:
            item.fail(f"{name} is not in the catalog under this overlay")
        del self.specs[name]
        self.disabled.add(name)

    def finish(self, main: Path) -> tuple[MetricSpec, ...]:
        """Check what spans entries and return them."""
        if not self.specs:
            raise CatalogError(f"{main}: the catalog has no entries")
        owner = {name: name for name in self.specs}
        for spec in self.specs.values():
            place = self.places[spec.name]
            for alias in spec.aliases:
                if alias in owner:
                    Value(place.node, place.file, spec.name, "aliases").fail(
                        f"lists {alias}, which belongs to {owner[alias]}"
                    )
                owner[alias] = spec.name
            if spec.twin is not None and spec.twin not in self.specs and spec.twin not in self.disabled:
                Value(place.node, place.file, spec.name, "twin").fail(
                    f"names {spec.twin}, which is not an entry"
                )
        return tuple(
            replace(spec, twin=None) if spec.twin in self.disabled - set(self.specs) else spec
            for spec in self.specs.values()
        )


def _named(item: Value) -> tuple[Value, dict[str, Value]]:
    """Return an entry that knows its name, and its fields."""
    fields = Value(item.node, item.file, "entry").mapping(FIELDS)
    if "name" not in fields:
        Value(item.node, item.file, "entry", "name").fail("is missing")
    name = metric_name(fields["name"])
    placed = {k: Value(v.node, v.file, name, v.field) for k, v in fields.items()}
    return Value(item.node, item.file, name), placed


__all__ = ["Catalog", "CatalogError", "find_catalog", "load_catalog"]

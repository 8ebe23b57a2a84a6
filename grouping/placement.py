"""Where a series belongs: node, part of the node, role, component, or why nowhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from grouping.catalog import Catalog
from grouping.hosts import shorten
from grouping.identity import NodeIdentity
from grouping.interfaces_rules import (
    PSEUDO_FILESYSTEMS,
    TRANSIENT_MOUNTS,
    VIRTUAL_DISKS,
    VIRTUAL_INTERFACES,
    Globs,
)
from grouping.model import MetricSpec, Placement, Refusal

MAX_VALUE = 1024
"""Characters of a label value beyond which a series is refused."""

MAX_SHOWN = 120
"""Characters of a part or role name; longer ones are cut and marked by a hash."""

MAX_REFUSALS = 2_000

AGENT_GROUP = "agent"
"""Backend.AI's service group of the machines' agents; managers and proxies share their job."""

_PART_WORDS = {
    "gpu": "gpu",
    "cpu_core": "cpu",
    "cpu_package": "package",
    "memory_controller": "controller",
}

Labels = Mapping[str, str]
Reject = Callable[[Labels], str | None]


@dataclass(frozen=True)
class PlacementRules:
    """Which parts of a node are compared; all patterns are shell globs.

    Parameters
    ----------
    interface_include
        When not empty, only these network interfaces.
    interface_exclude
        Network interfaces left out.
    ib_include
        When not empty, only these InfiniBand devices.
    ib_exclude
        InfiniBand devices left out, such as RoCE ports (``mlx5_8``), which no label tells apart.
    disk_exclude
        Block devices left out.
    fstype_exclude, mount_exclude
        File system types and mount points left out.
    export_exclude
        NFS exports left out.
    job_exclude
        Scrape jobs of which nothing is compared.
    agent_group
        Value that a ``service_group`` label must have, empty for any.

    Raises
    ------
    ValueError
        When a pattern is empty or too long; names the field.
    """

    interface_include: tuple[str, ...] = ()
    interface_exclude: tuple[str, ...] = VIRTUAL_INTERFACES
    ib_include: tuple[str, ...] = ()
    ib_exclude: tuple[str, ...] = ()
    disk_exclude: tuple[str, ...] = VIRTUAL_DISKS
    fstype_exclude: tuple[str, ...] = PSEUDO_FILESYSTEMS
    mount_exclude: tuple[str, ...] = TRANSIENT_MOUNTS
    export_exclude: tuple[str, ...] = ()
    job_exclude: tuple[str, ...] = ()
    agent_group: str = AGENT_GROUP

    def __post_init__(self) -> None:
        for item in fields(self):
            patterns = getattr(self, item.name)
            if isinstance(patterns, tuple):
                try:
                    Globs(patterns)
                except ValueError as error:
                    raise ValueError(f"placement: {item.name}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to read from the labels of one metric."""

    spec: MetricSpec
    part: tuple[tuple[str, ...], ...]
    part_word: str
    role: tuple[tuple[str, ...], ...]
    sum_over: tuple[str, ...]
    reject: Reject | None
    is_gpu: bool
    part_is_role: bool


class Placer:
    """Gives each series of the catalog's metrics its place.

    Parameters
    ----------
    catalog
        What is compared.
    identity
        Which labels are one machine.
    rules
        What is left out.

    Notes
    -----
    About ten microseconds a series.
    """

    def __init__(self, catalog: Catalog, identity: NodeIdentity, rules: PlacementRules | None = None) -> None:
        self._identity = identity
        self._rules = rules or PlacementRules()
        self._jobs = Globs(self._rules.job_exclude)
        self._rejects = _rejects_by_unit(self._rules)
        self._plans = {name: self._plan(spec) for name, spec in catalog.by_name.items()}
        self._refusals: dict[str, Refusal] = {}

    def place(self, labels: Labels) -> Placement | Refusal:
        """Return the place of a series, or the reason why it is not compared.

        Parameters
        ----------
        labels
            Label set with ``__name__``.
        """
        plan = self._plans.get(labels.get("__name__", ""))
        if plan is None:
            return self._refuse("not in catalog")
        if self._jobs and self._jobs.matches(labels.get("job", "")):
            return self._refuse("job left out")
        group = labels.get("service_group")
        if group and self._rules.agent_group and group != self._rules.agent_group:
            return self._refuse(f"service group is not {self._rules.agent_group}")
        if plan.reject is not None:
            reason = plan.reject(labels)
            if reason is not None:
                return self._refuse(reason)
        node = self._identity.node_of(labels, plan.spec.exporter)
        if node is None:
            return self._refuse("no label names the node")
        return self._place_on(node, plan, labels)

    def notes(self) -> list[str]:
        """Return sentences about parts that were changed (a GPU with a new UUID in an old slot)."""
        return self._identity.gpus.notes()

    def _place_on(self, node: str, plan: _Plan, labels: Labels) -> Placement | Refusal:
        found: dict[str, str] = {}
        parts: list[str] = []
        for names in plan.part:
            value = self._first(names, labels, found)
            if not value:
                return self._refuse(f"label {'|'.join(names)} missing")
            parts.append(value)
        roles = [self._first(names, labels, found) for names in plan.role]
        component = "\x00".join([labels.get(name, "") for name in plan.sum_over]) if plan.sum_over else ""
        if len(component) > MAX_VALUE or max(map(len, found.values()), default=0) > MAX_VALUE:
            return self._refuse("label value too long")
        if plan.is_gpu and len(parts) == 1:
            slot = self._identity.gpus.slot_of(node, labels, parts[0])
            if slot != parts[0]:
                parts[0] = slot
        if plan.part_is_role:
            parts = roles
        return Placement(node, self._part_name(plan, parts), _join_role(roles), component, found)

    @staticmethod
    def _first(names: tuple[str, ...], labels: Labels, found: dict[str, str]) -> str:
        for name in names:
            value = labels.get(name)
            if value:
                found[name] = value
                return value
        return ""

    @staticmethod
    def _part_name(plan: _Plan, parts: list[str]) -> str:
        if not parts:
            return ""
        text = parts[0] if len(parts) == 1 else "/".join(parts)
        if plan.part_word:
            text = f"{plan.part_word} {text}"
        return text if len(text) <= MAX_SHOWN and text.isprintable() else shorten(text, MAX_SHOWN)

    def _plan(self, spec: MetricSpec) -> _Plan:
        part = tuple(_alternatives(label) for label in spec.part)
        role = tuple(_alternatives(label) for label in spec.role)
        is_gpu = spec.unit == "gpu"
        return _Plan(
            spec=spec,
            part=part,
            part_word=_PART_WORDS.get(spec.unit, "") if len(part) == 1 else "",
            role=role,
            sum_over=spec.sum_over,
            reject=self._rejects.get(spec.unit),
            is_gpu=is_gpu,
            part_is_role=not part and spec.unit in ("filesystem", "sensor", "collector"),
        )

    def _refuse(self, reason: str) -> Refusal:
        known = self._refusals.get(reason)
        if known is None:
            known = Refusal(shorten(reason, MAX_SHOWN))
            if len(self._refusals) < MAX_REFUSALS:
                self._refusals[reason] = known
        return known


def _alternatives(label: str) -> tuple[str, ...]:
    return tuple(label.split("|"))


def _join_role(values: list[str]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        text = values[0]
    else:
        text = "|".join([value.replace("|", "\\|") if "|" in value else value for value in values])
    return text if len(text) <= MAX_SHOWN and text.isprintable() else shorten(text, MAX_SHOWN)


def _rejects_by_unit(rules: PlacementRules) -> dict[str, Reject]:
    exports = Globs(rules.export_exclude)
    reject_export = _by_label("export", Globs(()), exports, "NFS export")
    return {
        "network_device": _by_label(
            "device", Globs(rules.interface_include), Globs(rules.interface_exclude), "virtual interface"
        ),
        "ib_device": _by_label(
            "device", Globs(rules.ib_include), Globs(rules.ib_exclude), "InfiniBand device"
        ),
        "disk": _by_label("device", Globs(()), Globs(rules.disk_exclude), "virtual disk or partition"),
        "filesystem": _filesystem(Globs(rules.fstype_exclude), Globs(rules.mount_exclude)),
        "nfs_export": reject_export,
        "nfs_transport": reject_export,
        "gpu": _mig_slice,
    }


def _by_label(label: str, include: Globs, exclude: Globs, what: str) -> Reject:
    left_out = f"{what} left out"
    not_chosen = f"{what} not in the list"

    def reject(labels: Labels) -> str | None:
        value = labels.get(label, "")
        if include:
            return None if include.matches(value) else not_chosen
        return left_out if exclude.matches(value) else None

    return reject


def _filesystem(types: Globs, mounts: Globs) -> Reject:
    def reject(labels: Labels) -> str | None:
        if types.matches(labels.get("fstype", "")):
            return "pseudo file system left out"
        if mounts.matches(labels.get("mountpoint", "")):
            return "transient mount left out"
        return None

    return reject


def _mig_slice(labels: Labels) -> str | None:
    return "MIG slice" if labels.get("GPU_I_ID") else None

"""What the labels of an unknown metric mean: part of a node, role, identity, or churn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MAX_ROLE_VALUES = 64
"""More values than this over all nodes, and a label that is not known is no role."""

NODES_PER_VALUE = 3
"""A label that tells nodes apart splits them into groups only when each value has this many nodes."""

SHARED_SHARE = 0.5
"""A role's values occur on this share of the nodes on average; else every node has values of its own."""

UNIT_OF_LABEL: Mapping[str, str] = {
    "gpu": "gpu",
    "gpu_index": "gpu",
    "gpu_id": "gpu",
    "minor_number": "gpu",
    "accelerator": "gpu",
    "mountpoint": "filesystem",
    "export": "nfs_export",
    "chip": "sensor",
    "sensor": "sensor",
    "cpu": "cpu_core",
    "core": "cpu_core",
    "package": "cpu_package",
    "socket": "cpu_package",
    "controller": "memory_controller",
    "interface": "network_device",
    "nic": "network_device",
    "iface": "network_device",
    "disk": "disk",
    "device": "device",
    "dev": "device",
    "port": "port",
    "index": "index",
    "collector": "collector",
}
"""Labels that name a part of a node, most telling first, and the comparison unit that they make."""

PART_UNITS = frozenset({"gpu", "ib_device", "cpu_core", "cpu_package", "memory_controller", "port", "index"})
"""Units whose parts are alike, so that all are compared; the parts of others are roles as well."""

ALWAYS_PART = frozenset({"mountpoint", "export", "interface", "disk"})
"""Labels that name the part even when there is only one of it so far."""

IDENTITY_LABELS = frozenset(
    {
        "instance", "exported_instance", "node", "nodename", "kubernetes_node", "host", "hostname",
        "Hostname", "fqdn", "ip", "pod_ip", "node_ip", "address", "agent_id", "display_name",
    }
)  # fmt: skip
"""Labels that name the machine; never a role."""

RANK_LABELS = frozenset({"rank", "dp_rank", "global_rank", "node_rank", "worker", "replica_id"})
"""Labels that number the processes of a job: with one process per node they name the node."""

CHURN_LABELS = frozenset(
    {
        "version", "revision", "branch", "goversion", "service_id", "service", "endpoint", "container", "pod",
        "namespace", "uid", "id", "pid", "uuid", "UUID", "gpu_uuid", "pci_bus_id", "driver_version",
        "DCGM_FI_DRIVER_VERSION", "err_code", "err_msg", "exported_job", "exported_pod", "exported_container",
        "exported_namespace", "prometheus", "replica", "cluster", "session_id", "job_id",
    }
)  # fmt: skip
"""Labels whose values come and go while the thing that is watched stays the same."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_DISK = re.compile(r"(nvme\d+n\d+|sd[a-z]+|vd[a-z]+|xvd[a-z]+|md\d+|dm-\d+)(p?\d+)?")
_RDMA = re.compile(r"(mlx\d+|bnxt_re|irdma|efa|rocep|ibp)[_0-9a-z]*")


Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a metric's labels are used.

    Parameters
    ----------
    unit
        Comparison unit.
    part, role, sum_over, ignore
        As in `grouping.model.MetricSpec`.
    n_nodes, n_members
        How many nodes and members the samples show.
    notes
        Decisions worth telling.
    """

    unit: str
    part: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    sum_over: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    n_nodes: int = 0
    n_members: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Label:
    """Values of one label, and on which nodes each occurs."""

    nodes_of: dict[str, set[str]] = field(default_factory=dict)
    most_on_a_node: int = 0

    @property
    def n_values(self) -> int:
        return len(self.nodes_of)


def read_labels(series: Sequence[tuple[str, Mapping[str, str]]], spans: Sequence[Span] = ()) -> Meaning:
    """Decide the meaning of every label of one metric.

    Parameters
    ----------
    series
        Node and label set of each series.
    spans
        First and last sample time of each series, to tell series that follow each other from
        series that stand side by side; without them all stand side by side.

    Returns
    -------
    Meaning
        Labels are added to the key only while they tell series of one node apart, so one that
        another label implies (a UUID beside an index) is ignored.
    """
    labels = _survey(series)
    n_nodes = len({node for node, _ in series})
    splitting: list[str] = []
    ignored: list[str] = []
    roles: list[str] = []
    notes: list[str] = []
    for name, seen in labels.items():
        if not _LABEL.fullmatch(name):
            notes.append(f"label {name!r} is left out: a catalog cannot name it")
        elif name in IDENTITY_LABELS or (seen.n_values == 1 and name not in ALWAYS_PART):
            ignored.append(name)
        elif seen.most_on_a_node > 1 or name in ALWAYS_PART:
            splitting.append(name)
        elif _is_grouping(name, seen, n_nodes):
            roles.append(name)
            notes.append(f"{name} splits the nodes into {seen.n_values} groups")
        else:
            ignored.append(name)
    part, inner_roles, summed, redundant = _choose_key(series, spans, splitting, labels, n_nodes)
    unit = _unit(part, labels)
    if unit not in PART_UNITS:
        inner_roles = [*part, *inner_roles]
    role = tuple(sorted(roles)) + tuple(inner_roles)
    members = {(node, *(found.get(name, "") for name in part)) for node, found in series}
    return Meaning(
        unit=unit,
        part=tuple(part),
        role=role,
        sum_over=tuple(summed),
        ignore=tuple(sorted({*ignored, *redundant})),
        n_nodes=n_nodes,
        n_members=len(members),
        notes=tuple(notes),
    )


def _survey(series: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, _Label]:
    labels: dict[str, _Label] = {}
    per_node: dict[tuple[str, str], set[str]] = {}
    for node, found in series:
        for name, value in found.items():
            if name == "__name__":
                continue
            labels.setdefault(name, _Label()).nodes_of.setdefault(value, set()).add(node)
            per_node.setdefault((name, node), set()).add(value)
    for (name, _), values in per_node.items():
        labels[name].most_on_a_node = max(labels[name].most_on_a_node, len(values))
    return labels


def _is_grouping(name: str, seen: _Label, n_nodes: int) -> bool:
    """Tell whether a label that has one value per node splits the nodes into groups of peers."""
    if name in CHURN_LABELS or name in RANK_LABELS or name == "job" or seen.n_values > MAX_ROLE_VALUES:
        return False
    return n_nodes >= NODES_PER_VALUE * seen.n_values


def _choose_key(
    series: Sequence[tuple[str, Mapping[str, str]]],
    spans: Sequence[Span],
    splitting: Sequence[str],
    labels: Mapping[str, _Label],
    n_nodes: int,
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Pick part labels, role labels and labels to sum over; the rest is implied by them."""
    known = [name for name in UNIT_OF_LABEL if name in splitting]
    others = sorted((n for n in splitting if n not in UNIT_OF_LABEL), key=lambda n: (labels[n].n_values, n))
    part: list[str] = []
    roles: list[str] = []
    summed: list[str] = []
    redundant: list[str] = []
    key: list[tuple[str, ...]] = [(node,) for node, _ in series]
    size = len(set(key))
    churn_last = sorted(others, key=lambda n: n in CHURN_LABELS)
    for name in [*known, *churn_last]:
        longer = [(*old, found.get(name, "")) for old, (_, found) in zip(key, series, strict=True)]
        n_distinct = len(set(longer))
        if n_distinct == size and (part or name not in ALWAYS_PART):
            redundant.append(name)
            continue
        if name not in UNIT_OF_LABEL and (name in CHURN_LABELS or not _is_role(labels[name], n_nodes)):
            if spans and not _stand_side_by_side(key, spans):
                redundant.append(name)
                continue
            summed.append(name)
        elif name in UNIT_OF_LABEL:
            part.append(name)
        else:
            roles.append(name)
        key, size = longer, n_distinct
    return part, roles, summed, redundant


def _stand_side_by_side(key: Sequence[tuple[str, ...]], spans: Sequence[Span]) -> bool:
    """Tell whether series of one key report at the same time, and not one after the other."""
    by_key: dict[tuple[str, ...], list[Span]] = {}
    for one, span in zip(key, spans, strict=True):
        by_key.setdefault(one, []).append(span)
    shared = [sorted(found) for found in by_key.values() if len(found) > 1]
    overlap = sum(any(b[0] < a[1] for a, b in pairwise(found)) for found in shared)
    return overlap > 0.1 * len(shared)


def _is_role(seen: _Label, n_nodes: int) -> bool:
    shared = sum(len(nodes) for nodes in seen.nodes_of.values()) / (seen.n_values * max(n_nodes, 1))
    return seen.n_values <= MAX_ROLE_VALUES and shared >= SHARED_SHARE


def _unit(part: Sequence[str], labels: Mapping[str, _Label]) -> str:
    if not part:
        return "node"
    unit = UNIT_OF_LABEL[part[0]]
    if unit != "device":
        return unit
    values = list(labels[part[0]].nodes_of)
    if "port" in part or _share(_RDMA, values) > 0.5:
        return "ib_device"
    return "disk" if _share(_DISK, values) > 0.5 else "network_device"


def _share(pattern: re.Pattern[str], values: Sequence[str]) -> float:
    return sum(1 for value in values if pattern.fullmatch(value)) / max(len(values), 1)

"""Which label the deviating members of a group event share, while the others do not have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from detector.core.continuity import Continuity
from grouping.index import SeriesIndex

IntArray = NDArray[np.int64]

MAX_LABELLED = 4000
"""Members of which labels are read for one event at most, spread evenly."""

SHARED_BY = 0.9
"""Share of what deviates that must have a label, and of the nodes with it that must deviate."""

WHOLE_POOL = 0.9
"""Share of a pool's nodes from which an event without a telling label is of the whole pool."""

CAUSES = (
    "export",
    "server",
    "mountaddr",
    "*switch*",
    "*leaf*",
    "*spine*",
    "*rail*",
    "*rack*",
    "*pdu*",
    "*row*",
    "*zone*",
    "*room*",
    "*cluster*",
    "*job*",
    "exporter",
)
"""Globs of label names in the order in which they are preferred; other labels come last."""

NO_CAUSE = ("__name__", "operation", "mode", "device", "port", "gpu", "pci_bus_id", "cpu",
            "uuid", "*_uuid", "instance")  # fmt: skip
"""Labels that tell what is measured or who, not what is shared."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node's part with its labels, and whether it deviates."""

    node: str
    labels: Mapping[str, str]
    deviates: bool


def shared_label(members: Sequence[Member], n_pool: int) -> str:
    """Say which label all deviating members have and the others have not; empty when there is none.

    Parameters
    ----------
    members
        Members of one metric in one pool, deviating or not.
    n_pool
        Nodes of the pool.
    """
    deviating = {m.node for m in members if m.deviates}
    if len(deviating) < 2:
        return ""
    with_it: dict[tuple[str, str], set[str]] = {}
    odd_with_it: dict[tuple[str, str], set[str]] = {}
    n_with: Counter[tuple[str, str]] = Counter()
    n_odd: Counter[tuple[str, str]] = Counter()
    n_deviating = sum(m.deviates for m in members)
    for member in members:
        for pair in _pairs(member.labels):
            with_it.setdefault(pair, set()).add(member.node)
            n_with[pair] += 1
            if member.deviates:
                n_odd[pair] += 1
                odd_with_it.setdefault(pair, set()).add(member.node)
    best: tuple[int, str, str] | None = None
    for (name, value), odd in odd_with_it.items():
        every = with_it[(name, value)]
        tells = n_with[(name, value)] < len(members)
        covers = n_odd[(name, value)] >= SHARED_BY * n_deviating
        if tells and covers and len(odd) >= SHARED_BY * len(every):
            best = min(best or (len(CAUSES) + 1, "", ""), (_rank(name), name, value))
    if best is not None:
        _, name, value = best
        odd, every = odd_with_it[(name, value)], with_it[(name, value)]
        with_share = f"all {len(odd)}" if len(odd) == len(every) else f"{len(odd)} of {len(every)}"
        rest = len(deviating - odd)
        others = "none of the others" if not rest else f"{rest} of the others"
        if len(every) >= n_pool:
            others = f"nothing with another {name}" if not rest else others
        return f"{with_share} nodes with {name} {value}; {others}"
    if len(deviating) >= WHOLE_POOL * n_pool:
        return f"the whole pool: {len(deviating)} of {n_pool} nodes"
    return ""


def members_of(
    index: SeriesIndex, clock: Continuity, metric: str, nodes: IntArray, deviating: Iterable[int]
) -> list[Member]:
    """Collect the members of one metric with their labels.

    Parameters
    ----------
    index, clock
        Cells and how long they have deviated.
    metric
        Name of the metric.
    nodes : ndarray of shape (n,)
        Nodes of the pool.
    deviating
        Nodes that moved together; cells of others do not count as deviating.
    """
    signals = [k for k, s in enumerate(index.signals) if s.spec.name == metric and not s.per_node]
    wanted = np.isin(index.cell_signal, signals) & np.isin(index.cell_node, nodes)
    cells = np.flatnonzero(wanted & (index.cell_first_series >= 0))
    key = index.cell_node[cells].astype(np.int64) * (len(index.parts) + 1) + index.cell_part[cells]
    odd = (clock.dwell_s[cells] > 0) & np.isin(index.cell_node[cells], np.fromiter(deviating, dtype=np.int64))
    order = np.lexsort((~odd, key))  # of each node's part one cell, a deviating one if there is any
    cells, odd, key = cells[order], odd[order], key[order]
    first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.zeros(0, dtype=np.int64)
    if len(first) > MAX_LABELLED:
        first = first[np.linspace(0, len(first) - 1, MAX_LABELLED).astype(np.int64)]
    return [
        Member(
            index.nodes[index.cell_node[cells[k]]],
            index.labels_of(int(index.cell_first_series[cells[k]])),
            bool(odd[k]),
        )
        for k in first.tolist()
    ]


def _pairs(labels: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for name, value in labels.items():
        if value and not any(fnmatchcase(name.casefold(), glob) for glob in NO_CAUSE):
            yield name, value
    server, separator, _ = labels.get("export", "").rpartition(":")
    if separator and server:
        yield "server", server


def _rank(name: str) -> int:
    low = name.casefold()
    return next((k for k, glob in enumerate(CAUSES) if fnmatchcase(low, glob)), len(CAUSES))

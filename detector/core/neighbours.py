"""Which nodes hang on the same switch, rack or export as one node, as far as labels tell."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from detector.core.shared_cause import CAUSES
from grouping.index import SeriesIndex

PLACES = CAUSES[: CAUSES.index("*room*") + 1]
"""Globs of labels that tell what nodes hang on; who runs or reports together is no neighbour."""

MAX_READ = 4000
"""Series of which labels are read, of one node and for each label."""

MAX_LABELS = 12
"""Labels that are told at most."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nodes that share a label with a node; itself is among them."""

    label: str
    value: str
    nodes: tuple[str, ...]


def neighbours(index: SeriesIndex, node: str) -> tuple[Neighbours, ...]:
    """Return what a node shares with others, in the order of `PLACES`; empty when no label tells.

    Parameters
    ----------
    index
        Series and their labels.
    node
        Node name.
    """
    if node not in index.nodes:
        return ()
    mine = np.flatnonzero((index.cell_node == index.nodes.index(node)) & (index.cell_first_series >= 0))
    metric_of: dict[tuple[int, str], str] = {}
    values: dict[tuple[int, str], set[str]] = {}
    for cell in mine[:MAX_READ].tolist():
        metric = index.signals[index.cell_signal[cell]].spec.name
        for label, value in index.labels_of(int(index.cell_first_series[cell])).items():
            rank = _rank(label)
            if not value or rank is None:
                continue
            if metric_of.setdefault((rank, label), metric) == metric:
                values.setdefault((rank, label), set()).add(value)
    found: list[Neighbours] = []
    for key in sorted(metric_of):
        nodes = _nodes_by_value(index, metric_of[key], key[1])
        for value in sorted(values[key]):
            shared = tuple(sorted(nodes.get(value, ())))
            # the address of an export's server tells nothing that the export does not
            is_told = any(value in other.value and shared == other.nodes for other in found)
            if len(shared) > 1 and not is_told:
                found.append(Neighbours(key[1], value, shared))
    return tuple(found[:MAX_LABELS])


def _rank(label: str) -> int | None:
    low = label.casefold()
    return next((k for k, glob in enumerate(PLACES) if fnmatchcase(low, glob)), None)


def _nodes_by_value(index: SeriesIndex, metric: str, label: str) -> dict[str, set[str]]:
    signals = [k for k, s in enumerate(index.signals) if s.spec.name == metric and not s.per_node]
    cells = np.flatnonzero(np.isin(index.cell_signal, signals) & (index.cell_first_series >= 0))
    found: dict[str, set[str]] = {}
    for cell in _one_of_each(index, cells).tolist():
        value = index.labels_of(int(index.cell_first_series[cell])).get(label, "")
        if value:
            found.setdefault(value, set()).add(index.nodes[index.cell_node[cell]])
    return found


def _one_of_each(index: SeriesIndex, cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one cell of each part of each node, spread evenly when there are too many."""
    key = index.cell_node[cells].astype(np.int64) * (len(index.parts) + 1) + index.cell_part[cells]
    cells = cells[np.unique(key, return_index=True)[1]]
    if len(cells) > MAX_READ:
        cells = cells[np.linspace(0, len(cells) - 1, MAX_READ).astype(np.int64)]
    return cells

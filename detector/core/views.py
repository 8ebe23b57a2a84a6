"""What the pages and the REST interface show of peer groups; series are in `series_view`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grouping.layout import Layout


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A peer group as it stands: pool, comparison unit, size, and why it is not judged if so."""

    pool: str
    unit: str
    n_nodes: int
    n_members: int
    n_signals: int
    undetermined: str


def group_summaries(layout: Layout, pool_names: tuple[str, ...], min_peers: int) -> list[GroupSummary]:
    """List the peer groups of a layout, and why a group is not judged."""
    found = []
    for block in layout.blocks:
        if block.by_slot:
            continue
        n_nodes = len(np.unique(block.column_node))
        few = "" if n_nodes >= min_peers else f"fewer than {min_peers} peers"
        found.append(
            GroupSummary(pool_names[block.pool], block.unit, n_nodes, block.n_columns, block.n_rows, few)
        )
    return found

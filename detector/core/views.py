"""What the pages and the REST interface show: series against their peers, and the peer groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.evidence import BAND_SIGMAS, labels_of
from detector.core.window import Frame
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeriesView:
    """One member of a signal against its peers over the kept window, for plots.

    Parameters
    ----------
    metric, node, part
        What is shown.
    labels
        Role and part labels.
    times : ndarray of shape (n_ticks,)
        Epoch seconds.
    value, median, low, high : ndarray of shape (n_ticks,)
        The member, the peers' median and the ordinary band; NaN where there is no sample.
    n_peers
        Members compared with at the newest tick.
    """

    metric: str
    node: str
    part: str
    labels: dict[str, str]
    times: FloatArray
    value: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray
    n_peers: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A peer group as it stands: pool, comparison unit, size, and why it is not judged if so."""

    pool: str
    unit: str
    n_nodes: int
    n_members: int
    n_signals: int
    undetermined: str


def series_views(
    index: SeriesIndex, frames: list[Frame], node: str, metric: str, part: str, limit: int
) -> list[SeriesView]:
    """Collect the kept window of every matching signal.

    Parameters
    ----------
    index
        Cells and their names.
    frames
        Kept evaluations, oldest first.
    node, metric, part
        What is asked for; an empty part means every part.
    limit
        At most this many signals.
    """
    if node not in index.nodes or not frames:
        return []
    number = index.nodes.index(node)
    wanted = [s for s, signal in enumerate(index.signals) if signal.spec.name == metric]
    chosen = np.flatnonzero((index.cell_node == number) & np.isin(index.cell_signal, wanted))
    found = []
    for cell in chosen.tolist():
        name = index.parts[index.cell_part[cell]]
        if part and name != part:
            continue
        found.append(_view(index, frames, cell, node, metric, name))
        if len(found) >= limit:
            break
    return found


def _view(
    index: SeriesIndex, frames: list[Frame], cell: int, node: str, metric: str, part: str
) -> SeriesView:
    n = len(frames)
    value, median, scale = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    n_peers = 0
    for i, frame in enumerate(frames):
        if cell >= len(frame.values):
            continue
        value[i] = frame.values[cell]
        row = int(frame.layout.row_of_cell[cell])
        row = row if row >= 0 else int(frame.layout.slot_row_of_cell[cell])
        if row >= 0:
            median[i], scale[i] = frame.median[row], frame.scale[row]
            n_peers = max(0, int(frame.layout.row_members[row]) - 1)
    return SeriesView(
        metric=metric,
        node=node,
        part=part,
        labels=labels_of(index, cell),
        times=np.array([frame.at for frame in frames]),
        value=value,
        median=median,
        low=median - BAND_SIGMAS * scale,
        high=median + BAND_SIGMAS * scale,
        n_peers=n_peers,
    )


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

"""Members that have grown against their peers: over which window, what it is worth, and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.evidence import labels_of
from detector.core.figure import figure
from detector.core.growth import Growth, Rows
from detector.outcome import Evidence, Layer
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.model import Kind

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BLOCK_S = 300.0
"""Length of a block of time; growth is compared when one has ended."""

PER_HOUR = 12
"""Blocks in an hour."""

TREND_SHARE = 0.5
"""Share of the node threshold that growth with the score 1 is worth."""

COMMON_SHARE = 0.1
"""Share of a row's nodes that grow together from which nobody is to blame."""

COUNTED = (Kind.COUNTER, Kind.ERROR_COUNTER)


@dataclass(frozen=True, slots=True)
class Scale:
    """A window over which growth is compared.

    Parameters
    ----------
    name
        In words.
    is_fast
        True for blocks of five minutes, False for hours.
    n_counted
        Newest blocks over which events are counted.
    n_steady, n_stages
        Newest blocks over which gauges must move steadily, and the stages that they are divided into.
    floor_share
        Peers' growths of a gauge are taken to differ by at least this share of the metric's floor.
    """

    name: str
    is_fast: bool
    n_counted: int
    n_steady: int
    n_stages: int
    floor_share: float

    def seconds(self, n_blocks: int) -> float:
        """Length of so many blocks."""
        return n_blocks * BLOCK_S * (1 if self.is_fast else PER_HOUR)


SCALES = (
    Scale("1 h", is_fast=True, n_counted=12, n_steady=6, n_stages=6, floor_share=0.1),
    Scale("24 h", is_fast=False, n_counted=24, n_steady=24, n_stages=6, floor_share=0.25),
    Scale("7 d", is_fast=False, n_counted=168, n_steady=168, n_stages=7, floor_share=0.5),
)


@dataclass(frozen=True, slots=True)
class Grown:
    """Members that have grown; arrays of shape (n_grown,).

    Parameters
    ----------
    cell, node
        Which they are.
    worth
        Share of the node threshold.
    amount, low, high
        Growth, and what the peers show.
    n_blocks
        Blocks of time with events.
    since
        Epoch seconds at which it began, as far as the window tells.
    scale
        Place in `SCALES`.
    n_peers
        Other members of the row.
    """

    cell: IntArray
    node: IntArray
    worth: FloatArray
    amount: FloatArray
    low: FloatArray
    high: FloatArray
    n_blocks: IntArray
    since: FloatArray
    scale: IntArray
    n_peers: IntArray

    def only(self, keep: BoolArray | IntArray) -> Grown:
        """Return the chosen ones."""
        return Grown(*(getattr(self, name)[keep] for name in self.__slots__))

    def by_node(self, n_nodes: int) -> FloatArray:
        """Return what growth is worth on each node: the strongest counts, the rest has the same cause."""
        score = np.zeros(n_nodes)
        np.maximum.at(score, self.node, self.worth)
        return score


def joined(parts: list[Grown]) -> Grown:
    """Join what several windows show; of each cell what is worth most."""
    parts = [part for part in parts if len(part.cell)]
    if not parts:
        return NOTHING
    pairs = (np.concatenate([getattr(part, name) for part in parts]) for name in Grown.__slots__)
    every = Grown(*pairs)
    order = np.argsort(-every.worth, kind="stable")
    _, first = np.unique(every.cell[order], return_index=True)
    return every.only(order[np.sort(first)])


_I, _F = np.zeros(0, dtype=np.int64), np.zeros(0)
NOTHING = Grown(_I, _I, _F, _F, _F, _F, _I, _F, _I, _I)


def grown_of(
    found: Growth, cell: IntArray, k: int, start: float, index: SeriesIndex, rows: Rows, most: FloatArray
) -> Grown:
    """Keep the members whose growth counts."""
    keep = np.flatnonzero(found.score >= 1.0)
    length = SCALES[k].seconds(1)
    return Grown(
        cell=cell[keep],
        node=index.cell_node[cell[keep]].astype(np.int64),
        worth=np.minimum(TREND_SHARE * found.score[keep], most[keep]),
        amount=found.amount[keep],
        low=found.low[keep],
        high=found.high[keep],
        n_blocks=found.n_blocks[keep],
        since=np.asarray(start + length * found.first[keep], dtype=np.float64),
        scale=np.full(len(keep), k, dtype=np.int64),
        n_peers=rows.members[rows.of[keep]] - 1,
    )


def parts_per_node(layout: Layout) -> IntArray:
    """Return how many members a node has in each row, rounded up."""
    return np.asarray(-(-layout.row_members // np.maximum(layout.row_nodes, 1)))


def uncommon(grown: Grown, index: SeriesIndex, layout: Layout, least: int) -> Grown:
    """Leave out growth that many nodes of a row share: a server, a fabric or the job is behind it."""
    if not len(grown.cell):
        return grown
    row = layout.any_row_of_cell[grown.cell]
    pairs = np.unique(np.stack([row, grown.node]), axis=1)
    nodes = np.bincount(pairs[0], minlength=len(layout.row_nodes))
    common = (nodes >= least) & (nodes >= COMMON_SHARE * layout.row_nodes)
    return grown.only(~common[row])


def trend_evidence(index: SeriesIndex, grown: Grown, node: int) -> list[Evidence]:
    """Describe what has grown on a node, strongest first, each metric and role once."""
    mine = np.flatnonzero(grown.node == node)
    told: dict[int, Evidence] = {}
    for k in mine[np.argsort(-grown.worth[mine], kind="stable")].tolist():
        cell = int(grown.cell[k])
        signal = int(index.cell_signal[cell])
        if signal in told:
            continue
        spec, scale = index.signals[signal].spec, SCALES[int(grown.scale[k])]
        amount, low, high = float(grown.amount[k]), float(grown.low[k]), float(grown.high[k])
        if spec.kind in COUNTED:
            unit = "blocks of 5 min" if scale.is_fast else "hours"
            text = f"rose by {figure(amount)} in {scale.name} (in {int(grown.n_blocks[k])} {unit})"
            text += f", peers by {figure(low)}" + (f" to {figure(high)}" if high > low else "")
        else:
            minutes = scale.seconds(scale.n_steady) / 60
            length = f"{minutes:.0f} min" if minutes < 60 else scale.name
            text = "rose" if amount > 0 else "fell"
            text += f" steadily by {figure(abs(amount))} {spec.measure} in {length}"
            text += f" against its peers, they by {figure(low, 3)} to {figure(high, 3)}"
        told[signal] = Evidence(
            metric=spec.name,
            labels=labels_of(index, cell),
            part=index.parts[index.cell_part[cell]],
            layer=Layer.TREND,
            reason=text,
            score=round(float(grown.worth[k]), 3),
            value=amount,
            peer_median=None,
            band=(low, high),
            since=float(grown.since[k]),
            n_peers=int(grown.n_peers[k]),
            target=spec.target,
            side="above" if amount > 0 else "below",
        )
    return list(told.values())

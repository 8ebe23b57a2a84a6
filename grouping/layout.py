"""Peer groups as blocks: which cell stands where in which matrix of numbers.

A block is one pool and one comparison unit. Its rows are signals (or signals of one slot),
its columns are members (nodes, or nodes' parts). The layout is computed anew only when a
cell or a pool changes; each tick then is a scatter, a sort and a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from grouping.index import SeriesIndex

IntArray = NDArray[np.int64]

MAX_PADDING = 4096
"""Blocks are computed together as long as that costs fewer empty places than this."""


@dataclass(frozen=True, slots=True)
class Block:
    """One pool and one comparison unit as a matrix.

    Parameters
    ----------
    pool
        Number of the pool.
    unit
        Comparison unit.
    by_slot
        True when rows are split by part, so that slot i meets slot i.
    first_row
        Number of the block's first row among all rows.
    n_rows, n_columns
        Shape of the matrix.
    cells : ndarray of shape (n,), int64
        Cells of the block.
    positions : ndarray of shape (n,), int64
        Flat position of each cell in the matrix.
    column_node : ndarray of shape (n_columns,), int64
        Node of each column.
    parts_per_node
        Columns that one node has at most.
    """

    pool: int
    unit: str
    by_slot: bool
    first_row: int
    n_rows: int
    n_columns: int
    cells: IntArray
    positions: IntArray
    column_node: IntArray
    parts_per_node: int


@dataclass(frozen=True)
class Stack:
    """Blocks of similar width on top of each other: one matrix, so one sort.

    Parameters
    ----------
    n_columns
        Columns of the widest block; rows of narrower ones end in empty places.
    rows : ndarray of shape (n,), int64
        Number of each of its rows among all rows.
    source : ndarray of shape (n * n_columns,), int64
        Cell at each place of the matrix, -1 for empty places.
    parts_per_node : ndarray of shape (n,), int64
        As in the `Block` of each row.
    members : ndarray of shape (n,), int64
        Number of cells in each of its rows.
    """

    n_columns: int
    rows: IntArray
    source: IntArray
    parts_per_node: IntArray
    members: IntArray

    @cached_property
    def first(self) -> IntArray:
        """Place at which each row begins, shape (n,)."""
        return np.arange(0, len(self.source), self.n_columns)

    @cached_property
    def last(self) -> IntArray:
        """Place of the largest number of each row that is sorted and has no gap, shape (n,)."""
        return self.first + self.members - 1

    @cached_property
    def middle(self) -> tuple[IntArray, IntArray]:
        """Places of the one or two numbers in the middle of such rows, shape (n,) each."""
        return self.first + (self.members - 1) // 2, self.first + self.members // 2


@dataclass(frozen=True)
class Layout:
    """All blocks, and for each cell the rows it is compared in.

    Parameters
    ----------
    blocks
        See `Block`.
    row_of_cell : ndarray of shape (n_cells,), int64
        Row in which a cell meets all its peers, -1 for none.
    slot_row_of_cell : ndarray of shape (n_cells,), int64
        Row in which a cell meets the same slot of other nodes, -1 for none.
    row_signal, row_pool : ndarray of shape (n_rows,), int64
        What each row holds.
    row_members : ndarray of shape (n_rows,), int64
        Number of cells in each row.
    row_nodes : ndarray of shape (n_rows,), int64
        Number of different nodes in each row.
    row_key
        Text name of each row that outlives a new layout: pool, metric, role, slot.
    """

    blocks: tuple[Block, ...]
    row_of_cell: IntArray
    slot_row_of_cell: IntArray
    row_signal: IntArray
    row_pool: IntArray
    row_members: IntArray
    row_nodes: IntArray
    row_key: tuple[str, ...]

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """All blocks, those of similar width together, widest first."""
        stacks: list[list[Block]] = []
        padding = 0
        for block in sorted(self.blocks, key=lambda b: -b.n_columns):
            if stacks:
                padding += block.n_rows * (stacks[-1][0].n_columns - block.n_columns)
            if not stacks or padding > MAX_PADDING:
                stacks.append([])
                padding = 0
            stacks[-1].append(block)
        return tuple(_stacked(blocks) for blocks in stacks)

    @cached_property
    def slot_cells(self) -> IntArray:
        """Cells that meet the same slot of other nodes."""
        return np.flatnonzero(self.slot_row_of_cell >= 0)

    @cached_property
    def any_row_of_cell(self) -> IntArray:
        """Row of each cell, its slot's where it does not meet all its peers, -1 for none."""
        return np.where(self.row_of_cell >= 0, self.row_of_cell, self.slot_row_of_cell)

    @cached_property
    def cells_of_any_row(self) -> list[IntArray]:
        """Cells of each row by `any_row_of_cell`, ascending."""
        rows = self.any_row_of_cell
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], np.arange(len(self.row_key) + 1))
        return [order[low:high] for low, high in pairwise(starts.tolist())]


def _stacked(blocks: Sequence[Block]) -> Stack:
    width = blocks[0].n_columns
    first = np.cumsum([0, *(block.n_rows for block in blocks)]).tolist()
    placed = [
        (start + block.positions // block.n_columns) * width + block.positions % block.n_columns
        for start, block in zip(first, blocks, strict=False)
    ]
    source = np.full(first[-1] * width, -1, dtype=np.int64)
    source[np.concatenate(placed)] = np.concatenate([block.cells for block in blocks])
    return Stack(
        n_columns=width,
        rows=np.concatenate([np.arange(b.first_row, b.first_row + b.n_rows) for b in blocks]),
        source=source,
        parts_per_node=np.repeat([b.parts_per_node for b in blocks], [b.n_rows for b in blocks]),
        members=np.count_nonzero(source.reshape(-1, width) >= 0, axis=1),
    )


def build_layout(
    index: SeriesIndex,
    pool_of_node: NDArray[np.int32],
    pool_names: Sequence[str],
    part_class: NDArray[np.int64] | None = None,
) -> Layout:
    """Arrange all cells of the index in blocks by pool and comparison unit.

    Parameters
    ----------
    index
        Known series and cells.
    pool_of_node : ndarray of shape (n_nodes,), int32
        Pool of each node, -1 for nodes that are compared with nobody.
    pool_names
        Names of the pools.
    part_class : ndarray of shape (n_parts,), int64
        Parts of different classes are not compared with each other (an Ethernet port among
        InfiniBand ports); None when all parts are alike.

    Returns
    -------
    Layout
        Cells without a pool get row -1.
    """
    classes = np.zeros(len(index.parts), dtype=np.int64)
    if part_class is not None:
        classes[: len(part_class)] = part_class[: len(classes)]
    builder = _Builder(index, pool_of_node, pool_names, classes)
    signals = index.signals
    n_signals = len(signals)
    compared_all = np.array([_meets_all(s.spec.compare, s.per_node, s.by_part) for s in signals], dtype=bool)
    compared_slot = np.array([s.by_part and "slot" in s.spec.compare for s in signals], dtype=bool)
    unit_names = sorted({f"{s.spec.unit}\x00{int(s.by_part)}" for s in signals})
    unit_of_signal = np.array(
        [unit_names.index(f"{s.spec.unit}\x00{int(s.by_part)}") for s in signals], dtype=np.int64
    ).reshape(n_signals)
    for pool in range(len(pool_names)):
        for unit, name in enumerate(unit_names):
            mine = unit_of_signal == unit
            for kind in np.unique(classes).tolist() if name.endswith("1") else [None]:
                builder.add(pool, name.split("\x00")[0], mine & compared_all, by_slot=False, kind=kind)
            builder.add(pool, name.split("\x00")[0], mine & compared_slot, by_slot=True)
    return builder.finish()


def _meets_all(compare: tuple[str, ...], per_node: bool, by_part: bool) -> bool:
    if per_node or not by_part:
        return True
    return "all" in compare


class _Builder:
    def __init__(
        self,
        index: SeriesIndex,
        pool_of_node: NDArray[np.int32],
        names: Sequence[str],
        classes: NDArray[np.int64],
    ) -> None:
        self._index = index
        self._classes = classes
        self._names = names
        self._signal = index.cell_signal.astype(np.int64)
        self._node = index.cell_node.astype(np.int64)
        self._part = index.cell_part.astype(np.int64)
        self._pool = pool_of_node.astype(np.int64)[self._node] if len(self._node) else self._node
        self._blocks: list[Block] = []
        self._row_signal: list[IntArray] = []
        self._row_slot: list[IntArray] = []
        self._row_pool: list[IntArray] = []
        self._row_members: list[IntArray] = []
        self._row_nodes: list[IntArray] = []
        self._row_kind: list[int] = []
        self._n_rows = 0
        self._row = np.full(len(self._signal), -1, dtype=np.int64)
        self._slot_row = np.full(len(self._signal), -1, dtype=np.int64)

    def add(
        self, pool: int, unit: str, wanted: NDArray[np.bool_], *, by_slot: bool, kind: int | None = None
    ) -> None:
        """Append the block of the wanted signals in one pool and one class of parts, if it has any cell."""
        if not wanted.any() or not len(self._signal):
            return
        chosen = wanted[self._signal] & (self._pool == pool)
        if kind is not None:
            chosen &= self._classes[self._part] == kind
        cells = np.flatnonzero(chosen)
        if not len(cells):
            return
        signal, node, part = self._signal[cells], self._node[cells], self._part[cells]
        n_parts = len(self._index.parts)
        by_part = self._index.signals[int(signal[0])].by_part
        row_key = signal * n_parts + part if by_slot else signal
        column_key = node * n_parts + part if by_part and not by_slot else node
        rows, row_index = np.unique(row_key, return_inverse=True)
        columns, column_index = np.unique(column_key, return_inverse=True)
        column_node = columns // n_parts if by_part and not by_slot else columns
        block = Block(
            pool=pool,
            unit=unit,
            by_slot=by_slot,
            first_row=self._n_rows,
            n_rows=len(rows),
            n_columns=len(columns),
            cells=cells,
            positions=row_index * len(columns) + column_index,
            column_node=column_node,
            parts_per_node=int(np.bincount(column_node).max()),
        )
        self._blocks.append(block)
        target = self._slot_row if by_slot else self._row
        target[cells] = self._n_rows + row_index
        self._row_signal.append(rows // n_parts if by_slot else rows)
        self._row_slot.append(rows % n_parts if by_slot else np.zeros_like(rows))
        self._row_kind.extend([kind or 0] * len(rows))
        self._row_pool.append(np.full(len(rows), pool, dtype=np.int64))
        self._row_members.append(np.bincount(row_index, minlength=len(rows)))
        pairs = np.unique(row_index * (len(self._index.nodes) + 1) + node)
        self._row_nodes.append(np.bincount(pairs // (len(self._index.nodes) + 1), minlength=len(rows)))
        self._n_rows += len(rows)

    def finish(self) -> Layout:
        """Return the layout of all blocks added."""
        empty = [np.zeros(0, dtype=np.int64)]
        row_signal = np.concatenate(self._row_signal or empty)
        row_slot = np.concatenate(self._row_slot or empty)
        row_pool = np.concatenate(self._row_pool or empty)
        signals, parts = self._index.signals, self._index.parts
        keys = tuple(
            "\x00".join(
                (
                    self._names[p],
                    signals[s].spec.name,
                    signals[s].role,
                    str(int(signals[s].per_node)),
                    parts[k],
                    str(kind),
                )
            )
            for s, k, p, kind in zip(
                row_signal.tolist(), row_slot.tolist(), row_pool.tolist(), self._row_kind, strict=True
            )
        )
        return Layout(
            blocks=tuple(self._blocks),
            row_of_cell=self._row,
            slot_row_of_cell=self._slot_row,
            row_signal=row_signal,
            row_pool=row_pool,
            row_members=np.concatenate(self._row_members or empty),
            row_nodes=np.concatenate(self._row_nodes or empty),
            row_key=keys,
        )

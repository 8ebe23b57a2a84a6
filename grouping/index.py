"""Every series that was ever seen, parsed once: label bytes to series, component and cell.

A *series* is one label object of the database. Series that are copies of each other
(two exporters of one GPU during a restart, a changed version label) share a *component*;
the components of one *cell* are reduced together (an NFS counter summed over its
connections). A cell is one signal of one member. Nearly always all three are the same
thing, and the arrays here let the core handle the rest without looking at a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from grouping.catalog import Catalog
from grouping.growing_array import GrowingArray
from grouping.model import MetricSpec, Placement, Refusal

REDUCE_LAST, REDUCE_SUM, REDUCE_MAX, REDUCE_MEAN = 0, 1, 2, 3
_REDUCE = {"last": REDUCE_LAST, "sum": REDUCE_SUM, "max": REDUCE_MAX}
MAX_REFUSED = 400_000

_decode = msgspec.json.Decoder(dict[str, str]).decode


class PlacesSeries(Protocol):
    """Decides where one label set belongs (see `grouping.placement.Placer`)."""

    def place(self, labels: Mapping[str, str]) -> Placement | Refusal:
        """Return the placement, or the reason why the series is not compared."""


class LearnsNodes(Protocol):
    """Learns node names from label sets (see `grouping.identity.NodeIdentity`)."""

    @property
    def generation(self) -> int:
        """Changes when an answer given before would now be another."""

    def learn(self, labels: Mapping[str, str]) -> None:
        """Take in a label set that may say which address is which machine."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric plus its role; `per_node` when it is the mean over a node's parts."""

    spec: MetricSpec
    role: str
    by_part: bool
    per_node: bool = False


class SeriesIndex:
    """Numbers for label objects, and where each of them goes.

    Implements the `Interner` of the sources. Grows only; `version` changes whenever a
    cell was added, so that layouts know when they are out of date.

    Parameters
    ----------
    catalog
        What is compared.
    identity
        Learns and tells which labels are one machine.
    placer
        Decides part, role and component.
    """

    def __init__(self, catalog: Catalog, identity: LearnsNodes, placer: PlacesSeries) -> None:
        self._catalog = catalog
        self._identity = identity
        self._placer = placer
        self._codes: dict[bytes, int] = {}
        self._n_refused = 0
        self._moves: dict[int, int] | None = None
        self._inhabited: tuple[int, NDArray[np.bool_]] = (-1, np.zeros(0, dtype=bool))
        self._counted: tuple[tuple[NDArray[np.bool_], ...], NDArray[np.int64]] = (
            (),
            np.zeros((0, 0), np.int64),
        )
        self._generation = identity.generation
        self.version = 0
        self.refused: Counter[str] = Counter()
        self.keys: list[bytes] = []
        self.nodes: list[str] = []
        self.signals: list[Signal] = []
        self.parts: list[str] = []
        self._has_parts: dict[str, bool] = {}
        self._node_ids: dict[str, int] = {}
        self._signal_ids: dict[tuple[str, str, bool], int] = {}
        self._part_ids: dict[str, int] = {}
        self._cell_ids: dict[tuple[int, int, int], int] = {}
        self._component_ids: dict[tuple[int, str], int] = {}
        self._series_component = GrowingArray(np.int32)
        self._component_cell = GrowingArray(np.int32)
        self._cell_signal = GrowingArray(np.int32)
        self._cell_node = GrowingArray(np.int32)
        self._cell_part = GrowingArray(np.int32)
        self._cell_reduce = GrowingArray(np.int8)
        self._cell_mean_of = GrowingArray(np.int32)
        self._cell_first_series = GrowingArray(np.int32)
        self._component_copies = GrowingArray(np.int32)
        self._cell_components = GrowingArray(np.int32)

    @property
    def codes(self) -> dict[bytes, int]:
        """Label object (JSON bytes) to series number, -1 for "not compared"."""
        return self._codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        """Parse new label objects: first let them teach identity, then give each its place.

        A label object that is not a JSON object of strings is refused and counted.
        """
        if self._n_refused > MAX_REFUSED:
            self._forget_refused()
        parsed: list[tuple[bytes, dict[str, str]]] = []
        for key in keys:
            if key in self._codes:
                continue
            try:
                labels = _decode(key)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._refuse(key, "labels are not a JSON object of strings")
                continue
            self._identity.learn(labels)
            parsed.append((key, labels))
        if self._identity.generation != self._generation:
            self._generation = self._identity.generation
            self._replace_all()
        for key, labels in parsed:
            if key in self._codes:
                continue
            placed = self._placer.place(labels)
            if isinstance(placed, Refusal):
                self._refuse(key, placed.reason)
            else:
                self._enter(key, self._catalog.by_name[labels["__name__"]], placed)

    def take_moves(self) -> dict[int, int] | None:
        """Return once which cells took over from which, new to old, since better names were learnt.

        None when no series has changed its place since the last call.
        """
        moves, self._moves = self._moves, None
        return moves

    @property
    def inhabited(self) -> NDArray[np.bool_]:
        """False for nodes that lost all their series to a better name, shape (n_nodes,)."""
        if self._inhabited[0] != self.version:
            cells = self.component_cell[self.component_cell >= 0]
            counts = np.bincount(self.cell_node[cells], minlength=len(self.nodes))
            self._inhabited = (self.version, counts > 0)
        return self._inhabited[1]

    def mean_by_node(self, cells: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean on each node over those of some cells that have a value; NaN for none.

        Parameters
        ----------
        cells : ndarray of int
            Numbers of cells.
        values : ndarray of shape (n_cells,)
            NaN where unknown.

        Returns
        -------
        ndarray of shape (n_nodes,)
        """
        known = cells[np.isfinite(values[cells])]
        n_nodes = len(self.nodes)
        count = np.bincount(self.cell_node[known], minlength=n_nodes)
        total = np.bincount(self.cell_node[known], weights=values[known], minlength=n_nodes)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def count_by_node(self, *choices: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the cells of each node that are chosen.

        Parameters
        ----------
        *choices : ndarray of shape (n_cells,), bool
            One or several choices of cells, counted in one go; the same ones again are not counted anew.

        Returns
        -------
        ndarray of shape (n_choices, n_nodes)
        """
        before, found = self._counted
        if len(before) == len(choices) and all(map(np.array_equal, before, choices)):
            return found
        n_nodes, n_sets = len(self.nodes), 1 << len(choices)
        chosen_by = np.zeros(self.n_cells, dtype=np.uint8)  # a bit for each choice
        for k, cells in enumerate(choices):
            chosen_by |= cells.view(np.uint8) << k
        key = self.cell_node.astype(np.int64) * n_sets + chosen_by
        counts = np.bincount(key, minlength=n_nodes * n_sets).reshape(n_nodes, n_sets)
        is_in = np.arange(n_sets)[:, None] >> np.arange(len(choices)) & 1
        found = np.asarray((counts @ is_in).T)
        self._counted = choices, found
        return found

    def labels_of(self, series: int) -> dict[str, str]:
        """Label set of a series, parsed anew (for evidence, never per tick)."""
        return _decode(self.keys[series])

    @property
    def n_series(self) -> int:
        """Number of series that are compared."""
        return len(self.keys)

    @property
    def n_cells(self) -> int:
        """Number of cells, node means included."""
        return len(self._cell_signal)

    @property
    def series_component(self) -> NDArray[np.int32]:
        """Component of each series, shape (n_series,)."""
        return self._series_component.view

    @property
    def component_cell(self) -> NDArray[np.int32]:
        """Cell of each component, shape (n_components,)."""
        return self._component_cell.view

    @property
    def component_copies(self) -> NDArray[np.int32]:
        """How many series share each component, shape (n_components,)."""
        return self._component_copies.view

    @property
    def cell_components(self) -> NDArray[np.int32]:
        """How many components each cell has, shape (n_cells,)."""
        return self._cell_components.view

    @property
    def cell_signal(self) -> NDArray[np.int32]:
        """Signal of each cell, shape (n_cells,)."""
        return self._cell_signal.view

    @property
    def cell_node(self) -> NDArray[np.int32]:
        """Node of each cell, shape (n_cells,)."""
        return self._cell_node.view

    @property
    def cell_part(self) -> NDArray[np.int32]:
        """Part of each cell (index into `parts`, 0 is the node itself), shape (n_cells,)."""
        return self._cell_part.view

    @property
    def cell_reduce(self) -> NDArray[np.int32]:
        """How a cell's components are reduced, shape (n_cells,)."""
        return self._cell_reduce.view

    @property
    def cell_mean_of(self) -> NDArray[np.int32]:
        """Node-mean cell that a cell feeds, -1 for none, shape (n_cells,)."""
        return self._cell_mean_of.view

    @property
    def cell_first_series(self) -> NDArray[np.int32]:
        """First series of each cell, -1 for node means, shape (n_cells,)."""
        return self._cell_first_series.view

    def _refuse(self, key: bytes, reason: str) -> None:
        self._codes[key] = -1
        self._n_refused += 1
        self.refused[reason] += 1

    def _forget_refused(self) -> None:
        """Drop what is not compared: churning interfaces would fill the memory otherwise."""
        self._codes = {key: code for key, code in self._codes.items() if code >= 0}
        self._n_refused = 0

    def _enter(self, key: bytes, spec: MetricSpec, placed: Placement) -> None:
        series = len(self.keys)
        self.keys.append(key)
        self._codes[key] = series
        self._series_component.append(0)
        self._place(series, spec, placed)

    def _place(self, series: int, spec: MetricSpec, placed: Placement) -> None:
        only_node_mean = spec.compare == ("node",) and placed.part != ""
        by_part = not only_node_mean and self._splits_parts(spec)
        part, component_key = (
            ("", f"{placed.part}\x00{placed.component}")
            if only_node_mean
            else (placed.part, placed.component)
        )
        node = self._number(self._node_ids, self.nodes, placed.node)
        if not self.parts:
            self._number(self._part_ids, self.parts, "")
        part_id = self._number(self._part_ids, self.parts, part)
        reduce_code = REDUCE_MEAN if only_node_mean else _REDUCE[spec.reduce]
        signal = self._signal(spec, placed.role, by_part, per_node=False)
        cell = self._cell(signal, node, part_id, reduce_code, series)
        if by_part and "node" in spec.compare and self._cell_mean_of[cell] < 0:
            mean_signal = self._signal(spec, placed.role, False, per_node=True)
            self._cell_mean_of[cell] = self._cell(mean_signal, node, 0, REDUCE_MEAN, -1)
        if reduce_code == REDUCE_LAST:
            component_key = ""
        component = self._component_ids.get((cell, component_key))
        if component is None:
            component = len(self._component_cell)
            self._component_ids[(cell, component_key)] = component
            self._component_cell.append(cell)
            self._component_copies.append(0)
            self._cell_components[cell] += 1
        self._component_copies[component] += 1
        self._series_component[series] = component
        self.version += 1

    def _splits_parts(self, spec: MetricSpec) -> bool:
        """Tell whether a metric has members of their own for a node's parts, not only roles."""
        found = self._has_parts.get(spec.name)
        if found is None:
            found = bool(spec.part) and not set(spec.part) <= set(spec.role)
            self._has_parts[spec.name] = found
        return found

    def _signal(self, spec: MetricSpec, role: str, by_part: bool, *, per_node: bool) -> int:
        key = (spec.name, role, per_node)
        number = self._signal_ids.get(key)
        if number is None:
            number = len(self.signals)
            self._signal_ids[key] = number
            self.signals.append(Signal(spec, role, by_part, per_node))
        return number

    def _cell(self, signal: int, node: int, part: int, reduce_code: int, series: int) -> int:
        key = (signal, node, part)
        cell = self._cell_ids.get(key)
        if cell is None:
            cell = len(self._cell_signal)
            self._cell_ids[key] = cell
            self._cell_signal.append(signal)
            self._cell_node.append(node)
            self._cell_part.append(part)
            self._cell_reduce.append(reduce_code)
            self._cell_mean_of.append(-1)
            self._cell_first_series.append(series)
            self._cell_components.append(0)
        return cell

    def _replace_all(self) -> None:
        """Give every known series its place again after identity learnt better names.

        Cells of wrong names stay empty; they are few, as names are learnt at the start.
        """
        before = self.component_cell[self.series_component]
        self._component_ids.clear()
        self._component_cell = GrowingArray(np.int32)
        self._component_copies = GrowingArray(np.int32)
        self._cell_components.view[:] = 0
        for series, key in enumerate(self.keys):
            labels = _decode(key)
            placed = self._placer.place(labels)
            if isinstance(placed, Placement):
                self._place(series, self._catalog.by_name[labels["__name__"]], placed)
            else:
                self._place_nowhere(series)
        after = self.component_cell[self.series_component]
        moved = np.flatnonzero((before >= 0) & (after >= 0) & (before != after))
        moves: dict[int, int] = dict(zip(after[moved].tolist(), before[moved].tolist(), strict=True))
        means = [(int(self.cell_mean_of[new]), int(self.cell_mean_of[old])) for new, old in moves.items()]
        moves.update((new, old) for new, old in means if new >= 0 <= old and new != old)
        earlier: dict[int, int] = self._moves or {}
        self._moves = earlier | {new: earlier.get(old, old) for new, old in moves.items()}
        self.version += 1

    def _place_nowhere(self, series: int) -> None:
        component = len(self._component_cell)
        self._component_cell.append(-1)
        self._component_copies.append(1)
        self._series_component[series] = component

    @staticmethod
    def _number(ids: dict[str, int], names: list[str], name: str) -> int:
        number = ids.get(name)
        if number is None:
            number = len(names)
            ids[name] = number
            names.append(name)
        return number

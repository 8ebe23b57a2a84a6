"""Which slot a GPU sits in, whatever index its exporter counts it under at the moment.

Indexes follow the order of enumeration and close up when a GPU is lost. The bus address stays,
and the UUID tells which GPU another exporter means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

MAX_GPUS = 200_000

SLIP_SHARE = 0.25
"""A GPU's index is a damaged label when it has less than this share of the label sets of its usual one."""

Key = tuple[str | None, ...]


class GpuSlots:
    """Learns slots from DCGM's labels and finds them again by bus address or UUID.

    Parameters
    ----------
    node_of
        Gives the node of the identity labels of a label set.
    """

    def __init__(self, node_of: Callable[[Key], str | None]) -> None:
        self._node_of = node_of
        self._records: dict[tuple[Key, str, str, str], int] = {}
        self._by_bus: dict[tuple[str, str], str] = {}
        self._by_uuid: dict[tuple[str, str], str] = {}
        self._uuids: dict[tuple[str, str], dict[str, None]] = {}
        self._asked: dict[tuple[str, str, str, str], str] = {}
        self._is_dirty = False
        self._epoch = 0

    def learn(self, key: Key, labels: Mapping[str, str]) -> None:
        """Take in a DCGM label set: UUID, index and, where there is one, bus address.

        MIG slices carry their GPU's labels and teach the same.
        """
        uuid, gpu = labels.get("UUID", ""), labels.get("gpu", "")
        if not uuid or not gpu:
            return
        record = (key, uuid, labels.get("pci_bus_id", "").lower(), gpu)
        if record in self._records or len(self._records) < MAX_GPUS:
            self._records[record] = self._records.get(record, 0) + 1
            self._is_dirty = True

    def slot_of(self, node: str, labels: Mapping[str, str], index: str) -> str:
        """Return the slot of a GPU series.

        Parameters
        ----------
        node
            Its node.
        labels
            Its labels: DCGM's ``pci_bus_id`` and ``UUID``, or all-smi's ``gpu_uuid`` or ``uuid``.
        index
            Index by its own exporter, which holds when nothing better is known.
        """
        bus = labels.get("pci_bus_id", "").lower()
        uuid = labels.get("UUID") or labels.get("gpu_uuid") or labels.get("uuid") or ""
        if not bus and not uuid:
            return index
        self._rebuild()
        slot = self._lookup(node, bus, uuid) or index
        if len(self._asked) < MAX_GPUS:
            self._asked[node, bus, uuid, index] = slot
        return slot

    def notes(self) -> list[str]:
        """Return a sentence for each slot in which the GPU was changed."""
        self._rebuild()
        return [
            f"the GPU in slot {slot} of {node} was changed: {len(uuids)} UUIDs were seen"
            for (node, slot), uuids in sorted(self._uuids.items())
            if len(uuids) > 1
        ]

    def take_changed(self, epoch: int) -> bool:
        """Tell whether an answer given before would now be another one.

        Parameters
        ----------
        epoch
            State of the knowledge about nodes; node names may have changed with it.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._is_dirty = bool(self._records)
        if not self._is_dirty:
            return False
        self._rebuild()
        changed = False
        for (node, bus, uuid, index), slot in self._asked.items():
            now = self._lookup(node, bus, uuid) or index
            if now != slot:
                self._asked[node, bus, uuid, index] = now
                changed = True
        return changed

    def _lookup(self, node: str, bus: str, uuid: str) -> str | None:
        return self._by_bus.get((node, bus)) or self._by_uuid.get((node, uuid))

    def _rebuild(self) -> None:
        if not self._is_dirty:
            return
        self._is_dirty = False
        by_bus: dict[tuple[str, str], str] = {}
        by_uuid: dict[tuple[str, str], str] = {}
        uuids: dict[tuple[str, str], dict[str, None]] = {}
        placed = self._believed()
        for node, _, bus, gpu in placed:
            if bus:
                # Indexes only close up when a GPU is lost, so the highest one is the whole machine's.
                by_bus[node, bus] = max(by_bus.get((node, bus), gpu), gpu, key=_order)
        for node, uuid, bus, gpu in placed:
            slot = by_bus[node, bus] if bus else gpu
            by_uuid[node, uuid] = slot
            uuids.setdefault((node, slot), {})[uuid] = None
        self._by_bus, self._by_uuid, self._uuids = by_bus, by_uuid, uuids

    def _believed(self) -> list[tuple[str, str, str, str]]:
        """Return node, UUID, bus address and index of what was told by more than a slip."""
        told: Counter[tuple[str, str, str]] = Counter()
        placed = []
        for (key, uuid, bus, gpu), n in self._records.items():
            if (node := self._node_of(key)) is not None:
                told[node, bus or uuid, gpu] += n
                placed.append((node, uuid, bus, gpu))
        most: dict[tuple[str, str], int] = {}
        for (node, which, _), n in told.items():
            most[node, which] = max(most.get((node, which), 0), n)
        return [
            (node, uuid, bus, gpu)
            for node, uuid, bus, gpu in placed
            if told[node, bus or uuid, gpu] >= SLIP_SHARE * most[node, bus or uuid]
        ]


def _order(index: str) -> tuple[int, str]:
    return (int(index), "") if index.isdecimal() and len(index) < 6 else (-1, index)

"""What is odd about the names of nodes and parts."""

from __future__ import annotations

from detector.outcome import DataQuality
from grouping.identity import NodeIdentity
from grouping.index import SeriesIndex
from grouping.placement import Placer


class NamingNotes:
    """Findings about names, worked out anew only after new label objects: nothing else teaches names.

    Parameters
    ----------
    index, identity, placer
        Where label objects are numbered, read and placed.
    """

    def __init__(self, index: SeriesIndex, identity: NodeIdentity, placer: Placer) -> None:
        self._index = index
        self._identity = identity
        self._placer = placer
        self._known = (-1, -1)
        self._conflicts: list[str] = []
        self._changed: list[str] = []

    def findings(self, at: float) -> list[DataQuality]:
        """Return what is odd at `at`, epoch seconds: conflicting names, parts that were changed."""
        known = (self._index.version, len(self._index.codes))
        if self._known != known:
            self._known = known
            self._conflicts = [str(conflict) for conflict in self._identity.conflicts()]
            self._changed = list(self._placer.notes())
        found = [DataQuality("identity_conflict", "", at, text) for text in self._conflicts]
        found.extend(DataQuality("part_changed", "", at, text) for text in self._changed)
        return found

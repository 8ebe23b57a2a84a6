"""What operators have said, read-only: for delivery and for answers."""

from __future__ import annotations

from typing import Protocol

from detector.control.model import Mute

__all__ = ["Mute", "Muted", "NothingMuted"]


class Muted(Protocol):
    """Says what shall call nobody; every method is cheap, never waits and is safe from any thread."""

    def mute_of(self, node: str, pool: str, at: float) -> Mute | None:
        """Return the mute that holds for a node, None when none does.

        Mutes of a metric are not meant: such a metric is no evidence, so no suspect rests on it.

        Parameters
        ----------
        node, pool
            Names; `pool` is empty when the node is in none.
        at
            Epoch seconds.

        Returns
        -------
        Mute or None
            The one that holds longest.
        """

    def is_acknowledged(self, incident_id: str) -> bool:
        """Tell whether somebody has said that an incident is a fault that is being looked after."""

    def is_dismissed(self, incident_id: str) -> bool:
        """Tell whether somebody has said that an incident is a false alarm."""


class NothingMuted:
    """Nobody has said anything."""

    def mute_of(self, node: str, pool: str, at: float) -> Mute | None:
        """Return None."""
        return None

    def is_acknowledged(self, incident_id: str) -> bool:
        """Return False."""
        return False

    def is_dismissed(self, incident_id: str) -> bool:
        """Return False."""
        return False

"""What the desk needs of others: a place to keep things, and the running detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from detector.control.model import AuditEntry, Feedback, Mute, Repair
from detector.outcome import Evidence, Incident, Transition


class Ledger(Protocol):
    """Keeps what operators said; what a method has written is on disk when it returns.

    Every method raises `StoreError` when the disk refuses.
    """

    def incident(self, incident_id: str) -> Incident | None:
        """Return a stored incident."""

    def mutes(self, over_after: float | None = None, *, limit: int = ..., offset: int = ...) -> list[Mute]:
        """Return mutes in order of their start, those left out that were over by `over_after`."""

    def feedback(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        limit: int = ...,
        offset: int = ...,
    ) -> list[Feedback]:
        """Return labels, newest incident first."""

    def count_feedback(self, *, since: float | None = None, until: float | None = None) -> int:
        """Return how many labels there are."""

    def audit(self, *, limit: int, offset: int) -> list[AuditEntry]:
        """Return the trail, newest first."""

    def count_audit(self) -> int:
        """Return the length of the trail."""

    def count_mutes(self) -> int:
        """Return how many mutes are kept."""

    def put_entry(self, entry: AuditEntry) -> None:
        """Keep a line of the trail about what changed nothing else."""

    def put_mute(self, mute: Mute, entry: AuditEntry) -> None:
        """Keep a mute."""

    def put_feedback(self, label: Feedback, entry: AuditEntry) -> None:
        """Keep a label in place of an earlier one of the same incident."""

    def put_repair(
        self,
        repair: Repair,
        entry: AuditEntry,
        incidents: Sequence[Incident],
        transitions: Sequence[Transition],
    ) -> None:
        """Keep that a node was repaired, and that its incident is cleared."""


Keep = Callable[[Repair, Sequence[Incident], Sequence[Transition]], None]


class Detection(Protocol):
    """The running detection; safe from any thread."""

    def evidence_of(self, node: str) -> Sequence[Evidence]:
        """Return the newest evidence against a node, empty without any."""

    def knows(self, *, node: str = "", pool: str = "", metric: str = "") -> bool:
        """Tell whether these exist; empty ones are not asked for. True when nothing was evaluated yet."""

    def repaired(self, node: str, at: float, reason: str, keep: Keep) -> Incident | None:
        """Clear the node's incident and forget what was learnt against it, between two evaluations.

        Parameters
        ----------
        node
            Node name.
        at
            Epoch seconds.
        reason
            Of the transition.
        keep
            Called with what is to be stored; when it raises, nothing is changed.

        Returns
        -------
        Incident or None
            The incident that was cleared.

        Raises
        ------
        BusyError
            When an evaluation is under way for too long.
        """

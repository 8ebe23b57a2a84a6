"""The one interface of a store, whatever keeps it: SQLite in a file, or a PostgreSQL server.

SQL is written once in the dialect that both understand, with numbered placeholders (``?1``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from detector.outcome import GroupEvent, Incident, Outcome, Transition


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Which incidents are asked for; None asks for all.

    Parameters
    ----------
    node
        Node name.
    state
        ``pending``, ``suspect``, ``cleared`` or ``open`` (pending and suspect).
    since, until
        Epoch seconds: incidents that were open at some time between.
    was_suspect
        True leaves out first signs that never became a suspect.
    """

    node: str | None = None
    state: str | None = None
    since: float | None = None
    until: float | None = None
    was_suspect: bool = False


class Rows(Protocol):
    """What a query found."""

    def fetchone(self) -> Any:
        """Return the next row, None when there is no more."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""


class Statements(Protocol):
    """An open transaction."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Rows:
        """Run one statement."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for each row."""


class Tables(Protocol):
    """Short transactions of others than the evaluation, such as delivery; safe from any thread.

    Both raise `StoreError` when the store cannot be read or written, and when another evaluator has
    taken over.
    """

    @property
    def name(self) -> str:
        """Where it is kept, without secrets."""

    def reading(self) -> AbstractContextManager[Statements]:
        """Open a transaction that changes nothing."""

    def writing(self) -> AbstractContextManager[Statements]:
        """Open a transaction: all of it is on disk when it is left, or nothing."""


class Reading(Protocol):
    """Reads a store; safe from any thread. Every method raises `StoreError` when it cannot be read."""

    @property
    def name(self) -> str:
        """Where it is kept, without secrets."""

    def incidents(
        self, wanted: IncidentFilter | None = None, *, limit: int = 100, offset: int = 0
    ) -> list[Incident]:
        """Return incidents, newest first."""

    def count_incidents(self, wanted: IncidentFilter | None = None) -> int:
        """Return how many incidents match."""

    def count_raised(self, since: float) -> int:
        """Return how many nodes became suspects at or after `since`, epoch seconds."""

    def incident(self, incident_id: str) -> Incident | None:
        """Return one incident, None when there is no such."""

    def open_incidents(self) -> list[Incident]:
        """Return all pending and suspect incidents, oldest first."""

    def transitions(
        self, *, incident_id: str | None = None, since: float | None = None, limit: int = 100, offset: int = 0
    ) -> list[Transition]:
        """Return transitions in order of time."""

    def group_events(self, *, limit: int = 100, offset: int = 0) -> list[GroupEvent]:
        """Return group events, newest first."""

    def last_evaluation(self) -> float | None:
        """Return the time of the newest stored evaluation, None when there is none."""

    def snapshot(self) -> bytes | None:
        """Return the newest saved learnt state."""

    def rows(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Return what a query of other parts of the store finds."""


class Keeping(Reading, Tables, Protocol):
    """The one writer of a store, and a reader of it."""

    @property
    def problem(self) -> str:
        """Why the last save did not reach the disk, empty when it did."""

    @property
    def n_pending(self) -> int:
        """Number of incidents, transitions and group events that wait to be written."""

    def save(self, outcome: Outcome, snapshot: bytes | None = None) -> None:
        """Write one evaluation, and all that is pending, in one transaction; see `StoreWriter.save`."""

    def apply(
        self,
        write: Callable[[Statements], None],
        incidents: Sequence[Incident] = (),
        transitions: Sequence[Transition] = (),
    ) -> None:
        """Make a small change between evaluations in one transaction; see `StoreWriter.apply`."""

    def close(self) -> None:
        """Write what is pending if possible, let others have the store."""


@runtime_checkable
class Shared(Keeping, Protocol):
    """A store that others may take over and read while it is written."""

    @property
    def is_lost(self) -> bool:
        """True once another evaluator has taken over."""

    def when_lost(self, call: Callable[[], None]) -> None:
        """Have something called once, from any thread, when another evaluator has taken over."""

"""Reading a store: queries that SQLite and PostgreSQL both understand."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec

from detector.outcome import GroupEvent, Incident, Transition
from detector.store_contract import IncidentFilter, Statements

log = logging.getLogger("oddnode.detector.store")

MAX_ROWS = 10_000

T = TypeVar("T")
_incident = msgspec.json.Decoder(Incident)
_group_event = msgspec.json.Decoder(GroupEvent)


class SqlReader(ABC):
    """Reads a store; safe from any thread.

    Parameters
    ----------
    name
        Where it is kept, for messages; without secrets.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """Where it is kept, without secrets."""
        return self._name

    @abstractmethod
    def reading(self) -> AbstractContextManager[Statements]:
        """Open a transaction that changes nothing.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """

    def incidents(
        self, wanted: IncidentFilter | None = None, *, limit: int = 100, offset: int = 0
    ) -> list[Incident]:
        """Return incidents, newest first.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        where, values = _where(wanted or IncidentFilter())
        n = len(values)
        sql = (
            f"SELECT id, body FROM incidents{where} "  # noqa: S608
            f"ORDER BY active_at DESC, id LIMIT ?{n + 1} OFFSET ?{n + 2}"
        )
        return self._decoded(sql, (*values, min(limit, MAX_ROWS), offset), _incident)

    def count_incidents(self, wanted: IncidentFilter | None = None) -> int:
        """Return how many incidents match."""
        where, values = _where(wanted or IncidentFilter())
        return int(self.rows(f"SELECT count(*) FROM incidents{where}", values)[0][0])  # noqa: S608

    def count_raised(self, since: float) -> int:
        """Return how many nodes became suspects at or after `since`, epoch seconds.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        return int(self.rows("SELECT count(*) FROM incidents WHERE suspect_at >= ?1", (since,))[0][0])

    def incident(self, incident_id: str) -> Incident | None:
        """Return one incident, None when there is no such."""
        sql = "SELECT id, body FROM incidents WHERE id = ?1"
        found = self._decoded(sql, (incident_id,), _incident)
        return found[0] if found else None

    def open_incidents(self) -> list[Incident]:
        """Return all pending and suspect incidents, oldest first."""
        sql = "SELECT id, body FROM incidents WHERE state <> 'cleared' ORDER BY active_at, id LIMIT ?1"
        return self._decoded(sql, (MAX_ROWS,), _incident)

    def transitions(
        self, *, incident_id: str | None = None, since: float | None = None, limit: int = 100, offset: int = 0
    ) -> list[Transition]:
        """Return transitions in order of time."""
        sql = (
            "SELECT incident_id, node, at, before, after, reason FROM transitions "
            "WHERE (CAST(?1 AS text) IS NULL OR incident_id = ?1) "
            "AND (CAST(?2 AS double precision) IS NULL OR at >= ?2) "
            # by the alphabet `before` is in the order of a life: clear, pending, suspect
            "ORDER BY at, incident_id, before LIMIT ?3 OFFSET ?4"
        )
        found = self.rows(sql, (incident_id, since, min(limit, MAX_ROWS), offset))
        return [Transition(*row) for row in found]

    def group_events(self, *, limit: int = 100, offset: int = 0) -> list[GroupEvent]:
        """Return group events, newest first."""
        sql = "SELECT id, body FROM group_events ORDER BY started_at DESC, id LIMIT ?1 OFFSET ?2"
        return self._decoded(sql, (min(limit, MAX_ROWS), offset), _group_event)

    def last_evaluation(self) -> float | None:
        """Return the time of the newest stored evaluation, None when there is none."""
        found = self.rows("SELECT value FROM meta WHERE name = 'last_evaluation'", ())
        return float(found[0][0]) if found else None

    def snapshot(self) -> bytes | None:
        """Return the newest saved learnt state."""
        found = self.rows("SELECT body FROM state WHERE name = 'pipeline'", ())
        return bytes(found[0][0]) if found else None

    def rows(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Return what a query of other parts of the store finds.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        with self.reading() as transaction:
            return transaction.execute(sql, values).fetchall()

    def _decoded(self, sql: str, values: tuple[object, ...], decoder: msgspec.json.Decoder[T]) -> list[T]:
        found: list[T] = []
        for name, body in self.rows(sql, values):
            try:
                found.append(decoder.decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error("store path=%s unreadable=%r problem=%s", self.name, name, error)  # noqa: TRY400
        return found


def _where(wanted: IncidentFilter) -> tuple[str, tuple[object, ...]]:
    parts: list[str] = []
    values: list[object] = []

    def add(part: str, value: object) -> None:
        values.append(value)
        parts.append(part.replace("?", f"?{len(values)}"))

    if wanted.node is not None:
        add("node = ?", wanted.node)
    if wanted.state == "open":
        parts.append("state <> 'cleared'")
    elif wanted.state is not None:
        add("state = ?", wanted.state)
    if wanted.since is not None:
        add("(cleared_at IS NULL OR cleared_at >= ?)", wanted.since)
    if wanted.until is not None:
        add("active_at <= ?", wanted.until)
    if wanted.was_suspect:
        parts.append("suspect_at IS NOT NULL")
    return (" WHERE " + " AND ".join(parts) if parts else ""), tuple(values)

"""Reading the store: short read-only transactions that never hold up the writer."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from detector.errors import StoreError
from detector.outcome import GroupEvent, Incident, Transition

log = logging.getLogger("oddnode.detector.store")

READ_TIMEOUT_S = 2.0
MAX_ROWS = 10_000
CLEARED = "cleared"

T = TypeVar("T")
_incident = msgspec.json.Decoder(Incident)
_group_event = msgspec.json.Decoder(GroupEvent)


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


class StoreReader:
    """Reads a store file; safe from any thread.

    Parameters
    ----------
    path
        SQLite file that a `Store` writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

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
        sql = f"SELECT id, body FROM incidents{where} ORDER BY active_at DESC, id LIMIT ? OFFSET ?"  # noqa: S608
        return self._decoded(sql, (*values, min(limit, MAX_ROWS), offset), _incident)

    def count_incidents(self, wanted: IncidentFilter | None = None) -> int:
        """Return how many incidents match."""
        where, values = _where(wanted or IncidentFilter())
        with self._reading() as connection:
            row = connection.execute(f"SELECT count(*) FROM incidents{where}", values).fetchone()  # noqa: S608
        return int(row[0])

    def count_raised(self, since: float) -> int:
        """Return how many nodes became suspects at or after `since`, epoch seconds.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        sql = "SELECT count(*) FROM incidents WHERE suspect_at >= ?"
        with self._reading() as connection:
            row = connection.execute(sql, (since,)).fetchone()
        return int(row[0])

    def incident(self, incident_id: str) -> Incident | None:
        """Return one incident, None when there is no such."""
        sql = "SELECT id, body FROM incidents WHERE id = ?"
        found = self._decoded(sql, (incident_id,), _incident)
        return found[0] if found else None

    def open_incidents(self) -> list[Incident]:
        """Return all pending and suspect incidents, oldest first."""
        sql = "SELECT id, body FROM incidents WHERE state <> 'cleared' ORDER BY active_at, id LIMIT ?"
        return self._decoded(sql, (MAX_ROWS,), _incident)

    def transitions(
        self, *, incident_id: str | None = None, since: float | None = None, limit: int = 100, offset: int = 0
    ) -> list[Transition]:
        """Return transitions in order of time."""
        sql = (
            "SELECT incident_id, node, at, before, after, reason FROM transitions "
            "WHERE (?1 IS NULL OR incident_id = ?1) AND (?2 IS NULL OR at >= ?2) "
            "ORDER BY at, incident_id LIMIT ?3 OFFSET ?4"
        )
        with self._reading() as connection:
            rows = connection.execute(sql, (incident_id, since, min(limit, MAX_ROWS), offset)).fetchall()
        return [Transition(*row) for row in rows]

    def group_events(self, *, limit: int = 100, offset: int = 0) -> list[GroupEvent]:
        """Return group events, newest first."""
        sql = "SELECT id, body FROM group_events ORDER BY started_at DESC, id LIMIT ? OFFSET ?"
        return self._decoded(sql, (min(limit, MAX_ROWS), offset), _group_event)

    def last_evaluation(self) -> float | None:
        """Return the time of the newest stored evaluation, None when there is none."""
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = 'last_evaluation'").fetchone()
        return None if row is None else float(row[0])

    def snapshot(self) -> bytes | None:
        """Return the newest saved learnt state."""
        with self._reading() as connection:
            row = connection.execute("SELECT body FROM state WHERE name = 'pipeline'").fetchone()
        return None if row is None else bytes(row[0])

    def rows(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Return what a query of other parts of the store finds.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        with self._reading() as connection:
            return connection.execute(sql, values).fetchall()

    def _decoded(self, sql: str, values: tuple[object, ...], decoder: msgspec.json.Decoder[T]) -> list[T]:
        with self._reading() as connection:
            rows = connection.execute(sql, values).fetchall()
        found: list[T] = []
        for name, body in rows:
            try:
                found.append(decoder.decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error("store path=%s unreadable=%r problem=%s", self.path, name, error)  # noqa: TRY400
        return found

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(
                sqlite3.connect(uri, uri=True, timeout=READ_TIMEOUT_S, isolation_level=None)
            ) as opened:
                yield opened
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be read: {error}") from error


def _where(wanted: IncidentFilter) -> tuple[str, tuple[object, ...]]:
    parts: list[str] = []
    values: list[object] = []
    if wanted.node is not None:
        parts.append("node = ?")
        values.append(wanted.node)
    if wanted.state == "open":
        parts.append("state <> 'cleared'")
    elif wanted.state is not None:
        parts.append("state = ?")
        values.append(wanted.state)
    if wanted.since is not None:
        parts.append("(cleared_at IS NULL OR cleared_at >= ?)")
        values.append(wanted.since)
    if wanted.until is not None:
        parts.append("active_at <= ?")
        values.append(wanted.until)
    if wanted.was_suspect:
        parts.append("suspect_at IS NOT NULL")
    return (" WHERE " + " AND ".join(parts) if parts else ""), tuple(values)

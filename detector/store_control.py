"""Mutes, feedback, repairs and the audit trail in the store; every change goes with its line of the trail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from detector.control.model import Action, AuditEntry, Feedback, Mute, Repair
from detector.outcome import Incident, Transition
from detector.store_contract import Keeping, Statements

MAX_LOADED = 10_000
"""Newest labels that are kept at hand."""

_encode = msgspec.json.Encoder().encode
_mute = msgspec.json.Decoder(Mute)
_feedback = msgspec.json.Decoder(Feedback)


def end_feedback(connection: Statements, incidents: Iterable[Incident]) -> None:
    """Give labels of incidents that are cleared their end."""
    connection.executemany(
        "UPDATE feedback SET ended_at = ?1 WHERE incident_id = ?2 AND ended_at IS NULL",
        [(i.cleared_at, i.id) for i in incidents if i.cleared_at is not None],
    )


def prune_mutes(connection: Statements, before: float) -> None:
    """Delete mutes that were over before a time, epoch seconds."""
    connection.execute("DELETE FROM mutes WHERE until < ?1 OR ended_at < ?1", (before,))


class ControlStore:
    """What operators said, in a store.

    Parameters
    ----------
    store
        Its writer is used, so that a change waits for no evaluation and no evaluation is torn by it.
    """

    def __init__(self, store: Keeping) -> None:
        self._store = store

    def incident(self, incident_id: str) -> Incident | None:
        """Return a stored incident, None when there is no such."""
        return self._store.incident(incident_id)

    def mutes(
        self, over_after: float | None = None, *, limit: int = MAX_LOADED, offset: int = 0
    ) -> list[Mute]:
        """Return mutes in order of their start.

        Parameters
        ----------
        over_after
            Leave out those that were over by then, epoch seconds; None for all.
        limit, offset
            How many, and how many to pass over.
        """
        sql = (
            "SELECT body FROM mutes WHERE "
            "CAST(?1 AS double precision) IS NULL OR (ended_at IS NULL AND until > ?1) "
            "ORDER BY start, id LIMIT ?2 OFFSET ?3"
        )
        rows = self._store.rows(sql, (over_after, limit, offset))
        return [_mute.decode(body) for (body,) in rows]

    def feedback(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        limit: int = MAX_LOADED,
        offset: int = 0,
    ) -> list[Feedback]:
        """Return labels, newest incident first, of incidents that were open between two times."""
        sql = (
            "SELECT body, ended_at FROM feedback WHERE "
            "(CAST(?1 AS double precision) IS NULL OR ended_at IS NULL OR ended_at >= ?1) "
            "AND (CAST(?2 AS double precision) IS NULL OR started_at <= ?2) "
            "ORDER BY started_at DESC, incident_id LIMIT ?3 OFFSET ?4"
        )
        rows = self._store.rows(sql, (since, until, limit, offset))
        return [msgspec.structs.replace(_feedback.decode(body), end=ended) for body, ended in rows]

    def count_feedback(self, *, since: float | None = None, until: float | None = None) -> int:
        """Return how many labels there are of incidents that were open between two times."""
        sql = (
            "SELECT count(*) FROM feedback WHERE "
            "(CAST(?1 AS double precision) IS NULL OR ended_at IS NULL OR ended_at >= ?1) "
            "AND (CAST(?2 AS double precision) IS NULL OR started_at <= ?2)"
        )
        return int(self._store.rows(sql, (since, until))[0][0])

    def audit(self, *, limit: int, offset: int) -> list[AuditEntry]:
        """Return the trail, newest first."""
        sql = (
            "SELECT number, at, by, action, subject, note FROM audit ORDER BY number DESC LIMIT ?1 OFFSET ?2"
        )
        return [
            AuditEntry(number=n, at=at, by=by, action=Action(action), subject=subject, note=note)
            for n, at, by, action, subject, note in self._store.rows(sql, (limit, offset))
        ]

    def count_audit(self) -> int:
        """Return the length of the trail."""
        return int(self._store.rows("SELECT count(*) FROM audit", ())[0][0])

    def count_mutes(self) -> int:
        """Return how many mutes are kept, those that are over included."""
        return int(self._store.rows("SELECT count(*) FROM mutes", ())[0][0])

    def repairs(self) -> list[Repair]:
        """Return the newest repair of each node."""
        rows = self._store.rows("SELECT node, at, evaluated_at FROM repairs", ())
        return [Repair(node=node, at=at, evaluated_at=evaluated_at) for node, at, evaluated_at in rows]

    def snapshot_at(self) -> float | None:
        """Return the evaluation time of the saved learnt state, None when there is none."""
        rows = self._store.rows("SELECT at FROM state WHERE name = 'pipeline'", ())
        return float(rows[0][0]) if rows else None

    def put_entry(self, entry: AuditEntry) -> None:
        """Keep a line of the trail about what changed nothing else."""

        def write(connection: Statements) -> None:
            _add(connection, entry)

        self._store.apply(write)

    def put_mute(self, mute: Mute, entry: AuditEntry) -> None:
        """Keep a new or a changed mute."""

        def write(connection: Statements) -> None:
            connection.execute(
                "INSERT INTO mutes (id, start, until, ended_at, body) VALUES (?1,?2,?3,?4,?5) "
                "ON CONFLICT (id) DO UPDATE SET start=excluded.start, until=excluded.until, "
                "ended_at=excluded.ended_at, body=excluded.body",
                (mute.id, mute.start, mute.until, mute.ended_at, _encode(mute)),
            )
            _add(connection, entry)

        self._store.apply(write)

    def put_feedback(self, label: Feedback, entry: AuditEntry) -> None:
        """Keep a label in place of an earlier one of the same incident."""

        def write(connection: Statements) -> None:
            connection.execute(
                "INSERT INTO feedback (incident_id, node, verdict, at, started_at, ended_at, body) "
                "VALUES (?1,?2,?3,?4,?5,?6,?7) ON CONFLICT (incident_id) DO UPDATE SET "
                "node=excluded.node, verdict=excluded.verdict, at=excluded.at, "
                "started_at=excluded.started_at, ended_at=excluded.ended_at, body=excluded.body",
                (
                    label.incident_id,
                    label.node,
                    label.verdict.value,
                    label.at,
                    label.start,
                    label.end,
                    _encode(label),
                ),
            )
            # the incident may have been cleared since it was looked at
            connection.execute(
                "UPDATE feedback SET ended_at = (SELECT cleared_at FROM incidents WHERE id = ?1) "
                "WHERE incident_id = ?1 AND ended_at IS NULL",
                (label.incident_id,),
            )
            _add(connection, entry)

        self._store.apply(write)

    def put_repair(
        self,
        repair: Repair,
        entry: AuditEntry,
        incidents: Sequence[Incident],
        transitions: Sequence[Transition],
    ) -> None:
        """Keep that a node was repaired, and that its incident is cleared."""

        def write(connection: Statements) -> None:
            connection.execute(
                "INSERT INTO repairs (node, at, evaluated_at) VALUES (?1,?2,?3) ON CONFLICT (node) "
                "DO UPDATE SET at=excluded.at, evaluated_at=excluded.evaluated_at",
                (repair.node, repair.at, repair.evaluated_at),
            )
            end_feedback(connection, incidents)
            _add(connection, entry)

        self._store.apply(write, incidents, transitions)


def _add(connection: Statements, entry: AuditEntry) -> None:
    connection.execute(
        "INSERT INTO audit (at, by, action, subject, note) VALUES (?1,?2,?3,?4,?5)",
        (entry.at, entry.by, entry.action.value, entry.subject, entry.note),
    )

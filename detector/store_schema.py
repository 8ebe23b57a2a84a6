"""Tables of the store, as numbered steps that are never changed once released."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from detector.errors import StoreError

APPLICATION_ID = 0x0DD0DE
"""Marks a SQLite file as ours, so that no other program's file is ever written to."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE incidents (
        id TEXT PRIMARY KEY,
        node TEXT NOT NULL,
        state TEXT NOT NULL,
        active_at REAL NOT NULL,
        suspect_at REAL,
        cleared_at REAL,
        peak_score REAL NOT NULL,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX incidents_by_time ON incidents (active_at);
    CREATE INDEX incidents_by_node ON incidents (node, active_at);
    CREATE INDEX incidents_open ON incidents (state) WHERE state <> 'cleared';
    CREATE TABLE transitions (
        incident_id TEXT NOT NULL,
        at REAL NOT NULL,
        before TEXT NOT NULL,
        after TEXT NOT NULL,
        node TEXT NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (incident_id, at, before, after)
    ) WITHOUT ROWID;
    CREATE INDEX transitions_by_time ON transitions (at);
    CREATE TABLE group_events (
        id TEXT PRIMARY KEY,
        pool TEXT NOT NULL,
        started_at REAL NOT NULL,
        ended_at REAL,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX group_events_by_time ON group_events (started_at);
    CREATE TABLE state (name TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
    CREATE TABLE meta (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
    """,
    """
    CREATE TABLE mutes (
        id TEXT PRIMARY KEY,
        start REAL NOT NULL,
        until REAL NOT NULL,
        ended_at REAL,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX mutes_by_time ON mutes (start);
    CREATE TABLE feedback (
        incident_id TEXT PRIMARY KEY,
        node TEXT NOT NULL,
        verdict TEXT NOT NULL,
        at REAL NOT NULL,
        started_at REAL NOT NULL,
        ended_at REAL,
        body BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX feedback_by_time ON feedback (started_at);
    CREATE TABLE repairs (node TEXT PRIMARY KEY, at REAL NOT NULL, evaluated_at REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE audit (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        by TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        note TEXT NOT NULL
    );
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
    CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
    """,
    # of delivery: what is out, what is to be told, who was told up to where
    """
    CREATE TABLE told (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        made_at REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE told_up_to (receiver TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
    """,
)
VERSION = len(MIGRATIONS)


def check_owner(connection: sqlite3.Connection, path: Path) -> None:
    """Make sure that the file is ours, or empty, and of a known version.

    Raises
    ------
    StoreError
        When the file belongs to another program or to a newer version.
    """
    version = _pragma(connection, "user_version")
    owner = _pragma(connection, "application_id")
    n_tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if owner != APPLICATION_ID and (n_tables or owner):
        raise StoreError(f"{path}: is a database of another program and is left alone")
    if version > VERSION:
        raise StoreError(
            f"{path}: was written by a newer version (schema {version}, this one knows up to {VERSION})"
        )


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a store to the newest schema; each step is all or nothing."""
    version = _pragma(connection, "user_version")
    for number in range(version, VERSION):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _statements(MIGRATIONS[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    """Yield whole statements: the body of a trigger holds semicolons of its own."""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if statement.strip(" \n;") and sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

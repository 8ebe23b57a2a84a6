"""Operators' words in the store file, and files of the version before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from detector.control.model import Action, AuditEntry, Mute
from detector.store import Store
from detector.store_control import ControlStore
from detector.store_schema import APPLICATION_ID, MIGRATIONS, _statements
from tests.test_store import T0, incident

BEFORE = """
CREATE TABLE incidents (id TEXT PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL, active_at REAL NOT NULL,
    suspect_at REAL, cleared_at REAL, peak_score REAL NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX incidents_by_time ON incidents (active_at);
CREATE INDEX incidents_by_node ON incidents (node, active_at);
CREATE INDEX incidents_open ON incidents (state) WHERE state <> 'cleared';
CREATE TABLE transitions (incident_id TEXT NOT NULL, at REAL NOT NULL, before TEXT NOT NULL,
    after TEXT NOT NULL, node TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (incident_id, at, before, after)) WITHOUT ROWID;
CREATE INDEX transitions_by_time ON transitions (at);
CREATE TABLE group_events (id TEXT PRIMARY KEY, pool TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL,
    body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX group_events_by_time ON group_events (started_at);
CREATE TABLE state (name TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""
"""As version 0.1.0 made it, before operators had a word."""


def entry(action: Action = Action.MUTE) -> AuditEntry:
    return AuditEntry(at=T0, by="kim", action=action, subject="x")


def mute(name: str, until: float = T0 + 60, ended_at: float | None = None) -> Mute:
    return Mute(id=name, node="n", start=T0, until=until, reason="r", by="kim", made_at=T0, ended_at=ended_at)


def test_a_store_of_the_version_before_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    old = incident("gpu068", active_at=T0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(BEFORE)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO incidents VALUES (?,?,?,?,?,?,?,?)",
            (old.id, old.node, old.state, old.active_at, old.suspect_at, None, 1.0, msgspec.json.encode(old)),
        )
        connection.execute("INSERT INTO state VALUES ('pipeline', ?, ?)", (T0, b"learnt"))
        connection.execute("INSERT INTO meta VALUES ('last_evaluation', ?)", (T0,))
    store = Store(path)
    kept = ControlStore(store)
    assert store.incident(old.id) == old
    assert store.snapshot() == b"learnt"
    assert (kept.snapshot_at(), store.last_evaluation()) == (T0, T0)
    assert (kept.mutes(), kept.feedback(), kept.repairs(), kept.count_audit()) == ([], [], [], 0)
    kept.put_mute(mute("m-1"), entry())
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        tables = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY 1, 2"
        migrated = connection.execute(tables).fetchall()
    Store(tmp_path / "new.db").close()
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        assert connection.execute(tables).fetchall() == migrated
    again = Store(path)
    assert [m.id for m in ControlStore(again).mutes()] == ["m-1"]
    again.close()


def test_statements_with_semicolons_inside_are_whole() -> None:
    script = "CREATE TABLE a (x); CREATE TRIGGER t BEFORE UPDATE ON a BEGIN SELECT 1; SELECT 2; END;\n ;\n"
    assert [" ".join(s.split()) for s in _statements(script)] == [
        "CREATE TABLE a (x);",
        "CREATE TRIGGER t BEFORE UPDATE ON a BEGIN SELECT 1; SELECT 2; END;",
    ]

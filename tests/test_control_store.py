"""Operators' words in the store file, and the file of the first version."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

from detector.control.model import Action, AuditEntry, Mute
from detector.outcome import Layer
from detector.store import Store
from detector.store_control import ControlStore
from detector.store_schema import MIGRATIONS, _statements
from tests.test_store import T0

FIRST = Path(__file__).parent / "data" / "store-1.db.gz"
"""As the first version wrote it, before operators had a word: a suspect, a first sign, one that cleared."""


def entry(action: Action = Action.MUTE) -> AuditEntry:
    return AuditEntry(at=T0, by="kim", action=action, subject="x")


def mute(name: str, until: float = T0 + 60, ended_at: float | None = None) -> Mute:
    return Mute(id=name, node="n", start=T0, until=until, reason="r", by="kim", made_at=T0, ended_at=ended_at)


def test_the_file_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    store = Store(path)
    kept = ControlStore(store)
    assert [(i.id, i.state) for i in store.incidents()] == [
        ("gpu033@1767225780", "pending"), ("gpu068@1767225600", "suspect"), ("gpu012@1767139200", "cleared"),
    ]  # fmt: skip
    assert {i.node for i in store.open_incidents()} == {"gpu033", "gpu068"}
    suspect = store.incident("gpu068@1767225600")
    assert suspect is not None
    assert (suspect.part, suspect.peak_score, suspect.suspect_at) == ("gpu 3", 2.5, T0 + 240)
    assert [(e.metric, e.layer, e.side) for e in suspect.evidence] == [
        ("DCGM_FI_DEV_XID_ERRORS", Layer.DIRECT, ""), ("DCGM_FI_DEV_GPU_TEMP", Layer.PEER, ""),
    ]  # fmt: skip
    assert suspect.diagnosis is None
    assert [t.after for t in store.transitions() if t.node == "gpu012"] == ["pending", "suspect", "cleared"]
    (event,) = store.group_events()
    assert (event.id, event.ended_at, event.kind) == ("main@1767222000", T0 - 3000, "")
    assert store.snapshot() == b"learnt by the first version"
    assert (kept.snapshot_at(), store.last_evaluation()) == (T0 + 240, T0 + 240)
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

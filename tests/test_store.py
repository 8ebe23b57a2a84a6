from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import store_pending
from detector.errors import StoreError
from detector.outcome import Evidence, GroupEvent, Incident, Layer, Outcome, Transition
from detector.store import Store, remove_store
from detector.store_read import StoreReader
from detector.store_schema import APPLICATION_ID, VERSION

DAY = 86400.0
T0 = 1_767_225_600.0


def evidence(score: float = 2.0) -> Evidence:
    return Evidence(
        metric="DCGM_FI_DEV_GPU_TEMP",
        labels={"gpu": "3", "odd": 'quote " newline \n ünïcode'},
        part="gpu 3",
        layer=Layer.PEER,
        reason="83 where peers have 61",
        score=score,
        value=83.0,
        peer_median=61.0,
        band=(57.0, 65.0),
        since=T0 - 240,
        n_peers=59,
        target="GPU",
    )


def incident(
    node: str = "gpu068", state: str = "suspect", active_at: float = T0, **fields: object
) -> Incident:
    made = Incident(
        id=f"{node}@{int(active_at)}",
        node=node,
        state=state,
        active_at=active_at,
        suspect_at=active_at + 240 if state != "pending" else None,
        cleared_at=active_at + 900 if state == "cleared" else None,
        last_evidence_at=active_at + 240,
        peak_score=2.0,
        part="gpu 3",
        reason="hot",
        evidence=(evidence(),),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def moved(item: Incident, at: float, before: str = "pending", after: str = "suspect") -> Transition:
    return Transition(item.id, item.node, at, before, after, "hot for 240 s")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "oddnode.db")
    yield made
    made.close()


def test_what_is_saved_comes_back_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    item = incident()
    event = GroupEvent("busy@1", "busy", T0, None, ("a", "b"), ("m",), "2 of 3 nodes moved together")
    first = Store(path)
    first.save(
        Outcome(T0, incidents=(item,), transitions=(moved(item, T0),), group_events=(event,)), b"\x00learnt"
    )
    first.close()
    second = Store(path)
    assert second.open_incidents() == [item]
    assert second.incident(item.id) == item
    assert second.transitions(incident_id=item.id) == [moved(item, T0)]
    assert second.group_events() == [event]
    assert second.last_evaluation() == T0
    assert second.snapshot() == b"\x00learnt"
    second.close()


def test_the_same_evaluation_twice_is_stored_once(store: Store) -> None:
    item = incident()
    outcome = Outcome(T0, incidents=(item,), transitions=(moved(item, T0),))
    store.save(outcome)
    store.save(outcome)
    assert store.incidents() == [item]
    assert len(store.transitions()) == 1


def test_a_save_without_snapshot_keeps_the_stored_one(store: Store) -> None:
    store.save(Outcome(T0), b"one")
    store.save(Outcome(T0 + 30))
    assert store.snapshot() == b"one"


def test_old_cleared_incidents_are_pruned_and_open_ones_are_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "oddnode.db", retention_s=10 * DAY)
    old, still_open = incident("old", "cleared", T0), incident("open", "suspect", T0)
    store.save(Outcome(T0, incidents=(old, still_open), transitions=(moved(old, T0), moved(still_open, T0))))
    store.save(Outcome(T0 + 11 * DAY))
    assert [i.id for i in store.incidents()] == [still_open.id]
    assert [t.incident_id for t in store.transitions()] == [still_open.id]
    store.close()


def test_the_log_does_not_grow_without_end(store: Store) -> None:
    for k in range(60):
        store.save(Outcome(T0 + 30 * k), os.urandom(200_000))
    assert Path(f"{store.path}-wal").stat().st_size < 6_000_000
    assert store.path.stat().st_size < 2_000_000


def test_two_evaluators_never_share_a_store(store: Store) -> None:
    with pytest.raises(StoreError, match=f"another evaluator .process {os.getpid()}. uses this store"):
        Store(store.path)
    with pytest.raises(StoreError, match="another evaluator"):
        remove_store(store.path)


def test_a_waiting_evaluator_takes_over(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    first = Store(path)
    found: list[Store] = []
    waiting = threading.Thread(target=lambda: found.append(Store(path, lock_wait_s=30)))
    waiting.start()
    first.close()
    waiting.join(30)
    assert len(found) == 1
    found[0].close()


def test_waiting_for_the_lock_ends_when_told_to_stop(store: Store) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoreError, match="another evaluator"):
        Store(store.path, lock_wait_s=300, stop=stop)


def test_a_read_transaction_does_not_hold_up_the_writer(store: Store) -> None:
    store.save(Outcome(T0, incidents=(incident(),)))
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM incidents").fetchone() == (1,)
    store.save(Outcome(T0 + 30, incidents=(incident("other"),)))
    assert len(store.incidents()) == 2
    assert reader.execute("SELECT count(*) FROM incidents").fetchone() == (1,)
    reader.close()


def test_a_locked_file_keeps_the_evaluation_for_the_next_save(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store._writer is not None
    store._writer.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    item = incident()
    with pytest.raises(StoreError, match="cannot be written: database is locked"):
        store.save(Outcome(T0, incidents=(item,), transitions=(moved(item, T0),)), b"blob")
    assert store.n_pending == 2
    assert "locked" in store.problem
    assert store.incidents() == []
    other.execute("ROLLBACK")
    other.close()
    store.save(Outcome(T0 + 30))
    assert store.incidents() == [item]
    assert len(store.transitions()) == 1
    assert store.problem == ""
    assert store.n_pending == 0


def test_a_full_disk_loses_nothing_and_readers_go_on(store: Store) -> None:
    store.save(Outcome(T0, incidents=(incident("before"),)))
    assert store._writer is not None
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    many = tuple(incident(f"gpu{k:03d}") for k in range(200))
    with pytest.raises(StoreError, match="full"):
        store.save(Outcome(T0 + 30, incidents=many), b"x" * 100_000)
    assert [i.node for i in store.incidents()] == ["before"]
    assert store.last_evaluation() == T0
    store._writer.execute("PRAGMA max_page_count = 100000")
    store.save(Outcome(T0 + 60))
    assert len(store.incidents(limit=1000)) == 201
    assert store.last_evaluation() == T0 + 60


def test_what_waits_in_memory_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_pending, "MAX_PENDING", 5)
    assert store._writer is not None
    store._writer.execute("PRAGMA query_only = 1")
    for k in range(9):
        with pytest.raises(StoreError):
            store.save(Outcome(T0 + 30 * k, incidents=(incident(f"n{k}", active_at=T0 + k),)))
    assert store.n_pending == 5
    loud = [r for r in caplog.records if "not_written" in r.getMessage()]
    assert len(loud) == 1, "a lasting problem is said once"
    store._writer.execute("PRAGMA query_only = 0")
    store.save(Outcome(T0 + 300))
    assert sorted(i.node for i in store.incidents()) == ["n4", "n5", "n6", "n7", "n8"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from detector.errors import StoreError
from detector.outcome import Outcome
from detector.store import Store
from tests.test_store import incident
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
store.save(Outcome(1.0, incidents=(incident("kept"),)))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
failed = 0
for k in range(40):
    try:
        store.save(Outcome(2.0 + k, incidents=tuple(incident(f"n{{k}}-{{j}}") for j in range(30))))
    except StoreError:
        failed += 1
print("failed", failed, flush=True)
assert store.incidents(), "readers go on"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.save(Outcome(100.0))
print("stored", len(store.incidents(limit=5000)), flush=True)
store.close()
"""


def test_writes_that_the_system_refuses_are_repeated(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK.format(root=root), str(tmp_path / "oddnode.db")],
        capture_output=True, text=True, timeout=120, check=False, cwd=root,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    failed, stored = (line.split() for line in done.stdout.splitlines())
    assert int(failed[1]) > 0
    assert stored == ["stored", str(1 + 40 * 30)]


def test_a_corrupt_file_is_moved_aside_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "oddnode.db"
    path.write_bytes(b"this is no database" * 1000)
    store = Store(path)
    store.save(Outcome(T0, incidents=(incident(),)))
    assert len(store.incidents()) == 1
    store.close()
    aside = list(tmp_path.glob("oddnode.db.corrupt-*"))
    assert [f.read_bytes()[:19] for f in aside] == [b"this is no database"]
    loud = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert len(loud) == 1
    assert str(path) in loud[0].getMessage()


def test_a_damaged_page_is_found_at_start(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    store = Store(path)
    store.save(Outcome(T0, incidents=tuple(incident(f"gpu{k:03d}") for k in range(300))))
    store.close()
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(data)
    again = Store(path)
    assert again.incidents() == []
    again.close()
    assert list(tmp_path.glob("oddnode.db.corrupt-*"))


def test_a_file_that_goes_bad_while_running_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    store = Store(path)
    store.save(Outcome(T0, incidents=tuple(incident(f"gpu{k:03d}") for k in range(300))))
    assert store._writer is not None
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._writer.execute("PRAGMA cache_size = 0")
    store._writer.execute("PRAGMA shrink_memory")
    data = bytearray(path.read_bytes())
    with path.open("r+b") as file:
        for page in range(1, len(data) // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    item = incident("now")
    store.save(Outcome(T0 + 30, incidents=(item,)))
    assert store.incidents() == [item]
    store.close()
    assert list(tmp_path.glob("oddnode.db.corrupt-*"))


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer version \(schema \d+, this one knows up to \d+\)"):
        Store(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "grafana.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE dashboards (id)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*corrupt*"))


def test_the_file_is_marked_as_ours(store: Store) -> None:
    connection = sqlite3.connect(store.path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no/such/oddnode.db.lock: cannot be opened: No such file"):
        Store(tmp_path / "no" / "such" / "oddnode.db")


def test_a_missing_store_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        StoreReader(tmp_path / "none.db").open_incidents()


def test_remove_store(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    store = Store(path)
    store.save(Outcome(T0, incidents=(incident(),)))
    store.close()
    remove_store(path)
    assert not path.exists()
    remove_store(path)


READ_ONLY = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from detector.errors import StoreError
from detector.store import Store
os.setgid(65534); os.setuid(65534)
try:
    Store(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_read_only_folder_is_a_clear_error() -> None:
    root = str(Path(__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY.format(root=root), f"{folder}/oddnode.db"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert "oddnode.db.lock: cannot be opened: Permission denied" in done.stdout, done.stderr


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["pending", "suspect", "cleared"]), st.booleans()),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(steps)
def test_interrupted_saves_end_in_the_same_store(
    tmp_path_factory: pytest.TempPathFactory, steps: list
) -> None:
    """Any mix of failed and good saves ends where only good saves end."""
    folder = tmp_path_factory.mktemp("store")
    one, two = Store(folder / "one.db"), Store(folder / "two.db")
    for k, (node, state, fails) in enumerate(steps):
        item = incident(node, state, active_at=T0)
        outcome = Outcome(T0 + 30 * k, incidents=(item,), transitions=(moved(item, T0 + 30 * k, "x", state),))
        one.save(outcome)
        assert two._writer is not None
        two._writer.execute(f"PRAGMA query_only = {int(fails)}")
        if fails:
            with pytest.raises(StoreError):
                two.save(outcome)
        else:
            two.save(outcome)
    two._writer.execute("PRAGMA query_only = 0")
    for both in (one, two):
        both.save(Outcome(T0 + 1000))
    assert one.incidents() == two.incidents()
    assert one.transitions() == two.transitions()
    assert one.last_evaluation() == two.last_evaluation()
    one.close()
    two.close()

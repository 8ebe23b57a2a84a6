"""PostgreSQL as it fails in practice: restarted, hanging, locked, taken over; and secrets."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from detector.delivery.outbox import Outbox
from detector.errors import SettingsError, StoreError
from detector.outcome import Outcome
from detector.postgres import schema
from detector.postgres.address import Address
from detector.postgres.server import Server
from detector.postgres.standby import Standby
from detector.postgres.store import LostLead, PostgresReader, PostgresStore, take_lead
from detector.settings import load_settings
from tests.contract.stores import open_postgres
from tests.servers import Postgres
from tests.test_store import T0, incident, moved

pytestmark = pytest.mark.server


def name_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def backends(server: Postgres, url: str) -> list[int]:
    name = name_of(url)
    held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND database = "
    found = server.sql(f"{held} (SELECT oid FROM pg_database WHERE datname = '{name}')")
    return [int(str(pid)) for (pid,) in found]


class Fresh:
    problem = ""

    def refresh(self) -> bool:
        return False


def test_what_is_no_address_is_told_without_showing_it(tmp_path: Path) -> None:
    for url, why in (
        ("postgresql://u:hunter2@h:notaport/d?x", "is no PostgreSQL address"),
        ("postgresql://u:hunter2@h/d?options=-cstatement_timeout%3D0", "options is no parameter"),
    ):
        with pytest.raises(SettingsError, match=why) as told:
            Address(url)
        assert "hunter2" not in str(told.value)
    with pytest.raises(SettingsError, match="give one") as told:
        Address("postgresql://u:hunter2@h/d", tmp_path / "password")
    assert "hunter2" not in str(told.value)
    assert Address("postgresql://u:hunter2@h:6432/d").name == "postgresql://h:6432/d"


def test_settings_hide_the_address(tmp_path: Path) -> None:
    file = tmp_path / "oddnode.yaml"
    file.write_text("store: {url: 'postgresql://u:hunter2@h/d'}\n")
    assert "hunter2" not in str(load_settings(file, {}).describe())
    for text, why in (
        ("store: {url: 'mysql://u:hunter2@h/d'}", "url must begin with postgresql://"),
        ("store: {url: ['hunter2']}", "store.url"),
        ("store: {password_file: x}", "password_file needs url"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsError, match=why) as told:
            load_settings(file, {})
        assert "hunter2" not in str(told.value)
    file.write_text("store: {url: 'postgresql://u@h/d', password_file: secret}")
    assert load_settings(file, {}).store.password_file == tmp_path / "secret"


def test_the_password_comes_from_a_file_and_stays_out_of_errors(
    postgres_server: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres_server.new_database()
    postgres_server.sql(
        "GRANT CREATE ON DATABASE " + url.partition("@/")[2].partition("?")[0] + " TO oddnode"
    )
    as_user = url.replace("postgres@", "oddnode@")
    file = tmp_path / "password"
    file.write_text("wrong-password\n")
    server = Server(Address(as_user, file))
    with pytest.raises(StoreError, match="password authentication failed") as told:
        take_lead(server)
    file.write_text(Postgres.PASSWORD + "\n")
    lead = take_lead(server)
    assert lead is not None
    store = PostgresStore(server, lead)
    store.save(Outcome(T0, incidents=(incident(),)))
    assert len(store.incidents()) == 1
    store.close()
    file.unlink()
    with pytest.raises(StoreError, match=r"store.password_file .*password cannot be read"):
        take_lead(server)
    for secret in ("wrong-password", Postgres.PASSWORD):
        assert secret not in str(told.value) + caplog.text


def test_a_server_that_is_down_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        take_lead(Server(Address(f"postgresql://postgres@/x?host={tmp_path}")))


def test_others_schemas_and_newer_ones_are_left_alone(postgres_server: Postgres) -> None:
    url = postgres_server.new_database()
    postgres_server.sql("CREATE SCHEMA oddnode CREATE TABLE incidents (mine int)", url)
    with pytest.raises(StoreError, match="belongs to another program"):
        open_postgres(url)
    assert postgres_server.sql("SELECT * FROM oddnode.incidents", url) == []
    newer = postgres_server.new_database()
    open_postgres(newer).close()
    postgres_server.sql(f"UPDATE oddnode.oddnode_schema SET version = {schema.VERSION + 1}", newer)
    with pytest.raises(StoreError, match=r"newer version \(schema \d+, this one knows up to \d+\)"):
        open_postgres(newer)
    assert backends(postgres_server, newer) == [], "nobody is kept from the lead by one that cannot use it"


def test_the_schema_is_made_once_and_is_a_step_at_a_time(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new_database()
    store = open_postgres(url)
    store.save(Outcome(T0, incidents=(incident(),)))
    store.close()
    steps = (*schema.MIGRATIONS, ("ALTER TABLE incidents ADD COLUMN more text",))
    monkeypatch.setattr(schema, "MIGRATIONS", (*steps, ("ALTER TABLE nothing ADD COLUMN more text",)))
    monkeypatch.setattr(schema, "VERSION", len(steps) + 1)
    with pytest.raises(StoreError, match="nothing"):
        open_postgres(url)
    more = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'more'"
    assert postgres_server.sql(more, url) == [(0,)], "all or nothing"
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    monkeypatch.setattr(schema, "VERSION", len(steps))
    again = open_postgres(url)
    assert len(again.incidents()) == 1
    assert postgres_server.sql(more, url) == [(1,)]
    again.close()


def test_a_restart_of_the_server_loses_nothing(fresh_postgres: Postgres) -> None:
    url = fresh_postgres.new_database()
    store = open_postgres(url)
    outbox = Outbox(store)
    item = incident("one")
    store.save(Outcome(T0, incidents=(item,), transitions=(moved(item, T0),)))
    fresh_postgres.stop()
    with pytest.raises(StoreError, match="cannot be written"):
        store.save(Outcome(T0 + 30, incidents=(incident("two"),)))
    with pytest.raises(StoreError, match="cannot be reached"):
        store.incidents()
    with pytest.raises(StoreError):
        outbox.out()
    assert store.n_pending == 1
    fresh_postgres.start()
    store.save(Outcome(T0 + 60, incidents=(incident("three"),)))
    assert sorted(i.node for i in store.incidents()) == ["one", "three", "two"]
    assert (store.problem, store.n_pending, outbox.out()) == ("", 0, {})
    fresh_postgres.stop("fast")
    fresh_postgres.start()
    store.save(Outcome(T0 + 90, incidents=(incident("four"),)))
    assert len(store.incidents()) == 4, "one that nobody noticed"
    assert backends(fresh_postgres, url) != []
    store.close()


def test_a_database_from_a_backup_goes_on_from_there(postgres_server: Postgres) -> None:
    url, restored = postgres_server.new_database(), postgres_server.url("restored")
    store = open_postgres(url)
    item = incident("one", state="pending")
    store.save(Outcome(T0, incidents=(item,), transitions=(moved(item, T0, "clear", "pending"),)))
    store.close()
    postgres_server.sql(f"CREATE DATABASE restored TEMPLATE {name_of(url)}")
    store = open_postgres(url)
    named = incident("one")
    store.save(Outcome(T0 + 30, incidents=(named,), transitions=(moved(named, T0 + 30),)))
    store.close()
    again = open_postgres(restored)
    assert (again.last_evaluation(), [i.state for i in again.open_incidents()]) == (T0, ["pending"])
    again.save(Outcome(T0 + 30, incidents=(named,), transitions=(moved(named, T0 + 30),)))
    assert again.last_evaluation() == T0 + 30
    assert [t.after for t in again.transitions()] == ["pending", "suspect"]
    assert [i.state for i in again.incidents()] == ["suspect"]
    again.close()


def test_a_server_that_hangs_does_not_hang_us(
    postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres_server.new_database()
    store = open_postgres(url)
    store._server._transaction_s = 2.0
    (pid,) = backends(postgres_server, url)
    os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(StoreError):
            store.save(Outcome(T0, incidents=(incident(),)))
        assert time.monotonic() - begun < 20
        assert not store.is_lost, "nobody has taken over"
        assert "hangs=true" in caplog.text
    finally:
        os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while store.n_pending and time.monotonic() < deadline:
        with suppress(StoreError):
            store.save(Outcome(T0 + 30))
    assert len(store.incidents()) == 1
    store.close()


def test_a_table_that_another_locks_keeps_the_evaluation_for_the_next_save(postgres_server: Postgres) -> None:
    url = postgres_server.new_database()
    store = open_postgres(url)
    other = Server(Address(url)).connect()
    other.execute(b"SET lock_timeout = 0")
    other.execute(b"SET lock_timeout = 0; BEGIN; LOCK TABLE incidents IN EXCLUSIVE MODE")
    with pytest.raises(StoreError, match="lock timeout"):
        store.save(Outcome(T0, incidents=(incident(),)))
    assert store.n_pending == 1
    other.close()
    store.save(Outcome(T0 + 30))
    assert len(store.incidents()) == 1
    store.close()


def test_a_lost_connection_is_taken_up_again(postgres_server: Postgres) -> None:
    url = postgres_server.new_database()
    store = open_postgres(url)
    (pid,) = backends(postgres_server, url)
    postgres_server.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
    store.save(Outcome(T0, incidents=(incident(),)))
    assert len(store.incidents()) == 1
    assert backends(postgres_server, url) not in ([], [pid]), "it leads again"
    store.close()


def test_who_was_cut_off_cannot_write_over_who_took_over(
    postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres_server.new_database()
    old = open_postgres(url)
    old_outbox = Outbox(old)
    lost: list[str] = []
    old.when_lost(lambda: lost.append("lost"))
    old.save(Outcome(T0, incidents=(incident(),)))
    old_outbox.register(["hook"])
    (pid,) = backends(postgres_server, url)
    postgres_server.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
    new = open_postgres(url)
    with pytest.raises(LostLead, match="another evaluator has taken over"):
        old_outbox.next("hook")
    with pytest.raises(LostLead):
        old_outbox.record({}, [], T0)
    with pytest.raises(StoreError, match="another evaluator has taken over"):
        old.save(Outcome(T0 + 30, incidents=(incident(state="cleared"),)))
    assert old.is_lost
    assert lost == ["lost"], "told once"
    new.save(Outcome(T0 + 30))
    new.close()
    with pytest.raises(StoreError, match="another evaluator has taken over"):
        old.save(Outcome(T0 + 60, incidents=(incident(state="cleared"),)))
    old.close()
    server = Server(Address(url))
    assert [i.state for i in PostgresReader(server).incidents()] == ["suspect"], "nothing of it was written"
    server.close()


def test_the_old_leader_has_the_first_say_after_a_restart(
    fresh_postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    url = fresh_postgres.new_database()
    leader = open_postgres(url)
    stop, found, view = threading.Event(), [], Fresh()
    standby = Standby(Server(Address(url)), view, lambda: None, retention_s=1e9, grace_s=15.0, poll_s=0.05)
    waiting = threading.Thread(target=lambda: found.append(standby.wait(stop)))
    waiting.start()
    time.sleep(0.5)
    fresh_postgres.stop()
    deadline = time.monotonic() + 20
    while not view.problem and time.monotonic() < deadline:
        time.sleep(0.02)
    assert view.problem
    fresh_postgres.start()
    leader.save(Outcome(T0))
    assert found == []
    leader.close()
    waiting.join(60)
    assert isinstance(found[0], PostgresStore)
    assert leader.is_lost is False
    found[0].close()

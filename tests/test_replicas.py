"""Two replicas on one PostgreSQL: one leads, the other takes over when it is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.postgres.address import Address
from detector.postgres.server import Server as Database
from detector.postgres.store import PostgresReader
from tests.servers import Postgres, ScriptedServer, Server, reply
from tests.test_postgres import name_of
from tests.test_service_kill import PROGRAM, contents
from tests.test_service_kill import run as run_sqlite
from tests.test_service_live import FAULTY, STEP, feed, start
from tests.test_service_serve import Process, ask, wait_for

__all__ = ["start"]

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def port_of(process: Process) -> int:
    """Wait for a process of its own to answer: it imports a lot, and takes its time on a busy machine."""
    wait_for(process._listening, seconds=240, what=process.text)
    return process.port()


def test_a_replica_takes_over_within_two_ticks_and_tells_nothing_twice(
    fresh_vm: Server, postgres_server: Postgres, start: Callable[[dict[str, Any]], Process]
) -> None:
    feed(fresh_vm)
    url = postgres_server.new_database()
    with ScriptedServer([reply(200, b"ok")]) as hook:
        settings = {
            "source": {"url": fresh_vm.url},
            "store": {"url": url},
            "delivery": {"webhooks": [{"name": "hook", "url": hook.url}]},
        }

        def suspects(port: int) -> Any:
            status, body = ask(port, "/v1/suspects")
            return body if status == 200 and body["suspects"] else None

        first = start(settings)
        named = wait_for(lambda: suspects(port_of(first)), seconds=240, what=first.text)
        assert [s["node"] for s in named["suspects"]] == [FAULTY]
        wait_for(lambda: hook.requests, what=first.text)
        second = start(settings)
        port = port_of(second)
        assert "standing_by=true" in second.text()
        shown = wait_for(lambda: suspects(port), what=second.text)
        assert [s["incident_id"] for s in shown["suspects"]] == [s["incident_id"] for s in named["suspects"]]
        status, ready = ask(port, "/readyz")
        assert status == 200
        assert ready["notes"] == ["standing by: another replica leads, this one only reads"]
        assert ask(port, "/healthz")[0] == 200
        assert ask(port, "/v1/nodes")[1]["total"] == first.get("/v1/nodes")[1]["total"]
        assert ask(port, f"/v1/series?node={FAULTY}&metric=DCGM_FI_DEV_GPU_TEMP")[0] == 503
        status, refused = ask(port, "/v1/fleet")
        assert (status, "stands by" in str(refused)) == (503, True)
        assert "oddnode_leader 0.0" in ask(port, "/metrics")[1]
        assert "oddnode_leader 1.0" in first.get("/metrics")[1]

        first.process.kill()
        killed = time.monotonic()
        first.process.wait(30)
        wait_for(lambda: "oddnode_leader 1.0" in _metrics(port), seconds=2 * STEP, what=second.text)
        after = wait_for(lambda: suspects(port), seconds=2 * STEP, what=second.text)
        assert time.monotonic() - killed < 2 * STEP
        assert [s["incident_id"] for s in after["suspects"]] == [s["incident_id"] for s in named["suspects"]]
        wait_for(lambda: ask(port, "/readyz")[0] == 200, what=second.text)
        assert second.end() == 0
        events = [(r.headers, r.form) for r in hook.requests]
    assert len(events) == 1, "told once"
    database = Database(Address(url))
    reader = PostgresReader(database)
    assert reader.count_incidents() == len({i.node for i in reader.incidents()})
    database.close()


def _metrics(port: int) -> str:
    try:
        return str(ask(port, "/metrics")[1])
    except OSError:
        return ""


def test_a_leader_that_was_replaced_ends_so_that_it_stands_by(
    fresh_vm: Server, postgres_server: Postgres, start: Callable[[dict[str, Any]], Process]
) -> None:
    feed(fresh_vm)
    url = postgres_server.new_database()
    settings = {"source": {"url": fresh_vm.url}, "store": {"url": url}}
    first = start(settings)
    port_of(first)
    wait_for(lambda: first.get("/readyz")[0] == 200, seconds=240, what=first.text)
    second = start(settings)
    port_of(second)
    postgres_server.sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted "
        f"AND database = (SELECT oid FROM pg_database WHERE datname = '{name_of(url)}')"
    )
    assert first.process.wait(3 * STEP) == 1
    assert "another_evaluator_has_taken_over" in first.text()
    assert "leads=true" in second.text()
    assert second.end() == 0


def test_a_standby_ends_when_it_is_told_to(
    fresh_vm: Server, postgres_server: Postgres, start: Callable[[dict[str, Any]], Process]
) -> None:
    url = postgres_server.new_database()
    settings = {"source": {"url": fresh_vm.url}, "store": {"url": url}}
    first = start(settings)
    port_of(first)
    second = start(settings)
    port = port_of(second)
    status, body = ask(port, "/readyz")
    assert status == 503
    none_yet = "standing by: the replica that leads has stored no evaluation yet"
    empty = "the database has no series of any metric in the catalog"
    assert body["reasons"] in ([none_yet], [empty])
    assert second.end() == 0
    assert first.end() == 0


def test_kill_9_of_leaders_loses_nothing_and_raises_nothing_twice(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    run_sqlite(tmp_path / "through.db", "through", 0)
    expected = contents(tmp_path / "through.db")
    url = postgres_server.new_database()
    program = PROGRAM.replace(
        "    store = Store(path, lock_wait_s=20)\n",
        "    from tests.contract.stores import open_postgres\n"
        "    from detector.errors import StoreError\n"
        "    while True:\n"
        "        try:\n"
        f"            store = open_postgres({url!r})\n"
        "            break\n"
        "        except StoreError:\n"
        "            time.sleep(0.01)\n",
    )
    assert "open_postgres" in program
    program = program.replace("0.04 + 0.002 * n_killed", "0.5 + 0.2 * n_killed")
    done = subprocess.run(
        [sys.executable, "-c", program, "unused", "killed", "7"],
        capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= 3
    database = Database(Address(url))
    reader = PostgresReader(database)
    found = reader.incidents(limit=5000), reader.transitions(limit=5000), reader.last_evaluation()
    assert found == expected
    database.close()

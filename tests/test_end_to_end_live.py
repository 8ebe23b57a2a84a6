"""A fault that begins while the service runs; kill -9 and an outage of the database on the way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from detector.store import Store
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.feed import Feeder
from tests import servers
from tests.end_to_end import Serving, fed_live, now_s, on_grid

pytestmark = [pytest.mark.server, pytest.mark.slow]

STEP = 2.0
HISTORY_S = 120.0
FAULTY, PART = "gpu005", "10.2.0.10:/data"
CONTINUITY_S = 10.0
SETTINGS: dict[str, Any] = {
    "schedule": {"step_s": STEP, "evaluation_delay_s": STEP, "backfill_s": HISTORY_S, "tick_timeout_s": 9},
    "detection": {
        "continuity_s": CONTINUITY_S,
        "clear_after_s": 12,
        "absence_after_s": 8,
        "direct_hold_s": 10,
    },
    "pools": {"settle_s": 10, "join_grace_s": 10},
}
SOURCE = {"deadline_s": 8, "read_timeout_s": 4, "connect_timeout_s": 2, "kind": "victoriametrics"}


class Database:
    """A VictoriaMetrics that can be stopped and started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        folder.mkdir()

    def start(self) -> None:
        args = [
            f"-httpListenAddr=127.0.0.1:{self.port}",
            f"-storageDataPath={self._folder / 'data'}",
            f"-retentionPeriod={servers.FOREVER}",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(["victoria-metrics", *args], stdout=log, stderr=log)
        servers.wait_until(lambda: servers.answers(self.port, "/health"), "the database answers")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextmanager
def database(folder: Path) -> Iterator[Database]:
    vm = Database(folder)
    vm.start()
    try:
        yield vm
    finally:
        vm.stop()


def lives(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the transitions of every incident that was a suspect, from the store's file."""
    store = Store(folder / "oddnode.db")
    incidents = store.incidents(limit=1000)
    steps = store.transitions(limit=5000)
    store.close()
    steps.sort(key=lambda t: t.at)
    return {
        i.id: [(t.before, t.after) for t in steps if t.incident_id == i.id]
        for i in incidents
        if i.suspect_at is not None
    }


def evaluated_after(service: Serving, at: float) -> Any:
    return service.wait_for("/v1/suspects", lambda body: body["at"] > at, f"an evaluation after {at}", 60)


def named(body: Any) -> list[tuple[str, str]]:
    return [(suspect["node"], suspect["incident_id"]) for suspect in body["suspects"]]


def failed_ticks(service: Serving) -> float:
    rows = service.get("/metrics")[1].splitlines()
    return sum(float(row.split()[-1]) for row in rows if row.startswith("oddnode_ticks_failed_total{"))


def test_a_fault_after_the_start_is_named_once_through_kill_9_and_an_outage(tmp_path: Path) -> None:
    with ExitStack() as stack:
        vm = stack.enter_context(database(tmp_path / "vm"))
        now = on_grid(now_s(), STEP)
        config = ClusterConfig(
            train_nodes=12, spares=3, cpus=2, start=now - HISTORY_S, step_s=STEP, missed_scrape=0.0,
            benign_per_node_hour=0.0, checkpoint_s=(90_000.0, 100_000.0),
        )  # fmt: skip
        cluster = Cluster(config, 4)
        feeder = Feeder(vm.url, cluster)
        feeder.load(config.start, now)
        stack.enter_context(fed_live(feeder, now + STEP))
        settings = {**SETTINGS, "source": {"url": vm.url, **SOURCE}}
        service = Serving(tmp_path, settings)
        stack.callback(lambda: service.kill())
        before = service.wait_for("/v1/suspects", lambda body: body["n_nodes"] == 15, "first verdicts")
        assert before["suspects"] == []

        onset = on_grid(now_s(), STEP) + 2 * STEP
        cluster.faults = (Fault("nfs_slow", FAULTY, onset, onset + 3600, PART),)
        found = service.wait_for("/v1/suspects", lambda body: body["suspects"], "the fault is named", 60)
        (suspect,) = found["suspects"]
        assert (suspect["node"], suspect["part"]) == (FAULTY, PART)
        assert onset <= suspect["suspect_since"] <= onset + 3 * CONTINUITY_S
        assert {item["target"] for item in suspect["evidence"]} >= {"NFS"}

        for _ in range(2):
            service.kill()
            service = Serving(tmp_path, settings)
            found = evaluated_after(service, found["at"])
            assert named(found) == [(FAULTY, suspect["incident_id"])]

        vm.stop()
        n_failed = failed_ticks(service)
        servers.wait_until(lambda: failed_ticks(service) >= n_failed + 3, "three ticks fail")
        servers.wait_until(lambda: service.get("/readyz")[0] == 503, "it is not ready without a database")
        assert named(service.get("/v1/suspects")[1]) == [(FAULTY, suspect["incident_id"])]
        outage_at = service.get("/v1/suspects")[1]["at"]
        vm.start()
        found = evaluated_after(service, outage_at + 4 * STEP)
        assert named(found) == [(FAULTY, suspect["incident_id"])]
        service.wait_for("/readyz", lambda body: body["status"] == "ready", "it is ready again")

        cluster.faults = ()
        service.wait_for("/v1/suspects", lambda body: not body["suspects"], "the suspect is cleared", 90)
        assert service.end() == 0
        assert lives(tmp_path) == {
            suspect["incident_id"]: [("clear", "pending"), ("pending", "suspect"), ("suspect", "cleared")]
        }

"""A service with a desk, scripted, for tests of what operators do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.access import Entrance, Policy
from api.app import create_app
from detector.control.desk import Desk
from detector.export import Exporter, Known
from detector.service import Service
from detector.service_contracts import ServiceHooks
from detector.service_operators import Operated
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.store_control import ControlStore
from detector.telemetry import Telemetry
from detector.what_if.trials import Trials
from tests.service_fakes import STEP, T0, ManualClock, Plan, ScriptedPipeline, ScriptedSource

FAULTY, OTHER = "a/gpu01", "gpu002"
PLANS = (Plan(FAULTY, 30, 60, 900), Plan(OTHER, 30, 60, 900))
LOCAL = "http://127.0.0.1:8080"


class Cluster:
    """A running service that is ticked by hand."""

    def __init__(self, path: Path, plans: Sequence[Plan] = PLANS, now: float = T0) -> None:
        self.clock = ManualClock(now)
        self.store = Store(path)
        self.pipeline = ScriptedPipeline(plans)
        self.desk = Desk(ControlStore(self.store), self.clock.now)
        self.telemetry = Telemetry()
        self.service = Service(
            ScheduleSettings(evaluation_delay_s=0, backfill_s=300),
            ScriptedSource,
            self.pipeline,
            self.store,
            self.telemetry,
            self.clock,
            hooks=ServiceHooks(published=self.desk.observe, operators=self.desk),
        )
        self.desk.attach(Operated(self.service, {"m"}))
        known = Known(["m"], (FAULTY, OTHER), STEP, "0", "")
        self.exporter = Exporter(ScriptedSource, lambda: known, self.store, self.desk.ledger, self.clock.now)

    def run(self, n_ticks: int) -> Cluster:
        for _ in range(n_ticks):
            self.clock.t += STEP
            self.service.tick()
        return self

    def app(self, policy: Policy | None = None, trials: Trials | None = None) -> FastAPI:
        entrance = Entrance(policy or Policy())
        return create_app(
            self.service, desk=self.desk, entrance=entrance, trials=trials, exporter=self.exporter
        )

    def client(self, policy: Policy | None = None) -> TestClient:
        return TestClient(self.app(policy), base_url=LOCAL, raise_server_exceptions=False)

    def close(self) -> None:
        self.service.finish(5)
        self.store.close()


def suspects(client: TestClient) -> dict[str, dict[str, Any]]:
    answer = client.get("/v1/suspects")
    assert answer.status_code == 200, answer.text
    return {one["node"]: one for one in answer.json()["suspects"]}

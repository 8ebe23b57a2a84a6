"""The running service tells Alertmanager and a webhook of a fault, through kill -9 and their absence."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.feed import Feeder
from tests import servers
from tests.delivery_bench import Catcher, get_json
from tests.end_to_end import Serving, fed_live, now_s, on_grid
from tests.servers import wait_until
from tests.test_end_to_end_live import FAULTY, HISTORY_S, PART, SETTINGS, SOURCE, STEP

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_a_fault_is_told_once_through_kill_9_and_an_outage_of_the_receivers(tmp_path: Path) -> None:
    am_port, hook_port = servers.free_port(), servers.free_port()
    with ExitStack() as stack:
        vm = stack.enter_context(servers.victoria_metrics(tmp_path / "vm"))
        now = on_grid(now_s(), STEP)
        config = ClusterConfig(
            train_nodes=12, spares=3, cpus=2, start=now - HISTORY_S, step_s=STEP, missed_scrape=0.0,
            benign_per_node_hour=0.0, checkpoint_s=(90_000.0, 100_000.0),
        )  # fmt: skip
        cluster = Cluster(config, 4)
        feeder = Feeder(vm.url, cluster)
        feeder.load(config.start, now)
        stack.enter_context(fed_live(feeder, now + STEP))
        delivery: dict[str, Any] = {
            "alertmanagers": [{"url": f"http://127.0.0.1:{am_port}"}],
            "resend_s": 2,
            "webhooks": [{"name": "hook", "url": f"http://127.0.0.1:{hook_port}/"}],
            "write_back": {"url": vm.url},
            "external_url": "http://oddnode.example.com",
        }
        settings = {**SETTINGS, "source": {"url": vm.url, **SOURCE}, "delivery": delivery}
        service = Serving(tmp_path, settings)
        stack.callback(lambda: service.kill())
        service.wait_for("/v1/suspects", lambda body: body["n_nodes"] == 15, "first verdicts")
        onset = on_grid(now_s(), STEP) + 2 * STEP
        cluster.faults = (Fault("nfs_slow", FAULTY, onset, onset + 3600, PART),)
        found = service.wait_for("/v1/suspects", lambda body: body["suspects"], "the fault is named", 90)
        incident = found["suspects"][0]["incident_id"]
        # nobody is there to be told; it is killed, and goes on
        line = 'oddnode_delivery_queue{receiver="webhook/hook"}'
        wait_until(lambda: (service.metric(line) or 0) >= 1, "the message waits")
        service.kill()
        hook = stack.enter_context(Catcher(port=hook_port))
        manager = stack.enter_context(servers.alertmanager(tmp_path / "am", hook.url + "-am", am_port))
        service = Serving(tmp_path, settings)
        service.wait_for("/healthz", bool, "it is up again")

        def alerts() -> Any:
            return get_json(manager.port, "/api/v2/alerts?filter=alertname%3DOddnodeSuspect")

        wait_until(lambda: len(alerts()) == 1, "the alert is there", 60)
        (alert,) = alerts()
        assert alert["labels"] == {"alertname": "OddnodeSuspect", "node": FAULTY, "pool": "main"}
        assert PART in alert["annotations"]["summary"]
        assert alert["generatorURL"] == f"http://oddnode.example.com/nodes/{FAULTY}"
        wait_until(lambda: bool(messages(hook)), "the webhook is told", 60)

        cluster.faults = ()
        wait_until(lambda: alerts() == [], "the alert is resolved", 120)
        wait_until(lambda: len(messages(hook)) == 2, "the webhook is told of the end", 60)
        assert [(one["event"], one["about"]["key"]) for one in messages(hook)] == [
            ("suspect_raised", incident),
            ("suspect_cleared", incident),
        ]
        assert service.end() == 0
        assert servers.answers(vm.port, "/internal/force_flush")
        # without nocache the database looks at what was there half a minute ago
        asked = f"/api/v1/query?query=max_over_time(oddnode_node_score%5B1h%5D)&time={now_s()}&nocache=1"
        scores = {
            one["metric"]["node"]: float(one["value"][1])
            for one in get_json(vm.port, asked)["data"]["result"]
        }
        assert len(scores) == 15
        assert max(scores, key=lambda node: scores[node]) == FAULTY, scores


def messages(hook: Catcher) -> list[Any]:
    told = [one.json() for one in hook.taken() if one.path == "/"]
    return [one for one in told if one["about"]["kind"] == "suspect"]

"""The reference cluster in a real VictoriaMetrics and a real Prometheus: who is named, live and in replay."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grouping.catalog import load_catalog
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.feed import Feeder
from tests import servers
from tests.end_to_end import Serving, command, fed_live, now_s, on_grid, seed_store

pytestmark = [pytest.mark.server, pytest.mark.slow]

STEP = 30.0
BACKFILL_S = 1080.0
HISTORY_S = 960.0
"""Shorter than the window: the first samples are the same for the service and for the replay."""
SINCE_ONSET_S = 360.0


def reference_cluster(kind: str, node: str, part: str, *, history_s: float, age_s: float) -> Cluster:
    """All 305 metrics of 60 nodes at work and 3 spares; the fault began some time before now."""
    now = on_grid(now_s(), STEP)
    config = ClusterConfig(cpus=2, start=now - history_s)
    assert (config.train_nodes, config.spares) == (60, 3)
    cluster = Cluster(config, 1, [Fault(kind, node, now - age_s, now + 86400, part)])
    names = {series["__name__"] for series in cluster.series}
    assert set(load_catalog().by_name) & names >= {spec.name for spec in load_catalog().specs}
    return cluster


@dataclass
class Planted:
    """A running service on a database with a faulty node."""

    vm: servers.Server
    service: Serving
    onset: float
    suspects: dict[str, Any]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """An NVLink fault on GPU 3 of gpu017, six minutes old; the service starts now and is fed on."""
    folder = tmp_path_factory.mktemp("planted")
    with ExitStack() as stack:
        vm = stack.enter_context(servers.victoria_metrics(folder / "vm"))
        cluster = reference_cluster("nvlink_xid", "gpu017", "gpu 3", history_s=HISTORY_S, age_s=SINCE_ONSET_S)
        onset = cluster.faults[0].onset
        feeder = Feeder(vm.url, cluster)
        fed_to = onset + SINCE_ONSET_S
        feeder.load(cluster.config.start, fed_to)
        stack.enter_context(fed_live(feeder, fed_to + STEP))
        seed_store(folder, onset - 5 * STEP)
        service = Serving(folder, {"source": {"url": vm.url}, "schedule": {"backfill_s": BACKFILL_S}})
        stack.callback(service.kill)
        suspects = service.wait_for(
            "/v1/suspects", lambda body: body["at"] >= fed_to - STEP, "the window is evaluated"
        )
        yield Planted(vm, service, onset, suspects)


def test_the_faulty_node_is_named_with_part_and_evidence_and_nobody_else(planted: Planted) -> None:
    service = planted.service
    assert planted.suspects["n_nodes"] == 63
    assert planted.suspects["undetermined"] == {}
    assert [s["node"] for s in planted.suspects["suspects"]] == ["gpu017"], json.dumps(
        planted.suspects["suspects"]
    )
    suspect = planted.suspects["suspects"][0]
    assert suspect["part"] == "gpu 3"
    assert planted.onset - STEP <= suspect["since"] <= suspect["suspect_since"] <= planted.onset + 300
    strongest = suspect["evidence"][0]
    assert (strongest["metric"], strongest["part"]) == ("DCGM_FI_DEV_XID_ERRORS", "gpu 3")
    assert "XID" in suspect["reason"]
    by_metric = {item["metric"]: item for item in suspect["evidence"]}
    tasks = by_metric["backendai_async_task_count"]
    assert tasks["value"] > 500 > 100 > tasks["peer_median"]
    assert tasks["n_peers"] == 59

    ready = service.wait_for("/readyz", lambda body: True, "the tick has ended")
    assert ready == {"status": "ready", "reasons": [], "notes": []}
    incidents = service.get("/v1/incidents?was_suspect=true")[1]
    assert [i["node"] for i in incidents["incidents"]] == ["gpu017"]
    nodes = service.get("/v1/nodes?limit=100")[1]["nodes"]
    assert {n["node"] for n in nodes if n["pool"] == "idle"} == {"gpu061", "gpu062", "gpu063"}
    by_status = Counter(n["status"] for n in nodes)
    assert by_status["suspect"] == 1
    assert by_status["clear"] >= 60, "some may show a first sign: package upgrades, checkpoints"
    groups = service.get("/v1/groups?limit=200")[1]["groups"]
    assert {g["unit"] for g in groups} >= {"node", "gpu", "ib_device", "nfs_export", "disk", "network_device"}
    assert all(not g["undetermined"] for g in groups)
    assert service.metric('oddnode_suspect{node="gpu017"}') == 1.0
    assert service.metric("oddnode_suspects") == 1.0
    assert_no_complaint(service)


def assert_no_complaint(service: Serving) -> None:
    """A slow machine may miss a tick; nothing else is worth a warning."""
    lines = [line for line in service.log().splitlines() if " WARNING " in line or " ERROR " in line]
    assert [line for line in lines if "tick missed=" not in line] == []


def essence(node: str, flagged_at: float, part: str, evidence: list[dict[str, Any]]) -> tuple[Any, ...]:
    """What two ways to the same verdict must agree on."""
    reasons = {(e["metric"], e["part"], e["reason"]) for e in evidence}
    return node, flagged_at, part, reasons


def test_recorded_and_replayed_it_says_the_same(planted: Planted, tmp_path: Path) -> None:
    """The live incidents up to an evaluation time, against the replay of the same grid of times.

    The service judges from a store that ends before the onset, as one that ran all the time would.
    """
    body = planted.service.get("/v1/suspects")[1]
    live = planted.service.get("/v1/incidents?was_suspect=true")[1]["incidents"]
    at = body["at"]
    start = planted.suspects["at"] - BACKFILL_S - STEP
    done = command("record", "--url", planted.vm.url, "--start", start, "--end", at, tmp_path / "case")
    assert done.returncode == 0, done.stderr
    done = command("replay", tmp_path / "case", "--json", tmp_path / "said.jsonl")
    assert done.returncode == 1, done.stderr
    (line,) = (tmp_path / "said.jsonl").read_text().splitlines()
    said = json.loads(line)
    assert said["evaluations"] == round((at - start) / STEP)
    assert [essence(i["node"], i["suspect_at"], i["part"], i["evidence"]) for i in live] == [
        essence(f["node"], f["flagged_at"], f["part"], f["evidence"]) for f in said["flags"]
    ]
    assert [i["cleared_at"] for i in live] == [f["cleared_at"] for f in said["flags"]] == [None]
    assert [i["peak_score"] for i in live] == [f["score"] for f in said["flags"]]


def head_samples(prometheus: servers.Server) -> float:
    with urllib.request.urlopen(f"{prometheus.url}/metrics", timeout=30) as answer:
        rows = answer.read().decode().splitlines()
    name = 'prometheus_tsdb_head_samples_appended_total{type="float"} '
    return sum(float(row.removeprefix(name)) for row in rows if row.startswith(name))


def test_on_prometheus(fresh_prometheus: servers.Server, tmp_path: Path) -> None:
    """A vmagent writes to Prometheus; one GPU is throttled, which no error tells."""
    cluster = reference_cluster("gpu_throttle", "gpu042", "gpu 5", history_s=1200, age_s=480)
    onset = cluster.faults[0].onset
    fed_to, len_of_history = onset + 480, 41
    with ExitStack() as stack:
        url = fresh_prometheus.url
        agent = stack.enter_context(
            servers.vmagent(tmp_path / "agent", "", url, "-remoteWrite.queues=1")  # one keeps the order
        )
        feeder = Feeder(agent.url, cluster)
        sent = feeder.load(cluster.config.start, fed_to, batch=len_of_history)
        servers.wait_until(lambda: head_samples(fresh_prometheus) >= sent, "all samples are written", 90)
        stack.enter_context(fed_live(feeder, fed_to + STEP))
        seed_store(tmp_path, onset - 5 * STEP)
        service = Serving(
            tmp_path,
            {"source": {"url": url, "kind": "prometheus"}, "schedule": {"backfill_s": BACKFILL_S + 300}},
        )
        stack.callback(service.kill)
        body = service.wait_for("/v1/suspects", lambda body: body["at"] >= fed_to - STEP, "it is evaluated")
        assert body["n_nodes"] == 63
        assert [s["node"] for s in body["suspects"]] == ["gpu042"], json.dumps(body["suspects"])
        suspect = body["suspects"][0]
        assert suspect["part"] == "gpu 5"
        assert onset + 200 <= suspect["suspect_since"] <= onset + 420
        metrics = {item["metric"] for item in suspect["evidence"] if item["part"] == "gpu 5"}
        assert "DCGM_FI_DEV_SM_CLOCK" in metrics
        assert metrics & {"DCGM_FI_DEV_GPU_TEMP", "all_smi_gpu_temperature_celsius"}
        service.wait_for("/readyz", lambda body: body["status"] == "ready", "the tick has ended")
        assert service.metric('oddnode_suspect{node="gpu042"}') == 1.0
        assert_no_complaint(service)
        assert service.end() == 0

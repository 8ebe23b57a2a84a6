"""The service against a real database: the window is filled at start, a fault in it is named at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.servers import Server, post
from tests.test_service_serve import Process, wait_for

STEP, N_STEPS, N_NODES, FAULTY = 30, 70, 12, "gpu007"
FAULT_STEPS = 24


def feed(server: Server) -> None:
    """Import half an hour up to now; one GPU of one node got hot and idle twelve minutes ago."""
    rng = np.random.default_rng(11)
    now = time.time()  # noqa: TID251 - a live database holds live times
    times = [int((now - STEP * k) * 1000) for k in range(N_STEPS, -2, -1)]
    n = len(times)
    lines = []
    for node in range(N_NODES):
        for gpu in range(4):
            is_bad = np.zeros(n)
            if f"gpu{node:03d}" == FAULTY and gpu == 2:
                is_bad[-FAULT_STEPS:] = 1
            noise = rng.normal(0, 1, (3, n))
            for name, values in {
                "DCGM_FI_DEV_GPU_UTIL": 97 + noise[0] * 0.5 - 60 * is_bad,
                "DCGM_FI_DEV_GPU_TEMP": np.round(60 + noise[1] + 30 * is_bad),
                "DCGM_FI_DEV_POWER_USAGE": 800 + 5 * noise[2] - 500 * is_bad,
            }.items():
                labels = {
                    "__name__": name,
                    "Hostname": f"gpu{node:03d}",
                    "gpu": str(gpu),
                    "UUID": f"G{node}-{gpu}",
                }
                lines.append(json.dumps({"metric": labels, "values": values.tolist(), "timestamps": times}))
    post(server.url, "/api/v1/import", "\n".join(lines).encode())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Process]]:
    running: list[Process] = []

    def begin(settings: dict[str, Any]) -> Process:
        running.append(Process(tmp_path, settings))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait(30)


@pytest.mark.server
def test_a_fault_in_the_window_is_named_by_the_first_tick(
    fresh_vm: Server, start: Callable[[dict[str, Any]], Process]
) -> None:
    feed(fresh_vm)
    settings = {"source": {"url": fresh_vm.url}}
    service = start(settings)
    body = wait_for(
        lambda: found if (found := service.get("/v1/suspects"))[0] == 200 else None, what=service.text
    )[1]
    assert [s["node"] for s in body["suspects"]] == [FAULTY]
    assert body["suspects"][0]["part"] == "gpu 2"
    assert body["suspects"][0]["evidence"]
    assert body["n_nodes"] == N_NODES
    assert service.get("/readyz")[0] == 200
    assert {g["unit"] for g in service.get("/v1/groups")[1]["groups"]} == {"gpu"}
    first = service.get("/v1/incidents")[1]
    service.process.kill()
    service.process.wait(30)

    again = start(settings)
    body = wait_for(
        lambda: found if (found := again.get("/v1/suspects"))[0] == 200 else None, what=again.text
    )[1]
    assert [s["incident_id"] for s in body["suspects"]] == [i["id"] for i in first["incidents"]]
    assert again.get("/v1/incidents")[1]["total"] == first["total"]
    assert again.end() == 0


@pytest.mark.server
def test_the_own_past_is_read_back_from_the_database(
    fresh_vm: Server, start: Callable[[dict[str, Any]], Process]
) -> None:
    feed(fresh_vm)
    now = time.time()  # noqa: TID251 - a live database holds live times
    ages = range(86400 + 3000, 86400 - 300, -STEP)
    times = [int((now - age) * 1000) for age in ages]
    lines = []
    for k, node in enumerate((FAULTY, "gpu001")):
        labels = {"Hostname": node, "gpu": "2", "UUID": f"G{int(node[3:])}-2"}
        port = {"instance": f"{node}:9100", "device": "mlx5_0", "port": "1"}
        for name, at, values in (
            ("DCGM_FI_DEV_GPU_TEMP", labels, [50.0 + k] * len(times)),
            ("node_infiniband_port_data_received_bytes_total", port, [6e9 * n for n in range(len(times))]),
        ):
            metric = {"__name__": name, **at}
            lines.append(json.dumps({"metric": metric, "values": values, "timestamps": times}))
    post(fresh_vm.url, "/api/v1/import", "\n".join(lines).encode())
    service = start({"source": {"url": fresh_vm.url}})
    wait_for(lambda: service.get("/v1/suspects")[0] == 200, what=service.text)

    def past(query: str) -> dict[str, Any]:
        status, body = service.get(f"/v1/earlier?{query}")
        assert status == 200, body
        return dict(body)

    query = f"node={FAULTY}&metric=DCGM_FI_DEV_GPU_TEMP&part=gpu%202&label=gpu%3D2"
    body = past(f"{query}&before_s=86400")
    (one,) = body["series"]
    assert one["value"][-35:] == [50.0] * 35
    assert one["times"][-1] == body["at"] - 86400
    assert (one["part"], one["labels"], len(one["times"])) == ("gpu 2", {"gpu": "2"}, 40)
    assert past(f"{query}&before_s=172800")["series"] == [], "nothing is kept of then"
    assert past(f"{query}&before_s=60")["series"][0]["value"][-1] > 80
    rate = f"node={FAULTY}&metric=node_infiniband_port_data_received_bytes_total"
    assert past(f"{rate}&before_s=86400")["series"][0]["value"][-35:] == pytest.approx([2e8] * 35)
    assert past("node=nobody&metric=DCGM_FI_DEV_GPU_TEMP")["series"] == []
    assert past("node=gpu001&metric=nosuch")["series"] == []
    assert service.get(f"/v1/earlier?{query}&before_s=5")[0] == 422
    assert service.end() == 0

"""The service against a real database: the window is filled at start, a fault in it is named at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from tests.servers import Server, post
from tests.test_service_serve import Process, wait_for

STEP, N_STEPS, N_NODES, FAULTY = 30, 70, 12, "gpu007"
FAULT_STEPS = 24


def feed(server: Server, n_steps: int = N_STEPS, fault_steps: int = FAULT_STEPS) -> None:
    """Import half an hour up to now; one GPU of one node got hot and idle twelve minutes ago."""
    rng = np.random.default_rng(11)
    now = time.time()  # noqa: TID251 - a live database holds live times
    times = [int((now - STEP * k) * 1000) for k in range(n_steps, -2, -1)]
    n = len(times)
    lines = []
    for node in range(N_NODES):
        for gpu in range(4):
            is_bad = np.zeros(n)
            if f"gpu{node:03d}" == FAULTY and gpu == 2:
                is_bad[-fault_steps:] = 1
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

    def series(node: str, metric: str, **more: Any) -> dict[str, Any]:
        status, body = service.get(f"/v1/series?{urlencode({'node': node, 'metric': metric, **more})}")
        assert status == 200, body
        return dict(body)

    temp = {"metric": "DCGM_FI_DEV_GPU_TEMP", "part": "gpu 2", "label": "gpu=2"}
    at = series(FAULTY, **temp)["at"]
    day = at - 86400
    told = series(FAULTY, since=day - 1200, until=day, **temp)
    (one,) = told["series"]
    assert one["value"] == [50.0] * 41
    assert one["times"] == [day - 1200 + STEP * k for k in range(41)]
    assert (one["part"], one["labels"], told["every_s"], told["note"]) == ("gpu 2", {"gpu": "2"}, STEP, "")
    gone = series(FAULTY, since=day - 90_000, until=day - 86_400, **temp)
    assert gone["series"] == [], "nothing is kept of then"
    rate = series(FAULTY, "node_infiniband_port_data_received_bytes_total", since=day - 1200, until=day)
    assert rate["series"][0]["value"][-35:] == pytest.approx([2e8] * 35)
    assert series("nobody", "DCGM_FI_DEV_GPU_TEMP", since=day, until=at)["series"] == []
    assert series("gpu001", "nosuch", since=day, until=at)["series"] == []

    # a day and a half at once: few points, read back piece by piece where it would be too much
    long = series(FAULTY, since=day - 43_200, **temp)
    (one,) = long["series"]
    assert long["every_s"] == 64 * STEP
    assert one["times"][-1] == at
    assert len(one["times"]) < 130
    known = {time: value for time, value in zip(one["times"], one["value"], strict=True) if value is not None}
    old = {time: value for time, value in known.items() if time < at - STEP * N_STEPS - 60}
    assert set(old.values()) == {50.0}
    assert all(day - 3000 < time < day + 400 for time in old)
    assert known[at] > 80
    assert service.end() == 0


@pytest.mark.server
def test_a_chart_shows_an_onset_that_has_left_the_window(
    fresh_vm: Server, start: Callable[[dict[str, Any]], Process]
) -> None:
    feed(fresh_vm, n_steps=200, fault_steps=120)
    service = start({"source": {"url": fresh_vm.url}})
    query = {"node": FAULTY, "metric": "DCGM_FI_DEV_GPU_TEMP", "part": "gpu 2", "peers": 3}

    def series(**more: Any) -> dict[str, Any]:
        status, body = service.get(f"/v1/series?{urlencode(query | more)}")
        return dict(body) if status == 200 else {}

    window = wait_for(series, what=service.text)
    (now,) = window["series"]
    at = now["times"][-1]
    assert min(now["value"]) > 80, "the window holds nothing of before"
    onset = at - 120 * STEP
    told = series(since=onset - 900)
    (one,) = told["series"]
    assert (told["every_s"], told["note"]) == (2 * STEP, "")
    assert one["times"][0] - onset + 900 < 2 * STEP
    assert len(one["times"]) < 122
    values = dict(zip(one["times"], one["value"], strict=True))
    assert max(value for time, value in values.items() if time < onset - 120) < 70
    assert min(value for time, value in values.items() if time > onset + 120) > 80
    assert all(50 < value < 70 for value in one["median"])
    assert all(
        low < middle < high for low, middle, high in zip(one["low"], one["median"], one["high"], strict=True)
    )
    assert all(None not in peer["value"] for peer in one["peers"])
    # the newest part is the window itself
    kept = dict(zip(now["times"], zip(now["value"], now["low"], now["above"], strict=True), strict=True))
    shown = dict(zip(one["times"], zip(one["value"], one["low"], one["above"], strict=True), strict=True))
    both = {time: shown[time] for time in kept if time in shown}
    assert len(both) >= len(kept) // 2
    assert both == {time: kept[time] for time in both}
    # what is over is read back as well, and what was never there is empty
    (then,) = series(since=onset - 1020, until=onset - 120)["series"]
    assert max(then["value"]) < 70
    assert len(then["times"]) == 31
    assert series(since=onset - 90_000, until=onset - 80_000)["series"] == []
    assert service.end() == 0

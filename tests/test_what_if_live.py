"""Settings tried by a running service on a real VictoriaMetrics: with a raised threshold an alarm goes."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from api.what_if import WhatIfOut
from detector.cli import app
from detector.errors import OddnodeError
from tests import servers
from tests.test_service_serve import Process, wait_for

pytestmark = [pytest.mark.server, pytest.mark.slow]

STEP, FAULTY = 30, "gpu007"
PAST_STEPS, FUTURE_STEPS, BAD_STEPS = 160, 60, 40


def lines(now: float) -> bytes:
    """Return the samples of 12 nodes up to some time ahead; one GPU is hot and slow for the last minutes."""
    rng = np.random.default_rng(5)
    steps = np.arange(-PAST_STEPS, FUTURE_STEPS)
    times = ((math.floor(now / STEP) + steps) * STEP * 1000).tolist()
    made = []
    for n in range(12):
        for g in range(4):
            is_bad = (n == 7) & (g == 2) & (steps >= -BAD_STEPS)
            noise = rng.normal(0, 1, (3, len(steps)))
            signals = {
                "DCGM_FI_DEV_GPU_UTIL": 97 + noise[0] * 0.5 - 60 * is_bad,
                "DCGM_FI_DEV_GPU_TEMP": np.round(60 + noise[1] + 30 * is_bad),
                "DCGM_FI_DEV_POWER_USAGE": 800 + 5 * noise[2] - 500 * is_bad,
            }
            for name, values in signals.items():
                labels = {"__name__": name, "Hostname": f"gpu{n:03d}", "gpu": str(g), "UUID": f"GPU-{n}-{g}"}
                made.append(json.dumps({"metric": labels, "values": values.tolist(), "timestamps": times}))
    return "\n".join(made).encode()


@pytest.fixture
def service(fresh_vm: servers.Server, tmp_path: Path) -> Iterator[Process]:
    servers.import_lines(fresh_vm, lines(time.time_ns() / 1e9))
    settings: dict[str, Any] = {
        "source": {"url": fresh_vm.url},
        "store": {"path": str(tmp_path / "oddnode.db")},
        "schedule": {"backfill_s": 1800},
    }
    running = Process(tmp_path, settings)
    try:
        wait_for(lambda: running.get("/readyz")[0] == 200, seconds=120, what=running.text)
        yield running
    finally:
        running.process.kill()
        running.process.wait(30)


def send(running: Process, method: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port(), timeout=30)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, "/v1/what-if", json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def ended(running: Process) -> Any:
    wait_for(lambda: send(running, "GET")[1]["run"]["state"] != "running", seconds=120, what=running.text)
    return send(running, "GET")[1]


def test_a_raised_threshold_and_the_alarm_disappears(service: Process) -> None:
    status, body = send(service, "POST", {"changes": {"detection.z_threshold": 1000}, "hours": 0.5})
    assert status == 202
    assert send(service, "POST", {"changes": {"detection.z_threshold": 9}})[0] == 409
    answer = ended(service)
    WhatIfOut.model_validate(answer)
    run = answer["run"]
    assert run["state"] == "done", run["problem"]
    found = run["comparison"]
    assert found["end"] == body["at"] == run["end"]
    assert found["n_evaluations"] == 60
    assert found["n_nodes"] == 12
    assert (found["before"]["n_suspects"], found["after"]["n_suspects"]) == (1, 0)
    assert [(item["kind"], item["before"]["name"]) for item in found["differences"]] == [("lost", FAULTY)]
    assert service.get("/readyz")[0] == 200


def test_the_command_asks_the_service_and_a_try_can_be_called_off(service: Process) -> None:
    url = f"http://127.0.0.1:{service.port()}"
    arguments = ["what-if", "--url", url, "--hours", "0.5", "--set"]
    result = CliRunner().invoke(app, [*arguments, "detection.continuity_s=480"])
    assert result.exit_code == 1, result.output
    assert f"~ suspect {FAULTY}, gpu 2: would be named" in result.output
    assert "    continuity_s: 480\n" in result.output
    result = CliRunner().invoke(app, [*arguments, "detection.odd=1"])
    assert isinstance(result.exception, OddnodeError)
    assert "answered 422: 'detection.odd' is no setting" in str(result.exception)
    assert send(service, "POST", {"changes": {"detection.z_threshold": 9}, "hours": 6})[0] == 202
    assert send(service, "DELETE")[0] == 200
    assert ended(service)["run"]["state"] == "cancelled"
    assert service.end() == 0

"""What `oddnode suspects` prints, asked of a real service and of things that are none."""

import threading

import pytest
import uvicorn
from typer.testing import CliRunner

from api.app import create_app
from detector.cli import app
from detector.cli_suspects import lines
from detector.errors import OddnodeError
from tests.test_api import view

__all__ = ["view"]  # a fixture

EMPTY = {"at": 1767225600.0, "data_age_s": 12.0, "suspects": [], "n_nodes": 3, "undetermined": {}}


def test_lines_of_nothing_and_of_what_cannot_be_judged():
    assert lines(EMPTY, 6)[-1] == "no suspect"
    assert "2026-01-01 00:00:00 UTC, data 12 s old, 3 nodes" in lines(EMPTY, 6)[0]
    blind = {**EMPTY, "undetermined": {"no data": 3}}
    assert "undetermined: 3 no data" in lines(blind, 6)


def test_lines_of_a_suspect_name_node_part_and_evidence():
    evidence = [{"metric": f"m{k}", "part": "gpu 3" if k == 0 else "", "reason": "rose"} for k in range(4)]
    one = {"node": "gpu004", "part": "gpu 3", "since": 1767225600.0, "score": 2.04, "evidence": evidence}
    shown = lines({**EMPTY, "suspects": [one]}, 2)
    assert shown[1] == "SUSPECT gpu004, gpu 3: since 2026-01-01 00:00:00 UTC, score 2.0, threshold 1"
    assert shown[2:] == ["  m0 [gpu 3]: rose", "  m1: rose", "  and 2 more signals"]
    assert "without data now" in lines({**EMPTY, "suspects": [{**one, "score": None}]}, 0)[1]


def test_lines_of_a_suspect_tell_its_diagnosis():
    diagnosis = {
        "class": "nvlink",
        "title": "NVLink of one GPU",
        "part": "gpu 3",
        "confidence": "likely",
        "reasons": ["XID 149 on gpu 3: a lost link"],
        "order": "GPU moved 90 s before NFS",
        "check": "reset it",
        "also": ["PCIe link"],
        "role": "culprit",
        "role_reason": "differed 90 s before 3 other nodes that went where the pool went",
    }
    one = {"node": "a", "part": "gpu 3", "since": 1767225600.0, "score": 2.0, "evidence": []}
    shown = lines({**EMPTY, "suspects": [{**one, "diagnosis": diagnosis}]}, 2)
    assert shown[2:] == [
        "  likely: NVLink of one GPU (gpu 3)",
        "    because XID 149 on gpu 3: a lost link",
        "    also possible: PCIe link",
        "  order: GPU moved 90 s before NFS",
        "  culprit: differed 90 s before 3 other nodes that went where the pool went",
        "  check: reset it",
    ]
    without = lines({**EMPTY, "suspects": [{**one, "diagnosis": None}]}, 2)
    assert without == lines({**EMPTY, "suspects": [one]}, 2)


def test_what_is_no_service_is_said_in_one_sentence():
    result = CliRunner().invoke(app, ["suspects", "--url", "http://127.0.0.1:9"])
    assert isinstance(result.exception, OddnodeError)
    assert "no answer" in str(result.exception)


@pytest.mark.parametrize("is_found", [True, False])
def test_a_service_is_asked_and_the_exit_code_tells(is_found, view):
    if not is_found:
        view.now_latest = None
    server = uvicorn.Server(uvicorn.Config(create_app(view), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        result = CliRunner().invoke(app, ["suspects", "--url", f"http://127.0.0.1:{port}"])
    finally:
        server.should_exit = True
        thread.join(10)
    if is_found:
        assert result.exit_code == 1
        assert "SUSPECT gpu068, gpu 3: since" in result.stdout
        assert "SUSPECT gone" in result.stdout
    else:
        assert result.exit_code == 3
        assert "nothing has been evaluated yet" in result.stdout

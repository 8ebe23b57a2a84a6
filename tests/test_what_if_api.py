"""Trying settings over REST: one at a time, in a process of its own, bounded, called off; bad input."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.access import Policy
from api.app import create_app
from api.examples_what_if import CANCELLED, STARTED, WHAT_IF, WHAT_IF_IN
from api.schemas import ErrorOut
from api.what_if import WhatIfIn, WhatIfOut
from detector import cli_what_if
from detector.cli import app
from detector.control.model import Mute
from detector.errors import OddnodeError
from detector.settings import RecordingSettings, Settings
from detector.settings_what_if import WhatIfSettings
from detector.what_if import trials as trials_module
from detector.what_if.trials import COMMAND, Trials
from tests.control_fakes import LOCAL, Cluster
from tests.servers import listening, wait_until
from tests.service_fakes import Plan
from tests.test_access import OPERATOR, READER, bearer, policy
from tests.test_what_if import FAULTY, N_STEPS, START, STEP, write_recording

CHANGE = {"changes": {"detection.z_threshold": 1000}, "hours": 1}
HANGS = (sys.executable, "-c", "import sys; sys.stdin.buffer.read()")
SAYS = "import sys; sys.stdin.buffer.readline(); print({!r}, flush=True)"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("case") / "small")


def settings_of(case: Path | None = None, **bounds: Any) -> Settings:
    what_if = WhatIfSettings.model_validate(bounds)
    return Settings().model_copy(update={"recording": RecordingSettings(path=case), "what_if": what_if})


class Running:
    """A service whose newest evaluation is at T0 plus some steps, with tries."""

    def __init__(self, folder: Path, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        end = float(STEP * N_STEPS)
        plans = (Plan(FAULTY, end - 90, end - 30, end + 900),)
        self.cluster = Cluster(folder / "oddnode.db", plans, now=START + end - 4 * STEP).run(4)
        self.trials = Trials(lambda: settings, command=command)

    def client(self, chosen: Policy | None = None) -> TestClient:
        served = self.cluster.app(chosen, self.trials)
        return TestClient(served, base_url=LOCAL, raise_server_exceptions=False)

    def close(self) -> None:
        self.trials.close()
        self.cluster.close()


Make = Callable[..., Running]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Running] = []

    def start(settings: Settings, command: Sequence[str] = COMMAND) -> Running:
        made.append(Running(tmp_path, settings, command))
        return made[-1]

    yield start
    for running in made:
        running.close()
    wait_until(
        lambda: not any(thread.name == "oddnode-what-if" for thread in threading.enumerate()), "it ends"
    )


def begin(client: TestClient, sent: Any = CHANGE, **more: Any) -> Any:
    answer = client.post("/v1/what-if", json=sent, **more)
    assert answer.status_code == 202, answer.text
    WhatIfOut.model_validate(answer.json())
    return answer.json()


def ended(client: TestClient, **more: Any) -> Any:
    def is_over() -> bool:
        return bool(client.get("/v1/what-if", **more).json()["run"]["state"] != "running")

    wait_until(is_over, "the try ends", WAIT_S)
    answer = client.get("/v1/what-if", **more).json()
    WhatIfOut.model_validate(answer)
    return answer


def test_a_raised_threshold_loses_the_alarm(make: Make, case: Path) -> None:
    running = make(settings_of(case))
    with running.client() as client:
        before = client.get("/v1/what-if").json()
        assert (before["is_on"], before["max_hours"], before["run"], before["n_named"]) == (
            True,
            6.0,
            None,
            None,
        )
        offered = {item["name"]: item for item in before["settings"]}
        assert offered["detection.z_threshold"]["value"] == 5.0
        begun = begin(client)["run"]
        assert (begun["state"], begun["by"], begun["number"]) == ("running", "anonymous", 1)
        answer = ended(client)
    run = answer["run"]
    assert (run["state"], run["problem"], run["progress"]) == ("done", "", 1.0)
    assert run["end"] == START + STEP * N_STEPS
    assert run["advice"] == ["detection:", "  z_threshold: 1000"]
    found = run["comparison"]
    assert found["before"]["n_suspects"] == 1
    assert found["after"]["n_suspects"] == 0
    (lost,) = found["differences"]
    assert (lost["kind"], lost["before"]["name"], lost["after"]) == ("lost", FAULTY, None)
    assert answer["n_named"] == 1, "what the service itself had named then"


def test_one_at_a_time_and_it_can_be_called_off(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    running = make(settings_of(), HANGS)
    with caplog.at_level(logging.INFO), running.client() as client:
        refused(client.delete("/v1/what-if"), 409, "no try is under way")
        begin(client, {**CHANGE, "by": "kim"})
        refused(client.post("/v1/what-if", json=CHANGE), 409, "a try of kim is under way, 0% done")
        assert client.get("/v1/what-if").json()["run"]["took_s"] >= 0
        answer = client.delete("/v1/what-if")
        assert (answer.status_code, answer.json()["run"]["state"]) == (200, "cancelled")
        assert ended(client)["run"]["state"] == "cancelled"
        assert begin(client)["run"]["number"] == 2, "then there is room for the next one"
    wait_until(lambda: "what_if ended=1" in caplog.text, "the end is logged")
    assert "what_if started=1 by='kim' hours=1" in caplog.text
    assert "what_if ended=1 state=cancelled" in caplog.text


class EndsWhenTold(Trials):
    """Tries whose end is taken in only when a test allows it."""

    def __init__(self) -> None:
        super().__init__(settings_of, command=HANGS)
        self.may_end = threading.Event()

    def _finish(self, *told: Any) -> None:
        assert self.may_end.wait(WAIT_S)
        super()._finish(*told)


def test_a_try_that_was_called_off_is_so_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "ENDS_WITHIN_S", 0.01)
    running = make(settings_of())
    running.trials = tries = EndsWhenTold()
    try:
        with running.client() as client:
            begin(client)
            called_off = client.delete("/v1/what-if").json()["run"]
            assert called_off["state"] == "cancelled"
            assert client.get("/v1/what-if").json()["run"] == called_off, "its process has not ended yet"
            refused(client.delete("/v1/what-if"), 409, "no try is under way")
            refused(client.post("/v1/what-if", json=CHANGE), 409, "has not ended yet")
            tries.may_end.set()
            wait_until(lambda: not any(t.name == "oddnode-what-if" for t in threading.enumerate()), "it ends")
            assert client.get("/v1/what-if").json()["run"] == called_off
            assert begin(client)["run"]["number"] == 2
    finally:
        tries.may_end.set()


def test_who_calls_a_try_off_can_begin_the_next_one(make: Make) -> None:
    running = make(settings_of())
    running.trials = tries = EndsWhenTold()
    with running.client() as client:
        begin(client)
        later = threading.Timer(0.3, tries.may_end.set)
        later.start()
        assert client.delete("/v1/what-if").status_code == 200
        assert begin(client)["run"]["number"] == 2
        later.join()


def test_a_number_calls_off_that_try_only(make: Make) -> None:
    running = make(settings_of(), HANGS)
    with running.client() as client:
        begin(client)
        refused(client.delete("/v1/what-if?number=2"), 409, "try 2 is not under way, but try 1 is")
        refused(client.delete("/v1/what-if?number=0"), 422, "number")
        assert client.get("/v1/what-if").json()["run"]["state"] == "running"
        assert client.delete("/v1/what-if?number=1").json()["run"]["state"] == "cancelled"


def another(running: Running) -> None:
    """Let somebody else's try take the place of the one that is under way."""
    running.trials.cancel()
    running.trials.start({"detection.z_threshold": 9.0}, 1.0, START + STEP * N_STEPS, "mallory\x1b[2J")


def asked(running: Running, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> str:
    """Run the command; something happens before it asks how far its try is. Return what it complains of."""
    monkeypatch.setattr(cli_what_if, "time", SimpleNamespace(sleep=lambda _: meanwhile()))
    with listening(running.cluster.app(None, running.trials)) as url:
        arguments = ["what-if", "--url", url, "--set", "detection.z_threshold=1000"]
        result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, OddnodeError), result.output
    assert result.stdout == ""
    return str(result.exception)


def test_the_command_follows_its_own_try_only(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    running = make(settings_of(), HANGS)
    told = asked(running, monkeypatch, lambda: another(running))
    assert "another try, number 2 of mallory [2J, has taken the place of this one, number 1" in told
    newest = running.trials.newest()
    assert newest is not None
    assert (newest.number, newest.state) == (2, "running")


def test_the_command_knows_its_try_from_one_of_a_restarted_service(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make(settings_of(), HANGS)

    def restarted() -> None:
        running.trials._n = 0
        another(running)

    assert "another try, number 1 of mallory" in asked(running, monkeypatch, restarted)


@pytest.mark.parametrize(("is_replaced", "left"), [(False, (1, "cancelled")), (True, (2, "running"))])
def test_ctrl_c_calls_off_its_own_try_only(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_replaced: bool, left: tuple[int, str]
) -> None:
    running = make(settings_of(), HANGS)

    def interrupted() -> None:
        if is_replaced:
            another(running)
        raise KeyboardInterrupt

    assert "called off" in asked(running, monkeypatch, interrupted)
    newest = running.trials.newest()
    assert newest is not None
    assert (newest.number, newest.state) == left


def test_the_end_of_the_service_ends_it(make: Make) -> None:
    running = make(settings_of(), HANGS)
    with running.client() as client:
        begin(client)
        running.trials.close()
        assert ended(client)["run"]["state"] == "cancelled"


def test_a_child_without_its_service_ends(case: Path) -> None:
    import pickle
    import subprocess

    from detector.what_if.knobs import changed
    from detector.what_if.run import Job

    settings = settings_of(case)
    job = Job(settings, changed(settings, {"detection.z_threshold": 9.0}), case=case)
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(pickle.dumps(job))
        child.stdin.flush()
        line = json.loads(child.stdout.readline())
        assert line["type"] == "advanced"
        child.stdin.close()
        assert child.wait(30) == 1


@pytest.mark.parametrize(
    ("command", "bounds", "told"),
    [
        (HANGS, {"time_limit_s": 1.0}, "not done after 1 s (what_if.time_limit_s): try fewer hours"),
        ((sys.executable, "-c", "raise SystemExit(9)"), {}, "its process ended with 9 and said nothing"),
        ((sys.executable, "-c", SAYS.format("no JSON")), {}, "said nothing"),
        ((sys.executable, "-c", SAYS.format('{"type": "failed", "problem": "odd"}')), {}, "odd"),
    ],
    ids=["too slow", "dies", "garbled", "fails"],
)
def test_a_try_that_fails_says_why(
    make: Make, command: Sequence[str], bounds: dict[str, Any], told: str
) -> None:
    running = make(settings_of(**bounds), command)
    with running.client() as client:
        begin(client)
        run = ended(client)["run"]
        assert run["state"] == "failed"
        assert told in run["problem"]
        assert run["comparison"] is None


def test_bounds_and_nothing_recorded_are_told(make: Make, case: Path) -> None:
    running = make(settings_of(case, max_series=10))
    with running.client() as client:
        begin(client)
        assert "more than 10 series (what_if.max_series)" in ended(client)["run"]["problem"]
        assert running.trials.newest().comparison is None  # type: ignore[union-attr]
    running.trials = Trials(lambda: settings_of(case))
    running.cluster.clock.t += 86_400
    running.cluster.run(1)
    with running.client() as client:
        begin(client)
        assert "nothing is recorded from" in ended(client)["run"]["problem"]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"changes": {}}, "changes: dictionary should have at least 1 item"),
        ({}, "changes: field required"),
        ({"changes": {"detection.odd": 1}}, "'detection.odd' is no setting that can be tried"),
        ({"changes": {"x" * 101: 1}}, "at most 100 characters"),
        ({"changes": {f"k{n}": 1 for n in range(21)}}, "at most 20 items"),
        ({"changes": {"detection.z_threshold": 0.1}}, "must be from 0.5 to 1000, not 0.1"),
        ({"changes": {"detection.z_threshold": "8"}}, "valid number"),
        ({"changes": {"detection.z_threshold": True}}, "valid number"),
        ({"changes": {"detection.z_threshold": None}}, "valid number"),
        ({"changes": {"detection.min_peers": 3.5}}, "must be a whole number"),
        ({"changes": {"detection.z_threshold": 5.0}}, "nothing is changed"),
        ({**CHANGE, "hours": 0}, "hours: input should be greater than 0"),
        ({**CHANGE, "hours": 7}, "hours: must be more than 0 and at most 6 (what_if.max_hours)"),
        ({**CHANGE, "hours": 1e9}, "hours: input should be less than or equal to 168"),
        ({**CHANGE, "path": "/etc/passwd"}, "extra"),
        ({**CHANGE, "by": "a\nb"}, "one line"),
    ],
)
def test_bad_input_is_named(make: Make, sent: Any, told: str) -> None:
    with make(settings_of(), HANGS).client() as client:
        refused(client.post("/v1/what-if", json=sent), 422, told)
        assert client.get("/v1/what-if").json()["run"] is None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_no_number_that_is_none_gets_in(make: Make, value: str) -> None:
    with make(settings_of(), HANGS).client() as client:
        for body in (
            f'{{"changes": {{"detection.z_threshold": {value}}}}}',
            f'{{"changes": {{"detection.z_threshold": 8}}, "hours": {value}}}',
        ):
            answer = client.post("/v1/what-if", content=body, headers={"content-type": "application/json"})
            refused(answer, 422, "finite number")


def test_it_can_be_switched_off(make: Make) -> None:
    with make(settings_of(enabled=False), HANGS).client() as client:
        assert client.get("/v1/what-if").json()["is_on"] is False
        refused(client.post("/v1/what-if", json=CHANGE), 409, "what_if.enabled")


def test_a_try_is_a_change_for_who_may_and_for_pages_of_the_service(make: Make) -> None:
    with make(settings_of(), HANGS).client(policy()) as client:
        refused(client.get("/v1/what-if"), 401, "token")
        refused(client.post("/v1/what-if", json=CHANGE, headers=bearer(READER)), 403, "scope operate")
        refused(client.delete("/v1/what-if", headers=bearer(READER)), 403, "scope operate")
        begun = begin(client, {**CHANGE, "by": "another"}, headers=bearer(OPERATOR))
        assert begun["run"]["by"] == "kim", "the name of the token"
        assert client.get("/v1/what-if", headers=bearer(READER)).json()["run"]["by"] == "kim"
        foreign = {**bearer(OPERATOR), "Sec-Fetch-Site": "cross-site"}
        refused(client.delete("/v1/what-if", headers=foreign), 403, "other sites")
        assert client.delete("/v1/what-if", headers=bearer(OPERATOR)).status_code == 200


def test_before_the_first_evaluation_and_where_it_is_not_done(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "oddnode.db")
    try:
        with TestClient(cluster.app(None, Trials(settings_of, command=HANGS)), base_url=LOCAL) as client:
            assert client.get("/v1/what-if").json()["at"] is None
            refused(client.post("/v1/what-if", json=CHANGE), 503, "nothing was evaluated")
        with TestClient(create_app(cluster.service), base_url=LOCAL) as client:
            for method in ("GET", "POST", "DELETE"):
                refused(client.request(method, "/v1/what-if", json=CHANGE), 503, "the replica that leads")
    finally:
        cluster.close()


def test_mutes_of_metrics_go_along(make: Make, case: Path) -> None:
    running = make(settings_of(case))
    mutes = [
        Mute(id="m", metric=metric, start=START - 10, until=START + 90_000, reason="odd", by="kim", made_at=0)
        for metric in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "")
    ]
    running.trials = Trials(lambda: settings_of(case), lambda: mutes)
    with running.client() as client:
        begin(client)
        assert ended(client)["run"]["comparison"]["before"]["n_suspects"] == 0


def test_examples_fit_the_schemas() -> None:
    for example in (WHAT_IF, STARTED, CANCELLED):
        assert WhatIfOut.model_validate(example).model_dump(mode="json") == example
    WhatIfIn.model_validate(WHAT_IF_IN)


def refused(answer: Any, status: int, word: str) -> None:
    assert answer.status_code == status, answer.text
    assert word in ErrorOut.model_validate(answer.json()).error.message, answer.text

"""A recording that is played, looked at as of any of its evaluations."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from api.marks import labels_at
from detector import service_recorded
from detector.control.model import Action, AuditEntry
from detector.core.series_view import SeriesQuery
from detector.replay import replay_case
from detector.service_recorded import Recorded
from detector.service_view import Latest, NotKeptError
from detector.store_read import IncidentFilter
from grouping.catalog import load_catalog
from tests.builders import START, STEP, Telemetry, gauge, tasks
from tests.test_service_serve import FAULTY, N_STEPS, ONSET, Process, wait_for, write_recording
from tests.test_service_serve import START as CASE_START

BAD = "gpu004"
END = CASE_START + STEP * N_STEPS


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("case") / "small")


@pytest.fixture(scope="module")
def service(case: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """All of it is evaluated by the first tick: it begins at its end."""
    settings = {"recording": {"path": str(case), "at": END}}
    running = Process(tmp_path_factory.mktemp("service"), settings)
    try:
        wait_for(lambda: extent(running)["last_at"] == END, seconds=120, what=running.text)
        yield running
    finally:
        running.process.kill()
        running.process.wait(30)


def get(running: Process, path: str, **query: Any) -> dict[str, Any]:
    status, body = running.get(f"/v1/{path}{'?' if query else ''}{urlencode(query)}")
    assert status == 200, body
    return dict(body)


def say(running: Process, path: str, **sent: Any) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.port()}{path}",
        data=json.dumps(sent).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(answer.status)


def extent(running: Process) -> dict[str, Any]:
    status, body = running.get("/v1/recording")
    return dict(body["recording"]) if status == 200 else {"last_at": None}


@pytest.fixture(scope="module")
def flag(case: Path) -> dict[str, Any]:
    (found,) = replay_case(case, load_catalog()).as_json()["flags"]
    assert found["node"] == FAULTY
    return dict(found)


def test_the_extent_and_when_who_was_named(service: Process, flag: dict[str, Any]) -> None:
    told = extent(service)
    assert (told["name"], told["start"], told["end"], told["step_s"]) == ("small", CASE_START, END, STEP)
    assert (told["first_at"], told["last_at"]) == (CASE_START + STEP, END)
    assert told["n_evaluations"] == N_STEPS
    (mark,) = told["marks"]
    assert (mark["node"], mark["state"], mark["at"]) == (FAULTY, "suspect", flag["flagged_at"])
    assert mark["incident_id"] == get(service, "suspects")["suspects"][0]["incident_id"]


def test_everything_is_shown_as_it_was(service: Process, flag: dict[str, Any]) -> None:
    named, onset = flag["flagged_at"], CASE_START + STEP * ONSET
    for at, status in ((onset - 60, "clear"), (named - STEP, "pending"), (named + 10, "suspect")):
        then = at // STEP * STEP
        found = get(service, "suspects", at=at)
        assert (found["at"], found["data_age_s"]) == (then, 0)
        assert [item["node"] for item in found["suspects"]] == ([FAULTY] if status == "suspect" else [])
        assert {n["node"]: n["status"] for n in get(service, "nodes", at=at)["nodes"]}[FAULTY] == status
        one = get(service, f"nodes/{FAULTY}", at=at)
        assert (one["at"], one["node"]["status"]) == (then, status)
        assert [item["state"] for item in one["incidents"]] == ([] if status == "clear" else [status])
        fleet = {n["node"]: n for n in get(service, "fleet", at=at)["nodes"]}
        assert (max(fleet[FAULTY]["cells"], key=lambda cell: cell or 0) or 0) > 0 or status == "clear"
        assert fleet[FAULTY]["status"] == status
        told = get(service, "explain", node=FAULTY, at=at)
        if status == "clear":
            assert told["basis"] == "history"
            assert f"oddnode explain {FAULTY} CASE --at {then:.0f}" in told["note"]
        else:
            assert (told["explanation"]["status"], told["explanation"]["at"]) == (status, then)
        incidents = get(service, "incidents", at=at)
        assert [item["suspect_at"] for item in incidents["incidents"]] == (
            [] if status == "clear" else [named if status == "suspect" else None]
        )
        assert get(service, "incidents", at=at, was_suspect="true")["total"] == (status == "suspect")
        steps = service.get(f"/v1/incidents/{flag['node']}@{flag['since']:.0f}?at={at}")
        assert steps[0] == (404 if status == "clear" else 200)
        if status != "clear":
            assert [step["after"] for step in steps[1]["transitions"]] == (
                ["pending", "suspect"] if status == "suspect" else ["pending"]
            )


def test_charts_end_at_that_time_and_show_what_was_then(service: Process) -> None:
    metric = "DCGM_FI_DEV_GPU_TEMP"
    query = {"node": FAULTY, "metric": metric, "part": "gpu 2", "peers": 3}
    for at in (CASE_START + STEP * 10, CASE_START + STEP * (ONSET + 3), END - STEP):
        (one,) = get(service, "series", at=at, **query)["series"]
        n = min(40, round((at - CASE_START) / STEP))
        assert (one["times"][-1], len(one["times"])) == (at, n)
        hot = [time for time, value in zip(one["times"], one["value"], strict=True) if value > 75]
        first = CASE_START + STEP * ONSET
        assert hot == [time for time in one["times"] if time >= first]
        assert len(one["peers"]) == 3
    assert service.get(f"/v1/series?{urlencode(query)}&at={CASE_START}")[0] == 422


def test_a_chart_begins_when_it_is_asked_to_and_has_not_too_many_points(service: Process) -> None:
    query = {"node": FAULTY, "metric": "DCGM_FI_DEV_GPU_TEMP", "part": "gpu 2", "peers": 3}
    onset = CASE_START + STEP * ONSET
    for at in (END, END - STEP):
        since = onset - 300
        told = get(service, "series", at=at, since=since, **query)
        (one,) = told["series"]
        assert one["times"] == [since + STEP * k for k in range(round((at - since) / STEP) + 1)]
        hot = [time for time, value in zip(one["times"], one["value"], strict=True) if value > 75]
        assert hot == [time for time in one["times"] if time >= onset]
        assert (told["every_s"], told["note"]) == (STEP, "")
        assert all(len(peer["value"]) == len(one["times"]) for peer in one["peers"])
    # not later than what is shown, and up to then
    (one,) = get(service, "series", at=onset, since=0, until=END, **query)["series"]
    assert one["times"][-1] == onset
    (one,) = get(service, "series", since=onset, until=onset + 60, **query)["series"]
    assert one["times"] == [onset, onset + STEP, onset + 2 * STEP]
    assert get(service, "series", since=0, until=60, **query)["series"] == []
    # of a long time every other evaluation, with the newest
    (one,) = get(service, "series", since=END - 150 * STEP, **query)["series"]
    assert one["times"][-1] == END
    assert {time % (2 * STEP) for time in one["times"][:-1]} == {0}


def test_the_report_of_an_incident_is_as_of_that_time(service: Process, flag: dict[str, Any]) -> None:
    path = f"/v1/incidents/{flag['node']}@{flag['since']:.0f}/report"
    status, page = service.get(path)
    assert status == 200
    assert f"<h1>{FAULTY}, gpu 2</h1>" in page
    n = len(get(service, "suspects")["suspects"][0]["evidence"])
    assert page.count("class='value'") >= n > 1, "each piece has a chart"
    assert "pending to suspect" in page
    assert "have no chart" not in page
    earlier = service.get(f"{path}?at={flag['flagged_at'] - STEP}")[1]
    assert "never" in earlier.split("<dt>named</dt>")[1][:20]
    assert "pending to suspect" not in earlier
    assert service.get(f"{path}?at={CASE_START + STEP}")[0] == 404
    assert service.get("/v1/incidents/nobody@1/report")[0] == 404


def test_what_operators_said_later_had_not_been_said_then(service: Process, flag: dict[str, Any]) -> None:
    incident = f"{FAULTY}@{flag['since']:.0f}"
    assert say(service, f"/v1/incidents/{incident}/acknowledge", by="kim") == 200
    assert say(service, "/v1/mutes", node=FAULTY, for_s=600, reason="x", by="kim") == 201
    for query, is_said in (({}, True), ({"at": END}, True), ({"at": END - STEP}, False)):
        (suspect,) = get(service, "suspects", **query)["suspects"]
        node = get(service, f"nodes/{FAULTY}", **query)
        (of_all,) = [n for n in get(service, "nodes", **query)["nodes"] if n["node"] == FAULTY]
        (cell,) = [n for n in get(service, "fleet", **query)["nodes"] if n["node"] == FAULTY]
        one = get(service, f"incidents/{incident}", **query)["incident"]
        (listed,) = get(service, "incidents", **query)["incidents"]
        for shown in (suspect, node["node"], of_all, *node["incidents"], one, listed):
            assert (shown["acknowledged"] is not None) == is_said
        for shown in (suspect, node["node"], of_all):
            assert (shown["muted"] is not None) == is_said
        assert cell["is_muted"] == is_said


def test_labels_are_those_that_the_trail_had_by_then() -> None:
    def line(at: float, action: Action, subject: str = "incident a@1") -> AuditEntry:
        return AuditEntry(at=at, by="kim", action=action, subject=subject, note="n")

    trail = [
        line(50, Action.EXPORT),
        line(40, Action.REOPEN),
        line(30, Action.DISMISS),
        line(20, Action.ACKNOWLEDGE),
        line(10, Action.REPAIRED, "node a"),
        line(10, Action.REOPEN, "incident b@1"),
    ]
    assert labels_at(trail, 19) == {}
    said = {at: labels_at(trail, at)["a@1"] for at in (20, 30, 39, 40, 60)}
    assert [(label.acknowledges, label.hides) for label in said.values()] == [
        (True, False), (False, True), (False, True), (False, False), (False, False)
    ]  # fmt: skip
    assert (said[20].by, said[20].note, said[20].at) == ("kim", "n", 20)


@pytest.mark.parametrize("path", ["suspects", "fleet", "groups", "incidents", f"explain?node={FAULTY}"])
def test_before_the_first_evaluation_there_is_nothing(service: Process, path: str) -> None:
    status, body = service.get(f"/v1/{path}{'&' if '?' in path else '?'}at={CASE_START}")
    assert status == 422
    assert f"the first is {CASE_START + STEP:.0f}" in body["error"]["message"]


def test_a_wrong_beginning_is_an_error(case: Path, tmp_path: Path) -> None:
    running = Process(tmp_path, {"recording": {"path": str(case), "at": END + 1}})
    assert running.process.wait(60) == 2
    assert "recording.at" in running.text()
    assert "lies outside" in running.text()


@pytest.fixture
def told() -> Telemetry:
    """A node that is a suspect from the 50th evaluation or so, and clear later."""
    t = Telemetry(12, 1)
    t.add(gauge(t, "node_load1", 40, 2))
    t.add(tasks(t, lambda k, n: 869 if n == BAD and 40 <= k < 60 else None))
    t.run(110)
    return t


def kept(t: Telemetry) -> Recorded:
    found = Recorded("x", START, START + STEP * 110, STEP)
    for outcome in t.outcomes:
        found.keep(Latest(outcome), None, {}, None)
    return found


def test_incidents_and_steps_are_those_of_the_time(told: Telemetry) -> None:
    found = kept(told)
    named, cleared = (mark.at for mark in found.extent().marks)
    assert named < cleared
    view = _Service(told.outcomes[-1].at)
    for at, state in (
        (named - 1, "pending"),
        (named, "suspect"),
        (cleared - 1, "suspect"),
        (cleared, "cleared"),
    ):
        store = found.as_of(view, lambda query, frames: [], at).store
        (incident,) = store.incidents(IncidentFilter(node=BAD))
        assert incident.state == state
        assert store.count_incidents(IncidentFilter(state="open")) == (state != "cleared")
        assert store.incidents(IncidentFilter(node="gpu001")) == []
        assert len(store.transitions(incident_id=incident.id)) == 1 + (at >= named) + (at >= cleared)
        assert store.count_raised(named) == (at >= named)
    assert found.as_of(view, lambda query, frames: [], told.at(110)) is view, "the newest is now"


def test_what_is_kept_is_bounded(told: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kept(told).extent()
    monkeypatch.setattr(service_recorded, "MAX_VERDICT_BYTES", 20_000)
    found = kept(told)
    part = found.extent()
    assert whole.first_at == told.at(1)
    assert part.first_at is not None
    assert part.first_at > told.at(1)
    assert 1 < part.n_evaluations < whole.n_evaluations
    assert part.last_at == whole.last_at
    assert part.marks == whole.marks
    with pytest.raises(NotKeptError, match="no evaluation of"):
        found.as_of(_Service(0), lambda query, frames: [], told.at(1))


def watched(metrics: Sequence[str]) -> Telemetry:
    t = Telemetry(12, 1)
    levels = {"node_load1": lambda k, n: k + 100 * float(n[3:]), "node_procs_running": lambda k, n: 3.0}
    for name in metrics:
        t.add(gauge(t, name, 0, 0, levels[name]))
    return t


def test_charts_go_on_over_a_change_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Recorded("x", START, START + STEP * 110, STEP)
    old, new = watched(["node_load1"]), watched(["node_procs_running", "node_load1"])
    new.nodes.reverse()  # numbered in another order

    def play(t: Telemetry, first: int, last: int) -> None:
        for k in range(1, last + 1):
            t.run(1)
            if k >= first:
                found.keep(Latest(t.outcomes[-1]), None, {}, t.pipeline.window.frames()[-1])

    play(old, 1, 60)
    found.begin_era(old.pipeline.interner, old.pipeline.yardstick())
    play(new, 61, 110)
    query = SeriesQuery(BAD, "node_load1", since=new.at(41), n_lines=3)
    (one,) = found.series(query, new.at(90), new.pipeline.series_view)
    assert one.times.tolist() == [new.at(k) for k in range(41, 91)]
    assert one.value.tolist() == [k + 400 for k in range(41, 91)]
    assert one.median.tolist() == [k + 650 for k in range(41, 91)]
    for line in one.lines:
        assert line.value.tolist() == [k + 100 * float(line.node[3:]) for k in range(41, 91)]
    # as of before the change, and the window of a chart without a beginning
    (then,) = found.series(query, new.at(50), new.pipeline.series_view)
    assert then.times[-1] == new.at(50)
    assert np.array_equal(then.value, one.value[:10])
    (window,) = found.series(replace(query, since=-math.inf), new.at(70), new.pipeline.series_view)
    assert window.times.tolist() == [new.at(k) for k in range(31, 71)]
    # what the settings of before did not compare begins where it is compared
    (procs,) = found.series(replace(query, metric="node_procs_running"), new.at(90), new.pipeline.series_view)
    assert procs.times[0] == new.at(61)

    # bounded: the oldest are dropped first, whoever numbered them
    monkeypatch.setattr(
        service_recorded, "MAX_FRAME_BYTES", 40 * new.pipeline.window.frames()[-1].values.nbytes
    )
    new.run(1)
    found.keep(Latest(new.outcomes[-1]), None, {}, new.pipeline.window.frames()[-1])
    (part,) = found.series(replace(query, since=0.0), new.at(111), new.pipeline.series_view)
    assert new.at(61) <= part.times[0] < part.times[-1] == new.at(111)
    for _ in range(6):
        found.begin_era(new.pipeline.interner, new.pipeline.yardstick())
        new.run(1)
        found.keep(Latest(new.outcomes[-1]), None, {}, new.pipeline.window.frames()[-1])
    assert len(found._former) <= service_recorded.MAX_FORMER


class _Service:
    """Only handed on."""

    def __init__(self, at: float) -> None:
        self.store = None
        self.at = at

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(json.dumps(name))

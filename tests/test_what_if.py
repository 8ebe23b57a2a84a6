"""Which alarms other settings would have raised: what counts as a difference, and the same code as replay."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from detector.cli import app
from detector.control.problems import NotValidError
from detector.core.parameters import Parameters
from detector.errors import OddnodeError
from detector.outcome import Diagnosis, GroupEvent, Incident
from detector.replay import replay_case
from detector.settings import Settings, load_settings
from detector.settings_detection import check_parameters
from detector.what_if.compare import MAX_REASON, compare, group_alarm, suspect_alarm
from detector.what_if.knobs import BUDGET, KNOBS, advice, changed
from detector.what_if.model import Alarm, Kind, What
from detector.what_if.run import Job, run
from detector.what_if.text import lines
from grouping.catalog import load_catalog
from tests.calibration_history import NAMES, CaseSource, history
from tests.test_service_serve import FAULTY, N_STEPS, START, STEP, write_recording

T = 1_767_225_600.0


def alarm(
    name: str = "gpu007", first: float = 0, named: float = 240, cleared: float | None = 900, **more: Any
) -> Alarm:
    end = None if cleared is None else T + cleared
    kind = more.pop("what", What.SUSPECT)
    return Alarm(kind, name, more.get("part", ""), T + first, T + named, end, 2.0, "hot")


def kinds(before: list[Alarm], after: list[Alarm]) -> list[tuple[str, str]]:
    found, _ = compare(before, after)
    return [(item.kind.value, (item.before or item.after).name) for item in found]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("before", "after", "kind", "words"),
    [
        (None, alarm(), Kind.GAINED, "would be named at 2026-01-01 00:04:00 UTC, and is not now: hot"),
        (alarm(), None, Kind.LOST, "would not be named; now it is, at 2026-01-01 00:04:00 UTC: hot"),
        (
            alarm(),
            alarm(named=180),
            Kind.EARLIER,
            "named 60 s earlier, at 2026-01-01 00:03:00 UTC instead of",
        ),
        (
            alarm(),
            alarm(named=300, cleared=None),
            Kind.LATER,
            "60 s later, .* and last to the end instead of",
        ),
        (alarm(), alarm(cleared=1200), Kind.LONGER, "at the same time, and be over at 2026-01-01 00:20:00"),
        (alarm(), alarm(cleared=None), Kind.LONGER, "last to the end instead of until 2026-01-01 00:15:00"),
        (alarm(cleared=None), alarm(), Kind.SHORTER, "over at 2026-01-01 00:15:00 UTC instead of lasting"),
        (alarm(), alarm(), Kind.SAME, "the same: named at 2026-01-01 00:04:00 UTC"),
    ],
)
def test_differences_in_words(before: Alarm | None, after: Alarm | None, kind: Kind, words: str) -> None:
    (found,), n_left_out = compare([before] if before else [], [after] if after else [])
    assert (found.kind, found.before, found.after, n_left_out) == (kind, before, after, 0)
    assert re.search(words, found.text), found.text


def test_alarms_belong_together_when_they_overlap() -> None:
    again = alarm(first=1000, named=1240, cleared=1500)
    assert kinds([alarm(), again], [alarm(), again]) == [("same", "gpu007")] * 2
    one_long = alarm(cleared=1500)
    assert kinds([one_long], [alarm(), again]) == [("gained", "gpu007"), ("shorter", "gpu007")]
    assert kinds([alarm(), again], [one_long]) == [("lost", "gpu007"), ("longer", "gpu007")]
    assert kinds([alarm()], [again]) == [("gained", "gpu007"), ("lost", "gpu007")]
    event = alarm(what=What.GROUP_EVENT)
    assert kinds([alarm()], [event]) == [("gained", "gpu007"), ("lost", "gpu007")]
    assert kinds([alarm("a")], [alarm("b")]) == [("gained", "b"), ("lost", "a")]
    touching = alarm(first=900, named=950, cleared=1000)
    assert kinds([alarm()], [touching]) == [("later", "gpu007")]


def test_differences_come_first_and_are_bounded() -> None:
    before = [alarm(f"n{k}") for k in range(5)]
    after = [*before[1:], alarm("new", named=100)]
    assert kinds(before, after)[:2] == [("gained", "new"), ("lost", "n0")]
    found, n_left_out = compare(before, after, 3)
    assert ([item.kind.value for item in found], n_left_out) == (["gained", "lost", "same"], 3)
    assert compare([], []) == ((), 0)


def test_alarms_are_made_of_what_replay_says() -> None:
    incident = Incident("a@1", "a", "cleared", T, T + 240, T + 900, peak_score=math.inf, reason="x" * 2000)
    assert suspect_alarm(replace(incident, suspect_at=None)) is None
    made = suspect_alarm(replace(incident, diagnosis=Diagnosis("nvlink", "NVLink fault")))
    assert made is not None
    assert made.score == 0.0
    assert made.reason.startswith("NVLink fault: xxx")
    assert len(made.reason) == MAX_REASON
    event = group_alarm(GroupEvent("p@1", "p", T, None, ("a", "b"), ("m",), "moved", kind="job_slower"))
    assert (event.what, event.name, event.part, event.named_at) == (What.GROUP_EVENT, "p", "job_slower", T)


def test_what_can_be_tried_are_settings_within_their_ranges() -> None:
    settings = Settings()
    for knob in KNOBS:
        assert knob.least <= knob.value(settings) <= knob.most, knob.name
        assert knob.is_whole == isinstance(knob_value(settings, knob.name), int), knob.name
        for value in (knob.least, knob.most):
            if value != knob.value(settings):
                check_parameters(changed(settings, {knob.name: value}).detection)
    tried = {knob.name.partition(".")[2] for knob in KNOBS if knob.name != BUDGET}
    assert tried == set(Parameters.__dataclass_fields__) - {"step_s", "layers"}
    wanted = changed(settings, {"detection.z_threshold": 8, "detection.min_peers": 5.0, BUDGET: 3})
    assert wanted.detection == replace(settings.detection, z_threshold=8.0, min_peers=5)
    assert type(wanted.detection.min_peers) is int
    assert wanted.budget.false_alarms_per_month == 3
    assert settings.detection.z_threshold == 5.0
    assert wanted.model_dump(exclude={"detection", "budget"}) == settings.model_dump(
        exclude={"detection", "budget"}
    )


def knob_value(settings: Settings, name: str) -> object:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"detection.z_treshold": 8},
            "is no setting that can be tried; names near it: detection.z_threshold",
        ),
        ({"source.url": 1}, "'source.url' is no setting"),
        ({"detection.step_s": 10}, "is no setting"),
        ({"detection.z_threshold": math.nan}, "must be from 0.5 to 1000, not nan"),
        ({"detection.z_threshold": math.inf}, "must be from 0.5 to 1000, not inf"),
        ({"detection.z_threshold": 0}, "must be from 0.5 to 1000"),
        ({"detection.min_peers": 3.5}, "detection.min_peers: must be a whole number, not 3.5"),
        ({"detection.min_peers": 2}, "must be from 3"),
        ({"detection.group_event_share": 1.1}, "must be from 0.01 to 1"),
        ({BUDGET: -1}, "must be from 0.01"),
        ({"detection.z_threshold": 5}, "nothing is changed"),
    ],
)
def test_bad_changes_are_named(changes: dict[str, float], told: str) -> None:
    with pytest.raises(NotValidError, match=told):
        changed(Settings(), changes)


def test_advice_is_a_settings_file(tmp_path: Path) -> None:
    changes = {"detection.z_threshold": 7.5, "detection.habit_s": 1e6, BUDGET: 2.0, "detection.min_peers": 4}
    path = tmp_path / "oddnode.yaml"
    path.write_text("\n".join(advice(changes)))
    found = load_settings(path)
    assert found.detection == changed(Settings(), changes).detection
    assert found.budget.false_alarms_per_month == 2.0


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("case") / "small")


def test_each_side_says_what_a_replay_with_its_settings_says(case: Path) -> None:
    settings = Settings()
    changes = {"detection.continuity_s": 120.0, "detection.z_threshold": 8.0, "detection.clear_after_s": 60.0}
    wanted = changed(settings, changes)
    done: list[float] = []
    found = run(Job(settings, wanted, case=case), done.append)
    for side, s in (("before", settings), ("after", wanted)):
        replayed = replay_case(case, load_catalog(), s.detection).flags
        told = [getattr(item, side) for item in found.differences if getattr(item, side) is not None]
        assert [
            (a.name, a.part, a.first_sign_at, a.named_at, a.cleared_at)
            for a in told
            if a.what is What.SUSPECT
        ] == [(i.node, i.part, i.active_at, i.suspect_at, i.cleared_at) for i in replayed]
    assert found.differs
    assert found.judged
    assert found.differences[0].kind is Kind.EARLIER
    assert (found.n_evaluations, found.n_nodes, found.n_series) == (N_STEPS, 12, 12 * 4 * 3)
    assert (found.start, found.end, found.step_s) == (START, START + STEP * N_STEPS, STEP)
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1.0)


def test_a_part_of_a_recording_is_judged_after_a_time_of_learning(case: Path) -> None:
    settings = Settings()
    wanted = changed(settings, {"detection.z_threshold": 1000.0})
    start = START + STEP * 30
    found = run(Job(settings, wanted, start, START + STEP * 70, case=case))
    assert (found.start, found.end, found.n_evaluations) == (start, START + STEP * 70, 40)
    (lost,) = found.differences
    assert (lost.kind, lost.before.name) == (Kind.LOST, FAULTY)  # type: ignore[union-attr]
    early = run(Job(settings, wanted, START, START + STEP * 20, case=case))
    assert not early.differences
    assert not early.differs


def test_what_cannot_be_tried_is_told(case: Path, tmp_path: Path) -> None:
    settings = Settings()
    wanted = changed(settings, {"detection.z_threshold": 9.0})
    with pytest.raises(OddnodeError, match="more than 100 series"):
        run(Job(settings, wanted, case=case, max_series=100))
    with pytest.raises(OddnodeError, match="nothing is recorded from 2026-01-01 10:00 UTC"):
        run(Job(settings, wanted, START + 36_000, START + 37_000, case=case))
    with pytest.raises(OddnodeError, match=r"no such recording|cannot be read"):
        run(Job(settings, wanted, case=tmp_path / "none"))
    budget = changed(settings, {BUDGET: 5.0})
    with pytest.raises(OddnodeError, match="too little healthy history"):
        run(Job(settings, budget, case=case))


def test_a_budget_is_tried_with_thresholds_learnt_for_it(tmp_path: Path) -> None:
    from detector.record import record

    made = history(5, bursts_per_hour=0.5)
    record(CaseSource(made), NAMES, T, T + STEP * made.n_ticks, tmp_path / "case")
    settings = Settings()
    done: list[float] = []
    found = run(Job(settings, changed(settings, {BUDGET: 0.5}), case=tmp_path / "case"), done.append)
    assert any("learnt for 0.5 false alarms a month" in note for note in found.notes)
    assert found.after.n_suspects < found.before.n_suspects
    assert 0.2 < done[len(done) // 3] < 0.5 < done[-1]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["what-if", *arguments])


def test_the_command_tells_differences_and_what_to_write(case: Path, tmp_path: Path) -> None:
    result = invoke(str(case), "--set", "detection.z_threshold=1000")
    assert result.exit_code == 1, result.output
    assert "in effect: 1 suspect, 0 group events" in result.output
    assert "tried:     0 suspects" in result.output
    assert "alarms: 1 lost, 0 the same" in result.output
    assert f"- suspect {FAULTY}, gpu 2: would not be named" in result.output
    assert "  detection:\n    z_threshold: 1000\n" in result.output
    out = tmp_path / "out.json"
    result = invoke(str(case), "--set", "detection.direct_hold_s=60", "--json", str(out))
    assert result.exit_code == 0, "nothing differs"
    assert [item["kind"] for item in json.loads(out.read_text())["differences"]] == ["same"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["CASE"], "give at least one setting to try"),
        (["CASE", "--set", "detection.z_threshold"], "is not of the form"),
        (["CASE", "--set", "detection.z_threshold=high"], "is not of the form"),
        (["CASE", "--set", "detection.z_threshold=nan"], "must be from 0.5"),
        (["CASE", "--set", "detection.z=8"], "'detection.z' is no setting"),
        (["none", "--set", "detection.z_threshold=8"], "none"),
        (["CASE", "--url", "http://x", "--set", "detection.z_threshold=8"], "exclude each other"),
        (["--url", "http://127.0.0.1:9", "--set", "detection.z_threshold=8"], "no answer"),
    ],
)
def test_the_command_names_what_is_wrong(case: Path, arguments: list[str], told: str) -> None:
    result = invoke(*(str(case) if word == "CASE" else word for word in arguments))
    assert isinstance(result.exception, OddnodeError), result.output
    assert told in str(result.exception)


def test_lines_are_bounded_and_cannot_steer_a_terminal(case: Path) -> None:
    settings = Settings()
    found = run(Job(settings, changed(settings, {"detection.z_threshold": 9.0}), case=case))
    many, n_left_out = compare([alarm(f"\x1b[31mn{k}") for k in range(70)], [], 60)
    told = lines(replace(found, differences=many, n_left_out=n_left_out, notes=("a\x07b",)), ["detection:"])
    assert "and 20 more" in told
    assert "note: a b" in told
    assert all(line.isprintable() for line in told)

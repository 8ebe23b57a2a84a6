"""The other site's cases: the same seed gives the same bytes, a fault is found, everyday life is not."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.other_site.cases import CASES, OtherCase
from benchmarks.other_site.run import case_line, main, score_of, total_line
from benchmarks.other_site.write import SERIES_NAME, write_case
from detector.evaluation.cases import find_cases
from detector.evaluation.model import Rules
from detector.evaluation.summary import by_origin
from detector.source.incident_file import FILE_NAME, load_recording
from grouping.catalog import load_catalog

BY_NAME = {case.name: case for case in CASES}
FAULTY = replace(BY_NAME["f02"], step_s=30, minutes=40)
HEALTHY = replace(BY_NAME["h06"], n_nodes=8, step_s=30, minutes=40)
RULES = Rules()


def test_there_are_the_cases_of_the_first_version_each_with_a_story() -> None:
    names = [case.name for case in CASES]
    assert names == [f"f{i:02}" for i in range(1, 25)] + [f"h{i:02}" for i in range(1, 11)]
    assert all(case.story.__doc__ for case in CASES)
    assert len({case.story for case in CASES}) == len(CASES)


def test_the_fault_is_found_on_its_node_and_nobody_else_is_blamed(tmp_path: Path) -> None:
    score = score_of(FAULTY, tmp_path, load_catalog(), RULES)
    assert [fault.fault.kind for fault in score.faults] == ["power_cap"]
    assert score.faults[0].delay_s is not None
    assert not score.false_alarms
    assert case_line(FAULTY, score).startswith("f02 power brake: power_cap of gpu-w-006 found after ")
    (summary,) = by_origin([score], RULES)
    told = total_line(summary)
    assert told.startswith(
        "synthetic, 1 cases: 1 of 1 faults found (Wilson 95 %: 21% to 100%); 0 false alarms in "
    )
    assert "delay median" in told


def test_everyday_events_raise_no_alarm(tmp_path: Path) -> None:
    score = score_of(HEALTHY, tmp_path, load_catalog(), RULES)
    assert score.recording.healthy
    assert score.recording.benign
    assert not score.alarms
    assert case_line(HEALTHY, score) == "h06 many small jobs: no fault"
    assert "delay" not in total_line(by_origin([score], RULES)[0])


@pytest.mark.parametrize("case", [FAULTY, HEALTHY], ids=lambda case: case.name)
def test_same_seed_same_bytes_and_another_seed_others(case: OtherCase, tmp_path: Path) -> None:
    short = replace(case, minutes=27)
    first, again = write_case(short, tmp_path / "first"), write_case(short, tmp_path / "again")
    other = write_case(replace(short, name=f"{case.name}-other"), tmp_path / "other")
    for name in (SERIES_NAME, FILE_NAME):
        assert (first / name).read_bytes() == (again / name).read_bytes()
        assert (first / name).read_bytes() != (other / name).read_bytes()


def test_cases_are_recordings_whose_labels_and_samples_fit(tmp_path: Path) -> None:
    path = write_case(replace(FAULTY, minutes=26), tmp_path)
    recording = load_recording(path)
    assert recording.provenance["made"] == "synthetic"
    assert len(recording.pool) == 8
    assert find_cases([tmp_path]).cases == (recording,)
    with gzip.open(path / SERIES_NAME, "rt", encoding="utf-8") as file:
        series = [json.loads(line) for line in file]
    names = {one["metric"]["__name__"] for one in series}
    assert {"up", "DCGM_FI_DEV_SM_CLOCK", "node_cpu_seconds_total", "node_load1"} <= names
    for one in series:
        times = one["timestamps"]
        assert len(times) == len(one["values"])
        assert times == sorted(set(times))
        assert recording.start * 1000 <= times[0] <= times[-1] <= recording.end * 1000


def test_a_case_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "--only", "f99"])
    assert ended.value.code == 2
    assert "f99" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

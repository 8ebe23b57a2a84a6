"""The real cases kept in the repository: complete, allowed to be here, and measured honestly."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cases_real import ALLOWED, SETS, copy, describe, facts
from detector.evaluation.cases import find_cases
from detector.evaluation.summary import made_of, set_of

REAL = Path(__file__).parent.parent / "replay_data" / "real"
MAX_BYTES = 11 << 20


def test_every_kept_case_is_there_labelled_and_recorded() -> None:
    found = find_cases([REAL])
    assert found.left_out == ()
    kept = {(set_of(case), case.id) for case in found.cases}
    assert kept == {(name, case) for name, real in SETS.items() for case in real.kept}
    assert {made_of(case) for case in found.cases} == {"recorded"}


def test_every_kept_case_may_be_passed_on_and_names_its_origin() -> None:
    for case in find_cases([REAL]).cases:
        assert case.provenance["licence"] in ALLOWED
        readme = (case.path.parent.parent / "README.md").read_text()
        assert str(case.provenance["licence"]) in readme
        assert str(case.provenance["source"]).split()[0].split("/")[-1] in readme
    assert sum(file.stat().st_size for file in REAL.rglob("*") if file.is_file()) < MAX_BYTES


def test_overlap_of_cases_cut_from_one_record_is_measured() -> None:
    cases = [
        case for case in find_cases([REAL / "asd"]).cases if case.id in ("asd-i00-single", "asd-i02-fleet")
    ]
    first, second = sorted(cases, key=lambda case: case.start)
    both = max(0.0, min(first.end, second.end) - second.start) * 12 / 86_400
    found = facts(cases)
    assert both > 1
    assert found.node_days - found.distinct_node_days == pytest.approx(both)


def test_a_description_names_what_it_left_out(tmp_path: Path) -> None:
    lines = describe(tmp_path)
    assert lines == [f"left out: {tmp_path}: holds no case"]


def test_copying_stops_at_a_missing_case(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="asd-h01"):
        copy(tmp_path, tmp_path / "out")

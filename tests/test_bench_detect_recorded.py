"""Recordings of others through the bench: halves, settings, and the numbers of a made-up set."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detect import recorded
from benchmarks.detect.recorded import (
    DEVELOPMENT,
    HELD_OUT,
    PUBLISHED,
    best,
    cases_of,
    half_of,
    page,
    plain,
    widened,
)
from benchmarks.detect.rivals import all_rivals
from benchmarks.detect.rivals_rules import AnyError, Rival, rule_rivals

STEP, N_TICKS, START = 300, 60, 1_704_067_200
NODES = [f"m-{k:02d}" for k in range(8)]


def write_case(folder: Path, *, seed: int, odd_at: int | None, made: str = "recorded") -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    times = [1000 * (START + STEP * t) for t in range(N_TICKS + 1)]
    lines = []
    for metric in ("some_load", "other_load"):
        for k, node in enumerate(NODES):
            values = 100 + rng.standard_normal(N_TICKS + 1)
            if odd_at is not None and k == 3:
                values[odd_at : odd_at + 12] += 80
            metric_labels = {"__name__": metric, "instance": node, "job": "x"}
            lines.append(
                json.dumps({"metric": metric_labels, "values": values.round(3).tolist(), "timestamps": times})
            )
    (folder / "series.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    faults = ""
    if odd_at is not None:
        onset = START + STEP * odd_at
        faults = f"\n- node: m-03\n  kind: load\n  onset: {onset}.0\n  end: {onset + 11 * STEP}.0"
    (folder / "incident.yaml").write_text(
        f"id: {folder.name}\nstart: {START}.0\nend: {START + STEP * N_TICKS}.0\nstep_s: {STEP}\n"
        f"pool: [{', '.join(NODES)}]\nspares: []\nhealthy: {str(odd_at is None).lower()}\n"
        f"faults: {faults or '[]'}\nprovenance:\n  made: {made}\n"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, odd_at in enumerate((40, 30, None, None)):
        write_case(tmp_path / "real" / "some" / f"c{seed}", seed=seed, odd_at=odd_at)
    return tmp_path / "real"


def few_rivals() -> tuple[Rival, ...]:
    wanted = ("median and MAD z, 4 min", "own-history robust z, 4 min", "Minder, re-implemented (PCA)")
    return (AnyError(), *(rival for rival in all_rivals() if rival.name in wanted))


def test_even_positions_are_development() -> None:
    names = ["b", "a", "d", "c"]
    assert [half_of(name, names) for name in sorted(names)] == [DEVELOPMENT, HELD_OUT] * 2


def test_published_settings_are_of_known_rivals_and_fit_them() -> None:
    known = {rival.name: rival for rival in all_rivals()}
    for name, setting in PUBLISHED.items():
        assert len(setting) == len(known[name].grid[0])
        assert setting[0] == "all"


def test_only_recorded_cases_are_taken(folder: Path) -> None:
    write_case(folder / "some" / "c9", seed=9, odd_at=None, made="synthetic")
    cases, left_out = cases_of([folder])
    assert [(c.recording.id, c.half) for c in cases] == [
        ("c0", DEVELOPMENT), ("c1", HELD_OUT), ("c2", DEVELOPMENT), ("c3", HELD_OUT),
    ]  # fmt: skip
    assert [text.endswith("c9: is not recorded") for text in left_out] == [True]


def test_settings_of_lists_look_at_all_metrics() -> None:
    rival = rule_rivals()[2]
    assert widened(rival, ("few", 5.0)) == ("all", 5.0)


def test_best_is_by_f1_and_then_by_false_alarms() -> None:
    rival = rule_rivals()[2]
    counts = {(rival.name, setting): (1, 5, 1) for setting in rival.grid}
    chosen = [s for s in rival.grid if s[0] == "all"]
    counts[rival.name, chosen[4]] = (2, 1, 0)
    assert best(rival, [counts]) == chosen[4]


def test_numbers_of_a_made_up_set(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "all_rivals", few_rivals)
    chosen = tmp_path / "detection.json"
    chosen.write_text(json.dumps({"settings": {"median and MAD z, 4 min": ["few", 20.0]}}))
    told = recorded.bench([folder], (DEVELOPMENT, HELD_OUT), n_jobs=1, synthetic=chosen)
    assert told.failed == ()
    assert told.settings["median and MAD z, 4 min", "published"] == ("all", 5.0)
    assert told.settings["median and MAD z, 4 min", "synthetic"] == ("all", 20.0)
    own = told.summaries[HELD_OUT, ("own-history robust z, 4 min", "development"), "some"]
    assert (own.found, own.missed, own.false_rate.count) == (1, 0, 0)
    assert own.false_rate.node_days == pytest.approx(2 * 8 * N_TICKS * STEP / 86400, rel=0.1)
    assert ("Oddnode", "defaults") in told.cases["c1"]
    text = page(told)
    assert "## held-out" in text
    assert "| own-history robust z, 4 min | development | 1.00 | 1 of 1, 0 in" in text
    assert plain(told)["failed"] == []


def test_without_synthetic_numbers_there_are_no_such_rows(tmp_path: Path) -> None:
    assert recorded._synthetic(tmp_path / "none.json") == {}

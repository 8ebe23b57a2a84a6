"""The engine of the detection bench: grades of faults, what is remembered, variants, lines and pages."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.detect import bench as engine
from benchmarks.detect import long_run as long
from benchmarks.detect import report, run
from benchmarks.detect.bench import CaseResult, Outcome, Plan, bench, chosen_cases
from benchmarks.detect.cache import Cache, digest, sources
from benchmarks.detect.circumstances import by_circumstance
from benchmarks.detect.incidents import CaseSpec, recording_of
from benchmarks.detect.origins import REPLAY_DATA, other_origins
from benchmarks.detect.pictures import write_pictures
from benchmarks.detect.rivals_minder import MinderPca
from benchmarks.detect.rivals_rules import AnyError, Rival
from benchmarks.detect.seen import ODDNODE, RULES, VARIANTS, Variant, see, variant_of
from benchmarks.detect.simulated import SimulatedSource, Tape
from benchmarks.detect.splits import PARTS
from benchmarks.detect.why import seconds_line, why_lines
from benchmarks.detect.witness import Witness, first_of_enough
from detector.evaluation.model import Findings, Flag
from detector.evaluation.scoring import CaseScore, score_case
from detector.evaluation.summary import summarise
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.metric_sets import select

METRICS = select("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_GPU_TEMP", "node_load1", "up")
SMALL = ClusterConfig(
    train_nodes=10, spares=1, cpus=2, n_veth=1, metrics=METRICS, benign_per_node_hour=0.0, missed_scrape=0.0
)
START = SMALL.start


def small_case(number: int, *faults: Fault) -> CaseSpec:
    return CaseSpec(f"small-{number}", "train", 50 + number, SMALL, 40 * 60.0, faults)


def throttled(number: int, severity: float = 0.9) -> CaseSpec:
    fault = Fault("gpu_throttle", "gpu004", START + 20 * 60, START + 36 * 60, "gpu 2", severity)
    return small_case(number, fault)


CODE = small_case(3, Fault("ecc_xid", "gpu002", START + 22 * 60, START + 36 * 60, "gpu 5"))
CASES = {"train": [throttled(1), CODE], "validation": [throttled(5), small_case(6)]}


# Grades


class TestGrades:
    def test_enough_scrapes_must_be_off_within_forty(self) -> None:
        off = np.zeros((100, 2), dtype=bool)
        off[10:90:10, 0] = True
        assert first_of_enough(off, 8) is None, "8 scrapes over 70"
        off[90:97, 1] = True
        assert first_of_enough(off, 8) is None, "signals are not added up"
        off[60, 1] = True
        assert first_of_enough(off, 8) == 60
        off[2:10, 0] = True
        assert first_of_enough(off, 8) == 2

    def test_a_code_is_visible_from_its_first_scrape(self) -> None:
        fault = see(CODE, wants_matrix=False)[0].recording.faults[0]
        assert fault.visible == "visible"
        assert fault.visible_at is not None
        assert 0 <= fault.visible_at - fault.onset <= 30

    @pytest.mark.parametrize(
        ("name", "change", "seen"),
        [
            # what all nodes do is not the node's own
            ("DCGM_FI_DEV_SM_CLOCK", lambda values, mine: values - 200.0, False),
            ("DCGM_FI_DEV_SM_CLOCK", lambda values, mine: values - 200.0 * mine, True),
            # less than one and a half percent is never plain
            ("DCGM_FI_DEV_SM_CLOCK", lambda values, mine: values - 2.0 * mine, False),
            ("DCGM_FI_DEV_SM_CLOCK", lambda values, mine: np.where(mine > 0, np.nan, values), True),
            ("DCGM_FI_DEV_SM_CLOCK", lambda values, mine: values * np.nan, False),
        ],
    )
    def test_what_is_plain_in_the_samples(self, name: str, change: Any, seen: bool) -> None:
        # a fault that leaves no trace by itself, as none of its metrics is there
        case = small_case(4, Fault("clock_skew", "gpu004", START + 20 * 60, START + 36 * 60, "", 0.9))
        witness = Witness(case)
        cluster = case.cluster()
        kept = np.array([cluster.tick(START + 30.0 * k)[0] for k in range(81)])
        rows = [i for i, s in enumerate(cluster.series) if s["__name__"] == name]
        mine = np.array([float("gpu004" in json.dumps(cluster.series[i])) for i in rows])
        assert 0 < mine.sum() < len(rows)
        kept[45:, rows] = change(kept[45:, rows], mine)
        (grade,) = witness.grades(kept[:, witness.rows])
        assert (grade.name == "visible") == seen, grade
        if seen:
            assert (grade.at, grade.metric) == (START + 45 * 30, name)

    def test_scores_of_visible_faults_leave_faint_misses_out(self) -> None:
        scores = []
        for i, (grade, is_found) in enumerate([("visible", True), ("faint", False), ("faint", True)]):
            case = recording_of(throttled(i))
            fault = replace(case.faults[0], visible=grade, visible_at=case.faults[0].onset + 60)
            raised = fault.onset + 90.0
            flags = [Flag("gpu004", raised)] * is_found + [Flag("gpu007", raised)] * (i == 0)
            scores.append(score_case(replace(case, faults=(fault,)), Findings(tuple(flags)), RULES))
        found = summarise("x", scores, RULES)
        assert (found.recall.k, found.recall.n) == (2, 3)
        assert (found.visible_recall.k, found.visible_recall.n) == (1, 1)
        assert (found.precision.k, found.precision.n) == (2, 3)
        assert found.visible_f1 == pytest.approx(2 / (1 + 3 / 2))
        assert found.visible_f1_interval is not None
        assert found.visible_f1_interval[0] < found.visible_f1 < found.visible_f1_interval[1]
        assert found.all_faults.visible_delay.median_s == 30.0


# What is remembered


class TestCache:
    def test_digest_is_of_content(self) -> None:
        one, two = np.arange(4.0), np.arange(4.0)
        assert digest(one, "x") == digest(two, "x")
        assert digest(one) != digest(one.reshape(2, 2)) != digest(one.astype(np.float32))
        assert digest(frozenset({"a", "b"})) == digest(frozenset({"b", "a"}))
        assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
        assert digest(("a", "b")) != digest(("ab",)) != digest(("b", "a"))
        assert digest(throttled(1)) != digest(throttled(1, 0.8))
        with pytest.raises(TypeError, match="no digest of object"):
            digest(object())

    def test_sources_change_with_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text("1")
        before = sources(("*.py",), tmp_path)
        sources.cache_clear()
        assert sources(("*.py",), tmp_path) == before
        (tmp_path / "a.py").write_text("2")
        sources.cache_clear()
        assert sources(("*.py",), tmp_path) != before

    def test_damaged_and_missing_results_are_none(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        cache.keep("abcdef", {"x": 1})
        assert cache.find("abcdef") == {"x": 1}
        (tmp_path / "ab" / "cdef.pickle").write_bytes(b"\x80\x05nonsense")
        assert cache.find("abcdef") is None
        assert cache.find("other") is None
        assert cache.get("abcdef", lambda: 5) == 5 == cache.find("abcdef")
        assert Cache().get("abcdef", lambda: 6) == 6


@pytest.fixture
def few_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    rivals: tuple[Rival, ...] = (AnyError(),)
    monkeypatch.setattr(engine, "all_rivals", lambda: rivals)
    monkeypatch.setattr(engine, "chosen_cases", lambda split, n, seed, kinds: CASES[split][:n])


def plan(cache: Cache | None = None, **changes: Any) -> Plan:
    given: dict[str, Any] = {"n_cases": {"train": 2, "validation": 2}, "n_jobs": 1, "cache": cache or Cache()}
    return Plan(**(given | changes))


def content(outcome: Outcome) -> str:
    """Return all of an outcome but the seconds it took; NaN is equal to NaN."""
    results = {
        split: [(r.case, r.n_hidden, r.scores, r.reached) for r in some]
        for split, some in outcome.results.items()
    }
    return digest(replace(outcome, results={}), results)


@pytest.mark.usefixtures("few_rivals")
class TestBench:
    def test_the_numbers_are_the_same_with_and_without_a_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = Cache(tmp_path)
        without, filled = bench(plan()), bench(plan(cache))
        assert content(without) == content(filled)
        with monkeypatch.context() as patched:
            patched.setattr(engine, "see", lambda *_, **__: pytest.fail("simulated again"))
            patched.setattr(AnyError, "flags", lambda *_: pytest.fail("scored again"))
            assert content(bench(plan(cache))) == content(without)
        # another detector on the same samples: it is run, the rivals are not
        real = engine.sources
        monkeypatch.setattr(
            engine, "sources", lambda which: real(which) + ("changed" if which == engine.EVERYTHING else "")
        )
        monkeypatch.setattr(AnyError, "flags", lambda *_: pytest.fail("scored again"))
        assert content(bench(plan(cache))) == content(without)
        assert report.as_plain(without, {}) == report.as_plain(filled, {})

    def test_variants_share_a_simulation_and_are_rows(self) -> None:
        found = bench(
            plan(n_cases={"train": 1}, rivals=False, variants=(Variant(), variant_of("z9=z_threshold:1e9")))
        )
        (result,) = found.results["train"]
        assert list(result.scores) == [ODDNODE, "z9"]
        assert [s.faults[0].delay_s is not None for s in result.scores.values()] == [True, False]
        assert "| z9 |" in report.main_table(report.summaries(found)["train"].values())
        alone = bench(plan(n_cases={"train": 1}, rivals=False))
        assert alone.results["train"][0].scores[ODDNODE] == result.scores[ODDNODE]

    def test_page_and_numbers(self, tmp_path: Path) -> None:
        outcome = bench(plan())
        report.write(outcome, {"command": "x", "commit": "y", "seed": 0}, tmp_path)
        text = (tmp_path / report.PAGE).read_text()
        assert "### Visible faults, validation" in text
        numbers = json.loads((tmp_path / report.NUMBERS).read_text())
        own = numbers["splits"]["validation"]["detectors"][ODDNODE]
        assert own["visible"] == [1, 1]
        assert own["found"] == 1

    def test_the_order_told_is_that_of_the_chosen_setting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine, "all_rivals", lambda: (AnyError(), MinderPca()))
        found = bench(plan(n_cases={"train": 2}))
        _, _, top, *_ = found.settings[MinderPca().name]
        assert 0 < len(found.order) <= top

    def test_report_with_curves(self, tmp_path: Path) -> None:
        outcome = bench(plan(n_cases={"train": 2}, rivals=False))
        file = tmp_path / "bench.html"
        write_pictures(outcome, Variant(), CASES["train"], file, settings={"cases": "<two>"}, n_jobs=1)
        text = file.read_text()
        assert "polyline class='value'" in text
        assert "&lt;two&gt;" in text
        assert list(tmp_path.iterdir()) == [file]


def test_cases_of_other_origins_are_told_of_the_detector() -> None:
    ((origin, by_name),) = other_origins(1, REPLAY_DATA / "pcie-downgrade").items()
    told = report.origin_section(origin, by_name)
    assert told.startswith("## reconstructed: 1 cases, 1 faults")
    assert f"| {ODDNODE} | 1.00" in told


def test_a_plan_must_make_sense() -> None:
    with pytest.raises(ValueError, match="needs at least one case"):
        Plan({"test": 3})
    with pytest.raises(ValueError, match="each named once"):
        Plan({"train": 1}, variants=(Variant(), Variant()))
    with pytest.raises(ValueError, match="unknown variant 'zz'; known: Oddnode"):
        variant_of("zz")
    with pytest.raises(ValueError, match="unknown parameter 'z'"):
        variant_of("a=z:1")
    assert variant_of("a=min_peers:5").parameters.min_peers == 5


@pytest.mark.parametrize("variant", [v for v in VARIANTS.values() if v.constants], ids=lambda v: v.name)
def test_a_variants_constants_hold_while_it_runs_and_no_longer(variant: Variant) -> None:
    def values() -> dict[str, float]:
        places = [name.rpartition(".") for name, _ in variant.constants]
        return {f"{module}.{name}": getattr(import_module(module), name) for module, _, name in places}

    usual = values()
    with suppress(KeyError), variant.applied():
        assert values() == dict(variant.constants) != usual
        raise KeyError
    assert values() == usual


def test_kinds_choose_cases() -> None:
    chosen = chosen_cases("train", 3, 0, frozenset({"machine_down"}))
    assert [{f.kind for f in case.node_faults} for case in chosen] == [{"machine_down"}] * 3
    assert chosen == chosen_cases("train", 4, 0, frozenset({"machine_down"}))[:3]


def test_a_tape_repeats_what_it_kept() -> None:
    cluster, tape = CODE.cluster(), Tape(CODE.cluster(), keeps=True)
    times = [START + 30.0 * k for k in range(3)]
    first = [cluster.tick(at) for at in times]
    for _ in range(2):
        for (values, ts_ms), at in zip(first, times, strict=True):
            again, again_ms = tape.tick(at)
            np.testing.assert_array_equal(values, again)
            np.testing.assert_array_equal(ts_ms, again_ms)
    assert SimulatedSource(tape).kept.shape == (0, 0)


# Lines, command and the long run


def scored(case: CaseSpec, *flags: Flag) -> CaseScore:
    seen = see(case, wants_matrix=False)[0]
    return score_case(seen.recording, Findings(flags), RULES)


def test_a_line_for_each_miss_and_each_false_alarm() -> None:
    case = throttled(1)
    seen = see(case, wants_matrix=False)[0]
    score = score_case(seen.recording, Findings((Flag("gpu009", START + 600.0, why="odd"),)), RULES)
    missed, false = why_lines(CaseResult(case.id, 0, {ODDNODE: score}, seen.reached), ODDNODE)
    assert missed.startswith(
        "missed small-1: gpu_throttle, drastic, visible, gpu004 gpu 2, plainest in DCGM_"
    )
    assert "best score 1.40 after" in missed
    assert "pending for" in missed
    assert "its node was not flagged" in missed
    assert false == "false small-1: gpu009 after 600 s, in healthy time; saw odd"
    assert "oddnode" in seconds_line([CaseResult("x", 0, {}, (), seen.seconds)])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kinds", "nonsense"],
        ["--variant", "nonsense"],
        ["--seed", "11"],
        ["--train", "0"],
        ["--only", "me"],
    ],
)
def test_wrong_options_are_told_before_any_work(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_figures_are_told_apart_by_when_the_fault_begins_and_by_size() -> None:
    case = throttled(1)
    early, late = (replace(recording_of(case), start=case.start - ago * 60.0) for ago in (-4.0, 20.0))
    found = Findings((Flag("gpu004", early.faults[0].onset + 90.0),))
    results = [
        CaseResult(name, 0, {ODDNODE: score_case(recording, findings, RULES)})
        for name, recording, findings in (
            ("a", early, found),
            ("b", replace(late, faults=(replace(late.faults[0], node="gpu005"),)), Findings(())),
        )
    ]
    summaries = {s.name: s for s in by_circumstance(results, ODDNODE)}
    assert {name: (s.n_cases, s.found, s.missed) for name, s in summaries.items()} == {
        "fault begins 15 to 20 min after the first sample": (1, 1, 0),
        "fault begins later": (1, 0, 1),
        "fewer than 48 nodes": (2, 1, 1),
    }


def test_command_writes_no_page_for_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def only(given: Plan, progress: object) -> Outcome:
        assert given.kinds == frozenset({"gpu_throttle"})
        assert dict(given.n_cases) == {"train": 2}
        results = (CaseResult("a", 0, {ODDNODE: scored(throttled(1))}),)
        return Outcome({}, (), (), {"train": results}, ("b: broke",))

    monkeypatch.setattr(run, "bench", only)
    arguments = "--quick --only oddnode --kinds gpu_throttle --train 2 --why --no-cache --output"
    assert run.main([*arguments.split(), str(tmp_path)]) == 2
    printed = capsys.readouterr().out
    assert "missed a: gpu_throttle" in printed
    assert "left out: b: broke" in printed
    assert list(tmp_path.iterdir()) == []
    assert "gpu_throttle" in PARTS


def test_the_long_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(number: int, days: float, nodes: int = 63) -> CaseSpec:
        faults = (Fault("maintenance", "gpu003", START + 900, START + 1500),)
        return replace(small_case(number), length_s=days * 86400, faults=faults)

    monkeypatch.setattr(long, "healthy_stretch", short)
    cache = Cache(tmp_path)
    with monkeypatch.context() as patched:
        calls = []
        real = long.play
        patched.setattr(long, "play", lambda *a, **k: (calls.append(1), real(*a, **k))[1])
        one = long.long_run(0.04, 0.02, n_jobs=1, cache=cache)
        two = long.long_run(0.06, 0.02, n_jobs=1, cache=cache)
        assert len(calls) == 3
    assert (one["days"], two["days"]) == (0.04, 0.06)
    assert two["false_alarms"] == 0
    assert two["per_month_upper"] > 0
    assert two["per_cluster_day"] == {"maintenance": pytest.approx(50)}
    assert json.dumps(one) == json.dumps(long.long_run(0.04, 0.02, n_jobs=1))


def test_everyday_events_of_the_long_run_are_no_faults_and_maintenance_is_masked() -> None:
    case = long.healthy_stretch(0, 3.0)
    recording = recording_of(case)
    assert recording.healthy
    assert not recording.faults
    assert len(recording.masked) == sum(f.kind == "maintenance" for f in case.faults) > 0
    assert {"job_restart", "exporter_restart"} <= set(long.density([case]))

"""The synthetic incident library, the rivals on tiny inputs, and a small gate on Oddnode itself."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detect.bench import ODDNODE, RULES, at_edge, best_settings, see
from benchmarks.detect.incidents import CaseSpec, cases, recording_of, severity_word, write
from benchmarks.detect.matrix import CaseMatrix, lasting, spans_of
from benchmarks.detect.report import main_table
from benchmarks.detect.rivals_learnt import Mahalanobis, Minder, candidates, nearest_filled
from benchmarks.detect.rivals_rules import (
    AnyError,
    DatadogDbscan,
    DatadogMad,
    OneDimensional,
    Rival,
    Threshold,
    held,
    simple_rivals,
)
from benchmarks.detect.simulated import SimulatedSource, Witness
from benchmarks.detect.splits import PARTS, QUIET_STORIES, SPLITS
from detector.evaluation.cases import find_cases
from detector.evaluation.model import Findings
from detector.evaluation.scoring import CaseScore, score_case
from detector.evaluation.summary import summarise
from detector.pipeline import Pipeline
from detector.replay import play, replay_case
from detector.source.incident_file import Recording
from grouping.catalog import load_catalog
from grouping.layout import Block, Layout
from simulator.config import ClusterConfig
from simulator.faults import KINDS, Fault, GroupEvent
from simulator.metric_sets import select

METRICS = select(
    "DCGM_", "node_infiniband_", "node_load1", "node_procs_", "node_pressure_", "backendai_async", "up"
)
TINY = ClusterConfig(
    train_nodes=12, spares=2, cpus=2, n_veth=1, metrics=METRICS, benign_per_node_hour=0.05, missed_scrape=0.0
)
START = TINY.start


def tiny_case(*faults: Fault, events: tuple[GroupEvent, ...] = (), minutes: float = 40) -> CaseSpec:
    return CaseSpec("tiny", "test", 17, TINY, minutes * 60, faults, events)


def a_fault(kind: str, node: str, part: str = "", severity: float = 0.8) -> Fault:
    return Fault(kind, node, START + 25 * 60, START + 38 * 60, part, severity)


# The library


class TestLibrary:
    def test_same_arguments_same_cases_and_fewer_are_the_first_of_more(self) -> None:
        assert list(cases("test", 12, 3)) == list(cases("test", 30, 3))[:12]

    def test_splits_and_seeds_share_no_case(self) -> None:
        drawn = [c.seed for split in SPLITS for s in (0, 1, 9) for c in cases(split, 40, s)]
        assert len(set(drawn)) == len(drawn)

    def test_every_kind_and_every_quiet_story_is_there(self) -> None:
        found = list(cases("validation", 60))
        assert {f.kind for c in found for f in c.node_faults} == set(PARTS)
        assert set(PARTS) | {"exporter_down"} == set(KINDS)
        assert {c.id.split("-", 2)[2] for c in found if not c.node_faults} == {
            story or "healthy" for story in QUIET_STORIES
        }

    @pytest.mark.parametrize("split", sorted(SPLITS))
    def test_cases_stay_in_their_ranges(self, split: str) -> None:
        ranges = SPLITS[split]
        for case in cases(split, 60):
            assert case.config.train_nodes in (*ranges.nodes, 512)
            assert case.config.metrics is not None
            assert ranges.families[0] <= len(case.config.metrics) <= ranges.families[1]
            assert 75 * 60 - 30 <= case.length_s <= 100 * 60 + 30
            for fault in case.node_faults:
                assert ranges.severity[0] <= fault.severity <= ranges.severity[1]
                assert case.start + 15 * 60 <= fault.onset < fault.end <= case.end + 30

    def test_default_sizes_hold_the_promised_faults(self) -> None:
        found = list(cases("test", 440))
        assert sum(bool(c.node_faults) for c in found) >= 300
        node_weeks = sum(c.config.n_nodes * c.length_s for c in found) / (7 * 86400)
        assert node_weeks > 200 * 1.1

    def test_unknown_split_and_seed(self) -> None:
        with pytest.raises(ValueError, match="unknown split 'tset'; known: train, validation, test"):
            list(cases("tset", 1))
        with pytest.raises(ValueError, match="seed must be from 0 to 9, not 10"):
            list(cases("test", 1, 10))

    def test_written_case_replays_like_the_generated_one(self, tmp_path: Path) -> None:
        case = tiny_case(a_fault("nvlink_xid", "gpu005", "gpu 3"))
        write(case, tmp_path)
        found = find_cases([tmp_path])
        assert not found.left_out
        assert found.cases[0].faults == recording_of(case).faults or (
            [f.node for f in found.cases[0].faults] == ["gpu005"]
        )
        from_file = replay_case(tmp_path / case.id, load_catalog())
        generated = play(recording_of(case), SimulatedSource(case.cluster()), Pipeline(load_catalog()))
        assert [(f.node, f.suspect_at) for f in from_file.flags] == [
            (f.node, f.suspect_at) for f in generated.flags
        ]
        assert from_file.flags

    @pytest.mark.parametrize(
        ("kind", "part", "severity", "seen"),
        [
            ("nic_slow", "mlx5_2/1", 0.9, True),
            ("cpu_contention", "", 0.9, True),
            ("pcie_replay", "gpu 1", 1.0, True),
            # no metric of the disk itself is there, but processes wait for it
            ("disk_slow", "nvme1n1", 0.9, True),
            # its metrics are not among those of this cluster
            ("clock_skew", "", 0.9, False),
            ("nic_slow", "mlx5_2/1", 0.0, False),
        ],
    )
    def test_faults_without_a_trace_are_found_out(
        self, kind: str, part: str, severity: float, seen: bool
    ) -> None:
        case = tiny_case(a_fault(kind, "gpu004", part, severity))
        witness = Witness(case)
        cluster = case.cluster()
        times = START + 30.0 * np.arange(int(case.length_s // 30) + 1)
        kept = np.array([cluster.tick(at)[0][witness.rows] for at in times.tolist()])
        assert witness.visible(kept) == (seen,)
        recording = recording_of(case, (seen,))
        assert (len(recording.faults), len(recording.masked)) == ((1, 0) if seen else (0, 1))

    def test_severity_words(self) -> None:
        assert [severity_word(x) for x in (0.0, 0.33, 0.34, 0.66, 0.67, 1.0)] == [
            "subtle", "subtle", "moderate", "moderate", "drastic", "drastic",
        ]  # fmt: skip


# Rivals on one metric of twelve nodes: everybody near 100, one node as the test says


N_TICKS, N_NODES, ODD = 60, 12, 7


def one_metric(odd: np.ndarray | None = None, *, metric: str = "node_load1") -> CaseMatrix:
    rng = np.random.default_rng(3)
    values = (100 + rng.standard_normal((N_TICKS, N_NODES))).astype(np.float32)
    if odd is not None:
        values[:, ODD] += odd
    cells = np.arange(N_NODES)
    none = np.zeros(N_NODES, dtype=np.int64)
    block = Block(0, "node", False, 0, 1, N_NODES, cells, cells, cells, 1)
    layout = Layout((block,), none, none - 1, none[:1], none[:1], none[:1] + 12, none[:1] + 12, ("row",))
    return CaseMatrix(
        times=30.0 * np.arange(N_TICKS),
        values=values,
        errors=np.zeros(values.shape, dtype=bool),
        is_code=np.zeros(N_NODES, dtype=bool),
        is_telling=np.zeros(N_NODES, dtype=bool),
        layout=layout,
        nodes=tuple(f"n{i}" for i in range(N_NODES)),
        parts=("",),
        metrics=(metric,),
        cell_node=cells,
        cell_part=none,
        cell_signal=none,
        signal_keys=(f"{metric} ",),
        pool=cells,
    )


def step(size: float, first: int = 30, n: int = N_TICKS) -> np.ndarray:
    tick = np.arange(N_TICKS)
    return np.where((tick >= first) & (tick < first + n), size, 0.0)


NAMED = {rival.name: rival for rival in simple_rivals()}
SETTINGS = [
    ("mean and standard deviation z, 4 min", ("all", 3), 37),
    ("median and MAD z, 4 min", ("all", 8), 37),
    ("MAD (tolerance, pct)", ("all", 10.0, 0.3, False), 35),
    ("1-D DBSCAN per timestamp", ("all", 0.8), 37),
    ("PromQL ratio to the median, 4 min", ("all", 1.5), 37),
    ("under half or over 4 times the median, 10 min", ("all", 0.5), 49),
]


class TestRivals:
    @pytest.mark.parametrize(("name", "setting", "at"), SETTINGS)
    def test_names_the_odd_node_when_it_has_been_odd_for_long_enough(
        self, name: str, setting: tuple[object, ...], at: int
    ) -> None:
        rival, matrix = NAMED[name], one_metric(step(500.0))
        flags = rival.flags(matrix, rival.prepare(matrix), setting)
        assert [(f.node, f.raised_at, f.cleared_at) for f in flags] == [(f"n{ODD}", 30.0 * at, None)]

    @pytest.mark.parametrize("rival", simple_rivals(), ids=lambda r: r.name)
    def test_strictest_setting_is_quiet_on_noise(self, rival: Rival) -> None:
        matrix = one_metric()
        prepared = rival.prepare(matrix)
        assert min(len(rival.flags(matrix, prepared, setting)) for setting in rival.grid) == 0

    @pytest.mark.parametrize(("name", "setting", "at"), [s for s in SETTINGS if "min" in s[0]])
    def test_a_burst_is_no_alarm(self, name: str, setting: tuple[object, ...], at: int) -> None:
        rival, matrix = NAMED[name], one_metric(step(500.0, n=6))
        assert not rival.flags(matrix, rival.prepare(matrix), setting)

    def test_dbscan_leaves_a_split_group_alone_and_finds_a_lone_member(self) -> None:
        lone, halves = one_metric(step(500.0)), one_metric()
        halves.values[:, :6] += 500.0
        rival = DatadogDbscan()
        assert {f.node for f in rival.flags(lone, None, ("all", 5.0))} == {f"n{ODD}"}
        assert not rival.flags(halves, None, ("all", 5.0))

    def test_small_groups_cap_the_mean_z_score(self) -> None:
        # sqrt(n - 1) is 3.32 for twelve members, however far one of them is
        matrix = one_metric(step(1e6))
        rival = NAMED["mean and standard deviation z, 4 min"]
        assert isinstance(rival, Threshold)
        assert 3.3 < rival.prepare(matrix).max() < 3.32

    def test_few_looks_only_at_its_metrics(self) -> None:
        matrix = one_metric(step(500.0), metric="node_forks_total")
        rival = NAMED["median and MAD z, 4 min"]
        prepared = rival.prepare(matrix)
        assert not rival.flags(matrix, prepared, ("few", 8))
        assert rival.flags(matrix, prepared, ("all", 8))

    def test_any_error_is_held_for_ten_minutes(self) -> None:
        matrix = one_metric()
        matrix.errors[10, ODD] = True
        flags = AnyError().flags(matrix, None, ("all",))
        assert [(f.node, f.raised_at, f.cleared_at) for f in flags] == [(f"n{ODD}", 300.0, 900.0)]
        assert not AnyError().flags(matrix, None, ("codes",))

    def test_minder_learns_and_names_the_node(self) -> None:
        def recording(faulty: bool) -> Recording:
            case = replace(recording_of(tiny_case()), faults=())
            if not faulty:
                return case
            labelled = recording_of(tiny_case(a_fault("nic_slow", "gpu001", "mlx5_0/1"))).faults[0]
            return replace(case, faults=(replace(labelled, onset=900.0, end=1800.0),))

        faulty = one_metric(step(50.0))
        minder = Minder()
        minder.train([(faulty, recording(True)), (one_metric(), recording(False))])
        assert minder.order == ("node_load1 ",)
        prepared = minder.prepare(faulty)
        flags = minder.flags(faulty, prepared, (4, 7, 2.5))
        assert {f.node for f in flags} == {f"n{ODD}"}
        assert 900.0 + 7 * 30 <= flags[0].raised_at <= 900.0 + 12 * 30
        assert not minder.flags(faulty, prepared, (4, 7, 7.0))

    def test_mahalanobis_is_quiet_with_too_few_signals(self) -> None:
        matrix = one_metric(step(50.0))
        rival = Mahalanobis()
        prepared = rival.prepare(matrix)
        assert not any(rival.flags(matrix, prepared, setting) for setting in rival.grid)

    def test_best_setting_has_the_highest_f1_and_then_the_fewest_false_alarms(self) -> None:
        rival = DatadogMad()
        counts = {(rival.name, setting): (1, 5, 1) for setting in rival.grid}
        counts[rival.name, rival.grid[3]] = (2, 4, 0)
        counts[rival.name, rival.grid[9]] = (2, 1, 0)
        assert best_settings([rival], [counts, counts]) == {rival.name: rival.grid[9]}

    def test_no_setting_is_chosen_on_nothing(self) -> None:
        with pytest.raises(RuntimeError, match="no train case could be evaluated"):
            best_settings(simple_rivals(), [])

    def test_rivals_can_be_sent_to_other_processes(self) -> None:
        matrix = one_metric(step(500.0))
        for rival in (*simple_rivals(), Mahalanobis(), Minder()):
            again: Rival = pickle.loads(pickle.dumps(rival))
            setting = rival.grid[-1]
            assert again.flags(matrix, again.prepare(matrix), setting) == rival.flags(
                matrix, rival.prepare(matrix), setting
            )

    def test_edge_of_a_grid(self) -> None:
        grid = [(w, t, s) for w in ("few", "all") for t in (1.0, 2.0, 3.0) for s in (False, True)]
        assert [at_edge(grid, ("few", t, True)) for t in (1.0, 2.0, 3.0)] == [True, False, True]

    def test_small_helpers(self) -> None:
        odd = np.array([[1], [1], [0], [1], [1], [1]], dtype=bool)
        assert lasting(odd, 2)[:, 0].tolist() == [False, True, False, False, True, True]
        assert held(odd[:4], 2)[:, 0].tolist() == [True, True, True, True]
        assert list(spans_of(odd)) == [(0, 0, 2), (0, 3, 6)]
        gaps = np.array([[np.nan, 1.0], [2.0, np.nan]], dtype=np.float32)
        np.testing.assert_array_equal(nearest_filled(gaps), np.array([[np.nan, 1], [2, 1]], dtype=np.float32))
        assert candidates(np.array([[1, 5, 3], [1, 2, 3]], dtype=np.float32), 4).tolist() == [
            [False, True, False],
            [False, False, False],
        ]

    def test_one_dimensional_walk_needs_a_majority(self) -> None:
        halves = one_metric()
        halves.values[:, :6] += 500.0
        assert not OneDimensional().flags(halves, None, ("all", 0.8))


# The gate: counts, not timings; numbers may only get better


GATE = (
    tiny_case(a_fault("nvlink_xid", "gpu005", "gpu 3")),
    tiny_case(a_fault("pcie_downgrade", "gpu009")),
    tiny_case(a_fault("gpu_throttle", "gpu002", "gpu 6")),
    tiny_case(a_fault("machine_down", "gpu011")),
    tiny_case(),
    tiny_case(events=(GroupEvent("job_slowdown", START + 25 * 60, START + 35 * 60),)),
)


def gate_score(number: int) -> tuple[CaseScore, CaseMatrix]:
    case = replace(GATE[number], id=f"gate-{number}", seed=100 + number)
    seen = see(case)
    return score_case(seen.recording, seen.findings, RULES), seen.matrix


class TestGate:
    def test_no_miss_and_no_false_alarm_on_easy_cases(self) -> None:
        scores = [gate_score(number)[0] for number in range(len(GATE))]
        summary = summarise(ODDNODE, scores, RULES)
        assert [f.fault.kind for s in scores for f in s.faults if f.delay_s is None] == []
        assert (summary.found, summary.missed, summary.false_rate.count) == (4, 0, 0)
        assert summary.all_faults.delay.median_s is not None
        assert summary.all_faults.delay.median_s <= 300
        assert "1.00" in main_table([summary])

    def test_two_runs_are_the_same(self) -> None:
        (one, first), (two, second) = gate_score(0), gate_score(0)
        assert one == two
        np.testing.assert_array_equal(first.values, second.values)
        np.testing.assert_array_equal(first.errors, second.errors)

    def test_rivals_run_on_a_real_matrix(self) -> None:
        score, matrix = gate_score(0)
        for rival in (*simple_rivals(), Mahalanobis()):
            flags = rival.flags(matrix, rival.prepare(matrix), rival.grid[0])
            assert {f.node for f in flags} <= set(TINY.pool)
            score_case(score.recording, Findings(tuple(flags)), RULES)
        codes = AnyError().flags(matrix, None, ("codes",))
        assert [(f.node, f.part) for f in codes] == [("gpu005", "gpu 3")]

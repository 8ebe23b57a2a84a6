"""Cases are drawn with layouts of jobs, habits and groups of metrics; everyday events come as stated."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detect import splits as p
from benchmarks.detect.incidents import CaseSpec, cases, recording_of, write
from benchmarks.detect.incidents_everyday import (
    DAY_S,
    PER_CLUSTER_DAY,
    PER_NODE_DAY,
    everyday_events,
)
from benchmarks.detect.incidents_habits import manifestation, structure_of, with_habits
from detector.source.incident_file import load_recording
from simulator.config import ClusterConfig
from simulator.faults import STALLING, Fault
from simulator.habits import NO_QUIRKS, PLAIN
from simulator.job import checkpoint_writers
from simulator.metric_sets import select, story
from simulator.symptoms import GROUPS

TINY = ClusterConfig(train_nodes=12, spares=2, cpus=2, metrics=select("DCGM_", "node_load1", "up"))
LAYOUTS = ("stages", "moe", "shards", "two jobs")
LIBRARY = {split: list(cases(split, 440)) for split in p.SPLITS}


def share(found: list[CaseSpec], *words: str) -> float:
    return sum(any(word in case.structure for word in words) for case in found) / len(found)


class TestDraws:
    @pytest.mark.parametrize("split", sorted(p.SPLITS))
    def test_shares_are_those_published(self, split: str) -> None:
        found = LIBRARY[split]
        assert abs(share(found, *LAYOUTS) - p.STRUCTURED_SHARE) < 0.08
        plain = sum(not case.structure for case in found) / len(found)
        assert abs(plain - (1 - p.STRUCTURED_SHARE) * (1 - p.HABITS_SHARE)) < 0.08
        for habit, chance in p.HABIT_SHARE.items():
            assert abs(share(found, habit) - p.HABITS_SHARE * chance) < 0.08, habit
        for layout in LAYOUTS:
            mixes = sum(layout in mix for mix in p.MIXES) / len(p.MIXES)
            assert abs(share(found, layout) - p.STRUCTURED_SHARE * mixes) < 0.08, layout

    @pytest.mark.parametrize("split", sorted(p.HABITS))
    def test_cases_stay_in_the_ranges_of_their_split(self, split: str) -> None:
        ranges = p.HABITS[split]
        for case in LIBRARY[split]:
            work, quirks, words = case.config.workload, case.config.quirks, case.structure
            for word, value, low_high in (
                ("stages", work.stage_spread, ranges.stage_spread),
                ("moe", work.moe, ranges.moe),
                ("moe", work.moe_tau_s / 60, ranges.moe_tau_min),
                ("shards", work.shard_spread, ranges.shard_spread),
                ("two jobs", work.second_share, ranges.second_share),
                ("rank 0", work.rank0_extra, ranges.rank0_extra),
                ("racks", quirks.rack_heat, ranges.rack_heat),
                ("tails", quirks.tail_scale, ranges.tail_scale),
                ("drift", quirks.drift, ranges.drift),
                ("gaps", quirks.gaps_per_target_day, ranges.gaps_per_target_day),
            ):
                assert word not in words or low_high[0] <= value <= low_high[1], (case.id, word)
            assert "stages" not in words or work.stages in ranges.stages
            assert "shards" not in words or work.shard_nodes in ranges.shard_nodes
            assert ranges.watchdog_min[0] <= case.config.watchdog_s / 60 <= ranges.watchdog_min[1]
            for fault in case.node_faults:
                after = fault.options.get("stalls_after_s", ranges.stalls_after_s[0])
                assert isinstance(after, float | int)
                assert ranges.stalls_after_s[0] <= after <= ranges.stalls_after_s[1]

    def test_every_range_differs_between_the_splits(self) -> None:
        for field in fields(p.Habits):
            drawn = {str(getattr(p.HABITS[split], field.name)) for split in p.SPLITS}
            assert len(drawn) == 3, field.name

    def test_drawn_again_it_is_the_same(self) -> None:
        one, two = (with_habits(np.random.default_rng(4), TINY, p.HABITS["train"]) for _ in range(2))
        assert one == two
        drawn = {
            structure_of(with_habits(np.random.default_rng(k), TINY, p.HABITS["train"])) for k in range(20)
        }
        assert len(drawn) > 10

    def test_a_plain_case_is_a_plain_cluster(self) -> None:
        plain = [case for case in LIBRARY["train"] if not case.structure]
        assert plain
        for case in plain:
            assert case.config.workload == PLAIN
            assert replace(case.config.quirks, twice_share=1.0) == NO_QUIRKS

    def test_nobody_is_blamed_for_two_jobs_and_spares(self) -> None:
        case = next(c for c in LIBRARY["test"] if "two jobs" in c.structure)
        recording = recording_of(case)
        assert recording.pool == case.config.pool
        assert len(recording.spares) == 3
        assert "two jobs" in recording.notes


class TestGroups:
    @pytest.mark.parametrize("kind", ["ecc_xid", "nvlink_xid", "gpu_lost"])
    def test_published_chances_are_drawn(self, kind: str) -> None:
        rng = np.random.default_rng(2)
        drawn = [manifestation(rng, kind, p.HABITS["train"]) for _ in range(3000)]
        groups = [d["groups"] for d in drawn if "groups" in d]
        assert abs(len(groups) / len(drawn) - p.GROUPS_SHARE) < 0.03
        for group in GROUPS:
            seen = sum(group in g for g in groups if isinstance(g, tuple)) / len(groups)
            assert abs(seen - p.GROUP_CHANCES[kind][group]) < 0.04, group

    def test_published_rows(self) -> None:
        assert p.GROUP_CHANCES["ecc_xid"]["cpu"] == pytest.approx(0.8)
        assert p.GROUP_CHANCES["nvlink_xid"]["disk"] == 0
        assert p.GROUP_CHANCES["gpu_lost"]["pfc"] == pytest.approx(0.05)

    def test_stalling_faults_stall_at_a_drawn_time(self) -> None:
        times = {
            fault.options["stalls_after_s"]
            for case in LIBRARY["test"]
            for fault in case.node_faults
            if fault.kind in STALLING
        }
        assert len(times) > 50

    def test_storage_is_slow_where_it_is_used(self) -> None:
        stages = Counter()
        for case in LIBRARY["test"]:
            for fault in case.node_faults:
                if fault.kind == "nfs_stage_slow":
                    stages[fault.options["stage"]] += 1
                    if fault.options["stage"] == "checkpoint":
                        assert fault.node in checkpoint_writers(case.config)
                        assert case.config.checkpoint_s == (240.0, 480.0)
                    if fault.options["stage"] == "loading":
                        assert any(e.kind == "job_restart" for e in case.events)
        assert set(stages) <= set(p.STAGES_OF_STORAGE)
        assert sum(stages.values()) > 5

    def test_one_metric_is_rare_and_there(self) -> None:
        odd = [c for c in LIBRARY["test"] if c.node_faults and c.node_faults[0].kind == "one_metric"]
        assert 0.01 < len(odd) / len(LIBRARY["test"]) < 0.06
        assert all(c.node_faults[0].options["metric"] in (c.config.metrics or ()) for c in odd)


class TestMaintenance:
    CASE = CaseSpec(
        "m", "train", 3, TINY, 1800.0, (Fault("maintenance", "gpu004", TINY.start + 600, TINY.start + 1200),)
    )

    def test_it_is_masked_time_and_no_fault(self) -> None:
        recording = recording_of(self.CASE)
        assert recording.healthy
        assert not recording.faults
        assert [(m.node, m.onset, m.end) for m in recording.masked] == [
            ("gpu004", TINY.start + 600, TINY.start + 1200)
        ]
        assert not recording.group_events

    def test_it_is_written_so(self, tmp_path: Path) -> None:
        write(self.CASE, tmp_path)
        found = load_recording(tmp_path / "m")
        assert [m.node for m in found.masked] == ["gpu004"]
        assert found.healthy

    def test_short_restarts_of_exporters_are_benign(self) -> None:
        restart = Fault("exporter_restart", "gpu002", TINY.start + 60, TINY.start + 90, "node_exporter")
        recording = recording_of(replace(self.CASE, faults=(restart,)))
        assert not recording.group_events
        assert {"node": "gpu002", "kind": "exporter_restart node_exporter"}.items() <= recording.benign[
            -1
        ].items()


class TestEveryday:
    CONFIG = ClusterConfig(cpus=2, metrics=story())
    DAYS = 60.0

    def test_density_is_that_stated(self) -> None:
        start = self.CONFIG.start
        found = everyday_events(self.CONFIG, 5, start, start + self.DAYS * DAY_S)
        count = Counter(f.kind for f in found.faults)
        for kind, rate in PER_NODE_DAY.items():
            expected = rate * self.CONFIG.n_nodes * self.DAYS
            assert abs(count[kind] - expected) < 4 * expected**0.5 + 3, kind
        events = Counter(e.kind for e in found.events)
        for kind, rate in PER_CLUSTER_DAY.items():
            expected = rate * self.DAYS + (2 * count["maintenance"] if kind == "job_restart" else 0)
            assert abs(events[kind] - expected) < 4 * expected**0.5 + 3, kind

    def test_a_longer_time_has_the_same_and_more(self) -> None:
        start = self.CONFIG.start
        week = everyday_events(self.CONFIG, 5, start, start + 7 * DAY_S)
        month = everyday_events(self.CONFIG, 5, start, start + 30 * DAY_S)
        assert {f.onset for f in week.faults} <= {f.onset for f in month.faults}
        assert len(month.events) > len(week.events) > 3
        assert week == everyday_events(self.CONFIG, 5, start, start + 7 * DAY_S)
        assert week != everyday_events(self.CONFIG, 6, start, start + 7 * DAY_S)

    def test_no_fault_of_a_node_and_never_rank_0(self) -> None:
        start = self.CONFIG.start
        found = everyday_events(self.CONFIG, 5, start, start + 30 * DAY_S)
        assert not any(f.is_node_fault for f in found.faults)
        assert not any(f.node == "gpu001" for f in found.faults)
        assert all(start <= f.onset <= f.end <= start + 30 * DAY_S for f in found.faults)

    def test_it_runs(self) -> None:
        config = replace(TINY, train_nodes=60)
        found = everyday_events(config, 5, config.start, config.start + DAY_S)
        case = CaseSpec("e", "long", 5, config, DAY_S, found.faults, found.events)
        cluster = case.cluster()
        for at in config.start + 1800.0 * np.arange(48):
            values, _ = cluster.tick(float(at))
        assert np.isfinite(values).any()
        assert len(recording_of(case).masked) == sum(f.kind == "maintenance" for f in found.faults)

"""Jobs, stages, groups, racks and the habits of the monitoring are seen in the samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.agenda import Agenda
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import NO_NODE_FAULTS, STALLING, Fault, GroupEvent
from simulator.habits import Quirks, Workload
from simulator.layout import layout_of
from simulator.metric_sets import story
from simulator.symptoms import GROUPS, draw_groups
from tests.simulated import STEP, Run

BASE = ClusterConfig(
    train_nodes=12,
    spares=2,
    cpus=2,
    n_veth=1,
    metrics=story(),
    missed_scrape=0.0,
    benign_per_node_hour=0.0,
)
NVLINK, UTIL, POWER = (
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
)
SENT = "node_infiniband_port_data_transmitted_bytes_total"
START = BASE.start


def run(n: int, *faults: Fault, events: tuple[GroupEvent, ...] = (), seed: int = 5, **changes: Any) -> Run:
    return Run(Cluster(replace(BASE, **changes), seed, faults, events), n)


def levels(made: Run, name: str) -> NDArray[np.float64]:
    """Median of each training node over time and parts."""
    return np.array([np.nanmedian(made.of(name, node)) for node in made.cluster.config.pool])


def by_job(made: Run, name: str, at: int | slice) -> tuple[float, float]:
    values = [np.nanmedian(made.of(name, node)[at]) for node in made.cluster.config.pool]
    return float(np.median(values[:7])), float(np.median(values[7:]))


TWO = Workload(second_share=5 / 12)
EVERYTHING: dict[str, Any] = {
    "workload": Workload(
        second_share=0.4,
        job_label="kubernetes",
        stages=3,
        stage_spread=0.2,
        moe=0.1,
        shard_nodes=2,
        shard_spread=0.05,
        rank0_extra=1.0,
        eval_every_s=(600.0, 1200.0),
        start_stagger_s=60.0,
        spin_util=0.0,
    ),
    "quirks": Quirks(
        rack_nodes=4,
        rack_heat=3.0,
        slot_heat=1.5,
        tail_scale=3.0,
        drift=0.5,
        pods=("dcgm",),
        scraped_twice=("all_smi",),
        gaps_per_target_day=20.0,
    ),
}


class TestJobs:
    @pytest.mark.parametrize("nodes", [24, 512])
    def test_everybody_has_a_place(self, nodes: int) -> None:
        work = Workload(second_share=0.3, stages=8, shard_nodes=4)
        layout = layout_of(replace(BASE, train_nodes=nodes, workload=work))
        assert np.bincount(layout.job).tolist() == [nodes - round(0.3 * nodes), round(0.3 * nodes), 2]
        for job in (0, 1):
            stages = layout.stage[layout.job == job]
            assert np.all(np.diff(stages) >= 0)
            assert set(stages) == set(range(min(8, len(stages))))

    def test_same_seed_same_samples_with_everything_on(self) -> None:
        events = (GroupEvent("job_restart", START + 90, START + 180),)
        one, two = (run(12, events=events, **EVERYTHING) for _ in range(2))
        np.testing.assert_array_equal(one.values, two.values)
        np.testing.assert_array_equal(one.ts_ms, two.ts_ms)
        assert one.cluster.series == two.cluster.series
        assert not np.array_equal(run(2, seed=6, **EVERYTHING).values[:2, :500], one.values[:2, :500])

    def test_every_series_is_named_once(self) -> None:
        events = tuple(GroupEvent("job_restart", START + k, START + k + 60) for k in (90, 600))
        series = run(1, events=events, **EVERYTHING).cluster.series
        assert len({tuple(sorted(s.items())) for s in series}) == len(series)

    def test_stages_are_groups_of_their_own(self) -> None:
        made = levels(run(8, workload=Workload(stages=3, stage_spread=0.3)), NVLINK)
        stages = made.reshape(3, 4)
        between = np.ptp(np.log(stages.mean(axis=1)))
        assert between > 5 * np.log(stages).std(axis=1).max()
        plain = levels(run(8), NVLINK)
        assert np.ptp(np.log(plain)) < between / 3

    def test_expert_load_wanders_and_its_mean_stays(self) -> None:
        made = run(120, workload=Workload(moe=0.15, moe_tau_s=600.0))
        logs = np.array([np.log(np.nanmedian(made.of(NVLINK, n), axis=1)) for n in BASE.pool])
        assert 0.07 < np.nanstd(logs - np.nanmedian(logs, axis=0)) < 0.25
        steps = np.abs(np.diff(logs - np.nanmedian(logs, axis=0)))
        assert np.nanmedian(steps) < 0.08

    def test_only_the_first_shard_group_writes_checkpoints(self) -> None:
        made = run(70, workload=Workload(shard_nodes=3), checkpoint_s=(300.0, 600.0))
        peak = [np.nanmax(made.of("node_memory_Dirty_bytes", node)) for node in BASE.pool]
        assert [p > 1e9 for p in peak] == [True] * 3 + [False] * 9

    def test_shard_groups_differ_in_traffic_only(self) -> None:
        made = run(8, workload=Workload(shard_nodes=4, shard_spread=0.2))
        groups = levels(made, NVLINK).reshape(3, 4)
        assert np.ptp(np.log(groups.mean(axis=1))) > 3 * np.log(groups).std(axis=1).max()
        assert np.ptp(levels(made, "DCGM_FI_DEV_FB_USED")) < 5000

    def test_rank_0_works_more(self) -> None:
        made, plain = run(12, workload=Workload(rank0_extra=1.0)), run(12)
        name, device = "node_network_transmit_bytes_total", "net0"
        for one, least in ((made, 10.0), (plain, 0.0)):
            rates = [np.diff(one.of(name, n, device=device)[[0, -1], 0])[0] for n in BASE.pool]
            assert (rates[0] / np.median(rates) > 10) == bool(least)
        tasks = levels(made, "backendai_async_task_count")
        assert tasks[0] >= tasks[1:].max() + 2

    def test_evaluation_shows_on_all_nodes_of_the_job(self) -> None:
        made = run(60, workload=Workload(eval_every_s=(300.0, 500.0), eval_s=(120.0, 180.0)))
        power = np.array([np.nanmedian(made.of(POWER, node), axis=1) for node in BASE.pool])
        low = power < 0.85 * np.median(power)
        assert 5 < low[0].sum() < 50
        assert (low.all(axis=0) | ~low.any(axis=0)).mean() > 0.9

    def test_one_of_two_jobs_stalls_or_restarts_alone(self) -> None:
        at = START + 5 * STEP
        crash = run(14, Fault("cuda_error", "gpu009", at, at + 3600), workload=TWO)
        first, second = by_job(crash, NVLINK, slice(9, None))
        assert first > 1e4
        assert second == 0
        events = (GroupEvent("job_restart", at, at + 600, nodes=BASE.pool[:1]),)
        first, second = by_job(run(14, events=events, workload=TWO), UTIL, slice(9, None))
        assert first == 0
        assert second > 50

    def test_two_jobs_differ(self) -> None:
        first, second = by_job(run(6, workload=TWO), "DCGM_FI_DEV_FB_USED", slice(None))
        assert abs(np.log(first / second)) > 0.02

    @pytest.mark.parametrize(("kind", "label"), [("hpc_job", "hpc_job"), ("kubernetes", "exported_pod")])
    def test_jobs_can_be_told_by_a_label(self, kind: str, label: str) -> None:
        series = Cluster(replace(BASE, workload=replace(TWO, job_label=kind)), 5).series
        gpus = [s for s in series if s["__name__"] == UTIL]
        told = {s["Hostname"]: s.get(label, "") for s in gpus}
        assert all(told[n] for n in BASE.pool)
        assert not any(told[n] for n in BASE.spare_names)
        assert len({told[n][:9] for n in BASE.pool}) == 2
        assert not any(label in s for s in series if s["job"] == "node")

    def test_pods_of_a_job_get_other_names_when_it_restarts(self) -> None:
        events = (GroupEvent("job_restart", START + 300, START + 360),)
        made = run(20, events=events, workload=Workload(job_label="kubernetes"))
        old, new = (
            made.rows(UTIL, Hostname="gpu003", exported_pod=pod)
            for pod in sorted(
                {made.cluster.series[i]["exported_pod"] for i in made.rows(UTIL, Hostname="gpu003")}
            )
        )
        assert np.isfinite(made.values[:10, old]).all()
        assert np.isnan(made.values[10:, old]).all()
        assert np.isnan(made.values[:10, new]).all()
        assert np.isfinite(made.values[10:, new]).all()


class TestStalls:
    @pytest.mark.parametrize("kind", sorted(STALLING))
    def test_the_whole_job_collapses_within_minutes(self, kind: str) -> None:
        at = START + 5 * STEP
        made = run(14, Fault(kind, "gpu004", at, at + 3600))
        others = [node for node in BASE.pool if node != "gpu004"]
        assert all(np.nanmax(made.of(NVLINK, node)[9:]) == 0 for node in others)
        assert all(np.nanmin(made.of(UTIL, node)[9:]) == 100 for node in others)
        power = [
            np.nanmedian(made.of(POWER, node)[9:]) / np.nanmedian(made.of(POWER, node)[:5]) for node in others
        ]
        assert max(power) < 0.6

    def test_waiting_may_show_as_idle(self) -> None:
        at = START + 5 * STEP
        fault = Fault("cuda_error", "gpu004", at, at + 3600, options={"stalls_after_s": 120.0})
        made = run(14, fault, workload=Workload(spin_util=0.0, spin_busy=0.05))
        assert np.nanmin(made.of(UTIL, "gpu001")[8]) > 50
        assert np.nanmax(made.of(UTIL, "gpu001")[11:]) == 0

    def test_a_killed_job_falls_idle(self) -> None:
        at = START + 2 * STEP
        made = run(20, Fault("cuda_error", "gpu004", at, at + 3600), watchdog_s=240.0)
        assert np.nanmax(made.of(UTIL, "gpu001")[16:]) == 0


class TestSymptoms:
    def shown(self, *groups: str, kind: str = "ecc_xid") -> dict[str, bool]:
        at = START + 5 * STEP
        options: dict[str, object] = {"groups": groups, "stalls_after_s": 240.0}
        made = run(12, Fault(kind, "gpu004", at, at + 3600, "gpu 2", 1.0, options))

        def change(name: str, *, rate: bool = False, part: int | None = None) -> float:
            found = []
            for node in ("gpu004", "gpu005"):
                values = made.of(name, node)
                values = values.mean(axis=1) if part is None else values[:, part]
                values = np.diff(values) if rate else values
                found.append(np.nanmedian(values[8:]) / np.nanmedian(values[:4]))
            return float(found[0] / found[1])

        return {
            "cpu": change("node_context_switches_total", rate=True) < 0.7,
            "gpu": change(POWER) < 0.7,
            "memory": change("node_memory_AnonPages_bytes") < 0.7,
            "throughput": change(SENT, rate=True, part=0) < 0.7,
            "pfc": change("node_infiniband_port_transmit_wait_total", rate=True, part=0) > 2,
            "disk": change("node_disk_written_bytes_total", rate=True, part=0) > 2,
        }

    @pytest.mark.parametrize("group", GROUPS)
    def test_a_fault_shows_in_the_drawn_group_alone(self, group: str) -> None:
        shown = self.shown(group)
        if group == "gpu":  # idle GPUs send nothing over NVLink, but the ports are not theirs
            shown["throughput"] = False
        assert [name for name, is_seen in shown.items() if is_seen] == [group]

    def test_a_fault_may_show_in_no_group(self) -> None:
        assert not any(self.shown(kind="nvlink_xid").values())

    def test_groups_are_drawn_with_their_chances(self) -> None:
        rng = np.random.default_rng(1)
        drawn = [draw_groups(rng, {"cpu": 0.8, "disk": 0.1}) for _ in range(2000)]
        share = {group: np.mean([group in d for d in drawn]) for group in GROUPS}
        assert abs(share["cpu"] - 0.8) < 0.03
        assert abs(share["disk"] - 0.1) < 0.03
        assert share["gpu"] == 0


class TestQuirks:
    def test_racks_are_warmer_or_cooler(self) -> None:
        temp = levels(run(8, quirks=Quirks(rack_nodes=4, rack_heat=8.0)), "DCGM_FI_DEV_GPU_TEMP")
        racks = temp.reshape(3, 4)
        assert np.ptp(np.median(racks, axis=1)) > 2 * np.median(racks.std(axis=1))
        cpu = levels(run(8, quirks=Quirks(rack_nodes=4, rack_heat=8.0)), "all_smi_cpu_temperature_celsius")
        assert np.corrcoef(np.repeat(np.median(racks, axis=1), 4), cpu)[0, 1] > 0.7

    def test_drift_takes_nodes_apart_slowly(self) -> None:
        def spread(drift: float) -> float:
            made = run(4, quirks=Quirks(drift=drift), node_spread=0.1)
            means = [np.nanmean(made.of("DCGM_FI_DEV_GPU_TEMP", node)) for node in BASE.pool]
            return float(np.ptp(means))

        assert spread(1.0) > 1.5 * spread(0.0)

    def test_tails_burst_more_often(self) -> None:
        names = (
            "node_mountstats_nfs_event_vfs_open_total",
            "node_mountstats_nfs_event_inode_revalidate_total",
        )

        def bursts(scale: float) -> int:
            made = run(60, quirks=Quirks(tail_scale=scale))
            rates = np.diff(made.values[:, [i for name in names for i in made.rows(name)]], axis=0)
            return int(np.sum(rates > 3 * np.median(rates, axis=0)))

        assert bursts(20.0) > 2 * bursts(1.0)

    def test_targets_are_silent_for_a_while(self) -> None:
        made = run(60, quirks=Quirks(gaps_per_target_day=30.0, gap_s=(90.0, 150.0)))
        up = np.hstack([made.of("up", node) for node in BASE.node_names])
        assert 0.005 < np.mean(up == 0) < 0.2
        lengths = [
            len(s) for column in up.T for s in "".join("01"[int(v == 0)] for v in column).split("0") if s
        ]
        assert 2 < np.median(lengths) <= 6

    def test_a_second_scrape_job_gives_the_same_values_at_other_times(self) -> None:
        made = run(6, quirks=Quirks(scraped_twice=("dcgm",), twice_share=0.5))
        once, twice = made.rows(UTIL, job="dcgm"), made.rows(UTIL, job="dcgm-2")
        assert len(twice) == 7 * 8
        plain = {(s["Hostname"], s["gpu"]): i for i in once for s in [made.cluster.series[i]]}
        for i in twice:
            s = made.cluster.series[i]
            first = plain[s["Hostname"], s["gpu"]]
            np.testing.assert_array_equal(made.values[:, i], made.values[:, first])
            assert (made.ts_ms[:, i] != made.ts_ms[:, first]).all()

    def test_counters_of_a_restarted_exporter_begin_anew_those_of_the_host_do_not(self) -> None:
        at = START + 5 * STEP
        restart = Fault("exporter_restart", "gpu003", at, at + 45, "node_exporter")
        metrics = frozenset({"process_cpu_seconds_total", "node_context_switches_total"})
        made = run(12, restart, metrics=metrics)
        own = made.of("process_cpu_seconds_total", "gpu003", job="node")
        host = made.of("node_context_switches_total", "gpu003")
        assert own[8, 0] < 0.1 * own[2, 0]
        assert host[8, 0] > host[2, 0]

    def test_a_drained_node_may_be_started_anew(self) -> None:
        at = START + 5 * STEP
        options: dict[str, object] = {"reboot_after_s": 120.0, "reboot_s": 120.0}
        made = run(20, Fault("maintenance", "gpu003", at, at + 360, options=options))
        up = made.of("up", "gpu003")
        assert not up[9:13].any()
        assert up[[*range(9), *range(13, 20)]].all()
        switches = made.of("node_context_switches_total", "gpu003")[:, 0]
        assert switches[13] < 0.1 * switches[8]
        assert np.nanmin(made.of(UTIL, "gpu003")[18:]) > 50
        assert np.nanmin(made.of(UTIL, "gpu001")) > 50

    def test_storage_may_be_slow_in_one_stage_only(self) -> None:
        at = START + 2 * STEP
        options: dict[str, object] = {"stage": "checkpoint"}
        fault = Fault("nfs_stage_slow", "gpu001", at, at + 7200, "10.2.0.11:/ckpt", 1.0, options)
        made = run(60, fault, checkpoint_s=(300.0, 500.0))
        busy = np.diff(made.of("node_pressure_io_waiting_seconds_total", "gpu001")[:, 0])
        other = np.diff(made.of("node_pressure_io_waiting_seconds_total", "gpu002")[:, 0])
        assert np.sum(busy > 2 * other) >= 2
        assert np.median(busy[5:] / other[5:]) < 1.5


class TestEvents:
    def test_a_warm_room_warms_its_nodes_only(self) -> None:
        event = GroupEvent("hot_room", START + 120, START + 3600, 1.0, BASE.pool[:4])
        temp = "DCGM_FI_DEV_GPU_TEMP"
        made = run(20, events=(event,))
        rise = [np.mean(made.of(temp, n)[-1] - made.of(temp, n)[2]) for n in BASE.pool]
        assert min(rise[:4]) > max(rise[4:]) + 6
        assert max(rise[4:]) < 1

    def test_congestion_is_seen_by_all(self) -> None:
        event = GroupEvent("fabric_congestion", START + 150, START + 3600, 1.0)
        made = run(12, events=(event,))
        name = "node_infiniband_port_transmit_wait_total"
        for node in BASE.pool:
            rate = np.diff(made.of(name, node)[:, 0])
            assert np.median(rate[6:]) > 5 * np.median(rate[:4])

    def test_unknown_node_of_an_event(self) -> None:
        with pytest.raises(ValueError, match="event hot_room is on gpu999"):
            run(1, events=(GroupEvent("hot_room", START, START + 9, nodes=("gpu999",)),))

    def test_no_node_fault_is_one(self) -> None:
        assert not Fault("maintenance", "gpu001", 0, 1).is_node_fault
        assert "maintenance" in NO_NODE_FAULTS


class TestAgenda:
    def test_hands_out_in_the_order_given_and_forgets(self) -> None:
        def slow(kind: str, onset: float, end: float) -> Fault:
            return Fault(kind, "gpu001", onset, end)

        late, early, lasting = slow("nic_slow", 50, 70), slow("disk_slow", 10, 20), slow("ecc_xid", 5, 6)
        agenda = Agenda((late, early, lasting), lambda f: f.kind == "ecc_xid")
        assert [agenda.at(t) for t in (0, 5, 15, 20, 60, 100)] == [
            [], [lasting], [early, lasting], [lasting], [late, lasting], [lasting],
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Workload(second_share=1.0), "second_share must be from 0 to below 1"),
        (lambda: Workload(stages=0), "stages must be at least 1"),
        (lambda: Workload(job_label="slurm"), "job_label must be one of"),
        (
            lambda: Fault("target_renamed", "gpu001", 0, 1, "gpu 1"),
            "part of target_renamed must be an exporter",
        ),
        (lambda: Fault("one_metric", "gpu001", 0, 1), "one_metric needs the option metric"),
    ],
)
def test_bad_values_are_told(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()

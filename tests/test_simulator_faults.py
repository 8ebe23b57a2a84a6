"""Simulated faults are visible where they should be, and the cases made of them are whole."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.source.incident_file import load_recording
from simulator.build_replay_data import readme
from simulator.cluster import Cluster
from simulator.faults import KINDS, Fault, GroupEvent, part_index
from simulator.recording import write_case
from simulator.scenarios import SCENARIOS, gpu068
from simulator.shapes import shaped
from simulator.topology import pod_name
from tests.simulated import SMALL, STEP, Run, fault, small_run


def ratio(run: Run, name: str, node: str, column: int | slice = slice(None), *, rate: bool = False) -> float:
    """Level after the onset against before, as the median over time."""
    values = run.of(name, node)[:, column]
    if rate:
        values = np.diff(values, axis=0)
    return float((np.nanmedian(values[9:]) + 1e-12) / (np.nanmedian(values[:4]) + 1e-12))


SYMBOL_ERRORS = "node_infiniband_symbol_error_total"
IB_RECEIVED = "node_infiniband_port_data_received_bytes_total"
NFS_RESPONSE = "node_mountstats_nfs_operations_response_time_seconds_total"
AVAILABLE = "node_memory_MemAvailable_bytes"
XIDS = "DCGM_FI_DEV_XID_ERRORS"
UNCORRECTED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"

LOAD = "node_load5"
POD = pod_name("dcgm", "gpu003", 1)
OPTIONS: dict[str, dict[str, object]] = {"one_metric": {"metric": LOAD}}
EXPORTER_KINDS = ("exporter_down", "exporter_restart", "target_renamed")

EFFECTS: list[tuple[str, str, Callable[[Run], bool]]] = [
    ("gpu_throttle", "gpu 4", lambda r: ratio(r, "DCGM_FI_DEV_SM_CLOCK", "gpu003", 4) < 0.7),
    ("gpu_throttle", "gpu 4", lambda r: 0.85 < ratio(r, "DCGM_FI_DEV_SM_CLOCK", "gpu002", 4) < 1.15),
    ("gpu_power_cap", "gpu 1", lambda r: ratio(r, "DCGM_FI_DEV_POWER_USAGE", "gpu003", 1) < 0.7),
    ("ib_errors", "mlx5_3/1", lambda r: ratio(r, SYMBOL_ERRORS, "gpu003", 3, rate=True) > 10),
    ("ib_port_down", "mlx5_3/1", lambda r: r.of("node_infiniband_state_id", "gpu003")[-1, 3] == 1),
    ("ib_port_down", "mlx5_3/1", lambda r: r.of("node_network_carrier", "gpu003", device="ib3")[-1, 0] == 0),
    ("nic_slow", "mlx5_3/1", lambda r: ratio(r, IB_RECEIVED, "gpu003", 3, rate=True) < 0.6),
    ("pcie_downgrade", "", lambda r: ratio(r, IB_RECEIVED, "gpu003", 0, rate=True) < 0.7),
    ("pcie_downgrade", "", lambda r: not r.of(XIDS, "gpu003").any()),
    ("cpu_contention", "", lambda r: ratio(r, "node_procs_running", "gpu003") > 3),
    ("memory_leak", "", lambda r: r.of(AVAILABLE, "gpu003")[-1, 0] < 0.9 * r.of(AVAILABLE, "gpu003")[0, 0]),
    (
        "disk_slow",
        "nvme1n1",
        lambda r: ratio(r, "node_disk_io_time_seconds_total", "gpu003", 1, rate=True) > 20,
    ),
    ("nfs_slow", "10.2.0.10:/data", lambda r: ratio(r, NFS_RESPONSE, "gpu003", 1, rate=True) > 20),
    ("clock_skew", "", lambda r: r.of("node_timex_offset_seconds", "gpu003")[-1, 0] > 0.05),
    ("clock_skew", "", lambda r: r.of("node_timex_sync_status", "gpu003")[-1, 0] == 0),
    ("machine_down", "", lambda r: bool(np.isnan(r.of("node_load1", "gpu003")[9:]).all())),
    ("machine_down", "", lambda r: not r.of("up", "gpu003")[9:].any()),
    ("exporter_down", "dcgm", lambda r: bool(np.isnan(r.of("DCGM_FI_DEV_GPU_TEMP", "gpu003")[9:]).all())),
    ("exporter_down", "dcgm", lambda r: bool(np.isfinite(r.of("all_smi_gpu_utilization", "gpu003")).all())),
    ("tasks_growth", "", lambda r: r.of("backendai_async_task_count", "gpu003")[-1, 0] > 100),
    ("gsp_timeout", "gpu 5", lambda r: bool(np.isnan(r.of("DCGM_FI_DEV_GPU_TEMP", "gpu003")[9:]).all())),
    ("gsp_timeout", "gpu 5", lambda r: r.of(XIDS, "gpu003", err_code="119")[-1, 0] == 119),
    (
        "gpu_lost",
        "gpu 5",
        lambda r: bool(np.isnan(r.of("DCGM_FI_DEV_GPU_TEMP", "gpu003", gpu="5")[9:]).all()),
    ),
    ("gpu_lost", "gpu 5", lambda r: r.of(XIDS, "gpu003", err_code="79")[-1, 0] == 79),
    ("ecc_xid", "gpu 5", lambda r: r.of(UNCORRECTED, "gpu003")[-1, 5] > 0),
    (
        "remap_growth",
        "gpu 5",
        lambda r: (
            r.of("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "gpu003")[-1, 5]
            > 3 + r.of("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "gpu003")[0, 5]
        ),
    ),
    ("remap_growth", "gpu 5", lambda r: not r.of(XIDS, "gpu003").any()),
    (
        "pcie_replay",
        "gpu 5",
        lambda r: np.ptp(r.of("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gpu003")[:, 5]) > 10,
    ),
    ("nvlink_slow", "gpu 5", lambda r: ratio(r, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gpu003", 5) < 0.6),
    ("nvlink_slow", "gpu 5", lambda r: not r.of(XIDS, "gpu003").any()),
    ("tcp_loss", "", lambda r: ratio(r, "node_netstat_Tcp_RetransSegs", "gpu003", rate=True) > 5),
    ("cuda_error", "", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu003")[-1].max() < 5),
    ("cuda_error", "", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu002")[-1].min() == 100),
    ("nvlink_xid", "gpu 5", lambda r: r.of("backendai_async_task_count", "gpu003")[-1, 0] > 500),
    ("nvlink_xid", "gpu 5", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu002")[-1].min() == 100),
    ("nvlink_xid", "gpu 5", lambda r: ratio(r, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gpu002") < 0.01),
    ("gpu_exec_error", "gpu 5", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu003")[-1].max() < 5),
    ("gpu_exec_error", "gpu 5", lambda r: r.of(XIDS, "gpu003", err_code="31")[-1, 0] == 31),
    (
        "aoc_fault",
        "mlx5_3/1",
        lambda r: np.ptp(r.of("node_network_carrier_down_changes_total", "gpu003", device="ib3")) >= 4,
    ),
    ("aoc_fault", "mlx5_3/1", lambda r: np.ptp(r.of(SYMBOL_ERRORS, "gpu003")[:, 3]) < 3),
    (
        "exporter_restart",
        "node_exporter",
        lambda r: np.diff(r.of("process_start_time_seconds", "gpu003")[[0, -1], 0])[0] > 86400,
    ),
    ("exporter_restart", "node_exporter", lambda r: bool(np.isnan(r.of("node_load1", "gpu003")[9]).all())),
    ("maintenance", "", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu003")[-1].max() == 0),
    ("maintenance", "", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu002")[-1].min() > 50),
    ("one_metric", "", lambda r: ratio(r, LOAD, "gpu003") > 3),
    ("one_metric", "", lambda r: 0.8 < ratio(r, "node_procs_running", "gpu003") < 1.25),
    (
        "target_renamed",
        "dcgm",
        lambda r: bool(np.isfinite(r.of("DCGM_FI_DEV_GPU_TEMP", "gpu003", pod=POD)[9:]).all()),
    ),
    ("target_renamed", "dcgm", lambda r: len(r.of("DCGM_FI_DEV_GPU_TEMP", "gpu003")[0]) == 16),
    ("nfs_stage_slow", "10.2.0.10:/data", lambda r: 0.5 < ratio(r, NFS_RESPONSE, "gpu003", 1, rate=True) < 2),
]


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "part", "is_seen"), EFFECTS, ids=lambda x: x if isinstance(x, str) else ""
    )
    def test_effect(self, kind: str, part: str, is_seen: Callable[[Run], bool]) -> None:
        planted = fault(kind, part=part, options=OPTIONS.get(kind))
        if kind == "exporter_restart":
            planted = replace(planted, onset=planted.onset + 60, end=planted.onset + 180)
        assert is_seen(small_run(26, planted))

    def test_every_kind_has_an_effect_that_is_tested(self) -> None:
        assert {kind for kind, _, _ in EFFECTS} == set(KINDS)

    @settings(max_examples=15, deadline=None)
    @given(kind=st.sampled_from(sorted(KINDS)), severity=st.floats(0, 1))
    def test_nothing_changes_before_the_onset(self, kind: str, severity: float) -> None:
        part = "dcgm" if kind in EXPORTER_KINDS else ""
        planted = fault(kind, part=part, severity=severity, options=OPTIONS.get(kind))
        faulty, sound = small_run(5, planted), small_run(5)
        n = len(sound.cluster.series)
        np.testing.assert_array_equal(faulty.values[:, :n], sound.values)
        assert np.isnan(faulty.values[:, n:]).all()

    def test_a_ramp_grows_and_a_flapping_fault_comes_and_goes(self) -> None:
        onset = SMALL.start
        ramp = Fault("nic_slow", "gpu003", onset, onset + 3600, options={"shape": "ramp", "ramp_s": 600.0})
        flap = Fault("nic_slow", "gpu003", onset, onset + 3600, options={"shape": "flap", "period_s": 300.0})
        assert [shaped(ramp, onset + t)[0].severity for t in (0, 300, 900)] == [0.0, 0.5, 1.0]
        assert [shaped(flap, onset + t)[1] for t in (0, 120, 180, 299, 300, 3600)] == [
            True, True, False, False, True, False,
        ]  # fmt: skip
        with pytest.raises(ValueError, match="shape of fault nic_slow must be one of step, ramp, flap"):
            shaped(Fault("nic_slow", "gpu003", onset, onset + 1, options={"shape": "saw"}), onset)

    def test_a_subtle_fault_is_smaller_than_a_drastic_one(self) -> None:
        levels = [
            ratio(
                small_run(20, fault("disk_slow", part="nvme1n1", severity=s)),
                "node_disk_io_time_seconds_total",
                "gpu003",
                1,
                rate=True,
            )
            for s in (0.0, 0.5, 1.0)
        ]
        assert 1.5 < levels[0] < levels[1] < levels[2]

    def test_lost_gpu_shifts_the_indexes_of_all_smi(self) -> None:
        run = small_run(20, fault("gpu_lost", part="gpu 5"))
        name = "all_smi_gpu_utilization"
        before = {
            run.cluster.series[i]["index"]
            for i in run.rows(name, exported_instance="gpu003")
            if np.isfinite(run.values[0, i])
        }
        after = {
            run.cluster.series[i]["uuid"]: run.cluster.series[i]["index"]
            for i in run.rows(name, exported_instance="gpu003")
            if np.isfinite(run.values[-1, i])
        }
        assert before == set("01234567")
        assert sorted(after.values()) == list("0123456")

    def test_xid_code_is_a_new_series_and_the_old_one_ends(self) -> None:
        run = small_run(20, fault("nvlink_xid", part="gpu 5"))
        slot = {"gpu": "5"}
        zero, first, second = (run.of(XIDS, "gpu003", err_code=c, **slot)[:, 0] for c in ("0", "145", "149"))
        assert np.isfinite(zero[:5]).all()
        assert np.isnan(zero[5:]).all()
        assert np.isfinite(first).sum() == 2
        assert (second[8:] == 149).all()

    def test_failure_counters_appear_with_the_first_failure(self) -> None:
        run = small_run(26, fault("tasks_growth", minutes=20))
        values = run.of("backendai_rpc_failure_requests_total", "gpu003")[:, 0]
        appeared = np.isfinite(values)
        assert appeared[-1]
        assert not appeared[0] or values[0] >= 1

    def test_outage_silences_everything_and_counters_go_on(self) -> None:
        onset = SMALL.start + 5 * STEP
        run = small_run(20, events=(GroupEvent("monitoring_outage", onset, onset + 120),))
        assert np.isnan(run.values[5:9]).all()
        loads = run.of("node_network_receive_bytes_total", "gpu001", device="direct0")[:, 0]
        assert loads[9] > loads[4]

    def test_restart_leaves_all_idle_and_all_come_back(self) -> None:
        onset = SMALL.start + 5 * STEP
        run = small_run(30, events=(GroupEvent("job_restart", onset, onset + 120),))
        util = run.of("DCGM_FI_DEV_GPU_UTIL", "gpu002").mean(axis=1)
        assert util[7] == 0
        assert util[-1] > 90

    def test_group_slowdown_moves_all_alike(self) -> None:
        onset = SMALL.start + 5 * STEP
        run = small_run(20, events=(GroupEvent("job_slowdown", onset, onset + 900),))
        ratios = [ratio(run, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", node) for node in SMALL.pool]
        assert max(ratios) < 0.8
        assert max(ratios) - min(ratios) < 0.05

    def test_reboot_starts_counters_anew(self) -> None:
        run = small_run(26, fault("machine_down", minutes=2))
        seconds = run.of("node_network_receive_bytes_total", "gpu003", device="direct0")[:, 0]
        assert seconds[-1] < 0.5 * seconds[0]

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"kind": "nonsense"}, "unknown kind"),
            ({"severity": 2.0}, "severity"),
            ({"end": 0.0}, "before its onset"),
        ],
    )
    def test_wrong_faults_are_refused(self, wrong: dict[str, object], message: str) -> None:
        fields = {"kind": "disk_slow", "node": "gpu001", "onset": 10.0, "end": 20.0, **wrong}
        with pytest.raises(ValueError, match=message):
            Fault(**fields)  # type: ignore[arg-type]

    def test_unknown_node_and_part_are_refused(self) -> None:
        with pytest.raises(ValueError, match="no node of the cluster"):
            Cluster(SMALL, 1, [fault("disk_slow", node="gpu999")])
        with pytest.raises(ValueError, match="unknown part"):
            Cluster(SMALL, 1, [fault("disk_slow", part="floppy")])
        assert part_index("gpu 6") == part_index("mlx5_6/1") == part_index("ib6") == 6


class TestCases:
    def test_same_case_same_bytes(self, tmp_path: Path) -> None:
        for folder in ("a", "b"):
            cluster = Cluster(SMALL, 3, [fault("ib_errors", part="mlx5_1/1")])
            write_case(
                tmp_path / folder,
                cluster,
                SMALL.start,
                SMALL.start + 300,
                case_id="x",
                source="s",
                made="synthetic",
            )
        for name in ("series.jsonl.gz", "incident.yaml"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_the_description_is_what_the_detector_reads(self, tmp_path: Path) -> None:
        cluster = Cluster(
            SMALL, 3, [fault("ib_errors", part="mlx5_1/1"), fault("exporter_down", part="dcgm")]
        )
        write_case(
            tmp_path, cluster, SMALL.start, SMALL.start + 300, case_id="x", source="s", made="synthetic"
        )
        found = load_recording(tmp_path)
        assert (found.pool, found.spares) == (SMALL.pool, SMALL.spare_names)
        assert [(f.node, f.kind, f.part) for f in found.faults] == [("gpu003", "ib_errors", "mlx5_1/1")]
        assert [e.nodes for e in found.group_events] == [("gpu003",)]
        assert not found.healthy
        with gzip.open(tmp_path / "series.jsonl.gz") as lines:
            first = json.loads(next(lines))
        assert len(first["values"]) == len(first["timestamps"]) == 11

    def test_made_is_checked(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="made must be one of"):
            write_case(tmp_path, Cluster(SMALL, 1), 0, 0, case_id="x", source="s", made="recorded")

    @pytest.mark.parametrize("name", sorted(SCENARIOS))
    def test_stories_begin_quietly(self, name: str) -> None:
        scenario = SCENARIOS[name]()
        assert scenario.name == name
        for begins in [f.onset for f in scenario.faults] + [e.onset for e in scenario.events]:
            assert scenario.start + 1200 <= begins < scenario.end - 600
        assert name in readme(scenario)

    def test_gpu068_goes_as_told(self) -> None:
        scenario = gpu068()
        run = Run(scenario.cluster(), round(scenario.length_s / STEP) + 1)
        names = scenario.config.pool
        assert len(names) == 60
        assert scenario.faults[0].node == "gpu068"
        tasks = np.stack([run.of("backendai_async_task_count", node)[:, 0] for node in names])
        sick = names.index("gpu068")
        others = np.delete(tasks, sick, axis=0)
        assert (np.nanmin(others), np.nanmax(others)) == (44, 50)
        assert 864 <= np.nanmax(tasks[sick]) <= 874
        assert np.nanmax(tasks[sick, :50]) <= 50

    @pytest.mark.parametrize("name", sorted(SCENARIOS))
    def test_the_committed_cases_are_there(self, name: str) -> None:
        folder = Path(__file__).parent.parent / "replay_data" / name
        found = load_recording(folder)
        scenario = SCENARIOS[name]()
        assert (found.id, found.start, found.end) == (name, scenario.start, scenario.end)
        assert [f.node for f in found.faults] == [f.node for f in scenario.faults]
        assert found.provenance["made"] == scenario.made
        assert (folder / "README.md").read_text(encoding="utf-8") == readme(scenario)
        assert (folder / "series.jsonl.gz").stat().st_size < 8.5e6

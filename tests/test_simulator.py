"""The simulated cluster: same seed same bytes, all metrics, plausible behaviour, visible faults."""

from __future__ import annotations

import gzip
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detector.source.incident_file import load_recording
from grouping.catalog import load_catalog
from simulator.__main__ import main
from simulator.build_replay_data import readme
from simulator.cluster import Cluster
from simulator.columns import Column
from simulator.config import ClusterConfig
from simulator.exposition import Exposition, scrape_config, serving
from simulator.faults import KINDS, Fault, GroupEvent, part_index
from simulator.feed import Feeder, LineFormat, openmetrics_text
from simulator.metric_sets import reference_shape, select, story
from simulator.recording import collect, ticks, write_case
from simulator.scenarios import SCENARIOS, gpu068
from simulator.tables import all_columns
from tests import servers

STEP = 30.0
QUIET = {"missed_scrape": 0.0, "benign_per_node_hour": 0.0}
SMALL = ClusterConfig(train_nodes=6, spares=2, cpus=4, **QUIET)


class Run:
    """A cluster that has run for some ticks.

    Parameters
    ----------
    cluster
        The cluster.
    n
        Number of ticks.
    """

    def __init__(self, cluster: Cluster, n: int) -> None:
        self.cluster = cluster
        start = cluster.config.start
        self.values, self.ts_ms = collect(cluster, ticks(start, start + (n - 1) * STEP, STEP))

    def rows(self, name: str, **labels: str) -> list[int]:
        return [
            i
            for i, series in enumerate(self.cluster.series)
            if series["__name__"] == name and all(series.get(k) == v for k, v in labels.items())
        ]

    def of(self, name: str, node: str, **labels: str) -> NDArray[np.float64]:
        """Values of a node's series of one metric, shape (time, series)."""
        index = self.cluster.config.node_names.index(node)
        hosts = (f"10.1.{index // 250}.{index % 250 + 1}:", f"{node}:")
        rows = [i for i in self.rows(name, **labels) if self.cluster.series[i]["instance"].startswith(hosts)]
        assert rows, (name, node, labels)
        return self.values[:, rows]


def small_run(n: int, *faults: Fault, events: tuple[GroupEvent, ...] = (), **changes: object) -> Run:
    values = {**{f: getattr(SMALL, f) for f in SMALL.__slots__}, **changes}
    return Run(Cluster(ClusterConfig(**values), 5, faults, events), n)  # type: ignore[arg-type]


def fault(
    kind: str, node: str = "gpu003", part: str = "", severity: float = 1.0, minutes: float = 20
) -> Fault:
    onset = SMALL.start + 5 * STEP
    return Fault(kind, node, onset, onset + minutes * 60, part, severity)


@pytest.fixture(scope="module")
def healthy() -> Run:
    return small_run(40)


class TestShape:
    def test_every_metric_of_the_catalog_and_no_other_but_the_uname(self) -> None:
        names = {series["__name__"] for series in Cluster(SMALL, 1).series}
        catalog = {spec.name for spec in load_catalog().specs}
        assert len(catalog) == 305
        assert names - catalog == {"node_uname_info"}
        assert catalog - names == set()

    def test_the_labels_name_what_the_catalog_calls_part_and_role(self) -> None:
        of_name: dict[str, dict[str, str]] = {}
        for series in Cluster(SMALL, 1).series:
            of_name.setdefault(series["__name__"], series)
        for spec in load_catalog().specs:
            for label in (*spec.part, *spec.role):
                assert any(one in of_name[spec.name] for one in label.split("|")), (spec.name, label)

    def test_no_label_is_unknown_to_the_catalog(self) -> None:
        by_name = load_catalog().by_name
        identity = {
            "__name__",
            "instance",
            "job",
            "exported_instance",
            "Hostname",
            "hostname",
            "display_name",
            "service_id",
            "service_group",
            "version",
        }
        for series in Cluster(SMALL, 1).series:
            spec = by_name.get(series["__name__"])
            if spec is None:
                continue
            known = {one for label in (*spec.part, *spec.role) for one in label.split("|")}
            known |= {*spec.sum_over, *spec.ignore}
            assert set(series) - identity - known == set(), series

    def test_counters_are_counters_and_32_bit_ones_wrap(self) -> None:
        for spec in load_catalog().specs:
            for column in all_columns():
                if column.name == spec.name and "carrier" not in spec.name:
                    assert (column.wrap > 0) == (spec.counter_bits == 32), spec.name
                    assert column.wrap in (0.0, pytest.approx(2**32 * spec.wrap_scale)), spec.name
                    assert column.is_counter or spec.kind != "counter", spec.name

    def test_series_are_distinct(self) -> None:
        series = Cluster(SMALL, 1, [fault("gpu_lost", part="gpu 2")]).series
        assert len({json.dumps(labels, sort_keys=True) for labels in series}) == len(series)

    def test_reference_size_and_nfs_and_gpu_counts(self) -> None:
        config = ClusterConfig(cpus=224, metrics=reference_shape(), warm_up_s=0.0)
        counts: dict[str, int] = {}
        for series in Cluster(config, 1).series:
            counts[series["__name__"]] = counts.get(series["__name__"], 0) + 1
        assert counts["node_cpu_seconds_total"] == 63 * 224 * 8
        assert counts["DCGM_FI_DEV_GPU_UTIL"] == 504
        assert counts["node_mountstats_nfs_operations_requests_total"] == 2772
        assert sum(counts.values()) > 184_000

    def test_instances_differ_by_exporter(self) -> None:
        instances = {s["job"]: s["instance"] for s in Cluster(SMALL, 1).series}
        assert {instance.split(":")[1] for instance in instances.values()} == {"9100", "9400", "9090", "6003"}

    def test_subset_of_metrics_and_unknown_name(self) -> None:
        config = ClusterConfig(train_nodes=3, spares=0, cpus=2, metrics={"up", "node_load1"})
        assert {s["__name__"] for s in Cluster(config, 1).series} == {"up", "node_load1", "node_uname_info"}
        with pytest.raises(ValueError, match="unknown metrics: nonsense"):
            Cluster(ClusterConfig(metrics={"nonsense"}), 1)

    def test_selection_refuses_a_prefix_without_metrics(self) -> None:
        with pytest.raises(ValueError, match="nonsense_"):
            select("nonsense_")
        assert 60 <= len(story()) <= 120


class TestSamples:
    def test_same_seed_same_samples_and_other_seed_others(self) -> None:
        first, again, other = (Run(Cluster(SMALL, seed), 5) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.values, again.values)
        np.testing.assert_array_equal(first.ts_ms, again.ts_ms)
        assert (first.values != other.values).mean() > 0.2

    def test_a_metric_does_not_depend_on_which_others_are_made(self) -> None:
        alone = small_run(4, metrics={"DCGM_FI_DEV_POWER_USAGE"})
        among = small_run(4)
        name = "DCGM_FI_DEV_POWER_USAGE"
        np.testing.assert_array_equal(alone.values[:, alone.rows(name)], among.values[:, among.rows(name)])

    def test_counters_never_fall_except_by_a_wrap(self, healthy: Run) -> None:
        wraps = {column.name: column.wrap for column in all_columns() if column.is_counter}
        names = [series["__name__"] for series in healthy.cluster.series]
        steps = np.diff(healthy.values, axis=0)
        for i, name in enumerate(names):
            if name in wraps:
                fell = steps[:, i] < 0
                allowed = wraps[name] > 0 and (steps[fell, i] < -0.5 * wraps[name]).all()
                assert allowed or not fell.any(), name

    def test_values_have_the_resolution_of_the_exporter(self, healthy: Run) -> None:
        for name in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "node_network_receive_bytes_total"):
            values = healthy.values[:, healthy.rows(name)]
            np.testing.assert_array_equal(values, np.rint(values))
        assert np.mod(healthy.values[:, healthy.rows("DCGM_FI_DEV_SM_CLOCK")], 15).max() == 0

    def test_every_target_is_scraped_at_its_own_time_within_the_step(self, healthy: Run) -> None:
        at = np.array(ticks(SMALL.start, SMALL.start + 39 * STEP, STEP)) * 1000
        age = at[:, None] - healthy.ts_ms
        assert age.min() >= 0
        assert age.max() < STEP * 1000
        assert (np.diff(healthy.ts_ms, axis=0) == STEP * 1000).all()
        by_target: dict[str, set[int]] = {}
        for i, series in enumerate(healthy.cluster.series):
            by_target.setdefault(series["instance"], set()).add(int(age[0, i]))
        assert all(len(ages) == 1 for ages in by_target.values())
        assert len({next(iter(ages)) for ages in by_target.values()}) > 20

    def test_spares_are_idle_and_the_others_are_not(self, healthy: Run) -> None:
        for spare in SMALL.spare_names:
            assert healthy.of("DCGM_FI_DEV_GPU_UTIL", spare).max() == 0
            assert healthy.of("DCGM_FI_DEV_POWER_USAGE", spare).max() < 160
        for node in SMALL.pool:
            assert np.median(healthy.of("DCGM_FI_DEV_GPU_UTIL", node)) > 90
            assert np.median(healthy.of("DCGM_FI_DEV_POWER_USAGE", node)) > 700

    def test_slot_7_is_hotter_on_every_node(self, healthy: Run) -> None:
        for node in SMALL.pool:
            temps = np.median(healthy.of("DCGM_FI_DEV_GPU_TEMP", node), axis=0)
            assert temps.argmax() == 7
            assert temps[7] - np.median(temps) > 2

    def test_twins_tell_the_same(self, healthy: Run) -> None:
        for spec in load_catalog().specs:
            if spec.twin is not None and spec.exporter == "dcgm":
                own, twin = healthy.of(spec.name, "gpu002"), healthy.of(spec.twin, "gpu002")
                scale = 1048576 if "memory" in spec.twin else 1
                middle = np.median(own, axis=0)
                np.testing.assert_allclose(np.median(twin, axis=0) / scale, middle, rtol=0.03)

    def test_meminfo_adds_up(self, healthy: Run) -> None:
        slab = healthy.of("node_memory_Slab_bytes", "gpu001")
        parts = healthy.of("node_memory_SReclaimable_bytes", "gpu001") + healthy.of(
            "node_memory_SUnreclaim_bytes", "gpu001"
        )
        np.testing.assert_allclose(parts, slab, atol=4096)
        free, available = (healthy.of(f"node_memory_Mem{x}_bytes", "gpu001") for x in ("Free", "Available"))
        assert (available > free).all()

    def test_processor_time_is_time(self, healthy: Run) -> None:
        seconds = healthy.of("node_cpu_seconds_total", "gpu001", cpu="2")
        np.testing.assert_allclose(np.diff(seconds.sum(axis=1)), STEP, atol=0.09)

    def test_checkpoints_are_written_by_a_subset(self) -> None:
        run = small_run(110, train_nodes=12, metrics={"node_mountstats_nfs_total_write_bytes_total"})
        rates = {
            node: np.diff(run.of("node_mountstats_nfs_total_write_bytes_total", node), axis=0).max() / STEP
            for node in run.cluster.config.pool
        }
        writers = {node for node, rate in rates.items() if rate > 1e9}
        assert writers == {"gpu001", "gpu002"}

    def test_missed_scrapes_are_gaps_with_up_0(self) -> None:
        run = small_run(30, missed_scrape=0.05, metrics={"up", "DCGM_FI_DEV_GPU_TEMP"})
        up = run.of("up", "gpu004", job="dcgm")[:, 0]
        gaps = np.isnan(run.of("DCGM_FI_DEV_GPU_TEMP", "gpu004")).all(axis=1)
        assert 0 < gaps.sum() < 15
        np.testing.assert_array_equal(gaps, up == 0)

    def test_benign_bursts_are_listed_and_short(self, tmp_path: Path) -> None:
        config = ClusterConfig(
            train_nodes=6, spares=0, cpus=2, metrics={"node_load1"}, benign_per_node_hour=2.0
        )
        write_case(
            tmp_path,
            Cluster(config, 4),
            config.start,
            config.start + 1800,
            case_id="x",
            source="s",
            made="synthetic",
        )
        benign = load_recording(tmp_path).benign
        assert len(benign) > 2
        assert all(0 < burst["end"] - burst["onset"] <= 240 for burst in benign)

    def test_time_must_go_on(self) -> None:
        cluster = Cluster(SMALL, 1)
        cluster.tick(SMALL.start)
        with pytest.raises(ValueError, match="not after"):
            cluster.tick(SMALL.start)


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
    ("nvlink_xid", "gpu 5", lambda r: r.of("backendai_async_task_count", "gpu003")[-1, 0] > 500),
    ("nvlink_xid", "gpu 5", lambda r: r.of("DCGM_FI_DEV_GPU_UTIL", "gpu002")[-1].min() == 100),
    ("nvlink_xid", "gpu 5", lambda r: ratio(r, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gpu002") < 0.01),
]


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "part", "is_seen"), EFFECTS, ids=lambda x: x if isinstance(x, str) else ""
    )
    def test_effect(self, kind: str, part: str, is_seen: Callable[[Run], bool]) -> None:
        assert is_seen(small_run(26, fault(kind, part=part)))

    def test_every_kind_has_an_effect_that_is_tested(self) -> None:
        assert {kind for kind, _, _ in EFFECTS} == set(KINDS)

    @settings(max_examples=15, deadline=None)
    @given(kind=st.sampled_from(sorted(KINDS)), severity=st.floats(0, 1))
    def test_nothing_changes_before_the_onset(self, kind: str, severity: float) -> None:
        part = "dcgm" if kind == "exporter_down" else ""
        faulty, sound = small_run(5, fault(kind, part=part, severity=severity)), small_run(5)
        n = len(sound.cluster.series)
        np.testing.assert_array_equal(faulty.values[:, :n], sound.values)
        assert np.isnan(faulty.values[:, n:]).all()

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


class TestText:
    def test_lines_leave_out_what_was_not_scraped(self) -> None:
        series = [{"__name__": "a", "x": 'q"\\é'}, {"__name__": "b"}, {"__name__": "c"}]
        values = np.array([[1.0, np.nan, np.nan], [2.5, 3.0, np.nan]])
        ts = np.array([[1, 1, 1], [2, 2, 2]])
        lines = b"".join(LineFormat(series).pieces(values, ts)).splitlines()
        assert [json.loads(line) for line in lines] == [
            {"metric": series[0], "values": [1.0, 2.5], "timestamps": [1, 2]},
            {"metric": series[1], "values": [3.0], "timestamps": [2]},
        ]

    def test_openmetrics(self) -> None:
        series = [{"__name__": "a", "x": 'q"\\\n'}, {"__name__": "b"}, {"__name__": "a"}]
        text = openmetrics_text(series, np.array([[1.0, np.nan, 2.0]]), np.array([[1500, 1500, 1500]]))
        assert text == (
            '# TYPE a unknown\na{x="q\\"\\\\\\n"} 1.0 1.500\na 2.0 1.500\n# TYPE b unknown\n# EOF\n'
        )

    def test_pages_carry_the_exporters_own_labels_only(self) -> None:
        exposition = Exposition(Cluster(SMALL, 1, [fault("machine_down", minutes=60)]))
        exposition.update(SMALL.start)
        smi = (exposition.page("all-smi", "gpu002") or b"").decode()
        assert 'instance="gpu002"' in smi
        assert "exported_instance" not in smi
        assert 'job="' not in smi
        node = (exposition.page("node", "gpu002") or b"").decode()
        assert node.count("# TYPE node_load1 gauge\n") == 1
        assert "scrape_duration" not in node
        exposition.update(SMALL.start + 20 * STEP)
        assert exposition.page("node", "gpu003") is None
        assert exposition.page("node", "gpu004") is not None

    def test_pages_over_http(self) -> None:
        exposition = Exposition(Cluster(SMALL, 1))
        exposition.update(SMALL.start)
        with serving(exposition) as address:
            with urllib.request.urlopen(
                f"http://{address}/targets/dcgm/gpu001/metrics", timeout=10
            ) as answer:
                assert answer.read() == exposition.page("dcgm", "gpu001")
            for path, status in (("/targets/dcgm/gpu999/metrics", 503), ("/x", 404)):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"http://{address}{path}", timeout=10)
                assert refused.value.code == status
                refused.value.close()

    def test_scrape_config_names_every_target(self) -> None:
        config = json.loads(scrape_config(SMALL, "127.0.0.1:1", interval_s=1.5))
        targets = [t for job in config["scrape_configs"] for t in job["static_configs"]]
        assert len(targets) == 4 * SMALL.n_nodes
        assert config["global"]["scrape_interval"] == "1500ms"
        assert len({t["labels"]["instance"] for t in targets}) == len(targets)

    def test_command_line_prints_a_scrape_config(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["scrape-config", "--nodes", "4", "--spares", "1", "--cpus", "2"]) == 0
        assert len(json.loads(capsys.readouterr().out)["scrape_configs"]) == 4

    def test_command_line_tells_what_is_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        args = ["feed", "--url", "http://127.0.0.1:1", "--nodes", "4", "--spares", "1", "--cpus", "2"]
        assert main([*args, "--fault", "nonsense:gpu001"]) == 1
        assert "unknown kind of fault" in capsys.readouterr().err
        assert main([*args, "--metrics", "story"]) == 1
        assert "import failed" in capsys.readouterr().err


def exported(server: servers.Server, match: str) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"{server.url}/api/v1/export?match[]={match}", timeout=30) as answer:
        return [json.loads(line) for line in answer.read().splitlines()]


@pytest.mark.server
class TestServers:
    @pytest.mark.parametrize("uses_gzip", [False, True])
    def test_import_into_victoria_metrics(self, fresh_vm: servers.Server, uses_gzip: bool) -> None:
        cluster, again = Cluster(SMALL, 9), Run(Cluster(SMALL, 9), 10)
        feeder = Feeder(fresh_vm.url, cluster, uses_gzip=uses_gzip)
        sent = feeder.load(SMALL.start, SMALL.start + 8 * STEP, batch=4)
        sent += feeder.push(SMALL.start + 9 * STEP)
        assert servers.answers(fresh_vm.port, "/internal/force_flush")
        lines = exported(fresh_vm, "%7B__name__!=%22%22%7D")
        assert sum(len(line["values"]) for line in lines) == sent == np.isfinite(again.values).sum()  # type: ignore[arg-type]
        row = again.rows("DCGM_FI_DEV_POWER_USAGE")[3]
        found = [line for line in lines if line["metric"] == again.cluster.series[row]]
        assert found[0]["values"] == again.values[:, row].tolist()
        assert found[0]["timestamps"] == again.ts_ms[:, row].tolist()

    def test_refused_import_is_an_error(self) -> None:
        with servers.ScriptedServer([servers.reply(400, b"no")]) as server:
            feeder = Feeder(server.url, Cluster(SMALL, 9))
            with pytest.raises(OSError, match="import"):
                feeder.push(SMALL.start)

    def test_live_feed_stops_when_told(self, fresh_vm: servers.Server) -> None:
        config = ClusterConfig(train_nodes=2, spares=0, cpus=2, step_s=0.2, metrics={"node_load1"}, **QUIET)
        feeder, stopped = Feeder(fresh_vm.url, Cluster(config, 1)), threading.Event()
        thread = threading.Thread(target=feeder.live, args=(stopped, config.start))
        thread.start()
        servers.wait_until(
            lambda: (
                servers.answers(fresh_vm.port, "/internal/force_flush")
                and len(exported(fresh_vm, "node_load1")) == 2
            ),
            "two series",
        )
        stopped.set()
        thread.join(timeout=10)
        assert not thread.is_alive()

    def test_scraped_by_vmagent(self, fresh_vm: servers.Server, tmp_path: Path) -> None:
        config = ClusterConfig(train_nodes=3, spares=0, cpus=2, step_s=0.5, **QUIET)
        exposition = Exposition(Cluster(config, 1))
        exposition.update(config.start)
        with serving(exposition) as address:
            text = scrape_config(config, address, interval_s=0.5)
            with servers.vmagent(tmp_path / "agent", text, fresh_vm.url):

                def all_up() -> bool:
                    servers.answers(fresh_vm.port, "/internal/force_flush")
                    return len(exported(fresh_vm, "up")) == 12

                servers.wait_until(all_up, "12 targets")
                servers.wait_until(
                    lambda: len(exported(fresh_vm, "all_smi_gpu_utilization")) == 24, "24 GPUs"
                )
        smi = exported(fresh_vm, "all_smi_gpu_utilization")
        expected = [s for s in exposition.cluster.series if s["__name__"] == "all_smi_gpu_utilization"]
        assert sorted(json.dumps(line["metric"], sort_keys=True) for line in smi) == sorted(
            json.dumps(s, sort_keys=True) for s in expected
        )
        names = {line["metric"]["__name__"] for line in exported(fresh_vm, "%7B__name__!=%22%22%7D")}  # type: ignore[index]
        missing = {s["__name__"] for s in exposition.cluster.series} - names
        missing.discard("scrape_response_size_bytes")  # older agents do not give it
        assert all("failure" in name for name in missing), missing

    def test_openmetrics_into_prometheus(self, tmp_path: Path) -> None:
        run = small_run(4, metrics={"node_load1", "up", "node_cpu_seconds_total"})
        servers.blocks_from_openmetrics(
            tmp_path / "p", openmetrics_text(run.cluster.series, run.values, run.ts_ms)
        )
        at = SMALL.start + 3 * STEP
        with servers.prometheus(tmp_path / "p") as server:
            url = f"{server.url}/api/v1/query?query=count(node_load1)&time={at}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                result = json.loads(answer.read())["data"]["result"]
        assert result[0]["value"][1] == "8"


def test_columns_name_their_options() -> None:
    assert all(isinstance(column, Column) and column.terms for column in all_columns())

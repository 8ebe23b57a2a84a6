"""The simulated cluster: same seed same samples, all metrics, plausible behaviour."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from detector.source.incident_file import load_recording
from grouping.catalog import load_catalog
from simulator.cluster import Cluster
from simulator.columns import Column
from simulator.config import ClusterConfig
from simulator.metric_sets import reference_shape, select, story
from simulator.recording import ticks, write_case
from simulator.tables import all_columns
from tests.simulated import SMALL, STEP, Run, fault, small_run


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

    def test_shards_make_the_same_nodes_with_addresses_of_their_own(self) -> None:
        config = ClusterConfig(train_nodes=7, spares=1, cpus=2, metrics={"up"}, first_number=20)
        shards = config.shards(3)
        assert [name for shard in shards for name in shard.node_names] == list(config.node_names)
        instances = [s["instance"] for shard in shards for s in Cluster(shard, 1).series]
        assert sorted(instances) == sorted(s["instance"] for s in Cluster(config, 1).series)

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


def test_columns_name_their_options() -> None:
    assert all(isinstance(column, Column) and column.terms for column in all_columns())

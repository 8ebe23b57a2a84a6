"""The shipped catalog: its counts, and what it says about metrics that are known to be tricky."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from grouping.catalog import Catalog, CatalogError, find_catalog, load_catalog
from grouping.model import Direction, Kind, Severity

TWINS = {
    "DCGM_FI_DEV_GPU_UTIL": "all_smi_gpu_utilization",
    "DCGM_FI_DEV_GPU_TEMP": "all_smi_gpu_temperature_celsius",
    "DCGM_FI_DEV_SM_CLOCK": "all_smi_gpu_frequency_mhz",
    "DCGM_FI_DEV_POWER_USAGE": "all_smi_gpu_power_consumption_watts",
    "DCGM_FI_DEV_FB_USED": "all_smi_gpu_memory_used_bytes",
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_counts_by_monitored_target(catalog: Catalog) -> None:
    assert catalog.counts_by_target() == {
        "Network": 61,
        "NFS": 54,
        "Memory": 45,
        "Exporter/Runtime": 40,
        "Scheduler": 26,
        "GPU": 18,
        "Disk I/O": 18,
        "OS/Kernel": 16,
        "InfiniBand": 15,
        "CPU": 12,
    }
    assert len(catalog.specs) == 305


def test_counts_by_comparison_unit(catalog: Catalog) -> None:
    counts = catalog.counts_by_unit()
    main = {
        unit: counts.pop(unit)
        for unit in ("node", "nfs_export", "gpu", "disk", "ib_device", "network_device")
    }
    assert main == {
        "node": 178,
        "nfs_export": 45,
        "gpu": 18,
        "disk": 16,
        "ib_device": 15,
        "network_device": 13,
    }
    assert "cpu_core" in counts
    assert sum(counts.values()) == 20


def test_counts_by_kind(catalog: Catalog) -> None:
    counts = catalog.counts_by_kind()
    assert counts[Kind.ERROR_COUNTER] == 28
    assert counts[Kind.STATE] == 11


def test_the_five_twins_point_at_each_other(catalog: Catalog) -> None:
    both_ways = {**TWINS, **{b: a for a, b in TWINS.items()}}
    assert {spec.name: spec.twin for spec in catalog.specs if spec.twin} == both_ways
    for a, b in both_ways.items():
        assert catalog.by_name[a].exporter != catalog.by_name[b].exporter
        assert catalog.by_name[a].compare == catalog.by_name[b].compare


def test_every_entry_has_an_absolute_floor(catalog: Catalog) -> None:
    # A relative floor alone is no scale where the peers' median is 0.
    assert [spec.name for spec in catalog.specs if not spec.floor_abs > 0] == []


def test_direct_meaning_belongs_to_error_counters_and_states(catalog: Catalog) -> None:
    for spec in catalog.specs:
        assert (spec.fault is not None) == (spec.kind in (Kind.ERROR_COUNTER, Kind.STATE)), spec.name


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        *(
            (code, Severity.CRITICAL)
            for code in (48, 64, 74, 79, 95, 119, 120, 136, 140, 149, 62, 46, 109, 143, 158)
        ),
        *((code, Severity.ERROR) for code in (94, 144, 145, 146, 147, 148, 150)),
        *((code, Severity.WARNING) for code in (13, 31, 43, 45, 63, 92)),
    ],
)
def test_severity_of_xids(catalog: Catalog, code: int, severity: Severity) -> None:
    rule = catalog.by_name["DCGM_FI_DEV_XID_ERRORS"].fault
    assert rule is not None
    assert rule.severities[float(code)] is severity


def test_xids_count_by_change_and_unlisted_ones_warn(catalog: Catalog) -> None:
    spec = catalog.by_name["DCGM_FI_DEV_XID_ERRORS"]
    assert spec.fault is not None
    assert (spec.fault.on, spec.fault.severity, spec.fault.healthy) == ("change", Severity.WARNING, (0.0,))
    assert {"err_code", "err_msg"} <= set(spec.ignore)


def test_what_can_grow_is_followed_to_its_worse_side(catalog: Catalog) -> None:
    followed = {spec.name: spec.trend for spec in catalog.specs if spec.trend is not None}
    assert {name for name, side in followed.items() if side is Direction.BELOW} == {
        "node_memory_MemAvailable_bytes",
        "node_filesystem_avail_bytes",
    }
    assert {name for name, side in followed.items() if side is Direction.BOTH} == {
        "node_timex_offset_seconds"
    }
    for name in ("CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS", "PCIE_REPLAY_COUNTER"):
        assert followed[f"DCGM_FI_DEV_{name}"] is Direction.ABOVE
    assert len(followed) == 21
    for name in followed:
        spec = catalog.by_name[name]
        assert spec.kind is not Kind.STATE
        assert spec.direction in (Direction.BOTH, followed[name])


def test_nvlink_bandwidth_is_a_gauge(catalog: Catalog) -> None:
    assert catalog.by_name["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"].kind is Kind.GAUGE
    assert catalog.by_name["DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"].name == "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"


def test_untyped_kernel_numbers_are_counters_but_for_the_level(catalog: Catalog) -> None:
    names = [s.name for s in catalog.specs if s.name.startswith(("node_netstat_", "node_vmstat_"))]
    gauges = [n for n in names if catalog.by_name[n].kind is Kind.GAUGE]
    assert gauges == ["node_netstat_Tcp_CurrEstab"]


def test_narrow_counters(catalog: Catalog) -> None:
    narrow = {s.name: s.wrap_scale for s in catalog.specs if s.counter_bits == 32}
    assert {n for n in narrow if n.startswith("node_softnet_")} == {
        "node_softnet_processed_total",
        "node_softnet_dropped_total",
        "node_softnet_times_squeezed_total",
    }
    assert sum(n.startswith("node_nfs_") for n in narrow) == 6
    milliseconds = {n for n, scale in narrow.items() if scale == 0.001}
    assert milliseconds == {n for n in narrow if n.startswith("node_disk_")}
    assert len(milliseconds) == 6


def test_hardware_counters_that_stop_at_all_ones(catalog: Catalog) -> None:
    limits = {s.name: s.fault.saturates_at for s in catalog.specs if s.fault and s.fault.saturates_at}
    assert limits["node_infiniband_link_downed_total"] == 255
    assert limits["node_infiniband_symbol_error_total"] == 65535
    assert limits["node_infiniband_local_link_integrity_errors_total"] == 15


def test_roles_keep_apart_what_is_not_alike(catalog: Catalog) -> None:
    assert catalog.by_name["node_network_receive_bytes_total"].role == ("device",)
    assert catalog.by_name["node_mountstats_nfs_operations_requests_total"].role == ("export", "operation")
    assert catalog.by_name["node_cpu_seconds_total"].role == ("mode",)
    assert catalog.by_name["process_open_fds"].role == ("job",)
    assert catalog.by_name["go_gc_duration_seconds"].role == ("job", "quantile")
    for spec in catalog.specs:
        if spec.name.startswith(("go_", "process_", "python_", "promhttp_", "scrape_")) or spec.name == "up":
            assert "job" in spec.role, spec.name
            assert spec.weight <= 0.5, spec.name


def test_per_core_series_are_compared_as_the_mean_of_a_node(catalog: Catalog) -> None:
    assert {s.compare for s in catalog.specs if s.unit == "cpu_core"} == {("node",)}


def test_gpu_temperature_power_and_clock_are_compared_by_slot(catalog: Catalog) -> None:
    for name in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"):
        assert {"all", "slot"} <= set(catalog.by_name[name].compare)


def test_failed_readings_of_sensors_are_missing(catalog: Catalog) -> None:
    for spec in catalog.specs:
        if spec.measure in ("celsius", "watts"):
            assert spec.zero_is_missing, spec.name


def test_only_gpu_utilisation_tells_busy_from_idle(catalog: Catalog) -> None:
    assert {s.name for s in catalog.specs if s.activity} == {
        "DCGM_FI_DEV_GPU_UTIL",
        "all_smi_gpu_utilization",
    }


def test_aliases_lead_to_their_entry_and_are_no_entries(catalog: Catalog) -> None:
    names = {s.name for s in catalog.specs}
    for spec in catalog.specs:
        for alias in spec.aliases:
            assert catalog.by_name[alias] is spec
            assert alias not in names


def test_a_catalog_does_not_change(catalog: Catalog) -> None:
    with pytest.raises(FrozenInstanceError):
        catalog.version = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        catalog.by_name["x"] = catalog.specs[0]  # type: ignore[index]


def test_the_explicit_path_comes_first(tmp_path: Path) -> None:
    assert find_catalog(tmp_path / "mine.yaml") == tmp_path / "mine.yaml"
    assert find_catalog().name == "metric_catalog.yaml"


def test_an_installed_package_uses_the_copy_it_was_shipped_with(tmp_path: Path) -> None:
    # What a wheel installs: the packages side by side, the catalog inside one of them.
    checkout = find_catalog().parent
    shutil.copytree(
        checkout / "grouping", tmp_path / "grouping", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "detector" / "_data").mkdir(parents=True)
    shutil.copy(find_catalog(), tmp_path / "detector" / "_data")
    code = "from grouping.catalog import load_catalog as l; c = l(); print(c.path, len(c.specs))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.stdout.split() == [str(tmp_path / "detector" / "_data" / "metric_catalog.yaml"), "305"]


def test_no_catalog_anywhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouping.catalog._PACKAGED", tmp_path / "a.yaml")
    monkeypatch.setattr("grouping.catalog._CHECKOUT", tmp_path / "b.yaml")
    with pytest.raises(CatalogError, match="no metric catalog is installed"):
        load_catalog()


def test_the_hash_tells_files_apart(tmp_path: Path) -> None:
    shipped = load_catalog()
    assert load_catalog().sha256 == shipped.sha256
    overlay = tmp_path / "site.yaml"
    overlay.write_text("disable: [up]\n")
    changed = load_catalog(overlays=[overlay])
    assert changed.sha256 != shipped.sha256
    assert changed.overlays == (overlay,)


def test_two_entries_of_one_name_are_refused(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="node_load1 is in two entries"):
        Catalog.of([catalog.by_name["node_load1"]] * 2, path=Path("made"))

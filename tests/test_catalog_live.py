"""The catalog against what a real node_exporter sends, through a real database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detector.catalog_report import Fit, check_database, discover_database, metric_names
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from grouping.catalog import load_catalog
from tests import servers

NODES = ("node1", "node2", "node3")

pytestmark = pytest.mark.server


def now_s() -> float:
    return time.time_ns() / 1e9


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """One exporter scraped every second as three nodes, until each series has some samples."""
    folder = tmp_path_factory.mktemp("live")
    with (
        servers.running(
            "prometheus-node-exporter",
            folder / "exporter",
            lambda port: [f"--web.listen-address=127.0.0.1:{port}"],
            "/metrics",
        ) as exporter,
        servers.victoria_metrics(folder / "vm", "-search.latencyOffset=0s") as vm,
    ):
        targets = "\n".join(
            f"  - targets: ['127.0.0.1:{exporter.port}']\n    labels: {{node: {node}}}" for node in NODES
        )
        config = (
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs:\n- job_name: node\n  static_configs:\n{targets}\n"
        )
        with servers.vmagent(folder / "agent", config, vm.url):
            source = open_source(SourceOptions(url=vm.url))
            servers.wait_until(
                lambda: any(
                    value >= 12 for _, value in source.query("min(count_over_time(up[1h]))", now_s())
                ),
                "12 scrapes",
                60,
            )
            yield vm
            source.close()


def test_every_series_of_a_real_exporter_has_its_place_or_a_reason(database: servers.Server) -> None:
    source = open_source(SourceOptions(url=database.url))
    now = now_s()
    report = check_database(load_catalog(), source, source, now - 600, now)
    source.close()
    mistyped = {entry.name: entry.note for entry in report.entries if entry.fit is Fit.MISTYPED}
    assert mistyped == {}
    entries = {entry.name: entry for entry in report.entries}
    for name in ("node_load1", "node_cpu_seconds_total", "node_memory_MemAvailable_bytes", "up"):
        assert entries[name].n_nodes == len(NODES), name
    assert set(report.identity) == {"node"}
    assert report.identity["node"] == len(NODES)
    assert not any("label" in reason and "missing" in reason for reason in report.refused), report.refused
    assert report.unknown.keys() >= {"node_boot_time_seconds"}
    assert not set(report.unknown) & set(load_catalog().by_name)


def test_a_draft_from_a_real_exporter_loads_again(database: servers.Server, tmp_path: Path) -> None:
    source = open_source(SourceOptions(url=database.url))
    now = now_s()
    found = discover_database(source, source, now - 600, now)
    names = metric_names(source, now)
    source.close()
    drafted = {spec.name for spec in found.entries}
    dropped = {drop.name for drop in found.drops}
    assert drafted | dropped == set(names)
    assert not drafted & dropped
    spec = found.catalog().by_name["node_cpu_seconds_total"]
    assert (spec.unit, spec.part, spec.role) == ("cpu_core", ("cpu",), ("mode",))
    path = tmp_path / "draft.yaml"
    path.write_text(found.to_yaml())
    assert load_catalog(path).specs == found.entries

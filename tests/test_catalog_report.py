"""Checks of a catalog against samples, a recording's source and a real database."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from rich.console import Console

from detector.catalog_report import (
    EntryFit,
    Fit,
    Report,
    check,
    check_database,
    discover_database,
    metric_names,
)
from detector.catalog_tables import draft_dict, draft_table, report_dict, report_tables
from detector.sampled import Collected, SampledSeries, collect
from detector.source.base import Batch, Interner
from grouping.catalog import Catalog, load_catalog

TIMES = np.arange(30) * 30.0 + 1.7e9


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def gpus(name: str, values: np.ndarray | None = None, nodes: int = 4, **extra: str) -> list[SampledSeries]:
    rng = np.random.default_rng(7)
    found = []
    for node in range(nodes):
        for gpu in range(2):
            labels = {
                "__name__": name,
                "Hostname": f"gpu{node:02}",
                "instance": f"10.0.0.{node}:9400",
                "job": "dcgm",
                "gpu": str(gpu),
                "UUID": f"GPU-{node}-{gpu}",
                **extra,
            }
            found.append(SampledSeries(labels, TIMES, rng.normal(60, 3, 30) if values is None else values))
    return found


def fit_of(report: Report, name: str) -> EntryFit:
    return next(entry for entry in report.entries if entry.name == name)


def test_what_is_there_and_what_is_not(catalog: Catalog) -> None:
    report = check(catalog, Collected(tuple(gpus("DCGM_FI_DEV_GPU_TEMP"))))
    good = fit_of(report, "DCGM_FI_DEV_GPU_TEMP")
    assert (good.fit, good.n_series, good.n_members, good.n_nodes) == (Fit.GOOD, 8, 8, 4)
    assert fit_of(report, "node_load1").fit is Fit.MISSING
    assert (report.count(Fit.GOOD), report.count(Fit.MISSING)) == (1, 304)
    (unit,) = (unit for unit in report.units if unit.unit == "gpu")
    assert (unit.n_entries, unit.n_present, unit.n_series, unit.n_members, unit.n_nodes) == (18, 1, 8, 8, 4)
    assert report.identity == {"Hostname": 4}


def test_an_alias_is_told(catalog: Catalog) -> None:
    report = check(catalog, Collected(tuple(gpus("DCGM_FI_DEV_GPU_TEMP_CELSIUS"))))
    assert fit_of(report, "DCGM_FI_DEV_GPU_TEMP").stored_as == ("DCGM_FI_DEV_GPU_TEMP_CELSIUS",)


def test_a_counter_that_falls_is_mistyped(catalog: Catalog) -> None:
    rng = np.random.default_rng(1)
    series = gpus("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", rng.normal(1e5, 1e3, 30))
    entry = fit_of(check(catalog, Collected(tuple(series))), "DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
    assert entry.fit is Fit.MISTYPED
    assert "a gauge, no error_counter" in entry.note


def test_a_type_that_lies_is_told_though_the_catalog_knows_better(catalog: Catalog) -> None:
    rng = np.random.default_rng(1)
    series = gpus("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", rng.normal(1e5, 1e3, 30))
    types = {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "counter"}
    entry = fit_of(check(catalog, Collected(tuple(series)), types), "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")
    assert (entry.fit, entry.declared) == (Fit.GOOD, "counter")
    assert "rightly read as gauge" in entry.note


def test_restarts_do_not_make_a_counter_a_gauge(catalog: Catalog) -> None:
    values = np.concatenate([np.arange(15.0), np.arange(15.0)])
    series = gpus("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", values)
    entry = fit_of(check(catalog, Collected(tuple(series))), "DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
    assert entry.fit is Fit.GOOD


def test_constant_and_lonely_entries(catalog: Catalog) -> None:
    constant = gpus("DCGM_FI_DEV_FB_USED", np.full(30, 7.0))
    lonely = gpus("DCGM_FI_DEV_GPU_TEMP", nodes=2)
    report = check(catalog, Collected((*constant, *lonely)))
    assert fit_of(report, "DCGM_FI_DEV_FB_USED").fit is Fit.CONSTANT
    assert fit_of(report, "DCGM_FI_DEV_GPU_TEMP").fit is Fit.FEW_PEERS
    assert fit_of(report, "DCGM_FI_DEV_GPU_TEMP").note == "is on 2 nodes only"


def test_a_refused_series_has_its_reason(catalog: Catalog) -> None:
    series = [
        SampledSeries(
            {"__name__": "node_network_up", "device": "lo", "instance": f"n{i}:9100"}, TIMES, np.ones(30)
        )
        for i in range(4)
    ]
    report = check(catalog, Collected(tuple(series)))
    entry = fit_of(report, "node_network_up")
    assert entry.fit is Fit.REFUSED
    assert report.refused == {entry.note: 4}


def test_a_report_is_json_and_tables(catalog: Catalog) -> None:
    report = check(
        catalog,
        Collected(tuple(gpus("DCGM_FI_DEV_GPU_TEMP", job="[red]x")), dropped={"nan [bold]": 3}),
        all_names={"DCGM_FI_DEV_GPU_TEMP": 8, "other_metric": 2, "node_uname_info": 4},
    )
    assert report.unknown == {"other_metric": 2}
    plain = json.loads(json.dumps(report_dict(report)))
    assert plain["summary"]["good"] == 1
    console = Console(width=120, record=True, file=io.StringIO())
    for table in report_tables(report):
        console.print(table)
    text = console.export_text()
    assert "nan [bold]" in text
    assert "Comparison units" in text


class _Scripted:
    """A source that holds series in memory, and answers what a database would."""

    def __init__(self, series: Sequence[SampledSeries]) -> None:
        self.series = series
        self.asked: list[tuple[str, ...]] = []

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        self.asked.append(tuple(names))
        found = [one for one in self.series if not names or one.name in names]
        keys = [json.dumps(dict(one.labels)).encode() for one in found]
        interner.add_many(keys)
        rows = [
            (interner.codes[key], t, v)
            for key, one in zip(keys, found, strict=True)
            for t, v in zip(one.times, one.values, strict=True)
            if interner.codes[key] >= 0 and start_ms < t * 1000 <= end_ms
        ]
        columns = np.array(rows, dtype=float).reshape(len(rows), 3)
        return Batch(
            columns[:, 0].astype(np.int32),
            (columns[:, 1] * 1000).astype(np.int64),
            columns[:, 2],
            dropped={"nan": 1},
        )

    def close(self) -> None:
        return

    def metadata(self) -> Mapping[str, str]:
        return {"DCGM_FI_DEV_GPU_TEMP": "gauge"}

    def query(self, promql: str, at: float) -> list[tuple[Mapping[str, str], float]]:
        names = {one.name for one in self.series}
        return [({"__name__": name}, 8.0) for name in sorted(names)]


def test_check_of_a_database_asks_for_the_catalog_and_for_names(catalog: Catalog) -> None:
    source = _Scripted([*gpus("DCGM_FI_DEV_GPU_TEMP"), *gpus("my_watts")])
    report = check_database(catalog, source, source, TIMES[0], TIMES[-1])
    asked = {name for names in source.asked for name in names}
    assert asked == {*catalog.by_name, "node_uname_info"}
    assert fit_of(report, "DCGM_FI_DEV_GPU_TEMP").declared == "gauge"
    assert report.unknown == {"my_watts": 8}
    assert report.dropped["nan"] == len(source.asked)


def test_discovery_of_a_database_leaves_out_what_is_known(catalog: Catalog) -> None:
    source = _Scripted([*gpus("DCGM_FI_DEV_GPU_TEMP"), *gpus("my_watts"), *gpus("go_sched_x")])
    found = discover_database(source, source, TIMES[0], TIMES[-1], known=catalog)
    assert [spec.name for spec in found.entries] == ["my_watts"]
    assert found.entries[0].part == ("gpu",)
    reasons = {drop["name"] for drop in draft_dict(found)["dropped"]}
    assert reasons == {"DCGM_FI_DEV_GPU_TEMP", "go_sched_x"}
    assert draft_table(found).row_count == 2
    assert source.asked == [("my_watts",)]


def test_discovery_of_a_recording_needs_no_questions() -> None:
    source = _Scripted(gpus("my_watts"))
    assert [s.name for s in discover_database(source, None, TIMES[0], TIMES[-1]).entries] == ["my_watts"]


def test_names_of_a_database() -> None:
    assert metric_names(_Scripted(gpus("my_watts")), 0.0) == {"my_watts": 8}


def test_collecting_is_bounded() -> None:
    found = collect(_Scripted(gpus("my_watts")), (), TIMES[0], TIMES[-1], max_series=5)
    assert len(found.series) == 5
    assert found.dropped["more than 5 series"] == 3


def test_collecting_gives_whole_series_over_several_requests() -> None:
    source = _Scripted([*gpus("a_watts"), *gpus("b_watts")])
    found = collect(source, ["a_watts", "b_watts"], TIMES[0], TIMES[-1], chunk_names=1)
    assert len(source.asked) == 2
    assert len(found.series) == 16
    for one, expected in zip(found.series, source.series, strict=True):
        assert one.labels == expected.labels
        assert np.array_equal(one.values, expected.values)
        assert np.array_equal(one.times, expected.times)

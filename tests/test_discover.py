"""Drafts of catalogs: labels, kinds, floors, and the reason for every drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.discover import Draft, draft
from detector.discover_floors import Track, draft_floor, rates
from detector.sampled import SampledSeries, behaviour
from grouping.catalog import load_catalog
from grouping.identity import IdentityRules, NodeIdentity
from grouping.model import Kind, MetricSpec, Placement, Refusal
from grouping.placement import PlacementRules, Placer

TIMES = np.arange(40) * 30.0 + 1.7e9
Values = Callable[[np.random.Generator], np.ndarray]


def noise(level: float, spread: float) -> Values:
    return lambda rng: rng.normal(level, spread, len(TIMES))


def counting(per_step: float) -> Values:
    return lambda rng: np.cumsum(rng.poisson(per_step, len(TIMES))).astype(float)


def fleet(
    name: str,
    values: Values,
    *,
    nodes: int = 6,
    parts: Mapping[str, list[str]] | None = None,
    extra: Callable[[int], Mapping[str, str]] = lambda node: {},
    seed: int = 1,
) -> Iterator[SampledSeries]:
    """Series of one metric on several nodes, one for each combination of part label values."""
    rng = np.random.default_rng(seed)
    combinations: list[dict[str, str]] = [{}]
    for label, found in (parts or {}).items():
        combinations = [{**done, label: value} for done in combinations for value in found]
    for node in range(nodes):
        for labels in combinations:
            full = {"__name__": name, "instance": f"n{node:02}:9100", "job": "j", **labels, **extra(node)}
            yield SampledSeries(full, TIMES, values(rng))


def entry(found: Draft, name: str) -> MetricSpec:
    return found.catalog().by_name[name]


def reason(found: Draft, name: str) -> str:
    return {drop.name: drop.reason for drop in found.drops}[name]


def test_a_plain_node_metric() -> None:
    spec = entry(draft(fleet("room_watts", noise(4000, 40))), "room_watts")
    assert (spec.unit, spec.kind, spec.measure, spec.part, spec.role) == ("node", Kind.GAUGE, "watts", (), ())
    assert set(spec.ignore) == {"instance", "job"}
    assert 4 <= spec.floor_abs <= 20


@pytest.mark.parametrize(
    ("parts", "unit", "part", "role"),
    [
        ({"gpu": ["0", "1", "2"]}, "gpu", ("gpu",), ()),
        ({"device": ["eth0", "ib0"]}, "network_device", ("device",), ("device",)),
        ({"device": ["nvme0n1", "sda"]}, "disk", ("device",), ("device",)),
        ({"device": ["mlx5_0", "mlx5_1"], "port": ["1", "2"]}, "ib_device", ("device", "port"), ()),
        ({"mountpoint": ["/", "/data"]}, "filesystem", ("mountpoint",), ("mountpoint",)),
        (
            {"export": ["nfs:/a", "nfs:/b"], "operation": ["READ", "WRITE"]},
            "nfs_export",
            ("export",),
            ("export", "operation"),
        ),
        ({"cpu": ["0", "1"], "mode": ["idle", "user"]}, "cpu_core", ("cpu",), ("mode",)),
        ({"op": ["forward", "backward"]}, "node", (), ("op",)),
    ],
)
def test_comparison_unit_from_labels(
    parts: dict[str, list[str]], unit: str, part: tuple, role: tuple
) -> None:
    spec = entry(draft(fleet("some_metric", noise(10, 1), parts=parts)), "some_metric")
    assert (spec.unit, spec.part, spec.role) == (unit, part, role)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"gpu": ["0", "1", "2"]},
        {"gpu": ["0", "1"], "link": ["0", "1", "2"]},
        {"device": ["eth0", "ib0"]},
        {"device": ["mlx5_0", "mlx5_1"], "port": ["1", "2"]},
        {"mountpoint": ["/", "/data"]},
        {"export": ["a:/", "b:/"], "operation": ["R", "W"]},
        {"cpu": ["0", "1"], "mode": ["idle", "user"]},
        {"core": ["0", "1"], "package": ["0", "1"]},
        {"chip": ["a", "b"], "sensor": ["t1", "t2"]},
        {"op": ["forward", "backward"], "job": ["x", "y"]},
    ],
)
def test_a_drafted_entry_gives_every_series_a_cell_of_its_own(parts: dict[str, list[str]]) -> None:
    series = list(fleet("some_metric", noise(10, 1), parts=parts))
    catalog = draft(series).catalog()
    identity = NodeIdentity(IdentityRules())
    placer = Placer(catalog, identity, PlacementRules())
    for one in series:
        identity.learn(one.labels)
    places = [placer.place(one.labels) for one in series]
    refused = [place for place in places if isinstance(place, Refusal)]
    assert refused == []
    cells = {(p.node, p.part, p.role, p.component) for p in places if isinstance(p, Placement)}
    assert len(cells) == len(series)


def test_labels_that_another_one_implies_are_ignored() -> None:
    series = [
        SampledSeries(
            {**one.labels, "UUID": f"GPU-{one.labels['instance']}-{one.labels['gpu']}"}, one.times, one.values
        )
        for one in fleet("gpu_heat_celsius", noise(60, 2), parts={"gpu": ["0", "1"]})
    ]
    spec = entry(draft(series), "gpu_heat_celsius")
    assert spec.part == ("gpu",)
    assert "UUID" in spec.ignore
    assert spec.sum_over == ()


def test_a_stage_splits_the_nodes_and_a_rank_does_not() -> None:
    series = fleet(
        "step_seconds",
        noise(3, 0.1),
        nodes=8,
        extra=lambda node: {"stage": str(node // 4), "dp_rank": str(node), "version": "12"[node // 4]},
    )
    found = draft(series)
    spec = entry(found, "step_seconds")
    assert spec.role == ("stage",)
    assert {"dp_rank", "version"} <= set(spec.ignore)
    assert found.notes["step_seconds"] == ("stage splits the nodes into 2 groups",)


def test_values_that_every_node_has_for_itself_are_summed() -> None:
    series = fleet("task_bytes", noise(10, 1), parts={"a": ["x", "y"]})
    own = [
        SampledSeries({**one.labels, "a": one.labels["a"] + one.labels["instance"]}, one.times, one.values)
        for one in series
    ]
    spec = entry(draft(own), "task_bytes")
    assert (spec.sum_over, spec.reduce, spec.role) == (("a",), "sum", ())


def test_a_pod_that_follows_another_makes_no_second_member() -> None:
    series = []
    for one in fleet("gpu_heat_celsius", noise(60, 2), parts={"gpu": ["0", "1"]}):
        for pod, span in (("a", slice(0, 20)), ("b", slice(20, 40))):
            series.append(SampledSeries({**one.labels, "pod": pod}, one.times[span], one.values[span]))
    spec = entry(draft(series), "gpu_heat_celsius")
    assert (spec.part, spec.sum_over) == (("gpu",), ())
    assert "pod" in spec.ignore


def test_a_counter_by_name_and_behaviour() -> None:
    spec = entry(draft(fleet("jobs_done_total", counting(5))), "jobs_done_total")
    assert (spec.kind, spec.measure) == (Kind.COUNTER, "count")


def test_a_failure_counter() -> None:
    spec = entry(draft(fleet("call_failures_total", counting(5))), "call_failures_total")
    assert spec.kind is Kind.ERROR_COUNTER
    assert spec.fault is not None
    assert spec.fault.on == "rate"


def test_a_counter_whose_type_lies_is_a_gauge() -> None:
    found = draft(fleet("LINK_BANDWIDTH_TOTAL", noise(2e5, 1e4)), {"LINK_BANDWIDTH_TOTAL": "counter"})
    assert entry(found, "LINK_BANDWIDTH_TOTAL").kind is Kind.GAUGE
    (note,) = found.notes["LINK_BANDWIDTH_TOTAL"]
    assert "typed counter, but falls in" in note


def test_an_untyped_number_that_only_rises_is_a_counter_unless_declared_gauge() -> None:
    series = list(fleet("netstat_Tcp_InSegs", counting(100)))
    assert entry(draft(series), "netstat_Tcp_InSegs").kind is Kind.COUNTER
    assert entry(draft(series, {"netstat_Tcp_InSegs": "gauge"}), "netstat_Tcp_InSegs").kind is Kind.GAUGE


def test_a_leak_that_only_rises_in_fractions_stays_a_gauge() -> None:
    series = fleet("used_percent", lambda rng: np.cumsum(rng.random(len(TIMES))))
    assert entry(draft(series), "used_percent").kind is Kind.GAUGE


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("go_goroutines", "exporter"),
        ("process_open_fds", "exporter"),
        ("python_gc_collections_total", "exporter"),
        ("promhttp_metric_handler_requests_total", "exporter"),
        ("scrape_duration_seconds", "exporter"),
        ("up", "exporter"),
        ("call_seconds_bucket", "bucket"),
        ("call_seconds_created", "creation time"),
        ("build_info", "description"),
    ],
)
def test_noise_is_dropped_by_name(name: str, told: str) -> None:
    found = draft(fleet(name, noise(10, 1)))
    assert found.entries == ()
    assert told in reason(found, name)


def test_every_drop_has_its_reason() -> None:
    series = [
        *fleet("size_bytes", lambda rng: np.full(len(TIMES), 5.0)),
        *fleet("seldom_watts", noise(10, 1), nodes=2),
        *fleet("last_run_time_seconds", lambda rng: np.sort(rng.uniform(1.6e9, 1.7e9, len(TIMES)))),
        *fleet("node_load1", noise(10, 1)),
    ]
    series += [SampledSeries(s.labels, s.times[:2], s.values[:2]) for s in fleet("brief_watts", noise(10, 1))]
    series.append(SampledSeries({"__name__": "nobody_watts", "zone": "a"}, TIMES, TIMES))
    found = draft(series, known=load_catalog())
    assert found.entries == ()
    assert reason(found, "size_bytes") == "never changes"
    assert reason(found, "seldom_watts") == "is on 2 nodes: nobody to compare with"
    assert reason(found, "last_run_time_seconds") == "is a point in time"
    assert reason(found, "node_load1") == "is in the catalog already"
    assert reason(found, "brief_watts") == "has too few samples"
    assert reason(found, "nobody_watts") == "no label says which node its series belong to"


def test_a_draft_written_to_a_file_loads_as_the_same_catalog(tmp_path: Path) -> None:
    series = [
        *fleet("gpu_util_percent", noise(90, 5), parts={"gpu": ["0", "1"]}),
        *fleet("call_failures_total", counting(5), parts={"op": ["a", "b"]}),
        *fleet("odd\nname", noise(1, 1)),
        *fleet("go_threads", noise(1, 1)),
    ]
    found = draft(series)
    path = tmp_path / "draft.yaml"
    path.write_text(found.to_yaml())
    assert load_catalog(path).specs == found.entries
    assert "# dropped go_threads: " in path.read_text()
    assert "# dropped odd?name: " in path.read_text()


def test_an_empty_draft_says_so() -> None:
    assert "metrics: []" in draft([]).to_yaml()


def test_order_of_series_changes_nothing() -> None:
    series = [
        *fleet("a_watts", noise(90, 5), parts={"gpu": ["0", "1"]}),
        *fleet("b_total", counting(5), parts={"op": ["a", "b"]}),
    ]
    rng = np.random.default_rng(3)
    shuffled = [series[i] for i in rng.permutation(len(series))]
    assert draft(shuffled).entries == draft(series).entries


def test_rates_leave_out_resets() -> None:
    times, values = rates(np.array([0.0, 10, 20, 40]), np.array([5.0, 15, 0, 40]))
    assert times.tolist() == [10, 40]
    assert values.tolist() == [1.0, 2.0]


def test_floor_of_whole_degrees_is_one_degree() -> None:
    rng = np.random.default_rng(5)
    tracks = [Track("", TIMES, np.round(rng.normal(60, 0.4, len(TIMES)))) for _ in range(8)]
    assert draft_floor(tracks, is_rate=False) == 1.0


def test_floor_looks_at_peers_at_one_instant_and_not_at_a_common_move() -> None:
    rng = np.random.default_rng(5)
    wave = 1000 * np.sin(TIMES / 100)
    tracks = [Track("", TIMES, wave + rng.normal(0, 1, len(TIMES))) for _ in range(12)]
    assert draft_floor(tracks, is_rate=False) < 5


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), min_size=1, max_size=6), st.booleans()
)
def test_a_floor_is_always_a_positive_number(values: list[list[float]], is_rate: bool) -> None:
    tracks = [Track("", TIMES[: len(v)], np.array(v)) for v in values]
    floor = draft_floor(tracks, is_rate=is_rate)
    assert np.isfinite(floor)
    assert floor > 0


def test_behaviour_needs_some_moves() -> None:
    (one,) = fleet("x", lambda rng: np.arange(len(TIMES)) // 20 * 1.0, nodes=1)
    moves = behaviour([one])
    assert not moves.falls
    assert not moves.only_rises
    assert not moves.is_constant

"""Samples to values: rates over real distances, resets, wraps, gaps, copies, sums, staleness."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core.ingest import SeriesState, cell_values, spec_arrays, take_in
from grouping.catalog import Catalog
from grouping.index import SeriesIndex
from grouping.model import Kind, MetricSpec, Placement, Refusal
from tests import naive

SPECS = [
    MetricSpec("gauge", "x", "T", "node", Kind.GAUGE, "count"),
    MetricSpec("counter", "x", "T", "node", Kind.COUNTER, "count"),
    MetricSpec("wrapping", "x", "T", "node", Kind.COUNTER, "seconds", counter_bits=32, wrap_scale=0.001),
    MetricSpec("summed", "x", "T", "node", Kind.COUNTER, "count", sum_over=("op",), reduce="sum"),
    MetricSpec("cores", "x", "T", "cpu_core", Kind.GAUGE, "count", part=("cpu",), compare=("node",)),
    MetricSpec("parts", "x", "T", "gpu", Kind.GAUGE, "count", part=("gpu",), compare=("all", "node")),
    MetricSpec("watts", "x", "T", "node", Kind.GAUGE, "watts", zero_is_missing=True, valid_max=5000),
]


@dataclass
class Plain:
    generation: int = 0

    def learn(self, labels):
        pass

    def place(self, labels):
        if "node" not in labels:
            return Refusal("no node")
        part = labels.get("cpu") or labels.get("gpu") or ""
        return Placement(labels["node"], part, "", labels.get("op", ""), {})


def make_index(*keys):
    index = SeriesIndex(Catalog.of(SPECS, path=__import__("pathlib").Path("x")), Plain(), Plain())
    index.add_many([k.encode() for k in keys])
    return index


def key(name, **labels):
    inner = ",".join(f'"{k}":"{v}"' for k, v in labels.items())
    return f'{{"__name__":"{name}",{inner}}}'


def feed(index, samples, *, at, state=None, stale=90.0):
    """samples: list of (series, seconds, value)."""
    state = state or SeriesState()
    spec_arrays(state, index)
    series = np.array([s for s, _, _ in samples], dtype=np.int32)
    ts = np.array([round(t * 1000) for _, t, _ in samples], dtype=np.int64)
    values = np.array([v for _, _, v in samples], dtype=float)
    first = take_in(state, series, ts, values, max_gap_ms=150_000)
    return state, cell_values(state, index, first, at=at, stale_after_s=stale)


def test_a_rate_uses_the_real_distance_of_samples():
    index = make_index(key("counter", node="a"))
    state, got = feed(index, [(0, 100.0, 1000.0)], at=110)
    assert np.isnan(got.value[0])
    assert got.fresh[0]
    _, got = feed(index, [(0, 137.0, 1370.0)], at=140, state=state)
    assert got.value[0] == pytest.approx(10.0)
    assert got.rise[0] == 370.0


def test_a_reset_is_unknown_and_never_negative_or_huge():
    index = make_index(key("counter", node="a"))
    state, _ = feed(index, [(0, 100.0, 8e15)], at=100)
    state, got = feed(index, [(0, 130.0, 3e9)], at=130, state=state)
    assert np.isnan(got.value[0])
    assert got.rise[0] == 0
    _, got = feed(index, [(0, 160.0, 3e9 + 300)], at=160, state=state)
    assert got.value[0] == pytest.approx(10.0)


def test_a_32_bit_wrap_is_added_where_the_catalog_says_so():
    index = make_index(key("wrapping", node="a"), key("counter", node="a"))
    top = 2**32 * 0.001
    state, _ = feed(index, [(0, 100.0, top - 1.0), (1, 100.0, top - 1.0)], at=100)
    _, got = feed(index, [(0, 130.0, 2.0), (1, 130.0, 2.0)], at=130, state=state)
    assert got.value[0] == pytest.approx(0.1)
    assert np.isnan(got.value[1])
    state, _ = feed(index, [(0, 100.0, 50.0)], at=100)
    _, got = feed(index, [(0, 130.0, 2.0)], at=130, state=state)
    assert np.isnan(got.value[0])


def test_a_rate_over_a_long_gap_is_unknown_but_a_rise_is_not_lost():
    index = make_index(key("counter", node="a"))
    state, _ = feed(index, [(0, 100.0, 5.0)], at=100)
    _, got = feed(index, [(0, 1000.0, 7.0)], at=1000, state=state)
    assert np.isnan(got.value[0])
    assert got.rise[0] == 2.0


def test_old_samples_are_missing_and_late_ones_are_counted():
    index = make_index(key("gauge", node="a"))
    state, got = feed(index, [(0, 100.0, 5.0)], at=180)
    assert got.value[0] == 5.0
    _, got = feed(index, [], at=200, state=state)
    assert np.isnan(got.value[0])
    assert not got.fresh[0]
    feed(index, [(0, 50.0, 9.0)], at=200, state=state)
    assert state.dropped["late"] == 1


def test_copies_of_one_member_the_newest_wins():
    index = make_index(key("gauge", node="a", pod="x"), key("gauge", node="a", pod="y"))
    _, got = feed(index, [(0, 130.0, 1.0), (1, 120.0, 2.0)], at=131)
    assert index.n_cells == 1
    assert got.value[0] == 1.0


def test_components_are_summed_as_rates_and_copies_are_not():
    index = make_index(
        key("summed", node="a", op="r"),
        key("summed", node="a", op="w"),
        key("summed", node="a", op="w", v="2"),
    )
    state, _ = feed(index, [(0, 100.0, 0.0), (1, 100.0, 0.0), (2, 100.0, 0.0)], at=100)
    _, got = feed(index, [(0, 130.0, 30.0), (1, 130.0, 60.0), (2, 130.0, 60.0)], at=130, state=state)
    assert index.n_cells == 1
    assert got.value[0] == pytest.approx(3.0)


def test_cores_become_the_mean_of_their_node():
    index = make_index(*(key("cores", node="a", cpu=str(c)) for c in range(4)))
    _, got = feed(index, [(c, 100.0, float(c)) for c in range(4)], at=100)
    assert index.n_cells == 1
    assert got.value[0] == pytest.approx(1.5)


def test_parts_keep_their_cells_and_feed_a_node_mean():
    index = make_index(*(key("parts", node="a", gpu=str(c)) for c in range(4)))
    _, got = feed(index, [(c, 100.0, float(c)) for c in range(4)], at=100)
    assert index.n_cells == 5
    mean = int(index.cell_mean_of[0])
    assert got.value[mean] == pytest.approx(1.5)
    assert index.signals[index.cell_signal[mean]].per_node


def test_readings_that_failed_are_dropped_and_counted():
    index = make_index(key("watts", node="a"))
    state, got = feed(index, [(0, 100.0, 0.0)], at=100)
    assert not got.fresh[0]
    _, got = feed(index, [(0, 110.0, 9000.0)], at=110, state=state)
    assert not got.fresh[0]
    assert state.dropped["out of range"] == 2


def test_label_objects_that_are_no_labels_are_refused():
    index = make_index(key("gauge", node="a"))
    index.add_many([b"{not json", b'{"a": 5}', b'{"__name__":"gauge"}', b'{"__name__":"gauge","node":"a"}'])
    assert index.n_series == 1
    assert index.codes[b"{not json"] == -1
    assert index.refused["no node"] == 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(5, 200), st.floats(-1000, 1000)).map(lambda p: (round(p[0], 3), round(p[1], 2))),
        min_size=2,
        max_size=15,
    ),
    st.booleans(),
)
def test_rates_are_the_naive_ones(steps, at_once):
    index = make_index(key("counter", node="a"))
    t, v, samples = 1000.0, 5000.0, []
    for gap, change in steps:
        t, v = round(t + gap, 3), max(0.0, v + change)
        samples.append((t, v))
    expected = naive.naive_rates(samples, 150.0)
    state = SeriesState()
    if at_once:
        _, got = feed(index, [(0, t, v) for t, v in samples], at=samples[-1][0], state=state, stale=1e9)
        values = [got.value[0]]
        expected = expected[-1:]
    else:
        values = [feed(index, [(0, t, v)], at=t, state=state, stale=1e9)[1].value[0] for t, v in samples]
    for value, wanted in zip(values, expected, strict=True):
        if wanted is None:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(wanted, rel=1e-6, abs=1e-3)

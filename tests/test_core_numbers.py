"""Numeric functions of the core against their naive twins, and the hazards by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detector.core.continuity import Continuity
from detector.core.fusion import common_rows, fuse, one_sided
from detector.core.habit import WARM_UP_SAMPLES, Habit
from detector.core.peers import Floors, RowState, row_stats, scores
from detector.core.similarity import distance_ratio, mean_distances
from grouping.layout import Block, Layout
from tests import naive

NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.just(float("nan")), st.integers(-3, 3).map(float))


def one_row_layout(n):
    cells = np.arange(n)
    block = Block(0, "node", False, 0, 1, n, cells, cells, cells, 1)
    return Layout(
        blocks=(block,),
        row_of_cell=np.zeros(n, dtype=np.int64),
        slot_row_of_cell=np.full(n, -1),
        row_signal=np.zeros(1, dtype=np.int64),
        row_pool=np.zeros(1, dtype=np.int64),
        row_members=np.array([n]),
        row_nodes=np.array([n]),
        row_key=("row",),
    )


def z_of(values, floor=1.0, n_min=3):
    values = np.array(values, dtype=float)
    layout = one_row_layout(len(values))
    memory = RowState().carry_to(layout.row_key)
    floors = Floors(np.array([floor]), np.array([0.0]))
    stats = row_stats(values, layout, floors, memory, min_peers=n_min, dt=30.0)
    return scores(values, stats, layout), stats


@settings(max_examples=300, deadline=None)
@given(arrays(float, st.integers(3, 40), elements=NUMBERS), st.floats(0.01, 10))
def test_robust_z_is_the_naive_one_up_to_the_small_group_factor(values, floor):
    got, stats = z_of(values, floor)
    if np.isfinite(values).sum() < 3:
        assert np.isnan(got).all()
        return
    expected = np.array(naive.naive_robust_z(values.tolist(), floor))
    factor = max(naive.naive_mad_sigma(values.tolist()), floor) / stats.scale[0]
    np.testing.assert_allclose(got, expected * factor, rtol=1e-9, atol=1e-9)
    assert factor <= 1.0 + 1e-12


@settings(max_examples=100, deadline=None)
@given(arrays(float, st.integers(4, 30), elements=st.floats(-1e3, 1e3)), st.randoms())
def test_permuting_members_permutes_scores(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    straight, _ = z_of(values)
    shuffled, _ = z_of(values[order])
    np.testing.assert_allclose(shuffled, straight[order])


@settings(max_examples=200, deadline=None)
@given(arrays(float, st.integers(4, 30), elements=st.floats(-1e3, 1e3)), st.floats(0, 1e6))
def test_pushing_the_farthest_member_farther_never_lowers_its_score(values, push):
    before, _ = z_of(values)
    far = int(np.argmax(before))
    moved = values.copy()
    moved[far] += push
    after, _ = z_of(moved)
    assert after[far] >= before[far] - 1e-9


def test_equal_members_score_zero_and_a_deviant_is_finite():
    got, _ = z_of([5.0] * 10)
    assert (got == 0).all()
    got, _ = z_of([5.0] * 9 + [1e12])
    assert np.isfinite(got).all()
    assert got[9] > 1e6


def test_a_stuck_sensor_does_not_hide_another_deviation():
    got, _ = z_of([10.0, 11.0, 9.0, 10.5, 9.5, 10.2, 9.8, 10.1, 18.0, 1e12], floor=0.5)
    assert got[8] > 5


def test_fewer_than_three_members_are_not_judged():
    got, stats = z_of([1.0, 100.0])
    assert np.isnan(got).all()
    assert stats.n_valid[0] == 2
    got, _ = z_of([1.0, 2.0, np.nan, np.nan])
    assert np.isnan(got).all()


def test_huge_offsets_keep_their_differences():
    got, _ = z_of([1e15, 1e15 + 1, 1e15 - 1, 1e15, 1e15 + 2, 1e15 + 400], floor=1.0)
    assert got[5] > 50
    assert abs(got[0]) < 2


def test_the_scale_widens_when_all_peers_move_and_who_stays_is_not_an_outlier():
    layout = one_row_layout(20)
    memory = RowState().carry_to(layout.row_key)
    floors = Floors(np.array([1.0]), np.array([0.0]))
    rng = np.random.default_rng(3)
    for _ in range(60):
        row_stats(100 + rng.normal(size=20), layout, floors, memory, min_peers=3, dt=30.0)
    values = 300 + rng.normal(size=20)
    values[:3] = 100.0
    stats = row_stats(values, layout, floors, memory, min_peers=3, dt=30.0)
    assert np.abs(scores(values, stats, layout)).max() < 5


def test_heavy_tails_are_learnt():
    layout = one_row_layout(60)
    floors = Floors(np.array([0.01]), np.array([0.0]))
    rng = np.random.default_rng(5)
    counts = {}
    for name in ("normal", "heavy"):
        memory = RowState().carry_to(layout.row_key)
        beyond = 0
        for k in range(400):
            values = rng.normal(size=60) if name == "normal" else rng.standard_t(2, size=60)
            stats = row_stats(values, layout, floors, memory, min_peers=3, dt=30.0)
            if k > 100:
                beyond += int((np.abs(scores(values, stats, layout)) > 5).sum())
        counts[name] = beyond, float(memory.tail[0])
    assert counts["normal"][0] <= 5
    assert counts["heavy"][1] > counts["normal"][1] + 0.3
    assert counts["heavy"][0] < 0.02 * 300 * 60


@settings(max_examples=200, deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 6), st.integers(2, 12)), elements=NUMBERS))
def test_mean_distances_are_the_pairwise_ones(window):
    expected = naive.naive_mean_distances(window.tolist())
    np.testing.assert_allclose(mean_distances(window), expected, rtol=1e-7, atol=1e-6)


def test_distance_ratio_names_the_far_member_and_needs_no_spread():
    ratio = distance_ratio(mean_distances(np.array([[1.0, 1.0, 1.0, 9.0]] * 4)), floor=0.5)
    assert ratio.argmax() == 3
    assert np.isfinite(ratio).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 4.9, 5.0, 9.0, -9.0, -5.0])), max_size=30))
def test_continuity_is_the_naive_clock(history):
    clock = Continuity()
    clock.grow_to(1)
    expected = naive.naive_dwell(history, 5.0, 30.0, 240.0)
    for k, score in enumerate(history):
        value = np.nan if score is None else score
        clock.step(np.array([value]), 5.0, at=30.0 * k, dt=30.0, full_s=240.0, max_gap_s=1e9)
        assert clock.dwell_s[0] == pytest.approx(expected[k])


def test_continuity_survives_flapping_and_forgets_after_a_long_gap():
    clock = Continuity()
    clock.grow_to(1)
    pattern = [9.0, 9.0, 9.0, 0.0, 0.0] * 6
    for k, score in enumerate(pattern):
        clock.step(np.array([score]), 5.0, at=30.0 * k, dt=30.0, full_s=240.0, max_gap_s=240.0)
    assert clock.dwell_s[0] > 200
    assert clock.since[0] == 0.0
    for k in range(9):
        clock.step(np.array([np.nan]), 5.0, at=900 + 30.0 * k, dt=30.0, full_s=240.0, max_gap_s=240.0)
    assert clock.dwell_s[0] == 0


def test_a_habit_is_no_deviation_and_a_change_of_it_is():
    habit = Habit()
    habit.grow_to(1)
    rng = np.random.default_rng(1)
    for _ in range(200):
        z = np.array([9.0]) + rng.normal(size=1) * 0.5
        habit.learn(z, np.array([False]), dt=30.0, habit_s=7200.0)
    assert abs(habit.excess(np.array([9.3]))[0]) < 2
    assert habit.excess(np.array([30.0]))[0] > 15
    assert habit.excess(np.array([0.0]))[0] == 0.0


def test_a_member_is_unknown_until_its_habit_is_known():
    habit = Habit()
    habit.grow_to(1)
    for _ in range(WARM_UP_SAMPLES):
        assert np.isnan(habit.excess(np.array([50.0]))[0])
        habit.learn(np.array([0.0]), np.array([False]), dt=30.0, habit_s=7200.0)
    assert habit.excess(np.array([50.0]))[0] == pytest.approx(50.0)


def test_what_deviates_is_not_learnt():
    habit = Habit()
    habit.grow_to(1)
    for _ in range(50):
        habit.learn(np.array([0.0]), np.array([False]), dt=30.0, habit_s=7200.0)
    for _ in range(500):
        habit.learn(np.array([40.0]), np.array([True]), dt=30.0, habit_s=7200.0)
    assert habit.offset[0] == 0.0


def test_fusion_counts_one_target_once_and_caps_a_single_sensor():
    def score(cells):
        s, n, t, k, *own = (np.array(c) for c in zip(*cells, strict=True))
        own = own[0] if own else np.ones(len(s))
        return fuse(s.astype(float), own, n, t, k, n_nodes=2, n_targets=3)

    lone = score([(1.0, 0, 0, 0)])
    twins = score([(1.0, 0, 0, 0), (1.0, 0, 0, 1)])
    two_targets = score([(1.0, 0, 0, 0), (1.0, 0, 1, 2)])
    assert lone[0] == pytest.approx(0.7)
    assert lone[1] == 0
    assert lone[0] < twins[0] < two_targets[0]
    assert two_targets[0] == pytest.approx(1.4)
    assert score([(4.0, 0, 0, 0)])[0] == score([(2.0, 0, 0, 0)])[0] == pytest.approx(1.4)
    assert score([(1.0, 0, 0, 0), (1.0, 0, 0, 0)])[0] == lone[0]
    one_cause = score([(1.0, 0, 0, 0, 1.0), (1.0, 0, 1, 2, 0.0)])
    assert one_cause[0] == pytest.approx(lone[0])


def test_one_sided_directions():
    got = one_sided(np.array([6.0, -6.0, 6.0, -6.0, np.nan]), np.array([1, 1, -1, -1, 1], dtype=np.int8))
    np.testing.assert_array_equal(got[:4], [6.0, 0.0, 0.0, -6.0])
    assert np.isnan(got[4])


def test_common_rows_need_a_share_and_a_number_of_nodes():
    rows = np.zeros(10, dtype=np.int64)
    nodes = np.arange(10)
    assert not common_rows(np.array([0, 1]), rows, nodes, np.array([10]), share=0.2, least=3)[0]
    assert common_rows(np.array([0, 1, 2]), rows, nodes, np.array([10]), share=0.3, least=3)[0]
    same_node = np.zeros(10, dtype=np.int64)
    assert not common_rows(np.arange(8), rows, same_node, np.array([10]), share=0.3, least=3)[0]

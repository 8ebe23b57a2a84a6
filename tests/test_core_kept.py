"""What is kept between evaluations tells the same as what is computed anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detector.core.habit import add_where
from detector.core.level import Level
from detector.core.peers import Floors, RowState, RowStats, nearer_zero
from detector.core.similarity import distance_ratio, mean_distances
from detector.core.window import REACH, Window
from grouping.growing_array import GrowingArray
from tests.test_core_ingest import key, make_index
from tests.test_core_numbers import NUMBERS, one_row_layout

MEMBERS = 12


def _stats(median: float, scale: float) -> RowStats:
    one = np.ones(1)
    return RowStats(median * one, scale * one, np.array([MEMBERS]), scale * one)


def _window_and_frames(rng, n_frames, far_from):
    """Fill a window of one row; from one evaluation on a member is so far off that it is brought nearer."""
    layout, window, frames = one_row_layout(MEMBERS), Window(20), []
    for k in range(n_frames):
        values = rng.normal(50.0, 1.0, MEMBERS)
        values[rng.random(MEMBERS) < 0.1] = np.nan
        values[0] = 50.0 + (500.0 if k >= far_from else 3.0)
        middle = float(np.nanmedian(values))
        window.add(30.0 * k, values, _stats(middle, 1.0), layout)
        frames.append((values.astype(np.float32).astype(np.float64), middle))
        yield window, layout, frames


@pytest.mark.parametrize("far_from", [100, 12, 0])
def test_distances_that_were_kept_are_those_measured_anew(far_from):
    for window, layout, frames in _window_and_frames(np.random.default_rng(far_from), 20, far_from):
        middle = frames[-1][1]
        near = np.clip(np.array([values for values, _ in frames[-8:]]), middle - REACH, middle + REACH)
        expected = distance_ratio(mean_distances(near), 1.0)
        got = [window.similarity(layout, 0, cell, 8) for cell in range(MEMBERS)]
        np.testing.assert_array_equal(got, expected)


def test_distances_of_another_layout_are_not_kept():
    rng = np.random.default_rng(5)
    for window, layout, _ in _window_and_frames(rng, 8, 100):
        window.similarity(layout, 0, 0, 8)
    values = rng.normal(50.0, 1.0, MEMBERS + 3)
    larger = one_row_layout(MEMBERS + 3)
    window.add(1000.0, values, _stats(50.0, 1.0), larger)
    expected = distance_ratio(mean_distances(values.astype(np.float32).astype(np.float64)[None]), 1.0)
    np.testing.assert_array_equal(
        [window.similarity(larger, 0, cell, 8) for cell in range(MEMBERS + 3)], expected
    )


@settings(max_examples=200, deadline=None)
@given(arrays(float, 20, elements=NUMBERS), arrays(float, 20, elements=NUMBERS), arrays(bool, 20))
def test_adding_to_the_chosen_leaves_the_others(total, amount, chosen):
    expected = [t + a if c else t for t, a, c in zip(total, amount, chosen, strict=True)]
    add_where(total, amount, chosen)
    np.testing.assert_array_equal(total, expected)


@settings(max_examples=200, deadline=None)
@given(arrays(float, 20, elements=NUMBERS), arrays(float, 20, elements=NUMBERS))
def test_the_nearer_of_two_deviations_to_one_side(a, b):
    sign = np.sign(a)
    expected = np.where(sign == np.sign(b), sign * np.minimum(np.abs(a), np.abs(b)), 0.0)
    expected[np.isnan(a) | np.isnan(b)] = np.nan
    np.testing.assert_array_equal(nearer_zero(a, b), expected)


def test_windows_that_were_emptied_fill_again():
    rng, layout, level = np.random.default_rng(2), one_row_layout(MEMBERS), Level(6, 4)
    level.grow_to(MEMBERS)
    level.rows = RowState().carry_to(layout.row_key)
    kept = np.full((6, MEMBERS), np.nan)
    for k in range(30):
        newest = rng.normal(0.0, 1.0, MEMBERS)
        newest[rng.random(MEMBERS) < 0.2] = np.nan
        level.push(newest)
        kept = np.vstack([kept[1:], newest])
        if k == 15:
            emptied = np.arange(MEMBERS) < 4
            level.forget(emptied)
            kept[:, emptied] = np.nan
        level.score(
            layout,
            np.zeros(MEMBERS, dtype=np.int64),
            Floors(np.ones(1), np.zeros(1)),
            np.zeros(MEMBERS),
            min_peers=3,
            dt=30.0,
        )
        enough = np.isfinite(kept).sum(axis=0) >= 4
        if enough.sum() < 3:
            continue
        np.testing.assert_array_equal(np.isfinite(level.middle), enough)
        lower = [sorted(column[np.isfinite(column)]) for column in kept.T]
        middle = np.array([c[(len(c) - 1) // 2] if len(c) >= 4 else np.nan for c in lower])
        # middles are told against their own median
        np.testing.assert_allclose(level.middle, middle - np.nanmedian(middle), atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["append", "set", "look"]), st.integers(-1000, 1000)), max_size=80))
def test_a_growing_array_is_a_list(steps):
    array, expected = GrowingArray(np.int32), []
    for what, number in steps * 40:  # beyond its first size
        if what == "append":
            array.append(number)
            expected.append(number)
        elif what == "look":
            assert array.view.tolist() == expected
        elif expected:
            place = number % len(expected)
            array[place] = number
            expected[place] = number
            assert array[place] == number
    assert len(array) == len(expected)
    assert array.view.tolist() == expected


def test_cells_of_nodes_are_counted_anew_when_the_choice_is_another():
    index = make_index(*(key("parts", node=f"n{n}", gpu=str(g)) for n in range(3) for g in range(n + 1)))
    rng = np.random.default_rng(1)
    for _ in range(20):
        one, other = rng.random((2, index.n_cells)) < 0.5
        for choices in ((one,), (one, other), (one, other), (other, one)):
            expected = [[int(c[index.cell_node == n].sum()) for n in range(3)] for c in choices]
            np.testing.assert_array_equal(index.count_by_node(*choices), expected)

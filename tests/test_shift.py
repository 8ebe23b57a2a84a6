"""Lasting changes of habit, seen in windows, and signals that are one cause."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.core.group_events import GroupEvents
from detector.core.independence import independent
from detector.core.judge import ActiveCells
from detector.core.level import network
from detector.core.peers import Floors, RowState, row_stats
from detector.core.shift import WARM_UP_SAMPLES, Shift
from detector.outcome import GroupEvent
from tests.builders import gpu_gauge, suspects
from tests.test_core_numbers import one_row_layout
from tests.test_pipeline import BAD, POWER, cluster

N, WINDOW = 30, 8
QUIET = WARM_UP_SAMPLES + 40


class Row:
    """One peer group, tick by tick."""

    def __init__(self, n=N, floor=0.01):
        self.layout = one_row_layout(n)
        self.floors = Floors(np.array([floor]), np.array([0.0]))
        self.rows = RowState().carry_to(self.layout.row_key)
        self.shift = Shift(WINDOW)
        self.shift.grow_to(n)
        self.shift.carry_to(self.layout.row_key)
        self.nobody = np.zeros(n, dtype=bool)

    def tick(self, values, fresh=None, learn=True, befallen=False):
        stats = row_stats(values, self.layout, self.floors, self.rows, min_peers=3, dt=30.0)
        score = self.shift.step(
            values,
            stats,
            self.layout,
            self.floors,
            self.nobody if fresh is None else fresh,
            np.array([befallen]),
            min_peers=3,
            dt=30.0,
            habit_s=7200.0,
        )
        if learn:
            self.shift.learn(self.nobody, dt=30.0, habit_s=7200.0)
        return score


@given(size=st.integers(2, 40), seed=st.integers(0, 99))
def test_the_network_sorts(size, seed):
    values = np.random.default_rng(seed).integers(0, 9, (size, 20)).astype(float)
    rows = list(values)
    for i, j in network(size):
        rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
    np.testing.assert_array_equal(np.array(rows), np.sort(values, axis=0))


def run(change, ticks, *, n=N, noise=0.3, spread=10.0, seed=0, level=100.0, common=None):
    """Members with persistent differences; return the scores of all ticks after the quiet ones."""
    rng = np.random.default_rng(seed)
    row, own = Row(n), spread * rng.normal(size=n)
    found = []
    for k in range(QUIET + ticks):
        values = level + own + noise * rng.normal(size=n)
        values += 0.0 if common is None else common(k - QUIET)
        if k >= QUIET:
            values[0] += change(k - QUIET)
        score = row.tick(values)
        if k >= QUIET:
            found.append(score)
    return np.array(found)


def test_a_lasting_shift_far_inside_the_differences_between_members_is_seen():
    found = run(lambda k: 2.0, 12)
    assert np.abs(found[: WINDOW - 3, 0]).max() < 3
    assert found[WINDOW, 0] > 7
    assert np.nanmax(np.abs(found[:, 1:])) < 5


def test_a_burst_shorter_than_the_window_gives_nothing():
    found = run(lambda k: 500.0 if k < WINDOW - 1 else 0.0, 40)
    assert np.abs(found[:, 0]).max() < 3


def test_a_small_shift_needs_the_long_window_and_is_over_soon_after_it_ended():
    found = run(lambda k: 0.75 if k < 44 else 0.0, 60)
    assert np.abs(found[:20, 0]).max() < 4
    assert found[20:36, 0].max() > 4.8
    assert np.abs(found[56:, 0]).max() < 3


def test_a_deviation_that_comes_and_goes_is_seen():
    found = run(lambda k: 6.0 if k % 4 < 3 else 0.0, 60)
    assert found[40:, 0].max() > 5


def checkpoints_then(later, *, writer, ticks=120, quiet=400):
    """Return the scores of member 0, which writes checkpoints from the start when it is a `writer`."""
    rng = np.random.default_rng(8)
    row, found = Row(), []
    for k in range(quiet + ticks):
        values = 100.0 + 0.3 * rng.normal(size=N)
        values[0] += 500.0 if writer and k < quiet and k % 12 < 2 else 0.0
        values[0] += later(k - quiet) if k >= quiet else 0.0
        score = row.tick(values)
        found.append(score[0])
    return np.array(found[quiet:])


def test_longer_and_more_frequent_bursts_of_who_bursts_anyway_are_no_change_of_habit():
    for later in (lambda k: 500.0 if k % 24 < 10 else 0.0, lambda k: 500.0 if k % 4 < 2 else 0.0):
        assert checkpoints_then(later, writer=True).max() < 6
        assert checkpoints_then(later, writer=False).max() > 20


def test_a_fault_that_stays_is_seen_of_who_bursts_too():
    assert checkpoints_then(lambda k: 3000.0, writer=True)[WINDOW + 1 : 40].max() > 5


def test_a_move_of_all_is_nobodys_shift():
    found = run(lambda k: 0.0, 30, common=lambda k: 60.0 if k >= 5 else 0.0)
    assert np.nanmax(np.abs(found)) < 5


def test_noise_that_does_not_average_out_widens_the_scale():
    rng = np.random.default_rng(3)
    row = Row()
    walk, worst = np.zeros(N), 0.0
    for k in range(300):
        walk = 0.97 * walk + rng.normal(size=N)
        score = row.tick(100.0 + walk)
        worst = max(worst, float(np.nanmax(np.abs(score)))) if k > 100 else worst
    assert worst < 6


def test_a_restless_member_is_measured_by_its_own_habit():
    rng = np.random.default_rng(4)
    row = Row()
    worst = 0.0
    for k in range(400):
        values = 100.0 + 0.3 * rng.normal(size=N)
        values[0] += 6.0 * np.sin(k / 15.0)
        score = row.tick(values)
        worst = max(worst, float(abs(score[0]))) if k > 250 else worst
    assert worst < 8


def test_unknown_stays_unknown():
    row = Row()
    rng = np.random.default_rng(5)
    for k in range(QUIET):
        values = 100.0 + rng.normal(size=N)
        values[3] = np.nan
        score = row.tick(values)
        assert np.isnan(score[3])
        if k < WARM_UP_SAMPLES:
            assert np.isnan(score).all()
    assert np.isfinite(np.delete(score, 3)).all()


def test_who_is_new_to_its_peers_starts_anew():
    row = Row()
    rng = np.random.default_rng(6)
    for _ in range(QUIET):
        row.tick(100.0 + rng.normal(size=N))
    fresh = np.arange(N) == 0
    values = 100.0 + rng.normal(size=N)
    values[0] += 50
    row.tick(values, fresh=fresh)
    for _ in range(WARM_UP_SAMPLES - 2):
        values = 100.0 + rng.normal(size=N)
        values[0] += 50
        assert np.isnan(row.tick(values)[0])
    for _ in range(30):
        values = 100.0 + rng.normal(size=N)
        values[0] += 50
        score = row.tick(values)
    assert abs(score[0]) < 5


def test_an_evaluation_without_any_series_is_no_error():
    t = cluster()
    assert t.run(1).verdicts == ()
    t.add(gpu_gauge(t, POWER, 800, 4))
    assert t.run(1).verdicts


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_small_groups_have_an_answer(n):
    row = Row(n)
    rng = np.random.default_rng(7)
    for k in range(QUIET + 20):
        values = 100.0 + rng.normal(size=n)
        values[0] += 1000.0 if k >= QUIET else 0.0
        score = row.tick(values)
    assert np.isnan(score).all() if n < 3 else np.isfinite(score).all()
    assert n < 3 or score[0] > np.abs(score[1:]).max()


def test_equal_members_and_a_jump_of_one_are_finite():
    row = Row()
    for k in range(QUIET + 20):
        values = np.full(N, 5.0)
        values[0] += 1.0 if k >= QUIET else 0.0
        score = row.tick(values)
    assert np.isfinite(score).all()
    assert score[0] > 10
    assert np.abs(score[1:]).max() == 0


def test_two_halves_that_part_blame_nobody():
    rng = np.random.default_rng(8)
    row, halves = Row(), np.repeat([-1.0, 1.0], N // 2)
    for k in range(QUIET + 40):
        score = row.tick(100.0 + rng.normal(size=N) + (20.0 * halves if k >= QUIET else 0.0))
    assert np.abs(score).max() < 5


def test_a_sensor_stuck_at_a_huge_value_stays_a_number():
    rng = np.random.default_rng(9)
    row = Row()
    for k in range(QUIET + 20):
        values = 100.0 + rng.normal(size=N)
        values[1] = 1e300
        values[2] = 1e300 if k >= QUIET else values[2]
        score = row.tick(values)
    assert np.isfinite(score[[0, 2, 3]]).all()
    assert score[2] > 10
    assert not np.isinf(score).any()


def test_nothing_but_gaps_is_unknown():
    row = Row()
    for _ in range(QUIET):
        score = row.tick(np.full(N, np.nan))
    assert np.isnan(score).all()


def test_mark_tells_since_when():
    shift = Shift(WINDOW)
    shift.grow_to(2)
    over = shift.mark(np.array([9.0, 1.0]), 5.0, at=1000.0, lasted_s=210.0)
    assert over.tolist() == [True, False]
    assert shift.since[0] == 790.0
    shift.mark(np.array([9.0, 1.0]), 5.0, at=1030.0, lasted_s=210.0)
    assert shift.since[0] == 790.0
    shift.mark(np.array([np.nan, 1.0]), 5.0, at=1060.0, lasted_s=210.0)
    assert shift.since[0] == 790.0
    shift.mark(np.array([0.5, 1.0]), 5.0, at=1090.0, lasted_s=210.0)
    assert np.isnan(shift.since[0])


class TestInThePipeline:
    def test_a_small_lasting_change_of_one_gpu_names_its_node(self):
        t = cluster()
        t.add(
            gpu_gauge(
                t,
                POWER,
                800,
                4,
                lambda k, n, g: 700 + 4 * t.rng.normal() if (n, g) == (BAD, 2) and k >= 60 else None,
            )
        )
        last = t.run(60 + 14)
        assert suspects(last) == [BAD]
        assert next(v for v in last.verdicts if v.node == BAD).part == "gpu 2"

    def test_habits_survive_a_restart(self):
        t = cluster()
        t.add(gpu_gauge(t, POWER, 800, 4, lambda k, n, g: 700 if (n, g) == (BAD, 2) else None))
        t.run(80)
        before = t.pipeline.memory.shift
        blob = t.pipeline.snapshot()
        other = cluster()
        other.add(gpu_gauge(other, POWER, 800, 4, lambda k, n, g: 700 if (n, g) == (BAD, 2) else None))
        other.pipeline.restore(blob, [])
        other.run(1)
        after = other.pipeline.memory.shift
        assert len(after.offset) == len(before.offset)
        assert np.nanmax(after.n_seen) > 70
        far = np.abs(before.offset) > 50
        assert far.any()
        np.testing.assert_allclose(
            np.sort(after.offset[np.abs(after.offset) > 50]), np.sort(before.offset[far]), rtol=0.02
        )


def active_of(cells, nodes, targets, signals, scores):
    n = len(cells)
    return ActiveCells(
        cell=np.array(cells),
        node=np.array(nodes),
        target=np.array(targets),
        signal=np.array(signals),
        quantity=np.array(signals),
        score=np.array(scores, dtype=float),
        plain=np.array(scores, dtype=float),
        ramp=np.ones(n),
        now=np.ones(n, dtype=bool),
        strength=np.array(scores, dtype=float),
        since=np.zeros(n),
        is_shift=np.ones(n, dtype=bool),
        own=np.ones(n),
    )


@pytest.mark.parametrize(("alike", "expected"), [(True, 0.0), (False, 1.0)])
def test_signals_that_move_together_in_all_nodes_count_once(alike, expected):
    t = cluster(24)
    t.add(gpu_gauge(t, POWER, 800, 4))
    t.run(60)
    index, layout = t.pipeline.interner, t.pipeline.layout
    rng = np.random.default_rng(1)
    left = np.full(index.n_cells, np.nan)
    usable = [
        s for s in np.unique(index.cell_signal) if (layout.row_of_cell[index.cell_signal == s] >= 0).all()
    ]
    one, other = (np.flatnonzero(index.cell_signal == s) for s in usable[:2])
    by_node = rng.normal(size=len(index.nodes))
    left[one] = by_node[index.cell_node[one]]
    left[other] = (
        by_node[index.cell_node[other]]
        if alike
        else rng.normal(size=len(index.nodes))[index.cell_node[other]]
    )
    node = int(index.cell_node[one[0]])
    second = next(int(c) for c in other if index.cell_node[c] == node)
    active = active_of([int(one[0]), second], [node, node], [0, 1], list(usable[:2]), [2.0, 1.5])
    found = independent(active, left, index, layout)
    assert found.own[0] == 1.0
    assert found.own[1] == pytest.approx(expected, abs=0.25)


def test_changes_of_habit_count_half_while_something_befalls_all():
    def shifted(*, befallen):
        row, rng = Row(), np.random.default_rng(4)
        for k in range(80):
            values = 100.0 + rng.normal(0, 0.3, N)
            values[3] += 2.0 * (k >= 70)
            score = row.tick(values, befallen=befallen and k >= 70)
        return score[3]

    assert shifted(befallen=False) > 1.0
    assert shifted(befallen=True) == pytest.approx(shifted(befallen=False) / 2)


def test_what_befalls_all_is_felt_a_while_after_its_end_and_a_slower_job_is_none_of_it():
    def event(kind):
        return GroupEvent("e", "p", 0.0, None, (), (), "", kind=kind)

    events = GroupEvents()
    events.whole = {"p": event("fabric_congested"), "q": event("job_slower")}
    assert events.befallen(["p", "q", "r"], 1000.0, 240.0).tolist() == [True, False, False]
    events.whole = {}
    assert events.befallen(["p"], 1480.0, 240.0).tolist() == [True]
    assert events.befallen(["p"], 1481.0, 240.0).tolist() == [False]

"""Calibration: tails, kept levels, budget, faults in the history, the file."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.calibration.chosen import choose
from detector.calibration.file import default_thresholds, load, save, thresholds_for
from detector.calibration.history import Rules, calibrate, left_healthy
from detector.calibration.learn import (
    Aim,
    CalibrationError,
    learn_node,
    learn_signals,
    poisson_bounds,
    thresholds_of,
)
from detector.calibration.levels import (
    CELL_LEVELS,
    NODE_LEVELS,
    Episodes,
    EpisodeTracker,
    KeptLevels,
    highest,
    spread,
)
from detector.calibration.model import MONTH_S, Calibration
from detector.calibration.tail import MIN_PEAKS, estimate, fit_tail
from detector.calibration.tally import Raised, Span, Tally, Watched, judged_s
from detector.core.continuity import Continuity
from detector.core.fusion import TARGET_SHARE
from detector.core.thresholds import ANY_ROLE, CellThresholds, SignalKey, Thresholds
from detector.pipeline import Pipeline
from detector.replay import grid
from detector.settings import load_settings
from tests.builders import CATALOG, START, STEP
from tests.calibration_history import FULL_S, NAMES, Case, CaseSource, history

RULES = Rules(CATALOG)
BUDGET = 200.0


def suspects_in(case: Case, thresholds: Thresholds | None = None) -> list[tuple[str, float]]:
    pipeline, source = Pipeline(CATALOG, thresholds=thresholds), CaseSource(case)
    raised, before = [], 0
    for at in grid(START, START + STEP * case.n_ticks, STEP):
        end_ms = round(at * 1000)
        outcome = pipeline.evaluate(source.fetch(NAMES, before, end_ms, pipeline.interner), at)
        before = end_ms
        raised += [(t.node, t.at) for t in outcome.transitions if t.after == "suspect"]
    return raised


# --- tails ---------------------------------------------------------------------------------------

QUANTILES = {
    "exponential": (lambda rng, n: rng.exponential(1.0, n), lambda p: -math.log(p)),
    "pareto": (lambda rng, n: rng.pareto(4.0, n), lambda p: p ** (-1 / 4) - 1),
    "uniform": (lambda rng, n: rng.uniform(0.0, 1.0, n), lambda p: 1 - p),
}


N_DRAWN = 3000
RATES = (0.3, 0.03, 1 / N_DRAWN, 0.1 / N_DRAWN)


@pytest.mark.parametrize("kind", sorted(QUANTILES))
def test_a_tail_recovers_quantiles_within_and_a_decade_beyond_the_data(kind: str) -> None:
    draw, quantile = QUANTILES[kind]
    tails = [fit_tail(draw(np.random.default_rng([seed, 7]), N_DRAWN), N_DRAWN, 0.0) for seed in range(60)]
    for p, factor in zip(RATES, (1.1, 1.1, 1.4, 1.7), strict=True):
        ratios = np.array([tail.level_of(p) for tail in tails if tail is not None]) / quantile(p)
        assert len(ratios) == 60
        assert float(np.median(ratios)) == pytest.approx(1.0, abs=0.08), "no bias"
        # one in many draws is far off: with 500 peaks, the shape has a standard error of 0.06
        assert np.mean((ratios < factor) & (ratios > 1 / factor)) >= 0.85


@pytest.mark.parametrize("kind", sorted(QUANTILES))
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.01, 1.0, 300.0]))
def test_a_tail_follows_the_unit_and_is_never_above_the_rate_asked_for(
    kind: str, seed: int, scale: float
) -> None:
    peaks = QUANTILES[kind][0](np.random.default_rng(seed), N_DRAWN)
    tail, scaled = fit_tail(peaks, N_DRAWN, 0.0), fit_tail(scale * peaks, N_DRAWN, 0.0)
    assert tail is not None
    assert scaled is not None
    levels = [tail.level_of(p) for p in RATES]
    assert levels == sorted(levels)
    for p, level in zip(RATES, levels, strict=True):
        assert scaled.level_of(p) == pytest.approx(scale * level, rel=1e-6)
        assert tail.rate_above(level) <= p * 1.001


@given(shape=st.floats(-0.8, 0.3), seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_shape_and_scale_are_recovered(shape: float, seed: int) -> None:
    u = np.random.default_rng(seed).uniform(size=20_000)
    excess = -np.log(u) if abs(shape) < 1e-9 else (u**-shape - 1.0) / shape
    found, scale = estimate(2.0 * excess)
    assert float(found) == pytest.approx(shape, abs=0.12)
    assert float(scale) == pytest.approx(2.0, rel=0.12)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    hits = 0
    for seed in range(60):
        peaks = np.random.default_rng([seed, 5]).exponential(1.0, 400)
        tail = fit_tail(peaks, 400.0, 0.0)
        assert tail is not None
        low, high = tail.interval_of(1e-3)
        assert low <= tail.level_of(1e-3) * 1.2
        hits += low <= -math.log(1e-3) <= high
    assert hits >= 42  # of 60; 54 for an exact 90 % interval


@given(st.lists(st.floats(0.5, 50.0), min_size=0, max_size=80), st.floats(1e-6, 1e3))
@settings(max_examples=60, deadline=None)
def test_any_peaks_give_finite_levels_that_meet_the_rate_or_no_tail(peaks: list[float], rate: float) -> None:
    tail = fit_tail(np.array(peaks), 1.0, 0.5)
    if tail is None:
        assert len(peaks) < MIN_PEAKS or sum(p > 0.5 for p in peaks) < 2
        return
    assert math.isfinite(tail.level_of(rate))
    assert tail.level_of(rate) >= 0.0
    assert tail.rate_above(tail.level_of(rate)) <= max(rate * 1.001, 0.0) or rate >= tail.rate
    low, high = tail.interval_of(rate)
    assert low <= high
    if rate < 1.0:
        assert tail.level_of(rate) >= max(peaks)


def test_poisson_bounds_are_the_textbook_ones() -> None:
    assert poisson_bounds(0) == pytest.approx((0.0, 2.996), abs=1e-3)
    assert poisson_bounds(10) == pytest.approx((5.425, 16.962), abs=1e-3)


# --- kept levels ---------------------------------------------------------------------------------


@given(st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=60), st.integers(0, 16))
@settings(max_examples=80, deadline=None)
def test_a_level_is_kept_exactly_when_a_clock_with_that_threshold_is_full(
    scores: list[float], number: int
) -> None:
    kept, clock = KeptLevels(CELL_LEVELS, FULL_S, FULL_S), Continuity()
    clock.grow_to(1)
    level = float(CELL_LEVELS[number])
    for k, score in enumerate(scores):
        x = np.array([score if abs(score) >= CELL_LEVELS[0] else 0.0])
        x = np.abs(x)  # changes of sign are judged at the lowest level, by design
        member, found = kept.step(x, STEP)
        clock.step(x, level, at=k * STEP, dt=STEP, full_s=FULL_S, max_gap_s=FULL_S)
        is_full = clock.dwell_s[0] >= FULL_S - 1e-3
        assert (len(member) == 1 and found[0] >= number) == is_full


def test_a_change_of_side_and_a_long_gap_start_the_levels_again() -> None:
    for breaks in ([-6.0], [math.nan] * 9):
        kept = KeptLevels(CELL_LEVELS, FULL_S, FULL_S)
        for score in [6.0] * 7 + breaks + [6.0]:
            assert len(kept.step(np.array([score]), STEP)[0]) == 0


def test_episodes_join_short_breaks_and_keep_the_highest_level() -> None:
    tracker = EpisodeTracker(FULL_S)
    none = np.zeros(0, dtype=np.int64)
    for k, level in enumerate([3, -1, -1, 5, *([-1] * 10), 2]):
        group = np.array([1]) if level >= 0 else none
        tracker.step(2, group, np.array([level]) if level >= 0 else none, 1000.0 + 30.0 * k)
    found = tracker.finish()
    assert found.level.tolist() == [5, 2]
    assert found.group.tolist() == [1, 1]
    assert found.start[0] == 1000.0 - FULL_S
    assert found.end[0] == 1090.0


def test_of_too_many_episodes_the_highest_are_kept_in_order() -> None:
    numbers = np.arange(5)
    found = Episodes(numbers, np.array([1, 4, 0, 4, 2]), numbers * 1.0, numbers * 1.0)
    assert highest(found, 3).group.tolist() == [1, 3, 4]
    assert highest(found, 5) is found


def test_ties_are_spread_within_their_step() -> None:
    sizes = spread(np.array([4, 4, 4, 7]), CELL_LEVELS)
    assert (sizes[:3] > CELL_LEVELS[4]).all()
    assert (sizes[:3] < CELL_LEVELS[5]).all()
    assert len(set(sizes.tolist())) == 4


# --- thresholds in the pipeline ------------------------------------------------------------------


def test_thresholds_of_cells_are_one_number_without_a_calibration() -> None:
    assert CellThresholds(None, 5.0).of_cells([], np.zeros(0, dtype=np.int32)) == 5.0
    assert CellThresholds(Thresholds(), 5.0).of_cells([], np.zeros(0, dtype=np.int32)) == 5.0


def test_a_role_not_seen_takes_that_of_its_metric_and_nothing_is_ever_lowered() -> None:
    learnt = Thresholds(
        {SignalKey("a", "x"): 9.0, SignalKey("a", ANY_ROLE): 7.0, SignalKey("b"): 2.0},
    )
    assert learnt.of(SignalKey("a", "x"), 5.0) == 9.0
    assert learnt.of(SignalKey("a", "y"), 5.0) == 7.0
    assert learnt.of(SignalKey("a", "y", per_node=True), 5.0) == 5.0
    assert learnt.of(SignalKey("b"), 5.0) == 5.0


def test_thresholds_equal_to_the_plain_one_change_nothing() -> None:
    case = history(3, n_ticks=120).with_fault(4, 60, 100, 14.0)
    same = Thresholds({SignalKey(name): 5.0 for name in NAMES})
    assert suspects_in(case) == suspects_in(case, same) != []


def test_a_raised_threshold_and_a_raised_node_threshold_hold_back() -> None:
    case = history(3, n_ticks=120, bursts_per_hour=0.0).with_fault(4, 60, 100, 9.0)
    assert [node for node, _ in suspects_in(case)] == ["gpu005"]
    # windows average noise out: the fault is 30 scales of theirs
    assert suspects_in(case, Thresholds({SignalKey(name): 100.0 for name in NAMES})) == []
    assert suspects_in(case, Thresholds(node=4.0)) == []


def watched_in(case: Case, thresholds: Thresholds | None = None) -> tuple[Watched, Pipeline]:
    pipeline, source = Pipeline(CATALOG, thresholds=thresholds), CaseSource(case)
    tally = Tally(pipeline)
    before = 0
    for at in grid(START, START + STEP * case.n_ticks, STEP):
        end_ms = round(at * 1000)
        pipeline.evaluate(source.fetch(NAMES, before, end_ms, pipeline.interner), at)
        before = end_ms
        tally.see()
    return tally.finish("made", START, START + STEP * case.n_ticks), pipeline


SMALL = history(8, n_ticks=170, bursts_per_hour=0.0).with_fault(4, 120, 170, 4.0, metrics=(0, 1))
"""A change too small for a single evaluation to show, which lasts."""


def test_what_only_windows_show_is_measured_as_often_as_it_decides() -> None:
    seen_small, pipeline = watched_in(SMALL)
    assert pipeline.memory.clock.dwell_s.max() == 0.0, "no single evaluation shows it"
    levels = {e.key: e.level for e in seen_small.signals if e.node == "gpu005" and e.key is not None}
    moved = float(CELL_LEVELS[max(levels.values())])
    assert moved > 1.0
    assert set(levels) == {SignalKey(NAMES[0]), SignalKey(NAMES[1])}
    (node,) = [e for e in seen_small.nodes if e.node == "gpu005"]
    assert suspects_in(SMALL) != []
    assert NODE_LEVELS[node.level] >= 1.0
    # a node that is not named is learnt from: what is a little less than its level may hold it back too
    assert suspects_in(SMALL, Thresholds(node=float(NODE_LEVELS[node.level + 1]) * 1.001)) == []


def test_shifts_that_count_against_nobody_are_not_measured() -> None:
    case = history(8, n_ticks=200, bursts_per_hour=0.0)
    for node in range(10):
        case = case.with_fault(node, 120, 170, 3.2, metrics=(0,))
    shared, _ = watched_in(case)
    plain = int(np.searchsorted(CELL_LEVELS, 1.0))
    assert [e for e in shared.signals if e.level >= plain] == []
    assert [e for e in shared.nodes if NODE_LEVELS[e.level] >= 1.0] == []


# --- from history to a budget --------------------------------------------------------------------


@pytest.fixture(scope="module")
def learnt() -> Calibration:
    cases = [history(seed) for seed in (1, 2)]
    return calibrate([case.stretch(f"h{k}") for k, case in enumerate(cases)], RULES, BUDGET, trusted=True)


def test_other_healthy_history_stays_within_the_budget_and_faults_are_still_found(
    learnt: Calibration,
) -> None:
    thresholds = thresholds_of(learnt.signals, learnt.node.threshold)
    unseen = history(11)
    months = unseen.n_ticks * STEP * len(unseen.nodes) / (24 * MONTH_S)
    plain = len(suspects_in(unseen))
    raised = len(suspects_in(unseen, thresholds))
    assert raised <= poisson_bounds(math.floor(BUDGET * months), 0.98)[1]
    assert plain > 2 * max(raised, 1), "without a calibration the budget would not hold"
    faulty = unseen.with_fault(7, 400, 480, 40.0, metrics=(0, 1, 3))
    found = [at for node, at in suspects_in(faulty, thresholds) if node == "gpu008"]
    assert any(START + 400 * STEP < at <= START + 414 * STEP for at in found)


def test_what_was_learnt_is_told(learnt: Calibration) -> None:
    assert learnt.catalog_sha256 == CATALOG.sha256
    assert learnt.history.n_nodes == 24
    assert 11.0 < learnt.history.node_days < 12.1
    entries = {e.metric: e for e in learnt.signals}
    assert set(entries) == set(NAMES)
    for entry in entries.values():
        assert entry.armed
        assert entry.n_peaks >= MIN_PEAKS
        assert entry.interval[0] <= entry.threshold <= entry.interval[1]
        assert entry.threshold >= learnt.z_threshold
    assert learnt.node.threshold >= 1.0
    assert learnt.expected.low <= learnt.expected.high
    assert learnt.expected.per_month <= BUDGET * 1.001


KEYS = [SignalKey(f"m{k}") for k in range(6)]


def seen(rng: np.random.Generator, peaks: list[int], days: float = 600.0, weight: float = 1.0) -> Watched:
    """Return 600 node-days of 60 nodes in which signals had so many episodes of exponential heights."""
    found = Watched("made", 0.0, days * 86400.0 / 60, 30.0, n_nodes=60)
    for key, n in zip(KEYS, peaks, strict=True):
        heights = 0.5 * (1.0 + rng.exponential(1.0, n))
        levels = np.searchsorted(CELL_LEVELS, heights, side="right") - 1
        found.signals += [Raised("n1", key, int(level), 0.0, 0.0) for level in levels]
        found.signal_s[key] = days * 86400.0
        found.targets[key], found.weights[key] = ("A" if key in KEYS[:3] else "B"), weight
        found.moving.add(key)
    found.node_s = {f"n{k}": days * 86400.0 / 60 for k in range(60)}
    return found


@given(seed=st.integers(0, 1000), factor=st.floats(2.0, 100.0))
@settings(max_examples=25, deadline=None)
def test_a_larger_budget_never_asks_for_more(seed: int, factor: float) -> None:
    watched = [seen(np.random.default_rng(seed), [400, 60, 3, 15, 0, 900])]
    strict = learn_signals(watched, Aim(1.0, 60, FULL_S, 5.0))
    lax = learn_signals(watched, Aim(factor, 60, FULL_S, 5.0))
    for a, b in zip(strict, lax, strict=True):
        assert b.threshold <= a.threshold * (1 + 1e-9)
        assert 5.0 <= a.threshold <= 100.0
        assert a.interval[0] <= a.threshold <= a.interval[1]


def test_a_signal_meets_both_shares_of_the_budget() -> None:
    aim = Aim(1.0, 60, FULL_S, 5.0)
    months = aim.months(600 * 86400.0)
    (entry, *_) = learn_signals([seen(np.random.default_rng(3), [4000, 0, 0, 0, 0, 0])], aim)
    rate = 4000 / months

    def expected(allowed: float) -> float:
        return 0.5 * (1.0 + math.log(rate / allowed))

    alone = aim.reachable(aim.alone(6), months)
    wanted = max(expected(aim.crossings(6)), TARGET_SHARE * expected(alone))
    assert entry.threshold == pytest.approx(5.0 * wanted, rel=0.15)
    assert aim.alone(6) < alone, "a history says nothing of what is much rarer than itself"
    (light, *_) = learn_signals([seen(np.random.default_rng(3), [4000, 0, 0, 0, 0, 0], weight=0.3)], aim)
    assert light.threshold <= entry.threshold  # it can't decide alone


def test_few_peaks_borrow_the_tail_of_their_target_and_keep_their_own_number() -> None:
    watched = [seen(np.random.default_rng(4), [400, 3, 0, 2, 2, 2])]
    entries = learn_signals(watched, Aim(0.01, 60, FULL_S, 5.0))
    assert [e.tail for e in entries] == ["own", "target", "", "all", "all", "all"]
    assert entries[0].threshold > entries[1].threshold >= entries[2].threshold == 5.0


def test_the_node_threshold_meets_the_budget_on_its_own_history() -> None:
    rng = np.random.default_rng(5)
    watched, aim = seen(rng, [0] * 6), Aim(30.0, 60, FULL_S, 5.0)
    heights = 0.5 * (1.0 + rng.exponential(0.5, 800))
    levels = np.searchsorted(NODE_LEVELS, heights, side="right") - 1
    watched.nodes += [Raised("n1", None, int(level), 0.0, 0.0) for level in levels]
    node, expected = learn_node([watched], aim)
    wanted = 0.5 * (1.0 + 0.5 * math.log(800 / aim.months(600 * 86400.0) / 30.0))
    assert node.threshold == pytest.approx(wanted, rel=0.15)
    assert node.interval[0] <= node.threshold <= node.interval[1]
    assert expected.per_month == pytest.approx(30.0, rel=0.01)
    watched.nodes = watched.nodes[:4]
    few, _ = learn_node([watched], Aim(0.01, 60, FULL_S, 5.0))
    assert few.threshold == 1.0 or few.threshold > max(heights[:4])


@pytest.fixture(scope="module")
def quiet() -> Calibration:
    return calibrate([history(5, bursts_per_hour=0.02).stretch()], RULES, BUDGET, trusted=True)


def test_a_floor_lowers_quiet_signals_and_nothing_below_it(quiet: Calibration) -> None:
    case = history(5, bursts_per_hour=0.02)
    made = calibrate([case.stretch()], RULES, BUDGET, floor=0.6, trusted=True)
    assert {e.threshold >= 3.0 - 1e-9 for e in made.signals} == {True}
    assert min(e.threshold for e in made.signals) < 5.0
    for entry, wanted in zip(made.signals, quiet.signals, strict=True):
        assert entry.threshold <= wanted.threshold
    learnt = thresholds_of(made.signals, made.node.threshold, made.floor)
    assert learnt.of(SignalKey(made.signals[0].metric), 5.0) == made.signals[0].threshold
    with pytest.raises(CalibrationError, match="floor"):
        calibrate([case.stretch()], RULES, BUDGET, floor=0.2)


def test_a_fault_in_the_history_is_not_learnt_and_is_reported(quiet: Calibration) -> None:
    faulty = history(5, bursts_per_hour=0.02).with_fault(6, 300, 420, 60.0, metrics=(0, 1))
    made = calibrate([faulty.stretch()], RULES, BUDGET)
    (out,) = [item for item in made.history.left_out if item.node == "gpu007"]
    assert out.reason.endswith("hardly any other node ever does that")
    assert out.start <= START + 300 * STEP
    assert out.end >= START + 415 * STEP
    for entry, wanted in zip(made.signals, quiet.signals, strict=True):
        assert entry.threshold == pytest.approx(wanted.threshold, rel=0.3)
    assert made.node.threshold == pytest.approx(quiet.node.threshold, rel=0.3)


def test_masked_time_is_not_learnt(quiet: Calibration) -> None:
    faulty = history(5, bursts_per_hour=0.02).with_fault(6, 300, 420, 60.0)
    mask = Span("gpu007", START + 290 * STEP, START + 440 * STEP, "masked")
    made = calibrate([faulty.stretch(masks=[mask])], RULES, BUDGET, trusted=True)
    assert [e.threshold for e in made.signals] == pytest.approx([e.threshold for e in quiet.signals], rel=0.3)
    assert [item.reason for item in made.history.left_out] == ["masked"]


def test_what_many_nodes_do_is_a_habit_of_the_cluster_and_is_learnt() -> None:
    case = history(6, bursts_per_hour=0.0)
    for node in range(24):
        case = case.with_fault(node, 60 + 30 * node, 80 + 30 * node, 9.0)
    made = calibrate([case.stretch()], RULES, BUDGET)
    assert made.history.left_out == ()
    assert max(e.threshold for e in made.signals) > 5.0 or made.node.threshold > 1.0
    assert suspects_in(case) != []
    assert suspects_in(case, thresholds_of(made.signals, made.node.threshold)) == []


def test_too_little_history_is_refused() -> None:
    with pytest.raises(CalibrationError, match=r"too little healthy history: .* node-hours"):
        calibrate([history(1, n_ticks=100).stretch()], RULES, 1.0)


def test_constant_history_is_refused() -> None:
    constant = Case(np.zeros((720, 24, len(NAMES))))
    with pytest.raises(CalibrationError, match="constant"):
        calibrate([constant.stretch()], RULES, 1.0)


def test_constant_signals_and_those_seen_too_briefly_are_not_armed() -> None:
    case = history(1)
    case.units[:, :, 2] = 0.0
    case.units[300:, :, 3] = np.nan
    made = calibrate([case.stretch()], RULES, BUDGET, trusted=True)
    entries = {e.metric: e for e in made.signals}
    for name, reason in ((NAMES[2], "never differed"), (NAMES[3], "too little data")):
        assert not entries[name].armed
        assert entries[name].threshold == made.z_threshold
        assert reason in entries[name].reason
    assert entries[NAMES[0]].armed


def test_no_history_and_wholly_masked_history_are_refused() -> None:
    with pytest.raises(CalibrationError, match="no history"):
        calibrate([], RULES, 1.0)
    mask = Span("", START, START + 1e9, "masked")
    with pytest.raises(CalibrationError, match=r"too little healthy history: 0\.0"):
        calibrate([history(1, n_ticks=60).stretch(masks=[mask])], RULES, 1.0)


def test_history_that_looks_faulty_for_most_of_it_is_refused() -> None:
    watched = seen(np.random.default_rng(1), [0] * 6)
    spans = [Span(f"n{k}", watched.start, watched.end, "looks odd") for k in range(31)]
    with pytest.raises(CalibrationError, match="no healthy history: n0, n1, n10 and 28 more"):
        left_healthy([watched], [spans])
    (rest,) = left_healthy([watched], [spans[:6]])
    assert judged_s([rest]) == pytest.approx(0.9 * judged_s([watched]))
    assert rest.signal_s[KEYS[0]] == pytest.approx(0.9 * watched.signal_s[KEYS[0]])


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_is_none_is_refused(budget: float) -> None:
    with pytest.raises(CalibrationError, match="budget"):
        calibrate([history(1, n_ticks=10).stretch()], RULES, budget)


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["c.json", "c.yaml"])
def test_a_file_comes_back_as_it_was_written(learnt: Calibration, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old", encoding="utf-8")
    save(learnt, path)
    assert load(path) == learnt
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_folder_that_is_not_there_is_told(learnt: Calibration, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be written"):
        save(learnt, tmp_path / "none" / "c.json")


def in_effect(made: Calibration, **changes: float) -> Thresholds:
    values = {
        "budget": made.budget_per_month,
        "z_threshold": made.z_threshold,
        "continuity_s": made.continuity_s,
    }
    return thresholds_for(made, Path("c.json"), CATALOG, **{**values, **changes})


def test_another_catalog_is_an_error_that_names_both(learnt: Calibration) -> None:
    other = dataclasses.replace(learnt, catalog_sha256="f" * 64)
    with pytest.raises(CalibrationError, match=f"ffffffffffff.*{CATALOG.sha256[:12]}"):
        in_effect(other)


def test_unknown_metrics_and_another_budget_are_findings(learnt: Calibration) -> None:
    stray = dataclasses.replace(learnt.signals[0], metric="no_such_metric")
    found = in_effect(dataclasses.replace(learnt, signals=(*learnt.signals, stray)), budget=2.0)
    assert SignalKey("no_such_metric") not in found.signals
    assert any("no_such_metric" in note for note in found.notes)
    assert any("budget.false_alarms_per_month" in note for note in found.notes)
    pipeline, source = Pipeline(CATALOG, thresholds=found), CaseSource(history(1, n_ticks=3))
    batch = source.fetch(NAMES, 0, round((START + STEP) * 1000), pipeline.interner)
    outcome = pipeline.evaluate(batch, START + STEP)
    assert [q.reason for q in outcome.data_quality if q.kind == "calibration"] == list(found.notes)
    assert in_effect(learnt).notes == ()


def wrong(learnt: Calibration, **changes: object) -> str:
    return json.dumps({**dataclasses.asdict(learnt), **changes})


def test_wrong_files_are_told_in_one_sentence(learnt: Calibration, tmp_path: Path) -> None:
    entry = dataclasses.asdict(learnt.signals[0])
    cases = {
        "{": "is not JSON",
        "[]": "is not a calibration",
        "{}": "is not a calibration",
        wrong(learnt, format=99): "format is 99",
        wrong(learnt, budget_per_month="x"): "budget_per_month",
        wrong(learnt, budget_per_month=-1): "budget_per_month",
        wrong(learnt, signals=[{**entry, "threshold": -3.0}]): "threshold must be more than 0",
        wrong(learnt, signals=[{**entry, "threshold": 1e300}]): "threshold must be more than 0",
        wrong(learnt, signals=[{k: v for k, v in entry.items() if k != "metric"}]): "metric",
        wrong(learnt, node={**dataclasses.asdict(learnt.node), "threshold": 0.5}): "node.threshold",
        wrong(learnt, floor=0.0): "floor",
        wrong(learnt, signals=[entry] * 20_001): "more than 20000 signals",
    }
    path = tmp_path / "c.json"
    for text, message in cases.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CalibrationError, match=message) as caught:
            load(path)
        assert str(path) in str(caught.value)
    with pytest.raises(CalibrationError, match="cannot be read"):
        load(tmp_path / "none.json")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(CalibrationError, match="is bigger than"):
        load(path)


def test_settings_choose_the_file_or_what_is_shipped(learnt: Calibration, tmp_path: Path) -> None:
    save(learnt, tmp_path / "c.json")
    config = tmp_path / "oddnode.yaml"
    config.write_text(f"calibration: {{path: c.json}}\nbudget: {{false_alarms_per_month: {BUDGET}}}\n")
    chosen = choose(load_settings(config), CATALOG)
    assert chosen.calibration == learnt
    assert chosen.thresholds == in_effect(learnt)
    assert choose(load_settings(None, {}), CATALOG).calibration is None
    assert default_thresholds(CATALOG, tmp_path / "none.json") is None
    shipped = default_thresholds(CATALOG, tmp_path / "c.json")
    assert shipped is not None
    assert shipped.signals == in_effect(learnt).signals

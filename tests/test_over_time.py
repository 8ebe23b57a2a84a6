"""Evidence over a long time: shifts against the own past, and differences since the first sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from detector.core.fusion import CELL_CAP, NAMELESS_CAP, fuse
from detector.core.own_past import DAY_S, SHIFT_THRESHOLD, OwnPast
from detector.core.peers import Floors, RowState, row_stats
from detector.core.standing import LEAST_SAMPLES, Standing
from tests.test_core_numbers import one_row_layout

N_NODES, N_METRICS = 6, 10
NODE = np.repeat(np.arange(N_NODES), N_METRICS)
METRIC = np.tile(np.arange(N_METRICS), N_NODES)
POOL = np.zeros(N_NODES, dtype=np.int32)
ALL = np.ones(len(NODE), dtype=bool)


def _past(shifted: dict[int, int], seen_s: float = DAY_S) -> OwnPast:
    """Return a past in which so many metrics of some nodes have just shifted enough."""
    past = OwnPast()
    past.grow_to(len(NODE))
    past.seen_s[:], past.n_seen[:] = seen_s, 300.0
    for node, n in shifted.items():
        past.shift[(node == NODE) & (n > METRIC)] = -1.1 * SHIFT_THRESHOLD
    return past


def test_four_metrics_that_agree_name_a_node_and_three_do_not() -> None:
    assert _past({2: 4}).scores(ALL, NODE, METRIC, POOL)[2] >= 1.0
    assert _past({2: 3}).scores(ALL, NODE, METRIC, POOL).max() < 1.0


def test_a_past_without_a_whole_day_names_nobody() -> None:
    assert _past({2: 10}, seen_s=DAY_S / 2).scores(ALL, NODE, METRIC, POOL).max() == 0.0


def test_two_nodes_may_shift_and_three_are_the_pool() -> None:
    assert (_past({1: 5, 2: 5}).scores(ALL, NODE, METRIC, POOL) >= 1.0).sum() == 2
    assert _past({1: 5, 2: 5, 3: 5}).scores(ALL, NODE, METRIC, POOL).max() < 1.0


def _standing(far: dict[int, int], n_samples: int = LEAST_SAMPLES) -> Standing:
    plain = np.zeros(len(NODE))
    for node, n in far.items():
        plain[(node == NODE) & (n > METRIC)] = 20.0
    standing = Standing()
    standing.grow_to(len(NODE))
    for _ in range(n_samples):
        standing.step(plain, 60.0)
    return standing


def test_the_node_that_differs_most_from_the_start_is_named_and_who_waits_for_it_is_not() -> None:
    score = _standing({0: 8, 3: 5}).scores(NODE, POOL)
    assert score[0] >= 1.0
    assert score[3] < 1.0


def test_few_signals_or_few_samples_say_nothing() -> None:
    assert _standing({0: 3}).scores(NODE, POOL).max() < 1.0
    assert _standing({0: 10}, LEAST_SAMPLES - 1).scores(NODE, POOL).max() == 0.0


def test_one_or_two_metrics_without_a_known_target_never_name_a_node_and_three_do() -> None:
    cap = np.full(N_METRICS, NAMELESS_CAP)

    def worth(n: int) -> float:
        which = np.arange(n)
        huge, own = np.full(n, CELL_CAP), np.ones(n)
        sizes = {"n_nodes": 1, "n_targets": N_METRICS}
        return float(fuse(huge, own, np.zeros(n, dtype=np.int64), which, which, cap=cap, **sizes)[0])

    assert worth(2) < 1.0
    assert worth(3) >= 1.0


def test_a_repaired_node_is_clear_within_hours_however_long_it_differed() -> None:
    standing = _standing({0: 8})
    standing.seen_s[:] = 30 * DAY_S
    for array in (standing.far, standing.seen):
        array *= DAY_S / 60.0 / LEAST_SAMPLES  # what a month leaves, as older counts fade
    assert standing.scores(NODE, POOL)[0] >= 1.0
    for _ in range(4 * 60):
        standing.step(np.zeros(len(NODE)), 60.0)
    assert standing.scores(NODE, POOL).max() == 0.0


def _one_row_past() -> tuple[OwnPast, Callable[..., None]]:
    layout = one_row_layout(len(NODE))
    past, rows, rng = OwnPast(), RowState().carry_to(layout.row_key), np.random.default_rng(3)
    past.grow_to(len(NODE))
    floor = np.array([0.1])

    def tick(extra: float, skip: np.ndarray | None = None) -> None:
        values = 50.0 + rng.normal(size=len(NODE))
        values[0] += extra
        stats = row_stats(values, layout, Floors(floor, np.zeros(1)), rows, min_peers=3, dt=900.0)
        past.step(values, ALL, stats, layout, floor, min_peers=3, dt=900.0, skip=skip)

    return past, tick


def test_a_suspects_fault_does_not_become_its_past() -> None:
    past, tick = _one_row_past()
    for _ in range(120):
        tick(0.0)
    before = past.offset[0]
    for _ in range(300):
        tick(6.0, skip=NODE == 0)
    assert past.offset[0] == before
    assert past.shift[0] > SHIFT_THRESHOLD


def test_a_member_with_new_peers_has_no_past() -> None:
    past, tick = _one_row_past()
    for _ in range(120):
        tick(0.0)
    past.forget(NODE == 0)
    assert past.n_seen[0] == 0
    assert past.n_seen[-1] == 120
    tick(40.0)
    assert past.shift[0] == 0.0

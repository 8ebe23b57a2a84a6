"""Growth over hours and days: what is found, what is no growth, and what survives a restart."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.detect.simulated import SimulatedSource
from detector.core import trend
from detector.core.grown import SCALES
from detector.core.growth import (
    COUNT_TAIL,
    LEAST_BLOCKS,
    count_growth,
    gauge_growth,
    row_medians,
    rows_of,
    stages_of,
)
from detector.core.parameters import Parameters
from detector.core.snapshots import cell_keys, unpack
from detector.outcome import Layer
from detector.pipeline import Pipeline
from grouping.pools import PoolRules, PoolTracker
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from tests.builders import CATALOG, Telemetry, gauge, gpu_gauge, gpu_labels, node_labels, suspects
from tests.naive import naive_median

REMAPS, SYMBOLS = "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
ANON, FREE = "node_memory_AnonPages_bytes", "node_memory_MemAvailable_bytes"
TEMP, UTIL = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"
BAD = "gpu004"
FIVE_MIN = 300.0


class Slow(Telemetry):
    """The same telemetry at steps of five minutes."""

    def at(self, tick: int) -> float:
        return 1_767_225_600.0 + FIVE_MIN * tick


def slow(n_nodes=12, seed=1):
    return Slow(n_nodes, seed, Parameters(step_s=FIVE_MIN))


def one_row(n, parts=1):
    return rows_of(np.zeros(n, dtype=np.int64), np.array([parts]))


def no_past(n):
    return np.zeros(n), np.zeros(n)


def counts(rises, n=40, length=24):
    """Events per block of member 0; all others have none."""
    blocks = np.zeros((length, n), dtype=np.float32)
    for block, amount in rises.items():
        blocks[block, 0] = amount
    return blocks


def counter(name, change, n_gpus=4):
    """A counter of each GPU: `change` gives its value."""

    def source(tick, node):
        return [(name, gpu_labels(node, g), change(tick, node, g)) for g in range(n_gpus)]

    return source


def trend_of(outcome, node=BAD):
    verdict = next(v for v in outcome.verdicts if v.node == node)
    return [e for e in verdict.evidence if e.layer is Layer.TREND]


# --- counts ------------------------------------------------------------------------------------------


def test_the_tail_of_counts_is_that_of_the_negative_binomial_law():
    blocks = counts(dict.fromkeys(range(0, 24, 4), 1))
    found = count_growth(blocks, one_row(40), *no_past(40))
    tail = stats.nbinom.sf(5, 0.5, 1 - 1 / (1 + 38))
    assert found.score[0] == pytest.approx(math.log(tail * 40) / math.log(COUNT_TAIL), rel=0.02)
    assert found.score[1:].max() == 0
    assert found.amount[0] == 6
    assert found.n_blocks[0] == 6


def test_one_burst_is_no_growth_however_large():
    assert count_growth(counts({5: 10_000}), one_row(40), *no_past(40)).score[0] == 0
    burst = count_growth(counts({5: 10_000, 9: 1, 14: 1}), one_row(40), *no_past(40)).score[0]
    steady = count_growth(counts({5: 1, 9: 1, 14: 1}), one_row(40), *no_past(40)).score[0]
    assert burst < 0.3 < steady


def test_fewer_blocks_than_the_least_never_count():
    few = {4 * k: 1 for k in range(LEAST_BLOCKS - 1)}
    assert count_growth(counts(few, n=4000), one_row(4000), *no_past(4000)).score[0] == 0


def test_growth_that_has_gone_quiet_has_ended():
    early = count_growth(counts({0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1}), one_row(40), *no_past(40))
    late = count_growth(counts(dict.fromkeys(range(16, 24), 1)), one_row(40), *no_past(40))
    assert early.score[0] == 0
    assert late.score[0] > 1


def test_what_peers_have_as_well_is_no_growth():
    rng = np.random.default_rng(3)
    blocks = rng.poisson(0.5, (24, 400)).astype(np.float32)
    assert count_growth(blocks, one_row(400, 8), *no_past(400)).score.max() < 1
    blocks[:, 7] += 4
    found = count_growth(blocks, one_row(400, 8), *no_past(400))
    assert np.flatnonzero(found.score >= 1).tolist() == [7]
    assert found.high[7] < 40


@pytest.mark.parametrize("seed", range(3))
def test_uneven_and_bursty_peers_name_nobody(seed):
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.3, 4.0, 500)
    blocks = (rng.poisson(rate / 24, (24, 500)) * rng.integers(1, 30, (24, 500))).astype(np.float32)
    assert count_growth(blocks, one_row(500, 8), *no_past(500)).score.max() < 2


def test_a_member_that_was_always_so_has_not_grown():
    blocks = counts(dict.fromkeys(range(0, 24, 3), 1))
    past, blocks_before = np.zeros(40), np.full(40, 144.0)
    past[0] = 48
    assert count_growth(blocks, one_row(40), past, blocks_before).score[0] == 0
    past[0] = 4
    assert count_growth(blocks, one_row(40), past, blocks_before).score[0] > 1


def test_hours_without_data_are_no_hours_without_events():
    seen = counts(dict.fromkeys(range(4, 24, 4), 1))
    unseen = seen.copy()
    unseen[::2, 1:] = np.nan
    whole = count_growth(seen, one_row(40), *no_past(40)).score[0]
    half = count_growth(unseen, one_row(40), *no_past(40)).score[0]
    assert 0 < half < whole
    nobody = seen.copy()
    nobody[:, 1:] = np.nan
    assert count_growth(nobody, one_row(40), *no_past(40)).score[0] == 0


# --- gauges ------------------------------------------------------------------------------------------


def leak(n=30, noise=1.0, seed=0, rise=30.0):
    stages = noise * np.random.default_rng(seed).normal(size=(6, n)) / 8 + 500.0
    stages[:, 0] += rise * np.arange(6) / 5
    return stages


def grown(stages, side=1, floor=1.0):
    n = stages.shape[1]
    return gauge_growth(stages, one_row(n), np.full(n, side), np.full(n, floor))


def test_a_steady_leak_is_found_and_only_to_the_worse_side():
    assert np.flatnonzero(grown(leak()).score >= 1).tolist() == [0]
    assert grown(leak(), side=-1).score.max() < 1
    assert np.flatnonzero(grown(leak(rise=-30), side=0).score >= 1).tolist() == [0]
    assert grown(leak(), floor=20.0).score.max() < 1


def test_a_jump_a_return_and_a_common_rise_are_no_leak():
    jump = leak(rise=0)
    jump[3:, 0] += 300
    assert grown(jump).score[0] == 0
    back = leak(rise=0)
    back[2:5, 0] += 300
    assert grown(back).score[0] == 0
    together = leak(rise=0) + 300 * np.arange(6)[:, None]
    assert grown(together).score.max() < 1


def test_peers_that_wander_widen_what_is_usual():
    rng = np.random.default_rng(1)
    walks = 500 + np.cumsum(rng.normal(0, 10, (6, 200)), axis=0)
    assert grown(walks, side=0).score.max() < 1


def test_too_few_members_or_stages_say_nothing():
    assert grown(leak(n=4)).score.max() == 0
    gap = leak()
    gap[2, 0] = np.nan
    assert grown(gap).score[0] == 0
    assert grown(np.full((6, 8), np.nan)).score.max() == 0


def test_medians_of_rows_agree_with_the_obvious_way():
    rng = np.random.default_rng(2)
    row = rng.integers(0, 5, 60)
    values = np.where(rng.random(60) < 0.2, np.nan, rng.normal(size=60))
    found = row_medians(values, rows_of(row, np.ones(5, dtype=np.int64)))
    for k in range(5):
        assert found[k] == pytest.approx(naive_median(values[row == k].tolist()), nan_ok=True)


def test_a_stage_of_which_half_is_missing_is_unknown():
    blocks = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert stages_of(blocks, 2).ravel().tolist() == [1.5, 5.5]
    blocks[:2] = np.nan
    assert np.isnan(stages_of(blocks, 2)[0, 0])


# --- the layer in the detector -----------------------------------------------------------------------


def remapping(every_s, amount=1, start_tick=24):
    """Rows of one GPU that are remapped now and then; the others have two from before."""

    def value(tick, node, gpu):
        if (node, gpu) != (BAD, 2) or tick < start_tick:
            return 2.0
        return 2.0 + amount * ((tick - start_tick) * FIVE_MIN // every_s + 1)

    return value


def test_rows_remapped_five_times_a_day_are_found_within_days_and_named():
    t = slow().add(gpu_gauge(slow(), TEMP, 61, 1)).add(counter(REMAPS, remapping(5 * 3600.0)))
    t.run(3 * 288)
    named = [x for o in t.outcomes for x in o.transitions if x.after == "suspect"]
    assert {x.node for x in named} == {BAD}
    assert named[0].at - t.at(24) < 1.6 * 86_400
    evidence = [e for o in t.outcomes for e in trend_of(o)]
    assert {e.part for e in evidence} == {"gpu 2"}
    assert "rose by" in evidence[-1].reason
    assert "peers by 0" in evidence[-1].reason
    assert evidence[-1].target == "GPU"


def test_one_batch_of_remaps_and_two_of_a_day_name_nobody():
    def value(tick, node, gpu):
        return 2.0 + (30.0 if (node, gpu) == (BAD, 2) and tick >= 30 else 0.0) + (tick > 200)

    t = slow().add(counter(REMAPS, value))
    t.run(300)
    assert t.ever_suspect() == set()
    assert not any(trend_of(o) for o in t.outcomes)


def test_a_reset_counter_has_not_grown():
    t = slow().add(counter(REMAPS, lambda k, n, g: float(k % 7 == 0) * 100 if n == BAD else 100.0))
    t.run(3)
    before = t.pipeline.memory.trend
    at = np.flatnonzero(t.pipeline.interner.cell_node == t.nodes.index(BAD))
    for _tick in range(24):
        t.run(1)
        assert before._sum[np.isin(before.cells, at)].max() in (0.0, 100.0)
        if (t.tick % 7) == 1:
            assert before._sum[np.isin(before.cells, at)].max() == 0.0


def test_growth_on_many_nodes_has_a_shared_cause():
    sick = {"gpu001", "gpu004", "gpu007", "gpu010"}
    value = lambda k, n, g: float(k // 4 if n in sick and g == 1 else 0)  # noqa: E731
    t = slow(30).add(counter(SYMBOLS, value))
    t.run(60)
    assert not any(trend_of(o, n) for o in t.outcomes for n in sick)


def test_errors_of_which_some_are_normal_never_decide_alone():
    t = slow().add(gpu_gauge(slow(), TEMP, 61, 1))
    t.add(counter(SYMBOLS, lambda k, n, g: float(k if (n, g) == (BAD, 1) and k > 24 else 0)))
    t.run(120)
    assert max(e.score for o in t.outcomes for e in trend_of(o)) == trend.SUPPORTS
    assert t.ever_suspect() == set()


def test_memory_that_leaks_over_a_day_is_found_before_it_is_far_from_the_peers():
    t = slow()
    lost = lambda k, n: 1.5e12 - (4e8 * k if n == BAD else 0) + 2e9 * t.rng.normal()  # noqa: E731
    t.add(gauge(t, FREE, 1.5e12, 0.0, lost))
    t.run(2 * 288)
    evidence = [e for o in t.outcomes for e in trend_of(o)]
    assert evidence
    assert evidence[0].side == "below"
    assert "fell steadily by" in evidence[0].reason
    others = {v.node for o in t.outcomes for v in o.verdicts if trend_of(o, v.node)}
    assert others == {BAD}


def test_growth_goes_on_over_a_restart_and_a_gap_and_is_not_counted_twice():
    def build():
        return slow().add(counter(REMAPS, remapping(2 * 3600.0)))

    first = build()
    first.run(150)
    whole = build()
    whole.run(170)
    blob = first.pipeline.snapshot()
    second = build()
    assert second.pipeline.restore(blob, []) == []
    second.tick = first.tick - 10  # past data is read anew
    second.run(30)
    for name in ("fast", "slow"):
        np.testing.assert_array_equal(
            getattr(second.pipeline.memory.trend, name), getattr(whole.pipeline.memory.trend, name)
        )
    saved = unpack(blob)
    keys = cell_keys(first.pipeline.interner)
    assert [saved.cell_keys[c] for c in saved.tables["trend_cells"]] == [
        keys[c] for c in first.pipeline.memory.trend.cells
    ]
    second.tick += 288 * 9  # nothing for longer than a week
    second.run(1)
    assert np.isnan(second.pipeline.memory.trend.slow).all()


def test_growth_over_days_is_known_again_minutes_after_a_restart():
    t = slow().add(counter(REMAPS, remapping(2 * 3600.0)))
    t.run(12 * 40)
    assert trend_of(t.outcomes[-1])
    t.run(2)
    other = slow().add(counter(REMAPS, remapping(2 * 3600.0)))
    assert other.pipeline.restore(t.pipeline.snapshot(), []) == []
    other.tick = t.tick
    other.run(2)
    assert trend_of(other.outcomes[-1])


def test_without_any_group_and_after_a_clock_that_was_ahead_growth_is_no_error():
    t = slow().add(counter(REMAPS, remapping(2 * 3600.0)))
    t.pipeline.pool_tracker = PoolTracker(PoolRules(muted=("*",)))
    t.run(3)
    kept = t.pipeline.memory.trend
    kept.last_at, kept.slow[:] = t.at(10_000), 1.0
    t.run(2)
    assert kept.last_at == t.at(5)
    assert np.isnan(kept.slow).all()


def test_only_marked_cells_are_kept_and_memory_is_bounded():
    t = slow().add(gpu_gauge(slow(), TEMP, 61, 1)).add(counter(REMAPS, lambda k, n, g: 0.0))
    t.run(40)
    kept = t.pipeline.memory.trend
    assert len(kept.cells) == 12 * 4
    assert kept.fast.nbytes + kept.slow.nbytes == 48 * 4 * (12 + 168)
    assert suspects(t.outcomes[-1]) == []


def test_windows_hold_whole_stages():
    for scale in SCALES:
        assert scale.n_steady % scale.n_stages == 0
        assert max(scale.n_counted, scale.n_steady) <= (trend.PER_HOUR if scale.is_fast else trend.HOURS)


class Remapping:
    """A simulated cluster in which one GPU has a row remapped every four hours."""

    def __init__(self, cluster, onset):
        self.config, self.series = cluster.config, cluster.series
        self._cluster, self._onset = cluster, onset
        self._row = next(
            k
            for k, one in enumerate(self.series)
            if one["__name__"] == REMAPS and one["gpu"] == "5" and one["Hostname"] == "gpu003"
        )

    def tick(self, at):
        values, ts_ms = self._cluster.tick(at)
        values[self._row] += max(0.0, (at - self._onset) // 14_400)
        return values, ts_ms


def test_three_simulated_days_of_slow_remapping_name_the_gpu_and_nobody_else():
    metrics = frozenset({REMAPS, TEMP, UTIL, FREE})
    config = ClusterConfig(train_nodes=6, spares=0, cpus=2, step_s=FIVE_MIN, metrics=metrics)
    start = config.start
    onset = start + 20_000
    source = SimulatedSource(Remapping(Cluster(config, 5, (), ()), onset))
    pipeline = Pipeline(CATALOG, Parameters(step_s=FIVE_MIN))
    told, before = {}, start - FIVE_MIN
    for at in np.arange(start, start + 3 * 86_400, FIVE_MIN).tolist():
        batch = source.fetch(pipeline.names(), int(before * 1000), int(at * 1000), pipeline.interner)
        outcome, before = pipeline.evaluate(batch, at), at
        for verdict in outcome.verdicts:
            for item in verdict.evidence:
                if item.layer is Layer.TREND:
                    told.setdefault((verdict.node, item.part), (at, item.reason))
        assert set(suspects(outcome)) <= {"gpu003"}
    assert told.keys() == {("gpu003", "gpu 5")}
    at, reason = told["gpu003", "gpu 5"]
    assert at - onset < 1.5 * 86_400
    assert "in 24 h" in reason


@pytest.mark.parametrize(("room", "named"), [(1.5e11, {BAD}), (5e12, set())], ids=["full soon", "ample"])
def test_room_that_shrinks_counts_when_it_will_be_used_up_soon(room: float, named: set[str]) -> None:
    t = Telemetry(12)

    def avail(tick: int, node: str):
        used = 1e9 * max(0, tick - 30) if node == BAD else 0.0
        labels = {**node_labels(node), "device": "/dev/md0", "fstype": "ext4", "mountpoint": "/"}
        return [("node_filesystem_avail_bytes", labels, room - used + 1e6 * float(t.rng.normal()))]

    t.add(avail).add(gauge(t, "node_load1", 40.0, 1.0))
    t.run(140)
    grown = [e for o in t.outcomes for v in o.verdicts for e in v.evidence if e.layer is Layer.TREND]
    assert t.ever_suspect() == named
    assert bool(grown) == bool(named)

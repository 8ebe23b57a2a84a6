"""The rivals of the detection bench on one metric of twelve nodes, where the right answer is plain."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detect import rivals_torch
from benchmarks.detect.bench import at_edge, best_settings
from benchmarks.detect.matrix import CaseMatrix, lasting, spans_of
from benchmarks.detect.rivals import all_rivals, not_run, train_all
from benchmarks.detect.rivals_density import DatadogDbscan, DatadogMad, OneDimensional
from benchmarks.detect.rivals_history import KnownSpread, OwnHistory, healthy
from benchmarks.detect.rivals_learnt import (
    Minder,
    candidates,
    lessons_of,
    nearest_filled,
    normal_scores,
    scaled_windows,
)
from benchmarks.detect.rivals_minder import MinderMlp, MinderPca
from benchmarks.detect.rivals_pooled import Mahalanobis
from benchmarks.detect.rivals_rules import AnyError, Rival, Threshold, held, rule_rivals
from detector.source.incident_file import RecordedFault, Recording
from grouping.layout import Block, Layout

# Everybody near 100, one node as the test says

N_TICKS, N_NODES, ODD = 60, 12, 7


def one_metric(
    odd: np.ndarray | None = None,
    *,
    metric: str = "node_load1",
    step_s: float = 30.0,
    n_ticks: int = N_TICKS,
    seed: int = 3,
) -> CaseMatrix:
    rng = np.random.default_rng(seed)
    values = (100 + rng.standard_normal((n_ticks, N_NODES))).astype(np.float32)
    if odd is not None:
        values[:, ODD] += odd
    cells = np.arange(N_NODES)
    none = np.zeros(N_NODES, dtype=np.int64)
    block = Block(0, "node", False, 0, 1, N_NODES, cells, cells, cells, 1)
    layout = Layout((block,), none, none - 1, none[:1], none[:1], none[:1] + 12, none[:1] + 12, ("row",))
    return CaseMatrix(
        times=step_s * np.arange(n_ticks),
        values=values,
        errors=np.zeros(values.shape, dtype=bool),
        is_code=np.zeros(N_NODES, dtype=bool),
        is_telling=np.zeros(N_NODES, dtype=bool),
        layout=layout,
        nodes=tuple(f"n{i}" for i in range(N_NODES)),
        parts=("",),
        metrics=(metric,),
        cell_node=cells,
        cell_part=none,
        cell_signal=none,
        signal_keys=(f"{metric} ",),
        pool=cells,
    )


def step(size: float, first: int = 30, n: int = 10**6, n_ticks: int = N_TICKS) -> np.ndarray:
    tick = np.arange(n_ticks)
    return np.where((tick >= first) & (tick < first + n), size, 0.0)


def a_recording(*faults: tuple[float, float], step_s: float = 30.0) -> Recording:
    labels = tuple(RecordedFault(f"n{ODD}", onset, end) for onset, end in faults)
    pool = tuple(f"n{i}" for i in range(N_NODES))
    return Recording("case", Path("incident.yaml"), 0.0, step_s * (N_TICKS - 1), step_s, pool, faults=labels)


def train_pairs() -> list[tuple[CaseMatrix, Recording]]:
    return [
        (one_metric(step(50.0)), a_recording((900.0, 1800.0))),
        (one_metric(seed=4), a_recording()),
    ]


def trained_rivals() -> tuple[Rival, ...]:
    rivals = all_rivals()
    for rival in rivals:
        if isinstance(rival, rivals_torch.MinderLstmVae):
            rival.epochs = 3
    train_all(rivals, lambda: iter(train_pairs()))
    return rivals


NAMED = {rival.name: rival for rival in rule_rivals()}
SETTINGS: list[tuple[Rival, tuple[object, ...], int]] = [
    (NAMED["mean and standard deviation z, 4 min"], ("all", 3), 37),
    (NAMED["median and MAD z, 4 min"], ("all", 10.0), 37),
    (NAMED["the same with a floor of 5 %"], ("all", 10.0), 37),
    (NAMED["PromQL ratio to the median"], ("all", 1.5, 240.0), 37),
    (NAMED["PromQL ratio to the median"], ("all", 1.5, 600.0), 49),
    (NAMED["under half or over 4 times the median, 10 min"], ("all", 0.5), 49),
    (OneDimensional(), ("all", 0.8), 37),
    (OwnHistory(), ("all", 10.0, "larger", 0.05), 47),
    (KnownSpread(), ("all", 10.0), 37),
    # looked at every two minutes: three of twenty samples, at the first look after the third
    (DatadogMad(), ("all", 10.0, 0.1, False), 31),
    (DatadogDbscan(), ("all", 5.0, False), 31),
]


@pytest.mark.parametrize(("rival", "setting", "at"), SETTINGS, ids=lambda x: getattr(x, "name", str(x)))
def test_names_the_odd_node_when_it_has_been_odd_for_long_enough(
    rival: Rival, setting: tuple[object, ...], at: int
) -> None:
    first = 40 if isinstance(rival, OwnHistory) else 30
    matrix = one_metric(step(500.0, first))
    flags = rival.flags(matrix, rival.prepare(matrix), setting)
    assert [(f.node, f.raised_at, f.cleared_at) for f in flags] == [(f"n{ODD}", 30.0 * at, None)]


@pytest.mark.parametrize("rival", all_rivals(), ids=lambda r: r.name)
def test_strictest_setting_is_quiet_on_noise(rival: Rival) -> None:
    matrix = one_metric()
    prepared = rival.prepare(matrix)
    assert min(len(rival.flags(matrix, prepared, setting)) for setting in rival.grid) == 0


@pytest.mark.parametrize(("rival", "setting", "at"), SETTINGS[:9], ids=lambda x: getattr(x, "name", str(x)))
def test_a_burst_is_no_alarm(rival: Rival, setting: tuple[object, ...], at: int) -> None:
    matrix = one_metric(step(500.0, 45, n=6))
    assert not rival.flags(matrix, rival.prepare(matrix), setting)


@pytest.mark.parametrize(("step_s", "n_ticks"), [(2.0, 120), (30.0, 8), (300.0, 3)])
def test_continuity_is_four_minutes_and_at_least_three_samples(step_s: float, n_ticks: int) -> None:
    matrix = one_metric(step(500.0, 40, n_ticks=400), step_s=step_s, n_ticks=400)
    rival = NAMED["median and MAD z, 4 min"]
    flags = rival.flags(matrix, rival.prepare(matrix), ("all", 10.0))
    assert [(f.node, f.raised_at) for f in flags] == [(f"n{ODD}", step_s * (40 + n_ticks - 1))]


class TestOutlierMonitors:
    def test_dbscan_leaves_a_split_group_alone(self) -> None:
        halves = one_metric()
        halves.values[:, :6] += 500.0
        for rival, setting in ((DatadogDbscan(), ("all", 5.0, False)), (OneDimensional(), ("all", 0.8))):
            assert not rival.flags(halves, rival.prepare(halves), setting)

    def test_dbscan_reaches_members_by_steps(self) -> None:
        chain = one_metric()
        for k, node in enumerate((8, 9, 10)):
            chain.values[:, node] += 6.0 * (k + 1)
        rival = DatadogDbscan()
        prepared = rival.prepare(chain)

        def found(tolerance: float) -> set[str]:
            return {f.node for f in rival.flags(chain, prepared, ("all", tolerance, False))}

        # each is about 27 from the next, the last 80 from the middle; a tolerance of one is about 5
        assert found(10.0) == set()
        assert found(3.0) == {"n8", "n9", "n10"}
        chain.values[:, 9] = 600.0
        assert rival.flags(chain, rival.prepare(chain), ("all", 10.0, False))

    def test_scaled_forms_are_quiet_on_tight_groups(self) -> None:
        tight = one_metric(step(0.5))
        tight.values[:] = 1000.0 + 0.01 * (tight.values - 100.0)
        tight.values[30:, ODD] += 1.0
        for rival, plain, scaled in (
            (DatadogMad(), ("all", 5.0, 0.3, False), ("all", 5.0, 0.3, True)),
            (DatadogDbscan(), ("all", 5.0, False), ("all", 5.0, True)),
        ):
            prepared = rival.prepare(tight)
            assert {f.node for f in rival.flags(tight, prepared, plain)} == {f"n{ODD}"}
            assert not rival.flags(tight, prepared, scaled)

    def test_mad_forgives_who_does_the_same_a_little_later(self) -> None:
        # all jump for a minute, one of them two minutes after the others
        matrix = one_metric()
        matrix.values[30:32] += 50.0
        matrix.values[30:32, ODD] -= 50.0
        matrix.values[34:36, ODD] += 50.0
        rival = DatadogMad()
        assert not rival.flags(matrix, rival.prepare(matrix), ("all", 10.0, 0.2, False))


class TestHistory:
    def test_an_old_habit_is_no_alarm_and_a_change_of_it_is(self) -> None:
        habit = one_metric(np.full(N_TICKS, 30.0))
        rival, setting = OwnHistory(), ("all", 10.0, "own", 0.001)
        assert not rival.flags(habit, rival.prepare(habit), setting)
        habit.values[45:, ODD] -= 30.0
        flags = rival.flags(habit, rival.prepare(habit), setting)
        assert [(f.node, f.raised_at) for f in flags] == [(f"n{ODD}", 30.0 * 52)]

    def test_spread_is_learnt_outside_faults(self) -> None:
        rival = KnownSpread()
        rival.train(train_pairs())
        assert rival.usual["node_load1"] == pytest.approx(1.0, abs=0.25)
        blind = KnownSpread()
        blind.train([(matrix, a_recording()) for matrix, _ in train_pairs()[:1]])
        assert blind.usual["node_load1"] > 5

    def test_learnt_spread_quiets_rows_without_noise(self) -> None:
        still = one_metric(step(0.5))
        still.values[:, [i for i in range(N_NODES) if i != ODD]] = 100.0
        rival = KnownSpread()
        assert rival.flags(still, rival.prepare(still), ("all", 5.0))
        rival.train(train_pairs())
        assert not rival.flags(still, rival.prepare(still), ("all", 5.0))

    def test_healthy_time_leaves_out_faults_and_ten_minutes_after(self) -> None:
        quiet = healthy(one_metric(), a_recording((300.0, 600.0)))
        assert quiet.tolist() == [t * 30 < 270 or t * 30 > 1200 for t in range(N_TICKS)]


class TestRules:
    def test_small_groups_cap_the_mean_z_score(self) -> None:
        # sqrt(n - 1) is 3.32 for twelve members, however far one of them is
        matrix = one_metric(step(1e6))
        rival = NAMED["mean and standard deviation z, 4 min"]
        assert isinstance(rival, Threshold)
        assert 3.3 < rival.prepare(matrix).max() < 3.32

    def test_lists_look_only_at_their_metrics(self) -> None:
        matrix = one_metric(step(500.0), metric="node_forks_total")
        rival = NAMED["median and MAD z, 4 min"]
        prepared = rival.prepare(matrix)
        assert not rival.flags(matrix, prepared, ("few", 10.0))
        assert not rival.flags(matrix, prepared, ("steady", 10.0))
        assert rival.flags(matrix, prepared, ("all", 10.0))

    def test_any_error_is_held_for_ten_minutes(self) -> None:
        matrix = one_metric()
        matrix.errors[10, ODD] = True
        flags = AnyError().flags(matrix, None, ("all",))
        assert [(f.node, f.raised_at, f.cleared_at) for f in flags] == [(f"n{ODD}", 300.0, 900.0)]
        assert not AnyError().flags(matrix, None, ("codes",))


class TestMinder:
    @pytest.mark.parametrize(
        "rival", [r for r in all_rivals() if isinstance(r, Minder)], ids=lambda r: r.name
    )
    def test_learns_and_names_the_node(self, rival: Minder) -> None:
        if isinstance(rival, rivals_torch.MinderLstmVae):
            rival.epochs = 40
        rival.learn(lessons_of(train_pairs()))
        assert rival.order_of((rival.variants[-1], "tree", 7, "z", 2.5)) == ("node_load1 ",)
        assert rival.order_of((rival.variants[-1], "published", 10, "z", 2.5)) == ()
        faulty = one_metric(step(50.0), seed=9)
        prepared = rival.prepare(faulty)
        flags = rival.flags(faulty, prepared, (rival.variants[-1], "tree", 7, "z", 2.5))
        assert [f.node for f in flags] == [f"n{ODD}"]
        assert 900.0 + 4 * 30 <= flags[0].raised_at <= 900.0 + 12 * 30
        # a z-score of one of twelve can't exceed 3.32; against the others alone it can
        assert not rival.flags(faulty, prepared, (rival.variants[-1], "tree", 7, "z", 3.5))
        assert rival.flags(faulty, prepared, (rival.variants[-1], "tree", 7, "left out", 5.0))
        assert not rival.flags(faulty, prepared, (rival.variants[-1], "published", 10, "z", 2.5))

    def test_published_order_names_what_there_is(self) -> None:
        pairs = [(one_metric(metric="DCGM_FI_DEV_POWER_USAGE"), a_recording())]
        assert lessons_of(pairs).orders["published"] == ("DCGM_FI_DEV_POWER_USAGE ",)

    def test_without_faults_the_order_is_that_of_names(self) -> None:
        pairs = [(one_metric(metric=name), a_recording()) for name in ("b", "a")]
        assert lessons_of(pairs).orders["tree"] == ("a ", "b ")

    def test_the_tree_prefers_the_kinds_of_metrics_that_the_original_was_given(self) -> None:
        told, other = train_pairs()[0], (one_metric(metric="DCGM_FI_DEV_GPU_UTIL"), a_recording())
        orders = lessons_of([told, other]).orders
        assert "node_load1 " not in orders["tree"]
        assert orders["tree of all"][0] == "node_load1 "

    def test_the_first_signal_decides(self) -> None:
        rival = MinderPca()
        rival.learn(lessons_of(train_pairs()))
        rival.orders["tree"] = ("missing ", "node_load1 ")
        faulty = one_metric(step(50.0))
        prepared = rival.prepare(faulty)
        assert not rival.flags(faulty, prepared, (4, "tree", 1, "z", 2.5))
        assert rival.flags(faulty, prepared, (4, "tree", 3, "z", 2.5))

    def test_windows_are_scaled_by_the_time_that_was_pulled(self) -> None:
        values = np.zeros((40, 3), dtype=np.float32)
        values[0] = 100.0
        values[20:, 0] = 10.0
        windows = scaled_windows(values, 30)
        assert np.isnan(windows[:7]).all()
        assert windows[28, 0, -1] == pytest.approx(0.1)
        assert windows[32, 0].tolist() == [1.0] * 8
        assert windows[32, 1].tolist() == [0.0] * 8

    def test_equal_windows_have_no_score(self) -> None:
        windows = np.full((1, 6, 8), 0.3, dtype=np.float32)
        assert np.isnan(normal_scores(windows, lambda w: w)).all()

    def test_candidate_must_stay_the_same(self) -> None:
        score = np.zeros((6, 5), dtype=np.float32)
        score[[0, 1, 2, 4, 5], 3] = 2.0
        score[3, 1] = 2.0
        found = candidates(score, 3)
        assert found.node.tolist() == [3, 3, 3, 1, 3, 3]
        assert np.isfinite(found.z).tolist() == [False, False, True, False, False, False]
        # (n - 1) / sqrt(n) in other words: the others don't vary at all
        assert found.left_out[2] > 100

    def test_the_left_out_score_is_that_of_the_others(self) -> None:
        total = np.random.default_rng(1).normal(10, 1, 20)
        total[4] = 15
        z = (total - total.mean()) / total.std()
        others = np.delete(total, 4)
        found = candidates(z[None].astype(np.float32), 1)
        assert found.left_out[0] == pytest.approx((total[4] - others.mean()) / others.std(), rel=1e-4)

    @pytest.mark.parametrize("rival", [MinderPca(), MinderMlp()], ids=lambda r: r.name)
    def test_denoisers_keep_what_is_usual(self, rival: Minder) -> None:
        rng = np.random.default_rng(5)
        level = rng.uniform(0.2, 0.8, (500, 1))
        flat = (level + 0.01 * rng.standard_normal((500, 8))).astype(np.float32)
        for denoiser in rival.fitted({"x": flat}).values():
            assert np.abs(denoiser(flat) - level).mean() < 0.05


class TestMahalanobis:
    def test_is_quiet_with_too_few_signals(self) -> None:
        matrix = one_metric(step(50.0))
        rival = Mahalanobis()
        prepared = rival.prepare(matrix)
        assert not any(rival.flags(matrix, prepared, setting) for setting in rival.grid)


class TestSettings:
    def test_best_setting_has_the_highest_f1_and_then_the_fewest_false_alarms(self) -> None:
        rival = DatadogMad()
        counts = {(rival.name, setting): (1, 5, 1) for setting in rival.grid}
        counts[rival.name, rival.grid[3]] = (2, 4, 0)
        counts[rival.name, rival.grid[9]] = (2, 1, 0)
        assert best_settings([rival], [counts, counts]) == {rival.name: rival.grid[9]}

    def test_no_setting_is_chosen_on_nothing(self) -> None:
        with pytest.raises(RuntimeError, match="no train case could be evaluated"):
            best_settings(rule_rivals(), [])

    def test_edge_of_a_grid(self) -> None:
        grid = [(w, t, s) for w in ("few", "all") for t in (1.0, 2.0, 3.0) for s in (False, True)]
        assert [at_edge(grid, ("few", t, True)) for t in (1.0, 2.0, 3.0)] == [True, False, True]

    def test_names_are_different(self) -> None:
        names = [rival.name for rival in all_rivals()]
        assert len(set(names)) == len(names)

    def test_rivals_can_be_sent_to_other_processes(self) -> None:
        matrix = one_metric(step(500.0))
        for rival in trained_rivals():
            again: Rival = pickle.loads(pickle.dumps(rival))
            for setting in (rival.grid[0], rival.grid[-1]):
                assert again.flags(matrix, again.prepare(matrix), setting) == rival.flags(
                    matrix, rival.prepare(matrix), setting
                )

    def test_training_twice_gives_the_same(self) -> None:
        matrix = one_metric(step(50.0), seed=11)
        for one, two in zip(trained_rivals(), trained_rivals(), strict=True):
            if isinstance(one, Minder):
                first, second = one.prepare(matrix), two.prepare(matrix)
                assert first.keys() == second.keys() != set()
                for key in first:
                    np.testing.assert_array_equal(first[key].z, second[key].z)

    def test_small_helpers(self) -> None:
        odd = np.array([[1], [1], [0], [1], [1], [1]], dtype=bool)
        assert lasting(odd, 2)[:, 0].tolist() == [False, True, False, False, True, True]
        assert held(odd[:4], 2)[:, 0].tolist() == [True, True, True, True]
        assert list(spans_of(odd)) == [(0, 0, 2), (0, 3, 6)]
        gaps = np.array([[np.nan, 1.0], [2.0, np.nan]], dtype=np.float32)
        np.testing.assert_array_equal(nearest_filled(gaps), np.array([[np.nan, 1], [2, 1]], dtype=np.float32))


class TestLstmVae:
    def test_is_left_out_by_name_without_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("benchmarks.detect.rivals.available", lambda: False)
        assert "LSTM" not in " ".join(r.name for r in all_rivals())
        assert not_run() == {"Minder, re-implemented (LSTM-VAE)": "not run: extra minder not installed"}

    def test_reconstructs_and_is_what_torch_computes(self) -> None:
        torch = pytest.importorskip("torch")
        rng = np.random.default_rng(2)
        flat = np.clip(rng.uniform(0, 1, (2, 512, 1)) + 0.02 * rng.standard_normal((2, 512, 8)), 0, 1)
        weights = rivals_torch.trained(flat.astype(np.float32), epochs=200)
        model = rivals_torch.LstmVae(weights[0])
        windows = flat[0].astype(np.float32)
        assert float(np.mean((model(windows) - windows) ** 2)) < 0.01
        encoder = torch.nn.LSTM(1, 4, batch_first=True)
        decoder = torch.nn.LSTM(8, 4, batch_first=True)
        # PyTorch's own order of gates is input, forget, new, output
        order = [*range(8), *range(12, 16), *range(8, 12)]
        w = {name: torch.from_numpy(value) for name, value in weights[0].items()}
        with torch.no_grad():
            for net, name in ((encoder, "encoder"), (decoder, "decoder")):
                net.weight_ih_l0.copy_(w[f"{name}_in"].T[order])
                net.weight_hh_l0.copy_(w[f"{name}_back"].T[order])
                net.bias_ih_l0.copy_(w[f"{name}_offset"][0][order])
                net.bias_hh_l0.zero_()
            _, (hidden, _) = encoder(torch.from_numpy(windows)[:, :, None])
            code = hidden[0] @ w["mean"] + w["mean_offset"]
            states, _ = decoder(code[:, None].repeat(1, 8, 1))
            expected = (states @ w["out"] + w["out_offset"])[:, :, 0].numpy()
        np.testing.assert_allclose(model(windows), expected, atol=1e-5)

    def test_a_model_does_not_depend_on_its_neighbours(self) -> None:
        pytest.importorskip("torch")
        rows = np.random.default_rng(3).uniform(0, 1, (3, 256, 8)).astype(np.float32)
        together = rivals_torch.trained(rows, epochs=2)
        alone = rivals_torch.trained(rows[1:2], epochs=2)
        for name, value in alone[0].items():
            np.testing.assert_allclose(value, together[1][name], atol=1e-5)


def test_a_recording_without_nodes_yields_no_flags() -> None:
    matrix = replace(
        one_metric(), pool=np.zeros(0, dtype=np.int64), layout=replace(one_metric().layout, blocks=())
    )
    for rival in all_rivals():
        assert rival.flags(matrix, rival.prepare(matrix), rival.grid[0]) == []

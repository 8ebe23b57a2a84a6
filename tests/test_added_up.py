"""Changes of habit that add up: the sum by itself, and a node that is named by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.core.added_up import AddedUp
from detector.core.incidents import Observation, step
from detector.core.parameters import LAYERS, Parameters
from detector.explain import explain
from tests.builders import Telemetry, gpu_gauge, suspects

DT, FULL = 30.0, 240.0


def steps_until_named(moved: float) -> int:
    sums = AddedUp()
    for n in range(1, 200):
        if sums.step(np.array([moved]), dt=DT, full_s=FULL)[0]:
            return n
    return 0


@pytest.mark.parametrize(("moved", "steps"), [(0.69, 0), (0.7, 0), (0.77, 15), (0.85, 7), (1.1, 3)])
def test_the_farther_a_habit_has_moved_the_sooner_it_names(moved: float, steps: int) -> None:
    assert steps_until_named(moved) == steps


def test_what_goes_away_names_nobody_and_what_is_unknown_changes_nothing() -> None:
    sums = AddedUp()
    for _ in range(20):
        assert sums.step(np.array([0.8, np.nan]), dt=DT, full_s=FULL).tolist() in ([True, False], [False] * 2)
    total = sums.total_s[0]
    assert not sums.step(np.array([np.nan, 0.8]), dt=DT, full_s=FULL)[0]
    assert sums.total_s[0] == total
    assert not sums.step(np.array([0.3, 0.8]), dt=DT, full_s=FULL)[0], "below the reference nobody is named"
    for _ in range(40):
        sums.step(np.array([0.0, 0.0]), dt=DT, full_s=FULL)
    assert sums.total_s.tolist() == [0.0, 0.0]


@given(st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1e9)), max_size=60))
def test_the_sum_stays_between_zero_and_twice_what_is_enough(history: list[float]) -> None:
    sums = AddedUp()
    for moved in history:
        sums.step(np.array([moved]), dt=DT, full_s=FULL)
        assert 0.0 <= sums.total_s[0] <= 2 * 0.125 * FULL


def test_a_repaired_node_and_new_nodes_begin_at_zero() -> None:
    sums = AddedUp()
    sums.step(np.array([1.0, 1.0]), dt=DT, full_s=FULL)
    sums.forget(0)
    sums.forget(7)
    sums.step(np.array([0.6, 0.6, 1.0]), dt=DT, full_s=FULL)
    assert sums.total_s == pytest.approx([0.0, 6.0, 9.0])


def test_a_decision_below_the_threshold_opens_an_incident_and_holds_it() -> None:
    seen = Observation(known=True, score=0.8, decided=True)
    incident, made = step("gpu001", None, seen, at=1000.0, dt=DT, clear_after_s=600.0)
    assert [t.after for t in made] == ["pending", "suspect"]
    for n in range(1, 100):
        incident, made = step("gpu001", incident, seen, at=1000.0 + n * DT, dt=DT, clear_after_s=600.0)
        assert made == []
    assert incident is not None
    assert incident.healthy_s == 0.0


def idle_memory(layers: tuple[str, ...]) -> Telemetry:
    """One node whose GPUs copy less than they used to, a weak signal by itself."""
    telemetry = Telemetry(12, parameters=Parameters(layers=layers))

    def change(tick: int, node: str, gpu: int) -> float | None:
        return 20.0 + 2.0 * float(telemetry.rng.normal()) if node == "gpu007" and tick > 60 else None

    telemetry.add(gpu_gauge(telemetry, "DCGM_FI_DEV_MEM_COPY_UTIL", 47.0, 2.0, change))
    telemetry.run(110)
    return telemetry


def test_a_small_change_of_habit_that_stays_is_named_and_explained() -> None:
    telemetry = idle_memory(LAYERS)
    outcome = telemetry.outcomes[-1]
    assert suspects(outcome) == ["gpu007"]
    assert 0.7 <= outcome.verdicts[0].score < 1.0
    found = explain(telemetry.pipeline, "gpu007")
    assert found is not None
    met = {check.name for check in found.checks if check.passed}
    assert "changes of habit over 0.7, added up" in met
    assert found.summary.startswith("named: DCGM_FI_DEV_MEM_COPY_UTIL")
    assert idle_memory(tuple(x for x in LAYERS if x != "adding up")).ever_suspect() == set()

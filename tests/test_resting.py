"""A GPU that has nothing to do runs at a low clock; one that is throttled does so while it works."""

import pytest

from detector.explain import explain
from tests.builders import Telemetry, gauge, gpu_gauge, suspects

BAD, GPU, ONSET = "gpu004", 2, 70
UTIL, CLOCK, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_POWER_USAGE"


def slow_gpu(activity: float | None, *, from_start: bool = False, tells_activity: bool = True) -> Telemetry:
    """Twelve nodes whose GPUs serve now more and now less; one GPU's clock and power fall, its activity too.

    Parameters
    ----------
    activity
        Percent that the GPU with the low clock is active, None for what the others are.
    """
    t = Telemetry(12)

    def changed(level: float):
        noise = 0.01 * level

        def change(tick: int, node: str, gpu: int) -> float | None:
            if (node, gpu) != (BAD, GPU) or (tick < ONSET and not from_start):
                return None
            return level + noise * float(t.rng.normal())

        return change

    def active(tick: int, node: str, gpu: int) -> float:
        if activity is not None and changed(0.0)(tick, node, gpu) is not None:
            return activity
        return float(t.rng.uniform(0, 100) if (tick // 6 + gpu) % 3 else t.rng.uniform(85, 100))

    t.add(gauge(t, "node_load1", 40.0, 1.0))
    if tells_activity:
        t.add(gpu_gauge(t, UTIL, 0.0, 0.0, active))
    t.add(gpu_gauge(t, CLOCK, 1950.0, 8.0, changed(345.0)))
    t.add(gpu_gauge(t, POWER, 500.0, 10.0, changed(140.0)))
    t.run(120)
    return t


@pytest.mark.parametrize("from_start", [False, True])
def test_a_gpu_without_work_is_not_named_for_its_clock(from_start: bool) -> None:
    assert slow_gpu(3.0, from_start=from_start).ever_suspect() == set()


@pytest.mark.parametrize("activity", [95.0, 60.0])
def test_one_that_works_at_a_low_clock_is(activity: float) -> None:
    t = slow_gpu(activity)
    assert suspects(t.outcomes[-1]) == [BAD]
    assert t.outcomes[-1].verdicts[0].part == "gpu 2"


def test_where_nothing_tells_the_activity_nothing_is_held_back() -> None:
    assert slow_gpu(None, tells_activity=False).ever_suspect() == {BAD}


def test_explain_says_that_it_was_held_back() -> None:
    t = slow_gpu(3.0)
    held = {
        (s.metric, s.part): s.score
        for s in explain(t.pipeline, BAD).signals
        if s.why.endswith("held back: its part has little to do")
    }
    assert held[CLOCK, "gpu 2"] == held[POWER, "gpu 2"] == 0.0

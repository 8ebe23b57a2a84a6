"""Strong evidence that comes back soon names a node; one episode, or one that all share, does not."""

import numpy as np
import pytest

from detector.core.parameters import LAYERS, Parameters
from detector.core.recurrence import LEAST_SAMPLES, STRONG, Recurrence
from tests.builders import Telemetry, gpu_gauge, tasks
from tests.test_pipeline import ONSET, POWER

FULL_S = 240.0
NODES = ("a", "b")
FRESH = np.zeros(2, dtype=bool)
ALONE = tuple(layer for layer in LAYERS if layer != "habit")
"""Without changes of habit, which see some of these faults too."""


def steps(recurrence: Recurrence, strong: dict[int, float], last: int, first: int = -150) -> list[int]:
    """Feed evaluations of 30 s with the given evidence of node a; return those at which it is named."""
    named = []
    for k in range(first, last + 1):
        peers = np.array([strong.get(k, 0.0), np.nan])
        if recurrence.step(peers, NODES, FRESH, at=30.0 * k, full_s=FULL_S)[0]:
            named.append(k)
    return named


@pytest.mark.parametrize(
    ("strong", "named"),
    [
        ({5: 2.0, 6: 2.0}, []),
        ({5: 2.0, 6: 2.0, 20: 2.0, 21: 2.0}, [20, 21]),
        ({5: 2.0, 20: 2.0}, []),  # too few samples in all
        ({5: 2.0, 20: 2.0, 21: 2.0}, [21]),
        ({5: 2.0, 7: 2.0, 9: 2.0}, []),  # one episode with gaps
        ({5: 2.0, 6: 2.0, 60: 2.0, 61: 2.0}, []),  # too far apart for two
        ({5: 2.0, 46: 2.0, 47: 2.0, 90: 2.0}, [90]),  # and near enough for three
        ({5: 1.4, 6: 1.4, 20: 1.4, 21: 1.4}, []),
    ],
)
def test_episodes_decide(strong: dict[int, float], named: list[int]) -> None:
    assert steps(Recurrence(), strong, 100) == named


@pytest.mark.parametrize("every", [12, 40, 80])
def test_who_is_odd_at_each_checkpoint_from_the_start_is_not_named(every: int) -> None:
    strong = {k + more: 3.0 for k in range(every // 2, 600, every) for more in (0, 1, 2)}
    assert steps(Recurrence(), strong, 600, first=0) == []


def test_a_node_that_joins_a_pool_is_watched_anew() -> None:
    recurrence = Recurrence()
    assert steps(recurrence, {5: 2.0, 6: 2.0}, 10) == []
    recurrence.step(np.zeros(2), NODES, np.array([True, False]), at=330.0, full_s=FULL_S)
    assert recurrence.episodes("a") == 0
    assert steps(recurrence, {20: 2.0, 21: 2.0, 30: 2.0, 31: 2.0}, 40, first=12) == []


def test_nodes_of_an_earlier_life_take_no_place() -> None:
    recurrence = Recurrence()
    recurrence.load({name: [[0.0, 0.0, 0.0]] for name in ("gone1", "gone2", "gone3")})
    assert steps(recurrence, {5: 2.0, 6: 2.0, 20: 2.0, 21: 2.0}, 30) == [20, 21]


def test_what_is_remembered_ends_and_survives() -> None:
    recurrence = Recurrence()
    steps(recurrence, {5: 2.0, 6: 2.0}, 10)
    again = Recurrence()
    again.load(recurrence.dump())
    assert again.episodes("a") == 1
    assert again.dump() == recurrence.dump()
    again.rename({"a": "c"})
    assert (again.episodes("a"), again.episodes("c")) == (0, 1)
    again.forget("c")
    assert again.episodes("c") == 0
    steps(recurrence, {}, 400, first=11)
    assert recurrence.episodes("a") == 0, "after a while an episode says nothing"


@pytest.mark.parametrize("plain", [None, 3, {"a": 1}, {"a": []}, {"a": [[1.0]]}, {"a": [1, 2, 3]}])
def test_a_state_of_another_form_is_left_out(plain: object) -> None:
    recurrence = Recurrence()
    recurrence.load(plain)
    assert recurrence.episodes("a") == 0


def test_no_node_fills_the_memory() -> None:
    recurrence = Recurrence()
    steps(recurrence, dict.fromkeys(range(0, 400, 6), 2.0), 400)
    assert recurrence.episodes("a") <= 4


def bursts(layers: tuple[str, ...], *, bad: int, every: int) -> Telemetry:
    """Return a cluster in which some nodes are far from their peers for one minute again and again."""
    t = Telemetry(24, 3, Parameters(layers=layers))
    onset = ONSET + 20
    odd = t.nodes[5 : 5 + bad]

    def is_on(k: int, n: str) -> bool:
        return n in odd and k >= onset and (k - onset) % every < 2

    t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 300 if is_on(k, n) else None))
    t.add(tasks(t, lambda k, n: 869 if is_on(k, n) else None))
    t.run(onset + 60)
    return t


def test_a_node_that_is_odd_at_each_checkpoint_is_named() -> None:
    assert bursts(ALONE, bad=1, every=14).ever_suspect() == {"gpu006"}
    without = tuple(layer for layer in ALONE if layer != "recurrence")
    assert bursts(without, bad=1, every=14).ever_suspect() == set()


def test_what_comes_back_to_many_nodes_names_none() -> None:
    assert bursts(LAYERS, bad=6, every=14).ever_suspect() == set()


def test_a_repair_and_a_restart_are_heeded() -> None:
    t = bursts(ALONE, bad=1, every=300)
    assert t.pipeline.recurrence.episodes("gpu006") == 1
    blob = t.pipeline.snapshot()
    again = Telemetry(24, 3)
    assert again.pipeline.restore(blob, []) == []
    assert again.pipeline.recurrence.episodes("gpu006") == 1
    again.pipeline.forget("gpu006", t.at(t.tick))
    assert again.pipeline.recurrence.episodes("gpu006") == 0


def test_the_constants_fit() -> None:
    assert STRONG > 1.0
    assert LEAST_SAMPLES > 1

"""Deviations with an everyday reason: an idle node that is used, a node that comes back to its peers."""

import pytest

from detector.explain import explain
from tests.builders import Telemetry, gauge, gpu_gauge, node_labels, suspects

ONSET = 70
UTIL, MEMORY, TEMP = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP"
HOST = "node_memory_AnonPages_bytes"


def with_idle(user: str, *, errors: bool = False) -> Telemetry:
    """Twelve nodes at work and six without; from `ONSET` on somebody uses memory of one node."""
    t = Telemetry(18)
    idle = set(t.nodes[12:])

    def level(busy: float, resting: float, used: float, noise: float):
        def change(tick: int, node: str, gpu: int = 0) -> float:
            value = resting if node in idle else busy
            if node == user and tick >= ONSET:
                value = used
            return value + noise * float(t.rng.normal())

        return change

    t.add(gpu_gauge(t, UTIL, 0, 0, lambda k, n, g: 0.0 if n in idle else 97.0 + float(t.rng.normal())))
    t.add(gpu_gauge(t, MEMORY, 0, 0, level(70_000.0, 4.0, 45_000.0, 0.5)))
    t.add(gpu_gauge(t, TEMP, 0, 0, level(62.0, 30.0, 48.0, 0.5)))
    t.add(gauge(t, HOST, 0, 0, level(9e10, 1e10, 6e10, 1e8)))
    if errors:
        total = {"n": 0.0}

        def drops(tick: int, node: str):
            total["n"] += 3.0 if node == user and tick >= ONSET else 0.0
            count = total["n"] if node == user else 0.0
            return [("node_edac_uncorrectable_errors_total", node_labels(node) | {"controller": "0"}, count)]

        t.add(drops)
    t.run(130)
    return t


def test_an_idle_node_that_somebody_uses_is_not_named() -> None:
    assert with_idle("gpu015").ever_suspect() == set()


def test_the_same_on_a_node_at_work_is_named() -> None:
    assert with_idle("gpu003").ever_suspect() == {"gpu003"}


def test_an_idle_node_is_named_for_its_errors() -> None:
    assert with_idle("gpu015", errors=True).ever_suspect() == {"gpu015"}


def test_explain_says_what_was_held_back_on_an_idle_node() -> None:
    held = {
        s.metric
        for s in explain(with_idle("gpu015").pipeline, "gpu015").signals
        if s.why.endswith("held back: its node is among idle ones, where use is no symptom")
    }
    assert {MEMORY, HOST} <= held


def moved(before: float, after: float) -> Telemetry:
    """Twelve nodes at 60 degrees but one, of which all GPUs move from one temperature to another."""
    t = Telemetry(12)

    def change(tick: int, node: str, gpu: int) -> float | None:
        if node != "gpu004":
            return None
        return (after if tick >= ONSET else before) + 0.4 * float(t.rng.normal())

    t.add(gauge(t, "node_load1", 40.0, 1.0)).add(gpu_gauge(t, TEMP, 60.0, 0.4, change))
    t.run(130)
    return t


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [(40.0, 55.0, False), (52.0, 72.0, True), (60.0, 75.0, True)],
    ids=["nearer to its peers", "past them", "away from them"],
)
def test_who_was_cooler_and_comes_nearer_is_not_named(before: float, after: float, named: bool) -> None:
    t = moved(before, after)
    assert bool(t.ever_suspect()) is named
    if named:
        assert suspects(t.outcomes[-1]) == ["gpu004"]


def one_exporter(lasts_s: float | None) -> Telemetry:
    """Twelve nodes of which nothing but the GPUs is told; one is silent from `ONSET` on.

    Parameters
    ----------
    lasts_s
        Seconds that scrapes of the silent node take, None where nothing tells of scrapes.
    """
    t = Telemetry(12)

    def silent(tick: int, node: str) -> bool:
        return node == "gpu004" and tick >= ONSET

    t.add(gpu_gauge(t, UTIL, 97.0, 1.0, lambda k, n, g: float("nan") if silent(k, n) else None))
    t.add(gpu_gauge(t, TEMP, 60.0, 0.4, lambda k, n, g: float("nan") if silent(k, n) else None))
    if lasts_s is not None:

        def scrapes(tick: int, node: str):
            gone = silent(tick, node)
            labels = {"instance": f"{node}:9400", "job": "dcgm"}
            return [
                ("up", labels, 0.0 if gone else 1.0),
                ("scrape_duration_seconds", labels, lasts_s if gone else 0.02),
            ]

        t.add(scrapes)
    t.run(100)
    return t


def test_a_node_whose_only_exporter_times_out_is_gone() -> None:
    t = one_exporter(10.0)
    assert t.ever_suspect() == {"gpu004"}
    told = t.outcomes[-1].verdicts[0].evidence[0].reason
    assert told == "the only exporter of the node, dcgm, is silent and its scrapes run into their timeout"


@pytest.mark.parametrize("lasts_s", [0.002, None], ids=["refused at once", "nothing tells"])
def test_one_whose_only_exporter_ended_is_a_matter_of_the_monitoring(lasts_s: float | None) -> None:
    t = one_exporter(lasts_s)
    assert t.ever_suspect() == set()
    assert "exporter_down" in t.kinds_of_quality()

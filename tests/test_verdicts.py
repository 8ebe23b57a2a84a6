"""Verdicts worth reading, through the whole pipeline: class, part, culprit, shared cause."""

from __future__ import annotations

import numpy as np
import pytest

from detector.core.guard import GUARD_HOLD_S, GUARD_WITHIN_S, Guard, blast_guard
from detector.core.judge import NodeScores
from detector.core.parameters import Parameters
from detector.outcome import Status, Verdict
from tests.builders import Telemetry, gauge, gpu_gauge, gpu_labels, node_labels, suspects

WARM = 30


def of(telemetry: Telemetry, node: str) -> Verdict:
    return next(v for v in telemetry.outcomes[-1].verdicts if v.node == node)


def gpus(telemetry: Telemetry, change=None) -> None:
    """Add four GPUs of each node; `change(metric, tick, node, gpu)` gives other values."""
    levels = {
        "DCGM_FI_DEV_GPU_TEMP": (60.0, 0.5),
        "DCGM_FI_DEV_SM_CLOCK": (1900.0, 5.0),
        "DCGM_FI_DEV_POWER_USAGE": (850.0, 5.0),
        "DCGM_FI_DEV_GPU_UTIL": (98.0, 0.5),
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (180_000.0, 1500.0),
    }
    for name, (level, noise) in levels.items():

        def changed(tick, node, gpu, name=name):
            return None if change is None else change(name, tick, node, gpu)

        telemetry.add(gpu_gauge(telemetry, name, level, noise, changed))


def test_a_hot_gpu_that_throttles_is_named_with_its_slot():
    def hot(name, tick, node, gpu):
        if node != "gpu004" or gpu != 2 or tick <= WARM:
            return None
        return {"DCGM_FI_DEV_GPU_TEMP": 88.0, "DCGM_FI_DEV_SM_CLOCK": 1200.0}.get(name)

    telemetry = Telemetry()
    gpus(telemetry, hot)
    telemetry.run(WARM + 20)
    verdict = of(telemetry, "gpu004")
    assert verdict.status is Status.SUSPECT
    assert verdict.part == "gpu 2"
    assert verdict.diagnosis is not None
    assert (verdict.diagnosis.fault_class, verdict.diagnosis.confidence) == ("thermal", "likely")
    assert verdict.diagnosis.part == "gpu 2"
    assert verdict.evidence[0].parts == ("gpu 2",)
    assert verdict.evidence[0].n_siblings == 4
    incident = next(i for i in telemetry.outcomes[-1].incidents if i.node == "gpu004")
    assert incident.diagnosis == verdict.diagnosis
    assert incident.part == "gpu 2"
    assert of(telemetry, "gpu001").diagnosis is None


def test_nvlink_of_all_gpus_of_a_node_points_to_its_fabric():
    def slow(name, tick, node, gpu):
        is_slow = node == "gpu004" and tick > WARM and "NVLINK" in name
        return 60_000.0 if is_slow else None

    telemetry = Telemetry()
    gpus(telemetry, slow)
    telemetry.run(WARM + 20)
    verdict = of(telemetry, "gpu004")
    assert verdict.diagnosis is not None
    assert (verdict.diagnosis.fault_class, verdict.part) == ("nvswitch", "4 GPUs")


def with_victim(telemetry: Telemetry, *, has_culprit: bool) -> None:
    """Let gpu002 tell an XID, the pool's load sink 3 minutes later, and gpu007's load vanish."""
    telemetry.add(
        lambda tick, node: [
            (
                "DCGM_FI_DEV_XID_ERRORS",
                gpu_labels(node, 1),
                79.0 if has_culprit and node == "gpu002" and tick > WARM else 0.0,
            )
        ]
    )

    def level(normal: float):
        def change(tick, node):
            if tick <= WARM + 6:
                return None
            return (0.1 if node == "gpu007" else 0.7 + 0.01 * (tick % 3)) * normal

        return change

    for name, normal in (
        ("node_load1", 400.0),
        ("node_load5", 400.0),
        ("node_memory_AnonPages_bytes", 4e11),
        ("node_memory_Committed_AS_bytes", 4e11),
    ):
        telemetry.add(gauge(telemetry, name, normal, 0.01 * normal, level(normal)))
    power = level(850.0)
    telemetry.add(
        gpu_gauge(telemetry, "DCGM_FI_DEV_POWER_USAGE", 850.0, 8.0, lambda tick, node, gpu: power(tick, node))
    )


@pytest.mark.parametrize("has_culprit", [True, False])
def test_who_only_went_where_the_pool_went_is_named_only_without_a_culprit(has_culprit):
    telemetry = Telemetry()
    with_victim(telemetry, has_culprit=has_culprit)
    telemetry.run(WARM + 6 + 12)
    named = telemetry.ever_suspect()
    assert ("gpu002" in named) == has_culprit
    assert ("gpu007" in named) == (not has_culprit)
    if has_culprit:
        victim = of(telemetry, "gpu007")
        assert victim.status is Status.PENDING
        assert victim.diagnosis is not None
        assert victim.diagnosis.role == "victim"
        assert "gpu002" in victim.diagnosis.role_reason
        culprit = of(telemetry, "gpu002").diagnosis
        assert culprit is not None
        assert (culprit.role, culprit.fault_class) == ("culprit", "gpu_lost")


def test_a_rack_is_named_as_what_the_nodes_of_a_group_event_share():
    telemetry = Telemetry(20)

    def load(tick, node):
        number = int(node[3:])
        rack = f"r{number // 8}"
        value = 30.0 + float(telemetry.rng.normal())
        if rack == "r1" and tick > WARM:
            value += 60.0
        return [("node_load1", {**node_labels(node), "rack": rack}, value)]

    telemetry.add(load)
    telemetry.run(WARM + 6)
    events = telemetry.outcomes[-1].group_events
    assert [event.cause for event in events] == ["all 8 nodes with rack r1; none of the others"]
    assert "nobody is to blame; shared: all 8 nodes with rack r1" in events[0].reason
    assert suspects(telemetry.outcomes[-1]) == []


def test_four_nodes_at_once_are_one_event_and_three_are_three_suspects():
    zero, pool = np.zeros(60), np.zeros(60, dtype=np.int32)
    scores = NodeScores(zero, zero, zero, zero, zero, zero)
    everybody, nobody, none = np.ones(60, dtype=bool), np.zeros(60, dtype=bool), np.full(60, -1)
    for n, guarded in ((3, False), (4, True)):
        decided = np.arange(60) < n
        assert bool(blast_guard(decided, everybody, none, scores, pool, Parameters())) is guarded
        assert not blast_guard(decided, nobody, none, scores, pool, Parameters()), (
            "known suspects stay suspects"
        )


def test_who_was_part_of_such_an_event_is_held_back_for_ten_minutes():
    zero, pool, names = np.zeros(60), np.zeros(60, dtype=np.int32), [f"n{k}" for k in range(60)]
    scores = NodeScores(zero, zero, zero, zero, zero, zero)
    guard = Guard()

    def held(n, at, scores=scores):
        decided = np.arange(60) < n
        return guard.step(decided, decided, scores, pool, names, Parameters(), at)[1].sum()

    assert held(4, 1000.0) == 4
    assert held(2, 1000.0 + GUARD_HOLD_S) == 2, "the rest of the event"
    assert held(2, 1001.0 + GUARD_HOLD_S) == 0
    assert held(4, 3000.0) == 4
    assert held(2, 3030.0, NodeScores(zero, zero, zero + 1.0, zero, zero, zero)) == 0, (
        "direct signals are named"
    )


def test_a_fourth_node_within_two_hours_is_held_back_with_those_to_come():
    zero, pool, names = np.zeros(60), np.zeros(60, dtype=np.int32), [f"n{k}" for k in range(60)]
    scores = NodeScores(zero, zero, zero, zero, zero, zero)
    guard = Guard()
    named: set[int] = set()

    def step(node, at):
        decided = np.isin(np.arange(60), [*named, node])
        fresh = np.arange(60) == node
        held = guard.step(decided, fresh, scores, pool, names, Parameters(), at)[1][node]
        if not held:
            named.add(node)
        return bool(held)

    assert [step(node, 1000.0 + 1750 * node) for node in range(5)] == [False, False, False, True, True]
    assert not step(5, 1000.0 + 1750 + GUARD_WITHIN_S + 1), "only two were named within two hours"


def ports(telemetry: Telemetry, silent, downs) -> None:
    """Add four InfiniBand ports of each node: traffic, and how often the link went down."""
    total: dict[tuple[str, int], float] = {}

    def source(tick, node):
        points = []
        for port in range(4):
            labels = {**node_labels(node), "device": f"mlx5_{port}", "port": "1"}
            rate = 0.0 if silent(tick, node, port) else 9e9 + 1e8 * telemetry.rng.normal()
            total[node, port] = total.get((node, port), 1e15) + 30.0 * rate
            for way in ("transmitted", "received"):
                name = f"node_infiniband_port_data_{way}_bytes_total"
                points.append((name, labels, total[node, port]))
            points.append(("node_infiniband_link_downed_total", labels, float(downs(tick, node, port))))
        return points

    telemetry.add(source)


@pytest.mark.parametrize(("goes_down", "is_silent"), [(True, True), (True, False), (False, True)])
def test_a_link_that_goes_down_while_its_port_and_the_gpus_stand_still_is_named_at_once(goes_down, is_silent):
    at = WARM + 10

    def mine(node, port):
        return (node, port) == ("gpu004", 2)

    def idle(name, tick, node, gpu):
        return 5.0 if is_silent and tick == at and node == "gpu004" and name.endswith("UTIL") else None

    telemetry = Telemetry()
    gpus(telemetry, idle)
    ports(
        telemetry,
        lambda tick, node, port: is_silent and mine(node, port) and tick == at,
        lambda tick, node, port: goes_down and mine(node, port) and tick >= at,
    )
    telemetry.run(at - 1)
    assert suspects(telemetry.outcomes[-1]) == []
    telemetry.run(1)
    assert suspects(telemetry.outcomes[-1]) == (["gpu004"] if goes_down and is_silent else [])
    if goes_down and is_silent:
        assert of(telemetry, "gpu004").part == "mlx5_2/1"

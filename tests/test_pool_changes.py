"""What befalls a whole pool: simulated jobs through the real pipeline, and one pool by hand."""

import json
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.detect.incidents import CaseSpec, recording_of
from benchmarks.detect.simulated import SimulatedSource
from detector.core.parameters import Parameters
from detector.core.pool_changes import Change, PoolChanges
from detector.core.pool_signs import SIGNS, TITLES, sign_of
from detector.pipeline import Pipeline
from detector.replay import Replayed, play
from grouping.catalog import load_catalog
from simulator.config import ClusterConfig
from simulator.faults import Fault, GroupEvent
from simulator.habits import Workload

CATALOG = load_catalog()
STEP, FULL = 30.0, 240.0
UTIL, POWER, NVLINK = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
SENT, WAIT = (
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_port_transmit_wait_total",
)
QUEUE = "node_mountstats_nfs_transport_backlog_queue_total"
CLUSTER = ClusterConfig(
    train_nodes=6,
    spares=0,
    cpus=2,
    n_veth=1,
    metrics=frozenset(
        {UTIL, POWER, NVLINK, SENT, WAIT, QUEUE, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "up"}
    ),
    checkpoint_s=(500.0, 900.0),
    missed_scrape=0.0,
    workload=Workload(eval_every_s=(600.0, 900.0), eval_s=(60.0, 360.0)),
)
ONSET = CLUSTER.start + 40 * 60


def simulated(*events: GroupEvent, faults: tuple[Fault, ...] = (), seed: int = 3) -> Replayed:
    case = CaseSpec("pool", "train", seed, CLUSTER, 58 * 60, faults, events)
    pipeline = Pipeline(CATALOG, Parameters(step_s=STEP))
    return play(recording_of(case), SimulatedSource(case.cluster()), pipeline)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("job_restart", "job_stopped"),
        ("job_slowdown", "job_slower"),
        ("nfs_cluster_slow", "storage_slow"),
        ("fabric_congestion", "fabric_congested"),
        ("hot_room", "hot_room"),
    ],
)
def test_what_befalls_everybody_is_told_by_its_kind_and_nobody_is_named(what: str, kind: str) -> None:
    found = simulated(GroupEvent(what, ONSET, ONSET + 900, 0.9))
    whole = [event for event in found.group_events if event.kind]
    assert [event.kind for event in whole] == [kind]
    assert ONSET - STEP <= whole[0].started_at <= ONSET + FULL
    assert whole[0].nodes == CLUSTER.pool
    assert whole[0].reason.startswith(TITLES[kind])
    assert whole[0].reason.endswith("no node is odd")
    assert found.flags == []


@pytest.mark.parametrize("seed", [1, 2])
def test_checkpoints_and_evaluations_are_no_events(seed: int) -> None:
    assert [event for event in simulated(seed=seed).group_events if event.kind] == []


def test_a_node_that_stalls_its_job_is_named_beside_the_event() -> None:
    fault = Fault("gpu_lost", "gpu003", ONSET, ONSET + 900, "gpu 1", 0.9)
    found = simulated(faults=(fault,))
    assert {flag.node for flag in found.flags} == {"gpu003"}
    whole = [event for event in found.group_events if event.kind]
    assert whole
    assert "odd beside it: gpu003" in whole[-1].reason


class Pool:
    """One pool of which the levels are given."""

    def __init__(self, metrics: Iterable[str] = (UTIL, POWER, NVLINK, SENT)) -> None:
        self.metrics = list(metrics)
        self.rng = np.random.default_rng(7)
        self.usual = {UTIL: 97.0, POWER: 800.0, NVLINK: 2e5, SENT: 6e9, WAIT: 3e7, QUEUE: 1.2}
        self.at = 1_767_225_600.0
        self.changes = PoolChanges()
        self.signals = [
            SimpleNamespace(spec=SimpleNamespace(name=name), per_node=False) for name in self.metrics
        ]
        n = len(self.metrics)
        self.layout = SimpleNamespace(row_signal=np.arange(n), row_pool=np.zeros(n, dtype=np.int64))

    def run(self, n: int, **factors: float) -> dict[str, Change]:
        found: dict[str, Change] = {}
        for _ in range(n):
            self.at += STEP
            noise = 1 + 0.002 * self.rng.normal(size=len(self.metrics))
            levels = [self.usual[name] * factors.get(name, 1.0) for name in self.metrics]
            found = self.changes.step(
                self.layout,  # type: ignore[arg-type]
                ["main"],
                self.signals,  # type: ignore[arg-type]
                np.array(levels) * noise,
                at=self.at,
                dt=STEP,
                full_s=FULL,
            )
        return found


SLOW = {POWER: 0.9, NVLINK: 0.8, SENT: 0.8}


def test_a_change_must_last_and_its_beginning_is_found() -> None:
    pool = Pool()
    assert pool.run(60) == {}
    began = pool.at + STEP
    assert pool.run(4, **SLOW) == {}
    change = pool.run(8, **SLOW)["main"]
    assert (change.kind, change.began) == ("job_slower", began)
    assert {move.metric for move in change.moves} == {POWER, NVLINK, SENT}
    assert pool.run(20) == {}


def test_a_phase_of_other_activity_is_no_event_until_it_lasts_longer_than_ever() -> None:
    pool = Pool()
    pool.run(80)
    assert pool.run(14, **SLOW, **{UTIL: 0.9}) == {}
    pool.run(40)
    assert pool.run(16, **SLOW, **{UTIL: 0.9}) == {}
    assert pool.run(30, **SLOW, **{UTIL: 0.9})["main"].kind == "job_slower"


def test_one_falling_signal_a_better_side_and_more_work_are_no_events() -> None:
    pool = Pool()
    pool.run(60)
    assert pool.run(20, **{POWER: 0.9}) == {}
    pool = Pool()
    pool.run(60)
    assert pool.run(20, **{POWER: 1.1, NVLINK: 1.2, SENT: 1.2}) == {}


def test_a_stalled_job_and_a_stopped_one_are_told_apart() -> None:
    pool = Pool()
    pool.run(60)
    assert pool.run(14, **{POWER: 0.5, NVLINK: 0.0, SENT: 1e-5})["main"].kind == "job_stalled"
    assert pool.run(14, **{UTIL: 0.0, POWER: 0.2, NVLINK: 0.0, SENT: 1e-5})["main"].kind == "job_stopped"
    # The next job is another one: that it sends less is no change.
    assert pool.run(60, **SLOW) == {}


def test_what_lasts_becomes_the_usual() -> None:
    pool = Pool()
    pool.run(60)
    assert pool.run(60, **SLOW)
    assert pool.run(130, **SLOW) == {}


def test_the_past_survives_a_restart() -> None:
    pool = Pool()
    pool.run(60)
    pool.run(6, **SLOW)
    state = json.loads(json.dumps(pool.changes.dump()))
    going_on = replace(pool.changes)
    pool.changes = PoolChanges()
    pool.changes.load(state)
    assert pool.changes.dump() == going_on.dump() == state
    assert pool.run(8, **SLOW)["main"].kind == "job_slower"


@pytest.mark.parametrize(
    "state",
    [None, 3, {}, {"metrics": 1, "pools": {}}, {"metrics": [UTIL], "pools": {"main": {"usual": "x"}}}],
)
def test_a_state_that_cannot_be_read_is_no_past(state: object) -> None:
    changes = PoolChanges()
    changes.load(state)
    assert changes.pools == {}


def test_every_sign_fits_a_metric_of_the_catalog() -> None:
    told = {sign.pattern for spec in CATALOG.specs if (sign := sign_of(spec.name))}
    assert told == {sign.pattern for sign in SIGNS}

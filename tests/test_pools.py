"""Who is a peer of whom now."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouping.node_patterns import NodePattern
from grouping.pools import DeclaredPool, PoolRules, PoolTracker

STEP = 30.0
NODES = [f"gpu{k:03d}" for k in range(1, 64)]
BUSY, IDLE = 95.0, 0.0


class Fleet:
    """A tracker with its nodes, loads and clock."""

    def __init__(self, rules=None, nodes=NODES, at=1_700_000_000.0):
        self.tracker = PoolTracker(rules or PoolRules())
        self.nodes = list(nodes)
        self.load = dict.fromkeys(nodes, BUSY)
        self.held = set()
        self.at = at
        self.pools = None

    def set(self, load, *nodes):
        for node in nodes:
            if node not in self.load:
                self.nodes.append(node)
            self.load[node] = load
        return self

    def run(self, seconds, **kwargs):
        """Step through a time and return what changed pools in it."""
        before = self.where() if self.pools is not None else {}
        for _ in range(max(1, round(seconds / STEP))):
            self.at += STEP
            self.tick(**kwargs)
        now = self.where()
        return {node: pool for node, pool in now.items() if before.get(node, pool) != pool}

    def tick(self, **kwargs):
        load = np.array([self.load[node] for node in self.nodes])
        hold = np.array([node in self.held for node in self.nodes])
        self.pools = self.tracker.step(self.nodes, load, self.at, hold=hold, **kwargs)

    def where(self):
        names = self.pools.names
        numbers = self.pools.pool_of.tolist()
        return {node: names[k] if k >= 0 else "" for node, k in zip(self.nodes, numbers, strict=False)}

    def members(self, pool):
        return [node for node, name in self.where().items() if name == pool]

    def in_grace(self):
        return [node for node, new in zip(self.nodes, self.pools.in_grace, strict=True) if new]


SPARES = NODES[60:]


def training():
    fleet = Fleet().set(IDLE, *SPARES)
    fleet.run(STEP)
    return fleet


def test_spares_are_told_from_busy_nodes_at_first_sight():
    fleet = training()
    assert fleet.members("idle") == SPARES
    assert len(fleet.members("main")) == 60
    assert fleet.in_grace() == []
    assert set(fleet.pools.reasons) == {""}
    assert fleet.run(14 * 24 * 3600 / 40) == {}


@pytest.mark.parametrize(
    "loads",
    [
        np.zeros(63),
        np.full(63, 99.0),
        np.linspace(0, 100, 63),
        np.linspace(0, 12, 63),
        np.full(63, np.nan),
        np.r_[np.full(30, 30.0), np.full(33, 90.0)],
    ],
    ids=["idle", "busy", "spread", "noise", "unknown", "two jobs"],
)
def test_what_has_no_idle_side_is_one_pool(loads):
    fleet = Fleet()
    for node, load in zip(NODES, loads.tolist(), strict=True):
        fleet.set(load, node)
    fleet.run(7200)
    assert fleet.pools.names == ("main",)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(30, 90))
def test_noise_moves_nobody(seed, level):
    rng = np.random.default_rng(seed)
    tracker = PoolTracker()
    for k in range(120):
        load = np.clip(rng.normal(level, 8, 20), 6, 100)
        pools = tracker.step(NODES[:20], load, 1000.0 + 30 * k)
        assert pools.pool_of.tolist() == [0] * 20
        assert not pools.in_grace.any()


def test_a_spare_joins_after_two_busy_evaluations_with_grace():
    fleet = training()
    fleet.set(BUSY, SPARES[0])
    assert fleet.run(STEP) == {}
    assert fleet.run(STEP) == {SPARES[0]: "main"}
    joined = fleet.at
    assert fleet.in_grace() == [SPARES[0]]
    assert fleet.pools.joined_at[60] == joined
    assert fleet.pools.reasons[60] == "joined its pool a moment ago"
    fleet.run(270)
    assert fleet.in_grace() == [SPARES[0]]
    fleet.run(STEP)
    assert fleet.in_grace() == []


def test_one_busy_evaluation_is_no_job():
    fleet = training()
    for _ in range(10):
        assert fleet.set(BUSY, SPARES[0]).run(STEP) == {}
        assert fleet.set(IDLE, SPARES[0]).run(STEP) == {}


def test_a_node_that_changed_places_with_a_spare_leaves_within_minutes():
    fleet = training()
    fleet.run(3600)
    fleet.set(BUSY, SPARES[0]).set(IDLE, NODES[5])
    moved = fleet.run(210)
    assert moved == {SPARES[0]: "main", NODES[5]: "idle"}


def test_one_spare_excuses_one_leaver_only():
    fleet = training()
    fleet.run(3600)
    fleet.set(BUSY, SPARES[0]).set(IDLE, *NODES[5:8])
    assert len([node for node in fleet.run(600) if node in NODES[:60]]) == 1


def test_a_spare_that_joined_long_ago_excuses_nobody():
    fleet = training()
    fleet.set(BUSY, SPARES[0]).run(3600)
    fleet.set(IDLE, NODES[5])
    assert fleet.run(1770) == {}


def test_a_node_lost_to_sight_at_a_restart_stays():
    fleet = training()
    fleet.run(3600)
    fleet.set(IDLE, *NODES).run(300)
    fleet.set(np.nan, NODES[5]).set(BUSY, *NODES[:5], *NODES[7:60])
    assert fleet.run(3600) == {NODES[6]: "idle"}


def test_a_suspect_replaced_by_a_spare_stays_until_it_is_cleared():
    fleet = training()
    fleet.run(3600)
    fleet.held = {NODES[5]}
    fleet.run(120)
    fleet.set(BUSY, SPARES[0]).set(IDLE, NODES[5])
    assert fleet.run(3600) == {SPARES[0]: "main"}
    fleet.held = set()
    assert fleet.run(60) == {NODES[5]: "idle"}


def test_a_busy_node_that_turns_idle_alone_stays_for_half_an_hour():
    fleet = training()
    fleet.set(IDLE, NODES[5])
    assert fleet.run(1770) == {}
    assert fleet.run(90) == {NODES[5]: "idle"}


def test_a_suspect_does_not_leave_by_its_own_idleness():
    fleet = training()
    fleet.set(IDLE, NODES[5])
    fleet.run(60)
    fleet.held = {NODES[5]}
    assert fleet.run(3 * 3600) == {}


def test_a_node_without_data_stays():
    fleet = training()
    fleet.set(np.nan, NODES[5], SPARES[1])
    assert fleet.run(3 * 3600) == {}


def test_idleness_is_counted_in_data_only():
    fleet = training()
    fleet.set(IDLE, NODES[5])
    fleet.run(900)
    fleet.at += 6 * 3600
    assert fleet.run(60) == {}
    fleet.set(np.nan, NODES[5])
    assert fleet.run(3600) == {}


def test_a_stopped_job_moves_nobody():
    fleet = training()
    fleet.set(IDLE, *NODES)
    assert fleet.run(24 * 3600 / 8) == {}
    fleet.set(BUSY, *NODES[:60])
    assert fleet.run(1800) == {}
    assert fleet.in_grace() == []


def test_a_restart_within_three_minutes_moves_nobody_for_long():
    fleet = training()
    fleet.run(3600)
    fleet.set(IDLE, *NODES[:60]).run(180)
    for start in range(0, 60, 12):
        fleet.set(BUSY, *NODES[start : start + 12])
        assert fleet.run(STEP) == {}
    assert fleet.run(1800) == {}


def test_a_restart_with_other_nodes():
    fleet = training()
    fleet.run(3600)
    fleet.set(IDLE, *NODES).run(180)
    fleet.set(BUSY, *NODES[3:])
    moved = fleet.run(210)
    assert moved == {**dict.fromkeys(NODES[:3], "idle"), **dict.fromkeys(SPARES, "main")}


def test_a_fault_that_stops_the_job_is_not_excused_by_the_restart():
    """The node was under suspicion before the others stopped."""
    fleet = training()
    fleet.run(3600)
    fleet.set(IDLE, NODES[5]).run(60)
    fleet.held = {NODES[5]}
    fleet.run(60)
    fleet.set(IDLE, *NODES).run(300)
    fleet.set(BUSY, *(node for node in NODES[:60] if node != NODES[5]))
    assert fleet.run(3600) == {}


def test_the_only_busy_node_of_a_stopped_job_keeps_its_peers():
    """It may be the one that all others wait for."""
    fleet = training()
    fleet.run(3600)
    fleet.set(IDLE, *NODES[1:])
    assert fleet.run(1500) == {}


def test_a_job_that_starts_after_the_first_sight_leaves_the_spares():
    fleet = Fleet().set(IDLE, *NODES)
    fleet.run(600)
    assert fleet.pools.names == ("main",)
    fleet.set(BUSY, *NODES[:60])
    fleet.run(60)
    fleet.held = set(SPARES)
    assert fleet.run(120) == dict.fromkeys(SPARES, "idle")


def test_a_small_job_on_an_idle_cluster_is_told_apart():
    fleet = Fleet().set(IDLE, *NODES)
    fleet.run(600)
    fleet.set(BUSY, *NODES[:8])
    fleet.run(240)
    assert fleet.members("main") == NODES[:8]


def test_a_load_that_comes_a_moment_later_is_still_the_first_sight():
    fleet = Fleet().set(np.nan, *NODES)
    fleet.run(STEP)
    fleet.set(BUSY, *NODES[:60]).set(IDLE, *SPARES[:2])
    assert fleet.run(STEP) == dict.fromkeys(SPARES[:2], "idle")
    assert fleet.in_grace() == []
    fleet.set(IDLE, SPARES[2])
    assert fleet.run(STEP) == {SPARES[2]: "idle"}


def test_a_new_node_has_grace_only_among_old_ones():
    fleet = training()
    fleet.set(BUSY, "gpu064").run(STEP)
    assert fleet.in_grace() == []
    fleet.run(600)
    fleet.set(BUSY, "gpu065").set(IDLE, "gpu066").run(STEP)
    assert fleet.in_grace() == ["gpu065", "gpu066"]
    assert fleet.where()["gpu065"] == "main"
    assert fleet.where()["gpu066"] == "idle"


def test_declared_pools_and_spares():
    rules = PoolRules(
        declared=(DeclaredPool("train", ("gpu[001-060]",)), DeclaredPool("rest", ("gpu06*",))),
        spares=("gpu063",),
        muted=("gpu007",),
    )
    fleet = Fleet(rules).set(IDLE, NODES[0])
    fleet.run(7200)
    where = fleet.where()
    assert where["gpu007"] == ""
    assert fleet.pools.reasons[6] == "in no pool"
    assert np.isnan(fleet.pools.joined_at[6])
    assert fleet.members("train") == [node for node in NODES[:60] if node != "gpu007"]
    assert fleet.members("rest") == NODES[60:]
    assert fleet.in_grace() == []


def test_spares_by_pattern_are_no_peers_even_when_busy():
    fleet = Fleet(PoolRules(spares=("gpu06[1-3]",)))
    fleet.run(STEP)
    assert fleet.members("spares") == SPARES


def test_a_mapping_goes_before_the_load_and_changes_with_grace():
    fleet = Fleet()
    jobs = dict.fromkeys(NODES[:30], "job-1") | dict.fromkeys(NODES[30:60], "job-2")
    fleet.set(IDLE, *SPARES)
    fleet.run(STEP, declared=jobs)
    assert len(fleet.members("job-1")) == len(fleet.members("job-2")) == 30
    assert len(fleet.members("main")) == 3
    fleet.run(600, declared=jobs)
    jobs[NODES[0]] = "job-2"
    assert fleet.run(STEP, declared=jobs) == {NODES[0]: "job-2"}
    assert fleet.in_grace() == [NODES[0]]
    del jobs[NODES[0]]
    assert fleet.run(STEP, declared=jobs) == {NODES[0]: "main"}


def test_muted_for_now():
    fleet = training()
    assert fleet.run(STEP, muted={NODES[4]}) == {NODES[4]: ""}
    assert fleet.run(STEP) == {NODES[4]: "main"}


def test_without_the_automatic_split():
    fleet = Fleet(PoolRules(auto=False)).set(IDLE, *SPARES)
    fleet.run(7200)
    assert fleet.pools.names == ("main",)


def test_nodes_that_never_had_a_load():
    with_login = Fleet().set(np.nan, "login1")
    with_login.run(600)
    assert with_login.where()["login1"] == "main"
    apart = Fleet(PoolRules(unknown_load="apart")).set(np.nan, "login1")
    apart.run(600)
    assert apart.where()["login1"] == "no load"
    apart.set(BUSY, "login1")
    assert apart.run(STEP) == {"login1": "main"}
    assert Fleet(PoolRules(unknown_load="apart"), nodes=NODES[:2]).set(np.nan, *NODES).run(600) == {}


def test_too_few_peers_are_told():
    fleet = Fleet().set(IDLE, *SPARES[:2])
    fleet.run(STEP)
    assert fleet.pools.reasons[60] == fleet.pools.reasons[61] == "fewer than 3 peers"
    assert fleet.pools.reasons[0] == ""


def test_numbers_of_pools_are_kept():
    fleet = training()
    before = fleet.pools.pool_of.copy()
    names = fleet.pools.names
    fleet.set(BUSY, *SPARES).run(60)
    assert fleet.pools.names == names
    fleet.set(IDLE, *SPARES).run(7200)
    assert fleet.pools.pool_of.tolist() == before.tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_restart_of_the_service_changes_nothing(seed, restart_at):
    """A dumped and loaded tracker goes on exactly as one that was never stopped."""
    rng = np.random.default_rng(seed)
    rules = PoolRules(leave_after_s=300, settle_s=60)
    one, other = PoolTracker(rules), PoolTracker(rules)
    load = rng.choice([0.0, 95.0, np.nan], 12)
    for k in range(80):
        change = rng.random(12) < 0.08
        load = np.where(change, rng.choice([0.0, 3.0, 15.0, 60.0, 99.0, np.nan], 12), load)
        hold = rng.random(12) < 0.05
        at = 1000.0 + 30 * k
        if k == restart_at:
            state = json.loads(json.dumps(other.dump(), allow_nan=False))
            other = PoolTracker(rules)
            other.load(state)
        a = one.step(NODES[:12], load, at, hold=hold)
        b = other.step(NODES[:12], load, at, hold=hold)
        assert a.names == b.names
        assert a.pool_of.tolist() == b.pool_of.tolist()
        assert a.in_grace.tolist() == b.in_grace.tolist()
        assert a.reasons == b.reasons
        np.testing.assert_array_equal(a.joined_at, b.joined_at)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_the_order_of_the_nodes_changes_no_pool(seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(12)
    one, other = Fleet(nodes=NODES[:12]), Fleet(nodes=[NODES[k] for k in order])
    for _ in range(60):
        for node in NODES[:12]:
            if rng.random() < 0.1:
                load = float(rng.choice([0.0, 95.0]))
                one.set(load, node)
                other.set(load, node)
        one.run(STEP)
        other.run(STEP)
        assert one.where() == {node: other.where()[node] for node in NODES[:12]}


@pytest.mark.parametrize(
    "state", [{}, {"members": 3}, {"members": {"a": None, "b": {"pool": 7}}, "names": "x"}]
)
def test_a_broken_state_is_a_fresh_start(state):
    tracker = PoolTracker()
    tracker.load(state)
    pools = tracker.step(NODES, np.r_[np.full(60, BUSY), np.zeros(3)], 1000.0)
    assert np.bincount(pools.pool_of).tolist() == [60, 3]


def test_no_nodes():
    pools = PoolTracker().step([], np.zeros(0), 1000.0)
    assert pools.pool_of.shape == pools.in_grace.shape == (0,)


def test_wrong_shapes_and_rules_are_told():
    with pytest.raises(ValueError, match="2 nodes"):
        PoolTracker().step(NODES[:2], np.zeros(3), 1000.0)
    with pytest.raises(ValueError, match="idle_below"):
        PoolRules(idle_below=50, busy_from=20)
    with pytest.raises(ValueError, match="unknown_load"):
        PoolRules(unknown_load="x")
    with pytest.raises(ValueError, match="regular expression"):
        PoolRules(spares=("~(",))
    with pytest.raises(ValueError, match="join_grace_s"):
        PoolRules(join_grace_s=-1)
    with pytest.raises(ValueError, match="name"):
        PoolRules(declared=(DeclaredPool("", ("a",)),))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("gpu001", ["gpu001", "GPU001", "a/gpu001"], ["gpu0011", "xgpu001"]),
        ("gpu*", ["gpu1", "gpu.x"], ["cpu1"]),
        ("gpu[001-060]", ["gpu001", "gpu060"], ["gpu000", "gpu061", "gpu1", "gpu0001"]),
        ("gpu[1-12]", ["gpu1", "gpu12", "gpu012"], ["gpu0", "gpu13"]),
        ("r[1-2]n[01-04,07]", ["r1n01", "r2n07"], ["r3n01", "r1n05", "r1n1"]),
        ("gpu[12]", ["gpu1", "gpu2"], ["gpu12", "gpu3"]),
        ("gpu[!0]", ["gpu1"], ["gpu0"]),
        ("a/gpu*", ["a/gpu1"], ["gpu1", "b/gpu1"]),
        (r"~ gpu\d+|login\d", ["gpu77", "login1", "b/gpu7"], ["gpu", "login12"]),
        ("rack[1-3]-*-[001-002]", ["rack2-x-001"], ["rack2-x-003", "rack4-x-001"]),
    ],
)
def test_node_patterns(pattern, yes, no):
    compiled = NodePattern(pattern)
    assert [name for name in yes if not compiled.matches(name)] == []
    assert [name for name in no if compiled.matches(name)] == []


@pytest.mark.parametrize("pattern", ["", "  ", "x" * 501, "gpu[9-1]", "~ ("])
def test_wrong_node_patterns_are_told(pattern):
    with pytest.raises(ValueError, match="node pattern"):
        NodePattern(pattern)

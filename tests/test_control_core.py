"""What mutes of metrics and repairs do to the detection itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detector.control.model import Mute
from detector.outcome import Layer, Outcome, Status
from detector.pipeline import Pipeline
from tests.builders import CATALOG, TASKS, Telemetry, gpu_gauge, gpu_labels, suspects, tasks

POWER, XID = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"
BAD, ONSET = "gpu004", 50


def mute(metric: str, start: float, until: float, node: str = "", pool: str = "") -> Mute:
    return Mute(
        id="m", node=node, pool=pool, metric=metric, start=start, until=until,
        reason="", by="", made_at=start,
    )  # fmt: skip


def muted_by(cluster: Telemetry, *mutes: Mute) -> Telemetry:
    cluster.pipeline.mutes = lambda at: [m for m in mutes if m.is_active(at)]
    return cluster


def busy(until: int = 10_000, cluster: Telemetry | None = None) -> Telemetry:
    """One node with far more tasks than its peers from `ONSET` to `until`."""
    t = cluster or Telemetry()
    t.add(gpu_gauge(t, POWER, 800, 8))
    return t.add(tasks(t, lambda k, n: 869 if n == BAD and ONSET <= k < until else None))


def xid(cluster: Telemetry, at_tick: int) -> Telemetry:
    return cluster.add(
        gpu_gauge(cluster, XID, 0, 0, lambda k, n, g: 149.0 if (n, g) == (BAD, 1) and k >= at_tick else 0.0)
    )


def metrics_against(outcome: Outcome, node: str = BAD) -> set[str]:
    return {item.metric for v in outcome.verdicts if v.node == node for item in v.evidence}


@pytest.mark.parametrize(("node", "pool"), [("", ""), (BAD, ""), ("", "main"), (BAD, "main")])
def test_a_muted_metric_is_no_evidence(node: str, pool: str) -> None:
    t = busy()
    muted_by(t, mute(TASKS, t.at(ONSET), t.at(ONSET + 40), node, pool))
    last = t.run(ONSET + 39)
    names = {v.pool for v in last.verdicts}
    assert names == {"main"}
    assert t.ever_suspect() == set()
    assert TASKS not in metrics_against(last)
    assert suspects(t.run(20)) == [BAD], "it counts again once the mute is over"


def test_a_node_that_is_muted_apart_is_nobodys_peer_until_the_mute_ends() -> None:
    t = busy(until=ONSET + 30)
    apart = replace(mute("", t.at(20), t.at(ONSET + 40), BAD), apart=True)
    muted_by(t, apart)
    before = t.run(19)
    assert {v.pool for v in before.verdicts} == {"main"}
    during = t.run(ONSET + 10 - 19)
    (away,) = (v for v in during.verdicts if v.node == BAD)
    assert (away.pool, away.status) == ("", Status.UNDETERMINED)
    peers = {
        group.n_members for group in t.pipeline.groups() if group.pool == "main" and group.unit == "node"
    }
    assert peers == {len(t.nodes) - 1}
    after = t.run(60)
    assert {v.pool for v in after.verdicts} == {"main"}
    assert {v.status for v in after.verdicts} == {Status.CLEAR}
    assert t.ever_suspect() == set()


def test_a_direct_signal_counts_against_a_node_that_is_apart() -> None:
    t = xid(Telemetry(), ONSET)
    t.add(gpu_gauge(t, POWER, 800, 8))
    muted_by(t, replace(mute("", 0, 1e12, BAD), apart=True))
    assert suspects(t.run(ONSET + 5)) == [BAD]


@pytest.mark.parametrize(("node", "pool"), [("gpu005", ""), ("", "other"), ("gpu005", "main")])
def test_a_mute_of_others_changes_nothing(node: str, pool: str) -> None:
    t = busy()
    muted_by(t, mute(TASKS, 0, 1e12, node, pool))
    assert suspects(t.run(ONSET + 15)) == [BAD]


def test_a_direct_signal_of_a_muted_metric_is_not_held_for_later() -> None:
    t = Telemetry()
    t.add(gpu_gauge(t, POWER, 800, 8))
    xid(t, ONSET)
    muted_by(t, mute(XID, 0, t.at(ONSET + 5)))
    t.run(ONSET + 40)
    assert t.ever_suspect() == set()
    loud = Telemetry()
    loud.add(gpu_gauge(loud, POWER, 800, 8))
    xid(loud, ONSET).run(ONSET + 2)
    assert loud.ever_suspect() == {BAD}, "without the mute it names the node"


def test_a_vanished_part_of_a_muted_metric_is_not_missed() -> None:
    def gone(muted: bool) -> set[str]:
        t = Telemetry()
        lost = float("nan")
        t.add(
            gpu_gauge(t, POWER, 800, 8, lambda k, n, g: lost if (n, g) == (BAD, 1) and k >= ONSET else None)
        )
        if muted:
            muted_by(t, mute(POWER, 0, 1e12))
        t.run(ONSET + 30)
        return t.ever_suspect()

    assert gone(False) == {BAD}
    assert gone(True) == set()


def test_a_repaired_node_with_its_fault_gone_stays_clear() -> None:
    t = busy(until=ONSET + 20)
    assert suspects(t.run(ONSET + 19)) == [BAD]
    t.pipeline.open.pop(BAD)
    t.pipeline.forget(BAD, t.at(t.tick))
    last = t.run(40)
    assert t.pipeline.open == {}
    assert suspects(last) == []


def test_a_repaired_node_with_its_fault_still_there_is_named_again() -> None:
    t = busy()
    assert suspects(t.run(ONSET + 19)) == [BAD]
    first = t.pipeline.open.pop(BAD)
    t.pipeline.forget(BAD, t.at(t.tick))
    assert suspects(t.run(2)) == [], "what it had lasted does not count any more"
    assert suspects(t.run(12)) == [BAD]
    assert t.pipeline.open[BAD].id != first.id


def test_a_held_code_does_not_outlive_a_repair() -> None:
    t = Telemetry()
    t.add(gpu_gauge(t, POWER, 800, 8))
    xid(t, ONSET)
    assert suspects(t.run(ONSET + 3)) == [BAD]
    assert any(e.layer is Layer.DIRECT for v in t.outcomes[-1].verdicts for e in v.evidence)
    t.pipeline.open.pop(BAD)
    t.pipeline.forget(BAD, t.at(t.tick))
    assert suspects(t.run(10)) == [], "the code that stands in the metric is no news"


def test_a_repair_survives_a_learnt_state_from_before_it() -> None:
    t = Telemetry()
    t.add(gpu_gauge(t, POWER, 800, 8))
    xid(t, ONSET)
    t.run(ONSET + 3)
    blob = t.pipeline.snapshot()
    for repeated, expected in ((False, [BAD]), (True, [])):
        again = Pipeline(CATALOG)
        assert again.restore(blob, []) == []
        if repeated:
            again.forget(BAD, t.at(t.tick))
        other = Telemetry()
        other.pipeline, other.tick = again, t.tick
        other.add(gpu_gauge(other, POWER, 800, 8))
        assert suspects(xid(other, ONSET).run(3)) == expected


def test_a_repair_of_a_node_that_is_not_known_changes_nothing() -> None:
    t = busy()
    t.pipeline.forget("nobody", 0.0)
    assert suspects(t.run(ONSET + 19)) == [BAD]
    assert gpu_labels(BAD, 0)["Hostname"] == BAD


def test_samples_from_before_a_repair_that_are_read_again_do_not_count() -> None:
    """A service that starts again soon after a repair fills its window with what the fault left in it."""
    t = busy(until=ONSET + 20)
    assert suspects(t.run(ONSET + 20)) == [BAD]
    blob, repaired_at = t.pipeline.snapshot(), t.at(t.tick)
    for is_told, expected in ((False, [BAD]), (True, [])):
        again = busy(until=ONSET + 20)
        again.pipeline = Pipeline(CATALOG)
        assert again.pipeline.restore(blob, []) == []
        if is_told:
            again.pipeline.forget(BAD, repaired_at)
        again.run(ONSET + 20, judge=False)
        assert suspects(again.run(2)) == expected

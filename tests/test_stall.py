"""A whole job that waits, and the one node of which a GPU reported a code just before."""

import numpy as np
import pytest

from detector.core.group_events import GroupEvents
from detector.core.parameters import Parameters
from detector.pipeline import Pipeline
from tests.builders import CATALOG, Point, Telemetry, gpu_gauge, node_labels, suspects

UTIL, POWER, NVLINK = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
XID, PORT = "DCGM_FI_DEV_XID_ERRORS", "node_infiniband_state_id"
STALL = 70


def job(
    codes: dict[str, tuple[int, int]],
    *,
    stalls: bool = True,
    lost: str = "",
    util: tuple[float, float] = (99.0, 99.0),
    n_after: int = 14,
    port_down: str = "",
    again: dict[str, tuple[int, int]] | None = None,
    remounted: str = "",
) -> Telemetry:
    """Twelve nodes of one job; `codes`: tick and code of a node's GPU 2; `util`: before and after."""
    telemetry = Telemetry(12)

    def waits(tick: int) -> bool:
        return stalls and tick >= STALL

    def power(tick: int, node: str, gpu: int) -> float | None:
        return 400.0 + 2.0 * float(telemetry.rng.normal()) if waits(tick) else None

    def nvlink(tick: int, node: str, gpu: int) -> float | None:
        return 100.0 + float(telemetry.rng.normal()) if waits(tick) else None

    def xid(tick: int, node: str, gpu: int) -> float:
        if node == lost and tick >= STALL and gpu == 1:
            return 79.0
        since, code = codes.get(node, (10**9, 0))
        if again and node in again and tick >= again[node][0]:
            code = again[node][1]
        return float(code) if gpu == 2 and tick >= since else 0.0

    def busy(tick: int, node: str, gpu: int) -> float:
        return util[waits(tick)] + 0.4 * float(telemetry.rng.normal())

    def port(tick: int, node: str) -> list[Point]:
        state = 1.0 if node == port_down and tick >= STALL else 4.0
        return [(PORT, {**node_labels(node), "device": "mlx5_0", "port": "1"}, state)]

    telemetry.add(gpu_gauge(telemetry, UTIL, 99.0, 0.4, busy))

    def readonly(tick: int, node: str) -> list[Point]:
        labels = {**node_labels(node), "mountpoint": "/", "device": "/dev/md0", "fstype": "ext4"}
        return [("node_filesystem_readonly", labels, float(node == remounted and tick >= STALL - 1))]

    telemetry.add(port).add(readonly)
    telemetry.add(gpu_gauge(telemetry, POWER, 860.0, 8.0, power))
    telemetry.add(gpu_gauge(telemetry, NVLINK, 2e5, 2e3, nvlink))
    telemetry.add(gpu_gauge(telemetry, XID, 0.0, 0.0, xid))
    telemetry.run(STALL + n_after)
    return telemetry


def test_a_programs_error_names_its_node_when_the_whole_job_waits_since_then() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)})
    outcome = telemetry.outcomes[-1]
    assert suspects(outcome) == ["gpu005"]
    verdict = outcome.verdicts[0]
    assert verdict.part == "gpu 2"
    assert verdict.evidence[0].reason == (
        "XID 31 appeared (warning); the whole job waits since about then, "
        "and no other node reported a code then"
    )
    assert any(event.kind == "job_stalled" for event in outcome.group_events)


@pytest.mark.parametrize(
    "codes",
    [
        {},
        {"gpu005": (STALL - 2, 31), "gpu006": (STALL - 1, 13)},
        {"gpu005": (STALL - 30, 31)},
        {"gpu005": (STALL + 5, 31)},
    ],
    ids=["no code", "codes of two nodes", "long before", "after it"],
)
def test_nobody_is_named_for_a_stall_that_the_codes_do_not_explain(codes: dict[str, tuple[int, int]]) -> None:
    telemetry = job(codes)
    assert telemetry.ever_suspect() == set()
    assert any(event.kind == "job_stalled" for event in telemetry.outcomes[-1].group_events)


def test_a_programs_error_names_nobody_while_the_job_goes_on() -> None:
    assert job({"gpu005": (STALL - 2, 31)}, stalls=False).ever_suspect() == set()


def test_a_stall_that_a_suspect_explains_blames_no_other_node() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)}, lost="gpu009")
    assert telemetry.ever_suspect() == {"gpu009"}
    assert np.isnan(telemetry.pipeline.events.stalled_since(["main"])).all()


def test_a_restart_while_the_job_waits_changes_nothing() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)})
    before = telemetry.pipeline
    after = Pipeline(CATALOG, Parameters())
    assert after.restore(before.snapshot(), list(before.open.values())) == []
    telemetry.pipeline = after
    telemetry.run(30)
    assert suspects(telemetry.outcomes[-1]) == ["gpu005"]
    assert [t.after for o in telemetry.outcomes for t in o.transitions if t.node == "gpu005"].count(
        "suspect"
    ) == 1


def test_a_reload_while_the_job_waits_changes_nothing() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)})
    n_before = len(telemetry.outcomes)
    after = Pipeline(CATALOG, Parameters(z_threshold=5.5))
    after.take_up(telemetry.pipeline)
    telemetry.pipeline, telemetry.tick = after, telemetry.tick - 60
    telemetry.run(60, judge=False)
    telemetry.run(30)
    assert suspects(telemetry.outcomes[-1]) == ["gpu005"]
    assert not [t for o in telemetry.outcomes[n_before:] for t in o.transitions]


def test_samples_that_are_read_again_after_a_restart_change_nothing() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)}, n_after=24)
    before = telemetry.pipeline
    after = Pipeline(CATALOG, Parameters())
    assert after.restore(before.snapshot(), list(before.open.values())) == []
    telemetry.pipeline, telemetry.tick = after, STALL - 40
    telemetry.run(64, judge=False)
    telemetry.run(30)
    assert suspects(telemetry.outcomes[-1]) == ["gpu005"]
    assert {t.after for o in telemetry.outcomes for t in o.transitions} == {"pending", "suspect"}


@pytest.mark.parametrize("n_missing", [4, 10])
def test_a_gap_in_the_data_ends_no_stall(n_missing: int) -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)})
    n_before = len(telemetry.outcomes)
    telemetry.run(n_missing, skip=lambda k: True)
    telemetry.run(30)
    after = telemetry.outcomes[n_before:]
    assert suspects(after[-1]) == ["gpu005"]
    assert not [t for o in after for t in o.transitions]
    assert not [e for o in after for e in o.group_events if e.ended_at is not None]


def test_a_pool_that_is_not_heard_of_again_has_no_event_left() -> None:
    telemetry = job({})
    telemetry.run(70, skip=lambda k: True)
    assert not telemetry.outcomes[-1].group_events


def test_a_job_that_spins_at_a_higher_utilisation_is_stalled_as_well() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)}, util=(92.0, 99.5))
    assert suspects(telemetry.outcomes[-1]) == ["gpu005"]
    stalled = next(e for o in telemetry.outcomes for e in o.group_events if e.kind == "job_stalled")
    assert telemetry.at(STALL) - 30 <= stalled.started_at <= telemetry.at(STALL) + 60


def test_a_higher_utilisation_alone_is_no_event() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)}, stalls=False, util=(92.0, 99.5))
    assert telemetry.ever_suspect() == set()
    assert not telemetry.group_events()


def test_a_job_that_stops_names_nobody_and_tells_the_code() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31), "gpu006": (STALL - 60, 13)}, util=(99.0, 0.0))
    assert telemetry.ever_suspect() == set()
    event = telemetry.outcomes[-1].group_events[0]
    assert event.kind == "job_stopped"
    assert "99 to" in event.reason
    assert event.reason.endswith("; about then GPUs reported code 31 on gpu005 gpu 2; no node is odd")


def test_a_file_system_is_no_code_of_a_program() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)}, remounted="gpu007")
    assert "gpu005" in suspects(telemetry.outcomes[-1])
    telemetry = job({}, remounted="gpu007")
    assert "waits" not in "".join(e.reason for v in telemetry.outcomes[-1].verdicts for e in v.evidence)


def test_the_newest_of_several_codes_is_looked_at_as_well() -> None:
    telemetry = job({"gpu005": (STALL - 25, 31)}, again={"gpu005": (STALL - 1, 13)})
    assert suspects(telemetry.outcomes[-1]) == ["gpu005"]
    both = {"gpu005": (STALL - 2, 31), "gpu006": (STALL - 25, 31)}
    telemetry = job(both, again={"gpu006": (STALL - 1, 13)})
    assert "waits" not in "".join(e.reason for v in telemetry.outcomes[-1].verdicts for e in v.evidence)


def test_a_port_that_is_down_is_not_blamed_for_a_job_that_goes_on() -> None:
    telemetry = job({}, stalls=False, port_down="gpu005")
    verdict = telemetry.outcomes[-1].verdicts[0]
    assert (verdict.node, suspects(telemetry.outcomes[-1])) == ("gpu005", ["gpu005"])
    assert verdict.evidence[0].metric == PORT
    assert "waits" not in "".join(item.reason for item in verdict.evidence)


@pytest.mark.parametrize("plain", [None, [], {"unexplained": 7}, {"unexplained": [3]}])
def test_a_state_that_cannot_be_read_is_left_out(plain: object) -> None:
    events = GroupEvents()
    events.load(plain)
    assert events.unexplained <= {"3"}
    assert np.isnan(events.stalled_since(["main"])).all()

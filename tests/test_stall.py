"""A whole job that waits, and the one node of which a GPU reported a code just before."""

import numpy as np
import pytest

from detector.core.group_events import GroupEvents
from detector.core.parameters import Parameters
from detector.pipeline import Pipeline
from tests.builders import CATALOG, Telemetry, gpu_gauge, suspects

UTIL, POWER, NVLINK = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
XID = "DCGM_FI_DEV_XID_ERRORS"
STALL = 70


def job(codes: dict[str, tuple[int, int]], *, stalls: bool = True, lost: str = "") -> Telemetry:
    """Twelve nodes of one job; `codes` gives the tick and the code of GPU 2 of a node."""
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
        return float(code) if gpu == 2 and tick >= since else 0.0

    telemetry.add(gpu_gauge(telemetry, UTIL, 99.0, 0.4))
    telemetry.add(gpu_gauge(telemetry, POWER, 860.0, 8.0, power))
    telemetry.add(gpu_gauge(telemetry, NVLINK, 2e5, 2e3, nvlink))
    telemetry.add(gpu_gauge(telemetry, XID, 0.0, 0.0, xid))
    telemetry.run(STALL + 14)
    return telemetry


def test_a_programs_error_names_its_node_when_the_whole_job_waits_since_then() -> None:
    telemetry = job({"gpu005": (STALL - 2, 31)})
    outcome = telemetry.outcomes[-1]
    assert suspects(outcome) == ["gpu005"]
    verdict = outcome.verdicts[0]
    assert verdict.part == "gpu 2"
    assert verdict.evidence[0].reason == (
        "XID 31 appeared (warning); the whole job waits since about then, "
        "and no GPU of another node reported a code"
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


@pytest.mark.parametrize("plain", [None, [], {"unexplained": 7}, {"unexplained": [3]}])
def test_a_state_that_cannot_be_read_is_left_out(plain: object) -> None:
    events = GroupEvents()
    events.load(plain)
    assert events.unexplained <= {"3"}
    assert np.isnan(events.stalled_since(["main"])).all()

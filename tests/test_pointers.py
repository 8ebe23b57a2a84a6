"""A node-wide deviation that points to a part which does not deviate enough by itself."""

import pytest

from tests.builders import Telemetry, gauge, node_labels, suspects

STALLED, BUSY = "node_pressure_io_stalled_seconds_total", "node_disk_io_time_seconds_total"
ONSET = 70


def machines(busier: dict[str, float]) -> Telemetry:
    """Twelve nodes with three disks; gpu004 waits for storage from `ONSET` on, with busier disks."""
    telemetry = Telemetry(12)
    totals: dict[tuple[str, str], float] = {}

    def pressure(tick: int, node: str) -> float:
        rate = 0.3 if node == "gpu004" and tick > ONSET else 0.001
        totals[node, ""] = totals.get((node, ""), 100.0) + 30.0 * rate * (1 + 0.1 * telemetry.rng.random())
        return totals[node, ""]

    def disks(tick: int, node: str) -> list[tuple[str, dict[str, str], float]]:
        points = []
        for disk in ("nvme0n1", "nvme1n1", "nvme2n1"):
            more = busier.get(disk, 0.0) if node == "gpu004" and tick > ONSET else 0.0
            rate = 0.002 + more + 0.0002 * telemetry.rng.random()
            totals[node, disk] = totals.get((node, disk), 50.0) + 30.0 * rate
            points.append((BUSY, {**node_labels(node), "device": disk}, totals[node, disk]))
        return points

    telemetry.add(gauge(telemetry, STALLED, 0.0, 0.0, pressure))
    telemetry.add(disks)
    telemetry.run(ONSET + 14)
    return telemetry


def test_the_one_disk_that_is_busier_is_told_as_the_part() -> None:
    outcome = machines({"nvme1n1": 0.02}).outcomes[-1]
    assert suspects(outcome) == ["gpu004"]
    verdict = outcome.verdicts[0]
    assert verdict.part == "nvme1n1"
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.fault_class == "disk"
    assert verdict.evidence[0].metric == STALLED, "what names the node stays on top"
    pointed = next(item for item in verdict.evidence if item.metric == BUSY)
    assert pointed.reason.endswith("; the node's other disks have not")
    assert pointed.score == 0.1


@pytest.mark.parametrize(
    "busier",
    [{}, {"nvme0n1": 0.02, "nvme1n1": 0.02}, {"nvme1n1": -0.0015}],
    ids=["none", "two", "one is idle"],
)
def test_no_part_is_told_when_none_stands_out(busier: dict[str, float]) -> None:
    outcome = machines(busier).outcomes[-1]
    assert suspects(outcome) == ["gpu004"]
    assert outcome.verdicts[0].part == ""
    assert all(item.metric != BUSY for item in outcome.verdicts[0].evidence)

"""A node that works more than its peers, and what follows from it."""

import pytest

from detector.explain import explain
from tests.builders import Point, Telemetry, gauge, gpu_gauge, node_labels, suspects

BAD = "gpu004"
ONSET = 70
WRITES, BYTES, BUSY = (
    "node_disk_writes_completed_total",
    "node_disk_written_bytes_total",
    "node_disk_io_time_seconds_total",
)
SENT, RETRANS, FORKS = "node_network_transmit_bytes_total", "node_netstat_Tcp_RetransSegs", "node_forks_total"
IO_WAIT = "node_pressure_io_waiting_seconds_total"
OPENS, ASKED, ANSWERED, WAITED = (
    "node_mountstats_nfs_event_vfs_open_total",
    "node_mountstats_nfs_operations_requests_total",
    "node_mountstats_nfs_total_read_bytes_total",
    "node_mountstats_nfs_operations_request_time_seconds_total",
)
USUAL = {WRITES: 20.0, BYTES: 5e5, BUSY: 0.02, SENT: 2e6, RETRANS: 0.1, FORKS: 3.0, IO_WAIT: 0.002}
USUAL |= {OPENS: 5.0, ASKED: 40.0, ANSWERED: 1e6, WAITED: 0.05}
DISK, MOUNT = {"device": "nvme0n1"}, {"export": "10.0.0.1:/data", "mountaddr": "10.0.0.1", "protocol": "tcp"}
PART = {WRITES: DISK, BYTES: DISK, BUSY: DISK, SENT: {"device": "net0"}}
PART |= {
    OPENS: MOUNT,
    ANSWERED: MOUNT,
    ASKED: MOUNT | {"operation": "READ"},
    WAITED: MOUNT | {"operation": "READ"},
}


def cluster(rates: dict[str, float], *, hot: bool = False, n_ticks: int = 120) -> Telemetry:
    """Twelve nodes; from `ONSET` on one has other rates, and with `hot` a GPU at a lower clock."""
    t = Telemetry(12)
    totals: dict[tuple[str, str], float] = {}

    def counters(tick: int, node: str) -> list[Point]:
        points = []
        for name, usual in USUAL.items():
            rate = rates.get(name, usual) if node == BAD and tick >= ONSET else usual
            noise = 1.0 + 0.05 * float(t.rng.normal())
            totals[name, node] = totals.get((name, node), 0.0) + 30.0 * rate * noise
            labels = node_labels(node) | PART.get(name, {})
            points.append((name, labels, totals[name, node]))
        return points

    def clock(tick: int, node: str, gpu: int) -> float | None:
        return 1400.0 if hot and node == BAD and gpu == 2 and tick >= ONSET else None

    t.add(counters).add(gauge(t, "node_load1", 40.0, 1.0)).add(
        gpu_gauge(t, "DCGM_FI_DEV_SM_CLOCK", 1950.0, 8.0, clock)
    )
    t.run(n_ticks)
    return t


READS = {OPENS: 300.0, ASKED: 4000.0, ANSWERED: 6e8}
WORK = {WRITES: 1200.0, BYTES: 4e8, SENT: 3e8, FORKS: 60.0}


@pytest.mark.parametrize(
    "rates",
    [
        WORK,
        WORK | {BUSY: 0.6, IO_WAIT: 0.1, RETRANS: 12.0},
        {WRITES: 1200.0},
        {SENT: 3e8, RETRANS: 12.0},
        READS,
        READS | {WAITED: 6.0},
        WORK | READS | {WAITED: 6.0},
    ],
    ids=[
        "traffic",
        "traffic and what follows from it",
        "writes",
        "a copy over the network",
        "reads over NFS",
        "reads over NFS that take time",
        "a backup of a mount",
    ],
)
def test_a_node_that_works_more_is_not_named_for_it(rates: dict[str, float]) -> None:
    assert cluster(rates).ever_suspect() == set()


@pytest.mark.parametrize(
    "rates",
    [{BUSY: 0.6, IO_WAIT: 0.3}, {RETRANS: 20.0}, {WAITED: 12.0}, WORK | {WAITED: 12.0}],
    ids=["a slow disk", "lost segments", "slow answers", "slow answers beside work on the own disk"],
)
def test_the_same_without_more_work_names_it(rates: dict[str, float]) -> None:
    assert cluster(rates).ever_suspect() == {BAD}


def test_a_fault_of_something_else_is_seen_beside_the_work() -> None:
    t = cluster(WORK, hot=True)
    assert suspects(t.outcomes[-1]) == [BAD]
    assert t.outcomes[-1].verdicts[0].part == "gpu 2"


def test_explain_says_what_was_held_back() -> None:
    t = cluster(WORK)
    found = explain(t.pipeline, BAD)
    held = {s.metric: s for s in found.signals if "held back: its node works more than its peers" in s.why}
    assert set(held) & set(WORK)
    assert all(signal.score <= 0.5 for signal in held.values())
    assert found.instant < 1.0

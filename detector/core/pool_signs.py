"""What signals of a whole pool mean, and which of them together make an event of a known kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache

from detector.core.figure import figure, first_of

ACTIVITY, POWER, NVLINK, TRAFFIC = "activity", "power", "NVLink traffic", "fabric traffic"
FABRIC_WAIT, STORAGE_WAIT, STORAGE_WORK, HEAT = "fabric wait", "storage wait", "storage work", "heat"

STOPPED, STALLED, STORAGE, FABRIC, HOT, SLOWER = (
    "job_stopped",
    "job_stalled",
    "storage_slow",
    "fabric_congested",
    "hot_room",
    "job_slower",
)

TITLES: Mapping[str, str] = {
    STOPPED: "the job stopped",
    STALLED: "the whole job waits: its GPUs are busy and nothing moves",
    STORAGE: "shared storage is slow for all",
    FABRIC: "the fabric is congested for all",
    HOT: "it is hot for all",
    SLOWER: "the whole job is slower",
}
"""Kinds of events of a whole pool, in words."""

FOR_ALL = frozenset({STORAGE, FABRIC, HOT})
"""Events that no single machine of the pool causes."""

NOTHING_MOVES = frozenset({STOPPED, STALLED})
"""Events at whose beginning a code of a GPU is worth telling."""

SLOWER_MEANINGS = 2
"""So many of power, NVLink traffic and fabric traffic must fall together for a slower job."""

SHOWN_MOVES, SHOWN_ODD = 4, 3
"""Signals, one of each meaning, and odd nodes named in a sentence at most."""

STALLED_SHARE = 0.2
"""Traffic below this share of the usual one has ceased."""

AGREEING = 2
"""Metrics that must tell of heat, or of slow storage when the job is not slower."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What one metric of a whole pool says.

    Parameters
    ----------
    pattern
        Glob of metric names.
    meaning
        What it measures.
    side
        1 when more is worse, -1 when less is, 0 when neither.
    least
        Smallest change that counts: a share of the usual level, or units when `in_units`.
    in_units
        True where a share means nothing (degrees, percent).
    """

    pattern: str
    meaning: str
    side: int
    least: float
    in_units: bool = False


SIGNS = (
    Sign("*GPU_UTIL", ACTIVITY, -1, 2.5, in_units=True),
    Sign("*gpu_utilization", ACTIVITY, -1, 2.5, in_units=True),
    Sign("*POWER_USAGE", POWER, -1, 0.03),
    Sign("*gpu_power_consumption_watts", POWER, -1, 0.03),
    Sign("*NVLINK_BANDWIDTH_TOTAL", NVLINK, -1, 0.06),
    Sign("node_infiniband_port_data_*_bytes_total", TRAFFIC, -1, 0.06),
    Sign("node_infiniband_port_packets_*_total", TRAFFIC, -1, 0.06),
    Sign("node_infiniband_port_transmit_wait_total", FABRIC_WAIT, 1, 0.5),
    Sign("node_mountstats_nfs_operations_*_time_seconds_total", STORAGE_WAIT, 1, 0.25),
    Sign("node_mountstats_nfs_transport_*_queue_total", STORAGE_WAIT, 1, 0.25),
    Sign("node_mountstats_nfs_operations_major_timeouts_total", STORAGE_WAIT, 1, 0.25),
    Sign("node_nfs_rpc_retransmissions_total", STORAGE_WAIT, 1, 0.25),
    Sign("node_mountstats_nfs_operations_requests_total", STORAGE_WORK, 0, 0.25),
    Sign("node_mountstats_nfs_transport_sends_total", STORAGE_WORK, 0, 0.25),
    Sign("node_nfs_rpcs_total", STORAGE_WORK, 0, 0.25),
    Sign("*GPU_TEMP", HEAT, 1, 2.0, in_units=True),
    Sign("*MEMORY_TEMP", HEAT, 1, 2.0, in_units=True),
    Sign("*gpu_temperature_celsius", HEAT, 1, 2.0, in_units=True),
    Sign("*cpu_temperature_celsius", HEAT, 1, 2.0, in_units=True),
    Sign("node_hwmon_temp_celsius", HEAT, 1, 2.0, in_units=True),
)
"""The first sign whose pattern fits a metric holds; metrics without one say nothing of a whole pool."""


@dataclass(frozen=True, slots=True)
class Move:
    """One metric of a pool that has left its usual level.

    Parameters
    ----------
    metric, meaning
        See `Sign`.
    before, now
        Usual and present level over the pool's rows.
    strength
        Change by the change that counts, >= 1.
    """

    metric: str
    meaning: str
    before: float
    now: float
    strength: float

    @property
    def text(self) -> str:
        """The change in words."""
        is_share = self.before > 0 and self.meaning not in (HEAT, ACTIVITY)
        share = f" ({100 * (self.now / self.before - 1):+.0f} %)" if is_share else ""
        return f"{self.metric} {figure(self.before, 3)} to {figure(self.now, 3)}{share}"


@cache
def sign_of(metric: str) -> Sign | None:
    """Return what a metric says of a whole pool, None for nothing."""
    return next((sign for sign in SIGNS if fnmatchcase(metric, sign.pattern)), None)


def kind_of(moves: Sequence[Move], raised: frozenset[str]) -> str:
    """Say what the moves of a working pool amount to; empty when they are no event.

    Parameters
    ----------
    moves
        Metrics beyond their usual levels on the worse side.
    raised
        Meanings of which a metric has risen though that is not its worse side.
    """
    found: dict[str, list[Move]] = {}
    for move in moves:
        found.setdefault(move.meaning, []).append(move)
    is_slower = len(found.keys() & {POWER, NVLINK, TRAFFIC}) >= SLOWER_MEANINGS
    traffic = [*found.get(NVLINK, []), *found.get(TRAFFIC, [])]
    if is_slower and traffic and all(move.now < STALLED_SHARE * move.before for move in traffic):
        return STALLED
    waits = found.get(STORAGE_WAIT, [])
    if waits and (is_slower or len(waits) >= AGREEING) and STORAGE_WORK not in raised:
        return STORAGE
    if FABRIC_WAIT in found and not raised & {TRAFFIC}:
        return FABRIC
    if len(found.get(HEAT, [])) >= AGREEING and POWER not in raised:
        return HOT
    return SLOWER if is_slower else ""


def reason_of(kind: str, began: float, moves: Sequence[Move], odd: Sequence[str], codes: str = "") -> str:
    """Say in one sentence what befalls a pool, by which signals, and who is odd beside it.

    Parameters
    ----------
    kind
        See `TITLES`.
    began
        Epoch seconds.
    moves
        Strongest first.
    odd
        Nodes of the pool that are suspects.
    codes
        Codes that GPUs reported about when it began, in words.
    """
    since = f"{datetime.fromtimestamp(began, UTC):%H:%M} UTC"
    shown: dict[str, Move] = {}
    for move in moves:
        shown.setdefault(move.meaning, move)
    signals = ", ".join(move.text for move in list(shown.values())[:SHOWN_MOVES])
    signals += f"; about then GPUs reported {codes}" if codes else ""
    if not odd:
        return f"{TITLES[kind]} since {since}: {signals}; no node is odd"
    return f"{TITLES[kind]} since {since}: {signals}; odd beside it: {first_of(odd, SHOWN_ODD)}"

"""What a calibration says; the content of its file."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 1
"""Format of calibration files that this code reads and writes."""

MONTH_S = 30 * 86400.0
"""A month, in seconds, wherever rates are per month."""


@dataclass(frozen=True, slots=True)
class SignalEntry:
    """What was learnt of one signal.

    Parameters
    ----------
    metric, role, per_node
        See `detector.core.thresholds.SignalKey`.
    armed
        False when the shipped threshold is kept for want of data.
    threshold
        Robust z-score at which it deviates.
    interval
        Bounds of that by resampling; equal where the threshold is counted or shipped.
    node_days
        Node-time watched.
    n_peaks
        Episodes of at least half the shipped threshold.
    tail
        Where the tail comes from: ``own``, ``target``, ``all``, or empty.
    shape, scale
        Of that tail, on the scale where 1 is the shipped threshold; 0 without one.
    reason
        Why the threshold is what it is.
    """

    metric: str
    role: str
    per_node: bool
    armed: bool
    threshold: float
    interval: tuple[float, float]
    node_days: float
    n_peaks: int
    tail: str
    shape: float
    scale: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """What was learnt of the fused evidence of nodes; fields as in `SignalEntry`."""

    armed: bool
    threshold: float
    interval: tuple[float, float]
    n_peaks: int
    shape: float
    scale: float
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A node's time that was not learnt from, in one stretch of history."""

    history: str
    node: str
    start: float
    end: float
    reason: str


@dataclass(frozen=True, slots=True)
class History:
    """What was learnt from.

    Parameters
    ----------
    names
        Recordings, or the database.
    start, end
        Epoch seconds of the first and last evaluation.
    n_nodes
        Size of the cluster that the budget is meant for.
    node_days, cluster_months
        Healthy node-time that was judged, and the same in months of that cluster.
    left_out
        Node-time that was not learnt from.
    n_suspects
        Nodes named in the rest with the signals' new thresholds, before that of the node.
    """

    names: tuple[str, ...]
    start: float
    end: float
    n_nodes: int
    node_days: float
    cluster_months: float
    left_out: tuple[LeftOut, ...]
    n_suspects: int


@dataclass(frozen=True, slots=True)
class Rate:
    """False alarms per month of peer evidence, with Poisson bounds (90 %) of what was counted."""

    per_month: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration file.

    Parameters
    ----------
    format
        Format of the file.
    catalog_sha256
        Catalog for which it was made.
    budget_per_month
        False alarms per cluster and month that it was made for.
    z_threshold, continuity_s
        Settings in effect.
    floor
        Share of `z_threshold` below which no threshold was set; 1 never lowers one.
    history, expected, node, signals
        See there.
    """

    format: int
    catalog_sha256: str
    budget_per_month: float
    z_threshold: float
    continuity_s: float
    floor: float
    history: History
    expected: Rate
    node: NodeEntry
    signals: tuple[SignalEntry, ...]

"""The words of the domain: metric, comparison unit, signal, member.

A *signal* is a metric plus its role labels; a *member* is a node or a node's
part. A *cell* is one signal of one member: the smallest thing that is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How a metric's samples behave, whatever type its exporter declares."""

    GAUGE = "gauge"
    COUNTER = "counter"
    ERROR_COUNTER = "error_counter"
    STATE = "state"


class Direction(StrEnum):
    """Which side of the peers' median is a deviation for the worse."""

    BOTH = "both"
    ABOVE = "above"
    BELOW = "below"


class Severity(StrEnum):
    """How much a direct signal says by itself.

    ``critical`` decides alone and at once, ``error`` decides alone when it lasts or
    repeats, ``warning`` only supports other evidence, ``info`` is shown and never counted.
    """

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """What a direct signal (error counter or state) means.

    Parameters
    ----------
    on
        ``rise``: any increase of an error counter counts. ``rate``: an increase is normal,
        only a rate unlike the peers' counts. ``value``: a state has a fault value now.
        ``change``: a state changed to a fault value (sticky codes such as XIDs).
    healthy
        State values that are no fault; empty means "every value not in `severities`".
    severities
        Severity per state value, e.g. ``{79: critical}``; error counters use `severity`.
    severity
        Severity of a rise, or of a state value that `severities` does not list.
    saturates_at
        Value at which the hardware counter stops counting (0: never).
    """

    on: str
    severity: Severity
    healthy: tuple[float, ...] = ()
    severities: Mapping[float, Severity] = field(default_factory=dict)
    saturates_at: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric of the catalog.

    Parameters
    ----------
    name
        Stored ``__name__``.
    exporter
        ``dcgm``, ``node_exporter``, ``all_smi``, ``backend_ai`` or, for ``up`` and ``scrape_*``, ``scrape``.
    target
        Monitored target: ``GPU``, ``NFS``, ``Network`` ...
    unit
        Comparison unit: ``node``, ``gpu``, ``ib_device``, ``nfs_export`` ...
    kind
        See `Kind`.
    measure
        Unit of measure of a sample: ``bytes``, ``celsius``, ``count`` ...
    part
        Labels that name the part of the node; ``a|b`` takes the first label present.
    role
        Labels that split a group (each value is a signal of its own); may overlap with `part`.
    sum_over
        Labels whose series together make one member; reduced by `reduce`.
    ignore
        Labels that are known and never part of a key.
    reduce
        ``last`` (newest wins), ``sum`` or ``max`` over `sum_over`.
    compare
        Subset of ``all`` (with every member), ``slot`` (same part of other nodes) and
        ``node`` (the node's mean over its parts with other nodes' means).
    direction
        Side that is a deviation for the worse.
    floor_abs, floor_rel
        Scale floor of the robust z-score: ``max(floor_abs, floor_rel * |median|)`` in the
        metric's own unit (per second for counters). At least one is positive.
    floor_lasting
        Share of that floor which holds for what lasts for minutes. The plainer a value follows from the work
        that all peers do alike, the smaller; larger where one node may differ for minutes for no fault.
    twin
        Metric of another exporter that measures the same thing.
    counter_bits
        64, or 32 for counters that wrap at 2**32 (before `wrap_scale`).
    wrap_scale
        Value of one count in the metric's unit (0.001 for millisecond counters in seconds).
    fault
        Direct meaning, for error counters and states; None for the rest.
    activity
        True when the value tells a busy node from an idle one (GPU utilisation).
    trend
        Side to which growth over hours and days is for the worse; None when it is not followed.
    divides
        True when parts that differ in this metric on all nodes are no peers of each other (link rate).
    aliases
        Other stored names of the same metric (renames between exporter versions).
    zero_is_missing
        True when 0 means "the reading failed" (0 degrees, 0 watts).
    valid_min, valid_max
        Samples outside are dropped and counted.
    weight
        Share of a full vote that a deviation from the peers has, 0 to 1; 0 is shown and never
        counted. What `fault` says does not depend on it.
    """

    name: str
    exporter: str
    target: str
    unit: str
    kind: Kind
    measure: str
    part: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    sum_over: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    reduce: str = "last"
    compare: tuple[str, ...] = ("all",)
    direction: Direction = Direction.BOTH
    floor_abs: float = 0.0
    floor_rel: float = 0.05
    floor_lasting: float = 0.3
    twin: str | None = None
    counter_bits: int = 64
    wrap_scale: float = 1.0
    fault: FaultRule | None = None
    activity: bool = False
    divides: bool = False
    trend: Direction | None = None
    aliases: tuple[str, ...] = ()
    zero_is_missing: bool = False
    valid_min: float = float("-inf")
    valid_max: float = float("inf")
    weight: float = 1.0


class Placement(NamedTuple):
    """Where one series belongs; a tuple, as thousands are made at a time.

    Parameters
    ----------
    node
        Node name.
    part
        Name of the node's part (``gpu 3``, ``mlx5_0/1``), empty for the node itself.
    role
        Role label values joined in the catalog's order, empty when the metric has no role.
    component
        Values of the `sum_over` labels: series of one cell that differ here are reduced
        together, series that do not are duplicates and the newest wins.
    role_labels
        Role and part labels as found, for evidence.
    """

    node: str
    part: str
    role: str
    component: str
    role_labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a series is not compared: a short reason that is counted and shown."""

    reason: str

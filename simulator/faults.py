"""Faults of one node and events that are nobody's fault, each as a small change of the hidden state.

A kind is a function that is called at every tick from the onset on and changes `Mods`; it keeps
no state of its own, so a fault is a pure function of time. Add a kind with `effect`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.mods import Mods
from simulator.topology import DISKS, EXPORTERS, EXPORTS, N_IB


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with one node.

    Parameters
    ----------
    kind
        Name of the effect, see `KINDS`.
    node
        Node name.
    onset, end
        Epoch seconds.
    part
        ``gpu 3``, ``mlx5_5/1``, ``nvme1n1``, an export or an exporter; empty for the node.
    severity
        0 (hardly visible) to 1 (drastic).
    options
        Numbers or codes that a kind reads, for instance ``{"codes": (145, 149)}``.
    """

    kind: str
    node: str
    onset: float
    end: float
    part: str = ""
    severity: float = 1.0
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of fault {self.kind!r}; known: {', '.join(sorted(KINDS))}")
        if self.end < self.onset:
            raise ValueError(f"fault {self.kind} of {self.node} ends before its onset")
        if not 0 <= self.severity <= 1:
            raise ValueError(f"severity of {self.kind} must be from 0 to 1, not {self.severity}")
        if self.kind in OF_EXPORTERS and self.part not in EXPORTERS:
            raise ValueError(f"part of {self.kind} must be an exporter, not {self.part!r}")
        if self.kind == "one_metric" and not isinstance(self.options.get("metric"), str):
            raise ValueError("one_metric needs the option metric, the name of a metric")

    @property
    def is_node_fault(self) -> bool:
        """False when only the monitoring of the node is broken, or people took it out of work."""
        return self.kind not in NO_NODE_FAULTS

    @property
    def codes(self) -> tuple[tuple[int, float], ...]:
        """XID codes of a GPU fault with the seconds after the onset at which they appear."""
        default = XID_CODES.get(self.kind, ())
        given = self.options.get("codes", default)
        assert isinstance(given, tuple)
        return tuple((int(code), 60.0 * i) for i, code in enumerate(given))

    def number(self, key: str, default: float) -> float:
        """Return an option as a number."""
        value = self.options.get(key, default)
        assert isinstance(value, int | float)
        return float(value)


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Something that happens to many nodes at once and is nobody's fault.

    Parameters
    ----------
    kind
        Name of the event, see `EVENTS`.
    onset, end
        Epoch seconds.
    severity
        0 to 1.
    nodes
        Whom it concerns; empty for all. Events of a job concern the jobs of these nodes.
    """

    kind: str
    onset: float
    end: float
    severity: float = 1.0
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in EVENTS:
            raise ValueError(f"unknown kind of event {self.kind!r}; known: {', '.join(sorted(EVENTS))}")


XID_CODES: Mapping[str, tuple[int, ...]] = {
    "nvlink_xid": (145, 149),
    "ecc_xid": (94,),
    "gpu_lost": (79,),
    "gsp_timeout": (119,),
    "gpu_exec_error": (31,),
}

NO_NODE_FAULTS = frozenset({"exporter_down", "exporter_restart", "target_renamed", "maintenance"})
"""Kinds that are nobody's fault: an alarm about them is false or does not count."""

OF_EXPORTERS = frozenset({"exporter_restart", "target_renamed"})
"""Kinds whose part is an exporter."""

STALLING = frozenset(
    {"nvlink_xid", "gpu_lost", "gsp_timeout", "cuda_error", "gpu_exec_error", "machine_down"}
)
"""Kinds that stop the collective calls of the whole job, ``stalls_after_s`` after the onset."""


Effect = Callable[[Mods, Fault, int, int, float, bool], None]
"""(mods, fault, node index, part index, seconds since the onset, still going on)."""

EventEffect = Callable[[Mods, GroupEvent, NDArray[np.int64]], None]
"""(mods, event, indexes of the nodes that it concerns)."""

KINDS: dict[str, Effect] = {}
EVENTS: dict[str, EventEffect] = {}
LASTING: set[str] = set()
"""Kinds that leave something behind when they are over."""


def effect(kind: str, *, is_lasting: bool = False) -> Callable[[Effect], Effect]:
    """Register a kind of fault; a lasting one is also applied after its end."""

    def register(function: Effect) -> Effect:
        KINDS[kind] = function
        if is_lasting:
            LASTING.add(kind)
        return function

    return register


def event(kind: str) -> Callable[[EventEffect], EventEffect]:
    """Register a kind of group event."""

    def register(function: EventEffect) -> EventEffect:
        EVENTS[kind] = function
        return function

    return register


def part_index(part: str) -> int:
    """Return the position of a part among its like, 0 for the node itself.

    Raises
    ------
    ValueError
        When the part has an unknown form.
    """
    if not part:
        return 0
    for names in (EXPORTS, DISKS, EXPORTERS):
        if part in names:
            return names.index(part)
    found = re.fullmatch(r"(?:gpu |mlx5_|ib)(\d)(?:/1)?", part)
    if found is None:
        raise ValueError(f"unknown part {part!r}: use 'gpu 3', 'mlx5_5/1', a disk, an export or an exporter")
    return int(found[1])


def _ramp(age: float, seconds: float) -> float:
    return min(1.0, max(0.0, age / seconds))


def _xid(mods: Mods, fault: Fault, n: int, g: int, age: float) -> None:
    for code, after in fault.codes:
        if age >= after:
            mods.xid[n, g] = code


def _agent_hangs(mods: Mods, n: int, age: float, peak: float) -> None:
    """Let tasks of the scheduler's agent pile up: its calls to the driver no longer return."""
    mods.task_excess[n] = peak * _ramp(age, 480.0) ** 1.3
    mods.sick[n] = max(mods.sick[n], _ramp(age, 60.0))


@effect("nvlink_xid", is_lasting=True)
def _nvlink_xid(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    _xid(mods, fault, n, g, age)
    if not active:
        return
    mods.hung[n] = True
    mods.gpu_idle[n] = age >= 30.0
    mods.gpu_idle[n, g] = True
    mods.gpu_nvlink[n] = 0.05
    _agent_hangs(mods, n, age, fault.number("tasks", 300 + 522 * fault.severity))
    mods.stall(n, age >= fault.number("stalls_after_s", 90.0))


@effect("ecc_xid", is_lasting=True)
def _ecc_xid(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    _xid(mods, fault, n, g, age)
    mods.remap_uncorrected[n, g] += 1 + np.floor(3 * fault.severity)
    mods.gpu_idle[n, g] |= age < 60.0
    if active:
        mods.sick[n] = max(mods.sick[n], 0.4)
        if "stalls_after_s" in fault.options:
            mods.stall(n, age >= fault.number("stalls_after_s", 0.0))
        else:
            # The error is contained: the job dies, is started again and uses the GPU.
            mods.restart(n, 30.0 <= age < 240.0)


@effect("gpu_lost", is_lasting=True)
def _gpu_lost(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    _xid(mods, fault, n, g, age)
    if active:
        mods.gpu_gone[n, g] = age >= 30.0
        mods.hung[n] = True
        mods.gpu_idle[n] = True
        _agent_hangs(mods, n, age, 60 * fault.severity)
        mods.stall(n, age >= fault.number("stalls_after_s", 60.0))


@effect("gsp_timeout", is_lasting=True)
def _gsp_timeout(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    _xid(mods, fault, n, g, age)
    if active:
        mods.dcgm_blank[n] = True
        mods.smi_zero[n, g] = True
        mods.hung[n] = True
        mods.gpu_idle[n] = True
        _agent_hangs(mods, n, age, 120 * fault.severity)
        mods.stall(n, age >= fault.number("stalls_after_s", 60.0))


@effect("pcie_downgrade")
def _pcie_downgrade(mods: Mods, fault: Fault, n: int, _part: int, _age: float, active: bool) -> None:
    if active:
        # 6.4 to 4 Gb/s on the node's own ports; the others lose what the job as a whole loses.
        pace = 1 - 0.08 * fault.severity
        mods.ib_factor[n, :N_IB] *= (1 - 0.375 * (0.2 + 0.8 * fault.severity)) / pace
        mods.ib_wait[n, :N_IB] *= 1 + 7 * fault.severity
        mods.gpu_power[n] *= 1 - 0.1 * fault.severity
        mods.slow(n, pace)


@effect("nic_slow")
def _nic_slow(mods: Mods, fault: Fault, n: int, p: int, _age: float, active: bool) -> None:
    if active:
        mods.ib_factor[n, p] *= 1 - 0.6 * fault.severity
        mods.ib_wait[n, p] *= 1 + 5 * fault.severity
        mods.slow(n, 1 - 0.1 * fault.severity)


@effect("ib_port_down", is_lasting=True)
def _ib_port_down(mods: Mods, fault: Fault, n: int, p: int, age: float, active: bool) -> None:
    mods.ib_downed[n, p] += 1
    if active:
        mods.ib_up[n, p] = False
        mods.net_loss[n] = 0.2
        if "stalls_after_s" in fault.options:
            mods.stall(n, age >= fault.number("stalls_after_s", 0.0))
        # Otherwise the traffic moves to the other ports; the job goes on, slower.
        others = [k for k in range(N_IB) if k != p]
        mods.ib_factor[n, others] *= N_IB / (N_IB - 1)
        mods.slow(n, 1 - 0.12 * fault.severity)


@effect("ib_errors")
def _ib_errors(mods: Mods, fault: Fault, n: int, p: int, age: float, active: bool) -> None:
    if active:
        mods.ib_errors[n, p] = (0.05 + 6 * fault.severity**2) * (0.2 + 0.8 * _ramp(age, 600.0))
        mods.ib_factor[n, p] *= 1 - 0.15 * fault.severity
        mods.ib_wait[n, p] *= 1 + fault.severity


@effect("gpu_throttle")
def _gpu_throttle(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    if active:
        hot = _ramp(age, 180.0)
        mods.gpu_heat[n, g] = (4 + 26 * fault.severity) * hot
        mods.gpu_clock[n, g] *= 1 - 0.45 * fault.severity * hot
        mods.gpu_power[n, g] *= 1 - 0.35 * fault.severity * hot
        mods.capability[n] *= 1 - 0.3 * fault.severity * hot


@effect("gpu_power_cap")
def _gpu_power_cap(mods: Mods, fault: Fault, n: int, g: int, _age: float, active: bool) -> None:
    if active:
        mods.gpu_power[n, g] *= 1 - 0.5 * fault.severity
        mods.gpu_clock[n, g] *= 1 - 0.4 * fault.severity
        mods.capability[n] *= 1 - 0.3 * fault.severity


@effect("cpu_contention")
def _cpu_contention(mods: Mods, fault: Fault, n: int, _part: int, _age: float, active: bool) -> None:
    if active:
        mods.cpu_extra[n] += 15 + 185 * fault.severity
        mods.capability[n] *= 1 - 0.2 * fault.severity


@effect("memory_leak")
def _memory_leak(mods: Mods, fault: Fault, n: int, _part: int, age: float, active: bool) -> None:
    if active:
        mods.leak[n] += age * fault.number("bytes_per_s", 3e6 * 300**fault.severity)


@effect("disk_slow")
def _disk_slow(mods: Mods, fault: Fault, n: int, d: int, _age: float, active: bool) -> None:
    if active:
        mods.disk_slow[n, d] *= 3 * 30**fault.severity


@effect("nfs_slow")
def _nfs_slow(mods: Mods, fault: Fault, n: int, e: int, _age: float, active: bool) -> None:
    if active:
        exports = [e] if fault.part else list(range(len(EXPORTS)))
        mods.nfs_slow[n, exports] *= 3 * 30**fault.severity
        mods.capability[n] *= 1 - 0.15 * fault.severity


@effect("clock_skew")
def _clock_skew(mods: Mods, fault: Fault, n: int, _part: int, age: float, active: bool) -> None:
    if active:
        mods.unsynced[n] = True
        mods.clock_offset[n] += 0.02 + age * 2e-4 * (1 + 9 * fault.severity)


@effect("machine_down")
def _machine_down(mods: Mods, fault: Fault, n: int, _part: int, age: float, active: bool) -> None:
    if active:
        mods.down[n] = mods.hung[n] = True
        mods.stall(n, age >= fault.number("stalls_after_s", 30.0))


@effect("exporter_down")
def _exporter_down(mods: Mods, fault: Fault, n: int, x: int, _age: float, active: bool) -> None:
    if active:
        mods.exporter_down[n, x] = True


@effect("tasks_growth")
def _tasks_growth(mods: Mods, fault: Fault, n: int, _part: int, age: float, active: bool) -> None:
    if active:
        mods.task_excess[n] = (30 + 800 * fault.severity) * _ramp(age, 900.0)
        mods.sick[n] = max(mods.sick[n], 0.3 + 0.7 * fault.severity)

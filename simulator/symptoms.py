"""Which groups of metrics a fault shows in: a fault of the same kind does not always look the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from simulator.faults import Effect, Fault
from simulator.mods import Mods
from simulator.topology import N_IB

GROUPS = ("cpu", "gpu", "memory", "throughput", "pfc", "disk")
"""Groups of metrics; ``pfc`` stands for flow control, which InfiniBand tells as time in which ports wait."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu_extra", "cpu_factor", "task_excess", "sick"),
    "gpu": ("gpu_idle", "gpu_power", "gpu_clock", "gpu_heat"),
    "memory": ("leak", "memory_factor"),
    "throughput": ("gpu_nvlink", "ib_factor"),
    "pfc": ("ib_wait",),
    "disk": ("disk_slow", "disk_extra"),
}


def apply_fault(
    mods: Mods, effect: Effect, fault: Fault, n: int, part: int, age: float, active: bool
) -> None:
    """Let a fault act; with the option ``groups``, in these groups of metrics and in no other.

    Error codes, vanished series, and what the whole job suffers are in no group: they always show.

    Parameters
    ----------
    mods
        Changed in place.
    effect
        What the kind does.
    fault
        The fault, as strong as it is now.
    n, part
        Indexes of the node and of the part.
    age
        Seconds since the onset.
    active
        Whether it goes on.
    """
    groups = fault.options.get("groups")
    if groups is None:
        effect(mods, fault, n, part, age, active)
        return
    assert isinstance(groups, tuple)
    hidden = ["hung", *(name for group in GROUPS if group not in groups for name in _FIELDS[group])]
    before = {name: getattr(mods, name)[n].copy() for name in hidden}
    effect(mods, fault, n, part, age, active)
    for name, values in before.items():
        getattr(mods, name)[n] = values
    if active:
        for group in groups:
            _SYMPTOMS[group](mods, fault, n, part, age)


def _grown(age: float) -> float:
    return min(1.0, age / 60.0)


def _cpu(mods: Mods, fault: Fault, n: int, _part: int, age: float) -> None:
    mods.cpu_factor[n] *= 1 - (0.3 + 0.65 * fault.severity) * _grown(age)


def _gpu(mods: Mods, fault: Fault, n: int, part: int, age: float) -> None:
    mods.gpu_idle[n, part] = True
    if age >= 60.0:
        mods.gpu_idle[n] = True


def _memory(mods: Mods, fault: Fault, n: int, _part: int, age: float) -> None:
    mods.memory_factor[n] *= 1 - (0.3 + 0.65 * fault.severity) * _grown(age)


def _throughput(mods: Mods, fault: Fault, n: int, _part: int, age: float) -> None:
    left = 1 - (0.3 + 0.65 * fault.severity) * _grown(age)
    mods.gpu_nvlink[n] *= left
    mods.ib_factor[n, :N_IB] *= left


def _pfc(mods: Mods, fault: Fault, n: int, _part: int, age: float) -> None:
    mods.ib_wait[n, :N_IB] *= 1 + (1 + 14 * fault.severity) * _grown(age)


def _disk(mods: Mods, fault: Fault, n: int, _part: int, _age: float) -> None:
    mods.disk_extra[n] += 40 + 400 * fault.severity


_SYMPTOMS: Mapping[str, Callable[[Mods, Fault, int, int, float], None]] = {
    "cpu": _cpu,
    "gpu": _gpu,
    "memory": _memory,
    "throughput": _throughput,
    "pfc": _pfc,
    "disk": _disk,
}


def draw_groups(rng: np.random.Generator, chances: Mapping[str, float]) -> tuple[str, ...]:
    """Draw the groups in which a fault shows; chances are from 0 to 1, a missing group never shows."""
    return tuple(group for group in GROUPS if rng.random() < chances.get(group, 0.0))

"""More kinds of faults: such as touch one metric only, and such as no error counter tells."""

from __future__ import annotations

import numpy as np

from simulator.faults import Fault, Mods, effect


@effect("remap_growth")
def _remap_growth(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    """Remap rows one after another; nothing else is told, the job does not notice."""
    if active:
        mods.remap_corrected[n, g] += 1 + np.floor(age * (1 + 9 * fault.severity) / 1200.0)


@effect("pcie_replay")
def _pcie_replay(mods: Mods, fault: Fault, n: int, g: int, _age: float, active: bool) -> None:
    """Send packets again on a bad PCIe link: one counter rises."""
    if active:
        mods.pcie_replay[n, g] += 0.02 + 4 * fault.severity**2


@effect("nvlink_slow")
def _nvlink_slow(mods: Mods, fault: Fault, n: int, g: int, _age: float, active: bool) -> None:
    """Let some NVLinks of one GPU run at a lower rate, without an XID; the job waits for it."""
    if active:
        mods.gpu_nvlink[n, g] *= 1 - 0.15 - 0.5 * fault.severity
        mods.capability[n] *= 1 - 0.15 * fault.severity


@effect("tcp_loss")
def _tcp_loss(mods: Mods, fault: Fault, n: int, _part: int, _age: float, active: bool) -> None:
    """Lose packets on the way to the node: TCP sends again."""
    if active:
        mods.net_loss[n] += 0.01 * 40**fault.severity


@effect("cuda_error")
def _cuda_error(mods: Mods, fault: Fault, n: int, _part: int, age: float, active: bool) -> None:
    """Let the processes die of an error that no counter tells; the others wait in a collective call."""
    if active:
        mods.hung[n] = True
        mods.gpu_idle[n] = True
        mods.stalls |= age >= fault.number("stalls_after_s", 60.0)

"""More kinds of faults: such as touch one metric only, and such as no error counter tells."""

from __future__ import annotations

import numpy as np

from simulator.faults import Fault, effect
from simulator.mods import Mods


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
        mods.stall(n, age >= fault.number("stalls_after_s", 60.0))


@effect("gpu_exec_error", is_lasting=True)
def _gpu_exec_error(mods: Mods, fault: Fault, n: int, g: int, age: float, active: bool) -> None:
    """Stop one GPU in the middle of its work; often no XID tells (then ``codes`` is empty)."""
    for code, after in fault.codes:
        if age >= after:
            mods.xid[n, g] = code
    if active:
        mods.gpu_idle[n, g] = True
        mods.gpu_idle[n] |= age >= 60.0
        mods.hung[n] |= age >= 60.0
        mods.stall(n, age >= fault.number("stalls_after_s", 60.0))


@effect("aoc_fault", is_lasting=True)
def _aoc_fault(mods: Mods, fault: Fault, n: int, p: int, age: float, active: bool) -> None:
    """Lose the light of an optical cable now and then: the port drops for a moment, no error is counted."""
    every = 600.0 - 480.0 * fault.severity
    mods.ib_downed[n, p] += 1 + np.floor(min(age, fault.end - fault.onset) / every)
    if active:
        mods.ib_up[n, p] = age % every >= 20.0
        mods.ib_factor[n, p] *= 1 - 0.25 * fault.severity
        mods.ib_wait[n, p] *= 1 + 3 * fault.severity
        mods.slow(n, 1 - 0.1 * fault.severity)


@effect("nfs_stage_slow")
def _nfs_stage_slow(mods: Mods, fault: Fault, n: int, e: int, _age: float, active: bool) -> None:
    """Slow one node's storage only in one stage of the job: loading, evaluation or checkpoints."""
    if active and mods.stages[mods.job_of[n]] == fault.options.get("stage", "checkpoint"):
        mods.nfs_slow[n, e] *= 5 * 40**fault.severity
        mods.slow(n, 1 - 0.3 * fault.severity)


@effect("one_metric")
def _one_metric(mods: Mods, fault: Fault, n: int, part: int, _age: float, active: bool) -> None:
    """Change the level of one metric (option ``metric``) and of nothing else."""
    if active:
        up = fault.number("direction", 1.0) > 0
        factor = 1.15 * 6**fault.severity
        name = fault.options["metric"]
        assert isinstance(name, str)
        mods.odd.append((name, n, part if fault.part else -1, factor if up else 1 / factor))


@effect("exporter_restart")
def _exporter_restart(mods: Mods, fault: Fault, n: int, x: int, _age: float, active: bool) -> None:
    """Silence an exporter for a moment; its process then begins anew, with counters at 0."""
    if active:
        mods.exporter_down[n, x] = mods.process_ended[n, x] = True


@effect("target_renamed")
def _target_renamed(_mods: Mods, _fault: Fault, _n: int, _x: int, _age: float, _active: bool) -> None:
    """Give the series of a target another pod name; the cluster does it with the labels."""


@effect("maintenance")
def _maintenance(mods: Mods, fault: Fault, n: int, _part: int, age: float, active: bool) -> None:
    """Take a node out of its job; it is idle, and may be started anew (``reboot_after_s``)."""
    if active:
        mods.drained[n] = True
        begin = fault.number("reboot_after_s", -1.0)
        if begin >= 0 and begin <= age < begin + fault.number("reboot_s", 420.0):
            mods.down[n] = True

"""Events that befall many nodes at once and are nobody's fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.faults import GroupEvent, event
from simulator.mods import Mods
from simulator.topology import N_IB

Ints = NDArray[np.int64]


@event("monitoring_outage")
def _monitoring_outage(mods: Mods, _event: GroupEvent, _nodes: Ints) -> None:
    mods.outage = True


@event("nfs_cluster_slow")
def _nfs_cluster_slow(mods: Mods, what: GroupEvent, nodes: Ints) -> None:
    mods.nfs_slow[nodes] *= 3 * 15**what.severity
    mods.slow(nodes, 1 - 0.2 * what.severity)


@event("job_restart")
def _job_restart(mods: Mods, _event: GroupEvent, nodes: Ints) -> None:
    mods.restart(nodes)


@event("job_slowdown")
def _job_slowdown(mods: Mods, what: GroupEvent, nodes: Ints) -> None:
    mods.slow(nodes, 1 - 0.3 * (0.3 + 0.7 * what.severity))


@event("fabric_congestion")
def _fabric_congestion(mods: Mods, what: GroupEvent, nodes: Ints) -> None:
    """Let all ports of the fabric wait, as when somebody else's traffic crosses it."""
    mods.ib_wait[nodes, :N_IB] *= 2 + 20 * what.severity
    mods.ib_factor[nodes, :N_IB] *= 1 - 0.2 * what.severity
    mods.slow(nodes, 1 - 0.2 * what.severity)


@event("hot_room")
def _hot_room(mods: Mods, what: GroupEvent, nodes: Ints) -> None:
    """Warm the air of a room or a rack; clocks fall a little everywhere."""
    mods.heat[nodes] += 2 + 8 * what.severity
    mods.gpu_clock[nodes] *= 1 - 0.04 * what.severity
    mods.slow(nodes, 1 - 0.04 * what.severity)

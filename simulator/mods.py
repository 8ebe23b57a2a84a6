"""What goes differently at one tick because of faults and events."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.topology import DISKS, EXPORTERS, EXPORTS, N_GPUS, N_IB

Floats = NDArray[np.float64]


class Mods:
    """What faults and events change at one tick; starts neutral.

    Arrays have the shape (nodes,) or (nodes, parts); factors start at 1, amounts at 0. `pace`,
    `stalls`, `restarts` and `stages` (what each job does besides computing) have one entry per job
    and a last one for spares, which means nothing.

    Parameters
    ----------
    job_of : ndarray of shape (nodes,)
        Index of each node's job; `n_jobs` for spares.
    n_jobs
        Number of jobs.
    """

    def __init__(self, job_of: NDArray[np.int64], n_jobs: int) -> None:
        n_nodes = len(job_of)

        def ones(n: int) -> Floats:
            return np.ones((n_nodes, n))

        def zeros(n: int) -> Floats:
            return np.zeros((n_nodes, n))

        def no() -> NDArray[np.bool_]:
            return np.zeros(n_nodes, dtype=bool)

        self.gpu_idle = np.zeros((n_nodes, N_GPUS), dtype=bool)
        self.gpu_gone = np.zeros((n_nodes, N_GPUS), dtype=bool)
        self.gpu_power, self.gpu_clock, self.gpu_heat = ones(N_GPUS), ones(N_GPUS), zeros(N_GPUS)
        self.gpu_nvlink = ones(N_GPUS)
        self.xid, self.pcie_replay = zeros(N_GPUS), zeros(N_GPUS)
        self.remap_corrected, self.remap_uncorrected = zeros(N_GPUS), zeros(N_GPUS)
        self.remap_failed = zeros(N_GPUS)
        self.smi_zero = np.zeros((n_nodes, N_GPUS), dtype=bool)
        self.dcgm_blank, self.hung, self.down, self.unsynced = no(), no(), no(), no()
        self.capability = np.ones(n_nodes)
        self.ib_up = np.ones((n_nodes, N_IB + 1), dtype=bool)
        self.ib_factor, self.ib_wait = ones(N_IB + 1), ones(N_IB + 1)
        self.ib_errors, self.ib_downed = zeros(N_IB + 1), zeros(N_IB + 1)
        self.cpu_extra, self.fork_burst, self.leak = np.zeros(n_nodes), np.zeros(n_nodes), np.zeros(n_nodes)
        self.disk_slow, self.nfs_slow = ones(len(DISKS)), ones(len(EXPORTS))
        self.clock_offset, self.net_loss = np.zeros(n_nodes), np.zeros(n_nodes)
        self.exporter_down = np.zeros((n_nodes, len(EXPORTERS)), dtype=bool)
        self.task_excess, self.sick = np.zeros(n_nodes), np.zeros(n_nodes)
        self.process_ended = np.zeros((n_nodes, len(EXPORTERS)), dtype=bool)
        self.drained = no()
        self.cpu_factor, self.memory_factor = np.ones(n_nodes), np.ones(n_nodes)
        self.disk_extra, self.heat = np.zeros(n_nodes), np.zeros(n_nodes)
        self.odd: list[tuple[str, int, int, float]] = []
        self.job_of = job_of
        self.stalls, self.restarts = np.zeros((2, n_jobs + 1), dtype=bool)
        self.pace = np.ones(n_jobs + 1)
        self.outage = False
        self.stages = [""] * (n_jobs + 1)

    def slow(self, nodes: int | NDArray[np.int64], pace: float) -> None:
        """Let the jobs of these nodes run no faster than `pace`."""
        jobs = self.job_of[nodes]
        self.pace[jobs] = np.minimum(self.pace[jobs], pace)

    def stall(self, nodes: int | NDArray[np.int64], it_does: bool = True) -> None:
        """Let the jobs of these nodes wait for ever."""
        self.stalls[self.job_of[nodes]] |= it_does

    def restart(self, nodes: int | NDArray[np.int64], it_does: bool = True) -> None:
        """Keep the jobs of these nodes from running; they start when nothing keeps them any more."""
        self.restarts[self.job_of[nodes]] |= it_does

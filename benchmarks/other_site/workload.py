"""What the jobs of a site do to its nodes, once faults have changed the jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.other_site.hardware import DATA_DISK, GIB
from benchmarks.other_site.jobs import WHOLE_NODE, Job
from benchmarks.other_site.noise import Array, smoothed
from benchmarks.other_site.site import Site


@dataclass(frozen=True, slots=True)
class _Pace:
    """A job's pace: arrays of shape (n_points,), and of (n_members,) for the factors of pipeline stages."""

    nodes: Array
    work: Array
    alive: Array
    filled: Array
    network_factor: Array
    work_factor: Array
    memory_factor: Array


def run_jobs(site: Site) -> None:
    """Add the load of every job to the state of its nodes; called once, after all events of a case."""
    for job in site.jobs:
        pace = _pace(site, job)
        _load_gpus(site, job, pace)
        _load_links(site, job, pace)
        _load_host(site, job, pace)


def _pace(site: Site, job: Job) -> _Pace:
    common = 1 + site.noise.wander((), 240, 0.012) + site.noise.wander((), 20, 0.012)
    alive = job.is_alive.astype(float)

    def along_stages(first: float, last: float) -> Array:
        if job.n_stages == 1:
            return np.ones(len(job.nodes))
        return np.linspace(first, last, job.n_stages)[job.stage_of]

    return _Pace(
        nodes=np.array(job.nodes),
        work=job.work * job.speed * common,
        alive=job.is_alive.astype(np.float32),
        filled=smoothed(alive, 1 / 12),
        network_factor=along_stages(1.25, 0.8),
        work_factor=along_stages(0.93, 1.05),
        memory_factor=along_stages(1.0, 0.72),
    )


def _load_gpus(site: Site, job: Job, pace: _Pace) -> None:
    noise, gpu, hardware = site.noise, site.gpu, site.hardware
    k, n_gpus = len(job.nodes), hardware.n_gpus
    of_stage = job.level * pace.work_factor[:, None, None]
    steady = of_stage * noise.spread((k, n_gpus, 1), 0.012) * pace.work
    work = steady * (1 + noise.wander((k, n_gpus), 15, 0.015) + noise.wander((k, 1), 300, 0.006))
    _apply(job, job.work_factors, work)
    dips = 1 - np.minimum(noise.bursts((k, n_gpus), 0.02, 0.05), 0.6)
    busy = job.busy * dips
    _apply(job, job.busy_factors, busy)
    gpu.work[pace.nodes] += np.clip(work, 0, 1.3)
    gpu.busy[pace.nodes] = np.maximum(gpu.busy[pace.nodes], np.clip(busy, 0, 1))
    unlike = 1 + 0.002 * site.rng.standard_normal((k, n_gpus, 1))
    full = hardware.gpu_memory_mib * 0.86 * pace.memory_factor[:, None, None] * unlike
    full = full + site.rng.normal(0, 150, (k, n_gpus, 1))
    gpu.memory_mib[pace.nodes] += np.where(job.is_alive, np.minimum(full * pace.filled * 1.02, full), 0)


def _apply(job: Job, factors: dict[tuple[int, int | None], Array], values: Array) -> None:
    for (node, g), factor in factors.items():
        values[job.nodes.index(node), slice(None) if g is WHOLE_NODE else g] *= factor


def _load_links(site: Site, job: Job, pace: _Pace) -> None:
    noise, gpu, hardware, host = site.noise, site.gpu, site.hardware, site.host
    nodes, work, k, n_gpus = pace.nodes, pace.work, len(job.nodes), hardware.n_gpus
    asked = 155000 * hardware.has_nvlink * work * job.level
    between = asked * noise.spread((k, n_gpus, 1), 0.01) * (1 + noise.wander((k, 1), 20, 0.03))
    gpu.nvlink[nodes] += between * np.ones((k, n_gpus, 1))
    to_host = (1.2e9 * work + 2.5e9 * job.writes_checkpoint)[None, None]
    gpu.pcie[nodes] += (
        to_host * noise.spread((k, n_gpus, 1), 0.04) * (1 + noise.wander((k, n_gpus), 15, 0.06))
    )
    if hardware.rdma_ports:
        n_ports = hardware.n_rdma_ports
        asked = (0.21 * hardware.rdma_bytes_per_s) * work * pace.network_factor[:, None, None]
        unlike = noise.spread((k, n_ports, 1), 0.008)
        site.rdma.traffic[nodes] += asked * unlike * (1 + noise.wander((k, 1), 15, 0.02))
        return
    traffic = 1.3e9 * work * pace.network_factor[:, None] * (1 + noise.wander((k,), 15, 0.03))
    host.received[nodes] += traffic
    host.sent[nodes] += traffic * noise.spread((k, 1), 0.01)
    host.cpu_system[nodes] += 1.3 * work
    host.cpu_interrupts[nodes] += 0.5 * work


def _load_host(site: Site, job: Job, pace: _Pace) -> None:
    noise, host, hardware = site.noise, site.host, site.hardware
    nodes, work, alive, k, n_cpus = pace.nodes, pace.work, pace.alive, len(job.nodes), hardware.n_cpus
    cpus = 0.09 * n_cpus * work + 0.035 * n_cpus * alive + 0.12 * n_cpus * job.loads
    host.cpu_user[nodes] += cpus * noise.spread((k, 1), 0.05) * (1 + noise.wander((k,), 40, 0.05))
    cpus = 0.012 * n_cpus * work + 0.004 * n_cpus * alive
    host.cpu_system[nodes] += cpus * noise.spread((k, 1), 0.05) * (1 + noise.wander((k,), 40, 0.05))
    host.memory[nodes] += 0.22 * hardware.memory_bytes * pace.filled * noise.spread((k, 1), 0.02)
    host.shared_memory[nodes] += 18 * GIB * pace.filled * noise.spread((k, 1), 0.02)
    reads = (35e6 * work + 350e6 * job.loads) * noise.spread((k, 1), 0.05)
    host.disk_read[nodes, DATA_DISK] += reads * (1 + noise.wander((k,), 25, 0.25)).clip(0.05)
    reads = (14e6 * work + 180e6 * job.loads) * noise.spread((k, 1), 0.06)
    host.received[nodes] += reads * (1 + noise.wander((k,), 25, 0.2)).clip(0.1)
    share = np.zeros((k, 1), np.float32)
    share[0] = 1
    if not job.writes_on_first:
        share[:] = 0.5
    host.sent[nodes] += 900e6 * share * job.writes_checkpoint + 0.4e6 * alive
    host.disk_written[nodes, DATA_DISK] += 250e6 * share * job.writes_checkpoint
    host.cpu_system[nodes] += 1.2 * share * job.writes_checkpoint

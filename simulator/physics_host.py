"""Processors, memory, disks, clock and network interfaces of the host, and the scheduler's agent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.config import ClusterConfig
from simulator.mods import Floats
from simulator.moment import Drift, Drivers, Moment, column, relax
from simulator.topology import CPU_MODES, DISKS, N_IB, interfaces

REAL_CPUS = 224.0
MEM_TOTAL = 2.16e12
GIB = 1024.0**3


class HostPhysics:
    """State of all hosts.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    start
        Epoch seconds at which the simulation begins.
    rack_heat
        Lasting degrees of each node's rack, shape (nodes,).
    """

    def __init__(
        self, config: ClusterConfig, rng: np.random.Generator, start: float, rack_heat: Floats
    ) -> None:
        n, spread = config.n_nodes, config.node_spread
        self._config, self._rng = config, rng
        self._cpu_factor = column(1 + 0.03 * spread * rng.standard_normal(n))
        self._cpu_noise = Drift((n, 1), 120.0, rng)
        self._loads = {minutes: np.full((n, 1), 2.0) for minutes in (1, 5, 15)}
        member = column((np.arange(n) < config.train_nodes).astype(float))
        self._anon = 18 * GIB * (1 + 0.04 * spread * rng.standard_normal((n, 1)))
        self._job_anon = 352 * GIB * (1 + 0.012 * rng.standard_normal((n, 1)))
        self._cache = (40 + member * rng.uniform(420, 780, (n, 1))) * GIB
        self._memory_noise = Drift((n, 2), 400.0, rng)
        self._slab = (9 + 5 * rng.random((n, 1))) * GIB
        self._disk_free = rng.uniform(0.55, 0.8, (n, 5)) * np.array([1.7e12, 28e12, 2.1e11, 0, 0])
        self._cpu_temp = np.full((n, 4), 45.0)
        self._temp_offset = spread * rng.normal(0, 1.5, (n, 4)) + column(rack_heat)
        self._clock = rng.normal(0, 4e-5, (n, 1))
        self._clock_noise = Drift((n, 1), 300.0, rng)
        self._tasks = column(np.rint(rng.uniform(45.2, 48.8, n)))
        self._exporter_start = np.repeat(start - rng.uniform(2, 20, (n, 1)) * 86400, 2, axis=1)
        self._data_used = 4.1e14

    def begin_process(self, exporter: int, nodes: NDArray[np.bool_], at: float) -> None:
        """Note that an exporter (0 for that of the host, 1 for the scheduler's agent) began anew."""
        self._exporter_start[nodes, exporter] = at

    def drivers(self, m: Moment, nfs: Drivers) -> Drivers:
        """Return the drivers of the host, given those of its NFS mounts."""
        found: Drivers = {"one": np.ones((self._config.n_nodes, 1))}
        found |= self._activity(m, nfs)
        found |= self._memory(m, found)
        found |= self._disks(m, found)
        found |= self._kernel(m, found, nfs)
        found |= self._agent(m)
        return found

    def _activity(self, m: Moment, nfs: Drivers) -> Drivers:
        job, mods = m.job, m.mods
        train, spin, extra = column(job.train), column(job.spin), column(mods.cpu_extra)
        alive = column(mods.cpu_factor)
        train, spin = train * alive, spin * alive
        busy = train * (0.35 + 0.65 * column(job.pace)) * m.load.cpu
        head = self._config.workload.rank0_extra
        noise = 1 + 0.03 * self._cpu_noise.step(m.dt)
        user = (
            1.1 + (30 * busy + 9 * spin + 14 * column(job.loading)) * self._cpu_factor * noise + 0.9 * extra
        )
        user = user + (3.5 + 12 * head) * column(job.rank0) + column(mods.fork_burst) * 1.5
        system = 0.5 + 5.5 * busy + 2 * spin + 0.1 * extra + 1.2 * nfs["nfs_write"] / 1e9
        iowait = 0.15 + 2.2 * column(job.checkpoint) + 0.5 * nfs["nfs_wait"]
        iowait = iowait + 0.3 * np.log(mods.disk_slow).sum(axis=1, keepdims=True)
        running = 2 + 26 * busy + 9 * spin + 10 * column(job.loading) + 1.05 * extra
        for minutes, load in self._loads.items():
            self._loads[minutes] = relax(load, running + 1.5 * iowait, m.dt, 60.0 * minutes)
        return {
            "train": train * np.ones_like(user),
            "ckpt": column(job.checkpoint),
            "cpu_extra": extra,
            "fork_burst": column(mods.fork_burst),
            "sick": column(mods.sick),
            "net_loss": column(mods.net_loss),
            "cpu_user": user,
            "cpu_system": system,
            "cpu_iowait": iowait,
            "running": running,
            "blocked": 0.4 * iowait + 2.0 * column(mods.sick),
            "cpu_percent": 100 * (user + system) / REAL_CPUS,
            **{f"load{minutes}": load for minutes, load in self._loads.items()},
        }

    def processors(self, m: Moment, host: Drivers, rng: np.random.Generator, weights: Floats) -> Drivers:
        """Return the drivers per processor, shape (nodes, cpus) or (nodes, cpus * modes).

        Parameters
        ----------
        weights
            Lasting share of the work that each processor gets, mean 1.
        """
        n, cpus = weights.shape
        noise = rng.standard_normal((n, cpus), dtype=np.float32)
        share = weights * np.exp(0.18 * noise - 0.0162) / REAL_CPUS
        modes = np.empty((n, cpus, len(CPU_MODES)))
        parts = {
            "user": host["cpu_user"] * share,
            "system": host["cpu_system"] * share,
            "iowait": host["cpu_iowait"] * share,
            "softirq": (0.25 + 0.012 * host["cpu_system"]) * share,
            "irq": 0.05 * share,
            "nice": 0.004 * share,
            "steal": 0.0 * share,
        }
        total = sum(parts.values())
        scale = np.minimum(1.0, 0.995 / np.maximum(total, 1e-9))
        for k, mode in enumerate(CPU_MODES):
            modes[:, :, k] = (1 - total * scale) if mode == "idle" else parts[mode] * scale
        running = np.minimum((parts["user"] + parts["system"]) * scale, 1.0)
        crowd = np.maximum(0.0, host["running"] / REAL_CPUS - 0.5)
        packets = (900 + host["if_packets"]) / REAL_CPUS
        return {
            "cpu_time": modes.reshape(n, -1),
            "cpu_running": running,
            "cpu_waiting": 0.004 * running + 0.6 * crowd * running,
            "packets_per_cpu": packets * weights,
            "softnet_drops": np.full((n, 1), 1e-8),
            "cpu_hertz": 2.1e9 + 1.4e9 * np.minimum(1.0, running * 3),
        }

    def _memory(self, m: Moment, host: Drivers) -> Drivers:
        job, noise = m.job, self._memory_noise.step(m.dt)
        in_job = column(np.maximum(job.train, np.maximum(job.spin, job.loading)))
        anon = (
            self._anon
            + self._job_anon * in_job * column(m.mods.memory_factor)
            + 0.5 * GIB * noise[:, :1]
            + column(m.mods.leak)
        )
        grow = (780 * GIB - self._cache) / 40000.0
        self._cache = self._cache + in_job * grow * m.dt
        cached = self._cache + 3 * GIB * noise[:, 1:]
        slab, other = self._slab * (1 + 0.01 * noise[:, 1:]) * m.load.kernel, 11 * GIB
        free = MEM_TOTAL - anon - cached - slab - other
        squeeze = np.maximum(0.0, 6 * GIB - free)
        cached = np.maximum(cached - squeeze, 1 * GIB)
        free = np.maximum(MEM_TOTAL - anon - cached - slab - other, 1 * GIB)
        pressure = np.clip(1 - (free + cached) / (60 * GIB), 0, 1)
        shmem = (2 + 38 * in_job) * GIB
        available = free + 0.92 * np.maximum(cached - shmem, 0) + 0.5 * slab
        dirty = (0.03 + 6 * host["ckpt"]) * GIB
        flat = np.ones_like(free)
        return {
            "mem_free": free,
            "mem_cached": cached,
            "mem_anon": anon + 0 * free,
            "mem_file": cached - shmem,
            "mem_available": available,
            "mem_used": MEM_TOTAL - available,
            "mem_used_percent": 100 * (1 - available / MEM_TOTAL),
            "mem_buffers": 0.9 * GIB * flat,
            "mem_slab": slab,
            "mem_locked": (0.02 + 14 * in_job) * GIB * flat,
            "mem_dirty": dirty * flat,
            "mem_writeback": 0.02 * dirty * host["ckpt"] + 0.0 * flat,
            "mem_mapped": (3 + 21 * in_job) * GIB * flat,
            "mem_shmem": shmem * flat,
            "mem_vmalloc": 1.1 * GIB * flat,
            "mem_percpu": 0.42 * GIB * flat,
            "mem_corrupted": 0.0 * flat,
            "threads": 4200 + 2600 * in_job + 3 * column(m.mods.task_excess),
            "swap_free": (8 - 7 * pressure) * GIB,
            "swap_cached": 0.2 * pressure * GIB,
            "swap_io": pressure,
            "oom": 0.001 * (pressure > 0.97).astype(float),
            "psi_memory_waiting": 1e-5 + 0.2 * pressure,
            "psi_memory_stalled": 5e-6 + 0.1 * pressure,
            "edac_corrected": 0.0 * flat,
            "edac_uncorrected": 0.0 * flat,
        }

    def _disks(self, m: Moment, host: Drivers) -> Drivers:
        slow = m.mods.disk_slow
        reads = np.array([2.0, 1.2, 1.1]) + 180 * host["fork_burst"] * np.array([1.0, 0.1, 0.1])
        writes = np.array([28.0, 14.0, 13.0]) * (1 + 0.5 * host["train"])
        writes = writes + 900 * host["fork_burst"] * np.array([1.0, 0.05, 0.05]) + 20 * column(m.job.rank0)
        writes = writes + column(m.mods.disk_extra)
        read_time, write_time = reads * 1.1e-4 * slow, writes * 4e-5 * slow
        busy = np.minimum(0.999, (read_time + write_time) * 0.8)
        free = self._disk_free.copy()
        free[:, 1] -= 2e3 * (m.at % 864000)
        free[:, 3], free[:, 4] = 1.9e15 - self._data_used, 8.4e14
        flat = np.ones((self._config.n_nodes, len(DISKS)))
        return {
            "dk_one": flat,
            "dk_reads": reads * flat,
            "dk_writes": writes * flat,
            "dk_read_time": read_time,
            "dk_write_time": write_time,
            "dk_busy": busy,
            "dk_queue": np.minimum(64.0, read_time + write_time),
            "dk_flush_time": 0.05 * writes * 6e-5 * slow,
            "disk_read": (reads * 48000).sum(axis=1, keepdims=True),
            "disk_write": (writes * 22000).sum(axis=1, keepdims=True),
            "fs_avail": free,
            "fs_files": np.maximum(1.0, free / 16384),
            "fs_error": 0 * free,
            "fs_readonly": 0 * free,
        }

    def _kernel(self, m: Moment, host: Drivers, nfs: Drivers) -> Drivers:
        mods = m.mods
        working = host["running"] / 30
        target = np.array([38.0, 38.0, 36.0, 35.0]) + 14 * np.array([1.0, 1.0, 0.1, 0.1]) * working
        target = target + 1.0 * m.day() + self._temp_offset + column(mods.heat) + m.load.heat
        self._cpu_temp = relax(self._cpu_temp, target, m.dt, 80.0)
        offset = self._clock + 3e-5 * self._clock_noise.step(m.dt) + column(mods.clock_offset)
        unsynced = column(mods.unsynced)
        full = np.log(mods.disk_slow).sum(axis=1, keepdims=True)
        crowd = np.maximum(0.0, host["running"] / REAL_CPUS - 0.35)
        return {
            "psi_cpu_waiting": 0.002 + 0.6 * crowd + 0.001 * working,
            "psi_io_waiting": 0.001 + 0.06 * full + 0.1 * host["ckpt"] + 0.05 * nfs["nfs_wait"],
            "psi_io_stalled": 0.0006 + 0.04 * full + 0.05 * host["ckpt"] + 0.03 * nfs["nfs_wait"],
            "clock_offset": offset,
            "clock_max_error": 0.12 + unsynced * (2 + 50 * column(mods.clock_offset)) + 0 * offset,
            "clock_error": 2e-4 + 0.5 * column(mods.clock_offset) + 0 * offset,
            "clock_ratio": 1 + 1e-5 * np.sign(self._clock) + 0 * offset,
            "clock_sync": 1.0 - unsynced,
            "interrupts": 6500
            + 280_000 * host["train"] * column(m.job.pace)
            + 62_000 * column(m.job.spin)
            + 300 * host["cpu_extra"],
            "switches": 16_000
            + 210_000 * host["train"] * column(m.job.pace)
            + 300_000 * column(m.job.spin)
            + 1500 * host["cpu_extra"],
            "sensor_temp": self._cpu_temp,
            "cpu_temp": self._cpu_temp[:, :1],
            "cpu_throttle": np.full_like(offset, 1e-6),
            "exporter_start": self._exporter_start[:, :1],
            "agent_start": self._exporter_start[:, 1:],
            "last_gc": np.floor(m.scraped[:, :1] / 28.0) * 28.0,
        }

    def _agent(self, m: Moment) -> Drivers:
        excess, sick = column(m.mods.task_excess), column(m.mods.sick)
        wobble = np.rint(0.55 * self._rng.standard_normal(excess.shape))
        tasks = np.clip(self._tasks + wobble, 44, 50) + np.rint(excess)
        tasks = tasks + np.rint(5 * self._config.workload.rank0_extra * column(m.job.rank0))
        flat = np.ones_like(excess)
        success = 1 - 0.85 * sick
        slow = np.minimum(0.9, 2 * sick)
        return {
            "tasks": tasks,
            "task_excess": excess,
            "failures": sick,
            "api_rate": np.array([0.033, 0.05, 0.02]) * flat,
            "api_slow": 0.02 * slow,
            "event_rate": np.array([0.33, 0.002, 0.1]) * flat,
            "event_slow": 0.02 * slow,
            "rpc_rate": np.array([0.01, 0.1, 0.2, 0.05]) * flat,
            "rpc_slow": 0.3 * slow,
            "layer_rate": np.array([0.6, 0.4, 0.2]) * flat,
            "layer_slow": 0.01 * slow,
            "layer_open": 1.2 + 0.02 * excess,
            "stat_rate": np.array([0.2, 0.1, 0.05]) * flat,
            "stat_success": np.array([0.2, 0.1, 0.05]) * success,
            "sync_success": 0.1 * success,
            "generation_share": np.array([0.9, 0.09, 0.01]) * (1 + 0.01 * excess),
        }


class InterfacePhysics:
    """Traffic of the network interfaces.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    """

    def __init__(self, config: ClusterConfig, rng: np.random.Generator) -> None:
        self._rng, self._head = rng, config.workload.rank0_extra
        names = interfaces(config)
        self._shape = (config.n_nodes, len(names))
        self._direct, self._net = names.index("direct0"), names.index("net0")
        base = {"lo": 2.2e4, "docker0": 900.0, "net0": 4.2e4}
        self._base = np.array([2100.0 if n.startswith("ib") else base.get(n, 700.0) for n in names])
        self._base[self._direct] = 6000.0
        self._multicast = np.array([0.4 if n in ("net0", "direct0") else 0.02 for n in names])
        self._physical = np.array([n not in ("lo", "docker0") and not n.startswith("veth") for n in names])

    def drivers(self, m: Moment, nfs: Drivers) -> Drivers:
        """Return the drivers of the interfaces; direct0 carries NFS."""
        noise = np.exp(0.25 * self._rng.standard_normal((2, *self._shape)))
        rx, tx = self._base * noise[0], self._base * noise[1]
        rx[:, self._direct] += (1.03 * nfs["nfs_read"] + 0.015 * nfs["nfs_write"])[:, 0]
        tx[:, self._direct] += (1.03 * nfs["nfs_write"] + 0.015 * nfs["nfs_read"])[:, 0]
        mgmt = 3e4 * noise[0][:, [self._net]] + 2e5 * column(m.mods.fork_burst) * 20
        rx[:, [self._net]] += mgmt
        tx[:, [self._net]] += 6e6 * self._head * column(m.job.rank0)
        up = np.ones(self._shape)
        up[:, :N_IB] = m.mods.ib_up[:, :N_IB]
        changes = np.zeros(self._shape)
        changes[:, :N_IB] = m.mods.ib_downed[:, :N_IB]
        lossy = np.zeros(self._shape)
        lossy[:, :N_IB] = 0.02 * m.mods.ib_errors[:, :N_IB]
        operational = np.where(self._physical, up, 0.0)
        operational[:, -1] = 1.0
        packets = {"rx": rx / 1900 + 8, "tx": tx / 2100 + 8}
        return {
            "if_rx": rx,
            "if_tx": tx,
            "if_rx_packets": packets["rx"],
            "if_tx_packets": packets["tx"],
            "if_packets": (packets["rx"] + packets["tx"]).sum(axis=1, keepdims=True),
            "if_errors": lossy,
            "if_drops": lossy + 0.02 * self._multicast,
            "if_multicast": self._multicast * np.ones(self._shape),
            "if_up": operational,
            "if_carrier": np.where(self._physical, up, 1.0),
            "if_changes": 1 + changes,
            "mgmt": mgmt,
        }

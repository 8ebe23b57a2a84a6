"""GPUs and InfiniBand ports: load of the training loop, heat, clocks, traffic."""

from __future__ import annotations

import numpy as np

from simulator.config import ClusterConfig
from simulator.mods import Floats
from simulator.moment import Drift, Drivers, Moment, column, relax
from simulator.topology import EXPORTERS, N_GPUS, N_IB

IDLE_W, TRAIN_W = 140.0, 845.0
SLOT_HEAT = np.array([0.0, 1.0, 0.5, 1.5, 1.0, 2.0, 3.0, 7.0])
MAX_CLOCK, IDLE_CLOCK = 1965.0, 345.0
FB_MIB, IDLE_FB_MIB = 158_300.0, 612.0
NVLINK_MB = 186_000.0
IB_RATE = 5.0e10
LINK_DOWN, POLLING, ACTIVE, LINK_UP = 1.0, 2.0, 4.0, 5.0


class GpuPhysics:
    """State of all GPUs.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    rack_heat
        Lasting degrees of each node's rack, shape (nodes,).
    """

    def __init__(self, config: ClusterConfig, rng: np.random.Generator, rack_heat: Floats) -> None:
        n, spread = config.n_nodes, config.node_spread
        self._rng, self._workload = rng, config.workload
        self._efficiency = 1 + 0.015 * spread * rng.standard_normal((n, N_GPUS))
        self._heat = SLOT_HEAT * config.quirks.slot_heat + spread * (
            0.8 * rng.standard_normal((n, N_GPUS)) + column(rng.normal(0, 0.9, n))
        )
        self._heat = self._heat + column(rack_heat)
        self._memory = 1 + 0.002 * rng.standard_normal((n, N_GPUS))
        self._clock_offset = 8 * spread * rng.standard_normal((n, N_GPUS))
        self._remapped = rng.poisson(0.3, (n, N_GPUS)).astype(float)
        self._temp = 40 + self._heat
        self._mem_temp = 44 + self._heat
        self._inlet = Drift((n, 1), 3600.0, rng)
        self._rhythm = Drift((n, 1), 600.0, rng)

    def drivers(self, m: Moment) -> Drivers:
        """Return the drivers of both GPU exporters."""
        job, mods = m.job, m.mods
        idle = mods.gpu_idle | mods.gpu_gone
        train = column(job.train) * ~idle
        spin = column(job.spin) * ~idle
        loading = column(job.loading) * ~idle
        evaluating = column(job.evaluating)
        work = column(job.work) * column(job.limit) * (1 - column(job.dip)) * (1 - 0.5 * evaluating)
        busy = train * (0.36 + 0.64 * work) * m.load.gpu + self._workload.spin_busy * spin + 0.12 * loading
        self._rhythm.step(m.dt)
        power = IDLE_W + (TRAIN_W - IDLE_W) * busy * self._efficiency * mods.gpu_power
        inlet = 25 + 1.2 * m.day() + 0.6 * self._inlet.step(m.dt)
        target = inlet + self._heat + 0.041 * power + mods.gpu_heat + column(mods.heat) + m.load.heat
        self._temp = relax(self._temp, target, m.dt, 55.0)
        self._mem_temp = relax(self._mem_temp, target + 4 + 0.006 * power, m.dt, 90.0)
        clock = self._clock(power, train + spin + loading, mods.gpu_clock)
        full = FB_MIB * self._memory * m.load.memory
        fb = np.where((train + spin) > 0, full, IDLE_FB_MIB + 0.3 * FB_MIB * loading * self._memory)
        seen = {
            "dcgm": self._sample(m, "dcgm", train, spin, loading, power),
            "all_smi": self._sample(m, "all_smi", train, spin, loading, power),
        }
        ok = np.where(mods.smi_zero, 0.0, 1.0)
        noise = self._rng.standard_normal((2, *power.shape))
        return {
            "gpu_one": np.ones(power.shape),
            "util": seen["dcgm"][0],
            "power": seen["dcgm"][1],
            "temp": self._temp + 0.3 * noise[0],
            "clock": clock,
            "fb": fb,
            "mem_temp": self._mem_temp + 0.3 * noise[1],
            "copy": seen["dcgm"][0] * (0.46 * train * work + 0.02) + noise[0],
            "nvlink": np.maximum(
                0, NVLINK_MB * train * work * mods.gpu_nvlink * (1 + 0.02 * noise[1]) * m.load.nvlink
            ),
            "xid": mods.xid,
            "remap_corrected": self._remapped + mods.remap_corrected,
            "remap_uncorrected": mods.remap_uncorrected,
            "remap_failed": mods.remap_failed,
            "pcie_replay": mods.pcie_replay,
            "smi_util": seen["all_smi"][0] * ok,
            "smi_power": seen["all_smi"][1] * ok,
            "smi_temp": (self._temp + 0.3 * noise[1]) * ok,
            "smi_clock": clock * ok,
            "smi_fb": (fb + 2.0) * ok,
            "gpu_mean_power": power.mean(axis=1, keepdims=True),
        }

    def _clock(self, power: Floats, active: Floats, factor: Floats) -> Floats:
        busy = MAX_CLOCK - 0.11 * np.maximum(0.0, power - 500) + self._clock_offset
        busy = busy + 7 * self._rng.standard_normal(power.shape)
        return np.where(active > 0, np.minimum(busy, MAX_CLOCK) * factor, IDLE_CLOCK)

    def _sample(
        self, m: Moment, exporter: str, train: Floats, spin: Floats, loading: Floats, power: Floats
    ) -> tuple[Floats, Floats]:
        """Return utilisation and power as one scrape catches them somewhere in a step of the loop."""
        when = m.scraped[:, EXPORTERS.index(exporter)][:, None]
        phase = (when * column(m.job.pace) / m.load.iteration_s + 0.05 * self._rhythm.value) % 1.0
        dip = np.maximum(0.0, np.cos(2 * np.pi * phase)) ** 6
        noise = self._rng.standard_normal((2, *power.shape))
        waits = 18 * column(m.job.evaluating) + m.load.util_drop
        util = (
            train * (99.2 - 9 * dip - 25 * column(m.job.dip) - waits)
            + self._workload.spin_util * spin
            + 8 * loading
        )
        util = np.where(train > 0, util + 0.5 * noise[0], util)
        swing = train * (0.03 - 0.16 * dip) + 0.008 * noise[1]
        return np.clip(util, 0, 100), np.maximum(60.0, IDLE_W + (power - IDLE_W) * (1 + swing) + noise[1])


class IbPhysics:
    """State of all InfiniBand ports and of the RoCE port behind them.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    """

    def __init__(self, config: ClusterConfig, rng: np.random.Generator) -> None:
        n = config.n_nodes
        self._rng = rng
        self._base = config.ib_bytes_per_s
        self._spread = 1 + 0.012 * config.node_spread * rng.standard_normal((n, N_IB + 1))
        self._drift = Drift((n, N_IB + 1), 900.0, rng)

    def drivers(self, m: Moment, storage_rx: Floats, storage_tx: Floats) -> Drivers:
        """Return the drivers of the ports; the last port carries the traffic of direct0."""
        job, mods = m.job, m.mods
        share = column(job.train) * column(job.pace) * (1 - column(job.dip))
        share = share * m.load.ib * (1 - 0.7 * column(job.evaluating))
        noise = 1 + 0.012 * self._rng.standard_normal((2, *self._spread.shape))
        wander = self._spread * (1 + 0.008 * self._drift.step(m.dt)) * mods.ib_factor * mods.ib_up
        chatter = 4e4 * np.abs(noise[0])
        rx, tx = (self._base * share * wander * noise[k] + chatter * mods.ib_up for k in (0, 1))
        rx[:, N_IB], tx[:, N_IB] = storage_rx[:, 0], storage_tx[:, 0]
        rate = np.full(rx.shape, IB_RATE)
        rate[:, N_IB] = 2.5e10
        return {
            "ib_one": np.ones(rx.shape),
            "ib_rx": rx,
            "ib_tx": tx,
            "ib_wait": (2e4 + 3e7 * share) * mods.ib_wait * mods.ib_up,
            "ib_rate": rate,
            "ib_state": np.where(mods.ib_up, ACTIVE, LINK_DOWN),
            "ib_physical": np.where(mods.ib_up, LINK_UP, POLLING),
            "ib_downed": mods.ib_downed,
            "ib_errors": mods.ib_errors,
        }

"""What dcgm-exporter tells of the GPUs of a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.other_site.noise import POINT_S, Array, smoothed
from benchmarks.other_site.scrape import Exporter
from benchmarks.other_site.site import Site

HEAT_MEMORY_S = 55
"""Seconds in which the temperature of a GPU follows its power."""

OLD_REPLAYS, OLD_REMAPPED_ROWS = 0.1, 0.04
"""Shares of GPUs that replay now and then, and that had remapped rows before."""

Metric = tuple[str, Array, int | None]


@dataclass(frozen=True, slots=True)
class _Physics:
    """Power, clock and temperatures of a GPU at each point."""

    power_w: Array
    clock_mhz: Array
    temperature: Array
    memory_temperature: Array


def tell_gpus(site: Site, n: int, exporter: Exporter) -> None:
    """Write the series of all GPUs of node `n`."""
    noise, rng, n_gpus = site.noise, site.rng, site.hardware.n_gpus
    host_resistance = noise.factor(0.03)
    inlet = 25 + rng.normal(0, 1.0) + site.host.heat[n] + noise.wander((), 1200, 0.3)
    names = [_uuid(rng) for _ in range(n_gpus)]
    had_remapped = rng.random(n_gpus) < OLD_REMAPPED_ROWS
    for g in range(n_gpus):
        physics = _physics(site, n, g, inlet, host_resistance)
        metrics = list(_metrics(site, n, g, physics, had_remapped=bool(had_remapped[g])))
        labels = {
            "gpu": str(g),
            "UUID": names[g],
            "pci_bus_id": f"00000000:{0x1A + 0x14 * g:02X}:00.0",
            "device": f"nvidia{g}",
            "modelName": site.hardware.gpu_model,
            "Hostname": site.full_names[n],
        }
        for more, where in _segments(site, n, g):
            for name, values, decimals in metrics:
                exporter.gauge(name, {**labels, **more}, values, decimals=decimals, where=where)
            xid = site.gpu.xid[n, g]
            if site.zero_xids or xid.any():
                told = where if site.zero_xids else where & (xid > 0)
                exporter.gauge("DCGM_FI_DEV_XID_ERRORS", {**labels, **more}, xid, where=told)


def _uuid(rng: np.random.Generator) -> str:
    parts = tuple(int(rng.integers(0, 2**bits)) for bits in (32, 16, 16, 16, 48))
    return "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}".format(*parts)


def _physics(site: Site, n: int, g: int, inlet: Array, host_resistance: np.float32) -> _Physics:
    noise, rng, hardware, gpu = site.noise, site.rng, site.hardware, site.gpu
    work, busy, clock = gpu.work[n, g], gpu.busy[n, g], gpu.clock[n, g]
    limit_w = hardware.power_limit_w
    idle_w = hardware.idle_power_w * noise.factor(0.04)
    flicker = noise.wander((), 6, 0.03) + noise.bursts((), 0.01, 0.05) * rng.choice([-1, 1])
    working_w = (0.82 * limit_w * noise.factor(0.012)) * work * clock**2 * (1 + flicker)
    power_w = idle_w + 0.10 * limit_w * busy * clock + working_w
    power_w = np.minimum(power_w, limit_w * (1 + 0.01 * noise.normal()))
    boost_mhz = hardware.boost_clock_mhz * noise.factor(0.004)
    near_limit = np.clip(power_w / limit_w - 0.7, 0, 1)
    running_mhz = boost_mhz * clock * (1 - 0.07 * near_limit) + 8 * noise.normal()
    idle_mhz = hardware.boost_clock_mhz * hardware.idle_clock_share
    if hardware.parked_clock_mhz:
        idle_mhz = hardware.parked_clock_mhz if rng.random() < 0.9 else hardware.boost_clock_mhz
    clock_mhz = np.where(busy > 0.05, running_mhz, idle_mhz)
    place = 1 + 0.08 * ((g % 4) // 2)
    resistance = (44 / limit_w) * host_resistance * noise.factor(0.04) * place
    settled = inlet + 4 + resistance * power_w * gpu.heating[n, g]
    temperature = smoothed(settled, POINT_S / HEAT_MEMORY_S)
    memory_temperature = temperature + 4 + 14 * work * noise.factor(0.05) + noise.wander((), 60, 0.4)
    return _Physics(power_w, clock_mhz, temperature, memory_temperature)


def _metrics(site: Site, n: int, g: int, physics: _Physics, *, had_remapped: bool) -> Iterator[Metric]:
    """Yield name, values and decimals of the metrics of a GPU."""
    noise, rng, hardware, gpu = site.noise, site.rng, site.hardware, site.gpu
    work, busy, boots = gpu.work[n, g], gpu.busy[n, g], site.boots[n]
    zero, flat = site.zeros(), site.ones()
    is_used = busy > 0.02
    used_mib = gpu.memory_mib[n, g] + np.where(gpu.memory_mib[n, g] < 10, 4, 0)
    engine = np.clip(np.where(is_used, busy * (0.985 + 0.01 * noise.uniform()), 0), 0, 1)
    tensor = np.clip(work * 0.52 * site.host.tensor_share[n] * (1 + 0.02 * noise.normal()), 0, 1)
    memory = np.clip(work * 0.40 * (1 + 0.025 * noise.normal()) + 0.01 * busy, 0, 1)
    copying = np.clip(np.where(is_used, 45 * work + 3 * noise.normal(), 0), 0, 100)
    dips = rng.choice([0, 0, 0, 0, -1, -3], site.n_points)
    utilisation = np.clip(100 * busy + np.where(busy > 0.05, dips, 0), 0, 100)
    nvlink = gpu.nvlink[n, g] * gpu.nvlink_factor[n, g] * (1 + 0.02 * noise.normal())
    pcie = gpu.pcie[n, g] * gpu.pcie_factor[n, g]
    energy_mj = noise.counter(physics.power_w * 1000, rng.uniform(1e11, 9e12), boots)
    replay_rate = gpu.replays[n, g] + (0.0006 if rng.random() < OLD_REPLAYS else 0)
    old_replays = 0 if rng.random() < 0.7 else int(rng.integers(1, 400))
    replays = noise.counter(replay_rate, old_replays, boots, whole=True)
    remapped = gpu.remapped_correctable[n, g] + (2 if had_remapped else 0)
    yield "DCGM_FI_DEV_SM_CLOCK", np.round(physics.clock_mhz / 15) * 15, None
    yield "DCGM_FI_DEV_MEM_CLOCK", flat * hardware.memory_clock_mhz, None
    yield "DCGM_FI_DEV_GPU_TEMP", physics.temperature, None
    yield "DCGM_FI_DEV_POWER_USAGE", physics.power_w, 3
    yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", energy_mj, None
    yield "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", replays, None
    yield "DCGM_FI_DEV_GPU_UTIL", utilisation, None
    yield "DCGM_FI_DEV_MEM_COPY_UTIL", copying, None
    yield "DCGM_FI_DEV_ENC_UTIL", zero, None
    yield "DCGM_FI_DEV_DEC_UTIL", zero, None
    yield "DCGM_FI_DEV_FB_FREE", hardware.gpu_memory_mib - used_mib, None
    yield "DCGM_FI_DEV_FB_USED", used_mib, None
    yield "DCGM_FI_DEV_FB_RESERVED", flat * hardware.gpu_memory_reserved_mib, None
    yield "DCGM_FI_DEV_VGPU_LICENSE_STATUS", zero, None
    yield "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", gpu.remapped_uncorrectable[n, g], None
    yield "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", remapped, None
    yield "DCGM_FI_DEV_ROW_REMAP_FAILURE", zero, None
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", engine, 6
    yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", tensor, 6
    yield "DCGM_FI_PROF_DRAM_ACTIVE", memory, 6
    yield "DCGM_FI_PROF_PCIE_TX_BYTES", pcie * 0.4 * (1 + 0.05 * noise.normal()) + 2e5, None
    yield "DCGM_FI_PROF_PCIE_RX_BYTES", pcie * (1 + 0.05 * noise.normal()) + 2e5, None
    if hardware.has_memory_temperature:
        yield "DCGM_FI_DEV_MEMORY_TEMP", physics.memory_temperature, None
    if hardware.has_nvlink:
        yield "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", nvlink, None


def _segments(site: Site, n: int, g: int) -> Iterator[tuple[dict[str, str], Array]]:
    """Yield the labels that change over time (driver, pod), and the points at which each holds."""
    pods, drivers = site.pods[n], site.drivers[n]
    cuts = {0, site.n_points, *(pod.start for pod in pods), *(pod.end for pod in pods)}
    cuts |= {point for point, _ in drivers}
    for start, end in pairwise(sorted(cuts)):
        where = np.zeros(site.n_points, bool)
        where[start:end] = True
        labels = {"DCGM_FI_DRIVER_VERSION": [v for point, v in drivers if point <= start][-1]}
        here = [pod for pod in pods if pod.start <= start < pod.end]
        if here:
            labels["exported_namespace"] = here[-1].namespace
            labels["exported_pod"] = here[-1].name
            labels["exported_container"] = here[-1].container
        yield labels, where & site.gpu.is_present[n, g]

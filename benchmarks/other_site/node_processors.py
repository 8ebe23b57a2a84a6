"""What node_exporter tells of the processors of a node: modes, scheduling, clocks, load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.other_site.noise import POINT_S, Array, smoothed
from benchmarks.other_site.scrape import Exporter
from benchmarks.other_site.site import Site

MOST_BUSY = 0.98
"""Share of a CPU that user and system take at most."""

N_PACKAGES, N_TOLD_CORES = 2, 4


@dataclass(frozen=True, slots=True)
class Load:
    """What other sections need to know, for each point.

    Parameters
    ----------
    busy, waiting
        CPUs in user or system mode; CPUs that wait for a disk.
    """

    busy: Array
    waiting: Array


@dataclass(frozen=True, slots=True)
class _Modes:
    """CPUs in each mode, over all CPUs of the node."""

    user: Array
    system: Array
    waiting: Array
    interrupts: Array


def tell_processors(site: Site, n: int, exporter: Exporter) -> Load:
    """Write the series of the processors and return their load."""
    noise, host, n_cpus = site.noise, site.host, site.hardware.n_cpus
    idle_user = 0.35 * noise.factor(0.15)
    user = idle_user + host.cpu_user[n] / np.sqrt(host.cpu_clock[n]) + noise.bursts((), 0.02, 0.5)
    user = np.clip(user, 0, n_cpus * 0.97)
    system = np.clip(0.15 * noise.factor(0.15) + host.cpu_system[n], 0, n_cpus)
    waiting = np.clip(0.01 + host.cpu_waiting[n] + noise.bursts((), 0.01, 0.05), 0, n_cpus)
    interrupts = 0.03 + host.cpu_interrupts[n] + (host.received[n] / 1.2e10)
    modes = _Modes(user, system, waiting, interrupts)
    for cpu, share_of_packets, of_cpu in _each_cpu(site, modes):
        _tell_cpu(site, n, exporter, str(cpu), share_of_packets, of_cpu)
    _tell_throttles(site, n, exporter)
    load = Load(user + system, waiting)
    _tell_load(site, n, exporter, load)
    return load


def _each_cpu(site: Site, modes: _Modes) -> Iterator[tuple[int, np.float64, _Modes]]:
    """Yield the number of each CPU, its share of the packets, and its share of the modes."""
    n_cpus = site.hardware.n_cpus
    fixed = site.rng.dirichlet(np.full(n_cpus, 12.0))
    shares = fixed[:, None] * np.exp(site.noise.wander((n_cpus,), 30, 0.25))
    shares /= shares.sum(0)
    for cpu in range(n_cpus):
        user = np.minimum(modes.user * shares[cpu], MOST_BUSY)
        system = np.minimum(modes.system * shares[cpu], MOST_BUSY - user)
        waiting = np.minimum(modes.waiting * shares[cpu], np.maximum(1 - user - system, 0))
        interrupts = np.minimum(modes.interrupts * fixed[(cpu + 3) % n_cpus], 0.3)
        yield cpu, fixed[cpu], _Modes(user, system, waiting, interrupts)


def _tell_cpu(
    site: Site, n: int, exporter: Exporter, cpu: str, share_of_packets: np.float64, modes: _Modes
) -> None:
    noise, received, zero = site.noise, site.host.received[n], site.zeros()
    nice = 0.0008 * site.ones()
    idle = np.maximum(1 - modes.user - modes.system - modes.waiting - modes.interrupts - nice, 0)
    for mode, rate in {
        "user": modes.user,
        "system": modes.system,
        "iowait": modes.waiting,
        "irq": zero,
        "softirq": modes.interrupts,
        "nice": nice,
        "steal": zero,
        "idle": idle,
    }.items():
        exporter.counter("node_cpu_seconds_total", {"cpu": cpu, "mode": mode}, rate, decimals=2)
    labels = {"cpu": cpu}
    running = modes.user + modes.system
    exporter.counter("node_schedstat_running_seconds_total", labels, running, decimals=6)
    waits = 0.02 * running + 0.25 * np.maximum(running - 0.7, 0) + noise.bursts((), 0.01, 0.01)
    exporter.counter("node_schedstat_waiting_seconds_total", labels, waits, decimals=6)
    exporter.counter("node_schedstat_timeslices_total", labels, 300 + 900 * running, whole=True)
    wanted = np.clip(running * 1.4 + 0.15 * noise.normal(), 0, 1)
    clock_khz = np.round((2.0e9 + 1.4e9 * wanted) * site.host.cpu_clock[n] / 1e3)
    exporter.gauge("node_cpu_scaling_frequency_hertz", labels, clock_khz * 1e3)
    packets = 40 + received / 6000 * share_of_packets
    exporter.counter("node_softnet_processed_total", labels, packets, whole=True)
    exporter.counter("node_softnet_dropped_total", labels, zero, start=0)
    exporter.counter("node_softnet_times_squeezed_total", labels, 1e-3 + received / 1e12, whole=True)


def _tell_throttles(site: Site, n: int, exporter: Exporter) -> None:
    rate = site.host.cpu_throttles[n]
    for package in range(N_PACKAGES):
        labels = {"package": str(package)}
        exporter.counter("node_cpu_package_throttles_total", labels, rate, whole=True, start=0)
        for core in range(N_TOLD_CORES):
            of_core = {**labels, "core": str(core)}
            exporter.counter("node_cpu_core_throttles_total", of_core, rate * 0.6, whole=True, start=0)


def _tell_load(site: Site, n: int, exporter: Exporter, load: Load) -> None:
    noise, rng, host, busy = site.noise, site.rng, site.host, load.busy
    queue = busy * 1.15 + host.blocked[n] + load.waiting
    for minutes in (1, 5, 15):
        share = 1 - np.exp(-POINT_S / (60 * minutes))
        averaged = smoothed(queue * (1 + 0.1 * noise.normal()), share, before=queue[0])
        exporter.gauge(f"node_load{minutes}", {}, averaged, decimals=2)
    exporter.gauge("node_procs_running", {}, 1 + rng.poisson(np.maximum(busy, 0)))
    blocked = rng.poisson(np.maximum(host.blocked[n] + load.waiting * 0.5, 0))
    exporter.gauge("node_procs_blocked", {}, blocked)
    switches = (9000 + 11000 * busy) * noise.factor(0.05) * (1 + noise.wander((), 20, 0.04))
    exporter.counter("node_context_switches_total", {}, switches, whole=True)
    interrupts = 6000 + 7000 * busy + host.received[n] / 9000
    interrupts = interrupts * noise.factor(0.05) * (1 + noise.wander((), 20, 0.04))
    exporter.counter("node_intr_total", {}, interrupts, whole=True)
    forks = 2.5 * noise.factor(0.1) * host.forks[n] + 0.5
    exporter.counter("node_forks_total", {}, forks, whole=True)

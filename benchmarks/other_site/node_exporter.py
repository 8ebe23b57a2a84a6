"""What node_exporter tells of a node; the sections are in the order in which they draw from the noise."""

from __future__ import annotations

import numpy as np

from benchmarks.other_site.hardware import GIB
from benchmarks.other_site.node_devices import tell_disks, tell_file_systems, tell_rdma
from benchmarks.other_site.node_network import tell_network
from benchmarks.other_site.node_processors import Load, tell_processors
from benchmarks.other_site.noise import POINT_S, Array, in_pages, smoothed
from benchmarks.other_site.scrape import Exporter
from benchmarks.other_site.site import Site

DAY_S = 86400

COLLECTORS = (
    *(
        "arp",
        "bcache",
        "bonding",
        "btrfs",
        "conntrack",
        "cpu",
        "cpufreq",
        "diskstats",
        "dmi",
        "edac",
        "entropy",
    ),
    *("fibrechannel", "filefd", "filesystem", "hwmon", "infiniband", "ipvs", "loadavg", "mdadm", "meminfo"),
    *("netclass", "netdev", "netstat", "nfs", "nfsd", "nvme", "os", "powersupplyclass", "pressure", "rapl"),
    *("schedstat", "selinux", "sockstat", "softnet", "stat", "tapestats", "textfile", "thermal_zone", "time"),
    *("timex", "udp_queues", "uname", "vmstat", "xfs", "zfs"),
)
FAILING_COLLECTORS = frozenset({"bonding", "fibrechannel", "ipvs", "mdadm", "nfsd", "tapestats", "zfs"})
"""Those that find nothing on these nodes."""


def tell_node(site: Site, n: int, exporter: Exporter) -> None:
    """Write all series of the node_exporter of node `n`."""
    _tell_system(site, n, exporter)
    load = tell_processors(site, n, exporter)
    memory_pressure = _tell_memory(site, n, exporter, load)
    _tell_pressure(site, exporter, load, memory_pressure)
    tell_disks(site, n, exporter)
    tell_file_systems(site, n, exporter)
    tell_network(site, n, exporter)
    tell_rdma(site, n, exporter)
    _tell_time(site, n, exporter)
    _tell_sensors(site, n, exporter, load)
    _tell_corrected_errors(site, n, exporter)
    _tell_collectors(site, exporter)
    _tell_process(site, n, exporter)


def _tell_system(site: Site, n: int, exporter: Exporter) -> None:
    system = {
        "nodename": site.full_names[n],
        "sysname": "Linux",
        "release": "5.15.0-122-generic",
        "machine": "x86_64",
        "domainname": "(none)",
        "version": "#132-Ubuntu SMP",
    }
    exporter.gauge("node_uname_info", system, site.ones())
    booted = np.full(site.n_points, site.start - int(site.rng.uniform(5, 90) * DAY_S), float)
    for point in site.boots[n]:
        booted[point:] = site.start + point * POINT_S - 150
    exporter.gauge("node_boot_time_seconds", {}, booted)
    now = site.start + np.arange(site.n_points) * POINT_S + site.host.time_offset[n]
    exporter.gauge("node_time_seconds", {}, now, decimals=3)


def _tell_memory(site: Site, n: int, exporter: Exporter, load: Load) -> Array:
    """Write the series of the memory and return its pressure, 0 to 1."""
    noise, host, flat = site.noise, site.host, site.ones()
    total = site.hardware.memory_bytes * (1 + 0.00001 * site.rng.integers(0, 5))
    used = 14 * GIB * noise.factor(0.06) + host.memory[n] + noise.wander((), 200, 0.25 * GIB)
    shared = 0.4 * GIB * noise.factor(0.1) + host.shared_memory[n]
    read, written = host.disk_read[n].sum(0), host.disk_written[n].sum(0)
    cached = np.cumsum((read + written) * 0.02) * POINT_S * 0.2
    cache = 0.30 * total * noise.factor(0.12) + host.cache[n] + cached
    cache = np.clip(cache, 0, np.maximum(total - used - shared - 6 * GIB, 1 * GIB))
    free = np.maximum(total - used - cache - shared, 0.8 * GIB) + noise.wander((), 30, 0.05 * GIB)
    slab = 6 * GIB * noise.factor(0.1) + noise.wander((), 600, 0.1 * GIB)
    active_file = cache * 0.55
    dirty = 3e6 + written * 4 * noise.uniform()
    buffers, writeback = 1.1 * GIB * noise.factor(0.2), written * 0.02 * noise.uniform()
    for name, values in {
        "MemTotal": flat * total,
        "MemFree": free,
        "MemAvailable": free + cache * 0.93,
        "Buffers": np.full(site.n_points, buffers),
        "Cached": cache + shared,
        "Active": used * 0.2 + active_file,
        "Inactive": used * 0.8 + cache - active_file,
        "Active_anon": shared * 0.3 + 0.02 * used,
        "Inactive_anon": used * 0.97 + shared * 0.7,
        "Active_file": active_file,
        "Inactive_file": cache - active_file,
        "Unevictable": flat * 24e6,
        "Mlocked": flat * 24e6,
        "SwapTotal": site.zeros(),
        "SwapFree": site.zeros(),
        "SwapCached": site.zeros(),
        "Dirty": dirty,
        "Writeback": writeback,
        "AnonPages": used * 0.97,
        "Mapped": 2.5 * GIB + shared * 0.8,
        "Shmem": shared,
        "KReclaimable": slab * 0.7,
        "Slab": slab,
        "SReclaimable": slab * 0.7,
        "SUnreclaim": slab * 0.3,
        "KernelStack": flat * 45e6 + 0.4e6 * load.busy,
        "PageTables": used * 0.0021,
        "Committed_AS": used * 1.6 + shared,
        "VmallocUsed": flat * 1.3 * GIB,
        "Percpu": flat * 90e6,
        "HardwareCorrupted": site.zeros(),
        "AnonHugePages": used * 0.5,
    }.items():
        exporter.gauge(f"node_memory_{name}_bytes", {}, in_pages(values))
    pressure = np.clip(1 - (free + cache) / (0.05 * total), 0, 1)
    exporter.counter("node_vmstat_oom_kill", {}, host.memory_kills[n], start=0)
    faults = (12000 + 9000 * load.busy) * noise.factor(0.08)
    faults = faults * (1 + noise.wander((), 20, 0.1)).clip(0.2)
    exporter.counter("node_vmstat_pgfault", {}, faults, whole=True)
    major_faults = 0.15 + noise.bursts((), 0.01, 3) + 400 * pressure
    exporter.counter("node_vmstat_pgmajfault", {}, major_faults, whole=True)
    exporter.counter("node_vmstat_pgpgin", {}, read / 1024 + 5, whole=True)
    exporter.counter("node_vmstat_pgpgout", {}, written / 1024 + 250, whole=True)
    exporter.counter("node_vmstat_pswpin", {}, site.zeros(), start=0)
    exporter.counter("node_vmstat_pswpout", {}, site.zeros(), start=0)
    return np.asarray(pressure)


def _tell_pressure(site: Site, exporter: Exporter, load: Load, memory_pressure: Array) -> None:
    share = load.busy / site.hardware.n_cpus
    for_cpu = np.clip(0.004 + 0.03 * share + 1.2 * np.maximum(share - 0.6, 0), 0, 1)
    for_disk = np.clip(load.waiting / 2.5 + 0.001, 0, 1)
    for name, rate in {
        "cpu_waiting": for_cpu,
        "io_waiting": for_disk,
        "io_stalled": for_disk * 0.7,
        "memory_waiting": memory_pressure * 0.3,
        "memory_stalled": memory_pressure * 0.2,
    }.items():
        exporter.counter(f"node_pressure_{name}_seconds_total", {}, rate, decimals=6)


def _tell_time(site: Site, n: int, exporter: Exporter) -> None:
    noise, error = site.noise, site.host.time_error[n]
    offset = site.host.time_offset[n] + noise.wander((), 60, 3e-5)
    exporter.gauge("node_timex_offset_seconds", {}, offset, decimals=9)
    most = 0.03 + 0.02 * noise.uniform() + error
    exporter.gauge("node_timex_maxerror_seconds", {}, most, decimals=6)
    estimated = 1e-5 + 2e-5 * noise.uniform() + error * 0.02
    exporter.gauge("node_timex_estimated_error_seconds", {}, estimated, decimals=6)
    adjustment = 1 + site.rng.normal(0, 8e-6) + noise.wander((), 600, 2e-8)
    exporter.gauge("node_timex_frequency_adjustment_ratio", {}, adjustment, decimals=12)
    exporter.gauge("node_timex_sync_status", {}, site.host.is_time_synchronised[n])


def _tell_sensors(site: Site, n: int, exporter: Exporter, load: Load) -> None:
    noise, rng, host = site.noise, site.rng, site.host
    inlet = 25 + host.heat[n] + rng.normal(0, 1)
    for package in range(2):
        settled = inlet + 12 + 40 * load.busy / site.hardware.n_cpus * host.cpu_clock[n]
        of_package = smoothed(settled, 0.1)
        for sensor in range(1, 5):
            labels = {"chip": f"platform_coretemp_{package}", "sensor": f"temp{sensor}"}
            temperature = of_package + rng.normal(0, 1.5) + 0.8 * noise.normal()
            exporter.gauge("node_hwmon_temp_celsius", labels, temperature)
    for disk in range(2):
        used = np.clip((host.disk_read[n, disk] + host.disk_written[n, disk]) / 3e8, 0, 2)
        temperature = inlet + 11 + rng.normal(0, 1) + 3 * used + noise.wander((), 300, 0.4)
        labels = {"chip": f"nvme_nvme{disk}", "sensor": "temp1"}
        exporter.gauge("node_hwmon_temp_celsius", labels, temperature, decimals=2)


def _tell_corrected_errors(site: Site, n: int, exporter: Exporter) -> None:
    for controller in range(4):
        labels = {"controller": str(controller)}
        rate = site.host.corrected_errors[n] if controller == 2 else site.zeros()
        exporter.counter("node_edac_correctable_errors_total", labels, rate, whole=True, start=0)
        exporter.counter("node_edac_uncorrectable_errors_total", labels, site.zeros(), start=0)


def _tell_collectors(site: Site, exporter: Exporter) -> None:
    noise = site.noise
    for name in COLLECTORS:
        labels = {"collector": name}
        fails = name in FAILING_COLLECTORS or (name == "infiniband" and not site.hardware.rdma_ports)
        exporter.gauge("node_scrape_collector_success", labels, site.zeros() if fails else site.ones())
        usual_s = 0.0008 * noise.factor(0.9)
        took_s = usual_s * np.exp(0.3 * noise.normal()) + noise.bursts((), 0.01, 0.003)
        exporter.gauge("node_scrape_collector_duration_seconds", labels, took_s, decimals=9)


def _tell_process(site: Site, n: int, exporter: Exporter) -> None:
    """Write what the exporter tells of its own process; these counters begin again when it starts."""
    noise, rng, flat, starts = site.noise, site.rng, site.ones(), site.exporter_starts[n]

    def gauge(name: str, values: Array, decimals: int | None = None) -> None:
        exporter.gauge(name, {}, values, decimals=decimals)

    def counter(name: str, rate: Array, decimals: int | None = None, **labels: str) -> None:
        total = noise.counter(rate, 1e5 * float(np.mean(rate)), starts)
        exporter.gauge(name, labels, total, decimals=decimals)

    heap = 5e6 * noise.factor(0.1) * (1 + 0.35 * noise.uniform())
    started = np.full(site.n_points, site.start - rng.integers(DAY_S, 40 * DAY_S), float)
    for point in starts:
        started[point:] = site.start + point * POINT_S
    gauge("process_start_time_seconds", started, 2)
    cpu = np.full(site.n_points, 0.006 * 15 / site.step_s * noise.factor(0.1))
    counter("process_cpu_seconds_total", cpu, 2)
    gauge("process_open_fds", 9 + rng.integers(0, 3, site.n_points))
    gauge("process_resident_memory_bytes", in_pages(2.3e7 * noise.factor(0.04) + noise.wander((), 600, 3e5)))
    gauge("process_virtual_memory_bytes", flat * 1273798656)
    gauge("go_goroutines", 8 + rng.integers(0, 2, site.n_points))
    gauge("go_threads", np.full(site.n_points, 12 + rng.integers(0, 6)))
    gauge("go_memstats_alloc_bytes", heap)
    gauge("go_memstats_heap_alloc_bytes", heap)
    gauge("go_memstats_heap_inuse_bytes", heap * 1.4)
    gauge("go_memstats_heap_objects", heap / 130)
    gauge("go_memstats_heap_idle_bytes", 1.1e7 - heap * 0.9)
    gauge("go_memstats_heap_released_bytes", 3e6 * noise.factor(0.2) * flat)
    gauge("go_memstats_sys_bytes", 2.0e7 * noise.factor(0.05) * flat)
    gauge("go_memstats_next_gc_bytes", 9e6 * noise.factor(0.03) + noise.wander((), 60, 1e5))
    counter("go_memstats_alloc_bytes_total", 3e5 * (1 + 0.1 * noise.uniform()))
    counter("go_memstats_mallocs_total", 3000 * flat)
    counter("go_memstats_frees_total", 3000 * flat)
    counter("go_gc_duration_seconds_sum", 1e-5 * (0.5 + noise.uniform()), 9)
    counter("go_gc_duration_seconds_count", 0.05 * flat)
    counter("promhttp_metric_handler_requests_total", flat / site.step_s, code="200")
    gauge("promhttp_metric_handler_requests_in_flight", flat)

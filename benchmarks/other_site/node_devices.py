"""What node_exporter tells of the disks, file systems and RDMA ports of a node."""

from __future__ import annotations

import numpy as np

from benchmarks.other_site.hardware import DISKS, GIB, SYSTEM_DISK
from benchmarks.other_site.noise import POINT_S, Array, in_pages
from benchmarks.other_site.scrape import Exporter
from benchmarks.other_site.site import PORT_ACTIVE, Site

ROOT_BYTES, DATA_BYTES = 437 * GIB, 27900 * GIB

PORT_ERRORS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_errors_received",
    "port_discards_transmitted",
    "local_link_integrity_errors",
    "port_receive_remote_physical_errors",
)
"""Counters of errors of an InfiniBand port."""


def tell_disks(site: Site, n: int, exporter: Exporter) -> None:
    """Write the series of the disks."""
    for disk, device in enumerate(DISKS):
        _tell_disk(site, n, exporter, disk, device)


def _tell_disk(site: Site, n: int, exporter: Exporter, disk: int, device: str) -> None:
    noise, host, is_system = site.noise, site.host, disk == SYSTEM_DISK
    labels, zero, latency = {"device": device}, site.zeros(), host.disk_latency[n, disk]
    read = host.disk_read[n, disk] + 2e3 + noise.bursts((), 0.02, 2e4)
    usual = (9e5 if is_system else 8e4) * noise.factor(0.15)
    ordinary = usual * (1 + noise.wander((), 30, 0.3)).clip(0.1)
    written = host.disk_written[n, disk] + ordinary + noise.bursts((), 0.03, 1e6)
    reads, writes = read / 120e3, written / 40e3
    read_s = reads * (0.00035 * latency * noise.factor(0.1))
    write_s = writes * (0.00006 * latency * noise.factor(0.1))
    queue = read_s + write_s
    used = np.clip(0.6 * queue / (1 + 0.6 * queue) + 0.001, 0, 1)

    def counter(name: str, rate: Array, decimals: int | None = None, *, whole: bool = False) -> None:
        exporter.counter(f"node_disk_{name}_total", labels, rate, decimals=decimals, whole=whole)

    counter("reads_completed", reads, whole=True)
    counter("reads_merged", reads * 0.02, whole=True)
    counter("read_bytes", np.round(read))
    counter("read_time_seconds", read_s, 3)
    counter("writes_completed", writes, whole=True)
    counter("writes_merged", writes * 0.6, whole=True)
    counter("written_bytes", np.round(written))
    counter("write_time_seconds", write_s, 3)
    exporter.gauge("node_disk_io_now", labels, site.rng.poisson(np.minimum(queue, 200)))
    counter("io_time_seconds", used, 3)
    counter("io_time_weighted_seconds", queue, 3)
    for name in ("discards_completed", "discarded_sectors", "discard_time_seconds"):
        exporter.counter(f"node_disk_{name}_total", labels, zero, start=0)
    flushes = 1.5 if is_system else 0.05
    counter("flush_requests", flushes * site.ones(), whole=True)
    counter("flush_requests_time_seconds", 0.0006 * latency * flushes, 3)


def tell_file_systems(site: Site, n: int, exporter: Exporter) -> None:
    """Write the series of the root and the data file system."""
    rng = site.rng
    grown = np.arange(site.n_points) * 2e3
    root = np.minimum(rng.uniform(0.25, 0.55) * ROOT_BYTES + site.host.root_used[n] + grown, ROOT_BYTES)
    kept = np.cumsum(site.host.disk_written[n, 1]) * POINT_S * 0.3
    data = rng.uniform(0.2, 0.7) * DATA_BYTES + kept
    for device, mount, kind, size, used, reserved in (
        ("/dev/nvme0n1p2", "/", "ext4", ROOT_BYTES, root, 0.04),
        ("/dev/nvme1n1", "/raid", "xfs", DATA_BYTES, data, 0.0),
    ):
        labels = {"device": device, "fstype": kind, "mountpoint": mount}
        exporter.gauge("node_filesystem_size_bytes", labels, np.full(site.n_points, size))
        exporter.gauge("node_filesystem_free_bytes", labels, in_pages(size - used))
        available = in_pages((size - used) * 0.99 - reserved * size)
        exporter.gauge("node_filesystem_avail_bytes", labels, available)
        exporter.gauge("node_filesystem_files", labels, np.full(site.n_points, 29163520))
        free_files = (
            28_500_000 - rng.integers(0, 900_000) - np.cumsum(site.noise.uniform() < 0.01) - used / 8e5
        )
        exporter.gauge("node_filesystem_files_free", labels, free_files)
        exporter.gauge("node_filesystem_readonly", labels, site.zeros())
        exporter.gauge("node_filesystem_device_error", {**labels, "device_error": ""}, site.zeros())


def tell_rdma(site: Site, n: int, exporter: Exporter) -> None:
    """Write the series of the RDMA ports."""
    for port, device in enumerate(site.hardware.rdma_ports):
        labels = {"device": device, "port": "1"}
        _tell_port_traffic(site, n, exporter, port, labels)
        _tell_port_errors(site, n, exporter, port, labels)


def _tell_port_traffic(site: Site, n: int, exporter: Exporter, port: int, labels: dict[str, str]) -> None:
    noise, rdma = site.noise, site.rdma
    is_active = rdma.state[n, port] == PORT_ACTIVE
    sent = rdma.traffic[n, port] * is_active
    received = sent * noise.factor(0.004)

    def counter(name: str, rate: Array, *, whole: bool = False) -> None:
        exporter.counter(f"node_infiniband_port_{name}_total", labels, rate, whole=whole)

    counter("data_received_bytes", np.round(received) + 200)
    counter("data_transmitted_bytes", np.round(sent) + 200)
    counter("packets_received", sent / 4096 + 1, whole=True)
    counter("packets_transmitted", sent / 4096 + 1, whole=True)
    waits = sent * 0.002 * np.exp(noise.wander((), 60, 0.5)) * noise.factor(0.3) * rdma.wait_factor[n, port]
    counter("transmit_wait", waits + noise.bursts((), 0.02, 2e5) * (sent > 1e6))
    exporter.gauge("node_infiniband_rate_bytes_per_second", labels, rdma.bytes_per_s[n, port])
    exporter.gauge("node_infiniband_state_id", labels, rdma.state[n, port])
    exporter.gauge("node_infiniband_physical_state_id", labels, np.where(is_active, 5, 2))


def _tell_port_errors(site: Site, n: int, exporter: Exporter, port: int, labels: dict[str, str]) -> None:
    rng = site.rng
    for name in PORT_ERRORS:
        rate = site.rdma.errors.get((n, port, name), site.zeros())
        if name == "symbol_error" and rng.random() < 0.03:
            rate = rate + 1e-4
        start = int(rng.integers(0, 3)) if rng.random() < 0.2 else 0
        exporter.counter(f"node_infiniband_{name}_total", labels, rate, whole=True, start=start)

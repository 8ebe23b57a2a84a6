"""Everyday events: what goes on at a site without anything being wrong."""

from __future__ import annotations

import numpy as np

from benchmarks.other_site.hardware import GIB, SYSTEM_DISK
from benchmarks.other_site.site import Site


def scheduled_jobs(site: Site, every: float = 15) -> None:
    """Run the same short cron job on every node, some seconds apart; minutes between two runs."""
    for n in site.nodes:
        minute = site.rng.uniform(0, 0.15)
        while minute < site.minutes:
            points = site.between(minute, minute + site.rng.uniform(0.15, 0.5))
            site.host.cpu_user[n, points] += 0.8
            site.host.forks[n, points] += 25
            site.host.disk_written[n, SYSTEM_DISK, points] += 2e6
            minute += every


def package_update(site: Site, node: int, start: float) -> None:
    """Install packages on one node for some minutes."""
    minutes = site.rng.uniform(2, 4)
    points = site.between(start, start + minutes)
    site.host.cpu_user[node, points] += 1.1
    site.host.disk_written[node, SYSTEM_DISK, points] += 45e6
    site.host.disk_read[node, SYSTEM_DISK, points] += 8e6
    site.host.received[node, points] += 6e6
    site.host.forks[node, points] += 60
    site.host.cpu_waiting[node, points] += 0.15
    site.host.root_used[node, points.start :] += 0.4 * GIB
    site.label_benign("package update", node, start, start + minutes)


def log_rotation(site: Site, start: float) -> None:
    """Rotate and compress the logs of every node within a minute."""
    for n in site.nodes:
        minute = start + site.rng.uniform(0, 0.8)
        points = site.between(minute, minute + site.rng.uniform(0.3, 1.2))
        site.host.cpu_user[n, points] += 0.9
        site.host.disk_read[n, SYSTEM_DISK, points] += 30e6
        site.host.disk_written[n, SYSTEM_DISK, points] += 12e6
        site.host.root_used[n, points.start :] -= site.rng.uniform(0.2, 1.5) * GIB
    site.label_benign("log rotation", None, start, start + 2)


def backup(site: Site, node: int, start: float, minutes: float) -> None:
    """Copy a backup to one node."""
    points = site.between(start, start + minutes)
    n = site.host.received[node, points].size
    site.host.received[node, points] += 95e6 * (1 + 0.2 * site.rng.standard_normal(n)).clip(0.2)
    written = 90e6 * (1 + 0.3 * site.rng.standard_normal(n)).clip(0.1)
    site.host.disk_written[node, SYSTEM_DISK, points] += written
    site.host.cpu_user[node, points] += 0.5
    site.host.cpu_system[node, points] += 0.35
    site.host.cpu_waiting[node, points] += 0.2
    site.host.cache[node, points] += np.linspace(0, 60 * GIB, n)
    site.host.cache[node, points.stop :] += 60 * GIB
    site.host.root_used[node, points] += np.linspace(0, 80 * GIB, n)
    site.host.root_used[node, points.stop :] += 80 * GIB
    site.label_benign("backup traffic", node, start, start + minutes)


def interactive_session(site: Site, node: int, start: float, minutes: float) -> None:
    """Let somebody work on a node by hand."""
    points = site.between(start, start + minutes)
    n = site.host.cpu_user[node, points].size
    site.host.cpu_user[node, points] += 0.4 * site.rng.random(n)
    site.host.memory[node, points] += 2.5 * GIB
    site.host.forks[node, points] += 8
    site.host.sessions[node, points] += 1
    site.label_benign("interactive session", node, start, start + minutes)


def restart_node_exporter(site: Site, node: int, start: float, minutes: float = 0.7) -> None:
    """Restart the node_exporter of a node."""
    site.node_exporter_up[node, site.between(start, start + minutes)] = False
    site.exporter_starts[node].append(site.point(start + minutes))
    site.label_benign("node_exporter restart", node, start, start + minutes)


def restart_dcgm_exporter(site: Site, node: int, start: float, minutes: float = 1.0) -> None:
    """Restart the dcgm-exporter of a node; its counters are the driver's and go on."""
    site.dcgm_exporter_up[node, site.between(start, start + minutes)] = False
    site.label_benign("dcgm-exporter restart", node, start, start + minutes)


def reboot(site: Site, node: int, start: float, minutes: float) -> None:
    """Reboot a node: both exporters are away, and all counters begin again."""
    site.node_exporter_up[node, site.between(start, start + minutes)] = False
    site.dcgm_exporter_up[node, site.between(start - 0.5, start + minutes + 1.2)] = False
    point = site.point(start + minutes)
    site.exporter_starts[node].append(point)
    site.boots[node].append(point)

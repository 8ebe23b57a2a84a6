"""Stories of cases with faults of networks, disks, processors, memory, clocks and fans."""

from __future__ import annotations

import numpy as np

from benchmarks.other_site.events import (
    backup,
    interactive_session,
    log_rotation,
    package_update,
    restart_node_exporter,
    scheduled_jobs,
)
from benchmarks.other_site.hardware import GIB, SYSTEM_DISK
from benchmarks.other_site.jobs import serve, slow_down, stop, train
from benchmarks.other_site.noise import POINT_S, POINTS_PER_MINUTE
from benchmarks.other_site.site import PORT_DOWN, Site


def flapping_port(site: Site) -> None:
    """Let an InfiniBand port go down for some seconds every few minutes; the job stands still meanwhile."""
    job = train(site, site.nodes, "llama70b", n_stages=2)
    scheduled_jobs(site)
    package_update(site, 30, 50)
    downed, symbol, recovery = site.zeros(), site.zeros(), site.zeros()
    minute = 28.0
    while minute < 70:
        minutes = site.rng.uniform(0.15, 0.5)
        points = site.between(minute, minute + minutes)
        site.rdma.state[17, 4, points] = PORT_DOWN
        downed[points.start] = 1 / POINT_S
        recovery[points.stop - 1] = 0.4
        symbol[site.between(minute - 0.5, minute + minutes + 0.3)] = 4
        slow_down(job, site.between(minute, minute + minutes + 0.4), 0.05)
        minute += site.rng.uniform(3, 7)
    site.rdma.errors[17, 4, "link_downed"] = downed
    site.rdma.errors[17, 4, "symbol_error"] = symbol
    site.rdma.errors[17, 4, "link_error_recovery"] = recovery
    site.label_fault(17, "ib_port_flap", 28, part="mlx5_6", severity="large")


def half_width_port(site: Site) -> None:
    """Let an InfiniBand port train to half its rate."""
    job = train(site, range(60), "gpt-pre", checkpoint_every=25)
    scheduled_jobs(site)
    points = site.between(40)
    site.rdma.bytes_per_s[41, 2, points] = 2.5e10
    site.rdma.wait_factor[41, 2, points] = 14
    slow_down(job, points, 0.88)
    recovery = site.zeros()
    recovery[points.start] = 0.2
    site.rdma.errors[41, 2, "link_error_recovery"] = recovery
    site.label_fault(41, "nic_slow", 40, part="mlx5_4", severity="medium")


def roce_errors(site: Site) -> None:
    """Let a RoCE network card receive damaged frames; its peers wait for retransmissions."""
    job = train(site, range(16), "vit-l")
    serve(site, range(16, 22))
    scheduled_jobs(site, 10)
    points = site.between(30, 65)
    errors = site.zeros()
    rate = 1 + 0.6 * site.rng.standard_normal(points.stop - points.start)
    errors[points] = 3 * rate.clip(0)
    site.host.receive_errors[9, "ens2f0np0"] = errors
    site.rdma.errors[9, 1, "port_errors_received"] = errors * 0.9
    site.rdma.wait_factor[[8, 10], 1, points] = 4
    slow_down(job, points, 0.75)
    site.label_fault(9, "nic_errors", 30, 65, part="ens2f0np0", severity="medium")


def lossy_network(site: Site) -> None:
    """Let a node lose TCP segments where jobs talk over sockets."""
    job = train(site, site.nodes, "mistral-ft")
    scheduled_jobs(site)
    package_update(site, 20, 18)
    interactive_session(site, 4, 40, 20)
    points = site.between(35)
    site.host.retransmits[6, points] = 25
    site.host.retransmits[[5, 7], points] = 4
    slow_down(job, points, 0.8)
    site.label_fault(6, "tcp_loss", 35, severity="medium")


def filling_disk(site: Site) -> None:
    """Fill the root file system of a node with a log."""
    train(site, site.nodes, "bert")
    scheduled_jobs(site)
    log_rotation(site, 12)
    points = site.between(30)
    site.host.root_used[2, points] += np.linspace(0, 300 * GIB, points.stop - points.start)
    site.host.disk_written[2, SYSTEM_DISK, points] += 110e6
    site.host.cpu_user[2, points] += 1.2
    site.host.cpu_system[2, points] += 0.5
    site.label_fault(2, "disk_full", 30, part="nvme0n1", severity="medium")


def runaway_process(site: Site) -> None:
    """Let a process that nobody wants take the CPUs of a node."""
    job = train(site, range(16), "llama13b")
    train(site, range(16, 24), "sft", checkpoint_every=9, level=0.7)
    scheduled_jobs(site)
    package_update(site, 2, 48)
    points = site.between(27, 60)
    site.host.cpu_user[11, points] += 9.5
    site.host.cpu_system[11, points] += 0.8
    slow_down(job, points, 0.92)
    site.label_fault(11, "cpu_contention", 27, 60, severity="medium")


def memory_leak(site: Site) -> None:
    """Leak the memory of a node until the kernel kills a process and the job hangs."""
    job = train(site, site.nodes, "moe", n_stages=4, checkpoint_every=30)
    scheduled_jobs(site)
    restart_node_exporter(site, 25, 30)
    points = site.between(22, 62)
    leaked = 0.735 * site.hardware.memory_bytes
    site.host.memory[13, points] += np.linspace(0, leaked, points.stop - points.start)
    killed = points.stop
    site.host.memory_kills[13, killed] = 1 / POINT_S
    stop(site, job, 62, 15, idle_node=13)
    freed = slice(killed, killed + site.point(15))
    site.host.memory[13, freed] -= 0.19 * site.hardware.memory_bytes
    site.label_fault(13, "memory_leak", 22, severity="slow, then large")


def lost_time_service(site: Site) -> None:
    """Let the clock of a node run free: its error grows, and later it is told to be unsynchronised."""
    train(site, site.nodes, "bert")
    scheduled_jobs(site)
    backup(site, 4, 20, 20)
    points = site.between(25)
    age_s = np.arange(points.stop - points.start) * POINT_S
    site.host.time_error[16, points] = age_s * 5e-4
    site.host.time_offset[16, points] = age_s * 9e-6
    site.host.is_time_synchronised[16, site.between(45)] = 0
    site.label_fault(16, "clock", 25, severity="medium")


def failing_fan(site: Site) -> None:
    """Warm everything in a node by 9 degrees; nothing throttles."""
    train(site, site.nodes, "llama70b", evaluate_every=35)
    scheduled_jobs(site)
    package_update(site, 5, 22)
    log_rotation(site, 50)
    points = site.between(36)
    age = np.arange(points.stop - points.start)
    site.host.heat[27, points] = 9 * (1 - np.exp(-age / (4 * POINTS_PER_MINUTE)))
    site.label_fault(27, "fan", 36, severity="subtle")


def low_cpu_clock(site: Site) -> None:
    """Hold the CPU clocks of a node at a third."""
    job = train(site, site.nodes, "gpt-pre", n_stages=4)
    scheduled_jobs(site)
    package_update(site, 12, 60)
    points = site.between(34)
    site.host.cpu_clock[38, points] = 0.36
    site.host.cpu_throttles[38, points] = 0.8
    site.host.cpu_user[38, points] += 0.9
    slow_down(job, points, 0.9)
    site.label_fault(38, "cpu_heat", 34, severity="medium")


def host_memory_errors(site: Site) -> None:
    """Correct a storm of memory errors in a node; nothing slows down."""
    train(site, range(10), "vit-l")
    train(site, range(10, 24), "vit-g", checkpoint_every=17)
    scheduled_jobs(site)
    package_update(site, 7, 15)
    restart_node_exporter(site, 18, 40)
    points = site.between(26, 62)
    site.host.corrected_errors[16, points] = 1.5
    site.host.cpu_system[16, points] += 0.1
    site.label_fault(16, "host_memory", 26, 62, severity="subtle")

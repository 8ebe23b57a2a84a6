"""Stories of cases with faults of GPUs, and of jobs that stop."""

from __future__ import annotations

import numpy as np

from benchmarks.other_site.events import (
    backup,
    interactive_session,
    log_rotation,
    package_update,
    restart_dcgm_exporter,
    scheduled_jobs,
)
from benchmarks.other_site.jobs import WHOLE_NODE, serve, slow_down, slow_gpus, stop, train
from benchmarks.other_site.noise import POINTS_PER_MINUTE
from benchmarks.other_site.site import Site


def hot_gpu(site: Site) -> None:
    """Heat one GPU until it throttles and slows the job down."""
    job = train(site, site.nodes, "llama70b")
    scheduled_jobs(site)
    package_update(site, 3, 15)
    interactive_session(site, 9, 30, 30)
    points = site.between(32)
    n, n_ramp = points.stop - points.start, site.point(5)
    heating = np.concatenate([np.linspace(1, 2, n_ramp), np.full(n - n_ramp, 2.0)])
    site.gpu.heating[14, 6, points] = heating
    slow_gpus(site, job, 14, [6], 35, None, 0.78, ramp_minutes=4)
    site.label_fault(14, "thermal", 32, part="gpu 6", severity="medium")


def power_brake(site: Site) -> None:
    """Take a power supply from a node: all its GPUs brake."""
    job = train(site, site.nodes, "gpt-pre", checkpoint_every=15)
    scheduled_jobs(site)
    restart_dcgm_exporter(site, 2, 11)
    slow_gpus(site, job, 5, range(8), 25, None, 0.42)
    site.label_fault(5, "power_cap", 25, severity="large")


def no_nvlink_after_restart(site: Site) -> None:
    """Start a job again with one node whose GPUs talk over PCIe instead of NVLink."""
    job = train(site, site.nodes, "moe", runs=[(-60, 34), (38, None)], n_stages=4)
    scheduled_jobs(site)
    backup(site, 7, 20, 25)
    log_rotation(site, 12)
    points = site.between(38)
    site.gpu.nvlink_factor[22, :, points] = 0.004
    site.gpu.pcie_factor[22, :, points] = 9
    site.host.cpu_system[22, points] += 1.0
    slow_down(job, points, 0.6)
    site.label_fault(22, "nvlink_fabric", 41.5, severity="large")


def narrow_pcie(site: Site) -> None:
    """Let one GPU's PCIe link replay packets."""
    job = train(site, site.nodes, "vit-h")
    scheduled_jobs(site, 20)
    log_rotation(site, 18)
    points = site.between(38)
    site.gpu.replays[15, 2, points] = 1.1
    site.gpu.pcie_factor[15, 2, points] = 0.9
    slow_down(job, points, 0.9)
    own = np.ones(site.n_points, np.float32)
    own[points] = 0.97
    job.work_factors[15, 2] = own
    site.label_fault(15, "pcie", 38, part="gpu 2", severity="subtle")


def failing_memory(site: Site) -> None:
    """Remap a row (XID 63), then lose data (XID 94): the job dies and starts again."""
    job = train(site, site.nodes, "gpt-pre", checkpoint_every=25)
    scheduled_jobs(site)
    first, second = site.between(28), site.between(46)
    site.gpu.xid[50, 3, first] = 63
    site.gpu.remapped_correctable[50, 3, first] = 1
    site.gpu.xid[50, 3, second] = 94
    site.gpu.remapped_uncorrectable[50, 3, second] = 1
    stop(site, job, 46, 4, idle_node=50, idle_gpus=[3], restart=55)
    site.label_fault(50, "gpu_memory", 28, part="gpu 3", severity="direct")


def lost_gpu(site: Site) -> None:
    """Let a GPU fall off the bus (XID 79); its series end soon after."""
    job = train(site, range(20), "clip")
    scheduled_jobs(site)
    interactive_session(site, 1, 20, 30)
    lost = site.point(33)
    site.gpu.xid[12, 1, lost:] = 79
    site.gpu.is_present[12, 1, lost + 3 * POINTS_PER_MINUTE // 2 :] = False
    stop(site, job, 33, 10)
    site.label_fault(12, "gpu_lost", 33, part="gpu 1", severity="large")


def hung_process(site: Site) -> None:
    """Hang a process of one node: its GPUs idle, the others spin, and another job goes on."""
    job = train(site, range(28), "llama70b")
    train(site, range(28, site.n_nodes), "eval-suite", checkpoint_every=12, level=0.6)
    scheduled_jobs(site)
    package_update(site, 31, 44)
    stop(site, job, 37, 30, idle_node=21)
    site.host.blocked[21, site.between(37, 67)] += 8
    site.label_fault(21, "hang", 37, 67, severity="large")


def node_without_power(site: Site) -> None:
    """Take the power from a node."""
    job = train(site, site.nodes, "llama70b", n_stages=2)
    scheduled_jobs(site)
    points = site.between(41)
    site.node_exporter_up[19, points] = False
    site.dcgm_exporter_up[19, points] = False
    stop(site, job, 41, 10, restart=56)
    site.label_fault(19, "node_down", 41, severity="large")


def dead_server(site: Site) -> None:
    """Let the inference server of one node answer nothing, beside training nodes."""
    train(site, range(16), "llama13b")
    serve(site, range(16, 24))
    scheduled_jobs(site)
    points = site.between(33, 60)
    for state in (site.gpu.work, site.gpu.busy, site.gpu.nvlink, site.gpu.pcie):
        state[20, :, points] = 0
    site.host.received[20, points] *= 0.03
    site.host.sent[20, points] *= 0.02
    site.host.cpu_user[20, points] *= 0.05
    site.label_fault(20, "inference_hung", 33, 60, severity="medium")


def low_power_limit(site: Site) -> None:
    """Limit the power of one GPU: its clock is 7 % lower."""
    job = train(site, range(36), "llama70b")
    scheduled_jobs(site)
    interactive_session(site, 12, 30, 40)
    slow_gpus(site, job, 30, [1], 35, None, 0.93)
    site.label_fault(30, "gpu_slow", 35, part="gpu 1", severity="subtle")


def two_faults(site: Site) -> None:
    """Slow a GPU of one job down, then let a port of another job count errors."""
    first = train(site, range(36), "llama70b")
    second = train(site, range(36, 60), "moe", n_stages=3, checkpoint_every=14)
    scheduled_jobs(site)
    slow_gpus(site, first, 8, [4], 24, 50, 0.72)
    site.label_fault(8, "gpu_slow", 24, 50, part="gpu 4", severity="medium")
    points = site.between(46)
    errors = site.zeros()
    errors[points] = 0.8
    site.rdma.errors[52, 6, "symbol_error"] = errors
    site.rdma.errors[52, 6, "port_errors_received"] = errors * 0.3
    slow_down(second, points, 0.93)
    site.label_fault(52, "ib_errors", 46, part="mlx5_10", severity="subtle")


def dead_exporter(site: Site) -> None:
    """Let a dcgm-exporter die: monitoring is to be told, and no node is to be blamed."""
    train(site, site.nodes, "llama13b")
    scheduled_jobs(site)
    site.dcgm_exporter_up[7, site.between(29)] = False
    site.label_benign("dead dcgm-exporter", 7, 29, site.minutes)
    site.notes = "a monitoring problem is expected, and no suspect"


def starved_by_disk(site: Site) -> None:
    """Slow the data disk of one node down: its loader starves the GPUs."""
    job = train(site, site.nodes, "diffusion", writes_on_first=False)
    scheduled_jobs(site)
    backup(site, 33, 20, 20)
    points = site.between(30, 70)
    site.host.disk_latency[19, 1, points] = 40
    waiting = 1 + 0.3 * site.rng.standard_normal(points.stop - points.start)
    site.host.cpu_waiting[19, points] += 2.5 * waiting.clip(0.1)
    site.host.blocked[19, points] += 4
    slow_down(job, points, 0.72)
    own = np.ones(site.n_points, np.float32)
    own[points] = 0.74
    job.busy_factors[19, WHOLE_NODE] = own
    site.label_fault(19, "disk_slow", 30, 70, part="nvme1n1", severity="medium")

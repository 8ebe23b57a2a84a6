"""The cases: 23 with one fault or two, one with only a dead exporter, and 10 in which nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.other_site import faults_gpu, faults_host, healthy
from benchmarks.other_site.hardware import A100, H100, L40S, Hardware
from benchmarks.other_site.site import Site
from benchmarks.other_site.workload import run_jobs


@dataclass(frozen=True, slots=True)
class OtherCase:
    """A case and the site on which it happens.

    Parameters
    ----------
    name
        Also the seed.
    story
        What happens; its docstring says it in a sentence.
    hardware, n_nodes, step_s, minutes, node_label, zero_xids
        See `Site`.
    """

    name: str
    story: Callable[[Site], None]
    hardware: Hardware
    n_nodes: int
    step_s: int
    minutes: int
    node_label: bool = False
    zero_xids: bool = True


def state_of(case: OtherCase) -> Site:
    """Return the state of the site over the time of a case, all events and jobs in it."""
    site = Site(
        f"b7b-{case.name}",  # as the first version of these cases was seeded: the samples are the same
        case.hardware,
        case.n_nodes,
        case.step_s,
        case.minutes,
        node_label=case.node_label,
        zero_xids=case.zero_xids,
    )
    case.story(site)
    run_jobs(site)
    return site


CASES = (
    OtherCase("f01", faults_gpu.hot_gpu, H100, 24, 30, 80),
    OtherCase("f02", faults_gpu.power_brake, H100, 8, 15, 60),
    OtherCase("f03", faults_gpu.no_nvlink_after_restart, H100, 40, 30, 80, node_label=True),
    OtherCase("f04", faults_host.flapping_port, H100, 40, 30, 75),
    OtherCase("f05", faults_host.half_width_port, H100, 64, 60, 80),
    OtherCase("f06", faults_host.roce_errors, A100, 24, 15, 75, zero_xids=False),
    OtherCase("f07", faults_host.lossy_network, L40S, 24, 30, 75, zero_xids=False),
    OtherCase("f08", faults_gpu.starved_by_disk, H100, 40, 60, 80, node_label=True),
    OtherCase("f09", faults_host.filling_disk, H100, 8, 30, 75),
    OtherCase("f10", faults_host.runaway_process, A100, 24, 15, 70, zero_xids=False),
    OtherCase("f11", faults_host.memory_leak, H100, 40, 30, 85, node_label=True),
    OtherCase("f12", faults_gpu.narrow_pcie, A100, 24, 60, 80, zero_xids=False),
    OtherCase("f13", faults_gpu.failing_memory, H100, 64, 60, 75, node_label=True, zero_xids=False),
    OtherCase("f14", faults_gpu.lost_gpu, A100, 24, 15, 60, zero_xids=False),
    OtherCase("f15", faults_gpu.hung_process, H100, 40, 30, 75),
    OtherCase("f16", faults_gpu.dead_exporter, H100, 24, 30, 60),
    OtherCase("f17", faults_gpu.node_without_power, H100, 24, 30, 75),
    OtherCase("f18", faults_host.lost_time_service, A100, 24, 60, 70, node_label=True, zero_xids=False),
    OtherCase("f19", faults_host.failing_fan, H100, 40, 30, 80),
    OtherCase("f20", faults_gpu.dead_server, A100, 24, 30, 75),
    OtherCase("f21", faults_host.low_cpu_clock, H100, 64, 60, 75),
    OtherCase("f22", faults_gpu.low_power_limit, H100, 40, 30, 75),
    OtherCase("f23", faults_gpu.two_faults, H100, 64, 60, 85),
    OtherCase("f24", faults_host.host_memory_errors, A100, 24, 15, 70, zero_xids=False),
    OtherCase("h01", healthy.ordinary_day, H100, 24, 30, 150),
    OtherCase("h02", healthy.rolling_driver_update, H100, 40, 60, 150),
    OtherCase("h03", healthy.jobs_change, H100, 64, 60, 150, node_label=True),
    OtherCase("h04", healthy.inference_beside_training, L40S, 24, 30, 140, zero_xids=False),
    OtherCase("h05", healthy.small_site, A100, 8, 15, 120),
    OtherCase("h06", healthy.many_small_jobs, A100, 40, 60, 150, zero_xids=False),
    OtherCase("h07", healthy.rolling_exporter_update, H100, 40, 60, 140),
    OtherCase("h08", healthy.restarted_job, H100, 64, 60, 150),
    OtherCase("h09", healthy.drained_node, A100, 24, 30, 120, node_label=True, zero_xids=False),
    OtherCase("h10", healthy.hot_afternoon, H100, 24, 30, 150),
)

"""What the cases of each split are drawn from: published, so that anybody can make them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.metric_sets import story
from simulator.symptoms import GROUPS

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Habits:
    """Ranges of how jobs are laid out and of the habits of clusters; drawn from uniformly.

    Parameters
    ----------
    stages
        Pipeline stages, all equally likely.
    stage_spread, moe, shard_spread
        Size of the differences between stages, of the wandering load of experts, and of the
        differences between shard groups, see `simulator.habits.Workload`.
    moe_tau_min
        Minutes in which the load of experts is forgotten.
    shard_nodes
        Nodes of a shard group, all equally likely.
    second_share
        Share of the nodes that the second of two jobs has.
    rank0_extra
        Extra work of rank 0.
    eval_every_min
        Bounds of the minutes between two evaluations.
    start_stagger_s
        Longest delay until a node begins to load.
    watchdog_min
        Minutes until a stalled job is killed.
    stalls_after_s
        Seconds from the onset of a stalling fault until the whole job waits.
    rack_nodes
        Nodes of a rack, all equally likely.
    rack_heat, slot_heat
        Degrees between racks; factor on the differences between the slots of GPUs.
    tail_scale
        Factor on how often heavy-tailed metrics burst.
    drift
        Size of slow drifts.
    gaps_per_target_day
        Silent times of targets.
    """

    stages: tuple[int, ...]
    stage_spread: tuple[float, float]
    moe: tuple[float, float]
    moe_tau_min: tuple[float, float]
    shard_nodes: tuple[int, ...]
    shard_spread: tuple[float, float]
    second_share: tuple[float, float]
    rank0_extra: tuple[float, float]
    eval_every_min: tuple[float, float]
    start_stagger_s: tuple[float, float]
    watchdog_min: tuple[float, float]
    stalls_after_s: tuple[float, float]
    rack_nodes: tuple[int, ...]
    rack_heat: tuple[float, float]
    slot_heat: tuple[float, float]
    tail_scale: tuple[float, float]
    drift: tuple[float, float]
    gaps_per_target_day: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Split:
    """Ranges of one split; every range is drawn from uniformly.

    Parameters
    ----------
    first_seed
        Seeds of a split are this plus a whole number below a million: no two splits share one.
    nodes
        Training nodes, all equally likely.
    huge_share
        Share of cases with `HUGE_NODES` training nodes.
    severity
        0 (hardly visible) to 1 (drastic).
    node_spread
        Size of the nodes' persistent differences, 1 is usual.
    ib_bytes_per_s
        Traffic of one InfiniBand port.
    benign_per_node_hour
        Bursts of one node that are no fault.
    missed_scrape
        Share of scrapes that fail.
    families
        Metric families of a case.
    """

    first_seed: int
    nodes: tuple[int, ...]
    huge_share: float
    severity: tuple[float, float]
    node_spread: tuple[float, float]
    ib_bytes_per_s: tuple[float, float]
    benign_per_node_hour: tuple[float, float]
    missed_scrape: tuple[float, float]
    families: tuple[int, int]


HUGE_NODES = 512


def _chances(*percent: float) -> dict[str, float]:
    return {group: share / 100 for group, share in zip(GROUPS, percent, strict=True)}


SPLITS: Mapping[str, Split] = {
    "train": Split(
        1_000_000,
        (24, 32, 48, 60, 90),
        0.0,
        (0.12, 0.95),
        (0.75, 1.35),
        (5e9, 1.1e10),
        (0.01, 0.06),
        (0, 8e-4),
        (78, 105),
    ),
    "validation": Split(
        2_000_000,
        (28, 40, 56, 64),
        0.0,
        (0.1, 1.0),
        (0.7, 1.4),
        (6e9, 1.2e10),
        (0.01, 0.07),
        (0, 1e-3),
        (75, 105),
    ),
    "test": Split(
        3_000_000,
        (26, 36, 63, 80, 96, 128),
        0.01,
        (0.0, 1.0),
        (0.6, 1.8),
        (2e9, 1.4e10),
        (0.01, 0.1),
        (0, 2e-3),
        (65, 105),
    ),
}

HABITS: Mapping[str, Habits] = {
    "train": Habits(
        stages=(2, 4, 6),
        stage_spread=(0.08, 0.35),
        moe=(0.02, 0.12),
        moe_tau_min=(15, 60),
        shard_nodes=(3, 4, 8, 10),
        shard_spread=(0.02, 0.12),
        second_share=(0.22, 0.5),
        rank0_extra=(0.1, 1.0),
        eval_every_min=(15, 40),
        start_stagger_s=(0, 50),
        watchdog_min=(8, 30),
        stalls_after_s=(20, 150),
        rack_nodes=(4, 8),
        rack_heat=(1, 3.5),
        slot_heat=(0.7, 1.3),
        tail_scale=(0.8, 5),
        drift=(0.1, 0.5),
        gaps_per_target_day=(0.1, 0.6),
    ),
    "validation": Habits(
        stages=(2, 3, 4, 6),
        stage_spread=(0.08, 0.4),
        moe=(0.02, 0.13),
        moe_tau_min=(15, 80),
        shard_nodes=(4, 7, 8),
        shard_spread=(0.02, 0.15),
        second_share=(0.25, 0.5),
        rank0_extra=(0.1, 1.2),
        eval_every_min=(15, 50),
        start_stagger_s=(0, 60),
        watchdog_min=(8, 35),
        stalls_after_s=(20, 180),
        rack_nodes=(6, 8),
        rack_heat=(1, 4),
        slot_heat=(0.7, 1.4),
        tail_scale=(1, 6),
        drift=(0.1, 0.6),
        gaps_per_target_day=(0.1, 0.8),
    ),
    "test": Habits(
        stages=(2, 3, 4, 5, 6, 8),
        stage_spread=(0.05, 0.5),
        moe=(0.02, 0.16),
        moe_tau_min=(10, 120),
        shard_nodes=(2, 4, 8, 12),
        shard_spread=(0.01, 0.2),
        second_share=(0.2, 0.5),
        rank0_extra=(0.0, 1.5),
        eval_every_min=(12, 70),
        start_stagger_s=(0, 90),
        watchdog_min=(5, 40),
        stalls_after_s=(15, 240),
        rack_nodes=(4, 8, 10),
        rack_heat=(0.5, 5),
        slot_heat=(0.5, 1.7),
        tail_scale=(0.5, 8),
        drift=(0.0, 0.8),
        gaps_per_target_day=(0.05, 1.2),
    ),
}

STRUCTURED_SHARE = 0.5
"""Share of the cases that are no plain job of equal nodes."""

MIXES = (
    ("stages",),
    ("moe",),
    ("shards",),
    ("two jobs",),
    ("stages", "moe"),
    ("shards", "moe"),
    ("two jobs", "stages"),
    ("two jobs", "shards"),
)
"""What such cases have, equally likely."""

JOB_LABEL_SHARE = {"hpc_job": 0.15, "kubernetes": 0.15}
"""Share of them whose GPU series carry the label of a job."""

HABITS_SHARE = 0.6
"""Share of all cases, drawn apart from the structure, that have habits at all."""

HABIT_SHARE: Mapping[str, float] = {
    "racks": 0.5,
    "slots": 0.5,
    "tails": 0.5,
    "rank 0": 0.5,
    "evaluation": 0.4,
    "stagger": 0.4,
    "drift": 0.3,
    "gaps": 0.3,
    "idle wait": 0.3,
    "pods": 0.3,
    "scraped twice": 0.1,
}
"""Share of these that have a habit, each drawn apart."""

EXPORTER_RESTART_SHARE, RENAMED_SHARE = 0.15, 0.3
"""Share of cases in which an exporter is restarted; of cases with pods in which some are renamed."""

GROUPS_SHARE = 0.7
"""Share of the faults of the kinds below that show in drawn groups; the others have all effects."""

GROUP_CHANCES: Mapping[str, Mapping[str, float]] = {
    "ecc_xid": _chances(80.0, 65.7, 57.1, 45.7, 8.6, 11.4),
    "nvlink_xid": _chances(83.3, 50.0, 66.7, 50.0, 16.7, 0.0),
    "gpu_lost": _chances(75.0, 70.0, 55.0, 50.0, 5.0, 20.0),
    "gsp_timeout": _chances(75.0, 70.0, 55.0, 50.0, 5.0, 20.0),
    "cuda_error": _chances(80.0, 65.0, 60.0, 50.0, 10.0, 10.0),
    "gpu_exec_error": _chances(50.0, 50.0, 40.0, 40.0, 5.0, 5.0),
    "ib_port_down": _chances(100.0, 100.0, 100.0, 100.0, 5.0, 5.0),
    "pcie_downgrade": _chances(0.0, 10.0, 0.0, 60.0, 100.0, 0.0),
}
"""Chance that a fault shows in a group of metrics: the first three rows as published (Minder, NSDI 2025,
table 1), the others assumed after what is said of these kinds there."""

ALWAYS = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS", "up"})
"""Families that every case has."""

ALL_FAMILIES = tuple(sorted(story() - ALWAYS))

LENGTH_MIN = (75.0, 100.0)
ONSET_MIN = (36.0, 50.0)
EARLY_ONSET_MIN = (15.0, 20.0)
EARLY_SHARE = 0.15
DURATION_MIN = (12.0, 24.0)
TWO_NODES_SHARE = 0.08
ALL_GPUS_SHARE = 0.3
EVENT_BESIDE_SHARE = 0.15
EXPORTER_BESIDE_SHARE = 0.1
RAMP_SHARE, FLAP_SHARE = 0.25, 0.25
RAMP_MIN = (4.0, 12.0)
FLAP_PERIOD_MIN = (2.0, 8.0)
FLAP_DUTY = (0.4, 0.8)
SLOW_MIN = 35.0
"""Faults that grow slowly last at least this many minutes, in a case that ends with them."""

HEALTHY_OF_TEN = (2, 5, 8)
"""Cases whose number ends so have no fault of a node: three in ten."""

PARTS: Mapping[str, str] = {
    "nvlink_xid": "gpu",
    "ecc_xid": "gpu",
    "gpu_lost": "gpu",
    "gsp_timeout": "gpu",
    "gpu_exec_error": "gpu",
    "gpu_throttle": "gpu",
    "gpu_power_cap": "gpu",
    "nvlink_slow": "gpu",
    "remap_growth": "gpu",
    "pcie_replay": "gpu",
    "nic_slow": "port",
    "ib_port_down": "port",
    "aoc_fault": "port",
    "ib_errors": "port",
    "disk_slow": "disk",
    "nfs_slow": "export",
    "nfs_stage_slow": "export",
    "pcie_downgrade": "",
    "machine_down": "",
    "cuda_error": "",
    "cpu_contention": "",
    "memory_leak": "",
    "clock_skew": "",
    "tasks_growth": "",
    "tcp_loss": "",
    "one_metric": "",
}
"""Every kind of fault and what part of the node it befalls; cases take them in turn, shuffled."""

RAMPS = frozenset(
    {
        "gpu_throttle",
        "gpu_power_cap",
        "nvlink_slow",
        "nic_slow",
        "ib_errors",
        "disk_slow",
        "nfs_slow",
        "cpu_contention",
        "tcp_loss",
        "pcie_replay",
        "pcie_downgrade",
    }
)
"""Kinds that may also begin slowly."""

FLAPS = frozenset(
    {
        "gpu_throttle",
        "gpu_power_cap",
        "nvlink_slow",
        "nic_slow",
        "ib_port_down",
        "disk_slow",
        "nfs_slow",
        "cpu_contention",
        "tcp_loss",
        "pcie_downgrade",
    }
)
"""Kinds that may also come and go."""

SLOW = frozenset({"memory_leak", "remap_growth", "clock_skew"})
"""Kinds that need time to show."""

QUIET_STORIES = (
    "",
    "job_restart",
    "exporter_down",
    "monitoring_outage",
    "",
    "nfs_cluster_slow",
    "job_slowdown",
    "exporter_down",
    "fabric_congestion",
    "maintenance",
    "",
    "hot_room",
    "exporter_restart",
    "hot_rack",
    "target_renamed",
    "",
)
"""What happens in cases without a fault of a node, in turn; empty for nothing."""

STAGES_OF_STORAGE = ("checkpoint", "evaluation", "loading")
"""When storage is slow in `nfs_stage_slow`; checkpoints and evaluations are then as often as below."""

STAGE_EVERY_MIN = (4.0, 8.0)

ODD_METRICS = (
    "node_load1",
    "node_procs_running",
    "node_context_switches_total",
    "node_intr_total",
    "node_netstat_Tcp_RetransSegs",
    "node_sockstat_TCP_inuse",
    "node_memory_Dirty_bytes",
    "node_vmstat_pgfault",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "node_infiniband_port_transmit_wait_total",
    "backendai_memory_used_rss",
)
"""The metric that `one_metric` changes; the case then has it."""

"""What the cases of each split are drawn from: published, so that anybody can make them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.metric_sets import story

MINUTE = 60.0


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

SPLITS: Mapping[str, Split] = {
    "train": Split(
        1_000_000,
        (24, 32, 48, 60),
        0.0,
        (0.15, 0.9),
        (0.8, 1.2),
        (8e9, 1e10),
        (0.01, 0.05),
        (0, 5e-4),
        (85, 105),
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
    "gpu_throttle": "gpu",
    "gpu_power_cap": "gpu",
    "nvlink_slow": "gpu",
    "remap_growth": "gpu",
    "pcie_replay": "gpu",
    "nic_slow": "port",
    "ib_port_down": "port",
    "ib_errors": "port",
    "disk_slow": "disk",
    "nfs_slow": "export",
    "pcie_downgrade": "",
    "machine_down": "",
    "cuda_error": "",
    "cpu_contention": "",
    "memory_leak": "",
    "clock_skew": "",
    "tasks_growth": "",
    "tcp_loss": "",
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
)
"""What happens in cases without a fault of a node, in turn; empty for nothing."""

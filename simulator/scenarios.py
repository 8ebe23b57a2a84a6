"""Named stories: a cluster, what goes wrong in it and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from simulator.cluster import Cluster
from simulator.config import DEFAULT_START, ClusterConfig
from simulator.faults import Fault, GroupEvent
from simulator.metric_sets import story

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story that can be run or written down.

    Parameters
    ----------
    name
        Name of the case.
    config
        The cluster.
    seed
        Seed.
    length_s
        Seconds from the first to the last scrape.
    faults, events
        What goes wrong.
    made
        ``reconstructed`` or ``synthetic``.
    source
        Where the story comes from.
    notes
        What happens, for a person.
    """

    name: str
    config: ClusterConfig
    seed: int
    length_s: float
    faults: tuple[Fault, ...] = ()
    events: tuple[GroupEvent, ...] = ()
    made: str = "synthetic"
    source: str = "generated"
    notes: str = ""

    @property
    def start(self) -> float:
        """Epoch seconds of the first scrape."""
        return self.config.start

    @property
    def end(self) -> float:
        """Epoch seconds of the last scrape."""
        return self.config.start + self.length_s

    def cluster(self) -> Cluster:
        """Return the cluster before its first tick."""
        return Cluster(self.config, self.seed, self.faults, self.events)


def planted(
    config: ClusterConfig,
    kind: str,
    node: str,
    *,
    after_s: float,
    length_s: float,
    part: str = "",
    severity: float = 1.0,
) -> Fault:
    """Return a fault at a time relative to the cluster's start."""
    onset = config.start + after_s
    return Fault(kind, node, onset, onset + length_s, part, severity)


def gpu068(config: ClusterConfig | None = None, *, after_s: float = 25 * MINUTE) -> Scenario:
    """NVLink fault on one GPU: XID 145 and 149, the agent's tasks rise from 44-50 to 869, the job stalls."""
    config = config or ClusterConfig(spares=0, first_number=10, cpus=2, n_veth=1, metrics=story())
    node = "gpu068" if "gpu068" in config.pool else config.pool[-2]
    onset = config.start + after_s
    end = config.start + 60 * MINUTE
    fault = Fault("nvlink_xid", node, onset, max(end, onset + 1800), "gpu 3", options={"tasks": 822.0})
    return Scenario(
        name="gpu068-nvlink",
        config=config,
        seed=68,
        length_s=55 * MINUTE,
        faults=(fault,),
        made="reconstructed",
        source="public article on a cluster of 63 nodes of 8 GPUs: fault of node gpu068",
        notes="XID 145 and then 149 on one GPU. The tasks of the node's scheduler agent rise from 44-50 to "
        "869 and its GPUs fall idle; within two minutes the other 59 nodes wait in a collective call that "
        "never returns.",
    )


def pcie_downgrade() -> Scenario:
    """One of 128 machines: a PCIe link trains at a lower speed for 40 minutes."""
    metrics = frozenset(name for name in story() if not name.startswith(_PCIE_LEFT_OUT))
    config = ClusterConfig(train_nodes=128, spares=0, cpus=2, metrics=metrics, ib_bytes_per_s=8.0e8, n_veth=0)
    fault = planted(config, "pcie_downgrade", "gpu077", after_s=22 * MINUTE, length_s=40 * MINUTE)
    return Scenario(
        name="pcie-downgrade",
        config=config,
        seed=128,
        length_s=70 * MINUTE,
        faults=(fault,),
        made="reconstructed",
        source="public description of a PCIe downgrade on one of 128 training machines",
        notes="Throughput of one machine's network cards falls from 6.4 to 4 Gb/s, the job is slowed for "
        "all, no XID and no other error is reported, and it lasts 40 minutes.",
    )


_PCIE_LEFT_OUT = (
    "node_cpu_seconds_total",
    "node_mountstats_",
    "node_network_",
    "node_disk_",
    "node_filesystem_",
    "node_vmstat_",
    "backendai_rpc_",
    "backendai_event",
    "backendai_stat",
    "all_smi_memory",
    "node_infiniband_port_packets",
    "node_infiniband_port_errors",
    "node_infiniband_port_discards",
    "node_infiniband_port_receive_remote",
    "node_infiniband_local",
    "node_infiniband_link_error",
    "DCGM_FI_DEV_MEM",
    "DCGM_FI_DEV_ROW",
    "DCGM_FI_DEV_FB",
    "DCGM_FI_DEV_CORRECTABLE",
    "all_smi_gpu_frequency",
    "all_smi_gpu_memory",
    "scrape_samples",
)


def healthy_hour() -> Scenario:
    """One hour in which nothing is wrong, with checkpoints and bursts."""
    config = ClusterConfig(cpus=2, n_veth=1, metrics=story(), benign_per_node_hour=0.06)
    return Scenario(
        name="healthy-hour",
        config=config,
        seed=3600,
        length_s=60 * MINUTE,
        notes="60 nodes train, 3 spares are idle. Ten nodes write checkpoints, cron jobs and package "
        "upgrades run.",
    )


def monitoring_outage() -> Scenario:
    """Every series vanishes for six minutes: nobody is at fault."""
    config = ClusterConfig(cpus=2, n_veth=1, metrics=story())
    onset = config.start + 25 * MINUTE
    return Scenario(
        name="monitoring-outage",
        config=config,
        seed=6,
        length_s=45 * MINUTE,
        events=(GroupEvent("monitoring_outage", onset, onset + 6 * MINUTE),),
        notes="All targets of all nodes are silent for six minutes, as when the scraper is restarted.",
    )


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "gpu068-nvlink": gpu068,
    "pcie-downgrade": pcie_downgrade,
    "healthy-hour": healthy_hour,
    "monitoring-outage": monitoring_outage,
}
"""The stories of ``replay_data``."""


def with_faults(scenario: Scenario, faults: Sequence[Fault]) -> Scenario:
    """Return the same story with other faults."""
    return replace(scenario, faults=tuple(faults))


__all__ = ["DEFAULT_START", "SCENARIOS", "Scenario", "gpu068", "planted", "with_faults"]

"""Selections of metrics: a whole node costs 305 metrics, a story needs fewer."""

from __future__ import annotations

from simulator.tables import all_columns

GPU = ("DCGM_", "all_smi_gpu_")
INFINIBAND = ("node_infiniband_",)
HOST = (
    "node_load1",
    "node_pressure_",
    "node_procs_",
    "node_intr_total",
    "node_context_switches_total",
    "node_forks_total",
    "node_memory_MemAvailable",
    "node_memory_MemFree",
    "node_memory_AnonPages",
    "node_memory_Dirty",
    "node_vmstat_",
    "node_timex_offset",
    "node_timex_sync",
    "node_cpu_seconds_total",
    "all_smi_cpu_",
    "all_smi_memory_used",
)
NETWORK = (
    "node_network_receive_bytes",
    "node_network_transmit_bytes",
    "node_network_carrier",
    "node_network_up",
    "node_netstat_Tcp_RetransSegs",
    "node_netstat_Tcp_CurrEstab",
    "node_netstat_TcpExt_TCPTimeouts",
    "node_sockstat_TCP_inuse",
    "node_sockstat_sockets_used",
)
DISK = ("node_disk_io_time", "node_disk_read_bytes", "node_disk_written_bytes", "node_filesystem_")
NFS = (
    "node_nfs_rpc",
    "node_mountstats_nfs_total_",
    "node_mountstats_nfs_transport_",
    "node_mountstats_nfs_event_vfs_open",
    "node_mountstats_nfs_event_inode_revalidate",
)
SCHEDULER = (
    "backendai_async",
    "backendai_cpu",
    "backendai_memory_used_rss",
    "backendai_rpc_",
    "backendai_stat_task_",
    "backendai_event_failure",
)
SCRAPE = ("up", "scrape_duration_seconds", "scrape_samples_scraped")
PER_CPU = (
    "node_cpu_seconds_total",
    "node_schedstat_",
    "node_softnet_",
    "node_cpu_scaling_",
    "node_cpu_core_",
)


def select(*prefixes: str, without: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the metric names that begin with one of the prefixes.

    Raises
    ------
    ValueError
        When a prefix fits no metric.
    """
    names = {column.name for column in all_columns()}
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise ValueError(f"no metric begins with {prefix!r}")
    chosen = {name for name in names if name.startswith(prefixes)} if prefixes else names
    return (
        frozenset(name for name in chosen if not name.startswith(without)) if without else frozenset(chosen)
    )


def story() -> frozenset[str]:
    """Return about a hundred metrics of all exporters and targets."""
    return select(*GPU, *INFINIBAND, *HOST, *NETWORK, *DISK, *NFS, *SCHEDULER, *SCRAPE)


def reference_shape() -> frozenset[str]:
    """Return the metrics that, with 224 processors and 63 nodes, make the size of the reference cluster.

    Processor seconds alone are 112,896 series; the other per-processor metrics are left out, which gives
    some 190,000 series instead of 303,000.
    """
    return select(without=("node_schedstat_", "node_softnet_", "node_cpu_scaling_", "node_cpu_core_"))


__all__ = ["reference_shape", "select", "story"]

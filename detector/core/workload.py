"""How much a node works is no symptom, and what follows from working more is none either.

A node that writes a checkpoint, receives a backup or installs packages reads, writes, sends and forks more
than its peers for a while, and its disk is busy and its connections lose more for it. That is one thing, it
is told, and it names nobody: a node at fault deviates in something else as well.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

import numpy as np

from detector.core.judge import ActiveCells
from grouping.index import SeriesIndex

WORK = (
    "node_disk_reads_*",
    "node_disk_writes_*",
    "node_disk_read_bytes_total",
    "node_disk_written_bytes_total",
    "node_disk_discard*",
    "node_disk_flush_requests_total",
    "node_network_*_bytes_total",
    "node_network_*_packets_total",
    "node_netstat_IpExt_*Octets",
    "node_netstat_Tcp_InSegs",
    "node_netstat_Tcp_OutSegs",
    "node_netstat_Udp_*Datagrams",
    "node_softnet_processed_total",
    "node_vmstat_pgpg*",
    "node_forks_total",
)
"""Globs of metrics of how much a node works outside of its job."""

FOLLOWS = (
    "node_disk_*time*",
    "node_disk_io_now",
    "node_pressure_io_*",
    "node_netstat_Tcp_RetransSegs",
    "node_softnet_times_squeezed_total",
    "node_intr_total",
    "node_context_switches_total",
    "node_schedstat_*",
    "node_cpu_seconds_total",
    "node_filesystem_avail_bytes",
    "node_memory_*_file_bytes",
    "node_memory_Cached_bytes",
    "node_memory_Buffers_bytes",
    "node_memory_Dirty_bytes",
    "node_memory_Writeback_bytes",
    "node_memory_MemFree_bytes",
)
"""Globs of metrics that change with it."""

NFS_WORK = (
    "node_mountstats_nfs_event_vfs_*",
    "node_mountstats_nfs_event_*_revalidate_total",
    "node_mountstats_nfs_*bytes_total",
    "node_mountstats_nfs_*_pages_total",
    "node_mountstats_nfs_operations_requests_total",
    "node_mountstats_nfs_transport_sends_total",
    "node_mountstats_nfs_transport_receives_total",
    "node_nfs_packets_total",
    "node_nfs_requests_total",
    "node_nfs_rpcs_total",
)
"""Globs of metrics of how much a node asks of its NFS servers."""

NFS_FOLLOWS = (
    "node_mountstats_nfs_event_*_invalidate_total",
    "node_mountstats_nfs_event_truncation_total",
    "node_mountstats_nfs_event_write_extension_total",
    "node_mountstats_nfs_operations_transmissions_total",
    "node_mountstats_nfs_operations_*_time_seconds_total",
    "node_mountstats_nfs_transport_*_queue_total",
    "node_nfs_rpc_authentication_refreshes_total",
)
"""Globs of metrics that change with that; lost requests and timeouts do not."""

WORK_CAP = 0.5
"""Working more is worth at most this, on the scale where 1 is the threshold of a cell, once for each node."""

FOLLOWS_CAP = 0.25
"""... and each thing that follows from it at most this."""

GLOBS = {"work": WORK, "nfs work": NFS_WORK, "follows": FOLLOWS, "nfs follows": NFS_FOLLOWS}
CAPS = {"work": WORK_CAP, "nfs work": WORK_CAP, "follows": FOLLOWS_CAP, "nfs follows": FOLLOWS_CAP}


def explained_by_work(active: ActiveCells, index: SeriesIndex) -> ActiveCells:
    """Hold back what a node shows because it works more than its peers.

    Parameters
    ----------
    active
        Cells that count against their node.
    index
        Cells and their metrics.

    Returns
    -------
    ActiveCells
        Of nodes that work more now, the strongest cell of work is worth `WORK_CAP` at most, the others
        nothing, and those that follow `FOLLOWS_CAP` at most; all else is as it was.
    """
    kind = np.array([kind_of(index.signals[s].spec.name) for s in active.signal.tolist()], dtype=object)
    above = active.strength > 0
    nfs = above & (kind == "nfs work")
    work = nfs | above & (kind == "work")
    if not work.any():
        return active
    works, asks = np.zeros((2, len(index.nodes)), dtype=bool)
    works[active.node[work]], asks[active.node[nfs]] = True, True
    follows = works[active.node] & (kind == "follows") | asks[active.node] & (kind == "nfs follows")
    own = active.own.copy()
    order = np.flatnonzero(work)[np.argsort(-(active.score * active.own)[work], kind="stable")]
    _, first = np.unique(active.node[order], return_index=True)
    own[np.delete(order, first)] = 0.0
    cap = np.where(work, WORK_CAP, np.where(follows, FOLLOWS_CAP, np.inf))
    return replace(active, score=np.minimum(active.score, cap), plain=np.minimum(active.plain, cap), own=own)


@cache
def kind_of(metric: str) -> str:
    """Return what kind of work a metric tells of, a key of `GLOBS`, or nothing."""
    for kind, globs in GLOBS.items():
        if any(fnmatchcase(metric, glob) for glob in globs):
            return kind
    return ""

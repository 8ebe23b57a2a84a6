"""NFS mounts and the host's NFS client."""

from simulator.columns import Column, Table

WRAP_32 = 4294967296.0
PAGE = 1 / 4096


def columns() -> list[Column]:
    """Return the columns of mountstats, nfs and the mount side of the filesystem collector."""
    t = Table("node_exporter")
    _events(t)
    _bytes(t)
    _operations(t)
    _transport(t)
    t.gauge("node_filesystem_device_error", "filesystem", fs_error=1)
    t.gauge("node_filesystem_readonly", "filesystem", fs_readonly=1)
    _client(t)
    return t.columns


def _events(t: Table) -> None:
    def event(name: str, **how: float) -> None:
        defaults = {"sigma": 0.45, "ar": 0.4, "spread": 0.12, "tail": 0.004}
        t.counter(f"node_mountstats_nfs_event_{name}_total", "nfs", **{**defaults, **how})

    event("inode_revalidate", nfs_meta=6)
    event("dnode_revalidate", nfs_meta=2.5)
    event("data_invalidate", nfs_meta=0.05, nfs_out=2e-9)
    event("attribute_invalidate", nfs_meta=0.4)
    event("vfs_open", nfs_meta=0.5)
    event("vfs_lookup", nfs_meta=1.5)
    event("vfs_access", nfs_meta=2.8)
    event("vfs_update_page", nfs_out=PAGE)
    event("vfs_read_page", nfs_in=PAGE / 60)
    event("vfs_read_pages", nfs_in=PAGE / 32)
    event("vfs_write_pages", nfs_out=PAGE / 250, nfs_meta=0.02)
    event("vfs_getdents", nfs_meta=0.1)
    event("vfs_setattr", nfs_meta=0.02, nfs_out=2e-9)
    event("vfs_flush", nfs_meta=0.5)
    event("vfs_fsync", nfs_meta=0.01, nfs_out=3e-9)
    event("vfs_file_release", nfs_meta=0.5)
    event("truncation", nfs_out=2e-9, nfs_meta=0.002)
    event("write_extension", nfs_out=PAGE, nfs_meta=0.05)
    t.rare("node_mountstats_nfs_event_short_read_total", "nfs", nfs_meta=1e-5)
    t.rare("node_mountstats_nfs_event_short_write_total", "nfs", nfs_meta=1e-6)
    t.rare("node_mountstats_nfs_event_jukebox_delay_total", "nfs", nfs_meta=1e-6)


def _bytes(t: Table) -> None:
    for way, driver in (("read", "nfs_in"), ("write", "nfs_out")):
        prefix = "node_mountstats_nfs"
        t.counter(f"{prefix}_{way}_bytes_total", "nfs", **{driver: 1.3 if way == "read" else 1}, sigma=0.1)
        t.counter(f"{prefix}_direct_{way}_bytes_total", "nfs", **{driver: 0.02}, sigma=0.3)
        t.counter(f"{prefix}_total_{way}_bytes_total", "nfs", **{driver: 1}, sigma=0.0, spread=0.0)
        t.counter(f"{prefix}_{way}_pages_total", "nfs", **{driver: PAGE}, sigma=0.02)


def _operations(t: Table) -> None:
    prefix, space, exact = "node_mountstats_nfs_operations", "nfs_op", {"sigma": 0.0, "spread": 0.0}
    t.counter(f"{prefix}_requests_total", space, op_requests=1, **exact)
    t.counter(f"{prefix}_transmissions_total", space, op_requests=1, op_again=1, **exact)
    t.rare(f"{prefix}_major_timeouts_total", space, op_timeouts=1)
    t.counter(f"{prefix}_sent_bytes_total", space, op_sent=1, **exact)
    t.counter(f"{prefix}_received_bytes_total", space, op_received=1, **exact)
    for phase in ("queue", "response", "request"):
        t.counter(f"{prefix}_{phase}_time_seconds_total", space, **{f"op_{phase}": 1}, quantum=0.001, **exact)


def _transport(t: Table) -> None:
    prefix = "node_mountstats_nfs_transport"
    t.rare(f"{prefix}_connect_total", "nfs", nfs_one=1e-5, nfs_reconnect=1)
    t.counter(f"{prefix}_sends_total", "nfs", nfs_requests=1, sigma=0.0, spread=0.0)
    t.counter(f"{prefix}_receives_total", "nfs", nfs_requests=1, sigma=0.0, spread=0.0)
    t.rare(f"{prefix}_bad_transaction_ids_total", "nfs", nfs_reconnect=0.5)
    t.counter(f"{prefix}_backlog_queue_total", "nfs", nfs_backlog=1, sigma=0.3)
    t.counter(f"{prefix}_sending_queue_total", "nfs", nfs_requests=0.02, nfs_backlog=0.4, sigma=0.3)
    t.counter(f"{prefix}_pending_queue_total", "nfs", nfs_requests=1.2, nfs_backlog=1.5, sigma=0.2)
    t.gauge(f"{prefix}_maximum_rpc_slots", "nfs", nfs_slots=1)
    t.gauge(f"{prefix}_idle_time_seconds", "nfs", nfs_idle=1)


def _client(t: Table) -> None:
    t.rare("node_nfs_connections_total", one=2e-5, nfs_reconnects=1, wrap=WRAP_32)
    t.counter("node_nfs_packets_total", "nfs_proto", proto_packets=1, sigma=0.0, wrap=WRAP_32)
    t.counter("node_nfs_requests_total", "nfs_method", method_requests=1, sigma=0.0, spread=0.0, wrap=WRAP_32)
    t.counter(
        "node_nfs_rpc_authentication_refreshes_total", all_requests=1, sigma=0.0, spread=0.0, wrap=WRAP_32
    )
    t.rare("node_nfs_rpc_retransmissions_total", one=2e-4, nfs_wait=0.8, wrap=WRAP_32)
    t.counter("node_nfs_rpcs_total", all_requests=1, sigma=0.0, spread=0.0, wrap=WRAP_32)

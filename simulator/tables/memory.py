"""Memory and paging of the host."""

from simulator.columns import Column, Table

# The drivers come from one account of the node's memory, so that the parts add up.
_MEMINFO: dict[str, dict[str, float]] = {
    "MemFree": {"mem_free": 1},
    "MemAvailable": {"mem_available": 1},
    "Buffers": {"mem_buffers": 1},
    "Cached": {"mem_cached": 1},
    "Active": {"mem_anon": 0.12, "mem_file": 0.25},
    "Inactive": {"mem_anon": 0.83, "mem_file": 0.75},
    "Active_anon": {"mem_anon": 0.12},
    "Inactive_anon": {"mem_anon": 0.83},
    "Active_file": {"mem_file": 0.25},
    "Inactive_file": {"mem_file": 0.75},
    "Unevictable": {"mem_locked": 1},
    "Mlocked": {"mem_locked": 1},
    "SwapFree": {"swap_free": 1},
    "SwapCached": {"swap_cached": 1},
    "Dirty": {"mem_dirty": 1},
    "Writeback": {"mem_writeback": 1},
    "AnonPages": {"mem_anon": 0.95},
    "Mapped": {"mem_mapped": 1},
    "Shmem": {"mem_shmem": 1},
    "KReclaimable": {"mem_slab": 0.62},
    "Slab": {"mem_slab": 1},
    "SReclaimable": {"mem_slab": 0.62},
    "SUnreclaim": {"mem_slab": 0.38},
    "KernelStack": {"threads": 16384},
    "PageTables": {"mem_anon": 0.0021, "mem_shmem": 0.002},
    "Committed_AS": {"mem_anon": 1.35, "mem_shmem": 1.0},
    "VmallocUsed": {"mem_vmalloc": 1},
    "Percpu": {"mem_percpu": 1},
    "HardwareCorrupted": {"mem_corrupted": 1},
    "AnonHugePages": {"mem_anon": 0.4},
}


def columns() -> list[Column]:
    """Return the columns of node_memory_*, node_vmstat_* and node_edac_*."""
    t = Table("node_exporter")
    for name, terms in _MEMINFO.items():
        t.gauge(f"node_memory_{name}_bytes", "node", **{"quantum": 1024, **terms})
    t.rare("node_vmstat_oom_kill", oom=1)
    t.counter(
        "node_vmstat_pgfault", one=9000, train=52000, cpu_extra=900, fork_burst=9000, sigma=0.3, tail=0.01
    )
    t.counter(
        "node_vmstat_pgmajfault", one=0.4, nfs_read=2e-8, fork_burst=4, swap_io=40, sigma=0.8, tail=0.02
    )
    t.counter("node_vmstat_pgpgin", one=60, disk_read=0.001, sigma=0.5, tail=0.01)
    t.counter("node_vmstat_pgpgout", one=400, disk_write=0.001, sigma=0.4, tail=0.01)
    t.rare("node_vmstat_pswpin", one=0.02, swap_io=800)
    t.rare("node_vmstat_pswpout", one=0.02, swap_io=1200)
    t.rare("node_edac_correctable_errors_total", "controller", one=1e-6, edac_corrected=1)
    t.rare("node_edac_uncorrectable_errors_total", "controller", edac_uncorrected=1)
    return t.columns

"""Processors, disks, pressure, clock and kernel activity of the host."""

from simulator.columns import Column, Table

WRAP_MS = 4294967296.0 * 0.001


def columns() -> list[Column]:
    """Return the columns of processors, disks, filesystems, pressure, clock, sensors and load."""
    t = Table("node_exporter")
    _processors(t)
    _disks(t)
    _kernel(t)
    return t.columns


def _processors(t: Table) -> None:
    for minutes in (1, 5, 15):
        t.gauge(f"node_load{minutes}", "node", **{f"load{minutes}": 1}, quantum=0.01)
    exact = {"sigma": 0.0, "spread": 0.0}
    t.counter("node_cpu_seconds_total", "cpu_mode", cpu_time=1, quantum=0.01, **exact)
    t.counter("node_schedstat_running_seconds_total", "cpu", cpu_running=1, quantum=1e-6, **exact)
    t.counter("node_schedstat_waiting_seconds_total", "cpu", cpu_waiting=1, quantum=1e-6, sigma=0.3)
    t.counter("node_schedstat_timeslices_total", "cpu", cpu_running=420, one=30, sigma=0.2, spread=0.2)
    t.gauge("node_cpu_scaling_frequency_hertz", "cpu", cpu_hertz=1, jitter=6e7, quantum=1e3, low=8e8)
    t.rare("node_cpu_core_throttles_total", "core", cpu_throttle=0.2)
    t.rare("node_cpu_package_throttles_total", "package", cpu_throttle=1)


def _disks(t: Table) -> None:
    def disk(name: str, **how: float) -> None:
        t.counter(
            f"node_disk_{name}", "disk", **{"sigma": 0.3, "ar": 0.3, "spread": 0.1, "tail": 0.004, **how}
        )

    disk("reads_completed_total", dk_reads=1)
    disk("reads_merged_total", dk_reads=0.05)
    disk("read_bytes_total", dk_reads=48000, quantum=512)
    disk("read_time_seconds_total", dk_read_time=1, quantum=0.001, wrap=WRAP_MS)
    disk("writes_completed_total", dk_writes=1)
    disk("writes_merged_total", dk_writes=0.6)
    disk("written_bytes_total", dk_writes=22000, quantum=512)
    disk("write_time_seconds_total", dk_write_time=1, quantum=0.001, wrap=WRAP_MS)
    t.gauge("node_disk_io_now", "disk", dk_queue=1, sigma=0.8)
    disk("io_time_seconds_total", dk_busy=1, quantum=0.001, sigma=0.05, tail=0.0, wrap=WRAP_MS)
    disk("io_time_weighted_seconds_total", dk_read_time=1, dk_write_time=1, quantum=0.001, wrap=WRAP_MS)
    disk("discards_completed_total", dk_one=0.05)
    disk("discarded_sectors_total", dk_one=900)
    disk("discard_time_seconds_total", dk_one=2e-5, quantum=0.001, wrap=WRAP_MS)
    disk("flush_requests_total", dk_writes=0.05)
    disk("flush_requests_time_seconds_total", dk_flush_time=1, quantum=0.001, wrap=WRAP_MS)
    t.gauge("node_filesystem_avail_bytes", "filesystem", fs_avail=1, quantum=4096)
    t.gauge("node_filesystem_files_free", "filesystem", fs_files=1)


def _kernel(t: Table) -> None:
    for name in ("cpu_waiting", "io_waiting", "io_stalled", "memory_waiting", "memory_stalled"):
        t.counter(
            f"node_pressure_{name}_seconds_total", **{f"psi_{name}": 1}, quantum=1e-6, sigma=0.3, spread=0.1
        )
    t.gauge("node_timex_offset_seconds", clock_offset=1, quantum=1e-9, low=float("-inf"))
    t.gauge("node_timex_maxerror_seconds", clock_max_error=1, quantum=1e-6)
    t.gauge("node_timex_estimated_error_seconds", clock_error=1, quantum=1e-6)
    t.gauge("node_timex_frequency_adjustment_ratio", clock_ratio=1, quantum=1e-9)
    t.gauge("node_timex_sync_status", clock_sync=1)
    t.counter("node_intr_total", interrupts=1, sigma=0.04, ar=0.3)
    t.counter("node_context_switches_total", switches=1, sigma=0.05, ar=0.3)
    t.counter("node_forks_total", one=6, cpu_extra=0.2, fork_burst=60, sick=2, sigma=0.5, tail=0.01)
    t.gauge("node_procs_running", running=1, jitter=2.2, low=1)
    t.gauge("node_procs_blocked", blocked=1, sigma=0.7)
    t.gauge("node_hwmon_temp_celsius", "sensor", sensor_temp=1, jitter=0.3)

"""Signs in the evidence that speak for classes of faults: data, read by `diagnosis`.

Names of metrics are shell globs, so that other exporters' names of the same thing are found too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from detector.core.xid_codes import codes_of


@dataclass(frozen=True, slots=True)
class Sign:
    """What a piece of evidence must be like.

    Parameters
    ----------
    says
        What it tells, in words, for the reasons.
    metrics
        Globs of metric names in lower case; one must match.
    layer, side
        Layer and side of the evidence, empty for any; ``peer`` stands for changes of habit too.
    codes
        XID codes of which the value must be one, empty for any value.
    part
        Glob of the part, empty for any.
    spread
        ``few`` for one or two parts of the node, ``most`` for at least half of them, empty for any.
    reads
        Glob of the evidence's reason, empty for any.
    labels
        Label values that must be there.
    """

    says: str
    metrics: tuple[str, ...]
    layer: str = ""
    side: str = ""
    codes: tuple[int, ...] = ()
    part: str = ""
    spread: str = ""
    reads: str = ""
    labels: tuple[tuple[str, str], ...] = ()


_UTIL = ("dcgm_fi_dev_gpu_util*", "all_smi_gpu_utilization", "*gpu*util*", "*gpu_duty*")
_POWER = ("dcgm_fi_dev_power_usage", "dcgm_fi_dev_board_power*", "*gpu*power*")
_CLOCK = ("dcgm_fi_dev_sm_clock", "*gpu*freq*", "*gpu*clock*", "*sm_clock*")
_TEMP = ("dcgm_fi_dev_gpu_temp*", "dcgm_fi_dev_memory_temp*", "*gpu*temp*")
_NVLINK = ("*nvlink*bandwidth*", "*nvlink*throughput*", "*nvlink*bytes*")
_IB_BYTES = ("*infiniband_port_data_*", "*infiniband_port_packets_*", "*ib_port_*bytes*")
_NFS_TIMES = "*nfs*{}*time*seconds*"

SIGNS: Mapping[str, Sign] = {
    **{
        f"xid_{key}": Sign(f"XID for {words}", ("*xid*",), layer="direct", codes=codes_of(key))
        for key, words in {
            "gpu_memory": "GPU memory",
            "gpu_lost": "a lost GPU",
            "gsp": "the GSP",
            "gpu_engine": "a halted GPU",
            "pcie": "PCIe",
            "program": "a program error",
        }.items()
    },
    "xid_nvlink_few": Sign(
        "XID for NVLink", ("*xid*",), layer="direct", codes=codes_of("nvlink"), spread="few"
    ),
    "xid_nvlink_most": Sign(
        "XID for NVLink on most GPUs of the node",
        ("*xid*",),
        layer="direct",
        codes=codes_of("nvlink"),
        spread="most",
    ),
    "remap_failed": Sign("a row could not be remapped", ("*row_remap_fail*",), layer="direct"),
    "remap_uncorrectable": Sign(
        "rows remapped after uncorrectable errors", ("*uncorrectable*remap*", "*row_remap_uncorrectable*")
    ),
    "remap_correctable": Sign(
        "rows remapped after many corrected errors", ("*fi_dev_correctable*remap*", "*row_remap_correctable*")
    ),
    "ecc_errors": Sign("ECC errors counted", ("*ecc_dbe*", "*ecc_sbe*"), side="above"),
    "gpu_gone": Sign("the GPU vanished from its exporters", ("*",), layer="absence", part="gpu *"),
    "node_silent": Sign(
        "all exporters of the node are silent", ("up",), layer="absence", reads="all * exporters *"
    ),
    "gpu_exporters_silent": Sign(
        "both GPU exporters are silent", ("up",), layer="absence", reads="* both gone *"
    ),
    "util_below_most": Sign("GPU utilisation lower on most GPUs", _UTIL, "peer", "below", spread="most"),
    "util_below_few": Sign("GPU utilisation lower on single GPUs", _UTIL, "peer", "below", spread="few"),
    "power_below": Sign("GPU power lower", _POWER, "peer", "below"),
    "power_below_most": Sign("GPU power lower on most GPUs", _POWER, "peer", "below", spread="most"),
    "clock_below": Sign("GPU clock lower", _CLOCK, "peer", "below"),
    "clock_below_most": Sign("GPU clock lower on most GPUs", _CLOCK, "peer", "below", spread="most"),
    "gpu_memory_freed": Sign(
        "GPU memory freed on most GPUs", ("*fb_used*", "*gpu*memory_used*"), "peer", "below", spread="most"
    ),
    "temp_above": Sign("GPU hotter", _TEMP, "peer", "above"),
    "thermal_reason": Sign(
        "time throttled by heat", ("*thermal_violation*", "*throttle*thermal*"), side="above"
    ),
    "power_reason": Sign("time throttled by power", ("*power_violation*", "*throttle*power*"), side="above"),
    "nvlink_below_few": Sign("NVLink traffic lower on single GPUs", _NVLINK, "peer", "below", spread="few"),
    "nvlink_below_most": Sign("NVLink traffic lower on most GPUs", _NVLINK, "peer", "below", spread="most"),
    "pcie_replays": Sign("PCIe packets sent again", ("*pcie_replay*",)),
    "pcie_width": Sign(
        "PCIe link narrower or slower",
        ("*pcie*link_width*", "*pcie*link_gen*", "*pcie*link_speed*"),
        side="below",
    ),
    "ib_gone": Sign("the port vanished", ("*infiniband*",), layer="absence"),
    "ib_state": Sign("port state is not up", ("*infiniband*state_id",), layer="direct"),
    "ib_downed": Sign("link went down", ("*link_downed*", "*link_error_recovery*"), layer="direct"),
    "ib_link_errors": Sign(
        "link errors counted",
        ("*symbol_error*", "*port_errors_received*", "*local_link_integrity*"),
    ),
    "ib_discards": Sign("packets discarded by the port", ("*port_discards_transmitted*",)),
    "ib_remote_errors": Sign("packets arrive marked bad", ("*remote_physical_errors*",)),
    "ib_rate": Sign("link rate lower", ("*infiniband_rate*",), "peer", "below"),
    "ib_slow_few": Sign("traffic of single ports lower", _IB_BYTES, "peer", "below", spread="few"),
    "ib_slow_most": Sign("traffic of most ports lower", _IB_BYTES, "peer", "below", spread="most"),
    "ib_wait_few": Sign("single ports wait to send", ("*transmit_wait*",), "peer", "above", spread="few"),
    "ib_wait_most": Sign("most ports wait to send", ("*transmit_wait*",), "peer", "above", spread="most"),
    "carrier": Sign(
        "interface without carrier",
        ("*network_carrier", "*network_up", "*carrier_down_changes*"),
        layer="direct",
    ),
    "interface_gone": Sign("the interface vanished", ("*network_*",), layer="absence"),
    "interface_errors": Sign(
        "interface errors or drops",
        (
            "*network_receive_errs*",
            "*network_transmit_errs*",
            "*network_receive_drop*",
            "*network_transmit_drop*",
        ),
    ),
    "tcp_retrans": Sign(
        "TCP segments sent again",
        ("*retranssegs*", "*tcptimeouts*", "*tcpsynretrans*"),
        side="above",
    ),
    "tcp_order": Sign(
        "TCP segments out of order or dropped",
        ("*tcpofoqueue*", "*tcprcvqdrop*", "*tcp_inerrs*"),
        side="above",
    ),
    "mount_error": Sign("mount with an error", ("*filesystem_device_error*",), layer="direct"),
    "nfs_again": Sign(
        "NFS requests sent again or timed out",
        ("*nfs*retransmissions*", "*nfs*major_timeouts*", "*nfs*bad_transaction_ids*"),
    ),
    "nfs_reconnect": Sign("NFS reconnects", ("*nfs*connect_total", "*nfs_connections*"), side="above"),
    "nfs_queue_time": Sign(
        "NFS requests wait longer before they are sent", (_NFS_TIMES.format("queue_"),), "peer", "above"
    ),
    "nfs_response_time": Sign(
        "NFS answers take longer (network and server)", (_NFS_TIMES.format("response_"),), "peer", "above"
    ),
    "nfs_request_time": Sign(
        "NFS requests take longer as a whole", (_NFS_TIMES.format("request_"),), "peer", "above"
    ),
    "nfs_backlog": Sign(
        "NFS client queues are longer", ("*nfs*backlog_queue*", "*nfs*sending_queue*"), "peer", "above"
    ),
    "nfs_pending": Sign("more NFS requests wait for answers", ("*nfs*pending_queue*",), "peer", "above"),
    "nfs_more": Sign(
        "more asked of NFS than by its peers",
        ("*nfs*_bytes_total", "*nfs*sends_total", "*nfs*receives_total", "*nfs*requests_total", "*nfs_rpcs*"),
        "peer",
        "above",
    ),
    "nfs_any": Sign("NFS activity unlike its peers'", ("*nfs*",), "peer"),
    "nfs_gone": Sign("the NFS mount vanished", ("*mountstats*",), layer="absence"),
    "disk_time": Sign(
        "disk busier or slower",
        (
            "*disk_read_time*",
            "*disk_write_time*",
            "*disk_io_time*",
            "*disk_io_now*",
            "*disk_flush*time*",
            "*disk_discard_time*",
        ),
        "peer",
        "above",
    ),
    "disk_bytes": Sign("disk traffic unlike its peers'", ("*disk_*bytes*", "*disk_*completed*"), "peer"),
    "disk_gone": Sign("the disk vanished", ("node_disk_*",), layer="absence"),
    "io_pressure": Sign(
        "processes wait for input and output", ("*pressure_io*", "*procs_blocked*"), side="above"
    ),
    "cpu_pressure": Sign(
        "processes wait for a processor", ("*pressure_cpu*", "*schedstat_waiting*"), side="above"
    ),
    "cpu_load": Sign("more processes run", ("node_load*", "*procs_running*"), side="above"),
    "cpu_busy": Sign(
        "processor busier", ("all_smi_cpu_utilization", "*schedstat_running*", "*cpu_usage*"), side="above"
    ),
    "cpu_user": Sign(
        "more processor time in user mode", ("*cpu_seconds*",), "peer", "above", labels=(("mode", "user"),)
    ),
    "cpu_system": Sign(
        "more processor time in the kernel", ("*cpu_seconds*",), "peer", "above", labels=(("mode", "system"),)
    ),
    "cpu_idle_less": Sign(
        "processor less idle", ("*cpu_seconds*",), "peer", "below", labels=(("mode", "idle"),)
    ),
    "cpu_throttled": Sign("processor throttled", ("*core_throttles*", "*package_throttles*"), side="above"),
    "cpu_hot": Sign("processor or board hotter", ("*cpu_temperature*", "*hwmon_temp*"), side="above"),
    "cpu_slow": Sign("processor clock lower", ("*scaling_frequency*",), side="below"),
    "memory_less": Sign(
        "less memory available",
        ("*memavailable*", "all_smi_memory_available*", "*memory_memfree*"),
        side="below",
    ),
    "memory_used": Sign(
        "processes hold more memory",
        (
            "*anonpages*",
            "*active_anon*",
            "*committed_as*",
            "all_smi_memory_used*",
            "all_smi_memory_util*",
            "*memory_slab*",
            "*sunreclaim*",
            "*anonhuge*",
        ),
        side="above",
    ),
    "memory_pressure": Sign(
        "processes wait for memory", ("*pressure_memory*", "*pswp*", "*pgmajfault*"), side="above"
    ),
    "oom_kill": Sign("the kernel killed a process for memory", ("*oom_kill*",)),
    "edac_uncorrectable": Sign("uncorrectable memory errors", ("*edac_uncorrectable*",)),
    "edac_correctable": Sign("corrected memory errors", ("*edac_correctable*", "*hardwarecorrupted*")),
    "unsynced": Sign("clock not synchronised", ("*timex_sync_status*",), layer="direct"),
    "clock_off": Sign(
        "clock offset or error",
        ("*timex_offset*", "*timex_maxerror*", "*timex_estimated_error*", "*timex_frequency*"),
        "peer",
    ),
    "tasks_above": Sign("tasks of the agent pile up", ("*async_task_count*",), side="above"),
    "agent_failures": Sign(
        "calls or tasks of the agent fail",
        ("backendai_*failure*", "backendai_*retry*"),
    ),
    "agent_slow": Sign(
        "the agent answers more slowly", ("backendai_*duration*", "backendai_*processing_time*"), side="above"
    ),
    "exporter_self": Sign(
        "the exporter's own figures",
        ("go_*", "process_*", "python_gc_*", "promhttp_*", "scrape_*", "node_scrape_collector*"),
    ),
}

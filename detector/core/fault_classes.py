"""Classes of faults, and which signs must be there for each: data, read by `diagnosis`.

A class is given only when a rule of it has all its signs (see `fault_signs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LIKELY, POSSIBLE = "likely", "possible"

NAMES_ITSELF, PATTERN, CONSEQUENCE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class FaultClass:
    """A class of fault.

    Parameters
    ----------
    title
        In words.
    check
        What to check or do first.
    tier
        `NAMES_ITSELF` for what hardware or driver report by themselves, `PATTERN` for how signals
        deviate together, `CONSEQUENCE` for what any of the others brings about.
    has_part
        False when it befalls the node as a whole, whatever part the signals have.
    """

    title: str
    check: str
    tier: int = PATTERN
    has_part: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """When a class is given.

    Parameters
    ----------
    fault_class
        Key of the class.
    confidence
        `LIKELY` or `POSSIBLE`.
    all_of
        Signs that must all be there.
    any_of, at_least
        Signs of which so many must be there.
    none_of
        Signs that must not be there.
    nfs_stage
        Stage at which NFS requests must spend their time, empty for any.
    supports
        Signs that are told as reasons when they are there.
    """

    fault_class: str
    confidence: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    at_least: int = 1
    none_of: tuple[str, ...] = ()
    nfs_stage: str = ""
    supports: tuple[str, ...] = ()


FAULT_CLASSES: Mapping[str, FaultClass] = {
    "node_unreachable": FaultClass(
        "node unreachable or down",
        "ping it and open its console or BMC; power and management network first",
        NAMES_ITSELF,
        has_part=False,
    ),
    "gpu_lost": FaultClass(
        "GPU fell off the bus",
        "read the kernel log for the PCIe error and reboot the node; on repetition reseat or replace the GPU",
        NAMES_ITSELF,
    ),
    "gpu_memory": FaultClass(
        "GPU memory (ECC, remapped rows)",
        "read ECC and remapped-row counts (nvidia-smi -q), drain the node and reset the GPU",
        NAMES_ITSELF,
    ),
    "gsp": FaultClass(
        "GPU system processor (GSP) does not answer",
        "drain the node and reset the GPU, else reboot; compare driver and firmware with its peers",
        NAMES_ITSELF,
    ),
    "nvswitch": FaultClass(
        "NVSwitch or NVLink fabric of the node",
        "check the fabric manager and the NVSwitch errors of the node before any single GPU",
        NAMES_ITSELF,
    ),
    "nvlink": FaultClass(
        "NVLink of one GPU",
        "read the NVLink error counters and link states of this GPU, then reset it",
        NAMES_ITSELF,
    ),
    "gpu_engine": FaultClass(
        "GPU stopped processing (engine or micro-controller)",
        "drain the node and reset the GPU; if it comes back, run long diagnostics",
        NAMES_ITSELF,
    ),
    "pcie": FaultClass(
        "PCIe link",
        "compare link width and speed of GPUs and network cards with a healthy node (lspci -vv), "
        "then reseat or replace",
    ),
    "thermal": FaultClass(
        "GPU too hot (thermal throttling)",
        "check fans, coolant and air flow of this slot, then the throttle reasons of the GPU",
    ),
    "power_cap": FaultClass(
        "GPU held back (power cap or lowered clocks)",
        "compare power limit, clock limits and throttle reasons with its peers; check power supplies",
    ),
    "gpu_driver": FaultClass(
        "GPU driver of the node",
        "try nvidia-smi on the node; read the kernel log for the driver, reboot if it hangs",
        NAMES_ITSELF,
        has_part=False,
    ),
    "program": FaultClass(
        "program error reported by the GPU",
        "look at the job's own log first; many GPUs at once mean software",
    ),
    "ib_port_down": FaultClass(
        "InfiniBand port down or flapping",
        "check cable, transceiver and the switch port; read the port state (ibstat)",
        NAMES_ITSELF,
    ),
    "ib_errors": FaultClass(
        "InfiniBand link with errors (cable or optics)",
        "clean or change cable and transceiver; compare error counters on both ends",
    ),
    "ib_fabric": FaultClass(
        "InfiniBand fabric beyond this port",
        "packets arrive already marked bad: look at other links of the fabric first",
    ),
    "nic_slow": FaultClass(
        "slow network port",
        "compare link speed, PCIe link and congestion counters of this port with its siblings",
    ),
    "interface_down": FaultClass(
        "network interface down or with errors",
        "check cable and switch port of the interface; read its error counters (ethtool -S)",
    ),
    "tcp_loss": FaultClass(
        "packet loss of the host network (TCP)",
        "check interface errors, bond and switch port; look for a lossy path",
        has_part=False,
    ),
    "nfs_hung": FaultClass("NFS mount does not answer", "try the mount by hand; check server and path"),
    "nfs_transport": FaultClass(
        "NFS transport (requests sent again, reconnects)",
        "check the network path to the server, then the server",
    ),
    "nfs_queue": FaultClass(
        "NFS requests wait in the client's queue",
        "look at RPC slots, connections (nconnect) and what on this node asks so much",
    ),
    "nfs_server": FaultClass(
        "NFS server or path answers this node slowly",
        "compare round-trip time with other nodes of the same server; check path and server",
    ),
    "nfs": FaultClass("NFS client", "compare mount options and operation counts with its peers", CONSEQUENCE),
    "disk": FaultClass(
        "local disk", "read SMART data and the kernel log for the disk; look for what fills it"
    ),
    "cpu_heat": FaultClass(
        "processor held back by heat or power", "check fans, air flow and power limits", has_part=False
    ),
    "cpu_contention": FaultClass(
        "other work on the processor",
        "look for processes that do not belong to the job (top, cron, leftovers)",
        has_part=False,
    ),
    "host_memory_errors": FaultClass(
        "host memory errors (EDAC)", "read the kernel log for the module and replace it", NAMES_ITSELF
    ),
    "memory_leak": FaultClass(
        "host memory runs full",
        "find the process whose memory grows; restart it before the kernel does",
        has_part=False,
    ),
    "clock": FaultClass("clock not synchronised", "check the time service (chrony, ntpd)", has_part=False),
    "gpu_idle": FaultClass(
        "processes of the job stopped or hang on this node",
        "look at the job's log of this node's ranks and at the runtime; no counter names the cause",
        CONSEQUENCE,
        has_part=False,
    ),
    "gpu_slow": FaultClass(
        "GPU works less than its peers",
        "compare the work given to it, then throttle reasons and link speeds",
        CONSEQUENCE,
    ),
    "scheduler": FaultClass(
        "runtime or scheduler agent of the node",
        "read the agent's log; look for calls that never return",
        CONSEQUENCE,
        has_part=False,
    ),
    "monitoring": FaultClass(
        "exporter or monitoring of the node",
        "look at the exporter first: nothing but the monitoring itself deviates",
        CONSEQUENCE,
        has_part=False,
    ),
}

_NO_IDLE = ("util_below_most",)
_NO_LINK_FAULT = ("ib_state", "ib_downed", "ib_link_errors")

RULES: tuple[Rule, ...] = (
    Rule("node_unreachable", LIKELY, ("node_silent",)),
    Rule("gpu_driver", POSSIBLE, ("gpu_exporters_silent",), none_of=("xid_gsp",)),
    Rule("gpu_lost", LIKELY, ("xid_gpu_lost",), supports=("gpu_gone", "util_below_most")),
    Rule("gpu_lost", LIKELY, ("gpu_gone",), none_of=("xid_gsp",), supports=("util_below_most",)),
    Rule("gsp", LIKELY, ("xid_gsp",), supports=("gpu_exporters_silent", "gpu_gone", "tasks_above")),
    Rule(
        "gpu_memory",
        LIKELY,
        any_of=("xid_gpu_memory", "remap_failed", "remap_uncorrectable"),
        supports=("remap_correctable", "ecc_errors"),
    ),
    Rule("gpu_memory", POSSIBLE, any_of=("remap_correctable", "ecc_errors")),
    Rule("nvswitch", LIKELY, ("xid_nvlink_most",), supports=("nvlink_below_most",)),
    Rule("nvlink", LIKELY, ("xid_nvlink_few",), supports=("nvlink_below_few", "nvlink_below_most")),
    Rule(
        "nvswitch", POSSIBLE, ("nvlink_below_most",), none_of=(*_NO_IDLE, "clock_below_most", "ib_slow_most")
    ),
    Rule("nvlink", POSSIBLE, ("nvlink_below_few",), none_of=(*_NO_IDLE, "util_below_few")),
    Rule("gpu_engine", LIKELY, ("xid_gpu_engine",)),
    Rule("pcie", LIKELY, ("xid_pcie",), supports=("pcie_replays", "pcie_width")),
    Rule("pcie", LIKELY, ("pcie_width",), supports=("ib_slow_most", "ib_wait_most", "pcie_replays")),
    Rule("pcie", POSSIBLE, ("pcie_replays",)),
    Rule(
        "pcie",
        POSSIBLE,
        any_of=("ib_slow_most", "ib_wait_most"),
        none_of=(*_NO_LINK_FAULT, *_NO_IDLE, "gpu_memory_freed", "clock_below_most", "ib_rate"),
        supports=("power_below_most", "nvlink_below_most"),
    ),
    Rule("thermal", LIKELY, ("temp_above", "clock_below"), supports=("thermal_reason", "power_below")),
    Rule("thermal", LIKELY, ("thermal_reason",), supports=("temp_above", "clock_below")),
    Rule("thermal", POSSIBLE, ("temp_above",)),
    Rule("power_cap", LIKELY, ("power_reason",), none_of=("temp_above",), supports=("clock_below",)),
    Rule(
        "power_cap",
        LIKELY,
        ("power_below", "clock_below"),
        none_of=("temp_above", *_NO_IDLE, "util_below_few", "gpu_memory_freed"),
    ),
    Rule(
        "power_cap",
        POSSIBLE,
        any_of=("power_below", "clock_below"),
        none_of=("temp_above", *_NO_IDLE, "gpu_memory_freed", "ib_slow_most", "ib_wait_most"),
    ),
    Rule("program", POSSIBLE, ("xid_program",)),
    Rule(
        "ib_port_down",
        LIKELY,
        any_of=("ib_state", "ib_downed", "ib_gone"),
        supports=("ib_slow_few", "carrier"),
    ),
    Rule("ib_errors", LIKELY, ("ib_link_errors",), none_of=("ib_state",), supports=("ib_discards",)),
    Rule("ib_fabric", POSSIBLE, ("ib_remote_errors",), none_of=("ib_link_errors",)),
    Rule("nic_slow", LIKELY, ("ib_rate",), none_of=("ib_state",), supports=("ib_slow_few",)),
    Rule("nic_slow", LIKELY, ("ib_slow_few", "ib_wait_few"), none_of=_NO_LINK_FAULT),
    Rule("nic_slow", POSSIBLE, any_of=("ib_slow_few", "ib_wait_few", "ib_discards"), none_of=_NO_LINK_FAULT),
    Rule("interface_down", LIKELY, any_of=("carrier", "interface_gone"), none_of=("ib_state",)),
    Rule("interface_down", POSSIBLE, ("interface_errors",)),
    Rule("tcp_loss", LIKELY, ("tcp_retrans", "tcp_order"), none_of=("nfs_again",)),
    Rule("tcp_loss", POSSIBLE, ("tcp_retrans",), supports=("interface_errors",)),
    Rule("nfs_hung", LIKELY, ("mount_error",), supports=("nfs_again",)),
    Rule("nfs_hung", POSSIBLE, ("nfs_gone",)),
    Rule(
        "nfs_transport",
        LIKELY,
        ("nfs_again",),
        any_of=("nfs_response_time", "tcp_retrans", "nfs_reconnect", "nfs_request_time"),
        supports=("nfs_pending", "nfs_backlog", "nfs_any", "io_pressure"),
    ),
    Rule(
        "nfs_transport",
        POSSIBLE,
        any_of=("nfs_again", "nfs_reconnect"),
        supports=("nfs_backlog", "nfs_any", "io_pressure"),
    ),
    Rule(
        "nfs_queue",
        LIKELY,
        ("nfs_queue_time",),
        nfs_stage="queue",
        supports=("nfs_backlog", "nfs_request_time", "io_pressure"),
    ),
    Rule(
        "nfs_queue", POSSIBLE, ("nfs_backlog",), none_of=("nfs_queue_time", "nfs_response_time", "nfs_more")
    ),
    Rule(
        "nfs_server",
        LIKELY,
        ("nfs_response_time",),
        nfs_stage="response",
        supports=("nfs_request_time", "nfs_pending", "io_pressure"),
    ),
    Rule(
        "nfs_server",
        POSSIBLE,
        any_of=("nfs_pending", "nfs_request_time"),
        none_of=("nfs_queue_time", "nfs_response_time", "nfs_more"),
        supports=("io_pressure",),
    ),
    Rule("nfs", POSSIBLE, ("nfs_any",)),
    Rule("disk", LIKELY, ("disk_time", "io_pressure"), none_of=("nfs_response_time", "nfs_again")),
    Rule("disk", LIKELY, ("disk_gone",)),
    Rule("disk", POSSIBLE, any_of=("disk_time", "disk_bytes")),
    Rule("cpu_heat", LIKELY, ("cpu_throttled",), any_of=("cpu_hot", "cpu_slow")),
    Rule("cpu_heat", POSSIBLE, any_of=("cpu_throttled", "cpu_slow", "cpu_hot")),
    Rule(
        "cpu_contention",
        LIKELY,
        any_of=("cpu_pressure", "cpu_load", "cpu_busy", "cpu_user", "cpu_system", "cpu_idle_less"),
        at_least=2,
        none_of=_NO_IDLE,
    ),
    Rule(
        "cpu_contention",
        POSSIBLE,
        any_of=("cpu_pressure", "cpu_load", "cpu_busy", "cpu_user", "cpu_system", "cpu_idle_less"),
    ),
    Rule("host_memory_errors", LIKELY, ("edac_uncorrectable",), supports=("edac_correctable",)),
    Rule("host_memory_errors", POSSIBLE, ("edac_correctable",)),
    Rule("memory_leak", LIKELY, ("oom_kill",), supports=("memory_less", "memory_used")),
    Rule("memory_leak", LIKELY, ("memory_less", "memory_used"), supports=("memory_pressure",)),
    Rule("memory_leak", POSSIBLE, any_of=("memory_less", "memory_used", "memory_pressure")),
    Rule("clock", LIKELY, any_of=("unsynced", "clock_off"), at_least=2),
    Rule("clock", POSSIBLE, any_of=("unsynced", "clock_off")),
    Rule(
        "gpu_idle",
        LIKELY,
        ("util_below_most",),
        any_of=("gpu_memory_freed", "power_below_most", "clock_below_most"),
        supports=("ib_slow_most", "nvlink_below_most"),
    ),
    Rule("gpu_idle", POSSIBLE, any_of=("util_below_most", "gpu_memory_freed")),
    Rule("gpu_slow", POSSIBLE, ("util_below_few",)),
    Rule("scheduler", LIKELY, ("tasks_above",), any_of=("agent_failures", "agent_slow")),
    Rule("scheduler", POSSIBLE, any_of=("tasks_above", "agent_failures", "agent_slow")),
    Rule("monitoring", POSSIBLE, ("exporter_self",)),
)
"""In no order: what is given is chosen by tier, then by how much of the evidence it explains."""

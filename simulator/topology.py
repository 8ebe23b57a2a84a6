"""Parts of a node and the labels by which the exporters name them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from simulator.config import ClusterConfig

N_GPUS = 8
N_IB = 8
GPU_MODEL = "NVIDIA B200"
DRIVER = "570.133.20"
EXPORTS = ("10.2.0.10:/data", "10.2.0.11:/ckpt")
MOUNT_ADDRESSES = ("10.2.0.10", "10.2.0.11")
MOUNTPOINTS = ("/mnt/data", "/mnt/ckpt")
DISKS = ("nvme0n1", "nvme1n1", "md0")
OPERATIONS = (
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
)
CPU_MODES = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
COLLECTORS = (
    "arp",
    "bcache",
    "bonding",
    "btrfs",
    "conntrack",
    "cpu",
    "cpufreq",
    "diskstats",
    "dmi",
    "edac",
    "entropy",
    "fibrechannel",
    "filefd",
    "filesystem",
    "hwmon",
    "infiniband",
    "ipvs",
    "loadavg",
    "mdadm",
    "meminfo",
    "mountstats",
    "netclass",
    "netdev",
    "netstat",
    "nfs",
    "nfsd",
    "nvme",
    "os",
    "powersupplyclass",
    "pressure",
    "rapl",
    "schedstat",
    "selinux",
    "sockstat",
    "softnet",
    "stat",
    "tapestats",
    "textfile",
    "thermal_zone",
    "time",
    "timex",
    "udp_queues",
    "uname",
    "vmstat",
    "xfs",
    "zfs",
)
ABSENT_HARDWARE = frozenset(
    {"bcache", "bonding", "fibrechannel", "ipvs", "nfsd", "powersupplyclass", "tapestats", "zfs"}
)
PORTS = {"node_exporter": 9100, "dcgm": 9400, "all_smi": 9090, "backend_ai": 6003}
JOBS = {"node_exporter": "node", "dcgm": "dcgm", "all_smi": "all-smi", "backend_ai": "backendai"}
EXPORTERS = tuple(JOBS)
SCRAPE = "scrape"
AGENT_VERSION = "25.15.2"

_NAMESPACE = uuid.UUID("6f1d1c9e-3f0a-5d2b-9a77-0c4f6f0e2b11")


def gpu_uuid(node: str, gpu: int) -> str:
    """Return the UUID of a GPU, the same on every run."""
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{gpu}')}"


def pci_bus_id(gpu: int) -> str:
    """Return the bus address of a GPU slot."""
    return f"00000000:{(0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)[gpu]:02X}:00.0"


def address(index: int) -> str:
    """Return the IPv4 address of the node with this index."""
    return f"10.1.{index // 250}.{index % 250 + 1}"


def target_labels(config: ClusterConfig, index: int, exporter: str) -> dict[str, str]:
    """Return the labels that the scraper gives to every series of one target."""
    node = config.node_name(index)
    host = node if exporter == "all_smi" else address(config.first_address + index)
    labels = {"instance": f"{host}:{PORTS[exporter]}", "job": JOBS[exporter]}
    if exporter == "backend_ai":
        labels |= {
            "display_name": f"agent-i-{node}",
            "service_group": "agent",
            "service_id": str(uuid.uuid5(_NAMESPACE, f"agent/{node}")),
            "version": AGENT_VERSION,
        }
    if exporter in config.quirks.pods:
        pod = pod_name(exporter, node, 0)
        labels |= {"namespace": "monitoring", "pod": pod, "container": JOBS[exporter]}
    return labels


def pod_name(exporter: str, node: str, run: int) -> str:
    """Return the name of an exporter's pod; it ends as Kubernetes ends the names of a daemon set."""
    tail = uuid.uuid5(_NAMESPACE, f"pod/{exporter}/{node}/{run}").hex[:5]
    return f"{JOBS[exporter]}-exporter-{tail}"


def job_labels(kind: str, job: int, node: str, run: int) -> dict[str, str]:
    """Return the labels by which the GPU exporter tells whose GPU it is.

    Parameters
    ----------
    kind
        See `habits.JOB_LABELS`.
    job
        Index of the job.
    node
        Node name.
    run
        How often the job has been started anew.
    """
    if kind == "hpc_job":
        return {"hpc_job": str(48213 + 617 * job)}
    if kind == "kubernetes":
        tail = uuid.uuid5(_NAMESPACE, f"job/{job}/{node}/{run}").hex[:5]
        return {
            "exported_namespace": ("pretrain", "research")[job],
            "exported_pod": f"trainer-{job}-{run}-{tail}",
            "exported_container": "trainer",
        }
    return {}


def interfaces(config: ClusterConfig) -> tuple[str, ...]:
    """Return the network interfaces of a node; virtual ones have random names on real machines."""
    veth = tuple(f"veth{0x3A1F00 + 7919 * i:06x}" for i in range(config.n_veth))
    return (*(f"ib{i}" for i in range(N_IB)), "direct0", "net0", "lo", "docker0", *veth)


def _gpu_dcgm(config: ClusterConfig, index: int) -> list[dict[str, str]]:
    node = config.node_name(index)
    return [
        {
            "gpu": str(g),
            "UUID": gpu_uuid(node, g),
            "pci_bus_id": pci_bus_id(g),
            "device": f"nvidia{g}",
            "modelName": GPU_MODEL,
            "Hostname": node,
            "DCGM_FI_DRIVER_VERSION": DRIVER,
        }
        for g in range(N_GPUS)
    ]


def gpu_all_smi(node: str, gpu: int, shown_index: int) -> dict[str, str]:
    """Return all-smi's labels of a GPU; it counts only the GPUs that it can open."""
    return {
        "gpu": GPU_MODEL,
        "exported_instance": node,
        "uuid": gpu_uuid(node, gpu),
        "index": str(shown_index),
    }


def _named(label: str, values: tuple[str, ...]) -> Callable[[ClusterConfig, int], list[dict[str, str]]]:
    return lambda _config, _index: [{label: value} for value in values]


def _exports(*extra: Mapping[str, str]) -> list[dict[str, str]]:
    found = []
    for export, mount in zip(EXPORTS, MOUNT_ADDRESSES, strict=True):
        for more in extra or ({},):
            found.append({"export": export, "mountaddr": mount, "protocol": "tcp", **more})
    return found


def _filesystems(_config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    found = [
        {"device": "/dev/nvme0n1p2", "fstype": "ext4", "mountpoint": "/"},
        {"device": "/dev/md0", "fstype": "xfs", "mountpoint": "/raid"},
        {"device": "tmpfs", "fstype": "tmpfs", "mountpoint": "/run"},
    ]
    for export, mountpoint in zip(EXPORTS, MOUNTPOINTS, strict=True):
        found.append({"device": export, "fstype": "nfs", "mountpoint": mountpoint})
    return [{**labels, "device_error": ""} for labels in found]


def _api(_config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    rows = [("GET", "/metrics", "200"), ("GET", "/status", "200"), ("POST", "/hook", "200")]
    return [
        {"method": m, "endpoint": e, "domain": "", "operation": "", "error_detail": "", "status_code": s}
        for m, e, s in rows
    ]


def _events(_config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    return [
        {"event_type": kind, "status": "success", "domain": "", "operation": "", "error_detail": ""}
        for kind in ("AgentHeartbeatEvent", "KernelStartedEvent", "SessionHeartbeatEvent")
    ]


def _layers(_config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    rows = [
        ("valkey", "valkey_stat", "get_keypair_query_count"),
        ("valkey", "valkey_live", "store_live_data"),
        ("client", "agent_client", "health"),
    ]
    return [{"domain": d, "layer": layer, "operation": op, "success": "True"} for d, layer, op in rows]


def _agent(*extra: Mapping[str, str]) -> Callable[[ClusterConfig, int], list[dict[str, str]]]:
    return lambda config, index: [{"agent_id": f"i-{config.node_name(index)}", **more} for more in extra]


def _sensors(_config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    chips = [
        ("platform_coretemp_0", "temp1"),
        ("platform_coretemp_1", "temp1"),
        ("nvme_nvme0", "temp1"),
        ("nvme_nvme1", "temp1"),
    ]
    return [{"chip": chip, "sensor": sensor} for chip, sensor in chips]


def _ib_ports(_config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    return [{"device": f"mlx5_{i}", "port": "1"} for i in range(N_IB + 1)]


def _cores(config: ClusterConfig, _index: int) -> list[dict[str, str]]:
    per_package = max(1, config.cpus // 4)
    return [{"package": str(i // per_package), "core": str(i % per_package)} for i in range(config.cpus // 2)]


PARTS: Mapping[str, Callable[[ClusterConfig, int], list[dict[str, str]]]] = {
    "node": lambda _c, _i: [{}],
    "uname": lambda c, i: [
        {
            "domainname": "(none)",
            "machine": "x86_64",
            "nodename": c.node_name(i),
            "release": "6.8.0-60-generic",
            "sysname": "Linux",
            "version": "#63-Ubuntu SMP PREEMPT_DYNAMIC",
        }
    ],
    "smi_node": lambda c, i: [
        {"exported_instance": c.node_name(i), "hostname": c.node_name(i), "index": "0"}
    ],
    "smi_cpu": lambda c, i: [
        {
            "cpu_model": "Intel(R) Xeon(R) Platinum 8570",
            "exported_instance": c.node_name(i),
            "hostname": c.node_name(i),
            "index": "0",
        }
    ],
    "gpu": _gpu_dcgm,
    "smi_gpu": lambda c, i: [gpu_all_smi(c.node_name(i), g, g) for g in range(N_GPUS)],
    "ib_port": _ib_ports,
    "interface": lambda c, _i: [{"device": name} for name in interfaces(c)],
    "nfs": lambda _c, _i: _exports(),
    "nfs_op": lambda _c, _i: _exports(*({"operation": op} for op in OPERATIONS)),
    "nfs_proto": lambda _c, _i: [{"protocol": "tcp"}, {"protocol": "udp"}],
    "nfs_method": lambda _c, _i: [{"method": op.capitalize(), "proto": "3"} for op in OPERATIONS],
    "disk": _named("device", DISKS),
    "filesystem": _filesystems,
    "cpu": lambda c, _i: [{"cpu": str(k)} for k in range(c.cpus)],
    "cpu_mode": lambda c, _i: [{"cpu": str(k), "mode": mode} for k in range(c.cpus) for mode in CPU_MODES],
    "core": _cores,
    "package": _named("package", ("0", "1")),
    "controller": _named("controller", ("0", "1")),
    "sensor": _sensors,
    "collector": _named("collector", COLLECTORS),
    "quantile": _named("quantile", ("0", "0.25", "0.5", "0.75", "1")),
    "code": _named("code", ("200", "500", "503")),
    "generation": _named("generation", ("0", "1", "2")),
    "rpc": _named("method", ("get_container_logs", "health", "ping_kernel", "sync_kernel_registry")),
    "api": _api,
    "event": lambda c, i: [{"event_type": row["event_type"]} for row in _events(c, i)],
    "event_time": _events,
    "layer": _layers,
    "layer_open": lambda c, i: [{k: v for k, v in row.items() if k != "success"} for row in _layers(c, i)],
    "stat": _agent({"stat_scope": "node"}, {"stat_scope": "container"}, {"stat_scope": "process"}),
    "agent": _agent({}),
    "event_failure": lambda _c, _i: [
        {
            "event_type": "AgentHeartbeatEvent",
            "exception": "TimeoutError",
            "domain": "",
            "operation": "",
            "error_detail": "",
        }
    ],
    "rpc_failure": lambda _c, _i: [{"method": "health", "exception": "TimeoutError"}],
    "stat_failure": _agent({"stat_scope": "container", "exception": "TimeoutError"}),
    "agent_failure": _agent({"exception": "TimeoutError"}),
    "target": lambda c, i: [target_labels(c, i, exporter) for exporter in EXPORTERS],
}
"""Space of parts -> label sets of one node's parts."""

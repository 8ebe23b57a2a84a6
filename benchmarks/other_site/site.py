"""The state of all nodes of a site over the time of a case, and what is known of it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.other_site.hardware import DISKS, Hardware
from benchmarks.other_site.noise import POINTS_PER_MINUTE, Array, Noise

if TYPE_CHECKING:
    from benchmarks.other_site.jobs import Job

FIRST_START = 1_764_000_000
PORT_ACTIVE, PORT_DOWN = 4, 1


class GpuState:
    """State of every GPU; arrays of shape (n_nodes, n_gpus, n_points).

    Attributes
    ----------
    work, busy
        Work done as a share of what a GPU can do; share of the time that a kernel runs, as one does that
        waits for others.
    clock, heating
        Factors on the clock and on the thermal resistance.
    memory_mib
        Memory used.
    nvlink, nvlink_factor, pcie, pcie_factor
        Traffic: as the jobs ask for, and factors of faults.
    replays
        PCIe replays per second.
    is_present
        False when the driver lost the GPU.
    xid
        The newest XID, 0 for none.
    remapped_correctable, remapped_uncorrectable
        Remapped rows of memory.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.work, self.busy = _zeros(shape), _zeros(shape)
        self.clock, self.heating = _ones(shape), _ones(shape)
        self.memory_mib = _zeros(shape)
        self.nvlink, self.nvlink_factor = _zeros(shape), _ones(shape)
        self.pcie, self.pcie_factor = _zeros(shape), _ones(shape)
        self.replays = _zeros(shape)
        self.is_present = np.ones(shape, bool)
        self.xid = np.zeros(shape, np.int16)
        self.remapped_correctable, self.remapped_uncorrectable = _zeros(shape), _zeros(shape)


class RdmaState:
    """State of every RDMA port; arrays of shape (n_nodes, n_ports, n_points).

    Attributes
    ----------
    traffic
        Bytes per second, in and out.
    wait_factor
        Factor on the time that packets wait for credits.
    state
        4 is active, 1 is down.
    bytes_per_s
        Rate of the link.
    errors
        By node, port and counter: errors per second at each point.
    """

    def __init__(self, shape: tuple[int, int, int], bytes_per_s: float) -> None:
        self.traffic, self.wait_factor = _zeros(shape), _ones(shape)
        self.state = np.full(shape, PORT_ACTIVE, np.int8)
        self.bytes_per_s = np.full(shape, bytes_per_s)
        self.errors: dict[tuple[int, int, str], Array] = {}


class HostState:
    """State of the operating system of every node; arrays of shape (n_nodes, n_points).

    Attributes
    ----------
    cpu_user, cpu_system, cpu_waiting, cpu_interrupts
        CPUs in each mode.
    cpu_clock, cpu_throttles
        Factor on the clock of all CPUs; throttle events per second.
    memory, shared_memory, cache
        Bytes on top of what an idle node has.
    disk_read, disk_written, disk_latency
        Bytes per second, and a factor on the time of a request; shape (n_nodes, 2, n_points).
    root_used
        Bytes of the root file system on top of what it had.
    received, sent, retransmits
        Bytes per second of the Ethernet device; factor on TCP retransmits.
    receive_errors
        By node and network device: errors per second at each point.
    blocked, forks, sessions
        Processes in uninterruptible sleep; factor on forks; people logged in.
    memory_kills, corrected_errors
        Out-of-memory kills and corrected memory errors per second.
    is_time_synchronised, time_offset, time_error
        Time service: state, and seconds.
    heat
        Degrees of the inlet air above the ordinary.
    tensor_share
        Factor on the use of tensor cores, shape (n_nodes,).
    """

    def __init__(self, n_nodes: int, n_points: int) -> None:
        shape, disks = (n_nodes, n_points), (n_nodes, len(DISKS), n_points)
        self.cpu_user, self.cpu_system = _zeros(shape), _zeros(shape)
        self.cpu_waiting, self.cpu_interrupts = _zeros(shape), _zeros(shape)
        self.cpu_clock, self.cpu_throttles = _ones(shape), _zeros(shape)
        self.memory, self.shared_memory, self.cache = _zeros(shape), _zeros(shape), _zeros(shape)
        self.disk_read, self.disk_written, self.disk_latency = _zeros(disks), _zeros(disks), _ones(disks)
        self.root_used = _zeros(shape)
        self.received, self.sent, self.retransmits = _zeros(shape), _zeros(shape), _ones(shape)
        self.receive_errors: dict[tuple[int, str], Array] = {}
        self.blocked, self.forks, self.sessions = _zeros(shape), _ones(shape), _zeros(shape)
        self.memory_kills, self.corrected_errors = _zeros(shape), _zeros(shape)
        self.is_time_synchronised = np.ones(shape, np.int8)
        self.time_offset, self.time_error = _zeros(shape), _zeros(shape)
        self.heat = _zeros(shape)
        self.tensor_share = _ones((n_nodes,))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that holds the GPUs of a node from one point to another."""

    start: int
    end: int
    namespace: str
    name: str
    container: str


class Site:
    """A site over the time of one case.

    Parameters
    ----------
    seed
        The same text gives the same case.
    hardware
        What the nodes are made of.
    n_nodes
        Number of nodes.
    step_s
        Seconds between scrapes.
    minutes
        Length of the case.
    node_label
        True when the scrape configuration adds a ``node`` label.
    zero_xids
        True when dcgm-exporter tells an XID of 0, False when it tells none before the first.

    Attributes
    ----------
    start, n_points
        Epoch seconds of the first point; points, two minutes more than the case has.
    gpu, rdma, host
        State of the nodes.
    jobs, pods
        Jobs; by node, the pods that hold its GPUs.
    drivers
        By node, points from which each version of the driver is loaded.
    node_exporter_up, dcgm_exporter_up
        Whether the exporters answer, shape (n_nodes, n_points).
    boots, exporter_starts
        By node, points at which it boots and at which its node_exporter starts.
    faults, benign, masked, notes
        What is known of the case, as in ``incident.yaml``.
    """

    def __init__(
        self,
        seed: str,
        hardware: Hardware,
        n_nodes: int,
        step_s: int,
        minutes: int,
        *,
        node_label: bool = False,
        zero_xids: bool = True,
    ) -> None:
        self.hardware, self.n_nodes, self.step_s, self.minutes = hardware, n_nodes, step_s, minutes
        self.node_label, self.zero_xids = node_label, zero_xids
        self.collect_s = 30 if step_s >= 30 else 15
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))
        self.n_points = (minutes + 2) * POINTS_PER_MINUTE
        self.noise = Noise(self.rng, self.n_points)
        start = FIRST_START + int(self.rng.integers(0, 200)) * 3600 + int(self.rng.integers(0, 60)) * 60
        self.start = start - start % step_s
        self.hosts, self.full_names = self._names()
        self.gpu = GpuState((n_nodes, hardware.n_gpus, self.n_points))
        self.rdma = RdmaState((n_nodes, hardware.n_rdma_ports, self.n_points), hardware.rdma_bytes_per_s)
        self.host = HostState(n_nodes, self.n_points)
        self.jobs: list[Job] = []
        self.pods: list[list[Pod]] = [[] for _ in range(n_nodes)]
        self.drivers = [[(0, hardware.driver)] for _ in range(n_nodes)]
        self.node_exporter_up = np.ones((n_nodes, self.n_points), bool)
        self.dcgm_exporter_up = np.ones((n_nodes, self.n_points), bool)
        self.boots: list[list[int]] = [[] for _ in range(n_nodes)]
        self.exporter_starts: list[list[int]] = [[] for _ in range(n_nodes)]
        self.faults: list[dict[str, Any]] = []
        self.benign: list[dict[str, Any]] = []
        self.masked: list[dict[str, Any]] = []
        self.notes = ""

    def _names(self) -> tuple[list[str], list[str]]:
        """Return the host names, and the names with the domain."""
        numbers = range(self.n_nodes)
        if not self.hardware.domain:
            hosts = [self.hardware.host_name.format(i + 1) for i in numbers]
            return hosts, hosts
        subnet = self.rng.integers(1, 30)
        hosts = [f"ip-10-2-{subnet + i // 40}-{11 + 3 * i}" for i in numbers]
        return hosts, [f"{host}.{self.hardware.domain}" for host in hosts]

    @property
    def nodes(self) -> range:
        """Numbers of all nodes."""
        return range(self.n_nodes)

    def between(self, start: float, end: float | None = None) -> slice:
        """Return the points between two minutes of the case; without an end, up to the last."""
        return slice(self.point(start), self.n_points if end is None else self.point(end))

    def point(self, minute: float) -> int:
        """Return the point at a minute of the case."""
        return int(minute * POINTS_PER_MINUTE)

    def zeros(self) -> Array:
        """Return a zero for each point."""
        return np.zeros(self.n_points)

    def ones(self) -> Array:
        """Return a one for each point."""
        return np.ones(self.n_points)

    def label_fault(
        self, node: int, kind: str, start: float, end: float | None = None, *, part: str = "", severity: str
    ) -> None:
        """Label a fault; minutes of the case, without an end it lasts to the last.

        Parameters
        ----------
        node
            Number of the node.
        kind, part, severity
            As in ``incident.yaml``.
        start, end
            Minutes of the case.
        """
        label = {
            "node": self.hosts[node],
            "kind": kind,
            "onset": self._epoch(start),
            "end": self._epoch(self.minutes if end is None else end),
            "severity": severity,
        }
        self.faults.append({**label, "part": part} if part else label)

    def label_benign(self, kind: str, node: int | None, start: float, end: float) -> None:
        """Label an event that is no fault; node None is all nodes."""
        of_node = {} if node is None else {"node": self.hosts[node]}
        self.benign.append({"kind": kind, **of_node, "onset": self._epoch(start), "end": self._epoch(end)})

    def mask(self, node: int, start: float, end: float) -> None:
        """Label time of a node that counts neither way."""
        self.masked.append({"node": self.hosts[node], "onset": self._epoch(start), "end": self._epoch(end)})

    def _epoch(self, minute: float) -> int:
        return int(self.start + minute * 60)


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)


def _ones(shape: tuple[int, ...]) -> Array:
    return np.ones(shape, np.float32)

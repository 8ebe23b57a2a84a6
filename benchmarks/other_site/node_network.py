"""What node_exporter tells of the network devices, protocols and sockets of a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.other_site.noise import Array, in_pages
from benchmarks.other_site.scrape import Exporter
from benchmarks.other_site.site import Site

POD_DEVICES = "cali"
"""Beginning of the names of devices that lead to pods."""

HEX = tuple("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Bytes per second of the Ethernet device, and those of them that no job makes."""

    received: Array
    sent: Array
    ordinary_received: Array
    ordinary_sent: Array


@dataclass(frozen=True, slots=True)
class _Device:
    """A network device; `bytes_per_s` is None where the kernel knows no speed."""

    name: str
    received: Array
    sent: Array
    packet_bytes: int
    bytes_per_s: float | None


def tell_network(site: Site, n: int, exporter: Exporter) -> None:
    """Write the series of devices, protocols and sockets."""
    noise, host = site.noise, site.host
    received = 2.1e5 * noise.factor(0.15) * (1 + noise.wander((), 20, 0.15)).clip(0.1)
    sent = 6.0e5 * noise.factor(0.1) * (1 + noise.wander((), 20, 0.15)).clip(0.1)
    traffic = _Traffic(
        received=host.received[n] + received + noise.bursts((), 0.02, 3e5),
        sent=host.sent[n] + sent + noise.bursts((), 0.02, 3e5),
        ordinary_received=received,
        ordinary_sent=sent,
    )
    for device in list(_devices(site, traffic)):
        _tell_device(site, n, exporter, device)
    _tell_protocols(site, n, exporter, traffic)


def _devices(site: Site, traffic: _Traffic) -> Iterator[_Device]:
    noise, rng, hardware, flat = site.noise, site.rng, site.hardware, site.ones()
    yield _Device(hardware.ethernet, traffic.received, traffic.sent, 1500, hardware.ethernet_bytes_per_s)
    if hardware.management_device:
        received = 900 * noise.factor(0.2) * flat + noise.bursts((), 0.05, 500)
        yield _Device(hardware.management_device, received, 300 * flat, 120, 1.25e8)
    yield _Device("lo", 4e4 * flat, 4e4 * flat, 300, None)
    to_overlay, from_overlay = traffic.ordinary_received * 0.5, traffic.ordinary_sent * 0.7
    yield _Device(hardware.overlay_device, to_overlay, from_overlay, 700, None)
    for _ in range(int(rng.integers(3, 6))):
        name = POD_DEVICES + "".join(rng.choice(HEX, 11))
        received, sent = 3e4 * noise.factor(0.7) * flat, 3e4 * noise.factor(0.7) * flat
        yield _Device(name, received, sent, 400, 1.25e9)
    if hardware.has_ip_over_infiniband:
        for port in range(hardware.n_rdma_ports):
            received = 60 * flat + noise.bursts((), 0.05, 50)
            yield _Device(f"ib{port}", received, 40 * flat, 60, hardware.rdma_bytes_per_s)
    for name in hardware.roce_devices:
        received = 4000 * flat + noise.bursts((), 0.05, 900)
        yield _Device(name, received, 3000 * flat, 120, 2.5e10)


def _tell_device(site: Site, n: int, exporter: Exporter, device: _Device) -> None:
    labels, zero, flat = {"device": device.name}, site.zeros(), site.ones()
    is_physical = device.bytes_per_s is not None and not device.name.startswith(POD_DEVICES)
    is_ethernet = device.name == site.hardware.ethernet
    errors = site.host.receive_errors.get((n, device.name), zero)

    def counter(name: str, rate: Array, *, whole: bool = False, start: float | None = None) -> None:
        exporter.counter(f"node_network_{name}_total", labels, rate, whole=whole, start=start)

    counter("receive_bytes", np.round(device.received))
    counter("transmit_bytes", np.round(device.sent))
    counter("receive_packets", device.received / device.packet_bytes, whole=True)
    counter("transmit_packets", device.sent / device.packet_bytes, whole=True)
    counter("receive_errs", errors, whole=True, start=0)
    counter("transmit_errs", zero, start=0)
    counter("receive_drop", (0.35 if is_ethernet else 0) * flat, whole=True)
    counter("transmit_drop", zero, start=0)
    counter("receive_multicast", (1.3 if is_physical else 0) * flat, whole=True)
    exporter.gauge("node_network_up", labels, zero if device.name == "lo" else flat)
    exporter.gauge("node_network_carrier", labels, flat)
    counter("carrier_changes", zero, start=2)
    counter("carrier_down_changes", zero, start=1)
    if device.bytes_per_s is not None:
        exporter.gauge("node_network_speed_bytes", labels, np.full(site.n_points, device.bytes_per_s))


def _tell_protocols(site: Site, n: int, exporter: Exporter, traffic: _Traffic) -> None:
    noise, rng, flat, zero = site.noise, site.rng, site.ones(), site.zeros()
    segments_in, segments_out = traffic.received / 2500 + 60, traffic.sent / 2500 + 60
    lost = (0.15 + segments_out * 1.2e-5) * site.host.retransmits[n]
    retransmits = lost * np.exp(noise.wander((), 60, 0.4)) + noise.bursts((), 0.02, 4)
    of_job = site.hardware.job_connections * (site.gpu.busy[n].max(0) > 0.02)
    connections = 45 + rng.integers(0, 15) + of_job

    def counter(name: str, rate: Array) -> None:
        exporter.counter(f"node_netstat_{name}", {}, rate, whole=True)

    counter("Tcp_ActiveOpens", 1.2 * noise.factor(0.1) * flat)
    counter("Tcp_PassiveOpens", 0.9 * noise.factor(0.1) * flat)
    now = connections + rng.integers(-2, 3, site.n_points) + site.host.sessions[n] * 3
    exporter.gauge("node_netstat_Tcp_CurrEstab", {}, now)
    counter("Tcp_InSegs", segments_in)
    counter("Tcp_OutSegs", segments_out)
    counter("Tcp_RetransSegs", retransmits)
    counter("Tcp_InErrs", zero)
    counter("Tcp_OutRsts", 0.2 * flat + noise.bursts((), 0.02, 3))
    for name in ("ListenDrops", "ListenOverflows", "SyncookiesFailed", "SyncookiesRecv", "SyncookiesSent"):
        counter(f"TcpExt_{name}", zero)
    counter("TcpExt_TCPSynRetrans", 0.02 + 0.01 * site.host.retransmits[n])
    counter("TcpExt_TCPTimeouts", 0.03 + 0.04 * retransmits)
    counter("TcpExt_TCPOFOQueue", 0.05 + segments_in * 2e-5)
    counter("TcpExt_TCPRcvQDrop", zero)
    counter("IpExt_InOctets", traffic.received + 5e4)
    counter("IpExt_OutOctets", traffic.sent + 5e4)
    for name, rate in {
        "Ip6_InOctets": 3.0,
        "Ip6_OutOctets": 3.0,
        "Icmp_InMsgs": 0.3,
        "Icmp_OutMsgs": 0.3,
        "Icmp_InErrors": 0.0,
        "Icmp6_InMsgs": 0.05,
        "Icmp6_OutMsgs": 0.05,
        "Udp_InDatagrams": 9.0,
        "Udp_OutDatagrams": 9.0,
        "Udp_NoPorts": 0.02,
        "Udp_InErrors": 0.0,
        "Udp_RcvbufErrors": 0.0,
        "Udp_SndbufErrors": 0.0,
    }.items():
        counter(name, rate * flat)
    _tell_sockets(site, n, exporter, connections, segments_in)


def _tell_sockets(site: Site, n: int, exporter: Exporter, connections: Array, segments: Array) -> None:
    noise, rng, n_points, sessions = site.noise, site.rng, site.n_points, site.host.sessions[n]

    def gauge(name: str, values: Array) -> None:
        exporter.gauge(f"node_sockstat_{name}", {}, values)

    gauge("sockets_used", 900 + rng.integers(0, 80) + rng.integers(-8, 9, n_points) + 30 * sessions)
    gauge("TCP_alloc", connections + 30 + rng.integers(-3, 4, n_points))
    gauge("TCP_inuse", connections + 4)
    gauge("TCP_mem_bytes", in_pages(4096 * (60 + rng.poisson(30, n_points) + segments / 3000)))
    gauge("TCP_orphan", rng.poisson(0.05, n_points))
    gauge("TCP_tw", rng.poisson(45, n_points))
    gauge("UDP_inuse", np.full(n_points, 9))
    gauge("UDP_mem_bytes", 4096 * rng.poisson(2, n_points))
    gauge("TCP6_inuse", np.full(n_points, 14))
    tracked = 900 * noise.factor(0.1) + noise.wander((), 60, 25) + 20 * sessions
    exporter.gauge("node_nf_conntrack_entries", {}, tracked)

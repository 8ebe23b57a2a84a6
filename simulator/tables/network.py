"""Interfaces, sockets and protocols of the host, and InfiniBand ports."""

from simulator.columns import Column, Table

WRAP_32 = 4294967296.0


def columns() -> list[Column]:
    """Return the columns of netdev, netclass, softnet, netstat, sockstat, conntrack and infiniband."""
    t = Table("node_exporter")
    _interfaces(t)
    _netstat(t)
    _sockets(t)
    _infiniband(t)
    return t.columns


def _interfaces(t: Table) -> None:
    space = "interface"
    for way in ("receive", "transmit"):
        traffic = "if_rx" if way == "receive" else "if_tx"
        t.counter(f"node_network_{way}_bytes_total", space, **{traffic: 1}, sigma=0.0, spread=0.0)
        t.counter(
            f"node_network_{way}_packets_total", space, **{f"{traffic}_packets": 1}, sigma=0.03, spread=0.02
        )
        t.rare(f"node_network_{way}_errs_total", space, if_errors=1)
    t.rare("node_network_receive_drop_total", space, if_drops=1)
    t.rare("node_network_transmit_drop_total", space, if_errors=0.5)
    t.counter("node_network_receive_multicast_total", space, if_multicast=1, sigma=0.2)
    t.gauge("node_network_up", space, if_up=1)
    t.gauge("node_network_carrier", space, if_carrier=1)
    t.gauge("node_network_carrier_changes_total", space, if_changes=2)
    t.gauge("node_network_carrier_down_changes_total", space, if_changes=1)
    t.counter("node_softnet_processed_total", "cpu", packets_per_cpu=1, sigma=0.4, spread=0.8, wrap=WRAP_32)
    t.rare("node_softnet_dropped_total", "cpu", softnet_drops=1, wrap=WRAP_32)
    t.counter(
        "node_softnet_times_squeezed_total", "cpu", packets_per_cpu=2e-4, sigma=0.8, spread=0.8, wrap=WRAP_32
    )


def _netstat(t: Table) -> None:
    def count(name: str, **how: float) -> None:
        t.counter(
            f"node_netstat_{name}", "node", **{"sigma": 0.35, "ar": 0.4, "spread": 0.1, "tail": 0.004, **how}
        )

    count("Tcp_ActiveOpens", one=2.2, train=1.5, ckpt=6, fork_burst=8, sick=4)
    count("Tcp_PassiveOpens", one=1.8, train=0.6, sick=2)
    count("Tcp_InSegs", one=900, nfs_read=1.2e-4, nfs_write=2e-5, train=1500)
    count("Tcp_OutSegs", one=850, nfs_read=2e-5, nfs_write=1.2e-4, train=1400)
    count("Tcp_RetransSegs", one=0.05, nfs_write=2e-9, net_loss=60, nfs_wait=8, sigma=0.9)
    t.rare("node_netstat_Tcp_InErrs", one=1e-5, net_loss=0.2)
    count("Tcp_OutRsts", one=0.8, sick=3, sigma=0.7)
    t.rare("node_netstat_TcpExt_ListenDrops", one=2e-6)
    t.rare("node_netstat_TcpExt_ListenOverflows", one=2e-6)
    for name in ("SyncookiesFailed", "SyncookiesRecv", "SyncookiesSent"):
        t.rare(f"node_netstat_TcpExt_{name}", one=2e-4)
    t.rare("node_netstat_TcpExt_TCPSynRetrans", one=0.003, net_loss=0.5, sick=0.1)
    t.rare("node_netstat_TcpExt_TCPTimeouts", one=0.01, net_loss=4, nfs_wait=0.6, sick=0.2)
    count("TcpExt_TCPOFOQueue", one=0.2, nfs_read=1e-8, net_loss=40, sigma=0.9)
    t.rare("node_netstat_TcpExt_TCPRcvQDrop", one=2e-4)
    count("IpExt_InOctets", one=1.2e5, nfs_read=1.02, nfs_write=0.01, mgmt=1, sigma=0.02, tail=0.0)
    count("IpExt_OutOctets", one=1.1e5, nfs_write=1.02, nfs_read=0.01, mgmt=0.8, sigma=0.02, tail=0.0)
    count("Ip6_InOctets", one=300)
    count("Ip6_OutOctets", one=280)
    for name, level in (
        ("Icmp_InMsgs", 0.4),
        ("Icmp_OutMsgs", 0.4),
        ("Icmp6_InMsgs", 0.05),
        ("Icmp6_OutMsgs", 0.06),
    ):
        t.rare(f"node_netstat_{name}", one=level)
    t.rare("node_netstat_Icmp_InErrors", one=0.002)
    count("Udp_InDatagrams", one=14)
    count("Udp_OutDatagrams", one=15)
    t.rare("node_netstat_Udp_NoPorts", one=0.01)
    t.rare("node_netstat_Udp_InErrors", one=5e-5)
    t.rare("node_netstat_Udp_RcvbufErrors", one=2e-5)
    t.rare("node_netstat_Udp_SndbufErrors", one=2e-5)
    t.rare("node_netstat_Udp6_InDatagrams", one=0.3)
    t.rare("node_netstat_Udp6_OutDatagrams", one=0.3)
    t.rare("node_netstat_Udp6_NoPorts", one=0.001)
    t.gauge("node_netstat_Tcp_CurrEstab", one=180, train=420, sick=60, sigma=0.03, ar=0.8, spread=0.02)


def _sockets(t: Table) -> None:
    def level(name: str, **how: float) -> None:
        t.gauge(f"node_sockstat_{name}", "node", **{"sigma": 0.04, "ar": 0.7, "spread": 0.02, **how})

    level("sockets_used", one=1100, train=900, sick=150)
    level("TCP_alloc", one=260, train=520, sick=70)
    level("TCP_inuse", one=190, train=440, sick=60)
    level("TCP_mem_bytes", one=4e6, train=8e6, ckpt=4e7, sigma=0.3, quantum=4096)
    level("TCP_orphan", one=0.3, sigma=0.9, ar=0)
    level("TCP_tw", one=60, train=30, sigma=0.3)
    level("UDP_inuse", one=14, sigma=0.05)
    level("UDP_mem_bytes", one=6e4, sigma=0.4, quantum=4096)
    level("TCP6_inuse", one=24)
    t.gauge("node_nf_conntrack_entries", one=600, train=500, sick=120, sigma=0.08, ar=0.7, spread=0.05)


def _infiniband(t: Table) -> None:
    space = "ib_port"
    for way, driver in (("received", "ib_rx"), ("transmitted", "ib_tx")):
        t.counter(
            f"node_infiniband_port_data_{way}_bytes_total",
            space,
            **{driver: 1},
            sigma=0.0,
            spread=0.0,
            quantum=4,
        )
        t.counter(
            f"node_infiniband_port_packets_{way}_total", space, **{driver: 1 / 2600}, sigma=0.01, spread=0.01
        )
    t.counter("node_infiniband_port_transmit_wait_total", space, ib_wait=1, sigma=0.25, ar=0.5, spread=0.1)
    t.gauge("node_infiniband_rate_bytes_per_second", space, ib_rate=1)
    t.gauge("node_infiniband_state_id", space, ib_state=1)
    t.gauge("node_infiniband_physical_state_id", space, ib_physical=1)
    t.gauge("node_infiniband_link_downed_total", space, ib_downed=1, high=255)
    t.rare("node_infiniband_link_error_recovery_total", space, ib_errors=0.02)
    t.rare("node_infiniband_symbol_error_total", space, ib_one=3e-6, ib_errors=1)
    t.rare("node_infiniband_port_errors_received_total", space, ib_errors=0.4)
    t.rare("node_infiniband_port_discards_transmitted_total", space, ib_one=2e-6, ib_errors=0.05)
    t.rare("node_infiniband_local_link_integrity_errors_total", space, ib_errors=0.004)
    t.rare("node_infiniband_port_receive_remote_physical_errors_total", space, ib_one=1e-6)

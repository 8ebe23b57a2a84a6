"""What the nodes of the three modelled sites are made of."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2.0**30

DISKS = ("nvme0n1", "nvme1n1")
"""The system's disk and the local data disk of every node."""

SYSTEM_DISK, DATA_DISK = 0, 1


@dataclass(frozen=True, slots=True)
class Hardware:
    """Nodes of one site.

    Parameters
    ----------
    gpu_model
        As dcgm-exporter names it.
    n_gpus, n_cpus
        GPUs and CPUs of a node.
    power_limit_w, idle_power_w
        Of a GPU.
    boost_clock_mhz, memory_clock_mhz, idle_clock_share, parked_clock_mhz
        Clocks of a GPU. An idle one has a share of the boost clock; where `parked_clock_mhz` is not 0, nine
        of ten have that clock instead, and the others keep the boost clock.
    gpu_memory_mib, gpu_memory_reserved_mib
        Memory of a GPU.
    has_nvlink, has_memory_temperature
        Whether dcgm-exporter has these metrics.
    rdma_ports, rdma_bytes_per_s
        RDMA devices and their rate.
    has_ip_over_infiniband, roce_devices
        Network devices of the RDMA ports as node_exporter sees them.
    ethernet, ethernet_bytes_per_s, management_device, overlay_device
        Other network devices; `management_device` may be empty.
    job_connections
        TCP connections that a job holds open on each node.
    memory_bytes
        Memory of a node.
    driver
        Version of the GPU driver.
    host_name
        Format of the host names, with the node's number from 1.
    domain
        Domain of a cloud, which also names its hosts by address; empty for a site of its own.
    """

    gpu_model: str
    n_gpus: int
    n_cpus: int
    power_limit_w: int
    idle_power_w: int
    boost_clock_mhz: int
    memory_clock_mhz: int
    gpu_memory_mib: int
    gpu_memory_reserved_mib: int
    has_nvlink: bool
    has_memory_temperature: bool
    ethernet: str
    ethernet_bytes_per_s: float
    overlay_device: str
    memory_bytes: float
    driver: str
    rdma_ports: tuple[str, ...] = ()
    rdma_bytes_per_s: float = 0.0
    has_ip_over_infiniband: bool = False
    roce_devices: tuple[str, ...] = ()
    management_device: str = ""
    job_connections: int = 8
    idle_clock_share: float = 0.174
    parked_clock_mhz: int = 0
    host_name: str = ""
    domain: str = ""

    @property
    def n_rdma_ports(self) -> int:
        """Number of RDMA ports of a node."""
        return len(self.rdma_ports)


H100 = Hardware(
    gpu_model="NVIDIA H100 80GB HBM3",
    n_gpus=8,
    n_cpus=24,
    power_limit_w=700,
    idle_power_w=72,
    boost_clock_mhz=1980,
    memory_clock_mhz=2619,
    parked_clock_mhz=345,
    gpu_memory_mib=81079,
    gpu_memory_reserved_mib=480,
    has_nvlink=True,
    has_memory_temperature=True,
    rdma_ports=tuple(f"mlx5_{i}" for i in (0, 3, 4, 5, 6, 9, 10, 11)),
    rdma_bytes_per_s=5e10,
    has_ip_over_infiniband=True,
    ethernet="ens10f0np0",
    ethernet_bytes_per_s=3.125e9,
    management_device="eno8303",
    overlay_device="vxlan.calico",
    memory_bytes=2015 * GIB,
    driver="535.183.06",
    host_name="gpu-w-{:03d}",
)

A100 = Hardware(
    gpu_model="NVIDIA A100-SXM4-80GB",
    n_gpus=4,
    n_cpus=16,
    power_limit_w=400,
    idle_power_w=58,
    boost_clock_mhz=1410,
    memory_clock_mhz=1593,
    gpu_memory_mib=81050,
    gpu_memory_reserved_mib=600,
    has_nvlink=True,
    has_memory_temperature=True,
    rdma_ports=("mlx5_0", "mlx5_1"),
    rdma_bytes_per_s=2.5e10,
    roce_devices=("ens1f0np0", "ens2f0np0"),
    ethernet="eno1",
    ethernet_bytes_per_s=3.125e9,
    management_device="eno2",
    overlay_device="vxlan.calico",
    memory_bytes=503 * GIB,
    driver="550.90.07",
    host_name="a100-{:02d}",
)

L40S = Hardware(
    gpu_model="NVIDIA L40S",
    n_gpus=4,
    n_cpus=16,
    power_limit_w=350,
    idle_power_w=34,
    boost_clock_mhz=2520,
    memory_clock_mhz=9001,
    idle_clock_share=0.083,
    gpu_memory_mib=45488,
    gpu_memory_reserved_mib=580,
    has_nvlink=False,
    has_memory_temperature=False,
    ethernet="ens5",
    ethernet_bytes_per_s=12.5e9,
    overlay_device="cni0",
    job_connections=40,
    memory_bytes=755 * GIB,
    driver="560.35.03",
    domain="eu-central-1.compute.internal",
)

"""GPUs as DCGM and all-smi report them."""

from simulator.columns import Column, Table

MIB = 1048576.0


def columns() -> list[Column]:
    """Return all columns of DCGM and of all-smi's GPUs, processors and memory."""
    d = Table("dcgm")
    d.gauge("DCGM_FI_DEV_GPU_UTIL", "gpu", util=1, high=100)
    d.gauge("DCGM_FI_DEV_GPU_TEMP", "gpu", temp=1)
    d.gauge("DCGM_FI_DEV_SM_CLOCK", "gpu", clock=1, quantum=15)
    d.gauge("DCGM_FI_DEV_POWER_USAGE", "gpu", power=1, quantum=0.1)
    d.gauge("DCGM_FI_DEV_FB_USED", "gpu", fb=1)
    d.gauge("DCGM_FI_DEV_MEMORY_TEMP", "gpu", mem_temp=1)
    d.gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", copy=1, high=100)
    d.gauge("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gpu", nvlink=1)
    d.gauge("DCGM_FI_DEV_XID_ERRORS", "gpu", xid=1)
    d.gauge("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "gpu", remap_corrected=1)
    d.gauge("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "gpu", remap_uncorrected=1)
    d.gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gpu", remap_failed=1)
    d.rare("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gpu", gpu_one=1e-4, pcie_replay=1)

    s = Table("all_smi")
    s.gauge("all_smi_gpu_utilization", "smi_gpu", smi_util=1, high=100)
    s.gauge("all_smi_gpu_temperature_celsius", "smi_gpu", smi_temp=1)
    s.gauge("all_smi_gpu_frequency_mhz", "smi_gpu", smi_clock=1, quantum=15)
    s.gauge("all_smi_gpu_power_consumption_watts", "smi_gpu", smi_power=1, quantum=0.1)
    s.gauge("all_smi_gpu_memory_used_bytes", "smi_gpu", smi_fb=MIB, quantum=MIB)
    s.gauge("all_smi_memory_used_bytes", "smi_node", mem_used=1, quantum=1024)
    s.gauge("all_smi_memory_available_bytes", "smi_node", mem_available=1, quantum=1024)
    s.gauge("all_smi_memory_free_bytes", "smi_node", mem_free=1, quantum=1024)
    s.gauge("all_smi_memory_utilization", "smi_node", mem_used_percent=1, quantum=0.01, high=100)
    s.gauge("all_smi_memory_buffers_bytes", "smi_node", mem_buffers=1, quantum=1024)
    s.gauge("all_smi_memory_cached_bytes", "smi_node", mem_cached=1, quantum=1024)
    s.gauge("all_smi_cpu_utilization", "smi_cpu", cpu_percent=1, jitter=0.6, quantum=0.01, high=100)
    s.gauge("all_smi_cpu_temperature_celsius", "smi_cpu", cpu_temp=1, jitter=0.4)
    return [*d.columns, *s.columns]

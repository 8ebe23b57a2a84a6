"""What an XID code means and what to do first, after the public catalogue of the GPU's maker.

The bare number is all that the metric carries. Codes 144 to 150 have sub-codes in the kernel log
that decide how grave they are, so their advice begins there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RESTART_JOB = "restart the job, and look at the program first; on repetition on this GPU run diagnostics"
WHEN_IDLE = "reset the GPU when it is idle; watch whether more rows are remapped"
RESET = "drain the node and reset the GPU; if it comes back, run long diagnostics and ask for a replacement"
REBOOT = "reboot the node; if it comes back, check power and PCIe seating, then ask for a replacement"
NVLINK = (
    "read the sub-code in the kernel log, check the fabric manager and the NVLink error counters, "
    "then reset the GPU"
)
FOLLOW = "secondary: follow the other XID or the kernel log around it"
MEMORY = "look for XID 63, 64, 94 or 95 beside it, drain the node and reset the GPU"
RECOVERY = "read the recovery action that the driver now asks for (kernel log, nvidia-smi -q) and do that"


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """One XID code.

    Parameters
    ----------
    meaning
        What the driver reports by it, in a few words.
    fault_class
        Key of the fault class it speaks for, empty when it follows another error.
    check
        What to check or do first.
    """

    meaning: str
    fault_class: str
    check: str


XID_CODES: Mapping[int, XidMeaning] = {
    13: XidMeaning("the program used the GPU wrongly", "program", RESTART_JOB),
    31: XidMeaning("memory page fault of the program", "program", RESTART_JOB),
    43: XidMeaning("the program's channel was reset", "program", RESTART_JOB),
    45: XidMeaning("clean-up after another error", "", FOLLOW),
    46: XidMeaning("the GPU stopped processing", "gpu_engine", RESET),
    48: XidMeaning("double-bit memory error", "gpu_memory", MEMORY),
    62: XidMeaning("micro-controller of the GPU halted", "gpu_engine", RESET),
    63: XidMeaning("a memory row was marked for remapping", "gpu_memory", WHEN_IDLE),
    64: XidMeaning("a memory row could not be remapped", "gpu_memory", RESET),
    74: XidMeaning("NVLink error", "nvlink", NVLINK),
    79: XidMeaning("the GPU fell off the PCIe bus", "gpu_lost", REBOOT),
    92: XidMeaning("many single-bit memory errors", "gpu_memory", WHEN_IDLE),
    94: XidMeaning(
        "memory error contained to one program",
        "gpu_memory",
        "restart the job; reset the GPU at the next chance",
    ),
    95: XidMeaning("memory error that was not contained", "gpu_memory", RESET),
    109: XidMeaning("context switch timed out", "gpu_engine", RESET),
    119: XidMeaning("the GPU's system processor (GSP) did not answer", "gsp", RESET),
    120: XidMeaning("error of the GPU's system processor (GSP)", "gsp", RESET),
    136: XidMeaning("NVLink training failed", "nvlink", NVLINK),
    137: XidMeaning("NVLink access was refused", "", FOLLOW),
    140: XidMeaning("memory error that was not recovered", "gpu_memory", RESET),
    143: XidMeaning("the GPU failed to initialise", "gpu_engine", RESET),
    144: XidMeaning("NVLink unit SAW", "nvlink", NVLINK),
    145: XidMeaning("NVLink unit RLW", "nvlink", NVLINK),
    146: XidMeaning("NVLink unit TLW", "nvlink", NVLINK),
    147: XidMeaning("NVLink unit TREX", "nvlink", NVLINK),
    148: XidMeaning("NVLink control unit", "nvlink", NVLINK),
    149: XidMeaning("NVLink network unit NETIR, in most forms a lost link", "nvlink", NVLINK),
    150: XidMeaning("NVLink unit MSE", "nvlink", NVLINK),
    154: XidMeaning("the driver changed the recovery action", "", RECOVERY),
    155: XidMeaning("NVLink error told by the driver", "nvlink", NVLINK),
    156: XidMeaning("a resource was retired", "gpu_memory", RESET),
    157: XidMeaning("a resource could not be retired", "gpu_memory", WHEN_IDLE),
    158: XidMeaning("fatal timeout in the GPU", "gpu_engine", RESET),
    167: XidMeaning("fatal PCIe timeout", "pcie", REBOOT),
    171: XidMeaning("detail of a memory error: DRAM", "gpu_memory", MEMORY),
    172: XidMeaning("detail of a memory error: SRAM", "gpu_memory", MEMORY),
}
"""Known codes; others are told as they are."""


def codes_of(fault_class: str) -> tuple[int, ...]:
    """Return the codes that speak for a fault class."""
    return tuple(code for code, xid in XID_CODES.items() if xid.fault_class == fault_class)

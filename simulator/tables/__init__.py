"""Which metrics there are and how each follows the hidden state: one module per kind of thing."""

from simulator.columns import Column
from simulator.tables import gpu, host, memory, network, nfs, runtime, scheduler

__all__ = ["all_columns"]


def all_columns() -> list[Column]:
    """Return the columns of every metric, in a fixed order."""
    modules = (gpu, network, nfs, memory, host, runtime, scheduler)
    return [column for module in modules for column in module.columns()]

"""Seeded telemetry of a GPU training cluster, for tests, benchmarks and demos; not part of the service."""

from simulator import events as events  # registers its kinds of events
from simulator import fault_kinds as fault_kinds  # registers its kinds of faults

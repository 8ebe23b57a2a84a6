"""Seeded telemetry of a GPU training cluster, for tests, benchmarks and demos; not part of the service."""

"""A day of the reference cluster through the real service and store, at accelerated time.

The service is ticked by hand, with a clock that is put forward a step at a time; all else is what
`oddnode serve` runs. The cluster is simulated in another process. Faults are planted and end again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from benchmarks.database import SEED
from benchmarks.day_cluster import RemoteCluster, rss_mib
from benchmarks.detect.simulated import SimulatedSource
from benchmarks.report import Row
from detector.core.incidents import CLEARED, SUSPECT
from detector.core.parameters import Parameters
from detector.pipeline import Pipeline
from detector.service import Service
from detector.service_plan import Begin
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.store_read import IncidentFilter
from detector.telemetry import Telemetry
from grouping.catalog import load_catalog
from simulator.config import ClusterConfig
from simulator.faults import Fault

HOUR_S = 3600.0
FIRST_S, EVERY_S, LASTS_S = 2 * HOUR_S, 2 * HOUR_S, 1800.0
KINDS = (
    ("pcie_downgrade", "gpu 3"),
    ("gpu_throttle", "gpu 5"),
    ("nfs_slow", "10.2.0.10:/data"),
    ("gpu_power_cap", "gpu 1"),
    ("disk_slow", "nvme1n1"),
    ("ib_errors", "mlx5_2/1"),
)
"""Kinds of faults that are strong, and leave nothing behind."""

NAMED_WITHIN_S = 900.0
CLEARED_WITHIN_S = HOUR_S + Parameters().clear_after_s + 300.0
"""Growth over an hour is evidence until that hour is over, and then healthy data must be seen for a while."""

GROWTH = 0.05
"""The last quarter may take so much more memory than the second; the first one fills what is kept."""

SNAPSHOT_S = 1.0
"""Saved as often as the keeper's bound on the share of time allows: much more often than live."""


@dataclass(slots=True)
class _Clock:
    """Stands where it is put."""

    t: float
    speed: float = 1.0
    end: float = float("inf")

    def now(self) -> float:
        return self.t


@dataclass(slots=True)
class _Seen:
    """What was measured on the way."""

    service_mib: list[float] = field(default_factory=list)
    simulation_mib: list[float] = field(default_factory=list)
    tick_s: list[float] = field(default_factory=list)
    n_series: int = 0


def planted(config: ClusterConfig, hours: float) -> list[Fault]:
    """Return faults of different nodes, one after the other, all of which end within the time."""
    found = []
    onset = FIRST_S
    while onset + LASTS_S + CLEARED_WITHIN_S <= hours * HOUR_S:
        kind, part = KINDS[len(found) % len(KINDS)]
        node = f"gpu{5 * len(found) % config.train_nodes + 1:03d}"
        begin = config.start + onset
        found.append(Fault(kind, node, begin, begin + LASTS_S, part))
        onset += EVERY_S
    return found


def day_rows(config: ClusterConfig, hours: float = 24.0) -> Iterator[Row]:
    """Run the service for some hours of the cluster's time and tell memory, ticks and incidents.

    Parameters
    ----------
    config
        The cluster.
    hours
        Of its time.
    """
    faults = planted(config, hours)
    n_ticks = round(hours * HOUR_S / config.step_s)
    with tempfile.TemporaryDirectory() as folder, RemoteCluster(config, SEED, faults) as cluster:
        store = Store(Path(folder) / "oddnode.db")
        telemetry = Telemetry()
        try:
            seen = _run(cluster, store, telemetry, n_ticks)
            shape = f"{config.n_nodes} nodes, {seen.n_series} series, {hours:g} h, {n_ticks} ticks"
            yield from _memory_rows(shape, seen)
            yield from _tick_rows(shape, seen, telemetry)
            yield from _incident_rows(store, faults, shape)
        finally:
            store.close()


def _run(cluster: RemoteCluster, store: Store, telemetry: Telemetry, n_ticks: int) -> _Seen:
    config = cluster.config
    step_s, first = config.step_s, round(config.start / config.step_s)
    clock = _Clock(config.start)
    service = Service(
        ScheduleSettings(step_s=step_s, evaluation_delay_s=0.0),
        lambda: SimulatedSource(cluster),
        Pipeline(load_catalog()),
        store,
        telemetry,
        clock,
        begin=Begin(first, round((config.start - step_s) * 1000)),
        snapshot_s=SNAPSHOT_S,
    )
    seen = _Seen()
    try:
        for k in range(n_ticks):
            clock.t = (first + k) * step_s
            begun = time.perf_counter()
            service.tick()
            seen.tick_s.append(time.perf_counter() - begun)
            seen.service_mib.append(rss_mib())
            seen.simulation_mib.append(cluster.rss_mib())
        latest = service.latest()
        if latest is None or latest.outcome.at != clock.t:
            raise RuntimeError(f"the service did not keep up: {service.readiness().reasons}")
        seen.n_series = latest.outcome.n_series
    finally:
        service.finish(60.0)
    return seen


def _quarter(values: Sequence[float], number: int) -> float:
    n = len(values) // 4
    return mean(values[(number - 1) * n : number * n])


def _memory_rows(shape: str, seen: _Seen) -> Iterator[Row]:
    for name, values in (("service", seen.service_mib), ("simulation", seen.simulation_mib)):
        quarters = " / ".join(f"{_quarter(values, q):.0f}" for q in (1, 2, 3, 4))
        yield Row(f"memory of the {name}, mean of each quarter", shape, f"{quarters} MiB")
    growth = _quarter(seen.service_mib, 4) / _quarter(seen.service_mib, 2) - 1.0
    yield Row(
        "memory of the service, last quarter over second", shape, f"{growth:+.1%}",
        f"<= {GROWTH:+.0%}", growth <= GROWTH,
    )  # fmt: skip
    yield Row("peak memory of the service", shape, f"{max(seen.service_mib):.0f} MiB")


def _tick_rows(shape: str, seen: _Seen, telemetry: Telemetry) -> Iterator[Row]:
    yield Row(
        "tick, waiting for the simulation included", shape,
        f"{median(seen.tick_s):.2f} s, worst {max(seen.tick_s):.2f} s",
    )  # fmt: skip
    count = telemetry.registry.get_sample_value
    missed = count("oddnode_ticks_missed_total") or 0.0
    failed = sum(
        sample.value
        for metric in telemetry.registry.collect()
        if metric.name == "oddnode_ticks_failed"
        for sample in metric.samples
        if sample.name.endswith("_total")
    )
    yield Row(
        "ticks missed / failed", shape, f"{missed:.0f} / {failed:.0f}", "0 / 0", not missed and not failed
    )


def _incident_rows(store: Store, faults: Sequence[Fault], shape: str) -> Iterator[Row]:
    steps = store.transitions(limit=100_000)
    found = store.incidents(IncidentFilter(was_suspect=True), limit=10_000)
    n_once, delays, left = 0, [], {incident.id for incident in found}
    wrong: list[str] = []
    for fault in faults:
        mine = [
            incident
            for incident in found
            if incident.node == fault.node
            and incident.active_at >= fault.onset - HOUR_S / 4
            and incident.active_at <= fault.end + CLEARED_WITHIN_S
        ]
        left -= {incident.id for incident in mine}
        why = _why_not_once(fault, mine[0].suspect_at, mine[0].cleared_at) if len(mine) == 1 else ""
        if len(mine) != 1:
            why = f"named {len(mine)} times"
        elif not why:
            after = [t.after for t in sorted(steps, key=lambda t: t.at) if t.incident_id == mine[0].id]
            if after.count(SUSPECT) != 1 or after.count(CLEARED) != 1:
                why = f"its steps are {', '.join(after)}"
        if why:
            wrong.append(f"{fault.kind} of {fault.node}: {why}")
        else:
            n_once += 1
            delays.append((mine[0].suspect_at or 0.0) - fault.onset)
    text = f"{n_once} of {len(faults)}" + (f"; {'; '.join(wrong)}" if wrong else "")
    yield Row("planted faults named once and cleared once", shape, text, "all", n_once == len(faults))
    if delays:
        yield Row("- named after, median and longest", shape, f"{median(delays):.0f} s, {max(delays):.0f} s")
    yield Row("other nodes named", shape, str(len(left)))


def _why_not_once(fault: Fault, suspect_at: float | None, cleared_at: float | None) -> str:
    if suspect_at is None or suspect_at > fault.onset + NAMED_WITHIN_S:
        return "named late"
    if cleared_at is None or cleared_at > fault.end + CLEARED_WITHIN_S:
        return "not cleared in time"
    return "cleared while it lasted" if cleared_at < fault.end else ""

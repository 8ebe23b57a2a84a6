"""A day or a month of a cluster through the real service and store, at accelerated time.

The service is ticked by hand, with a clock that is put forward a step at a time; all else is what
`oddnode serve` runs. The cluster is simulated in another process. Faults are planted and end again.

Run: ``python -m benchmarks.run day``, ``python -m benchmarks.run month --days 30``.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.database import SEED
from benchmarks.day_cluster import RemoteCluster, rss_mib
from benchmarks.detect.simulated import SimulatedSource
from benchmarks.report import Row
from detector.core.incidents import CLEARED, PENDING, SUSPECT
from detector.core.parameters import Parameters
from detector.outcome import Outcome, Transition
from detector.pipeline import Pipeline
from detector.service import Service
from detector.service_contracts import ServiceHooks
from detector.service_plan import Begin
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.store_read import IncidentFilter
from detector.store_writer import PRUNE_EVERY_S
from detector.telemetry import Telemetry
from grouping.catalog import load_catalog
from simulator.config import ClusterConfig
from simulator.faults import Fault

HOUR_S, DAY_S = 3600.0, 86400.0
FIRST_S, LASTS_S = 2 * HOUR_S, 1800.0
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

MAX_TOLD = 12
"""Other nodes whose names and times are told."""

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


FIGURES = ("service_mib", "simulation_mib", "store_mib", "tick_s")
"""What is measured at every tick."""


class _Seen:
    """What was measured on the way, in memory that is taken at the start, and all that was published."""

    def __init__(self, n_ticks: int) -> None:
        self.figures: dict[str, NDArray[np.float64]] = {name: np.full(n_ticks, np.nan) for name in FIGURES}
        self.steps: list[Transition] = []
        self.n_series = 0

    def published(self, outcome: Outcome) -> None:
        self.steps += outcome.transitions

    def quarters(self, name: str) -> list[float]:
        return [float(part.mean()) for part in np.array_split(self.figures[name], 4)]


def planted(config: ClusterConfig, hours: float, every_s: float = 2 * HOUR_S) -> list[Fault]:
    """Return faults of different nodes, one after the other, all of which end within the time."""
    found: list[Fault] = []
    onset = FIRST_S
    while onset + LASTS_S + CLEARED_WITHIN_S <= hours * HOUR_S:
        turn, number = divmod(len(found), 12)  # the next dozen are other nodes, and meet other kinds
        kind, part = KINDS[(number + turn) % len(KINDS)]
        node = f"gpu{(5 * number + turn) % config.train_nodes + 1:03d}"
        begin = config.start + onset
        found.append(Fault(kind, node, begin, begin + LASTS_S, part))
        onset += every_s
    return found


def day_rows(
    config: ClusterConfig,
    hours: float = 24.0,
    every_s: float = 2 * HOUR_S,
    retention_s: float = 90 * DAY_S,
) -> Iterator[Row]:
    """Run the service for some hours of the cluster's time and tell memory, ticks and incidents.

    Parameters
    ----------
    config
        The cluster.
    hours
        Of its time.
    every_s
        Seconds between the onsets of two faults.
    retention_s
        How long the store keeps incidents that are cleared.
    """
    faults = planted(config, hours, every_s)
    n_ticks = round(hours * HOUR_S / config.step_s)
    with tempfile.TemporaryDirectory() as folder, RemoteCluster(config, SEED, faults) as cluster:
        store = Store(Path(folder) / "oddnode.db", retention_s=retention_s)
        telemetry = Telemetry()
        try:
            seen = _run(cluster, store, telemetry, n_ticks, Path(folder))
            shape = f"{config.n_nodes} nodes, {seen.n_series} series, {hours:g} h, {n_ticks} ticks"
            yield from _memory_rows(shape, seen)
            yield from _tick_rows(shape, seen, telemetry)
            yield from _store_rows(store, seen, config.start + hours * HOUR_S - retention_s, shape)
            yield from _incident_rows(seen.steps, faults, shape)
        finally:
            store.close()


def _run(cluster: RemoteCluster, store: Store, telemetry: Telemetry, n_ticks: int, folder: Path) -> _Seen:
    config = cluster.config
    step_s, first = config.step_s, round(config.start / config.step_s)
    clock, seen = _Clock(config.start), _Seen(n_ticks)
    service = Service(
        ScheduleSettings(step_s=step_s, evaluation_delay_s=0.0),
        lambda: SimulatedSource(cluster),
        Pipeline(load_catalog()),
        store,
        telemetry,
        clock,
        begin=Begin(first, round((config.start - step_s) * 1000)),
        snapshot_s=SNAPSHOT_S,
        hooks=ServiceHooks(published=seen.published),
    )
    try:
        for k in range(n_ticks):
            clock.t = (first + k) * step_s
            begun = time.perf_counter()
            service.tick()
            took_s = time.perf_counter() - begun
            now = (
                rss_mib(),
                cluster.rss_mib(),
                sum(f.stat().st_size for f in folder.iterdir()) / 2**20,
                took_s,
            )
            for name, figure in zip(FIGURES, now, strict=True):
                seen.figures[name][k] = figure
        latest = service.latest()
        if latest is None or latest.outcome.at != clock.t:
            raise RuntimeError(f"the service did not keep up: {service.readiness().reasons}")
        seen.n_series = latest.outcome.n_series
    finally:
        service.finish(60.0)
    return seen


def _memory_rows(shape: str, seen: _Seen) -> Iterator[Row]:
    for name in ("service", "simulation"):
        quarters = " / ".join(f"{mib:.0f}" for mib in seen.quarters(f"{name}_mib"))
        yield Row(f"memory of the {name}, mean of each quarter", shape, f"{quarters} MiB")
    _, second, _, last = seen.quarters("service_mib")
    growth = last / second - 1.0
    yield Row(
        "memory of the service, last quarter over second", shape, f"{growth:+.1%}",
        f"<= {GROWTH:+.0%}", growth <= GROWTH,
    )  # fmt: skip
    yield Row("peak memory of the service", shape, f"{seen.figures['service_mib'].max():.0f} MiB")


def _tick_rows(shape: str, seen: _Seen, telemetry: Telemetry) -> Iterator[Row]:
    took_s = seen.figures["tick_s"]
    yield Row(
        "tick, waiting for the simulation included", shape,
        f"{np.median(took_s):.3f} s, worst {took_s.max():.2f} s",
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


def _store_rows(store: Store, seen: _Seen, kept_from: float, shape: str) -> Iterator[Row]:
    quarters = " / ".join(f"{mib:.1f}" for mib in seen.quarters("store_mib"))
    yield Row(
        "store on disk, mean of each quarter", shape,
        f"{quarters} MiB, largest {seen.figures['store_mib'].max():.1f} MiB",
    )  # fmt: skip
    cleared_at = {step.incident_id: step.at for step in seen.steps if step.after == CLEARED}
    stored = {(step.incident_id, step.at, step.after) for step in store.transitions(limit=1_000_000)}
    missing = [
        step
        for step in seen.steps
        if cleared_at.get(step.incident_id, np.inf) >= kept_from
        and (step.incident_id, step.at, step.after) not in stored
    ]
    old = {id for id, _, _ in stored if cleared_at.get(id, np.inf) < kept_from - 2 * PRUNE_EVERY_S}
    n_incidents = store.count_incidents(IncidentFilter())
    yield Row(
        "published steps that the store lacks / incidents kept too long", shape,
        f"{len(missing)} / {len(old)}, {n_incidents} incidents kept at the end", "0 / 0",
        not missing and not old,
    )  # fmt: skip


def _incident_rows(steps: Sequence[Transition], faults: Sequence[Fault], shape: str) -> Iterator[Row]:
    lives: dict[str, list[Transition]] = defaultdict(list)
    for step in steps:
        lives[step.incident_id].append(step)
    named = {id: life for id, life in lives.items() if any(step.after == SUSPECT for step in life)}
    delays, wrong, left = [], [], dict(named)
    for fault in faults:
        mine = {
            id: life
            for id, life in named.items()
            if life[0].node == fault.node
            and -HOUR_S / 4 <= life[0].at - fault.onset <= LASTS_S + CLEARED_WITHIN_S
        }
        for id in mine:
            left.pop(id, None)
        if len(mine) != 1:
            wrong.append(f"{fault.kind} of {fault.node}: named {len(mine)} times")
            continue
        (life,) = mine.values()
        if why := _why_not_once(fault, life):
            wrong.append(f"{fault.kind} of {fault.node}: {why}")
        else:
            delays.append(_at(life, SUSPECT) - fault.onset)
    text = f"{len(delays)} of {len(faults)}" + (f"; {'; '.join(wrong)}" if wrong else "")
    yield Row("planted faults named once and cleared once", shape, text, "all", not wrong)
    if delays:
        yield Row("- named after, median and longest", shape, f"{median(delays):.0f} s, {max(delays):.0f} s")
    others = ", ".join(
        f"{life[0].node} after {(_at(life, SUSPECT) - faults[0].onset + FIRST_S) / HOUR_S:.1f} h"
        for life in list(left.values())[:MAX_TOLD]
        if faults
    )
    yield Row("other nodes named", shape, f"{len(left)}{others and ': '}{others}")
    yield Row("incidents that began and made no suspect", shape, str(len(lives) - len(named)))


def _at(life: Sequence[Transition], state: str) -> float:
    return next((step.at for step in life if step.after == state), float("inf"))


def _why_not_once(fault: Fault, life: Sequence[Transition]) -> str:
    """Say what is wrong with the life of a fault's incident, nothing when it is as it should be."""
    cleared_at = _at(life, CLEARED)
    if _at(life, SUSPECT) > fault.onset + NAMED_WITHIN_S:
        return "named late"
    if cleared_at < fault.end:
        return "cleared while it lasted"
    if cleared_at > fault.end + CLEARED_WITHIN_S:
        return "not cleared in time"
    steps = [step.after for step in life]
    return "" if steps == [PENDING, SUSPECT, CLEARED] else f"its steps are {', '.join(steps)}"

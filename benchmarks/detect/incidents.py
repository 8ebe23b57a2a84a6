"""The incident library: seeded cases with everything that is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.detect import splits as p
from benchmarks.detect.incidents_habits import (
    exporter_restart,
    manifestation,
    monitoring_beside,
    renamed,
    structure_of,
    with_habits,
)
from benchmarks.detect.splits import HABITS, MINUTE, SPLITS, Split
from detector.source.incident_file import (
    MaskedTime,
    RecordedFault,
    RecordedGroupEvent,
    Recording,
)
from simulator.benign import benign_between
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import OF_EXPORTERS, Fault, GroupEvent
from simulator.job import checkpoint_writers
from simulator.recording import write_case
from simulator.topology import DISKS, EXPORTERS, EXPORTS, N_GPUS, N_IB

Rng = np.random.Generator

SUBTLE_BELOW, DRASTIC_FROM = 1 / 3, 2 / 3


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """A case before it is generated.

    Parameters
    ----------
    id
        Name, unique over all splits and seeds.
    split
        Name of the split.
    seed
        Seed of the simulated cluster.
    config
        The cluster.
    length_s
        Seconds from the first to the last scrape.
    faults
        Faults of nodes, and exporters that die.
    events
        What happens to many nodes.
    """

    id: str
    split: str
    seed: int
    config: ClusterConfig
    length_s: float
    faults: tuple[Fault, ...] = ()
    events: tuple[GroupEvent, ...] = ()

    @property
    def start(self) -> float:
        """Epoch seconds of the first scrape."""
        return self.config.start

    @property
    def end(self) -> float:
        """Epoch seconds of the last scrape."""
        return self.config.start + self.length_s

    @property
    def node_faults(self) -> tuple[Fault, ...]:
        """Faults of nodes, without those of exporters and without maintenance."""
        return tuple(fault for fault in self.faults if fault.is_node_fault)

    @property
    def structure(self) -> tuple[str, ...]:
        """Layout of the jobs and habits of the cluster in words, see `incidents_habits.structure_of`."""
        return structure_of(self.config)

    def cluster(self) -> Cluster:
        """Return the cluster before its first tick."""
        return Cluster(self.config, self.seed, self.faults, self.events)

    def without_faults(self) -> Cluster:
        """Return the same cluster to which nothing happens but its events."""
        return Cluster(self.config, self.seed, (), self.events)


def cases(split: str, n: int, seed: int = 0) -> Iterator[CaseSpec]:
    """Yield the first cases of a split; the same arguments yield the same cases.

    Parameters
    ----------
    split
        ``train``, ``validation`` or ``test``.
    n
        Number of cases; fewer cases are the first of more.
    seed
        Another seed gives other cases from the same ranges, 0 to 9.

    Raises
    ------
    ValueError
        When the split is unknown or the seed is out of range.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; known: {', '.join(SPLITS)}")
    if not 0 <= seed <= 9:
        raise ValueError(f"seed must be from 0 to 9, not {seed}")
    n_faulty = n_quiet = 0
    kinds: list[str] = []
    for number in range(n):
        case_seed = SPLITS[split].first_seed + 100_000 * seed + number
        if number % 10 in p.HEALTHY_OF_TEN:
            yield _quiet(split, case_seed, p.QUIET_STORIES[n_quiet % len(p.QUIET_STORIES)])
            n_quiet += 1
            continue
        if not kinds:
            kinds = sorted(p.PARTS)
            np.random.default_rng([SPLITS[split].first_seed, seed, n_faulty]).shuffle(kinds)
        yield _faulty(split, case_seed, kinds.pop())
        n_faulty += 1


def _uniform(rng: Rng, low_high: tuple[float, float]) -> float:
    return float(rng.uniform(*low_high))


def _config(rng: Rng, split: Split) -> ClusterConfig:
    huge = rng.random() < split.huge_share
    nodes = int(rng.choice(split.nodes))
    n_families = int(rng.integers(split.families[0], split.families[1] + 1))
    chosen = rng.choice(p.ALL_FAMILIES, n_families - len(p.ALWAYS), replace=False)
    return ClusterConfig(
        train_nodes=p.HUGE_NODES if huge else nodes,
        spares=3,
        cpus=2,
        n_veth=1,
        metrics=frozenset(str(name) for name in chosen) | p.ALWAYS,
        node_spread=_uniform(rng, split.node_spread),
        ib_bytes_per_s=_uniform(rng, split.ib_bytes_per_s),
        benign_per_node_hour=_uniform(rng, split.benign_per_node_hour),
        missed_scrape=_uniform(rng, split.missed_scrape),
    )


def _on_step(seconds: float, config: ClusterConfig) -> float:
    return round(seconds / config.step_s) * config.step_s


def _quiet(name: str, seed: int, story: str) -> CaseSpec:
    rng, beside = np.random.default_rng([seed, 5]), np.random.default_rng([seed, 12])
    config = with_habits(np.random.default_rng([seed, 11]), _config(rng, SPLITS[name]), HABITS[name])
    length = _on_step(_uniform(rng, p.LENGTH_MIN) * MINUTE, config)
    onset = config.start + _uniform(rng, p.ONSET_MIN) * MINUTE
    end = onset + rng.uniform(5, 12) * MINUTE
    faults = tuple(monitoring_beside(beside, config, length))
    case = CaseSpec(f"{name}-{seed}-{story or 'healthy'}", name, seed, config, length, faults)
    size = _uniform(rng, SPLITS[name].severity)
    if story == "exporter_down":
        return replace(case, faults=(_dead_exporter(rng, config, onset, end),))
    if story == "exporter_restart":
        return replace(case, faults=(exporter_restart(rng, config, onset),))
    if story == "target_renamed":
        config = replace(config, quirks=replace(config.quirks, pods=("dcgm", "all_smi")))
        return replace(case, config=config, faults=tuple(renamed(rng, config, onset)))
    if story == "maintenance":
        return _with_maintenance(case, rng, onset)
    if story == "hot_rack":
        nodes = _rack(rng, config)
        return replace(case, events=(GroupEvent("hot_room", onset, onset + 20 * MINUTE, size, nodes),))
    if story:
        return replace(case, events=(GroupEvent(story, onset, end, size),))
    return case


def _rack(rng: Rng, config: ClusterConfig) -> tuple[str, ...]:
    """Return the nodes of one rack, of eight nodes when the cluster has none."""
    size = config.quirks.rack_nodes or 8
    first = size * int(rng.integers(max(1, config.train_nodes // size)))
    return config.pool[first : first + size]


def _with_maintenance(case: CaseSpec, rng: Rng, onset: float) -> CaseSpec:
    """Take a node out of work and give it back; the job is started anew without it, and with it."""
    node = str(rng.choice(case.config.pool[1:]))
    end = onset + rng.uniform(15, 25) * MINUTE
    options: dict[str, object] = {}
    if rng.random() < 0.5:
        options = {"reboot_after_s": 300.0, "reboot_s": float(rng.uniform(240, 540))}
    events = tuple(GroupEvent("job_restart", at, at + 150.0) for at in (onset, end))
    return replace(case, faults=(Fault("maintenance", node, onset, end, options=options),), events=events)


def _dead_exporter(rng: Rng, config: ClusterConfig, onset: float, end: float) -> Fault:
    exporter = ("dcgm", "all_smi", "backend_ai")[int(rng.integers(3))]
    assert exporter in EXPORTERS
    return Fault("exporter_down", str(rng.choice(config.pool)), onset, end, exporter)


def _faulty(name: str, seed: int, kind: str) -> CaseSpec:
    rng, beside = np.random.default_rng([seed, 6]), np.random.default_rng([seed, 12])
    config = with_habits(np.random.default_rng([seed, 11]), _config(rng, SPLITS[name]), HABITS[name])
    length = _on_step(_uniform(rng, p.LENGTH_MIN) * MINUTE, config)
    early = rng.random() < p.EARLY_SHARE
    onset = config.start + _uniform(rng, p.EARLY_ONSET_MIN if early else p.ONSET_MIN) * MINUTE
    end = onset + _uniform(rng, p.DURATION_MIN) * MINUTE
    if kind in p.SLOW:
        end = max(onset + p.SLOW_MIN * MINUTE, config.start + length)
    two = rng.random() < p.TWO_NODES_SHARE
    nodes = [str(node) for node in rng.choice(config.pool, 2 if two else 1, replace=False)]
    faults = [f for node in nodes for f in _faults_of(rng, kind, node, (onset, end), name)]
    if faults[0].options.get("stage") == "checkpoint":
        writers = checkpoint_writers(config)
        nodes = [writers[int(beside.integers(len(writers)))]]
        faults = [replace(faults[0], node=nodes[0])]
    events: list[GroupEvent] = []
    if rng.random() < p.EVENT_BESIDE_SHARE and not early:
        at = config.start + rng.uniform(10, 14) * MINUTE
        whose = (str(beside.choice(config.pool)),) if config.workload.n_jobs > 1 else ()
        events.append(GroupEvent("job_restart", at, at + rng.uniform(2, 5) * MINUTE, nodes=whose))
    if rng.random() < p.EXPORTER_BESIDE_SHARE:
        at = onset + rng.uniform(-5, 5) * MINUTE
        dead = _dead_exporter(rng, config, at, at + rng.uniform(5, 15) * MINUTE)
        if dead.node not in nodes:
            faults.append(dead)
    faults += [f for f in monitoring_beside(beside, config, length) if f.node not in nodes]
    config, moved = _fitted(config, faults[0], onset)
    return CaseSpec(
        f"{name}-{seed}-{kind}",
        name,
        seed,
        config,
        max(length, _on_step(end - config.start, config)),
        tuple(faults),
        (*events, *moved),
    )


def _fitted(config: ClusterConfig, fault: Fault, onset: float) -> tuple[ClusterConfig, list[GroupEvent]]:
    """Return the cluster, and events, in which a fault can show at all."""
    if fault.kind == "one_metric":
        names, odd = frozenset(config.metrics or ()), str(fault.options["metric"])
        spare = min(names - p.ALWAYS)
        return config if odd in names else replace(config, metrics=names - {spare} | {odd}), []
    every = (p.STAGE_EVERY_MIN[0] * MINUTE, p.STAGE_EVERY_MIN[1] * MINUTE)
    match fault.options.get("stage"):
        case "checkpoint":
            return replace(config, checkpoint_s=every), []
        case "evaluation":
            return replace(config, workload=replace(config.workload, eval_every_s=every)), []
        case "loading":
            return config, [GroupEvent("job_restart", onset, onset + 90.0)]
    return config, []


def _faults_of(rng: Rng, kind: str, node: str, span: tuple[float, float], split: str) -> list[Fault]:
    severity = _uniform(rng, SPLITS[split].severity)
    options = _shape(rng, kind)
    gpu, port = int(rng.integers(N_GPUS)), int(rng.integers(N_IB))
    parts = {
        "gpu": f"gpu {gpu}",
        "port": f"mlx5_{port}/1",
        "disk": DISKS[int(rng.integers(2))],
        "export": EXPORTS[int(rng.integers(len(EXPORTS)))],
        "": "",
    }
    part = parts[p.PARTS[kind]]
    everywhere = rng.random() < p.ALL_GPUS_SHARE
    options |= manifestation(rng, kind, HABITS[split])
    if kind == "one_metric":
        options = {"metric": str(rng.choice(p.ODD_METRICS)), "direction": float(rng.choice([-1.0, 1.0]))}
    if kind == "nfs_stage_slow":
        options = {"stage": str(rng.choice(p.STAGES_OF_STORAGE))}
        part = EXPORTS[options["stage"] == "checkpoint"]
    if kind == "gpu_exec_error" and rng.random() < 0.5:
        options |= {"codes": ()}
    if kind == "nvlink_xid":
        options |= {"codes": ((145,), (149,), (145, 149))[int(rng.integers(3))]}
        if everywhere:
            return [Fault(kind, node, *span, f"gpu {g}", severity, options) for g in range(N_GPUS)]
    return [Fault(kind, node, *span, part, severity, options)]


def _shape(rng: Rng, kind: str) -> dict[str, object]:
    draw = rng.random()
    ramp_s = _uniform(rng, p.RAMP_MIN) * MINUTE
    period_s, duty = _uniform(rng, p.FLAP_PERIOD_MIN) * MINUTE, _uniform(rng, p.FLAP_DUTY)
    if kind in p.RAMPS and draw < p.RAMP_SHARE:
        return {"shape": "ramp", "ramp_s": ramp_s}
    if kind in p.FLAPS and draw > 1 - p.FLAP_SHARE:
        return {"shape": "flap", "period_s": period_s, "duty": duty}
    return {}


def severity_word(severity: float) -> str:
    """Return ``subtle``, ``moderate`` or ``drastic``."""
    if severity < SUBTLE_BELOW:
        return "subtle"
    return "drastic" if severity >= DRASTIC_FROM else "moderate"


def recording_of(case: CaseSpec, visible: tuple[bool, ...] | None = None) -> Recording:
    """Return what is known of a case in the scorer's words; nothing is read or written.

    Parameters
    ----------
    case
        The case.
    visible
        For each of `CaseSpec.node_faults`, whether it left a trace; a fault that left none is
        masked time of its node. None when all did.
    """
    config = case.config
    seen = visible or tuple(True for _ in case.node_faults)
    shown = [f for f, is_seen in zip(case.node_faults, seen, strict=True) if is_seen]
    hidden = [f for f, is_seen in zip(case.node_faults, seen, strict=True) if not is_seen]
    nodes = {fault.node for fault in shown}
    events = [RecordedGroupEvent(e.nodes, e.onset, min(e.end, case.end), e.kind) for e in case.events]
    events += [
        RecordedGroupEvent((f.node,), f.onset, min(f.end, case.end), f"{f.kind} {f.part}".strip())
        for f in case.faults
        if f.kind == "exporter_down"
    ]
    hidden += [f for f in case.faults if f.kind == "maintenance"]
    return Recording(
        id=case.id,
        path=Path(case.split) / case.id / "incident.yaml",
        start=case.start,
        end=case.end,
        step_s=config.step_s,
        pool=config.pool,
        spares=config.spare_names,
        healthy=not case.node_faults,
        faults=tuple(
            RecordedFault(f.node, f.onset, min(f.end, case.end), f.kind, f.part, severity_word(f.severity))
            for f in shown
        ),
        group_events=tuple(events),
        masked=tuple(
            MaskedTime(f.node, f.onset, min(f.end, case.end)) for f in hidden if f.node not in nodes
        ),
        benign=tuple(
            {"node": config.node_name(b.node), "kind": b.kind, "onset": b.onset, "end": b.end}
            for b in benign_between(config, case.seed, case.start, case.end)
        )
        + tuple(
            {"node": f.node, "kind": f"{f.kind} {f.part}", "onset": f.onset, "end": min(f.end, case.end)}
            for f in case.faults
            if f.kind in OF_EXPORTERS
        ),
        provenance={"made": "synthetic", "source": "generated"},
        notes=", ".join(case.structure),
    )


def write(case: CaseSpec, folder: Path) -> int:
    """Write a case as a recorded incident, to look at or to evaluate again.

    Returns
    -------
    int
        Size of its samples in bytes.
    """
    return write_case(
        folder / case.id,
        case.cluster(),
        case.start,
        case.end,
        case_id=case.id,
        source="generated",
        made="synthetic",
        notes=f"Case of the {case.split} split. {', '.join(case.structure).capitalize() or 'Plain job'}.",
    )

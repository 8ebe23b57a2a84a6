"""Draws how the job of a case is laid out, and what habits its cluster and its monitoring have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.detect import splits as p
from benchmarks.detect.splits import MINUTE, Habits
from simulator.config import ClusterConfig
from simulator.faults import STALLING, Fault
from simulator.habits import Quirks, Workload
from simulator.symptoms import draw_groups

Rng = np.random.Generator


def _uniform(rng: Rng, low_high: tuple[float, float]) -> float:
    return float(rng.uniform(*low_high))


def with_habits(rng: Rng, config: ClusterConfig, habits: Habits) -> ClusterConfig:
    """Return the cluster with a layout of jobs and habits drawn from the ranges of a split."""
    has: set[str] = set()
    if rng.random() < p.HABITS_SHARE:
        has = {name for name, share in p.HABIT_SHARE.items() if rng.random() < share}
    return replace(
        config,
        workload=_workload(rng, habits, has),
        quirks=_quirks(rng, habits, has),
        watchdog_s=_uniform(rng, habits.watchdog_min) * MINUTE,
    )


def _workload(rng: Rng, habits: Habits, has: set[str]) -> Workload:
    work = Workload()
    if rng.random() < p.STRUCTURED_SHARE:
        work = _structure(rng, habits, p.MIXES[int(rng.integers(len(p.MIXES)))])
    low, high = sorted(rng.uniform(*habits.eval_every_min, 2) * MINUTE)
    if "evaluation" in has:
        work = replace(work, eval_every_s=(float(low), float(high)))
    if "rank 0" in has:
        work = replace(work, rank0_extra=_uniform(rng, habits.rank0_extra))
    if "stagger" in has:
        work = replace(work, start_stagger_s=_uniform(rng, habits.start_stagger_s))
    if "idle wait" in has:
        work = replace(work, spin_util=0.0, spin_busy=0.05)
    return work


def _structure(rng: Rng, habits: Habits, mix: tuple[str, ...]) -> Workload:
    work = Workload()
    if "stages" in mix:
        spread = _uniform(rng, habits.stage_spread)
        work = replace(work, stages=int(rng.choice(habits.stages)), stage_spread=spread)
    if "moe" in mix:
        tau = _uniform(rng, habits.moe_tau_min) * MINUTE
        work = replace(work, moe=_uniform(rng, habits.moe), moe_tau_s=tau)
    if "shards" in mix:
        spread = _uniform(rng, habits.shard_spread)
        work = replace(work, shard_nodes=int(rng.choice(habits.shard_nodes)), shard_spread=spread)
    if "two jobs" in mix:
        work = replace(work, second_share=_uniform(rng, habits.second_share))
    draw = rng.random()
    for label, share in p.JOB_LABEL_SHARE.items():
        if 0 <= draw < share:
            work = replace(work, job_label=label)
        draw -= share
    return work


def _quirks(rng: Rng, habits: Habits, has: set[str]) -> Quirks:
    return Quirks(
        rack_nodes=int(rng.choice(habits.rack_nodes)) if "racks" in has else 0,
        rack_heat=_uniform(rng, habits.rack_heat) if "racks" in has else 0.0,
        slot_heat=_uniform(rng, habits.slot_heat) if "slots" in has else 1.0,
        tail_scale=_uniform(rng, habits.tail_scale) if "tails" in has else 1.0,
        drift=_uniform(rng, habits.drift) if "drift" in has else 0.0,
        pods=("dcgm", "all_smi") if "pods" in has else (),
        scraped_twice=(("dcgm", "all_smi")[int(rng.integers(2))],) if "scraped twice" in has else (),
        twice_share=1.0 if rng.random() < 0.5 else 0.5,
        gaps_per_target_day=_uniform(rng, habits.gaps_per_target_day) if "gaps" in has else 0.0,
    )


def monitoring_beside(rng: Rng, config: ClusterConfig, length_s: float) -> list[Fault]:
    """Draw what happens to single targets in a case, whatever else happens in it."""
    found = []
    if rng.random() < p.EXPORTER_RESTART_SHARE:
        found.append(exporter_restart(rng, config, config.start + rng.uniform(0.2, 0.9) * length_s))
    if rng.random() < p.RENAMED_SHARE and config.quirks.pods:
        found += renamed(rng, config, config.start + rng.uniform(0.2, 0.9) * length_s)
    return found


def exporter_restart(rng: Rng, config: ClusterConfig, at: float) -> Fault:
    """Return the restart of an exporter that counts in its own process."""
    exporter = ("node_exporter", "backend_ai")[int(rng.integers(2))]
    return Fault("exporter_restart", str(rng.choice(config.pool)), at, at + rng.uniform(20, 90), exporter)


def renamed(rng: Rng, config: ClusterConfig, at: float) -> list[Fault]:
    """Return the roll-out of an exporter that runs as pods: its pods get other names, node after node."""
    exporter = (
        "all_smi" if config.workload.job_label == "kubernetes" else ("dcgm", "all_smi")[rng.integers(2)]
    )
    n = int(rng.integers(1, 5))
    nodes = rng.choice(config.pool, n, replace=False)
    onsets = [at + 60.0 * k for k in range(n)]
    return [
        Fault("target_renamed", str(node), onset, onset + 1.0, exporter)
        for node, onset in zip(nodes, onsets, strict=True)
    ]


def manifestation(rng: Rng, kind: str, habits: Habits) -> dict[str, object]:
    """Draw in which groups of metrics a fault shows, and when it stops the whole job."""
    after = {"stalls_after_s": _uniform(rng, habits.stalls_after_s)}
    stalls = kind in STALLING
    if kind in p.GROUP_CHANCES and rng.random() < p.GROUPS_SHARE:
        groups = draw_groups(rng, p.GROUP_CHANCES[kind])
        return {"groups": groups, **(after if kind != "pcie_downgrade" else {})}
    return dict(after) if stalls else {}


def structure_of(config: ClusterConfig) -> tuple[str, ...]:
    """Return in words what the jobs and the habits of a cluster are; nothing for a plain one."""
    work, quirks = config.workload, config.quirks
    words = {
        "stages": work.stages > 1,
        "moe": work.moe > 0,
        "shards": work.shard_nodes > 0,
        "two jobs": work.n_jobs > 1,
        f"label {work.job_label}": bool(work.job_label),
        "evaluation": work.eval_every_s is not None,
        "rank 0": work.rank0_extra > 0,
        "stagger": work.start_stagger_s > 0,
        "idle wait": work.spin_util < 100,
        "racks": quirks.rack_nodes > 0,
        "slots": quirks.slot_heat != 1,
        "tails": quirks.tail_scale != 1,
        "drift": quirks.drift > 0,
        "gaps": quirks.gaps_per_target_day > 0,
        "pods": bool(quirks.pods),
        "scraped twice": bool(quirks.scraped_twice),
    }
    return tuple(word for word, is_there in words.items() if is_there)

"""Jobs on the nodes: training that moves in step, inference, and what a fault does to a whole job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.other_site.hardware import GIB
from benchmarks.other_site.noise import POINTS_PER_MINUTE, Array
from benchmarks.other_site.site import Pod, Site

WHOLE_NODE = None
"""In place of a GPU's number: all GPUs of the node."""

ALWAYS: tuple[tuple[float, float | None], ...] = ((-60, None),)
"""Runs since before the case to its end."""

PAUSED_WORK, PAUSED_BUSY = 0.04, 0.35
"""What is left of work and busy time while a checkpoint is written."""

EVALUATION_WORK, EVALUATION_MINUTES = 0.62, 2.5
EXTRA_WORK_OF_A_SLOW_CLOCK = 0.85
"""Share of a GPU's slowness that its job feels."""


@dataclass(slots=True)
class Job:
    """A synchronous training job.

    Parameters
    ----------
    name, namespace
        Of its pods.
    nodes
        Numbers of its nodes, in order of rank.
    stage_of
        Pipeline stage of each of `nodes`.
    n_stages, level
        Number of pipeline stages; work as a share of what a GPU can do.
    writes_on_first
        True when only the first node writes checkpoints.
    is_alive, work, busy, writes_checkpoint, loads, speed
        For each point: whether it runs, how much of its work and busy time there is, whether it writes a
        checkpoint or loads data after a start, and the factor by which a fault slows it down.
    work_factors, busy_factors
        Factors of single nodes and GPUs, by node and GPU (`WHOLE_NODE` for all).
    """

    name: str
    namespace: str
    nodes: list[int]
    stage_of: Array
    n_stages: int
    level: float
    writes_on_first: bool
    is_alive: Array
    work: Array
    busy: Array
    writes_checkpoint: Array
    loads: Array
    speed: Array
    work_factors: dict[tuple[int, int | None], Array] = field(default_factory=dict)
    busy_factors: dict[tuple[int, int | None], Array] = field(default_factory=dict)


def train(
    site: Site,
    nodes: Iterable[int],
    name: str,
    *,
    runs: Sequence[tuple[float, float | None]] = ALWAYS,
    n_stages: int = 1,
    level: float = 0.85,
    checkpoint_every: float = 20,
    checkpoint_minutes: float = 1.2,
    writes_on_first: bool = True,
    evaluate_every: float = 0,
    namespace: str = "ml-train",
) -> Job:
    """Start a synchronous training job.

    Parameters
    ----------
    site
        Where.
    nodes
        Numbers of its nodes, in order of rank.
    name, namespace
        Of its pods.
    runs
        Minutes between which it runs; an end of None is the end of the case.
    n_stages
        Pipeline stages.
    level
        Work as a share of what a GPU can do.
    checkpoint_every, checkpoint_minutes
        Minutes between checkpoints, and minutes that one takes.
    writes_on_first
        True when only the first node writes checkpoints.
    evaluate_every
        Minutes between evaluations, 0 for none.
    """
    members = list(nodes)
    per_stage = max(1, len(members) // n_stages)
    flat = np.zeros(site.n_points, np.float32)
    job = Job(
        name=name,
        namespace=namespace,
        nodes=members,
        stage_of=np.minimum(np.arange(len(members)) // per_stage, n_stages - 1),
        n_stages=n_stages,
        level=level,
        writes_on_first=writes_on_first,
        is_alive=np.zeros(site.n_points, bool),
        work=flat.copy(),
        busy=flat.copy(),
        writes_checkpoint=flat.copy(),
        loads=flat.copy(),
        speed=np.ones(site.n_points, np.float32),
    )
    phase = site.rng.uniform(0, checkpoint_every)
    for start_minute, end_minute in runs:
        begins = site.point(start_minute)
        ends = site.n_points if end_minute is None else min(site.point(end_minute), site.n_points)
        loaded = begins + site.point(site.rng.uniform(2.5, 4))
        job.is_alive[max(begins, 0) : ends] = True
        job.loads[max(begins, 0) : min(max(loaded, 0), ends)] = 1
        job.work[max(loaded, 0) : ends] = 1
        job.busy[max(loaded, 0) : ends] = 1
        minute = begins / POINTS_PER_MINUTE + (loaded - begins) / POINTS_PER_MINUTE + phase
        _write_checkpoints(site, job, minute, ends, checkpoint_every, checkpoint_minutes)
        if evaluate_every:
            _evaluate(site, job, begins / POINTS_PER_MINUTE + evaluate_every * 0.6, ends, evaluate_every)
        if max(begins, 0) < ends:
            for rank, node in enumerate(members):
                pod = Pod(max(begins, 0), ends, namespace, f"{name}-worker-{rank}", "pytorch")
                site.pods[node].append(pod)
    site.jobs.append(job)
    return job


def _write_checkpoints(site: Site, job: Job, minute: float, ends: int, every: float, lasts: float) -> None:
    while minute * POINTS_PER_MINUTE < ends:
        start = minute * site.rng.uniform(0.999, 1.001)
        end = site.point(start + lasts * site.rng.uniform(0.8, 1.3))
        if end > 0:
            paused = slice(max(site.point(start), 0), min(end, ends))
            job.work[paused] = PAUSED_WORK
            job.busy[paused] = PAUSED_BUSY
            job.writes_checkpoint[paused] = 1
        minute += every


def _evaluate(site: Site, job: Job, minute: float, ends: int, every: float) -> None:
    while minute * POINTS_PER_MINUTE < ends:
        end = site.point(minute + EVALUATION_MINUTES)
        if end > 0:
            job.work[max(site.point(minute), 0) : min(end, ends)] *= EVALUATION_WORK
        minute += every


def serve(site: Site, nodes: Iterable[int], name: str = "vllm") -> None:
    """Let each node answer requests on its own: inference, whose load wanders."""
    noise, n_gpus = site.noise, site.hardware.n_gpus
    for n in nodes:
        demand = 0.45 + noise.wander((), 900, 0.16) + noise.wander((), 60, 0.08)
        load = np.clip(demand, 0.03, 1)
        of_gpu = load[None] * noise.spread((n_gpus, 1), 0.1) * (1 + noise.wander((n_gpus,), 20, 0.15))
        site.gpu.work[n] = np.clip(of_gpu * 0.4, 0, 1)
        site.gpu.busy[n] = np.clip(of_gpu * 1.35, 0, 1)
        site.gpu.memory_mib[n] = site.hardware.gpu_memory_mib * 0.9 + site.rng.normal(0, 60, (n_gpus, 1))
        site.gpu.nvlink[n] = 9000 * of_gpu
        site.gpu.pcie[n] = 0.35e9 * of_gpu
        site.host.cpu_user[n] += 3 * load
        site.host.received[n] += 6e6 * load
        site.host.sent[n] += 22e6 * load
        site.host.memory[n] += 60 * GIB
        site.host.tensor_share[n] = 0.55
        site.pods[n].append(Pod(0, site.n_points, "serving", f"{name}-{noise.text(5)}", "server"))


def slow_down(job: Job, points: slice, factor: float | Array) -> None:
    """Slow the whole job down: its members wait for each other."""
    job.speed[points] = job.speed[points] * factor


def slow_gpus(
    site: Site,
    job: Job,
    node: int,
    gpus: Iterable[int],
    start: float,
    end: float | None,
    factor: float,
    *,
    ramp_minutes: float = 0,
) -> None:
    """Lower the clock of GPUs of a node: they work all the time and the others wait for them.

    Parameters
    ----------
    site, job, node, gpus
        Which GPUs.
    start, end
        Minutes of the case.
    factor
        On the clock.
    ramp_minutes
        Minutes in which the factor is reached.
    """
    points = site.between(start, end)
    n = points.stop - points.start
    clock = np.full(n, factor, np.float32)
    if ramp_minutes:
        n_ramp = min(site.point(ramp_minutes), n)
        clock[:n_ramp] = np.linspace(1, factor, n_ramp)
    speed = 1 / (1 + EXTRA_WORK_OF_A_SLOW_CLOCK * (1 / clock - 1))
    slow_down(job, points, speed)
    for g in gpus:
        site.gpu.clock[node, g, points] *= clock * (1 + 0.012 * site.rng.standard_normal(n))
        own = job.work_factors.setdefault((node, g), np.ones(site.n_points, np.float32))
        own[points] *= np.minimum(1 / clock, 1 / speed)


def stop(
    site: Site,
    job: Job,
    minute: float,
    watchdog_minutes: float,
    *,
    idle_node: int | None = None,
    idle_gpus: Sequence[int | None] = (WHOLE_NODE,),
    restart: float | None = None,
) -> None:
    """Let a job hang: its GPUs spin without work until a watchdog ends it.

    Parameters
    ----------
    site, job, minute
        What hangs, and since when.
    watchdog_minutes
        Minutes until the job is ended.
    idle_node, idle_gpus
        The GPUs that do not even spin.
    restart
        Minute at which the job starts again, None for never.
    """
    hangs, ended = site.point(minute), min(site.point(minute + watchdog_minutes), site.n_points)
    job.work[hangs:] = 0
    job.writes_checkpoint[hangs:] = 0
    job.busy[hangs:ended] = 1
    job.busy[ended:] = 0
    job.is_alive[ended:] = False
    for n in job.nodes:
        site.pods[n] = [_cut(pod, ended) for pod in site.pods[n] if pod.start < ended]
    if idle_node is not None:
        for g in idle_gpus:
            own = job.busy_factors.setdefault((idle_node, g), np.ones(site.n_points, np.float32))
            own[hangs:ended] = 0
    if restart is not None:
        again = site.point(restart)
        loaded = again + site.point(3)
        job.is_alive[again:] = True
        job.loads[again:loaded] = 1
        job.work[loaded:] = 1
        job.busy[loaded:] = 1
        for rank, n in enumerate(job.nodes):
            pod = Pod(again, site.n_points, job.namespace, f"{job.name}-r2-worker-{rank}", "pytorch")
            site.pods[n].append(pod)


def _cut(pod: Pod, end: int) -> Pod:
    return Pod(pod.start, min(pod.end, end), pod.namespace, pod.name, pod.container)

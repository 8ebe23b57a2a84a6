"""How a job is laid out over its nodes, and the habits of cluster and monitoring; all off by default."""

from __future__ import annotations

from dataclasses import dataclass

JOB_LABELS = ("", "hpc_job", "kubernetes")


@dataclass(frozen=True, slots=True)
class Workload:
    """What makes sound nodes differ by the work they do.

    Parameters
    ----------
    second_share
        Share of the training nodes that a second job has, 0 for one job. The jobs differ in step
        time, load, memory and traffic, and each has its own checkpoints and failures.
    job_label
        How the GPU exporter tells jobs apart: ``""`` not at all, ``"hpc_job"`` as its job mapping
        for batch systems does, ``"kubernetes"`` by the pod, whose name changes with every
        `job_restart` event.
    stages
        Pipeline stages of contiguous nodes in each job, 1 for none.
    stage_spread
        Size of the lasting differences between stages: standard deviation of the logarithm of their
        traffic; power, memory and utilisation differ less.
    moe
        Load of experts: standard deviation of the logarithm of a node's traffic, which wanders.
    moe_tau_s
        Time in which that load is forgotten, in seconds.
    shard_nodes
        Nodes of one shard group of a hybrid-sharded job, 0 for none. The first group writes the
        checkpoints.
    shard_spread
        Standard deviation of the logarithm of the groups' traffic.
    rank0_extra
        Work of the node of rank 0 beyond the usual: processor, tasks, network, logs. 0 to 1.
    eval_every_s
        Shortest and longest time between two evaluations of the model; None for no evaluations.
    eval_s
        Shortest and longest evaluation.
    start_stagger_s
        Longest delay until a node begins to load when the job starts.
    spin_util
        GPU utilisation in percent that is shown while processes wait in a collective call.
    spin_busy
        Share of the power of training that waiting costs.
    """

    second_share: float = 0.0
    job_label: str = ""
    stages: int = 1
    stage_spread: float = 0.0
    moe: float = 0.0
    moe_tau_s: float = 2400.0
    shard_nodes: int = 0
    shard_spread: float = 0.0
    rank0_extra: float = 0.0
    eval_every_s: tuple[float, float] | None = None
    eval_s: tuple[float, float] = (60.0, 360.0)
    start_stagger_s: float = 0.0
    spin_util: float = 100.0
    spin_busy: float = 0.36

    def __post_init__(self) -> None:
        if not 0 <= self.second_share < 1:
            raise ValueError(f"second_share must be from 0 to below 1, not {self.second_share}")
        if self.stages < 1:
            raise ValueError(f"stages must be at least 1, not {self.stages}")
        if self.job_label not in JOB_LABELS:
            raise ValueError(f"job_label must be one of {', '.join(map(repr, JOB_LABELS))}")

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return 2 if self.second_share > 0 else 1


@dataclass(frozen=True, slots=True)
class Quirks:
    """What makes sound nodes and their monitoring differ whatever the work is.

    Parameters
    ----------
    rack_nodes
        Nodes of a rack, 0 for no racks.
    rack_heat
        Standard deviation of the racks' lasting temperature differences in degrees.
    slot_heat
        Size of the GPU slots' lasting temperature differences, 1 is usual.
    tail_scale
        Factor on how often heavy-tailed metrics (NFS, TCP, disks) burst.
    drift
        Size of the nodes' own slow drifts over hours (temperatures, kernel memory, load), 0 to 1.
    pods
        Exporters that run as pods and whose series carry the pod's name.
    scraped_twice
        Exporters that a second scrape job reads too, under another ``job`` label.
    twice_share
        Share of the nodes on which it does.
    gaps_per_target_day
        Rate at which a target is silent for a while although nothing is wrong.
    gap_s
        Shortest and longest of these gaps.
    """

    rack_nodes: int = 0
    rack_heat: float = 0.0
    slot_heat: float = 1.0
    tail_scale: float = 1.0
    drift: float = 0.0
    pods: tuple[str, ...] = ()
    scraped_twice: tuple[str, ...] = ()
    twice_share: float = 1.0
    gaps_per_target_day: float = 0.0
    gap_s: tuple[float, float] = (60.0, 240.0)


PLAIN = Workload()
NO_QUIRKS = Quirks()

"""Size and habits of the simulated cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from simulator.habits import NO_QUIRKS, PLAIN, Quirks, Workload

DEFAULT_START = 1_767_000_000.0
"""A Monday of 2025 at 09:20 UTC; any time will do."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What is simulated.

    Parameters
    ----------
    train_nodes
        Nodes of the training job, or of both jobs.
    spares
        Idle nodes.
    cpus
        Logical processors per node, even. 224 is the real machine; small tests take 8.
    metrics
        Metric names to make; None for all of them.
    first_number
        Number of the first node: 1 gives gpu001, gpu002, ...
    first_address
        Position of the first node in the address plan; see `shards`.
    start
        Epoch seconds of the first tick; hidden state begins `warm_up_s` before it.
    step_s
        Scrape interval in seconds.
    warm_up_s
        Time simulated before `start` so that temperatures, loads and noise have settled.
    missed_scrape
        Probability that one scrape of one target fails.
    benign_per_node_hour
        Rate of one-node bursts that are no fault (cron jobs, package upgrades).
    checkpoint_s
        Shortest and longest time between two checkpoints.
    n_veth
        Virtual interfaces per node.
    ib_bytes_per_s
        Mean traffic of one InfiniBand port in each direction while the job trains.
    watchdog_s
        Time after which a stalled job is killed and all its nodes fall idle.
    gives_xid_zero
        True when an XID series with value 0 exists from the start, as older exporters do.
    node_spread
        Size of the nodes' persistent differences (heat, efficiency, traffic), 1 is usual.
    workload
        Jobs, stages, groups: how sound nodes differ by their work; one plain job by default.
    quirks
        Racks, tails, drifts, and habits of the monitoring; none by default.
    """

    train_nodes: int = 60
    spares: int = 3
    cpus: int = 224
    metrics: Collection[str] | None = None
    first_number: int = 1
    first_address: int = 0
    start: float = DEFAULT_START
    step_s: float = 30.0
    warm_up_s: float = 600.0
    missed_scrape: float = 2e-4
    benign_per_node_hour: float = 0.02
    checkpoint_s: tuple[float, float] = (1200.0, 1800.0)
    n_veth: int = 3
    ib_bytes_per_s: float = 9.0e9
    watchdog_s: float = 1800.0
    gives_xid_zero: bool = True
    node_spread: float = 1.0
    workload: Workload = PLAIN
    quirks: Quirks = NO_QUIRKS

    def __post_init__(self) -> None:
        if self.train_nodes < 1 or self.spares < 0:
            raise ValueError("a cluster needs at least one training node and no negative number of spares")
        if self.cpus < 2 or self.cpus % 2:
            raise ValueError(f"cpus must be even and at least 2, not {self.cpus}")
        if self.step_s <= 0:
            raise ValueError(f"step_s must be above 0, not {self.step_s}")

    @property
    def n_nodes(self) -> int:
        """Training nodes and spares."""
        return self.train_nodes + self.spares

    def shards(self, size: int) -> list[ClusterConfig]:
        """Split the training nodes into jobs of their own, so that a huge cluster fits in memory in turn.

        Names and addresses stay distinct; the spares go to the last shard.

        Parameters
        ----------
        size
            Training nodes per shard.
        """
        firsts = range(0, self.train_nodes, size)
        return [
            replace(
                self,
                train_nodes=min(size, self.train_nodes - first),
                spares=self.spares if first == firsts[-1] else 0,
                first_number=self.first_number + first,
                first_address=self.first_address + first,
            )
            for first in firsts
        ]

    def node_name(self, index: int) -> str:
        """Return the name of one node."""
        return f"gpu{self.first_number + index:03d}"

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, the job's first."""
        return tuple(self.node_name(i) for i in range(self.n_nodes))

    @property
    def pool(self) -> tuple[str, ...]:
        """Nodes at work, those of both jobs when there are two."""
        return self.node_names[: self.train_nodes]

    @property
    def spare_names(self) -> tuple[str, ...]:
        """Idle nodes."""
        return self.node_names[self.train_nodes :]

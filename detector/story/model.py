"""What a report tells of one incident."""

from __future__ import annotations

from dataclasses import dataclass

from detector.control.model import AuditEntry
from detector.errors import OddnodeError
from detector.evaluation.model import Trace
from detector.outcome import DataQuality, Evidence, GroupEvent, Incident, Outcome, Transition


class StoryError(OddnodeError):
    """There is nothing to tell, or it cannot be told; names the case."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of evidence, and its signal against the peers.

    Parameters
    ----------
    evidence
        As in the incident.
    trace
        Over the whole recording; None where there are no samples of it.
    """

    evidence: Evidence
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """What the node was compared with.

    Parameters
    ----------
    start, end
        Epoch seconds of the first and the last evaluation.
    step_s
        Seconds between evaluations.
    evaluations
        How many.
    pool
        Name of the node's pool, empty when it was in none.
    n_pool, n_nodes
        Nodes of that pool, and all.
    n_series, n_cells, n_groups
        Sizes at the last evaluation.
    source
        Where the samples are from, and how they were made.
    """

    start: float
    end: float
    step_s: float
    evaluations: int
    pool: str
    n_pool: int
    n_nodes: int
    n_series: int
    n_cells: int
    n_groups: int
    source: str

    @classmethod
    def at(
        cls,
        last: Outcome,
        node: str,
        *,
        start: float,
        end: float,
        step_s: float,
        evaluations: int,
        source: str,
    ) -> Compared:
        """Return what a node was compared with at an evaluation; the rest as of the class."""
        pool = next((verdict.pool for verdict in last.verdicts if verdict.node == node), "")
        return cls(
            start=start,
            end=end,
            step_s=step_s,
            evaluations=evaluations,
            pool=pool,
            n_pool=sum(verdict.pool == pool for verdict in last.verdicts) if pool else 0,
            n_nodes=len(last.verdicts),
            n_series=last.n_series,
            n_cells=last.n_cells,
            n_groups=last.n_groups,
            source=source,
        )


@dataclass(frozen=True, slots=True)
class Story:
    """All that a report tells.

    Parameters
    ----------
    case
        Name of the recording or the incident.
    incident
        What it is about.
    pieces
        Evidence at its peak, strongest first.
    transitions
        Its steps, oldest first.
    actions
        What operators did about it, oldest first.
    hardware
        Labels that tell the part or the machine apart: name and value.
    events, findings
        Group events and findings about the monitoring while it lasted.
    also_named
        Other nodes that were suspects then, in words.
    compared
        None when there are no samples.
    judged_by
        Versions and settings: name and value.
    notes
        What a reader should know.
    nodes
        Names of all nodes: they are what an anonymised report hides.
    """

    case: str
    incident: Incident
    pieces: tuple[Piece, ...]
    transitions: tuple[Transition, ...] = ()
    actions: tuple[AuditEntry, ...] = ()
    hardware: tuple[tuple[str, str], ...] = ()
    events: tuple[GroupEvent, ...] = ()
    findings: tuple[DataQuality, ...] = ()
    also_named: tuple[str, ...] = ()
    compared: Compared | None = None
    judged_by: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

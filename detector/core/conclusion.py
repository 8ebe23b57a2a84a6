"""From scores to what is told: evidence, incidents, group events, verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core import incidents as life
from detector.core.absence import AbsenceReport
from detector.core.continuity import Continuity
from detector.core.direct import DirectState
from detector.core.evidence import direct_evidence, peer_evidence
from detector.core.ingest import CellValues
from detector.core.judge import ActiveCells, Common, NodeScores
from detector.core.peers import RowStats
from detector.core.window import Window
from detector.outcome import Evidence, Incident, Layer, Outcome, Status, Transition, Verdict
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.pools import Pools

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MAX_EVIDENCE = 20
"""Pieces of evidence kept per node."""

PER_METRIC = 2
"""Pieces of peer evidence that a metric with roles (NFS operations, interfaces) gives at most."""

FORGET_S = 86_400.0
"""Series and nodes gone for longer than this are no longer expected."""

SHOW_FROM = 0.5
"""Nodes with less evidence than this get none built."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All arrays of one evaluation, as far as conclusions need them.

    `z` is each cell's robust z-score against its peers, `deviation` what is left of it without
    habit, better side and what a twin denies; both NaN where unknown.
    """

    at: float
    dt: float
    cells: CellValues
    stats: RowStats
    layout: Layout
    pools: Pools
    active: ActiveCells
    common: Common
    direct_score: FloatArray
    absence: AbsenceReport
    scores: NodeScores
    z: FloatArray
    deviation: FloatArray


@dataclass(frozen=True, slots=True)
class Concluded:
    """The newest evaluation and what was made of it, kept until the next one so that it can be explained.

    Parameters
    ----------
    evaluation, outcome
        Arrays, and what was told.
    decided : ndarray of shape (n_nodes,), bool
        Nodes named now.
    guarded
        Pools and their nodes that are not named because too many would be.
    known : ndarray of shape (n_nodes,), bool
        Nodes with data to judge them by.
    """

    evaluation: Evaluation
    outcome: Outcome
    decided: BoolArray
    guarded: Mapping[int, NDArray[np.int64]]
    known: BoolArray


@dataclass(frozen=True, slots=True)
class Teller:
    """Builds evidence from an evaluation and the memory behind it.

    Parameters
    ----------
    index, clock, direct, window
        Memory of the pipeline.
    n_window
        Evaluations over which similarity is measured.
    """

    index: SeriesIndex
    clock: Continuity
    direct: DirectState
    window: Window
    n_window: int

    def evidence(self, ev: Evaluation, node: int) -> tuple[Evidence, ...]:
        """Return ranked evidence against one node, direct signals and absences first."""
        found: list[Evidence] = []
        for k in np.flatnonzero(ev.direct_score > 0).tolist():
            if self.index.cell_node[self.direct.cells[k]] == node:
                score = float(ev.direct_score[k])
                found.append(
                    direct_evidence(self.index, ev.layout, ev.stats, ev.cells.value, self.direct, k, score)
                )
        found.extend(self._absences(ev, node))
        found.sort(key=lambda item: -item.score)
        found.extend(self._peers(ev, node, MAX_EVIDENCE - len(found)))
        return tuple(found[:MAX_EVIDENCE])

    def _peers(self, ev: Evaluation, node: int, limit: int) -> list[Evidence]:
        """Describe the strongest cells: a metric and its twin once, for all parts together; roles twice."""
        mine = np.flatnonzero(ev.active.node == node)
        order = mine[np.argsort(-(ev.active.score * (0.5 + ev.active.ramp))[mine], kind="stable")]
        first: dict[int, int] = {}
        parts: dict[int, list[str]] = {}
        times: Counter[str] = Counter()
        for k in order.tolist():
            signal = int(ev.active.signal[k])
            if signal not in first:
                spec = self.index.signals[signal].spec
                quantity = min(spec.name, spec.twin or spec.name)
                times[quantity] += 1
                if times[quantity] > (PER_METRIC if spec.role else 1) or len(first) >= limit:
                    continue
                first[signal] = k
            parts.setdefault(signal, []).append(self.index.parts[self.index.cell_part[ev.active.cell[k]]])
        return [self._peer(ev, k, parts[signal]) for signal, k in first.items()]

    def _absences(self, ev: Evaluation, node: int) -> list[Evidence]:
        return [
            Evidence(
                metric=item.metric,
                labels={},
                part=item.part,
                layer=Layer.ABSENCE,
                reason=item.reason,
                score=item.score,
                value=None,
                peer_median=None,
                band=None,
                since=item.since,
                n_peers=0,
                target="Absence",
            )
            for item in ev.absence.absent
            if item.node == node
        ]

    def _peer(self, ev: Evaluation, k: int, parts: Sequence[str]) -> Evidence:
        cell = int(ev.active.cell[k])
        row = int(ev.layout.row_of_cell[cell])
        ratio = float("nan")
        if row >= 0:
            ratio = self.window.similarity(ev.layout, row, cell, self.n_window)
        return peer_evidence(
            self.index,
            ev.layout,
            ev.stats,
            ev.cells.value,
            cell,
            score=float(ev.active.score[k]),
            strength=float(self.clock.strength[cell]),
            since=float(np.nan_to_num(self.clock.since[cell], nan=ev.at)),
            at=ev.at,
            similarity=ratio if np.isfinite(ratio) else None,
            parts=parts,
        )


def step_incidents(
    open_incidents: dict[str, Incident],
    ev: Evaluation,
    teller: Teller,
    decided: BoolArray,
    known: BoolArray,
    gone: BoolArray,
    clear_after_s: float,
) -> tuple[list[Incident], list[Transition], dict[int, tuple[Evidence, ...]]]:
    """Advance all incidents by one evaluation; `open_incidents` is changed in place.

    Returns
    -------
    incidents
        Open ones, and those cleared now.
    transitions
        All of this evaluation, by node.
    evidence
        Of every node for which it was built, by number.
    """
    index = teller.index
    told: dict[int, tuple[Evidence, ...]] = {}
    shown: list[Incident] = []
    transitions: list[Transition] = []
    number_of = {name: n for n, name in enumerate(index.nodes)}
    wanted = set(np.flatnonzero(ev.scores.instant >= SHOW_FROM).tolist())
    wanted |= {number_of[name] for name in open_incidents if name in number_of}
    for node in sorted(wanted, key=lambda n: index.nodes[n]):
        name = index.nodes[node]
        score = float(ev.scores.instant[node])
        if score >= SHOW_FROM:
            told[node] = teller.evidence(ev, node)
        evidence = told.get(node, ())
        seen = life.Observation(
            known=bool(known[node]),
            score=score,
            decided=bool(decided[node]),
            part=part_of(evidence),
            reason=reason_of(evidence),
            evidence=evidence,
            gone=bool(gone[node]),
            since=min((item.since for item in evidence), default=None),
        )
        incident, made = life.step(
            name, open_incidents.get(name), seen, at=ev.at, dt=ev.dt, clear_after_s=clear_after_s
        )
        transitions.extend(made)
        if incident is None:
            continue
        shown.append(incident)
        if incident.state == life.CLEARED:
            open_incidents.pop(name, None)
        else:
            open_incidents[name] = incident
    for name in sorted(open_incidents.keys() - number_of.keys()):
        # Known from before a restart, and not one series of it has come since.
        unseen = life.Observation(known=False, gone=ev.at - open_incidents[name].last_evidence_at > FORGET_S)
        incident, made = life.step(
            name, open_incidents[name], unseen, at=ev.at, dt=ev.dt, clear_after_s=clear_after_s
        )
        transitions.extend(made)
        if incident is not None:
            shown.append(incident)
            if incident.state == life.CLEARED:
                del open_incidents[name]
    return shown, transitions, told


def part_of(evidence: Sequence[Evidence]) -> str:
    """Return the part that the strongest evidence points to, empty for the node itself."""
    return evidence[0].part if evidence else ""


def reason_of(evidence: Sequence[Evidence]) -> str:
    """Say in one sentence what weighs most."""
    if not evidence:
        return ""
    first = evidence[0]
    where = f" on {first.part}" if first.part else ""
    others = len({item.target for item in evidence} - {first.target})
    more = f"; {len(evidence) - 1} more signals in {others + 1} targets" if len(evidence) > 1 else ""
    return f"{first.metric}{where}: {first.reason}{more}"


def verdicts(
    ev: Evaluation,
    index: SeriesIndex,
    open_incidents: Mapping[str, Incident],
    told: Mapping[int, tuple[Evidence, ...]],
    reasons: Mapping[int, str],
) -> tuple[Verdict, ...]:
    """Give every known node its verdict, suspects first, then by score.

    Parameters
    ----------
    reasons
        Why a node is undetermined, by number.
    """
    found = []
    for node, name in enumerate(index.nodes):
        if not index.inhabited[node] and name not in open_incidents:
            continue
        pool = int(ev.pools.pool_of[node])
        pool_name = ev.pools.names[pool] if pool >= 0 else ""
        incident = open_incidents.get(name)
        evidence = told.get(node, ())
        score = round(float(ev.scores.instant[node]), 3)
        if incident is not None:
            status = Status.SUSPECT if incident.state == life.SUSPECT else Status.PENDING
            evidence = evidence or incident.evidence
            part = part_of(evidence) or incident.part
            found.append(
                Verdict(name, pool_name, status, score, part, incident.active_at, incident.reason, evidence)
            )
        elif node in reasons:
            found.append(Verdict(name, pool_name, Status.UNDETERMINED, score, reason=reasons[node]))
        else:
            found.append(Verdict(name, pool_name, Status.CLEAR, score, evidence=evidence))
    rank = {Status.SUSPECT: 0, Status.PENDING: 1, Status.UNDETERMINED: 2, Status.CLEAR: 3}
    found.sort(key=lambda v: (rank[v.status], -v.score, v.node))
    return tuple(found)


def common_by_name(
    common: Common, guarded: Mapping[int, NDArray[np.int64]], index: SeriesIndex, pools: Pools
) -> dict[str, tuple[set[str], Counter[str]]]:
    """Merge group findings of rows and of the blast guard, by names."""
    seen: dict[str, tuple[set[str], Counter[str]]] = {}
    for pool, (nodes, metrics) in common.by_pool.items():
        seen[pools.names[pool]] = ({index.nodes[n] for n in nodes}, Counter(metrics))
    for pool, numbers in guarded.items():
        names, metrics = seen.setdefault(pools.names[pool], (set(), Counter()))
        names |= {index.nodes[n] for n in numbers.tolist()}
        metrics["many signals"] += len(numbers)
    return seen

"""From scores to what is told: evidence, incidents, group events, verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from detector.core import incidents as life
from detector.core.culprits import roles
from detector.core.diagnosis import conclude, is_better, is_hard
from detector.core.group_events import GroupEvents
from detector.core.judge import Common
from detector.core.pool_signs import NOTHING_MOVES
from detector.core.shared_cause import members_of, shared_label
from detector.core.stall import codes_about
from detector.core.teller import Evaluation, Teller
from detector.outcome import Diagnosis, Evidence, GroupEvent, Incident, Outcome, Status, Transition, Verdict
from grouping.index import SeriesIndex
from grouping.pools import Pools

__all__ = ["FORGET_S", "Concluded", "Evaluation", "Teller", "step_incidents", "verdicts"]

BoolArray = NDArray[np.bool_]

FORGET_S = 86_400.0
"""Series and nodes gone for longer than this are no longer expected."""

MANY_SIGNALS = "many signals"
"""What is named in a group event in place of metrics when each node deviates by others."""

CAUSE_METRICS = 3
"""Metrics of a group event whose labels are compared at most."""

RESOLUTION_STEPS = 2
"""Differences of time of less than this many steps cannot be told."""

SHOW_FROM = 0.5
"""Nodes with less evidence than this get none built."""


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
    held : ndarray of shape (n_nodes,), bool
        Nodes that would be named anew, but for that or because it was so a moment ago.
    known : ndarray of shape (n_nodes,), bool
        Nodes with data to judge them by.
    """

    evaluation: Evaluation
    outcome: Outcome
    decided: BoolArray
    guarded: Mapping[int, NDArray[np.int64]]
    held: BoolArray
    known: BoolArray


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of one node at one evaluation."""

    evidence: tuple[Evidence, ...] = ()
    diagnosis: Diagnosis | None = None
    is_only_victim: bool = False
    """True when nothing but its pool's common move speaks against it, after another node."""

    @property
    def part(self) -> str:
        """The part that the evidence points to, empty for the node itself."""
        return self.diagnosis.part if self.diagnosis is not None else ""

    def with_role(self, role: str, reason: str, *, is_only_victim: bool) -> Told:
        """Return the same with its role among several nodes."""
        if self.diagnosis is None:
            return self
        return Told(self.evidence, replace(self.diagnosis, role=role, role_reason=reason), is_only_victim)


def step_incidents(
    open_incidents: dict[str, Incident],
    ev: Evaluation,
    teller: Teller,
    decided: BoolArray,
    known: BoolArray,
    gone: BoolArray,
    clear_after_s: float,
) -> tuple[list[Incident], list[Transition], dict[int, Told]]:
    """Advance all incidents by one evaluation; `open_incidents` is changed in place.

    Returns
    -------
    incidents
        Open ones, and those cleared now.
    transitions
        All of this evaluation, by node.
    told
        What was said of every node with enough evidence, by number.
    """
    index = teller.index
    shown: list[Incident] = []
    transitions: list[Transition] = []
    number_of = {name: n for n, name in enumerate(index.nodes)}
    wanted = set(np.flatnonzero(ev.scores.instant >= SHOW_FROM).tolist())
    told = tell(ev, teller, wanted, open_incidents)
    wanted |= {number_of[name] for name in open_incidents if name in number_of}
    for node in sorted(wanted, key=lambda n: index.nodes[n]):
        name = index.nodes[node]
        said = told.get(node, Told())
        seen = life.Observation(
            known=bool(known[node]),
            score=float(ev.scores.instant[node]),
            decided=bool(decided[node]) and not said.is_only_victim,
            part=said.part,
            reason=reason_of(said.evidence),
            evidence=said.evidence,
            gone=bool(gone[node]),
            since=min((item.since for item in said.evidence), default=None),
        )
        incident, made = life.step(
            name, open_incidents.get(name), seen, at=ev.at, dt=ev.dt, clear_after_s=clear_after_s
        )
        transitions.extend(made)
        if incident is None:
            continue
        incident = with_diagnosis(incident, said)
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


def tell(
    ev: Evaluation, teller: Teller, nodes: Collection[int], open_incidents: Mapping[str, Incident]
) -> dict[int, Told]:
    """Build evidence and diagnosis of nodes, and say which of them differed first."""
    index, resolution_s = teller.index, RESOLUTION_STEPS * ev.dt
    found: dict[int, Told] = {}
    for node in nodes:
        evidence = teller.evidence(ev, node)
        made = conclude(evidence, resolution_s)
        if made.first is not None and not is_hard(evidence[0]):
            evidence = (made.first, *(item for item in evidence if item is not made.first))
        found[node] = Told(evidence, made.diagnosis)
    over = {index.nodes[n]: n for n in found if ev.scores.instant[n] >= 1.0}
    under = {name: n for n in found if (name := index.nodes[n]) in open_incidents} | over
    pools = {name: int(ev.pools.pool_of[n]) for name, n in under.items()}
    against = {name: found[n].evidence for name, n in under.items()}
    for name, role in roles(against, pools, resolution_s, ev.at).items():
        n = under[name]
        found[n] = found[n].with_role(role.word, role.reason, is_only_victim=role.is_only_victim)
    return found


def with_diagnosis(incident: Incident, said: Told) -> Incident:
    """Return the incident with the diagnosis that is best supported so far."""
    new, old = said.diagnosis, incident.diagnosis
    if new is None or incident.state == life.CLEARED:
        return incident
    best = new if is_better(new, old) or old is None else old
    role, why = (new.role, new.role_reason) if new.role or old is None else (old.role, old.role_reason)
    return replace(incident, diagnosis=replace(best, role=role, role_reason=why), part=best.part)


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
    told: Mapping[int, Told],
    reasons: Mapping[int, str],
) -> tuple[Verdict, ...]:
    """Give every known node its verdict, suspects first, then by score.

    Parameters
    ----------
    reasons
        Why a node is undetermined, by number.
    """
    found = []
    known = zip(
        *(index.nodes, index.inhabited.tolist(), ev.pools.pool_of.tolist(), ev.scores.instant.tolist()),
        strict=True,
    )
    nothing = Told()
    for node, (name, is_inhabited, pool, instant) in enumerate(known):
        incident = open_incidents.get(name)
        if not is_inhabited and incident is None:
            continue
        pool_name = ev.pools.names[pool] if pool >= 0 else ""
        said = told.get(node, nothing)
        evidence = said.evidence
        score = round(instant, 3)
        if incident is not None:
            status = Status.SUSPECT if incident.state == life.SUSPECT else Status.PENDING
            evidence = evidence or incident.evidence
            found.append(
                Verdict(
                    name,
                    pool_name,
                    status,
                    score,
                    said.part or incident.part,
                    incident.active_at,
                    incident.reason,
                    evidence,
                    incident.diagnosis,
                )
            )
        elif node in reasons:
            found.append(Verdict(name, pool_name, Status.UNDETERMINED, score, reason=reasons[node]))
        else:
            clear = _clear(name, pool_name, score)
            found.append(replace(clear, evidence=evidence) if evidence else clear)
    rank = {Status.SUSPECT: 0, Status.PENDING: 1, Status.UNDETERMINED: 2, Status.CLEAR: 3}
    found.sort(key=lambda v: (rank[v.status], -v.score, v.node))
    return tuple(found)


@lru_cache(maxsize=4096)
def _clear(node: str, pool: str, score: float) -> Verdict:
    """Return a verdict that most nodes have at most evaluations, made once."""
    return Verdict(node, pool, Status.CLEAR, score)


def step_group_events(
    events: GroupEvents,
    ev: Evaluation,
    teller: Teller,
    guarded: Mapping[int, NDArray[np.int64]],
    open_incidents: Mapping[str, Incident],
    full_s: float,
) -> tuple[GroupEvent, ...]:
    """Advance all group events by one evaluation: of members that differ together, and of whole pools.

    Parameters
    ----------
    events
        Changed in place.
    ev, teller
        The evaluation, and the memory behind it.
    guarded
        Pools and their nodes that are not named because too many would be.
    open_incidents
        By node.
    full_s
        How long a change of a whole pool must last.

    Returns
    -------
    tuple of GroupEvent
        Open events and those that ended now.
    """
    index, pools = teller.index, ev.pools
    shared = common_by_name(ev.common, guarded, index, pools)
    nodes = {
        name: [index.nodes[n] for n in np.flatnonzero(pools.pool_of == k).tolist()]
        for k, name in enumerate(pools.names)
    }
    sizes = {name: len(mine) for name, mine in nodes.items()}
    odd = {name for name, incident in open_incidents.items() if incident.state == life.SUSPECT}
    apart = events.step(shared, ev.at, sizes, lambda pool: cause_of(pool, shared, ev, teller), odd)
    changes = events.changes.step(
        ev.layout, pools.names, index.signals, ev.stats.median, at=ev.at, dt=ev.dt, full_s=full_s
    )
    stands = {name: change.began for name, change in changes.items() if change.kind in NOTHING_MOVES}
    began = np.array([stands.get(name, np.nan) for name in pools.names], dtype=np.float64)
    found = codes_about(teller.direct, index, pools.pool_of, began) if stands else {}
    codes = {pools.names[k]: text for k, text in found.items()}
    return (*apart, *events.step_whole(changes, ev.at, nodes, odd, codes))


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
        metrics[MANY_SIGNALS] += len(numbers)
    return seen


def cause_of(
    pool: str, seen: Mapping[str, tuple[set[str], Counter[str]]], ev: Evaluation, teller: Teller
) -> str:
    """Say what the nodes of a group event share by their labels; empty when no label tells.

    Parameters
    ----------
    pool
        Name of the pool.
    seen
        From `common_by_name`.
    ev, teller
        The evaluation, and the memory behind it.
    """
    index, number = teller.index, ev.pools.names.index(pool)
    names, metrics = seen[pool]
    nodes = np.flatnonzero(ev.pools.pool_of == number)
    odd = [n for n in nodes.tolist() if index.nodes[n] in names]
    chosen = [metric for metric, _ in metrics.most_common() if metric != MANY_SIGNALS]
    if not chosen:
        mine = np.isin(ev.active.node, odd)
        chosen = [index.signals[s].spec.name for s in np.unique(ev.active.signal[mine]).tolist()]
    for metric in chosen[:CAUSE_METRICS]:
        found = shared_label(members_of(index, teller.clock, metric, nodes, odd), len(nodes))
        if found:
            return found
    return ""

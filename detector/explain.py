"""From the arrays of the newest evaluation to the reasons why one node was named or was not.

Nothing is decided here: every number is read from what the pipeline has just computed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from detector.core.conclusion import FORGET_S, Concluded
from detector.core.direct import BASE_SCORE, severity_of
from detector.core.evidence import labels_of
from detector.core.fusion import fuse
from detector.core.incidents import CLEARED, PENDING_QUIET_S, QUIET_SHARE, SUSPECT
from detector.core.judge import (
    ActiveCells,
)
from detector.diagnosis_text import diagnosis_lines
from detector.explain_checks import Conditions, conditions_of
from detector.explain_rows import DIGITS, finite
from detector.explain_signals import peer_signals
from detector.explanation import (
    Absence,
    DirectSignal,
    Explanation,
    IncidentState,
    MissingSeries,
    PoolPlace,
    TargetScore,
)
from detector.outcome import Incident, Status, Verdict
from detector.pipeline import Pipeline
from grouping.model import Severity

FloatArray = NDArray[np.float64]

SHOWN_SIGNALS = 12
MAX_SIGNALS = 200
SHOWN_DIRECT = 50

CLUSTER_WIDE = frozenset({"monitoring_outage", "exporter_outage", "source"})
"""Findings about the whole cluster that bear on every node."""


def explain(pipeline: Pipeline, node: str, n_signals: int = SHOWN_SIGNALS) -> Explanation | None:
    """Tell why a node is or is not named by the newest evaluation.

    Parameters
    ----------
    pipeline
        Right after an evaluation; only read.
    node
        Node name.
    n_signals
        Signals against peers that are told at most.

    Returns
    -------
    Explanation or None
        None when nothing was evaluated yet or the node has no series in that evaluation.
    """
    told = pipeline.concluded
    if told is None or node not in pipeline.interner.nodes:
        return None
    number = pipeline.interner.nodes.index(node)
    verdict = next((v for v in told.outcome.verdicts if v.node == node), None)
    if verdict is None or number >= len(told.known):
        return None
    ev, outcome = told.evaluation, told.outcome
    incident = _incident(pipeline, next((i for i in outcome.incidents if i.node == node), None))
    signals, fates = peer_signals(pipeline, told, number, min(n_signals, MAX_SIGNALS))
    direct, n_direct = _direct(pipeline, told, number)
    conditions = conditions_of(pipeline, told, number)
    pool = _pool(pipeline, told, number)
    undetermined = verdict.reason if verdict.status is Status.UNDETERMINED else ""
    if not told.known[number]:
        undetermined = undetermined or "no data"
    return Explanation(
        node=node,
        at=ev.at,
        status=verdict.status,
        summary=_summary(verdict, incident, conditions, pool),
        diagnosis=_diagnosis(verdict),
        pool=pool,
        hard=round(float(ev.scores.hard[number]), DIGITS),
        instant=round(float(ev.scores.instant[number]), DIGITS),
        lasting=round(float(ev.scores.lasting[number]), DIGITS),
        shifted=round(float(ev.scores.shifted[number]), DIGITS),
        checks=conditions.all(),
        targets=_targets(pipeline, told, number),
        direct=direct,
        n_direct=n_direct,
        absences=tuple(
            Absence(a.part, a.metric, a.reason, a.score, a.since)
            for a in ev.absence.absent
            if a.node == number
        ),
        missing=_missing(pipeline, told, number),
        signals=signals,
        fates=fates,
        undetermined=undetermined,
        notes=tuple(_notes(pipeline, told, number)),
        incident=incident,
        group_events=tuple(event for event in outcome.group_events if node in event.nodes),
        data_quality=tuple(
            f for f in outcome.data_quality if f.node == node or (not f.node and f.kind in CLUSTER_WIDE)
        ),
    )


def _pool(pipeline: Pipeline, told: Concluded, node: int) -> PoolPlace:
    pools, least = told.evaluation.pools, pipeline.parameters.min_peers
    number = int(pools.pool_of[node])
    joined = finite(pools.joined_at[node])
    in_grace = bool(pools.in_grace[node])
    if number < 0:
        text = "in no pool (muted, or nothing to compare it with): its peers say nothing about it"
        return PoolPlace("", 0, least, joined, in_grace, text)
    name, size = pools.names[number], int((pools.pool_of == number).sum())
    text = f"pool {name} of {size} nodes"
    if size < least:
        text += f": fewer than {least}, so its peers say nothing about it"
    elif in_grace:
        text += ", which it joined a moment ago: not compared yet"
    return PoolPlace(name, size - 1, least, joined, in_grace, text)


def _targets(pipeline: Pipeline, told: Concluded, node: int) -> tuple[TargetScore, ...]:
    """Take the node's score apart by monitored target."""
    active, index = told.evaluation.active, pipeline.interner
    mine = active.only(active.node == node)
    found = []
    for target in np.unique(mine.target).tolist():
        here = mine.only(mine.target == target)
        now = here.only(here.now)
        slow = here.only(here.is_shift)
        best = int(here.signal[int(np.argmax(here.score * here.own * (0.5 + here.ramp)))])
        found.append(
            TargetScore(
                pipeline.memory.targets[target],
                index.signals[best].spec.name,
                len(np.unique(here.signal)),
                _worth(pipeline, now, now.score),
                _worth(pipeline, here, here.score * here.ramp),
                _worth(pipeline, slow, slow.plain),
            )
        )
    return tuple(sorted(found, key=lambda item: (-item.lasting, -item.instant, item.target)))


def _worth(pipeline: Pipeline, cells: ActiveCells, score: FloatArray) -> float:
    """Return what cells of one target add to the node's score."""
    zero = np.zeros(len(score), dtype=np.int64)
    worth = float(fuse(score, cells.own, zero, zero, cells.quantity, n_nodes=1, n_targets=1)[0])
    return round(worth / pipeline.thresholds.node, DIGITS)


def _direct(pipeline: Pipeline, told: Concluded, node: int) -> tuple[tuple[DirectSignal, ...], int]:
    state, index = pipeline.memory.direct, pipeline.interner
    n = len(told.evaluation.direct_score)
    mine = np.flatnonzero(index.cell_node[state.cells[:n]] == node)
    shown = [k for k in mine.tolist() if _has_something(pipeline, k)]
    found = [_direct_signal(pipeline, told, k) for k in shown]
    found.sort(key=lambda item: (-item.score, -BASE_SCORE[Severity(item.severity)], item.metric, item.part))
    return tuple(found[:SHOWN_DIRECT]), len(mine)


def _has_something(pipeline: Pipeline, k: int) -> bool:
    state = pipeline.memory.direct
    if np.isfinite(state.event_at[k]) or state.faulty_s[k] > 0:
        return True
    rule = pipeline.interner.signals[pipeline.interner.cell_signal[state.cells[k]]].spec.fault
    is_code = rule is not None and rule.on == "change"
    if not is_code or not np.isfinite(state.last[k]):
        return False
    return BASE_SCORE[severity_of(pipeline.interner, int(state.cells[k]), float(state.last[k]))] > 0


def _direct_signal(pipeline: Pipeline, told: Concluded, k: int) -> DirectSignal:
    state, index = pipeline.memory.direct, pipeline.interner
    cell, score = int(state.cells[k]), float(told.evaluation.direct_score[k])
    is_held = bool(np.isfinite(state.event_at[k]))
    severity = severity_of(index, cell, float(state.event_value[k] if is_held else state.last[k]))
    return DirectSignal(
        metric=index.signals[index.cell_signal[cell]].spec.name,
        labels=labels_of(index, cell),
        part=index.parts[index.cell_part[cell]],
        severity=severity.value,
        value=finite(told.evaluation.cells.value[cell]),
        event_value=float(state.event_value[k]) if is_held else None,
        n_events=int(state.n_events[k]),
        since=finite(state.since[k]),
        expires_at=float(state.event_at[k]) + pipeline.parameters.direct_hold_s if is_held else None,
        faulty_s=float(state.faulty_s[k]),
        score=round(score, DIGITS),
        why=_direct_why(pipeline, k, score, severity, told.evaluation.dt),
    )


def _direct_why(pipeline: Pipeline, k: int, score: float, severity: Severity, dt: float) -> str:
    state = pipeline.memory.direct
    is_held = bool(np.isfinite(state.event_at[k]))
    if score >= 1.0:
        return "decides alone"
    if score > 0.0:
        again = " or when it repeats" if severity is Severity.ERROR else ""
        return f"counts, and decides together with others{again}"
    if BASE_SCORE[severity] <= 0.0:
        return "shown, never counted"
    if is_held:
        return "so many nodes had such events of late that the cause is shared: counts for nobody"
    if state.faulty_s[k] <= 0.0:
        return "this code has stood there since before it could be seen to change: only a change counts"
    if state.faulty_s[k] < 2 * dt:
        return "seen once: a state must be seen in two evaluations"
    return "so many peers share this state that it counts for nobody"


def _incident(pipeline: Pipeline, item: Incident | None) -> IncidentState | None:
    if item is None:
        return None
    clear_after_s = pipeline.parameters.clear_after_s
    return IncidentState(
        id=item.id,
        state=item.state,
        active_at=item.active_at,
        suspect_at=item.suspect_at,
        cleared_at=item.cleared_at,
        healthy_s=item.healthy_s,
        clears_after_s=min(PENDING_QUIET_S, clear_after_s) if item.suspect_at is None else clear_after_s,
        peak_score=item.peak_score,
        reason=item.reason,
    )


def _missing(pipeline: Pipeline, told: Concluded, node: int) -> tuple[MissingSeries, ...]:
    presence, index, ev = pipeline.memory.presence, pipeline.interner, told.evaluation
    p = pipeline.parameters
    after_s = max(p.absence_after_s, 3 * p.step_s)
    n = len(ev.cells.fresh)
    expected = np.flatnonzero(presence.expected(ev.at, FORGET_S)[:n] & (index.cell_node[:n] == node))
    found = []
    for e in np.unique(presence.exporter[expected]).tolist():
        had = expected[presence.exporter[expected] == e]
        lost = had[~ev.cells.fresh[had]]
        if not len(lost):
            continue
        last = float(presence.last_s[lost].max())
        gone_s = ev.at - last
        text = f"none for {gone_s:.0f} s"
        if told.outcome.is_partial:
            text += "; the answer was partial, so absence is not judged"
        elif gone_s < after_s:
            text += f"; evidence, if at all, after {after_s:.0f} s"
        found.append(MissingSeries(presence.exporters[e], len(lost), len(had), last, text))
    return tuple(sorted(found, key=lambda item: (-item.n_missing, item.exporter)))


def _notes(pipeline: Pipeline, told: Concluded, node: int) -> Iterable[str]:
    if told.outcome.is_partial:
        yield "the database's answer was partial: what was missing could neither raise nor clear anything"
    if not told.known[node]:
        yield "too few of its expected signals were there to judge it: no incident of it could move"
    name = pipeline.interner.nodes[node]
    is_open = any(i.node == name and i.state == SUSPECT for i in told.outcome.incidents)
    if told.decided[node] and not is_open:
        yield "the evidence decided, yet nobody was named: the data were only learnt from, or there were none"
    if pipeline.thresholds.node > 1.0:
        divisor = f"{pipeline.thresholds.node:.3g}"
        yield f"evidence of peers and habit is divided by {divisor}, as the calibration asks"
    if pipeline.parameters.step_s * 1.5 < told.evaluation.dt:
        yield f"the evaluation before was {told.evaluation.dt:.0f} s earlier: samples in between are missing"


def _diagnosis(verdict: Verdict) -> tuple[str, ...]:
    found = verdict.diagnosis
    return () if found is None else tuple(line.strip() for line in diagnosis_lines(found.plain()))


def _summary(
    verdict: Verdict, incident: IncidentState | None, conditions: Conditions, pool: PoolPlace
) -> str:
    if incident is not None and incident.state == CLEARED:
        return f"cleared at this evaluation: {incident.reason}"
    if incident is not None and incident.healthy_s > 0:
        fading = (
            f"healthy for {incident.healthy_s:.0f} of {incident.clears_after_s:.0f} s, then it is cleared"
        )
    else:
        fading = ""
    if verdict.status is Status.SUSPECT and incident is not None:
        return f"named: {incident.reason}" + (f"; {fading}" if fading else "")
    if verdict.status is Status.PENDING and incident is not None:
        failed = conditions.nearest()
        short = ", ".join(f"{c.name} {c.value:.4g} of {c.needed:.4g} {c.unit}".strip() for c in failed)
        return f"a first sign, not named: {fading or short or incident.reason}"
    if verdict.status is Status.UNDETERMINED:
        return f"could not be judged: {verdict.reason} ({pool.text})"
    if verdict.score < QUIET_SHARE:
        return f"like its peers: score {verdict.score:.2f}, a first sign is 1"
    return f"some evidence, not enough for a first sign: score {verdict.score:.2f} of 1"

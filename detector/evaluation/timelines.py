"""Recorded cases are often cut from one record and overlap: the same time must count once.

Two recorded cases of one source that hold the same node at the same time hold the same
samples. Added up naively, healthy time and false alarms would be counted several times, and
the intervals would be narrower than the data allows. Generated cases share node names and
nominal times without sharing samples, so each is a record of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from detector.evaluation.scoring import CaseScore, FalseAlarm, FaultScore
from detector.evaluation.spans import Span, common_length, length, outside, union

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Distinct:
    """What is left of many cases when nothing counts twice.

    Parameters
    ----------
    faults
        Of a fault that several cases hold, the worst result counts: missed, or the longest delay.
    false_alarms
        Episodes of one node that overlap or nearly touch are one.
    healthy_node_s, alarmed_node_s
        Healthy node-time in seconds, and how much of it was under an alarm.
    n_repeated_alarms
        False alarms left out because they repeat another.
    repeated_node_s
        Node-time in seconds that several cases hold, beyond its first time.
    """

    faults: tuple[FaultScore, ...]
    false_alarms: tuple[FalseAlarm, ...]
    healthy_node_s: float
    alarmed_node_s: float
    n_repeated_alarms: int
    repeated_node_s: float


def timeline_of(score: CaseScore) -> str:
    """Return a name that cases share when they are cut from the same record."""
    provenance = score.recording.provenance
    if provenance.get("made") == "recorded" and provenance.get("source"):
        return f"source {provenance['source']}"
    return f"case {score.recording.id}"


def distinct(scores: Sequence[CaseScore], merge_s: float) -> Distinct:
    """Remove what is in several cases.

    Parameters
    ----------
    scores
        Cases of one origin.
    merge_s
        False alarms of one node less than this apart, from different cases, are one.
    """
    covered: dict[Key, list[Span]] = {}
    excused: dict[Key, list[Span]] = {}
    alarmed: dict[Key, list[Span]] = {}
    for score in scores:
        line, recording = timeline_of(score), score.recording
        for node, spans in score.excused.items():
            covered.setdefault((line, node), []).append((recording.start, recording.end))
            excused.setdefault((line, node), []).extend(spans)
        for episode in score.alarms:
            alarmed.setdefault((line, episode.node), []).append((episode.raised_at, episode.cleared_at))
    healthy = {key: _without(spans, excused[key]) for key, spans in covered.items()}
    false = _false_alarms(scores, merge_s)
    n_false = sum(len(score.false_alarms) for score in scores)
    return Distinct(
        faults=_faults(scores),
        false_alarms=false,
        healthy_node_s=math.fsum(length(spans) for spans in healthy.values()),
        alarmed_node_s=math.fsum(common_length(spans, alarmed.get(k, ())) for k, spans in healthy.items()),
        n_repeated_alarms=n_false - len(false),
        repeated_node_s=_repeated(covered),
    )


def _without(spans: Iterable[Span], removed: Sequence[Span]) -> list[Span]:
    return [rest for low, high in union(spans) for rest in outside(removed, low, high)]


def _repeated(covered: Mapping[Key, Sequence[Span]]) -> float:
    return math.fsum(
        math.fsum(high - low for low, high in spans) - length(spans) for spans in covered.values()
    )


def _faults(scores: Sequence[CaseScore]) -> tuple[FaultScore, ...]:
    kept: dict[tuple[str, str, float], FaultScore] = {}
    for score in scores:
        line = timeline_of(score)
        for fault in score.faults:
            key = (line, fault.fault.node, fault.fault.onset)
            if key not in kept or _delay(fault) > _delay(kept[key]):
                kept[key] = fault
    return tuple(kept.values())


def _delay(fault: FaultScore) -> float:
    return math.inf if fault.delay_s is None else fault.delay_s


def _false_alarms(scores: Sequence[CaseScore], merge_s: float) -> tuple[FalseAlarm, ...]:
    by_key: dict[Key, list[tuple[FalseAlarm, str]]] = {}
    for score in scores:
        for alarm in score.false_alarms:
            key = (timeline_of(score), alarm.episode.node)
            by_key.setdefault(key, []).append((alarm, score.recording.id))
    kept: list[FalseAlarm] = []
    for alarms in by_key.values():
        until, members = -math.inf, set[str]()
        for alarm, case in sorted(alarms, key=lambda item: (item[0].episode.raised_at, item[1])):
            # two episodes of one case are two, however many other cases lie between them
            if alarm.episode.raised_at - until >= merge_s or case in members:
                kept.append(alarm)
                until, members = alarm.episode.cleared_at, {case}
            else:
                until = max(until, alarm.episode.cleared_at)
                members.add(case)
    return tuple(kept)

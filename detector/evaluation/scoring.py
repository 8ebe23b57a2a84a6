"""Compare what a detector said of one case with what is known of it.

The rules leave no room for flattery:

- A fault is found when an alarm episode of its node rises between one step before its onset and
  its end plus the grace. An alarm that was already open finds nothing.
- Every alarm episode that found no fault is false: before, after, on another node, in healthy
  time, in group events. Only one that rose in masked time of its node counts neither way.
- A fault counts once however often its node was flagged, an alarm finds one fault, and there is no
  point adjustment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from detector.evaluation.model import GROUP_EVENT, Call, Findings, Flag, Rules
from detector.evaluation.parts import same_part
from detector.evaluation.spans import (
    Episode,
    Fault,
    Span,
    episodes,
    merged_faults,
    union,
)
from detector.source.incident_file import RecordedGroupEvent, Recording

OUTAGE_WORDS = ("outage", "exporter", "monitor", "scrape")


@dataclass(frozen=True, slots=True)
class FaultScore:
    """Whether one fault was found.

    Parameters
    ----------
    fault
        The label.
    delay_s
        Seconds from the onset to the alarm, >= 0; None when it was missed.
    visible_delay_s
        Seconds from the beginning of the visible trace to the alarm, >= 0; None when it was missed
        or no such beginning is known.
    named, strongest
        Part that the alarm named; part of its strongest evidence.
    part_right, strongest_right
        Whether they are the labelled part; None when the fault was missed or no part is known.
    why
        Why it was missed, empty when it was found.
    """

    fault: Fault
    delay_s: float | None = None
    named: str = ""
    strongest: str = ""
    part_right: bool | None = None
    strongest_right: bool | None = None
    why: str = ""
    visible_delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """An alarm episode that found no fault, and what was going on at the time."""

    episode: Episode
    during: str


@dataclass(frozen=True, slots=True)
class GroupScore:
    """Whether a labelled group event was called as such.

    Parameters
    ----------
    event
        The label.
    called
        A group event (for an outage: a monitoring problem) was told in its time, with at
        least half of the labelled nodes.
    n_blamed
        False alarms that rose in its time.
    """

    event: RecordedGroupEvent
    called: bool
    n_blamed: int

    @property
    def right(self) -> bool:
        """True when it was called and nobody was blamed."""
        return self.called and self.n_blamed == 0


@dataclass(frozen=True, slots=True)
class CaseScore:
    """The result of one case.

    Parameters
    ----------
    recording
        The case.
    faults, false_alarms, groups
        See the classes; every fault, false alarm and group event of the case.
    neutral
        Alarm episodes that rose in masked time.
    n_other_calls
        Group events that were told and are not labelled.
    excused
        By node, the spans of faults and masked time with their grace; the rest of the case is healthy.
    alarms
        Every alarm episode.
    findings
        What the detector said.
    """

    recording: Recording
    faults: tuple[FaultScore, ...]
    false_alarms: tuple[FalseAlarm, ...]
    groups: tuple[GroupScore, ...]
    neutral: tuple[Episode, ...]
    n_other_calls: int
    excused: Mapping[str, tuple[Span, ...]]
    alarms: tuple[Episode, ...]
    findings: Findings


def score_case(recording: Recording, findings: Findings, rules: Rules) -> CaseScore:
    """Score the findings of one case.

    Parameters
    ----------
    recording
        The case and its labels.
    findings
        What the detector said.
    rules
        Grace and merge time.
    """
    grace = rules.grace(recording.step_s)
    step = recording.step_s
    alarms = episodes(findings.flags, recording.end, rules.merge_s)
    faults = merged_faults(recording.faults, rules.merge_s)
    used: set[int] = set()
    taken: set[int] = set()
    scores: list[FaultScore] = []
    for fault in faults:
        mine = [(i, e) for i, e in enumerate(alarms) if e.node == fault.node]
        hits = [i for i, e in mine if fault.onset - step <= e.raised_at <= fault.end + grace]
        used.update(hits)
        first = next((i for i in hits if i not in taken), None)  # the grace of one fault may reach the next
        if first is None:
            scores.append(_missed(fault, [e for _, e in mine], told_another=bool(hits)))
        else:
            taken.add(first)
            scores.append(_found(fault, alarms[first]))
    neutral: list[Episode] = []
    false: list[FalseAlarm] = []
    for i, episode in enumerate(alarms):
        if i in used:
            continue
        if any(
            m.node == episode.node and m.onset - step <= episode.raised_at <= m.end + grace
            for m in recording.masked
        ):
            neutral.append(episode)
        else:
            false.append(FalseAlarm(episode, _during(recording, faults, episode, grace)))
    groups, n_other = _groups(recording, findings.calls, false, grace)
    excused = _excused(recording, faults, grace)
    return CaseScore(
        recording,
        tuple(scores),
        tuple(false),
        groups,
        tuple(neutral),
        n_other,
        excused,
        tuple(alarms),
        findings,
    )


def _found(fault: Fault, episode: Episode) -> FaultScore:
    first = episode.flags[0]
    known = bool(fault.part)
    seen_at = fault.visible_at
    return FaultScore(
        fault,
        delay_s=max(0.0, episode.raised_at - fault.onset),
        named=first.part,
        strongest=first.strongest_part,
        part_right=same_part(first.part, fault.part) if known else None,
        strongest_right=same_part(first.strongest_part, fault.part) if known else None,
        visible_delay_s=None if seen_at is None else max(0.0, episode.raised_at - seen_at),
    )


def _missed(fault: Fault, mine: Sequence[Episode], *, told_another: bool) -> FaultScore:
    if told_another:
        return FaultScore(fault, why="its alarm found the fault before it, and an alarm finds one")
    open_before = [e for e in mine if e.raised_at < fault.onset <= e.cleared_at]
    later = [e for e in mine if e.raised_at > fault.end]
    if open_before:
        early = fault.onset - open_before[-1].raised_at
        why = f"its alarm rose {early:.0f} s before the onset and was still open"
    elif later:
        why = f"its alarm rose {later[0].raised_at - fault.end:.0f} s after the end, past the grace"
    else:
        why = "its node was not flagged"
    return FaultScore(fault, why=why)


def _during(recording: Recording, faults: Sequence[Fault], episode: Episode, grace: float) -> str:
    """Say what was going on when a false alarm rose: it excuses nothing."""
    at, step = episode.raised_at, recording.step_s
    if episode.node not in {*recording.pool, *recording.spares}:
        return "a node that the case does not know"
    for fault in faults:
        if fault.node == episode.node:
            if at < fault.onset <= episode.cleared_at:
                return "before the onset of a fault of this node"
            if fault.end + grace < at <= fault.end + 6 * grace:
                return "after a fault of this node, past the grace"
    if any(g.onset - step <= at <= g.end + grace for g in recording.group_events):
        return "a group event"
    for item in recording.benign:
        if _covers(item, episode.node, at, step):
            return f"benign: {str(item.get('kind') or 'unnamed')[:60]}"
    if any(f.onset - step <= at <= f.end + grace for f in faults):
        return "a fault of another node"
    return "healthy time"


def _covers(item: object, node: str, at: float, step: float) -> bool:
    if not isinstance(item, dict) or item.get("node") not in (None, "", node):
        return False
    onset, end = item.get("onset"), item.get("end")
    if not (isinstance(onset, int | float) and isinstance(end, int | float)):
        return False
    return onset - step <= at <= end + 10 * step


def _groups(
    recording: Recording, calls: Sequence[Call], false: Sequence[FalseAlarm], grace: float
) -> tuple[tuple[GroupScore, ...], int]:
    """Score the labelled group events; count told group events that are none of them."""
    step = recording.step_s
    scores = []
    used: set[int] = set()
    for event in recording.group_events:
        low, high = event.onset - step, event.end + grace
        is_outage = any(word in event.kind.lower() for word in OUTAGE_WORDS)
        fitting = [
            i
            for i, call in enumerate(calls)
            if low <= call.start <= high and (call.kind == GROUP_EVENT) != is_outage
        ]
        used.update(fitting)
        told = {node for i in fitting for node in calls[i].nodes}
        whole = any(not calls[i].nodes for i in fitting)
        share = len(told & set(event.nodes)) / len(event.nodes) if event.nodes else 1.0
        blamed = sum(low <= alarm.episode.raised_at <= high for alarm in false)
        scores.append(GroupScore(event, bool(fitting) and (whole or share >= 0.5), blamed))
    n_other = sum(i not in used and call.kind == GROUP_EVENT for i, call in enumerate(calls))
    return tuple(scores), n_other


def _excused(recording: Recording, faults: Sequence[Fault], grace: float) -> dict[str, tuple[Span, ...]]:
    spans: dict[str, list[Span]] = {node: [] for node in (*recording.pool, *recording.spares)}
    for fault in faults:
        spans[fault.node].append((fault.onset, fault.end + grace))
    for masked in recording.masked:
        spans[masked.node].append((masked.onset, masked.end + grace))
    return {node: tuple(union(found)) for node, found in spans.items()}


def flags_of(answer: Sequence[Flag] | Findings) -> Findings:
    """Return a detector's answer as findings."""
    return answer if isinstance(answer, Findings) else Findings(tuple(answer))

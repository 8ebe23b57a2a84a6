"""Time spans of one node: alarms and labels merged, lengths without double counting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from detector.evaluation.model import Flag
from detector.source.incident_file import GRADES, RecordedFault

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Episode:
    """Alarms of one node with short gaps only: to the engineer on duty they are one alarm.

    Parameters
    ----------
    node
        Node name.
    raised_at, cleared_at
        Epoch seconds; `cleared_at` is the end of the case when the alarm lasted.
    flags
        The alarms in order of time.
    """

    node: str
    raised_at: float
    cleared_at: float
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Labelled faults of one node with short gaps only.

    Parameters
    ----------
    node, onset, end
        As in the labels.
    kind, part, severity
        As in the labels; several are joined by a comma, unknown ones are ``unspecified`` or empty.
    visible, visible_at, visible_in
        As in the labels: of several, the plainest grade, the first time and the first metric.
    """

    node: str
    onset: float
    end: float
    kind: str
    part: str
    severity: str
    visible: str = ""
    visible_at: float | None = None
    visible_in: str = ""


def episodes(flags: Iterable[Flag], end: float, merge_s: float) -> list[Episode]:
    """Merge the alarms of each node.

    Parameters
    ----------
    flags
        In any order.
    end
        Epoch seconds of the end of the case.
    merge_s
        Alarms less than this apart become one.

    Returns
    -------
    list of Episode
        In order of time and node.
    """
    by_node: dict[str, list[Flag]] = {}
    for flag in sorted(flags, key=lambda f: (f.raised_at, f.node, f.part)):
        by_node.setdefault(flag.node, []).append(flag)
    found: list[Episode] = []
    for node, alarms in by_node.items():
        run: list[Flag] = []
        until = float("-inf")
        for alarm in alarms:
            if run and alarm.raised_at - until >= merge_s:
                found.append(Episode(node, run[0].raised_at, until, tuple(run)))
                run, until = [], float("-inf")
            run.append(alarm)
            until = max(until, max(end, alarm.raised_at) if alarm.cleared_at is None else alarm.cleared_at)
        found.append(Episode(node, run[0].raised_at, until, tuple(run)))
    return sorted(found, key=lambda e: (e.raised_at, e.node))


def merged_faults(faults: Iterable[RecordedFault], merge_s: float) -> list[Fault]:
    """Merge the labelled faults of each node that are less than `merge_s` apart."""
    by_node: dict[str, list[RecordedFault]] = {}
    for fault in sorted(faults, key=lambda f: (f.onset, f.node, f.kind)):
        by_node.setdefault(fault.node, []).append(fault)
    found: list[Fault] = []
    for labelled in by_node.values():
        run: list[RecordedFault] = []
        for fault in labelled:
            if run and fault.onset - max(f.end for f in run) >= merge_s:
                found.append(_joined(run))
                run = []
            run.append(fault)
        found.append(_joined(run))
    return sorted(found, key=lambda f: (f.onset, f.node))


def _joined(faults: Sequence[RecordedFault]) -> Fault:
    return Fault(
        node=faults[0].node,
        onset=faults[0].onset,
        end=max(f.end for f in faults),
        kind=_words(f.kind for f in faults) or "unspecified",
        part=_words(f.part for f in faults),
        severity=_words(f.severity for f in faults),
        visible=max((f.visible for f in faults), key=("", *GRADES).index),
        visible_at=min((f.visible_at for f in faults if f.visible_at is not None), default=None),
        visible_in=next((f.visible_in for f in faults if f.visible_in), ""),
    )


def _words(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text.strip() for text in texts if text.strip()))


def union(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that overlap or touch; empty ones are dropped."""
    found: list[Span] = []
    for low, high in sorted(span for span in spans if span[1] > span[0]):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def length(spans: Iterable[Span]) -> float:
    """Return the time covered by at least one span, in seconds."""
    return sum(high - low for low, high in union(spans))


def outside(spans: Iterable[Span], low: float, high: float) -> list[Span]:
    """Return what of ``low`` to ``high`` no span covers."""
    found: list[Span] = []
    at = low
    for begin, end in union(spans):
        if begin > at:
            found.append((at, min(begin, high)))
        at = max(at, end)
        if at >= high:
            break
    if at < high:
        found.append((at, high))
    return [span for span in found if span[1] > span[0]]


def common_length(one: Iterable[Span], other: Iterable[Span]) -> float:
    """Return the time that both cover, in seconds."""
    one, other = union(one), union(other)
    return length(one) + length(other) - length([*one, *other])

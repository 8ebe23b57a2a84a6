"""Nodes that were suspects again and again over weeks: a ranking to plan repairs by, never an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from detector.outcome import Incident

NOT_CLASSIFIED = "unclassified"
"""Title of incidents that were stored without a diagnosis."""


@dataclass(frozen=True, slots=True)
class Offender:
    """How often one node was a suspect.

    Parameters
    ----------
    node
        Node name.
    n_incidents, n_open
        Incidents in which it was named, and how many of them are still open.
    suspect_s
        Seconds under suspicion within the time looked at.
    first_at, last_at
        Epoch seconds at which it was named first and last within all incidents that count.
    peak_score
        Highest score of any of them.
    parts, classes
        Number of incidents by part (empty for the node itself) and by likely fault class, most first.
    """

    node: str
    n_incidents: int
    n_open: int
    suspect_s: float
    first_at: float
    last_at: float
    peak_score: float
    parts: Mapping[str, int]
    classes: Mapping[str, int]


def rank(incidents: Iterable[Incident], since: float, until: float) -> list[Offender]:
    """Rank nodes by how many times they were suspects, then by the time spent so, then by the newest.

    First signs that never named the node do not count.

    Parameters
    ----------
    incidents
        Incidents of the store.
    since, until
        Epoch seconds; incidents count in which the node was under suspicion at some time between.
    """
    by_node: dict[str, list[Incident]] = {}
    for item in incidents:
        if item.suspect_at is None or item.suspect_at > until:
            continue
        if item.cleared_at is None or item.cleared_at >= since:
            by_node.setdefault(item.node, []).append(item)
    found = [_offender(node, items, since, until) for node, items in by_node.items()]
    return sorted(found, key=lambda o: (-o.n_incidents, -o.suspect_s, -o.last_at, o.node))


def _offender(node: str, items: list[Incident], since: float, until: float) -> Offender:
    named = [item.suspect_at for item in items if item.suspect_at is not None]
    return Offender(
        node=node,
        n_incidents=len(items),
        n_open=sum(item.cleared_at is None for item in items),
        suspect_s=sum(_length(item, since, until) for item in items),
        first_at=min(named),
        last_at=max(named),
        peak_score=max(item.peak_score for item in items),
        parts=dict(Counter(item.part for item in items).most_common()),
        classes=dict(Counter(_class_of(item) for item in items).most_common()),
    )


def _length(item: Incident, since: float, until: float) -> float:
    if item.suspect_at is None:
        return 0.0
    end = until if item.cleared_at is None else min(item.cleared_at, until)
    return max(0.0, end - max(item.suspect_at, since))


def _class_of(item: Incident) -> str:
    return NOT_CLASSIFIED if item.diagnosis is None else item.diagnosis.title

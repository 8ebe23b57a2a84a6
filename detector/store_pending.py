"""What is to be written, and the statements that write it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from detector.outcome import GroupEvent, Incident, Outcome, Transition
from detector.store_contract import Statements
from detector.store_control import end_feedback, prune_mutes

MAX_PENDING = 20_000
"""Transitions, incidents or group events kept in memory while the store refuses them."""

K = TypeVar("K")
V = TypeVar("V")

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Pending:
    """What is not on disk yet; the newest form of each thing."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    transitions: dict[tuple[str, float, str, str], Transition] = field(default_factory=dict)
    group_events: dict[str, GroupEvent] = field(default_factory=dict)
    snapshot: bytes | None = None
    at: float | None = None

    def __len__(self) -> int:
        return len(self.incidents) + len(self.transitions) + len(self.group_events)

    def add(self, outcome: Outcome, snapshot: bytes | None) -> int:
        """Merge one evaluation; return how many old things had to be given up."""
        self.incidents.update({incident.id: incident for incident in outcome.incidents})
        self.transitions.update({(t.incident_id, t.at, t.before, t.after): t for t in outcome.transitions})
        self.group_events.update({event.id: event for event in outcome.group_events})
        self.snapshot = snapshot or self.snapshot
        self.at = outcome.at if self.at is None else max(self.at, outcome.at)
        return _trim(self.incidents) + _trim(self.transitions) + _trim(self.group_events)

    def write(self, to: Statements) -> None:
        """Write all of it."""
        put_incidents(to, self.incidents.values())
        put_transitions(to, self.transitions.values())
        end_feedback(to, self.incidents.values())
        to.executemany(
            "INSERT INTO group_events (id, pool, started_at, ended_at, body) VALUES (?1,?2,?3,?4,?5) "
            "ON CONFLICT (id) DO UPDATE SET pool=excluded.pool, started_at=excluded.started_at, "
            "ended_at=excluded.ended_at, body=excluded.body",
            [(e.id, e.pool, e.started_at, e.ended_at, _encode(e)) for e in self.group_events.values()],
        )
        if self.snapshot is not None:
            to.execute(
                "INSERT INTO state (name, at, body) VALUES ('pipeline', ?1, ?2) "
                "ON CONFLICT (name) DO UPDATE SET at=excluded.at, body=excluded.body",
                (self.at, self.snapshot),
            )
        to.execute(
            "INSERT INTO meta (name, value) VALUES ('last_evaluation', ?1) ON CONFLICT (name) DO UPDATE SET "
            "value = CASE WHEN excluded.value > meta.value THEN excluded.value ELSE meta.value END",
            (self.at,),
        )


def put_incidents(to: Statements, incidents: Iterable[Incident]) -> None:
    """Write incidents in place of what was known of them."""
    to.executemany(
        "INSERT INTO incidents (id, node, state, active_at, suspect_at, cleared_at, peak_score, body) "
        "VALUES (?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT (id) DO UPDATE SET "
        "node=excluded.node, state=excluded.state, active_at=excluded.active_at, "
        "suspect_at=excluded.suspect_at, cleared_at=excluded.cleared_at, "
        "peak_score=excluded.peak_score, body=excluded.body",
        [
            (i.id, i.node, i.state, i.active_at, i.suspect_at, i.cleared_at, i.peak_score, _encode(i))
            for i in incidents
        ],
    )


def put_transitions(to: Statements, transitions: Iterable[Transition]) -> None:
    """Write transitions that are not there yet."""
    to.executemany(
        "INSERT INTO transitions (incident_id, at, before, after, node, reason) "
        "VALUES (?1,?2,?3,?4,?5,?6) ON CONFLICT DO NOTHING",
        [(t.incident_id, t.at, t.before, t.after, t.node, t.reason) for t in transitions],
    )


def prune(to: Statements, before: float) -> None:
    """Delete what was over before a time, epoch seconds."""
    to.execute(
        "DELETE FROM transitions WHERE incident_id IN "
        "(SELECT id FROM incidents WHERE state = 'cleared' AND cleared_at < ?1)",
        (before,),
    )
    to.execute("DELETE FROM incidents WHERE state = 'cleared' AND cleared_at < ?1", (before,))
    to.execute("DELETE FROM group_events WHERE ended_at < ?1", (before,))
    prune_mutes(to, before)


def _trim(things: dict[K, V]) -> int:
    """Give up the oldest beyond the bound."""
    lost = max(0, len(things) - MAX_PENDING)
    for key in list(things)[:lost]:
        del things[key]
    return lost

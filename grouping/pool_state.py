"""What is remembered of each node between two evaluations, for the pools."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Member:
    """One node in the eyes of the pool tracker.

    Parameters
    ----------
    first_at
        Epoch seconds of the first sight.
    pool
        Name of its pool, empty for none.
    by
        What put it there: ``declared``, ``auto``, or empty when nothing has yet.
    joined_at, grace_until
        Epoch seconds.
    load
        Newest load in percent, NaN when it is not known now.
    load_known
        True once it had a load.
    was_busy
        True when it was busy since its pool last started to work.
    is_idle
        True when its newest known load was idle.
    blamed
        True when it was under suspicion as it turned idle.
    came_from_idle
        True when it joined from the idle nodes and has been busy since.
    idle_s
        Seconds of idleness seen, gaps not counted.
    idle_since, busy_since
        Epoch seconds at which it last turned idle, and busy; -inf when it never did.
    busy_ticks
        Busy evaluations in a row.
    """

    first_at: float
    pool: str = ""
    by: str = ""
    joined_at: float = 0.0
    grace_until: float = 0.0
    load: float = math.nan
    load_known: bool = False
    was_busy: bool = False
    is_idle: bool = False
    blamed: bool = False
    came_from_idle: bool = False
    idle_s: float = 0.0
    idle_since: float = -math.inf
    busy_since: float = -math.inf
    busy_ticks: int = 0

    @property
    def load_now(self) -> bool:
        """True when the load is known at this evaluation."""
        return not math.isnan(self.load)

    def observe(
        self, load: float, at: float, dt: float, idle_below: float, busy_from: float, is_held: bool
    ) -> None:
        """Take in the load of one evaluation; without one, everything stays as it was.

        Parameters
        ----------
        load
            Percent, NaN when not known.
        at
            Evaluation time.
        dt
            Seconds since the evaluation before, 0 after a gap.
        idle_below, busy_from
            Bounds in percent.
        is_held
            True when the node is under suspicion.
        """
        self.load = load
        if math.isnan(load):
            return
        self.load_known = True
        if load < idle_below:
            if not self.is_idle:
                self.idle_since, self.idle_s, self.blamed = at, 0.0, is_held
            else:
                self.idle_s += dt
            self.is_idle, self.busy_ticks, self.came_from_idle = True, 0, False
            return
        self.is_idle, self.blamed, self.idle_s = False, False, 0.0
        if load < busy_from:
            self.busy_ticks = 0
            return
        if self.busy_ticks == 0:
            self.busy_since = at
        self.busy_ticks += 1
        self.was_busy = True


def dump_members(members: Mapping[str, Member]) -> dict[str, dict[str, object]]:
    """Return members as JSON values: fields that have their default, and infinities, are left out."""
    dumped: dict[str, dict[str, object]] = {}
    for name, member in members.items():
        values: dict[str, object] = {}
        for item in fields(Member):
            value = getattr(member, item.name)
            if not isinstance(value, float) or math.isfinite(value):
                values[item.name] = value
        dumped[name] = values
    return dumped


def load_members(state: object) -> dict[str, Member]:
    """Read members back; an entry or a field of another form is left out."""
    members: dict[str, Member] = {}
    if not isinstance(state, dict):
        return members
    for name, values in state.items():
        if not isinstance(name, str) or not isinstance(values, dict):
            continue
        member = Member(first_at=0.0)
        for item in fields(Member):
            value, default = values.get(item.name), getattr(member, item.name)
            if isinstance(default, bool):
                if isinstance(value, bool):
                    setattr(member, item.name, value)
            elif isinstance(default, (int, float)):
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    setattr(member, item.name, type(default)(value))
            elif isinstance(value, str):
                setattr(member, item.name, value)
        members[name] = member
    return members

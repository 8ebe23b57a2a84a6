"""Rules of mutes: what may be muted, for how long, and which one is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from detector.control.model import Mute
from detector.control.problems import NotValidError

MAX_MUTE_S = 31 * 86_400.0
"""A mute never holds for longer: what is forgotten must come back by itself."""

MAX_AHEAD_S = 366 * 86_400.0
"""A maintenance window may be planned this far ahead."""

LATE_S = 300.0
"""A start in the past by no more than this is taken for now: clocks differ."""

MAX_LIVE = 1000
"""Mutes and planned windows at once."""


def check(mute: Mute, now: float) -> Mute:
    """Return the mute with a start that is not in the past.

    Parameters
    ----------
    mute
        As asked for.
    now
        Epoch seconds.

    Raises
    ------
    NotValidError
        Names the rule.
    """
    if not (mute.node or mute.pool or mute.metric):
        raise NotValidError("a mute needs a node, a pool or a metric")
    if mute.apart and (not mute.node or mute.pool or mute.metric):
        raise NotValidError("apart: goes with a node, and with no pool or metric")
    if mute.start < now - LATE_S:
        raise NotValidError(f"start: {mute.start:.0f} is in the past; it is {now:.0f}")
    if mute.start > now + MAX_AHEAD_S:
        raise NotValidError(f"start: is more than {MAX_AHEAD_S / 86400:.0f} days ahead")
    if mute.until <= max(now, mute.start):
        raise NotValidError(f"until: {mute.until:.0f} is not after the start; it is {now:.0f}")
    if mute.until - mute.start > MAX_MUTE_S + LATE_S:
        raise NotValidError(f"until: a mute holds for {MAX_MUTE_S / 86400:.0f} days at most")
    return mute


def longest(mutes: Iterable[Mute], node: str, pool: str, at: float) -> Mute | None:
    """Return the mute of a node that holds longest, None when none does; those of a metric are not meant."""
    found = [m for m in mutes if not m.metric and m.is_active(at) and m.concerns(node, pool)]
    return max(found, key=lambda m: m.until, default=None)


def subject(mute: Mute) -> str:
    """Say in words what is muted."""
    what = [f"{kind} {name}" for kind in ("node", "pool", "metric") if (name := getattr(mute, kind))]
    return f"mute {mute.id}: {', '.join([*what, 'apart'] if mute.apart else what)}"

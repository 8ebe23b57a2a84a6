"""Alarms of two runs over the same hours, told apart. No clock here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from detector.outcome import GroupEvent, Incident
from detector.plain_text import utc_second
from detector.what_if.model import Alarm, Difference, Kind, What

MAX_REASON = 300
MAX_SHOWN = 500
"""Alarms that are told at most."""

_ORDER = {kind: place for place, kind in enumerate(Kind)}


def suspect_alarm(incident: Incident) -> Alarm | None:
    """Return the alarm of an incident, None when it never named its node."""
    if incident.suspect_at is None:
        return None
    score = incident.peak_score if math.isfinite(incident.peak_score) else 0.0
    title = "" if incident.diagnosis is None else f"{incident.diagnosis.title}: "
    return Alarm(
        What.SUSPECT, incident.node, incident.part, incident.active_at, incident.suspect_at,
        incident.cleared_at, score, _short(title + incident.reason),
    )  # fmt: skip


def group_alarm(event: GroupEvent) -> Alarm:
    """Return the alarm of a group event."""
    return Alarm(
        What.GROUP_EVENT, event.pool, event.kind, event.started_at, event.started_at, event.ended_at, 0.0,
        _short(event.reason),
    )  # fmt: skip


def compare(
    before: Sequence[Alarm], after: Sequence[Alarm], max_shown: int = MAX_SHOWN
) -> tuple[tuple[Difference, ...], int]:
    """Tell which alarms come, go, or move.

    Two alarms are the same one when they are of the same node (or pool) and overlap in time, first signs
    included. Of several that overlap, the first ones belong together.

    Parameters
    ----------
    before, after
        Alarms under the settings in effect and under others, in any order.
    max_shown
        How many are told at most.

    Returns
    -------
    tuple
        Differences first, and how many were left out.
    """
    found: list[Difference] = []
    theirs = _by_name(after)
    for key, mine in _by_name(before).items():
        others = theirs.pop(key, [])
        for alarm in mine:
            match = next((other for other in others if _overlap(alarm, other)), None)
            if match is None:
                found.append(Difference(Kind.LOST, alarm, None, _lost(alarm)))
            else:
                others.remove(match)
                found.append(_moved(alarm, match))
        found.extend(_gained(alarm) for alarm in others)
    found.extend(_gained(alarm) for alarms in theirs.values() for alarm in alarms)
    found.sort(key=_place)
    return tuple(found[:max_shown]), max(0, len(found) - max_shown)


def _by_name(alarms: Sequence[Alarm]) -> dict[tuple[What, str], list[Alarm]]:
    found: dict[tuple[What, str], list[Alarm]] = defaultdict(list)
    for alarm in sorted(alarms, key=lambda a: (a.first_sign_at, a.named_at)):
        found[alarm.what, alarm.name].append(alarm)
    return found


def _end(alarm: Alarm) -> float:
    return math.inf if alarm.cleared_at is None else alarm.cleared_at


def _overlap(a: Alarm, b: Alarm) -> bool:
    return a.first_sign_at <= _end(b) and b.first_sign_at <= _end(a)


def _place(item: Difference) -> tuple[int, float, str]:
    alarm = item.before or item.after
    assert alarm is not None  # noqa: S101 (narrowing: one of them is there)
    return _ORDER[item.kind], alarm.named_at, alarm.name


def _gained(alarm: Alarm) -> Difference:
    text = f"would be {_named(alarm)} at {utc_second(alarm.named_at)}, and is not now: {alarm.reason}"
    return Difference(Kind.GAINED, None, alarm, text)


def _lost(alarm: Alarm) -> str:
    return f"would not be {_named(alarm)}; now it is, at {utc_second(alarm.named_at)}: {alarm.reason}"


def _named(alarm: Alarm) -> str:
    return "named" if alarm.what is What.SUSPECT else "a group event"


def _moved(before: Alarm, after: Alarm) -> Difference:
    moved_s = after.named_at - before.named_at
    ending = _ending(before, after)
    if moved_s:
        kind = Kind.EARLIER if moved_s < 0 else Kind.LATER
        text = (
            f"would be {_named(before)} {abs(moved_s):.0f} s {kind.value}, at {utc_second(after.named_at)} "
            f"instead of {utc_second(before.named_at)}" + (f", and {ending}" if ending else "")
        )
        return Difference(kind, before, after, text)
    if ending:
        kind = Kind.LONGER if _end(after) > _end(before) else Kind.SHORTER
        return Difference(kind, before, after, f"would be {_named(before)} at the same time, and {ending}")
    return Difference(
        Kind.SAME, before, after, f"the same: {_named(before)} at {utc_second(before.named_at)}"
    )


def _ending(before: Alarm, after: Alarm) -> str:
    """Say how the end differs, empty when it does not."""
    if before.cleared_at == after.cleared_at:
        return ""
    if after.cleared_at is None:
        return f"last to the end instead of until {utc_second(_end(before))}"
    if before.cleared_at is None:
        return f"be over at {utc_second(after.cleared_at)} instead of lasting to the end"
    return f"be over at {utc_second(after.cleared_at)} instead of {utc_second(before.cleared_at)}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 3] + "..."

"""What was told, and the messages that lead from there to what should be out now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from detector.delivery.notice import Notice
from detector.outcome import Outcome

RAISED, CLEARED, WITHDRAWN = "suspect_raised", "suspect_cleared", "suspect_withdrawn"
OPENED, ENDED = "group_event_opened", "group_event_ended"
EVENTS = (RAISED, CLEARED, WITHDRAWN, OPENED, ENDED)
"""What a message can say."""

KEEP_CLOSED_S = 900.0
"""Something closed is told as closed for this long, again and again."""

REMEMBER_S = 3600.0
"""And remembered for at least this long, for the bound per hour."""


@dataclass(frozen=True, slots=True)
class Out:
    """Something that was told and may still be open.

    Parameters
    ----------
    notice
        As it was told last.
    told_at
        Epoch seconds of the evaluation that opened it.
    closed_at
        Epoch seconds at which it was closed, None while it is open.
    noticed_at
        Clock time at which that was noticed.
    """

    notice: Notice
    told_at: float
    closed_at: float | None = None
    noticed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What should be out now.

    Parameters
    ----------
    open
        Notices by key.
    withheld
        Why each of the others is not, by key.
    """

    open: Mapping[str, Notice]
    withheld: Mapping[str, str] = field(default_factory=dict)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One change, told once to each receiver of messages.

    Parameters
    ----------
    id
        Stable: the same change has the same identifier however often it is sent.
    event
        One of `EVENTS`.
    at
        Epoch seconds of the evaluation.
    why
        Why it was cleared or withdrawn, one sentence; empty else.
    notice
        What it is about.
    """

    id: str
    event: str
    at: float
    why: str = ""
    notice: Notice


def advance(
    out: Mapping[str, Out], decision: Decision, outcome: Outcome, now: float
) -> tuple[dict[str, Out], list[Message]]:
    """Go from what is out to what should be.

    Parameters
    ----------
    out
        What was told, by key.
    decision
        What should be open.
    outcome
        The evaluation that it was decided by.
    now
        Clock time, epoch seconds.

    Returns
    -------
    out
        What is told after it.
    messages
        The changes; closings come first.
    """
    after: dict[str, Out] = {}
    messages: list[Message] = []
    ended = {i.id: (i.cleared_at, i.reason) for i in outcome.incidents if i.cleared_at is not None}
    ended |= {e.id: (e.ended_at, "it has ended") for e in outcome.group_events if e.ended_at is not None}
    for key, item in out.items():
        if item.closed_at is not None:
            is_kept = outcome.at - item.told_at < REMEMBER_S or now - item.noticed_at < KEEP_CLOSED_S
            if is_kept:
                after[key] = item
        elif key not in decision.open:
            at, why = ended.get(key, (None, ""))
            after[key] = replace(item, closed_at=outcome.at if at is None else at, noticed_at=now)
            messages.append(_closing(item.notice, outcome.at, decision.withheld.get(key, ""), why))
    for key, notice in decision.open.items():
        known = out.get(key)
        if known is not None and known.closed_at is None:
            after[key] = replace(known, notice=notice)
            continue
        after[key] = Out(notice, outcome.at)
        messages.append(_message(notice, RAISED if notice.is_suspect else OPENED, outcome.at, ""))
    return after, messages


def _closing(notice: Notice, at: float, withheld: str, why: str) -> Message:
    if not notice.is_suspect:
        return _message(notice, ENDED, at, why or (f"it is {withheld}" if withheld else "it is over"))
    if withheld:
        return _message(notice, WITHDRAWN, at, f"it is {withheld}")
    return _message(notice, CLEARED, at, why)


def _message(notice: Notice, event: str, at: float, why: str) -> Message:
    return Message(id=f"{notice.key}/{event}/{int(at)}", event=event, at=at, why=why, notice=notice)

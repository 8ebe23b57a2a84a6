"""Records of what operators did; stored, served, and read by the detection and by delivery."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Action(StrEnum):
    """What an operator can do."""

    ACKNOWLEDGE = "acknowledge"
    DISMISS = "dismiss"
    MUTE = "mute"
    UNMUTE = "unmute"
    REPAIRED = "repaired"


class Verdict(StrEnum):
    """What an incident was, as told by an operator."""

    FAULT = "fault"
    FALSE_ALARM = "false_alarm"


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    """Something that shall not call anybody for a while; a maintenance window when it begins later.

    Parameters
    ----------
    id
        Stable identifier.
    node, pool, metric
        What it is about, each exact; empty for any. At least one is given, and all given ones must fit.
    start, until
        Epoch seconds; from `start` on, and no longer at `until`.
    reason, note
        Why, and what else there is to say.
    by
        Who made it.
    made_at
        Epoch seconds at which it was made.
    ended_at, ended_by
        When and by whom it was ended early; None and empty when it was not.
    """

    id: str
    node: str = ""
    pool: str = ""
    metric: str = ""
    start: float
    until: float
    reason: str
    note: str = ""
    by: str
    made_at: float
    ended_at: float | None = None
    ended_by: str = ""

    def is_active(self, at: float) -> bool:
        """Tell whether it holds at `at`, epoch seconds."""
        return self.start <= at < self.until and (self.ended_at is None or at < self.ended_at)

    def is_over(self, at: float) -> bool:
        """Tell whether it will not hold again from `at` on, epoch seconds."""
        return at >= self.until or self.ended_at is not None

    def concerns(self, node: str, pool: str) -> bool:
        """Tell whether a node of a pool is meant, whatever the metric."""
        return self.node in ("", node) and self.pool in ("", pool)

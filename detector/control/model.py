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
    REOPEN = "reopen"
    EXPORT = "export"


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
    apart
        True to take the node out of its pool meanwhile: it is not compared, and no peer of others.
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
    apart: bool = False
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


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator said that an incident was: a label.

    Parameters
    ----------
    incident_id, node
        Which incident, of which node.
    start, end
        Epoch seconds of the first sign and of the end; `end` is None while it is open.
    verdict
        See `Verdict`.
    by, note, at
        Who said so, why, and when.
    part, fault_class
        What the incident pointed to at that time; empty when it pointed to nothing.
    told
        Keys of the evidence against which a false alarm was told, see `dismissal`.
    lifted_at, lifted_for
        When and for what evidence a dismissed incident came back; None and empty when it did not.
    """

    incident_id: str
    node: str
    start: float
    end: float | None = None
    verdict: Verdict
    by: str
    note: str = ""
    at: float
    part: str = ""
    fault_class: str = ""
    told: tuple[str, ...] = ()
    lifted_at: float | None = None
    lifted_for: str = ""

    @property
    def hides(self) -> bool:
        """Tell whether the incident is dismissed."""
        return self.verdict is Verdict.FALSE_ALARM and self.lifted_at is None

    @property
    def acknowledges(self) -> bool:
        """Tell whether the incident is acknowledged."""
        return self.verdict is Verdict.FAULT


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit trail, which is only ever added to.

    Parameters
    ----------
    number
        Counts up; 0 before it is stored.
    at
        Epoch seconds.
    by
        Who did it.
    action
        See `Action`.
    subject
        The incident, node or mute, in words.
    note
        Reason or note given.
    """

    number: int = 0
    at: float
    by: str
    action: Action
    subject: str
    note: str = ""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """A node was repaired; what was learnt against it until then is void.

    Parameters
    ----------
    node
        Node name.
    at
        Epoch seconds.
    evaluated_at
        Newest evaluation time then: a learnt state of that time or before knows nothing of the repair.
    """

    node: str
    at: float
    evaluated_at: float

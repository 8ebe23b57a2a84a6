"""What operators have said, beside what is shown of suspects, incidents and nodes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from api import present
from api.control import acknowledged_mark, dismissed_mark, mute_mark
from api.present import Plain
from detector.control.desk import Desk
from detector.control.model import Action, AuditEntry, Feedback, Mute
from detector.control.model import Verdict as Said
from detector.control.mutes import longest
from detector.outcome import Incident, Verdict
from detector.service_view import Latest, ServiceView

MAX_TOLD = 1000
"""Lines of the trail that are looked at for what had been said at some time."""

_SAID = {Action.ACKNOWLEDGE: Said.FAULT, Action.DISMISS: Said.FALSE_ALARM}


class Marks:
    """Adds marks to answers.

    Parameters
    ----------
    desk
        Knows what was said; None when nobody can say anything.
    """

    def __init__(self, desk: Desk | None) -> None:
        self._desk = desk

    def as_of(self, seen: ServiceView, view: ServiceView) -> Marks:
        """Return what had been said at the time of `seen`; for `view` itself it is what holds now."""
        if seen is view or self._desk is None or (latest := seen.latest()) is None:
            return self
        return _MarksThen(self._desk, latest.outcome.at)

    def said(self) -> tuple[object, ...]:
        """Return what holds now, to compare each by identity: with the same, all marks are the same."""
        return () if self._desk is None else (self._desk.holds(), *self._desk.mutes_in_effect())

    def is_dismissed(self, incident_id: str) -> bool:
        """Tell whether an incident is a false alarm."""
        label = self._label_of(incident_id)
        return label is not None and label.hides

    def is_muted(self, verdict: Verdict) -> bool:
        """Tell whether a node or its pool is muted."""
        return self._mute_of(verdict.node, verdict.pool) is not None

    def suspect(self, item: Incident, verdict: Verdict | None) -> Plain:
        """Return a suspect with its marks."""
        muted = self._mute_of(item.node, "" if verdict is None else verdict.pool)
        return {
            **present.suspect(item, verdict),
            "acknowledged": acknowledged_mark(self._label_of(item.id)),
            "muted": mute_mark(muted),
        }

    def incident(self, item: Incident) -> Plain:
        """Return an incident with its marks."""
        label = self._label_of(item.id)
        return {
            **present.incident(item),
            "acknowledged": acknowledged_mark(label),
            "dismissed": dismissed_mark(label),
        }

    def node(self, verdict: Verdict, latest: Latest) -> Plain:
        """Return a node's verdict with the marks of its incident."""
        mine = next((item for item in latest.suspects if item.node == verdict.node), None)
        label = None if mine is None else self._label_of(mine.id)
        return {
            **present.node(verdict),
            "acknowledged": acknowledged_mark(label),
            "dismissed": dismissed_mark(label),
            "muted": mute_mark(self._mute_of(verdict.node, verdict.pool)),
        }

    def _label_of(self, incident_id: str) -> Feedback | None:
        return None if self._desk is None else self._desk.label_of(incident_id)

    def _mute_of(self, node: str, pool: str) -> Mute | None:
        return None if self._desk is None else self._desk.mute_of(node, pool, self._desk.now())


class _MarksThen(Marks):
    """Marks as they were at some time of a recording, told by the trail."""

    def __init__(self, desk: Desk, at: float) -> None:
        super().__init__(desk)
        self._at = at
        self._labels = labels_at(desk.ledger.audit(limit=MAX_TOLD, offset=0), at)
        self._mutes = [mute for mute in desk.ledger.mutes(at) if mute.made_at <= at]

    def _label_of(self, incident_id: str) -> Feedback | None:
        return self._labels.get(incident_id)

    def _mute_of(self, node: str, pool: str) -> Mute | None:
        return longest(self._mutes, node, pool, self._at)


def labels_at(trail: Sequence[AuditEntry], at: float) -> dict[str, Feedback]:
    """Return what had been said of each incident by some time.

    Parameters
    ----------
    trail
        Newest first.
    at
        Epoch seconds.
    """
    labels: dict[str, Feedback] = {}
    for line in reversed(trail):
        kind, _, incident_id = line.subject.partition(" ")
        if line.at > at or kind != "incident":
            continue
        if line.action is Action.REOPEN and incident_id in labels:
            labels[incident_id] = msgspec.structs.replace(labels[incident_id], lifted_at=line.at)
        elif line.action in _SAID:
            labels[incident_id] = Feedback(
                incident_id=incident_id, node="", start=0.0, verdict=_SAID[line.action],
                by=line.by, note=line.note, at=line.at,
            )  # fmt: skip
    return labels

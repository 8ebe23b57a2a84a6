"""What operators have said, beside what is shown of suspects, incidents and nodes."""

from __future__ import annotations

from api import present
from api.control import acknowledged_mark, dismissed_mark, mute_mark
from api.present import Plain
from detector.control.desk import Desk
from detector.control.model import Feedback, Mute
from detector.outcome import Incident, Verdict
from detector.service_view import Latest


class Marks:
    """Adds marks to answers.

    Parameters
    ----------
    desk
        Knows what was said; None when nobody can say anything.
    """

    def __init__(self, desk: Desk | None) -> None:
        self._desk = desk

    def said(self) -> tuple[object, ...]:
        """Return what holds now, to compare each by identity: with the same, all marks are the same."""
        return () if self._desk is None else (self._desk.holds(), *self._desk.mutes_in_effect())

    def is_dismissed(self, incident_id: str) -> bool:
        """Tell whether an incident is a false alarm."""
        return self._desk is not None and self._desk.is_dismissed(incident_id)

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

"""Where operators' requests arrive: checked, stored with their line of the audit trail, then in effect.

What holds now lies in one value that is replaced as a whole, so the thread of the tick and those of the REST
interface read it without a lock, and what they see is on disk already.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from detector.control import dismissal
from detector.control.ledger import Detection, Ledger
from detector.control.model import Action, AuditEntry, Feedback, Mute, Repair, Verdict
from detector.control.mutes import MAX_LIVE, check, longest, subject
from detector.control.problems import NotKnownError, NotPossibleError
from detector.errors import StoreError
from detector.outcome import Incident, Outcome, Transition

log = logging.getLogger("oddnode.detector.control")

SERVICE = "oddnode"
"""Who reopens a dismissed incident."""


@dataclass(frozen=True, slots=True)
class _State:
    """What holds now: mutes that are not over, and labels by incident."""

    mutes: tuple[Mute, ...] = ()
    labels: Mapping[str, Feedback] = field(default_factory=dict)


class Desk:
    """Takes operators' requests, and answers what holds (see `detector.control.view.Muted`).

    Parameters
    ----------
    ledger
        Keeps everything.
    now
        Clock of the service, epoch seconds.

    Raises
    ------
    StoreError
        When what was said before cannot be read.
    """

    def __init__(self, ledger: Ledger, now: Callable[[], float]) -> None:
        self.ledger = ledger
        self._now = now
        self._detection: Detection | None = None
        self._lock = threading.Lock()
        self._state = _State()
        self.reload()

    def reload(self) -> None:
        """Read what was said anew: another process may be the one that takes requests.

        Raises
        ------
        StoreError
            When it cannot be read; what is known stays.
        """
        with self._lock:
            labels = {label.incident_id: label for label in self.ledger.feedback()}
            self._state = _State(tuple(self.ledger.mutes(self._now())), labels)

    def attach(self, detection: Detection) -> None:
        """Let requests reach the running detection."""
        self._detection = detection

    def now(self) -> float:
        """Return the service's time, epoch seconds."""
        return self._now()

    def holds(self) -> object:
        """Return what holds now, to compare by identity: each change makes another one."""
        return self._state

    def mute_of(self, node: str, pool: str, at: float) -> Mute | None:
        """Return the mute that holds for a node for longest, None when none does."""
        return longest(self._state.mutes, node, pool, at)

    def is_acknowledged(self, incident_id: str) -> bool:
        """Tell whether an incident is a fault that is being looked after."""
        label = self._state.labels.get(incident_id)
        return label is not None and label.acknowledges

    def is_dismissed(self, incident_id: str) -> bool:
        """Tell whether an incident is a false alarm."""
        label = self._state.labels.get(incident_id)
        return label is not None and label.hides

    def label_of(self, incident_id: str) -> Feedback | None:
        """Return what was said of an incident, None when nothing was."""
        return self._state.labels.get(incident_id)

    def detection_mutes(self, at: float) -> Sequence[Mute]:
        """Return the mutes that hold at `at`, epoch seconds, and change what is compared."""
        return [mute for mute in self._state.mutes if (mute.metric or mute.apart) and mute.is_active(at)]

    def mutes_in_effect(self) -> Sequence[Mute]:
        """Return the mutes that hold now."""
        now = self._now()
        return [mute for mute in self._state.mutes if mute.is_active(now)]

    def live_mutes(self) -> Sequence[Mute]:
        """Return mutes that hold and windows that are planned, in order of their start."""
        now = self._now()
        return [mute for mute in self._state.mutes if not mute.is_over(now)]

    def acknowledge(self, incident_id: str, by: str, note: str = "") -> Feedback:
        """Say that an incident is a fault that is being looked after; a dismissed one comes back so.

        Raises
        ------
        NotKnownError, NotPossibleError
            When there is no such incident, or it never named its node.
        StoreError
            When it cannot be stored.
        """
        return self._label(incident_id, Verdict.FAULT, by, note)

    def dismiss(self, incident_id: str, by: str, reason: str) -> Feedback:
        """Say that an incident is a false alarm: it is no suspect until there is other evidence.

        Raises
        ------
        NotKnownError, NotPossibleError
            When there is no such incident, or it never named its node.
        StoreError
            When it cannot be stored.
        """
        return self._label(incident_id, Verdict.FALSE_ALARM, by, reason)

    def mute(self, wanted: Mute) -> Mute:
        """Keep quiet about a node, a pool, a metric, or a combination, for a while.

        Parameters
        ----------
        wanted
            What is asked for; `id` and `made_at` are given here.

        Raises
        ------
        NotValidError, NotKnownError, NotPossibleError
            When it breaks a rule, something named in it does not exist, or there are too many.
        StoreError
            When it cannot be stored.
        """
        with self._lock:
            now = self._now()
            made = msgspec.structs.replace(wanted, id=f"m-{uuid.uuid4().hex[:12]}", made_at=now)
            made = check(made, now)
            for kind in ("node", "pool", "metric"):
                name = getattr(made, kind)
                if name and self._detection is not None and not self._detection.knows(**{kind: name}):
                    raise NotKnownError(f"{kind} {name!r} is not known")
            kept = [mute for mute in self._state.mutes if not mute.is_over(now)]
            if len(kept) >= MAX_LIVE:
                raise NotPossibleError(f"there are {MAX_LIVE} mutes already: end some first")
            self.ledger.put_mute(made, self._entry(made.by, Action.MUTE, subject(made), made.reason))
            self._state = replace(self._state, mutes=(*kept, made))
        return made

    def unmute(self, mute_id: str, by: str, note: str = "") -> Mute:
        """End a mute, or call off a window.

        Raises
        ------
        NotKnownError
            When there is no such mute that is not over.
        StoreError
            When it cannot be stored.
        """
        with self._lock:
            now = self._now()
            found = next((m for m in self._state.mutes if m.id == mute_id and not m.is_over(now)), None)
            if found is None:
                raise NotKnownError(f"mute {mute_id!r} is not known, or is over")
            ended = msgspec.structs.replace(found, ended_at=now, ended_by=by)
            self.ledger.put_mute(ended, self._entry(by, Action.UNMUTE, subject(ended), note))
            self._state = replace(self._state, mutes=tuple(m for m in self._state.mutes if m.id != mute_id))
        return ended

    def repaired(self, node: str, by: str, note: str = "") -> Incident | None:
        """Set a node healthy: its incident is cleared, and what was learnt against it is forgotten.

        Returns
        -------
        Incident or None
            The incident that was cleared, None when the node had none.

        Raises
        ------
        NotKnownError
            When there is no such node.
        BusyError, StoreError
            When an evaluation is under way for too long, or it cannot be stored; nothing was changed.
        """
        if self._detection is None or not self._detection.knows(node=node):
            raise NotKnownError(f"node {node!r} is not known")
        entry = self._entry(by, Action.REPAIRED, f"node {node}", note)

        def keep(repair: Repair, incidents: Sequence[Incident], transitions: Sequence[Transition]) -> None:
            self.ledger.put_repair(repair, entry, incidents, transitions)

        reason = f"repaired, said {by}" + (f": {note}" if note else "")
        cleared = self._detection.repaired(node, entry.at, reason, keep)
        if cleared is not None:
            with self._lock:
                self._end([cleared])
        return cleared

    def exported(self, incident_id: str, by: str, note: str = "") -> None:
        """Keep in the trail that the telemetry of an incident was handed out.

        Raises
        ------
        StoreError
            When it cannot be stored.
        """
        self.ledger.put_entry(self._entry(by, Action.EXPORT, f"incident {incident_id}", note))

    def observe(self, outcome: Outcome) -> None:
        """Follow an evaluation: labels get their end, dismissed incidents come back for new evidence.

        Never raises: what cannot be stored is tried again at the next evaluation.
        """
        evidence = {verdict.node: verdict.evidence for verdict in outcome.verdicts}
        with self._lock:
            self._end([incident for incident in outcome.incidents if incident.cleared_at is not None])
            for incident in outcome.incidents:
                label = self._state.labels.get(incident.id)
                if label is None or not label.hides or incident.cleared_at is not None:
                    continue
                why = dismissal.news(label.told, evidence.get(incident.node, ()), outcome.at)
                if not why:
                    continue
                lifted = msgspec.structs.replace(label, lifted_at=outcome.at, lifted_for=why)
                try:
                    self._keep(lifted, self._entry(SERVICE, Action.REOPEN, f"incident {incident.id}", why))
                except StoreError as error:
                    log.error("control not_reopened=%s problem=%r", incident.id, str(error))  # noqa: TRY400
                else:
                    log.info("control reopened=%s reason=%r", incident.id, why)

    def _label(self, incident_id: str, verdict: Verdict, by: str, note: str) -> Feedback:
        with self._lock:
            incident = self.ledger.incident(incident_id)
            if incident is None:
                raise NotKnownError(f"incident {incident_id!r} is not known")
            if incident.suspect_at is None:
                raise NotPossibleError(
                    f"incident {incident_id!r} has not named its node: there is nothing to say"
                )
            newest = () if self._detection is None else self._detection.evidence_of(incident.node)
            label = Feedback(
                incident_id=incident.id,
                node=incident.node,
                start=incident.active_at,
                end=incident.cleared_at,
                verdict=verdict,
                by=by,
                note=note,
                at=self._now(),
                part=incident.part,
                fault_class="" if incident.diagnosis is None else incident.diagnosis.fault_class,
                told=dismissal.keys_of((*incident.evidence, *newest)),
            )
            action = Action.ACKNOWLEDGE if verdict is Verdict.FAULT else Action.DISMISS
            self._keep(label, self._entry(by, action, f"incident {incident.id}", note))
        return label

    def _keep(self, label: Feedback, entry: AuditEntry) -> None:
        self.ledger.put_feedback(label, entry)
        self._state = replace(self._state, labels={**self._state.labels, label.incident_id: label})

    def _end(self, cleared: Sequence[Incident]) -> None:
        """Give labels their end; the store has done so with the incidents."""
        ended = {
            i.id: msgspec.structs.replace(self._state.labels[i.id], end=i.cleared_at)
            for i in cleared
            if i.id in self._state.labels
        }
        if ended:
            self._state = replace(self._state, labels={**self._state.labels, **ended})

    def _entry(self, by: str, action: Action, what: str, note: str) -> AuditEntry:
        return AuditEntry(at=self._now(), by=by, action=action, subject=what, note=note)

"""What leaves: mutes, dismissals, shadow rules, and the guard against too many suspects at once.

Everything is decided from one evaluation and from what is out already; no clock, no file, no socket.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from detector.control.view import Muted
from detector.delivery.ledger import Decision, Out
from detector.delivery.notice import Notice, of_group_event, of_held, of_suspect, verdicts_by_node
from detector.outcome import Incident, Outcome
from detector.settings_delivery import DeliverySettings, ShadowRule

HOUR_S = 3600.0
FORGET_S = 300.0
"""A group event that is neither told as open nor as ended for this long is over: it was open when an
earlier process ended."""

DISMISSED, MUTED, SHADOW, GUARD = "dismissed", "muted", "shadow", "guard"
REASONS = (DISMISSED, MUTED, SHADOW, GUARD)
"""Why something is withheld."""


class Gate:
    """Decides at each evaluation what should be out.

    Parameters
    ----------
    settings
        Rules and bounds.
    muted
        What operators said.
    """

    def __init__(self, settings: DeliverySettings, muted: Muted) -> None:
        self._settings = settings
        self._muted = muted
        self._events_seen: dict[str, float] = {}
        self._held_since: dict[str, float] = {}

    def decide(self, outcome: Outcome, suspects: Sequence[Incident], out: Mapping[str, Out]) -> Decision:
        """Decide.

        Parameters
        ----------
        outcome
            Newest evaluation.
        suspects
            All open suspects, those of silent nodes included.
        out
            What was told, by key.

        Returns
        -------
        Decision
            What should be open; what was open and is not in it is to be closed.
        """
        is_out = {key for key, item in out.items() if item.closed_at is None}
        withheld: dict[str, str] = {}
        wanted: dict[str, Notice] = {}
        for notice in [*self._suspects(outcome, suspects, out), *self._events(outcome, out)]:
            reason = self._withheld(notice, outcome.at, is_out)
            if reason:
                withheld[notice.key] = reason
            else:
                wanted[notice.key] = notice
        self._guard(wanted, withheld, outcome, out, is_out)
        return Decision(wanted, withheld)

    def _suspects(
        self, outcome: Outcome, suspects: Sequence[Incident], out: Mapping[str, Out]
    ) -> list[Notice]:
        verdicts = verdicts_by_node(outcome.verdicts)
        found = []
        for incident in suspects:
            notice = of_suspect(
                incident,
                verdicts.get(incident.node),
                acknowledged=self._muted.is_acknowledged(incident.id),
            )
            told = out.get(incident.id)
            if told is not None:
                # what identifies it stays as it was told first, whatever it is called by now
                notice = _named_as(notice, told.notice)
            found.append(notice)
        return found

    def _events(self, outcome: Outcome, out: Mapping[str, Out]) -> list[Notice]:
        told = {event.id for event in outcome.group_events}
        found = [of_group_event(event) for event in outcome.group_events if event.ended_at is None]
        for key in told:
            self._events_seen[key] = outcome.at
        for key, item in out.items():
            is_event = not item.notice.is_suspect and not key.startswith("held:")
            if is_event and item.closed_at is None and key not in told:
                seen = self._events_seen.setdefault(key, outcome.at)
                if outcome.at - seen < FORGET_S:
                    found.append(item.notice)
        self._events_seen = {
            key: at for key, at in self._events_seen.items() if outcome.at - at < 2 * FORGET_S
        }
        return found

    def _withheld(self, notice: Notice, at: float, is_out: set[str]) -> str:
        if notice.is_suspect and self._muted.is_dismissed(notice.key):
            return DISMISSED
        if self._muted.mute_of(notice.node, notice.pool, at) is not None:
            return MUTED
        # a class that changes its name must not end an alert that is out
        if notice.key not in is_out and any(_fits(rule, notice) for rule in self._settings.shadow_rules):
            return SHADOW
        return ""

    def _guard(
        self,
        wanted: dict[str, Notice],
        withheld: dict[str, str],
        outcome: Outcome,
        out: Mapping[str, Out],
        is_out: set[str],
    ) -> None:
        """Hold suspects back that would be too many; what is out stays out, and clearing is never held."""
        sizes = Counter(verdict.pool for verdict in outcome.verdicts)
        new: dict[str, list[Notice]] = defaultdict(list)
        n_out: Counter[str] = Counter()
        for notice in wanted.values():
            if notice.is_suspect and notice.key in is_out:
                n_out[notice.pool] += 1
            elif notice.is_suspect:
                new[notice.pool].append(notice)
        share, per_hour = self._settings.guard_share, self._settings.guard_nodes_per_hour
        n_hour = sum(
            1 for item in out.values() if item.notice.is_suspect and outcome.at - item.told_at < HOUR_S
        )
        is_hour_full = n_hour + sum(len(found) for found in new.values()) > per_hour
        held: dict[str, tuple[list[Notice], str]] = {}
        for pool, found in new.items():
            allowed = max(1, int(share * sizes[pool] + 1e-9))
            n_all = n_out[pool] + len(found)
            if n_all > allowed:
                held[pool] = found, f"{n_all} of {sizes[pool]} nodes, more than delivery.guard_share allows"
            elif is_hour_full:
                held[pool] = (
                    found,
                    f"more than {per_hour} nodes within an hour (delivery.guard_nodes_per_hour)",
                )
        self._held_since = {
            pool: self._held_since.get(pool, _held_before(pool, out, outcome.at)) for pool in held
        }
        for pool, (found, why) in held.items():
            for notice in found:
                del wanted[notice.key]
                withheld[notice.key] = GUARD
            stands_for = of_held(pool, found, self._held_since[pool], why)
            wanted[stands_for.key] = stands_for


def _held_before(pool: str, out: Mapping[str, Out], at: float) -> float:
    """Return since when a pool has been held back, as an earlier process may have told."""
    for key, item in out.items():
        if key.startswith(f"held:{pool}@") and item.closed_at is None:
            return item.notice.opened_at
    return at


def _named_as(notice: Notice, told: Notice) -> Notice:
    return msgspec.structs.replace(notice, node=told.node, pool=told.pool, opened_at=told.opened_at)


def _fits(rule: ShadowRule, notice: Notice) -> bool:
    strongest = notice.metrics[0] if notice.metrics else ""
    return (
        rule.kind in (None, notice.kind)
        and rule.pool in (None, notice.pool)
        and rule.fault_class in (None, notice.fault_class)
        and rule.metric in (None, strongest)
    )

"""What a service shows: the newest evaluation, and open incidents of nodes that say nothing any more."""

from __future__ import annotations

from collections.abc import Iterable

from detector.control.view import Muted
from detector.core.views import GroupSummary
from detector.outcome import Incident, Outcome
from detector.service_repair import Repaired, after_repair
from detector.service_view import Latest
from detector.telemetry import Telemetry


class Board:
    """Holds the newest published evaluation; replaced as a whole, so any thread may read it.

    Parameters
    ----------
    telemetry
        Own metrics.
    operators
        What operators have said: dismissed suspects are left out of own metrics, muted ones marked.
    """

    def __init__(self, telemetry: Telemetry, operators: Muted) -> None:
        self._telemetry = telemetry
        self._operators = operators
        self._silent: dict[str, Incident] = {}
        self.latest: Latest | None = None
        """The newest published evaluation, None before the first."""

    def expect(self, incidents: Iterable[Incident]) -> None:
        """Show open incidents although no evaluation tells of their nodes yet."""
        self._silent |= {incident.id: incident for incident in incidents}
        self._count_restored()

    def publish(self, outcome: Outcome, groups: tuple[GroupSummary, ...]) -> None:
        """Show an evaluation."""
        told = {incident.id for incident in outcome.incidents}
        seen = {verdict.node for verdict in outcome.verdicts}
        self._silent = {
            name: incident
            for name, incident in self._silent.items()
            if name not in told and incident.node not in seen
        }
        suspects = [i for i in (*outcome.incidents, *self._silent.values()) if i.state == "suspect"]
        scores = {verdict.node: verdict.score for verdict in outcome.verdicts}
        suspects.sort(key=lambda i: (-scores.get(i.node, 0.0), -i.peak_score, i.node))
        self._show(Latest(outcome, tuple(suspects), groups))

    def repaired(self, done: Repaired) -> None:
        """Show the newest evaluation as it reads after a repair."""
        for item in done.incidents:
            self._silent.pop(item.id, None)
        self._count_restored()
        if self.latest is not None:
            self._show(after_repair(self.latest, done))

    def _count_restored(self) -> None:
        """Let own metrics tell of stored suspects as long as there is no evaluation."""
        if self.latest is None:
            suspects = [i for i in self._silent.values() if i.state == "suspect"]
            self._telemetry.restored(sum(not self._operators.is_dismissed(i.id) for i in suspects))

    def _show(self, latest: Latest) -> None:
        self.latest = latest
        outcome, said = latest.outcome, self._operators
        suspects = {i.node: i.active_at for i in latest.suspects if not said.is_dismissed(i.id)}
        pools = {verdict.node: verdict.pool for verdict in outcome.verdicts}
        muted = {node for node in suspects if said.mute_of(node, pools.get(node, ""), outcome.at)}
        self._telemetry.show(outcome, suspects, muted)

"""The running detection as operators' requests see it."""

from __future__ import annotations

from collections.abc import Container, Sequence

from detector.control.ledger import Keep
from detector.outcome import Evidence, Incident
from detector.service import Service
from detector.store_read import IncidentFilter


class Operated:
    """Answers the desk (see `detector.control.ledger.Detection`).

    Parameters
    ----------
    service
        The running service.
    metrics
        Names of metrics that are compared.
    """

    def __init__(self, service: Service, metrics: Container[str]) -> None:
        self._service = service
        self._metrics = metrics

    def evidence_of(self, node: str) -> Sequence[Evidence]:
        """Return the newest evidence against a node, empty without any."""
        latest = self._service.latest()
        verdicts = () if latest is None else latest.outcome.verdicts
        return next((verdict.evidence for verdict in verdicts if verdict.node == node), ())

    def knows(self, *, node: str = "", pool: str = "", metric: str = "") -> bool:
        """Tell whether a node, a pool and a metric exist; True for what nothing is known of yet."""
        if metric and metric not in self._metrics:
            return False
        latest = self._service.latest()
        if latest is None:
            return True
        verdicts = latest.outcome.verdicts
        if pool and all(verdict.pool != pool for verdict in verdicts):
            return False
        return (
            not node
            or any(verdict.node == node for verdict in verdicts)
            or self._service.store.count_incidents(IncidentFilter(node=node)) > 0
        )

    def repaired(self, node: str, at: float, reason: str, keep: Keep) -> Incident | None:
        """Clear a node's incident and forget what was learnt against it."""
        return self._service.repaired(node, at, reason, keep)

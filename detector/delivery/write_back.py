"""Scores written back to VictoriaMetrics, one series per node."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from detector.delivery.receiver import Receiver
from detector.delivery.worker import Sender
from detector.errors import DeliveryError
from detector.outcome import Outcome
from detector.settings_endpoint import EndpointSettings
from detector.telemetry_delivery import DeliveryTelemetry

log = logging.getLogger("oddnode.detector.delivery")

METRIC = "oddnode_node_score"
PATH = "/api/v1/import/prometheus"
MAX_WAITING = 120
"""Evaluations that wait while the database is out of reach; older ones are given up."""

FIRST_RETRY_S, MOST_RETRY_S = 1.0, 60.0
IDLE_S = 60.0


def lines_of(outcome: Outcome, cluster: str | None) -> bytes:
    """Return the scores of one evaluation in the Prometheus text format, with its time."""
    stamp = int(outcome.at * 1000)
    own = f',cluster="{_escaped(cluster)}"' if cluster else ""
    lines = [
        f'{METRIC}{{node="{_escaped(verdict.node)}",pool="{_escaped(verdict.pool)}"{own}}} '
        f"{verdict.score:.6g} {stamp}\n"
        for verdict in outcome.verdicts
    ]
    return "".join(lines).encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class WriteBack(Sender):
    """Writes the scores of each evaluation.

    Parameters
    ----------
    endpoint
        VictoriaMetrics, or what takes its import format.
    cluster
        Value of the label ``cluster``, None for no such label.
    clock
        Tells clock time, epoch seconds.
    telemetry
        Own metrics.
    """

    def __init__(
        self,
        endpoint: EndpointSettings,
        cluster: str | None,
        clock: Callable[[], float],
        telemetry: DeliveryTelemetry,
    ) -> None:
        super().__init__("write_back", clock, telemetry)
        self._receiver = Receiver(endpoint)
        self._cluster = cluster
        self._guard = threading.Lock()
        self._waiting: deque[tuple[float, bytes]] = deque()
        telemetry.begin(self.name, lambda: float(len(self._waiting)), self._oldest_s)

    def add(self, outcome: Outcome) -> None:
        """Take the scores of an evaluation; never waits."""
        if not outcome.verdicts:
            return
        with self._guard:
            self._waiting.append((self._clock(), lines_of(outcome, self._cluster)))
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popleft()
                self._telemetry.given_up(self.name)
        self.wake()

    def turn(self) -> float:
        """Write what waits, oldest first, up to the first failure."""
        while not self.is_stopping:
            with self._guard:
                first = self._waiting[0] if self._waiting else None
            if first is None:
                break
            try:
                self._receiver.send("POST", PATH, first[1], {"Content-Type": "text/plain"})
            except DeliveryError as error:
                self._count_failure()
                return self._again_s(error, FIRST_RETRY_S, MOST_RETRY_S)
            self._attempt = 0
            self._telemetry.sent(self.name, self._clock())
            with self._guard:
                if self._waiting and self._waiting[0] is first:
                    self._waiting.popleft()
        return IDLE_S

    def interrupt(self) -> None:
        """End a request under way."""
        self._receiver.close()

    def _oldest_s(self) -> float:
        with self._guard:
            return max(0.0, self._clock() - self._waiting[0][0]) if self._waiting else 0.0

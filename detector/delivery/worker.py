"""A thread that has one thing to do whenever it is woken or its time has come."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from detector.errors import DeliveryError
from detector.telemetry_delivery import DeliveryTelemetry

log = logging.getLogger("oddnode.detector.delivery")

AFTER_DEFECT_S = 30.0


class Worker(ABC):
    """Calls `turn` again and again in a thread of its own.

    Parameters
    ----------
    name
        Name of the receiver, for logs and metrics.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"oddnode-{name}"[:60], daemon=True)

    @abstractmethod
    def turn(self) -> float:
        """Do what is due; return the seconds until the next turn."""

    def interrupt(self) -> None:  # noqa: B027 - there may be nothing to end
        """End what `turn` waits for; nothing, unless it is told here."""

    @property
    def is_stopping(self) -> bool:
        """True once it was told to end."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Let the next turn come at once."""
        self._woken.set()

    def stop(self) -> None:
        """Tell it to end; never waits."""
        self._stopping.set()
        self._woken.set()
        self.interrupt()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; True when it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                wait_s = self.turn()
            except Exception:
                # the others, and this one at its next turn, must outlive whatever one turn stumbles over
                log.exception("delivery receiver=%s failed=internal", self.name)
                wait_s = AFTER_DEFECT_S
            if not self._stopping.is_set():
                self._woken.wait(wait_s)


class Sender(Worker):
    """A worker that tells one receiver, and knows how often in a row that failed.

    Parameters
    ----------
    name
        Name of the receiver.
    clock
        Tells clock time, epoch seconds.
    telemetry
        Own metrics.
    """

    def __init__(self, name: str, clock: Callable[[], float], telemetry: DeliveryTelemetry) -> None:
        super().__init__(name)
        self._clock = clock
        self._telemetry = telemetry
        self._attempt = 0

    def _count_failure(self) -> None:
        self._attempt += 1
        self._telemetry.failed(self.name)

    def _again_s(self, error: DeliveryError, first_s: float, most_s: float) -> float:
        """Log a failed attempt; return how long to wait before the next, see `backoff_s`."""
        log.warning("delivery receiver=%s not_told=%r attempt=%d", self.name, str(error), self._attempt)
        return backoff_s(self._attempt, first_s, most_s, error.retry_after_s)


def backoff_s(attempt: int, first_s: float, most_s: float, asked_s: float | None = None) -> float:
    """Return how long to wait before the next attempt.

    Parameters
    ----------
    attempt
        Failed attempts so far, from 1.
    first_s, most_s
        Waiting time after the first, and at most.
    asked_s
        What the receiver asked for; taken as it is up to `most_s`.
    """
    if asked_s is not None:
        return min(asked_s, most_s)
    return float(min(most_s, first_s * 2.0 ** min(attempt - 1, 30)))

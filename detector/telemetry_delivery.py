"""Own metrics of delivery, one series per receiver: there are at most a few dozen."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge


class DeliveryTelemetry:
    """Counts and measures what is told to whom.

    Parameters
    ----------
    registry
        Where the metrics live.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("receiver",)
        self._sent = Counter(
            "oddnode_delivery_sent",
            "Requests that a receiver took; for the drain file, lines.",
            label,
            registry=registry,
        )
        self._failed = Counter("oddnode_delivery_failed", "Requests that failed.", label, registry=registry)
        self._given_up = Counter(
            "oddnode_delivery_given_up",
            "Messages that will not be tried again: too old, tried too often, or refused for "
            "good. For write_back, evaluations.",
            label,
            registry=registry,
        )
        self._queue = Gauge(
            "oddnode_delivery_queue",
            "Messages that wait, counted in the store at each scrape; for write_back evaluations; "
            "for an Alertmanager 1 while it was not told of the newest change. NaN while the "
            "store cannot be read.",
            label,
            registry=registry,
        )
        self._oldest = Gauge(
            "oddnode_delivery_oldest_seconds",
            "Age of the oldest of them, 0 when nothing waits.",
            label,
            registry=registry,
        )
        self._success = Gauge(
            "oddnode_delivery_last_success_timestamp_seconds",
            "Clock time at which it last took something; 0 before that. Alertmanagers are told "
            "every delivery.resend_s, webhooks of changes only.",
            label,
            registry=registry,
        )
        self._shadow = Gauge("oddnode_delivery_shadow", "1 while nothing is sent.", registry=registry)
        self._out = Gauge(
            "oddnode_delivery_out",
            "Suspects and group events that are out; in shadow, that would be.",
            registry=registry,
        )
        self._withheld = Gauge(
            "oddnode_delivery_withheld",
            "Suspects and group events that are held back: muted, dismissed, shadow, guard.",
            ("reason",),
            registry=registry,
        )
        self._dropped = Counter(
            "oddnode_delivery_evaluations_dropped",
            "Evaluations that delivery did not see, because more than 256 waited.",
            registry=registry,
        )

    def begin(
        self,
        receiver: str,
        waiting: Callable[[], float],
        oldest_s: Callable[[], float],
    ) -> None:
        """Show a receiver from the start on; what waits is asked for at each scrape."""
        self._sent.labels(receiver)
        self._failed.labels(receiver)
        self._given_up.labels(receiver)
        self._success.labels(receiver)
        self._queue.labels(receiver).set_function(waiting)
        self._oldest.labels(receiver).set_function(oldest_s)

    def end(self, receiver: str) -> None:
        """Show a receiver no more."""
        for metric in (self._sent, self._failed, self._given_up, self._success, self._queue, self._oldest):
            metric.remove(receiver)

    def sent(self, receiver: str, now: float) -> None:
        """Count a request that was taken."""
        self._sent.labels(receiver).inc()
        self._success.labels(receiver).set(now)

    def failed(self, receiver: str) -> None:
        """Count a request that failed."""
        self._failed.labels(receiver).inc()

    def given_up(self, receiver: str, count: int = 1) -> None:
        """Count messages that will not be tried again."""
        self._given_up.labels(receiver).inc(count)

    def shadow(self, *, is_on: bool) -> None:
        """Tell whether nothing is sent."""
        self._shadow.set(is_on)

    def decided(self, n_out: int, withheld: Mapping[str, str], reasons: Iterable[str]) -> None:
        """Show what is out and what is held back; `withheld` holds a reason for each."""
        self._out.set(n_out)
        counts = Count(withheld.values())
        for reason in reasons:
            self._withheld.labels(reason).set(counts[reason])

    def dropped(self, count: int) -> None:
        """Count evaluations that delivery did not see."""
        self._dropped.inc(count)

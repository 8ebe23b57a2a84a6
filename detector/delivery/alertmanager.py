"""Alertmanager's API v2: all that is out, sent again and again; what is closed with its time of clearing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from detector.delivery.ledger import KEEP_CLOSED_S, Out
from detector.delivery.links import link_of, rfc3339
from detector.delivery.notice import MOVED_TOGETHER, TOO_MANY, Notice, listed
from detector.delivery.receiver import Receiver
from detector.delivery.worker import Sender
from detector.errors import DeliveryError
from detector.settings_delivery import DeliverySettings
from detector.settings_endpoint import EndpointSettings
from detector.telemetry_delivery import DeliveryTelemetry

log = logging.getLogger("oddnode.detector.delivery")

PATH = "/api/v2/alerts"
LIVES_RESENDS = 4
"""An alert that is not sent again ends by itself after so many times `delivery.resend_s`."""

BATCH = 200
FIRST_RETRY_S = 2.0

ALERT_SUSPECT, ALERT_GROUP, ALERT_POOL = "OddnodeSuspect", "OddnodeGroupEvent", "OddnodePoolEvent"


def labels_of(notice: Notice, settings: DeliverySettings) -> dict[str, str]:
    """Return the labels of a notice: they identify it and do not change while it is open."""
    if notice.is_suspect:
        name, kind = ALERT_SUSPECT, ""
    elif notice.kind in (MOVED_TOGETHER, TOO_MANY):
        name, kind = ALERT_GROUP, notice.kind
    else:
        name, kind = ALERT_POOL, notice.kind
    own = {
        "alertname": name,
        "node": notice.node,
        "pool": notice.pool,
        "kind": kind,
        "cluster": settings.cluster or "",
    }
    return {**settings.labels, **{label: value for label, value in own.items() if value}}


def annotations_of(notice: Notice) -> dict[str, str]:
    """Return what explains a notice; all of it may change while it is open."""
    told = {
        "summary": notice.summary,
        "evidence": "\n".join(notice.evidence),
        "likely": f"{notice.title} ({notice.confidence})" if notice.confidence else notice.title,
        "fault_class": notice.fault_class,
        "check": notice.check,
        "part": notice.part,
        "cause": notice.cause,
        "nodes": "" if notice.is_suspect else listed(notice.nodes, len(notice.nodes)),
        "metrics": listed(notice.metrics),
        "score": f"{notice.score:g} (highest {notice.peak_score:g}; 1 is the threshold)"
        if notice.is_suspect
        else "",
        "since": rfc3339(notice.since),
        "acknowledged": "yes" if notice.acknowledged else "",
        "incident": notice.key,
    }
    return {name: text for name, text in told.items() if text}


def alert_of(item: Out, settings: DeliverySettings, now: float) -> dict[str, Any]:
    """Return one alert as the API takes it.

    Parameters
    ----------
    item
        What is out, or was closed a moment ago.
    settings
        Labels, link, time between two sendings.
    now
        Clock time, epoch seconds.
    """
    starts = min(item.notice.opened_at, now)
    ends = now + LIVES_RESENDS * settings.resend_s if item.closed_at is None else min(item.closed_at, now)
    alert: dict[str, Any] = {
        "labels": labels_of(item.notice, settings),
        "annotations": annotations_of(item.notice),
        "startsAt": rfc3339(starts),
        "endsAt": rfc3339(max(starts, ends)),
    }
    if link := link_of(item.notice, settings):
        alert["generatorURL"] = link
    return alert


def alerts_of(out: Mapping[str, Out], settings: DeliverySettings, now: float) -> list[dict[str, Any]]:
    """Return all alerts to send: the open ones, and the closed ones that no open one has the labels of."""
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    closed = [i for i in out.values() if i.closed_at is not None and now - i.noticed_at < KEEP_CLOSED_S]
    closed.sort(key=lambda item: item.closed_at or 0.0)
    for item in [*closed, *(item for item in out.values() if item.closed_at is None)]:
        alert = alert_of(item, settings, now)
        found[tuple(sorted(alert["labels"].items()))] = alert
    return list(found.values())


class AlertmanagerWorker(Sender):
    """Keeps one Alertmanager informed.

    Parameters
    ----------
    endpoint
        The Alertmanager.
    settings
        Labels, link, time between two sendings.
    clock
        Tells clock time, epoch seconds.
    telemetry
        Own metrics.
    """

    def __init__(
        self,
        endpoint: EndpointSettings,
        settings: DeliverySettings,
        clock: Callable[[], float],
        telemetry: DeliveryTelemetry,
    ) -> None:
        super().__init__(f"alertmanager/{endpoint.shown_name}", clock, telemetry)
        self._receiver = Receiver(endpoint)
        self._settings = settings
        self._guard = threading.Lock()
        self._out: Mapping[str, Out] = {}
        self._changed_at: float | None = None
        self._due_at = 0.0
        telemetry.begin(self.name, lambda: float(self._changed_at is not None), self._oldest_s)

    def show(self, out: Mapping[str, Out], *, has_changed: bool) -> None:
        """Take what is out from now on; a change is sent at once."""
        with self._guard:
            self._out = dict(out)
            if has_changed and self._changed_at is None:
                self._changed_at = self._clock()
        if has_changed:
            self.wake()

    def turn(self) -> float:
        """Send when it is time or something changed."""
        now = self._clock()
        with self._guard:
            out, changed_at = self._out, self._changed_at
        # a clock that was set back must not delay it for long
        left_s = min(self._due_at - now, self._settings.resend_s)
        if left_s > 0 and (changed_at is None or self._attempt):
            return left_s
        try:
            self._send(out, now)
        except DeliveryError as error:
            self._count_failure()
            wait_s = self._again_s(error, FIRST_RETRY_S, self._settings.resend_s)
            self._due_at = now + wait_s
            return wait_s
        self._attempt = 0
        self._due_at = now + self._settings.resend_s
        with self._guard:
            if self._changed_at == changed_at and self._out is out:
                self._changed_at = None
            is_newer = self._changed_at is not None
        return 0.0 if is_newer else self._settings.resend_s

    def interrupt(self) -> None:
        """End a request under way."""
        self._receiver.close()

    def _send(self, out: Mapping[str, Out], now: float) -> None:
        alerts = alerts_of(out, self._settings, now)
        # an empty list too: a receiver that is out of reach is noticed before it is needed
        for first in range(0, max(1, len(alerts)), BATCH):
            body = msgspec.json.encode(alerts[first : first + BATCH])
            self._receiver.send("POST", PATH, body, {"Content-Type": "application/json"})
            self._telemetry.sent(self.name, self._clock())

    def _oldest_s(self) -> float:
        changed_at = self._changed_at
        return 0.0 if changed_at is None else max(0.0, self._clock() - changed_at)

"""Messages to one receiver: in order, again and again until they are taken, a bounded number of times."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from hashlib import sha256
from hmac import new as hmac
from pathlib import Path
from typing import Protocol

from detector.delivery.formats import FORMS, Request, drain_line
from detector.delivery.ledger import RAISED, Message
from detector.delivery.outbox import Outbox, Waiting
from detector.delivery.receiver import Receiver
from detector.delivery.worker import Sender
from detector.errors import DeliveryError, SourceError, StoreError
from detector.settings_delivery import DAY_S, DeliverySettings, WebhookSettings
from detector.source.credentials import WatchedFile
from detector.telemetry_delivery import DeliveryTelemetry

log = logging.getLogger("oddnode.detector.delivery")

FIRST_RETRY_S, MOST_RETRY_S = 1.0, 300.0
LOOK_S = 5.0
"""The outbox is looked at this often, should nobody tell of a new message."""

HOPELESS = frozenset({400, 405, 406, 410, 411, 413, 414, 415, 422, 501})
"""Statuses that another attempt would get again; refused credentials and wrong paths can be mended."""

TIMESTAMP, SIGNATURE, KEY, EVENT = (
    "X-Oddnode-Timestamp",
    "X-Oddnode-Signature",
    "Idempotency-Key",
    "X-Oddnode-Event",
)


class Channel(Protocol):
    """A way to one receiver of messages."""

    def send(self, message: Message, now: float) -> bool:
        """Send; False when the receiver is not told of such a message.

        Raises
        ------
        DeliveryError
            When it was not taken.
        """

    def close(self) -> None:
        """End what is under way."""


class Webhook:
    """One request per message.

    Parameters
    ----------
    hook
        The receiver.
    settings
        Labels and link.
    """

    def __init__(self, hook: WebhookSettings, settings: DeliverySettings) -> None:
        self._form = FORMS[hook.format]
        self._is_kubernetes = hook.format.startswith("kubernetes")
        self._settings = settings
        self._receiver = Receiver(hook)
        self._secret = None if hook.secret_file is None else WatchedFile(hook.secret_file, "secret file")

    def send(self, message: Message, now: float) -> bool:
        """Send; False when the form has nothing for such a message."""
        request = self._form(message, self._settings)
        if request is None:
            return False
        try:
            headers = self._headers(request, message, now)
            self._receiver.send(request.method, request.suffix, request.body, headers)
        except SourceError as error:
            raise DeliveryError(str(error)) from None
        except DeliveryError as error:
            if error.status not in request.taken:
                raise
        return True

    def close(self) -> None:
        """End a request under way."""
        self._receiver.close()

    def _headers(self, request: Request, message: Message, now: float) -> dict[str, str]:
        # a header holds printable ASCII only, and names come from outside
        key = message.id.encode("unicode_escape").decode("ascii")
        headers = {**request.headers, KEY: key[:500], EVENT: message.event}
        if self._secret is not None:
            stamp = str(int(now))
            headers[TIMESTAMP] = stamp
            headers[SIGNATURE] = f"sha256={signature(self._secret.text(), stamp, request.body)}"
        return headers


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the HMAC-SHA256 of timestamp, dot and body, in hexadecimal digits."""
    return hmac(secret.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()


class DrainFile:
    """Appends a Slurm drain line for each suspect that is raised.

    Parameters
    ----------
    path
        File; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, message: Message, now: float) -> bool:
        """Append a line; False for all but a suspect that was raised."""
        if message.event != RAISED or (line := drain_line(message.notice)) is None:
            return False
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write(f"{line}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DeliveryError(f"{self._path}: cannot be written: {error.strerror}") from None
        return True

    def close(self) -> None:
        """Do nothing: the file is open only while a line is written."""


class Messenger(Sender):
    """Takes one receiver's messages from the outbox, in order.

    A message that fails holds up those behind it: nothing overtakes, so no clearing comes before
    its suspect. It is given up when it is too old, was tried too often, or is refused for good.

    Parameters
    ----------
    name
        Names the receiver in logs, metrics and the store.
    channel
        The way to it.
    outbox
        Where messages wait.
    clock
        Tells clock time, epoch seconds.
    telemetry
        Own metrics.
    retry_for_s, max_attempts
        Bounds of trying.
    first_retry_s
        Waiting time after the first failed attempt; it doubles with each.
    """

    def __init__(
        self,
        name: str,
        channel: Channel,
        outbox: Outbox,
        clock: Callable[[], float],
        telemetry: DeliveryTelemetry,
        *,
        retry_for_s: float = DAY_S,
        max_attempts: int = 1000,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        super().__init__(name, clock, telemetry)
        self._channel = channel
        self._outbox = outbox
        self._retry_for_s = retry_for_s
        self._max_attempts = max_attempts
        self._first_retry_s = first_retry_s
        self._attempt_at = -math.inf
        self._done: int | None = None
        telemetry.begin(name, lambda: self._waiting()[0], lambda: self._waiting()[1])

    def turn(self) -> float:
        """Tell what waits, up to the first failure."""
        left_s = min(self._attempt_at - self._clock(), MOST_RETRY_S)
        if left_s > 0:
            return left_s
        try:
            while not self.is_stopping:
                self._settle()
                waiting = self._outbox.next(self.name)
                if waiting is None:
                    return LOOK_S
                wait_s = self._tell(waiting)
                if wait_s:
                    self._attempt_at = self._clock() + wait_s
                    return wait_s
        except StoreError as error:
            log.warning("delivery receiver=%s outbox=%r", self.name, str(error))
        return LOOK_S

    def interrupt(self) -> None:
        """End a request under way."""
        self._channel.close()

    def _tell(self, waiting: Waiting) -> float:
        """Send one message; return how long to wait before it is tried again, 0 when it is done with."""
        message, now = waiting.message, self._clock()
        if message is None:
            return self._give_up(waiting, "it cannot be read")
        try:
            if self._channel.send(message, now):
                self._telemetry.sent(self.name, self._clock())
        except DeliveryError as error:
            if self.is_stopping:
                return LOOK_S  # cut short by the end of the service: the next one goes on here
            self._count_failure()
            is_over = (
                error.status in HOPELESS
                or self._attempt >= self._max_attempts
                or now - waiting.made_at >= self._retry_for_s
            )
            if is_over:
                return self._give_up(waiting, str(error))
            return self._again_s(error, self._first_retry_s, MOST_RETRY_S)
        except Exception as error:
            # one message that cannot be put into words must not hold up all others for ever
            log.exception("delivery receiver=%s failed=internal", self.name)
            return self._give_up(waiting, type(error).__name__)
        return self._finish(waiting.seq)

    def _give_up(self, waiting: Waiting, problem: str) -> float:
        self._telemetry.given_up(self.name)
        told = "" if waiting.message is None else waiting.message.id
        log.error("delivery receiver=%s given_up=%s problem=%r", self.name, told, problem)
        return self._finish(waiting.seq)

    def _finish(self, seq: int) -> float:
        self._attempt = 0
        self._done = seq
        self._settle()
        return 0.0

    def _settle(self) -> None:
        """Note what was told; when the disk refuses, before the next message, so that none is told twice."""
        if self._done is not None:
            self._outbox.done(self.name, self._done)
            self._done = None

    def _waiting(self) -> tuple[float, float]:
        try:
            count, oldest = self._outbox.waiting(self.name)
        except StoreError:
            return math.nan, math.nan  # a scrape must not fail for it
        return float(count), 0.0 if oldest is None else max(0.0, self._clock() - oldest)

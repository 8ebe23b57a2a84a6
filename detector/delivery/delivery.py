"""Delivery as a whole: takes each evaluation, decides what should be out, tells everybody.

The tick hands an evaluation over and goes on. One thread decides and stores what is to be told; each
receiver has a thread of its own, so none slows the tick or another receiver.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from detector.control.view import Muted, NothingMuted
from detector.delivery.alertmanager import AlertmanagerWorker
from detector.delivery.gate import REASONS, Gate
from detector.delivery.ledger import Message, Out, advance
from detector.delivery.messenger import FIRST_RETRY_S, DrainFile, Messenger, Webhook
from detector.delivery.outbox import Outbox
from detector.delivery.worker import Worker
from detector.delivery.write_back import WriteBack
from detector.errors import StoreError
from detector.outcome import Incident, Outcome
from detector.settings_delivery import DeliverySettings
from detector.store_contract import Tables
from detector.telemetry_delivery import DeliveryTelemetry

log = logging.getLogger("oddnode.detector.delivery")

MAX_EVALUATIONS = 256
"""Evaluations that wait to be decided on; older ones are left out, the newest says what is open."""

IDLE_S = 60.0
STOP_S = 5.0


class Delivery(Worker):
    """Decides at each evaluation, and owns the receivers.

    Parameters
    ----------
    settings
        Who is told, and what is held back.
    store
        Keeps what is to be told.
    clock
        Tells clock time, epoch seconds.
    telemetry
        Own metrics.
    muted
        What operators said.
    is_shadow
        True sends nothing whatever the settings say (a recording is played).
    first_retry_s
        Waiting time after the first failed attempt at a message.
    """

    def __init__(
        self,
        settings: DeliverySettings,
        store: Tables,
        clock: Callable[[], float],
        telemetry: DeliveryTelemetry,
        *,
        muted: Muted | None = None,
        is_shadow: bool = False,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        super().__init__("delivery")
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._is_shadow = settings.shadow or is_shadow
        self._gate = Gate(settings, muted or NothingMuted())
        self._outbox = Outbox(store)
        self._evaluations: deque[tuple[Outcome, tuple[Incident, ...]]] = deque()
        self._out: dict[str, Out] | None = None
        self._unsaved: list[Message] = []
        self._is_saved = True
        self._has_places = False
        self._withheld: set[str] = set()
        self._alertmanagers: list[AlertmanagerWorker] = []
        self._messengers: list[Messenger] = []
        self._write_back: WriteBack | None = None
        if settings.write_back is not None and not is_shadow:
            self._write_back = WriteBack(settings.write_back, settings.cluster, clock, telemetry)
        if not self._is_shadow:
            self._alertmanagers = [
                AlertmanagerWorker(one, settings, clock, telemetry) for one in settings.alertmanagers
            ]
            self._messengers = self._make_messengers(first_retry_s)
        telemetry.shadow(is_on=self._is_shadow)

    @property
    def receivers(self) -> frozenset[str]:
        """Names of who is told, as in own metrics."""
        return frozenset(worker.name for worker in self._receivers())

    def feed(self, outcome: Outcome, suspects: Sequence[Incident]) -> None:
        """Take a judged evaluation; never waits and never raises.

        Parameters
        ----------
        outcome
            What it said.
        suspects
            All open suspects, those of silent nodes included.
        """
        self._evaluations.append((outcome, tuple(suspects)))
        if len(self._evaluations) > MAX_EVALUATIONS:
            self._evaluations.popleft()
            self._telemetry.dropped(1)
        self.wake()

    def start(self) -> None:
        """Begin."""
        for worker in self._alertmanagers:
            worker.start()
        if self._write_back is not None:
            self._write_back.start()
        super().start()

    def finish(self, timeout_s: float = STOP_S) -> bool:
        """Decide on what was handed over, store it, end all threads; True when all have ended in time."""
        deadline = time.monotonic() + timeout_s
        workers = [self, *self._receivers()]
        for worker in workers:
            worker.stop()
        have_ended = [worker.join(max(0.0, deadline - time.monotonic())) for worker in workers]
        return all(have_ended)

    def turn(self) -> float:
        """Decide on all evaluations that wait."""
        if self._out is None and not self._take_up():
            return 1.0
        if not self._has_places:
            self._has_places = self._begin_messengers()
        while self._evaluations:
            outcome, suspects = self._evaluations.popleft()
            if self._write_back is not None:
                self._write_back.add(outcome)
            self._decide(outcome, suspects)
        return IDLE_S

    def _run(self) -> None:
        super()._run()
        if self._evaluations and self._out is not None:
            self.turn()  # what the last tick handed over while this was told to end

    def _take_up(self) -> bool:
        """Go on with what an earlier process told; in shadow begin with nothing and leave that as it is."""
        if self._is_shadow:
            self._out = {}
            return True
        try:
            out = self._outbox.out()
        except StoreError as error:
            log.warning("delivery receiver=%s outbox=%r", "all", str(error))
            return False
        self._out = out
        for worker in self._alertmanagers:
            worker.show(out, has_changed=True)
        return True

    def _begin_messengers(self) -> bool:
        """Start receivers of messages once each has its place in the outbox; True when they are started."""
        if not self._is_shadow:
            try:
                self._outbox.register([messenger.name for messenger in self._messengers])
            except StoreError as error:
                log.warning("delivery receiver=%s outbox=%r", "all", str(error))
                return False
        for messenger in self._messengers:
            messenger.start()
        return True

    def _decide(self, outcome: Outcome, suspects: Sequence[Incident]) -> None:
        assert self._out is not None  # noqa: S101 (narrowing: the caller looked)
        now = self._clock()
        decision = self._gate.decide(outcome, suspects, self._out)
        self._telemetry.decided(len(decision.open), decision.withheld, REASONS)
        for key in sorted(decision.withheld.keys() - self._withheld):
            log.info("delivery withheld=%s key=%s", decision.withheld[key], key)
        self._withheld = set(decision.withheld)
        before = self._out
        self._out, messages = advance(before, decision, outcome, now)
        if self._is_shadow:
            for message in messages:
                log.info("delivery would_send=%s summary=%r", message.id, message.notice.summary)
            return
        self._unsaved += messages
        for message in messages:
            log.info("delivery message=%s", message.id)
        if messages or not self._is_saved or before.keys() != self._out.keys():
            self._save(now)
        for worker in self._alertmanagers:
            worker.show(self._out, has_changed=bool(messages))
        for messenger in self._messengers if messages else ():
            messenger.wake()

    def _save(self, now: float) -> None:
        """Store what is out and what is to be told; when the disk refuses, with the next evaluation."""
        assert self._out is not None  # noqa: S101 (narrowing: the caller looked)
        try:
            self._outbox.record(self._out, self._unsaved, now)
        except StoreError as error:
            self._is_saved = False
            log.warning("delivery receiver=%s outbox=%r", "all", str(error))
            return
        self._is_saved = True
        self._unsaved = []

    def _receivers(self) -> list[Worker]:
        more = () if self._write_back is None else (self._write_back,)
        return [*self._alertmanagers, *self._messengers, *more]

    def _make_messengers(self, first_retry_s: float) -> list[Messenger]:
        made = [
            Messenger(
                f"webhook/{hook.name}",
                Webhook(hook, self._settings),
                self._outbox,
                self._clock,
                self._telemetry,
                retry_for_s=hook.retry_for_s,
                max_attempts=hook.max_attempts,
                first_retry_s=first_retry_s,
            )
            for hook in self._settings.webhooks
        ]
        if self._settings.drain_file is not None:
            made.append(
                Messenger(
                    "drain_file",
                    DrainFile(self._settings.drain_file),
                    self._outbox,
                    self._clock,
                    self._telemetry,
                    first_retry_s=first_retry_s,
                )
            )
        return made

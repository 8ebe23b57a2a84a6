"""What of a service is written: verdicts at once, the learnt state now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from detector.errors import StoreError
from detector.outcome import Outcome
from detector.store_contract import Keeping
from detector.telemetry import Telemetry

LAST_SNAPSHOT_S = 3.0
"""A learnt state that takes longer than this to save is not saved again at the end."""

SNAPSHOT_SHARE = 20
"""Saving the learnt state may take one part in this many of the time."""


class Keeper:
    """Writes, and knows when the learnt state is to be written again.

    Parameters
    ----------
    store
        Where to.
    telemetry
        Own metrics.
    snapshot_s
        How often the learnt state is saved.
    """

    def __init__(self, store: Keeping, telemetry: Telemetry, snapshot_s: float) -> None:
        self._store = store
        self._telemetry = telemetry
        self._snapshot_s = snapshot_s
        self._due = 0.0
        self._took_s = 0.0
        self.has_judged = False
        """True once something was judged: before that nothing new was learnt."""

    @property
    def is_due(self) -> bool:
        """True when the learnt state is to be saved."""
        return self.has_judged and time.monotonic() >= self._due

    @property
    def is_worth_the_end(self) -> bool:
        """True when the learnt state is new, and saving it does not hold up the end."""
        return self.has_judged and self._took_s < LAST_SNAPSHOT_S

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure how long making the learnt state takes; the slower, the less often."""
        begun = time.monotonic()
        yield
        self._took_s = time.monotonic() - begun
        self._due = begun + max(self._snapshot_s, SNAPSHOT_SHARE * self._took_s)

    def save(self, outcome: Outcome, snapshot: bytes | None = None) -> None:
        """Store; when the disk refuses, go on in memory and try again next time."""
        failed = False
        try:
            self._store.save(outcome, snapshot)
        except StoreError:
            failed = True
            if snapshot is not None:
                self._due = 0.0
        self._telemetry.stored(self._store.n_pending, failed=failed)

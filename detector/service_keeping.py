"""What of a service is written: verdicts at once, the learnt state now and then.

The learnt state is also saved whenever twice as many evaluations are in it as at the last time, so that an
early restart does not begin from nothing, and with each new suspect: what it was compared with, its healthy
past, is there alone. A restart that had lost it would find nothing to hold against the suspect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from detector.core.incidents import SUSPECT
from detector.errors import StoreError
from detector.outcome import Outcome
from detector.store_contract import Keeping
from detector.telemetry import Telemetry

LAST_SNAPSHOT_S = 3.0
"""A learnt state that takes longer than this to save is not saved again at the end."""

SNAPSHOT_SHARE = 20
"""Saving the learnt state now and then may take one part in this many of the time."""


class Keeper:
    """Writes, and knows when the learnt state is to be written again.

    Parameters
    ----------
    store
        Where to.
    telemetry
        Own metrics.
    snapshot_s
        How often the learnt state is saved at least.
    """

    def __init__(self, store: Keeping, telemetry: Telemetry, snapshot_s: float) -> None:
        self._store = store
        self._telemetry = telemetry
        self._snapshot_s = snapshot_s
        self._begun = -math.inf
        self._took_s = 0.0
        self._n_judged = self._n_saved = 0
        self._is_urgent = self._is_refused = False

    @property
    def is_due(self) -> bool:
        """True when the learnt state is to be saved; not while the store takes no verdicts."""
        if self._is_refused:
            return False
        if self._is_urgent or self._n_judged >= 2 * self._n_saved:
            return self._has_news
        age_s = time.monotonic() - self._begun
        return self._has_news and age_s >= max(self._snapshot_s, SNAPSHOT_SHARE * self._took_s)

    @property
    def is_worth_the_end(self) -> bool:
        """True when the learnt state is new, and saving it does not hold up the end."""
        return self._has_news and self._took_s < LAST_SNAPSHOT_S

    @property
    def _has_news(self) -> bool:
        return self._n_judged > self._n_saved

    def judged(self) -> None:
        """Count an evaluation that was judged: only then something new was learnt."""
        self._n_judged += 1

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure how long making the learnt state takes; the slower, the less often."""
        self._begun = time.monotonic()
        yield
        self._took_s = time.monotonic() - self._begun

    def save(self, outcome: Outcome, snapshot: bytes | None = None) -> None:
        """Store; when the disk refuses, go on in memory and try again next time."""
        self._is_refused = False
        try:
            self._store.save(outcome, snapshot)
        except StoreError:
            self._is_refused = True
        self._telemetry.stored(self._store.n_pending, failed=self._is_refused)
        if snapshot is None:
            self._is_urgent |= any(t.after == SUSPECT for t in outcome.transitions)
        else:
            self._is_urgent = self._is_refused
            self._n_saved = self._n_judged

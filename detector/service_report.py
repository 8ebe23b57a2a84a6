"""What is told of one tick: how long its phases took, and the kind of a failure."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from detector.errors import SourceDecode, SourceError, SourceStatus, SourceTimeout
from detector.outcome import Outcome, Transition
from detector.source.base import Batch
from detector.telemetry import TickTimes

log = logging.getLogger("oddnode.detector.service")


def log_transition(t: Transition) -> None:
    """Log a step of an incident's life."""
    log.info(
        "transition node=%s incident=%s before=%s after=%s at=%.0f reason=%r",
        t.node, t.incident_id, t.before, t.after, t.at, t.reason,
    )  # fmt: skip


def log_tick(outcome: Outcome, done: TickTimes) -> None:
    """Log a tick by the newest evaluation and what it took."""
    states = [verdict.status.value for verdict in outcome.verdicts]
    log.info(
        "tick at=%.0f groups=%d series=%d suspects=%d pending=%d undetermined=%d partial=%s "
        "fetch_s=%.3f evaluate_s=%.3f store_s=%.3f duration_s=%.3f",
        outcome.at, outcome.n_groups, outcome.n_series,
        states.count("suspect"), states.count("pending"), states.count("undetermined"),
        str(outcome.is_partial).lower(), done.fetch_s, done.evaluate_s, done.store_s, done.duration_s,
    )  # fmt: skip


class Times:
    """Adds up what one tick took."""

    def __init__(self) -> None:
        self.fetch_s = 0.0
        self.evaluate_s = 0.0
        self.store_s = 0.0
        self._n_samples = 0
        self._n_bytes = 0
        self._dropped: dict[str, int] = {}

    def fetched(self, batch: Batch, seconds: float) -> None:
        """Add one fetch."""
        self.fetch_s += seconds
        self._n_samples += len(batch.ts_ms)
        self._n_bytes += batch.n_bytes
        _add(self._dropped, batch.dropped)

    def done(self, duration_s: float) -> TickTimes:
        """Return the sums."""
        return TickTimes(
            self.fetch_s, self.evaluate_s, self.store_s, duration_s,
            self._n_samples, self._n_bytes, self._dropped,
        )  # fmt: skip


def _add(into: dict[str, int], counts: Mapping[str, int]) -> None:
    for reason, count in counts.items():
        into[reason] = into.get(reason, 0) + count


def kind_of(error: SourceError) -> str:
    """Name a failure for counting: few, fixed words."""
    if isinstance(error, SourceTimeout):
        return "timeout"
    if isinstance(error, SourceStatus):
        return f"status_{error.status}"
    return "decode" if isinstance(error, SourceDecode) else "source"

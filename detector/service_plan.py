"""Which evaluation times a tick owes, and how samples of many steps are parted into them. No clock here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from detector.source.base import Batch

SLACK_S = 1e-3
"""A scheduler that rounds to microseconds may fire this much early."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a recording begins: first evaluation time in steps, and the time after which samples are read."""

    first: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class Owed:
    """Evaluation times that a tick has to catch up with, as multiples of the step.

    Parameters
    ----------
    first, last
        Inclusive; empty when `last` is smaller.
    start_ms
        Samples after this are fetched for the first of them.
    n_left_out
        Times that are too long ago to be evaluated at all.
    """

    first: int
    last: int
    start_ms: int
    n_left_out: int = 0

    def chunks(self, n_steps: Callable[[], int]) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of pieces; `n_steps` is asked before each: what fits is learnt on the way."""
        first = self.first
        while first <= self.last:
            last = min(first + max(1, n_steps()) - 1, self.last)
            yield first, last
            first = last + 1


def newest(now: float, delay_s: float, step_s: float) -> int:
    """Return the newest evaluation time whose samples are due, in steps."""
    return math.floor((now - delay_s + SLACK_S) / step_s)


def owed(
    target: int,
    last: int | None,
    fetched_ms: int | None,
    *,
    step_s: float,
    backfill_s: float,
    begin: Begin | None,
) -> Owed:
    """Tell what has to be evaluated.

    Parameters
    ----------
    target
        Newest evaluation time, in steps.
    last
        Newest one that was evaluated by this process, None for none.
    fetched_ms
        End of the samples that were evaluated, epoch milliseconds.
    step_s, backfill_s
        Step; how far back a gap is filled.
    begin
        Where a recording begins, None for a live source.
    """
    oldest = target - math.floor(backfill_s / step_s) if begin is None else begin.first
    first = oldest if last is None else max(last + 1, oldest)
    # one step more than is evaluated: a counter's first rate needs the sample before
    earliest_ms = round((first - 2) * step_s * 1000)
    if fetched_ms is not None:
        start_ms = max(fetched_ms, earliest_ms)
    else:
        start_ms = earliest_ms if begin is None else begin.start_ms
    left_out = 0 if last is None else max(0, first - last - 1)
    return Owed(first, target, start_ms, left_out)


def part(batch: Batch, first: int, last: int, step_s: float) -> Iterator[tuple[int, Batch]]:
    """Part a batch into the samples of each evaluation time ``k``: ``(k - 1) * step < time <= k * step``.

    Samples before the first step go to the first. What the batch tells of itself (bytes, seconds, notes,
    what was dropped) stays with the last part; that it may be incomplete holds for all.
    """
    if first == last:
        yield first, batch
        return
    edges = np.round(np.arange(first, last, dtype=np.float64) * step_s * 1000).astype(np.int64)
    step_of = np.searchsorted(edges, batch.ts_ms, side="left")
    order = np.argsort(step_of, kind="stable")  # keeps each series ascending
    bounds = np.searchsorted(step_of[order], np.arange(last - first + 2))
    for i, k in enumerate(range(first, last + 1)):
        mine = order[bounds[i] : bounds[i + 1]]
        piece = Batch(batch.series[mine], batch.ts_ms[mine], batch.values[mine], batch.is_partial)
        if k == last:
            piece = replace(
                piece,
                dropped=batch.dropped,
                notes=batch.notes,
                n_bytes=batch.n_bytes,
                fetch_s=batch.fetch_s,
                decode_s=batch.decode_s,
            )
        yield k, piece

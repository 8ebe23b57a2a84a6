"""A pipeline takes up where another one was: by the store after a restart, or by the one before it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from detector.outcome import Incident
from detector.service_contracts import PipelineLike
from detector.service_repair import repairs_to_repeat
from detector.store_contract import Keeping

log = logging.getLogger("oddnode.detector.service")


def restore(
    pipeline: PipelineLike, store: Keeping, backfill_s: float
) -> tuple[Sequence[Incident], float | None]:
    """Let a pipeline go on from what is stored.

    Parameters
    ----------
    pipeline
        A new one.
    store
        Holds learnt state and incidents.
    backfill_s
        How far before the last stored evaluation samples are evaluated again, seconds.

    Returns
    -------
    incidents
        Open ones.
    last
        Last stored evaluation time, epoch seconds; None when there is none.
    """
    incidents = store.open_incidents()
    try:
        notes = pipeline.restore(store.snapshot(), incidents)
    except Exception:
        # a learnt state that cannot be used must not keep the service from coming up, ever again
        log.exception("restore learnt_state=unusable")
        notes = pipeline.restore(None, incidents)
    last = store.last_evaluation()
    repeat_repairs(pipeline, store, math.inf if last is None else last - backfill_s)
    for note in notes:
        log.warning("restore note=%r", note)
    log.info("restore open_incidents=%d last_evaluation=%s", len(incidents), last)
    return incidents, last


def repeat_repairs(pipeline: PipelineLike, store: Keeping, since: float) -> None:
    """Tell a new pipeline of the repairs that it must know of (see `repairs_to_repeat`)."""
    for node, at in repairs_to_repeat(store, since):
        pipeline.forget(node, at)

"""History replayed twice: first for the signals, then, with their thresholds, for the nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from detector.calibration.learn import (
    Aim,
    CalibrationError,
    learn_node,
    learn_signals,
    thresholds_of,
)
from detector.calibration.levels import CELL_LEVELS
from detector.calibration.model import FORMAT, Calibration, History, LeftOut
from detector.calibration.tally import Span, Tally, Watched, judged_s, without
from detector.calibration.trim import labelled, odd_spans
from detector.core.parameters import Parameters
from detector.core.thresholds import Thresholds
from detector.pipeline import Pipeline
from detector.service_plan import part
from detector.source.base import Batch, Interner, Source
from detector.source.recording import RecordingSource, load_recording
from grouping.catalog import Catalog
from grouping.identity import IdentityRules
from grouping.placement import PlacementRules
from grouping.pools import PoolRules

CHUNK_STEPS = 20
CHUNK_SAMPLES = 1_500_000
"""Samples fetched at once from a database: bounds memory."""

MAX_LEFT_OUT = 500
"""Times left out that are written down at most."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of history.

    Parameters
    ----------
    name
        Name for messages.
    start, end, step_s
        Epoch seconds of the first and last evaluation, and their distance.
    open
        Opens the source; called once for each replay.
    masks
        Times known to be unhealthy.
    chunked
        True when several steps are fetched at once.
    """

    name: str
    start: float
    end: float
    step_s: float
    open: Callable[[], Source]
    masks: tuple[Span, ...] = ()
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """How history is replayed: as the service would, by the same settings."""

    catalog: Catalog
    parameters: Parameters = field(default_factory=Parameters)
    identity: IdentityRules | None = None
    placement: PlacementRules | None = None
    pools: PoolRules | None = None


def recorded(path: Path) -> Stretch:
    """Return a recording as history; what it labels as wrong is left out.

    Raises
    ------
    SourceError
        When it is missing or wrong.
    """
    found = load_recording(path)
    return Stretch(
        found.id, found.start, found.end, float(found.step_s), lambda: RecordingSource(path), labelled(found)
    )


def calibrate(
    stretches: Sequence[Stretch],
    rules: Rules,
    budget: float,
    *,
    n_nodes: int | None = None,
    floor: float = 1.0,
    trusted: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """Learn thresholds from history.

    Parameters
    ----------
    stretches
        Pieces of history that do not overlap.
    rules
        Catalog and settings.
    budget
        False alarms per cluster and month, > 0.
    n_nodes
        Size of the cluster the budget is meant for; None for the most nodes judged at once.
    floor
        Share of the shipped threshold down to which a threshold may be lowered, 0.5 to 1.
    trusted
        True when all faults of the history are labelled: nothing else is left out.
    progress
        Called with the share that is done, 0 to 1.

    Raises
    ------
    CalibrationError
        When the history is too short, constant, or faulty throughout.
    SourceError
        When it cannot be read.
    """
    _check(stretches, budget, floor)
    advance = progress or (lambda _share: None)
    plain = rules.parameters
    seen = _replayed(stretches, rules, None, lambda share: advance(0.5 * share))
    full_s = replace(plain, step_s=max(one.step_s for one in stretches)).full_s
    odd: list[list[Span]] = [[] for _ in seen] if trusted else odd_spans(seen, full_s)
    healthy = left_healthy(seen, odd)
    size = n_nodes or max(1, *(one.n_nodes for one in seen))
    aim = Aim(budget, size, full_s, plain.z_threshold, floor)
    signals = learn_signals(healthy, aim)
    learnt = thresholds_of(signals, floor=floor)
    again = _replayed(stretches, rules, learnt, lambda share: advance(0.5 + 0.5 * share))
    healthy = [without(one, spans) for one, spans in zip(again, odd, strict=True)]
    node, expected = learn_node(healthy, aim)
    return Calibration(
        FORMAT,
        rules.catalog.sha256,
        budget,
        plain.z_threshold,
        plain.continuity_s,
        floor,
        _history(stretches, healthy, odd, aim),
        expected,
        node,
        signals,
    )


def _check(stretches: Sequence[Stretch], budget: float, floor: float) -> None:
    if not stretches:
        raise CalibrationError("there is no history to learn from")
    if not 0 < budget < math.inf:
        raise CalibrationError(f"the budget must be more than 0 false alarms per month, not {budget:g}")
    if not CELL_LEVELS[0] <= floor <= 1:
        raise CalibrationError(f"the floor must be from {CELL_LEVELS[0]:g} to 1, not {floor:g}")


def _replayed(
    stretches: Sequence[Stretch],
    rules: Rules,
    thresholds: Thresholds | None,
    progress: Callable[[float], None],
) -> list[Watched]:
    n = len(stretches)
    return [
        _replay(one, rules, thresholds, lambda share, i=i: progress((i + share) / n))  # type: ignore[misc]
        for i, one in enumerate(stretches)
    ]


def left_healthy(seen: Sequence[Watched], odd: Sequence[Sequence[Span]]) -> list[Watched]:
    """Leave out what looks faulty.

    Raises
    ------
    CalibrationError
        When that is more than half of the history.
    """
    found = [without(one, spans) for one, spans in zip(seen, odd, strict=True)]
    if judged_s(seen) > 0 and judged_s(found) < 0.5 * judged_s(seen):
        raise CalibrationError(
            f"no healthy history: {_named(odd)} look faulty for most of it; "
            "label the faults, or choose another time"
        )
    return found


def _history(
    stretches: Sequence[Stretch], healthy: Sequence[Watched], odd: Sequence[Sequence[Span]], aim: Aim
) -> History:
    left_out = [
        LeftOut(one.name, span.node, span.start, span.end, span.reason)
        for one, spans in zip(stretches, odd, strict=True)
        for span in (*one.masks, *spans)
    ]
    return History(
        tuple(one.name for one in stretches),
        min(one.start for one in stretches),
        max(one.end for one in stretches),
        aim.n_nodes,
        judged_s(healthy) / 86400.0,
        aim.months(judged_s(healthy)),
        tuple(left_out[:MAX_LEFT_OUT]),
        sum(len(one.suspects) for one in healthy),
    )


def _named(odd: Sequence[Sequence[Span]]) -> str:
    nodes = sorted({span.node for spans in odd for span in spans})
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return ", ".join(nodes[:3]) + more


def _replay(
    stretch: Stretch, rules: Rules, thresholds: Thresholds | None, progress: Callable[[float], None]
) -> Watched:
    """Run one stretch through a fresh pipeline and watch it."""
    pipeline = Pipeline(
        rules.catalog,
        replace(rules.parameters, step_s=stretch.step_s),
        identity=rules.identity,
        placement=rules.placement,
        pools=rules.pools,
        thresholds=thresholds,
    )
    tally = Tally(pipeline, stretch.masks)
    source = stretch.open()
    try:
        for k, batch in batches(source, pipeline.names(), stretch, pipeline.interner):
            at = k * stretch.step_s
            pipeline.evaluate(batch, at)
            tally.see()
            progress((at - stretch.start) / max(stretch.end - stretch.start, 1e-9))
    finally:
        source.close()
    return tally.finish(stretch.name, stretch.start, stretch.end)


def batches(
    source: Source, names: Sequence[str], stretch: Stretch, interner: Interner
) -> Iterator[tuple[int, Batch]]:
    """Yield the samples of each evaluation time in steps, as replay and service do."""
    step_s = stretch.step_s
    first, last = math.floor(stretch.start / step_s) + 1, math.floor(stretch.end / step_s)
    start_ms = int((stretch.start - step_s) * 1000) - 1
    n_steps = 1
    while first <= last:
        until = min(first + n_steps - 1, last)
        end_ms = round(until * step_s * 1000)
        batch = source.fetch(names, start_ms, end_ms, interner)
        if stretch.chunked:
            per_step = len(batch.ts_ms) // (until - first + 1)
            n_steps = max(1, min(CHUNK_STEPS, CHUNK_SAMPLES // max(per_step, 1)))
        yield from part(batch, first, until, step_s)
        first, start_ms = until + 1, end_ms

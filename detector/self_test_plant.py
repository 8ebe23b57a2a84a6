"""What a self-test plants: a deviation of one metric on one member, far beyond its peers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from detector.core.peers import MAD_TO_SIGMA
from detector.sampled import SampledSeries
from grouping.model import Direction, FaultRule, Kind, MetricSpec, Severity

FloatArray = NDArray[np.float64]

SPREADS = 20.0
"""Size, in spreads of the peers: beyond any threshold of one signal."""

LEAST_RATE = 1 / 30
"""Events per second that an error counter rises by at least: one in each of the usual steps."""


@dataclass(frozen=True, slots=True)
class Planted:
    """Series of a metric with a deviation in some of them.

    Parameters
    ----------
    series
        All series of the metric, the altered ones in place of their originals.
    words
        What was done, such as ``+50 celsius``.
    """

    series: tuple[SampledSeries, ...]
    words: str


def plant(
    spec: MetricSpec, series: Sequence[SampledSeries], chosen: Sequence[bool], onset_s: float
) -> Planted | None:
    """Let some series deviate from a time on, to the side that is for the worse.

    Parameters
    ----------
    spec
        The metric.
    series
        All its series.
    chosen
        For each of them whether it is to deviate.
    onset_s
        Epoch seconds.

    Returns
    -------
    Planted or None
        None when no series has the two samples that a level takes.
    """
    levels = np.array([_level(spec, one) for one in series])
    levels = levels[np.isfinite(levels)]
    if not len(levels):
        return None
    middle = float(np.median(levels))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(levels - middle)))
    size = SPREADS * max(spread, spec.floor_abs, spec.floor_rel * abs(middle))
    mine = [one for one, is_chosen in zip(series, chosen, strict=True) if is_chosen]
    alter, words = _alteration(spec, size, mine, onset_s)
    altered = tuple(
        replace(one, values=np.where(one.times >= onset_s, alter(one), one.values)) if is_chosen else one
        for one, is_chosen in zip(series, chosen, strict=True)
    )
    return Planted(altered, words)


def _is_count(spec: MetricSpec) -> bool:
    return spec.kind in (Kind.COUNTER, Kind.ERROR_COUNTER)


def _level(spec: MetricSpec, one: SampledSeries) -> float:
    """Return the usual value of a series, per second for counters, NaN when there are too few samples."""
    if len(one.values) < 2:
        return float("nan")
    if _is_count(spec):
        return float((one.values[-1] - one.values[0]) / (one.times[-1] - one.times[0]))
    return float(np.median(one.values))


def _alteration(
    spec: MetricSpec, size: float, mine: Sequence[SampledSeries], onset_s: float
) -> tuple[Callable[[SampledSeries], FloatArray], str]:
    """Return how values are altered, and what that is in words."""
    is_below = spec.direction is Direction.BELOW
    if spec.kind is Kind.STATE and spec.fault is not None:
        bad = _fault_value(spec.fault, is_below=is_below)
        return lambda one: np.full(len(one.values), bad), f"set to {bad:g}"
    if _is_count(spec):
        if is_below:
            return lambda one: np.full(len(one.values), _last_before(one, onset_s)), "stands still"
        rate = max(size, LEAST_RATE if spec.kind is Kind.ERROR_COUNTER else 0.0)
        return (
            lambda one: one.values + np.ceil(rate * np.clip(one.times - onset_s, 0.0, None)),
            f"+{rate:.3g} {spec.measure}/s",
        )
    highest = max((float(one.values.max()) for one in mine if len(one.values)), default=0.0)
    if spec.direction is Direction.BOTH and highest + size > spec.valid_max:
        is_below = True
    step = -size if is_below else size
    return (
        lambda one: np.clip(one.values + step, spec.valid_min, spec.valid_max),
        f"{step:+.3g} {spec.measure}",
    )


def _last_before(one: SampledSeries, at: float) -> float:
    return float(one.values[max(0, int(np.searchsorted(one.times, at)) - 1)])


def _fault_value(rule: FaultRule, *, is_below: bool) -> float:
    """Return a value of a state that is a fault, the worst where they are told apart."""
    if rule.severities:
        order = list(Severity)
        return min(rule.severities, key=lambda value: order.index(rule.severities[value]))
    return min(rule.healthy, default=1.0) - 1.0 if is_below else max(rule.healthy, default=0.0) + 1.0

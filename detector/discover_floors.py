"""Scale floors for a metric that nobody has described: from how its samples scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.core.peers import MAD_TO_SIGMA

FloatArray = NDArray[np.float64]

SPREAD_SHARE = 0.25
"""The floor is this share of the usual scatter among peers; the measured scatter itself does the rest."""

N_TIMES = 40
"""Instants at which members are compared."""

RELATIVE_FLOOR = 0.1
"""Relative floor of a drafted entry."""

SMALLEST_SHARE = 1e-3
"""A floor is never below this share of the largest typical value: rounding is no deviation."""

MAX_AGE_STEPS = 2.5
"""A sample older than this many steps does not stand for an instant."""


@dataclass(frozen=True, slots=True)
class Track:
    """One signal of one member over time.

    Parameters
    ----------
    role
        Role of the signal: only tracks of one role are compared.
    times, values : ndarray of shape (n,)
        Gauge values, or rates per second of a counter.
    """

    role: str
    times: FloatArray
    values: FloatArray


def rates(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rates per second of a counter between its samples; falls (resets) are left out."""
    gap, step = np.diff(times), np.diff(values)
    good = (gap > 0) & (step >= 0)
    return times[1:][good], step[good] / gap[good]


def draft_floor(tracks: Sequence[Track], *, is_rate: bool) -> float:
    """Return the absolute floor of a metric, > 0, in its own unit.

    Parameters
    ----------
    tracks
        All signals of the metric.
    is_rate
        True for rates, where one count per step is no meaningful unit of scatter.

    Notes
    -----
    The largest of a share of the scatter among peers at one instant, the step between the
    numbers that occur (whole degrees), and a trace of the typical size.
    """
    deviations, typical = _scatter(tracks)
    sigma = 0.0
    if len(deviations):
        sigma = MAD_TO_SIGMA * float(np.median(deviations))
        if sigma == 0.0:
            sigma = float(np.percentile(deviations, 99)) / 2.58
    step = 0.0 if is_rate else _quantum(tracks)
    floor = max(SPREAD_SHARE * sigma, step, SMALLEST_SHARE * typical)
    return _round_up(floor) if floor > 0 else 1e-6


def _scatter(tracks: Sequence[Track]) -> tuple[FloatArray, float]:
    """Distances from the peers' median at the same instants, and the largest typical size."""
    filled = [track for track in tracks if len(track.values)]
    if not filled:
        return np.zeros(0), 0.0
    step = float(np.median([_step(track.times) for track in filled]))
    first = min(float(track.times[0]) for track in filled)
    last = max(float(track.times[-1]) for track in filled)
    instants = np.unique(np.linspace(first, last, N_TIMES))
    by_role: dict[str, list[FloatArray]] = {}
    for track in filled:
        at = np.searchsorted(track.times, instants, side="right") - 1
        known = (at >= 0) & (instants - track.times[np.maximum(at, 0)] <= MAX_AGE_STEPS * step + 1e-9)
        row = np.where(known, track.values[np.maximum(at, 0)], np.nan)
        by_role.setdefault(track.role, []).append(row)
    found: list[FloatArray] = []
    typical = 0.0
    for rows in by_role.values():
        block = np.stack(rows)
        enough = np.isfinite(block).sum(axis=0) >= min(3, len(rows))
        block = block[:, enough]
        if not block.size:
            continue
        median = np.nanmedian(block, axis=0)
        away = np.abs(block - median)
        found.append(away[np.isfinite(away)])
        typical = max(typical, float(np.median(np.abs(median))))
    return (np.concatenate(found) if found else np.zeros(0)), typical


def _step(times: FloatArray) -> float:
    return float(np.median(np.diff(times))) if len(times) > 1 else 30.0


def _quantum(tracks: Sequence[Track]) -> float:
    """Smallest step between values when only few different ones occur, else 0."""
    sample = np.concatenate([track.values[:500] for track in tracks[:200]])
    distinct = np.unique(np.round(sample, 9))
    if len(distinct) < 2 or len(distinct) > 0.2 * len(sample):
        return 0.0
    return float(np.diff(distinct).min())


def _round_up(value: float) -> float:
    """Round to two digits, for people."""
    return float(f"{value:.2g}")

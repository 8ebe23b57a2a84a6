"""How rare a level is: counted where there is data, a generalised Pareto tail beyond (peaks over threshold).

After Siffer et al., "Anomaly Detection in Streams with Extreme Value Theory" (KDD 2017). Shape and
scale are estimated by probability-weighted moments (Hosking and Wallis 1987), which need no search.
Peaks are the highest levels of separate episodes, so neighbouring samples do not count twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MIN_PEAKS = 10
"""A tail is estimated from at least this many peaks."""

FEW_PEAKS, MAX_PEAKS = 50, 500
"""Up to the first all peaks make the tail, beyond it the highest quarter, never more than the second."""

SHAPES = (-1.0, 0.5)
"""Bounds of the shape: bounded like a uniform distribution, to a tail without variance."""

USUAL_SHAPE, USUAL_WEIGHT = 0.1, 20.0
"""Few peaks say little of a shape: it is drawn to the usual one as if by so many further peaks."""

N_BOOTSTRAP = 200
INTERVAL = (0.05, 0.95)
"""Quantiles of the resampled estimates that are told as interval."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Rate at which a level is reached or exceeded.

    Parameters
    ----------
    start
        Level from which the generalised Pareto tail holds.
    rate
        Peaks above `start` per unit of exposure.
    shape, scale
        Of the tail; a shape of 0 is an exponential tail.
    peaks : ndarray of shape (n,)
        All peaks, highest first.
    exposure
        How much was watched, in the unit of the rates; > 0.
    """

    start: float
    rate: float
    shape: float
    scale: float
    peaks: FloatArray
    exposure: float

    def rate_above(self, level: float) -> float:
        """Return how often a level is reached per unit of exposure."""
        if level <= self.start:
            return float(np.count_nonzero(self.peaks >= level)) / self.exposure
        return self.rate * float(_survival(np.array(level - self.start), self.shape, self.scale))

    def level_of(self, rate: float) -> float:
        """Return the level that is reached this often; `rate` per unit of exposure, > 0.

        What is rarer than the exposure can show is never below the highest peak seen.
        """
        if rate >= self.rate:
            allowed = int(np.floor(rate * self.exposure + 1e-9))
            # just above the first peak too many
            return float(np.nextafter(self.peaks[allowed], np.inf)) if allowed < len(self.peaks) else 0.0
        level = self.start + float(_excess(np.array(self.rate / rate), self.shape, self.scale))
        return max(level, float(self.peaks[0])) if rate * self.exposure < 1.0 else level

    def interval_of(self, rate: float) -> tuple[float, float]:
        """Return the bootstrap interval of `level_of`; equal bounds where the level is counted."""
        n = int(np.count_nonzero(self.peaks > self.start))
        if rate >= self.rate or n < 2:
            level = self.level_of(rate)
            return level, level
        rng = np.random.default_rng(n)
        drawn = rng.choice(self.peaks[:n] - self.start, size=(N_BOOTSTRAP, n))
        shape, scale = estimate(drawn)
        ratio = np.maximum(rng.poisson(n, N_BOOTSTRAP) / self.exposure / rate, 1.0)
        low, high = np.quantile(self.start + _excess(ratio, shape, scale), INTERVAL)
        return float(low), float(high)


def estimate(excesses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Estimate shape and scale of generalised Pareto excesses.

    Parameters
    ----------
    excesses : ndarray of shape (..., n)
        Positive distances above the start of the tail; n at least 2.

    Returns
    -------
    shape, scale : ndarray of shape (...)
    """
    ordered = np.sort(excesses, axis=-1)
    n = ordered.shape[-1]
    weights = 1.0 - (np.arange(1, n + 1) - 0.35) / n
    mean = ordered.mean(axis=-1)
    weighted = (ordered * weights).mean(axis=-1)
    with np.errstate(all="ignore"):
        shape = 2.0 - mean / (mean - 2.0 * weighted)
    shape = np.clip(np.nan_to_num(shape, nan=0.0, posinf=SHAPES[1], neginf=SHAPES[0]), *SHAPES)
    shape = (n * shape + USUAL_WEIGHT * USUAL_SHAPE) / (n + USUAL_WEIGHT)
    # the scale that keeps the mean, for whatever the bounds made of the shape
    return shape, np.maximum(mean * (1.0 - shape), 1e-12)


def fit_tail(peaks: FloatArray, exposure: float, base: float) -> Tail | None:
    """Fit a tail to the peaks of separate episodes.

    Parameters
    ----------
    peaks : ndarray of shape (n,)
        Highest level of each episode, all at least `base`.
    exposure
        How much was watched; the unit of the rates.
    base
        Lowest level that makes an episode.

    Returns
    -------
    Tail or None
        None for fewer than `MIN_PEAKS` peaks.
    """
    ordered = np.sort(np.asarray(peaks, dtype=np.float64))[::-1]
    n = len(ordered)
    if n < MIN_PEAKS:
        return None
    kept = n if n <= FEW_PEAKS else max(FEW_PEAKS, min(n // 4, MAX_PEAKS))
    start = base if kept == n else float(ordered[kept])
    above = ordered[ordered > start]
    if len(above) < MIN_PEAKS:  # all alike: what lies above is not known to be anything but one step
        start, above = base, ordered[ordered > base]
    if len(above) < 2:
        return None
    shape, scale = estimate(above - start)
    return Tail(start, len(above) / exposure, float(shape), float(scale), ordered, exposure)


def _survival(excess: FloatArray, shape: float, scale: float) -> FloatArray:
    if abs(shape) < 1e-9:
        return np.exp(-excess / scale)
    inner = np.maximum(1.0 + shape * excess / scale, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(inner > 0, inner ** (-1.0 / shape), 0.0 if shape < 0 else 1.0))


def _excess(ratio: FloatArray, shape: FloatArray | float, scale: FloatArray | float) -> FloatArray:
    """Return the excess whose survival probability is 1 / ratio."""
    near = np.abs(shape) < 1e-9
    safe = np.where(near, 1.0, shape)
    log = np.log(ratio)
    return np.asarray(scale * np.where(near, log, np.expm1(safe * log) / safe))

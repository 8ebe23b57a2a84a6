"""Intervals of proportions and rates: how far a count can be trusted."""

from __future__ import annotations

import math

from scipy import stats

CONFIDENCE = 0.95

Interval = tuple[float, float]


def wilson(k: int, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the Wilson score interval of a proportion.

    Parameters
    ----------
    k, n
        Successes and trials.
    confidence
        Two-sided confidence.

    Returns
    -------
    tuple of float or None
        Low and high in [0, 1]; None when there were no trials.

    Raises
    ------
    ValueError
        When `k` is not between 0 and `n`.

    References
    ----------
    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 1927.
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} successes in {n} trials")
    if n == 0:
        return None
    found = stats.binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    return float(found.low), float(found.high)


def f1_interval(found: int, false: float, missed: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Return an interval of F1.

    F1 = 2J / (1 + J) grows with J = found / (found + false + missed), which is a proportion:
    its Wilson interval is carried over. `false` may be a fraction: false alarms per right one times
    the faults found, when more alarms are right than faults are counted.

    Returns
    -------
    tuple of float or None
        Low and high in [0, 1]; None when there is nothing to count.
    """
    n = found + false + missed
    if n <= 0:
        return None
    square = float(stats.norm.ppf((1 + confidence) / 2)) ** 2
    share = found / n
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = math.sqrt(square * (share * (1 - share) / n + square / (4 * n * n))) / (1 + square / n)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return 2 * low / (1 + low), 2 * high / (1 + high)


def poisson_upper(count: int, exposure: float, confidence: float = CONFIDENCE) -> float | None:
    """Return the exact one-sided upper bound of a Poisson rate.

    Parameters
    ----------
    count
        Events seen.
    exposure
        Time in which they were seen, in any unit.
    confidence
        One-sided confidence.

    Returns
    -------
    float or None
        Events per unit of exposure; None without exposure.

    References
    ----------
    F. Garwood, Fiducial limits for the Poisson distribution, Biometrika 1936.
    """
    if count < 0:
        raise ValueError(f"{count} events")
    if exposure <= 0:
        return None
    return float(stats.chi2.ppf(confidence, 2 * (count + 1))) / 2 / exposure

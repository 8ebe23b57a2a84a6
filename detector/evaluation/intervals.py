"""Intervals of proportions and rates: how far a count can be trusted."""

from __future__ import annotations

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


def f1_interval(found: int, false: int, missed: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Return an interval of F1.

    F1 = 2J / (1 + J) grows with J = found / (found + false + missed), which is a proportion:
    its Wilson interval is carried over.

    Returns
    -------
    tuple of float or None
        Low and high in [0, 1]; None when there is nothing to count.
    """
    interval = wilson(found, found + false + missed, confidence)
    if interval is None:
        return None
    low, high = interval
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

"""How numbers are written in evidence: few digits, no powers of ten where an engineer would write none."""

from __future__ import annotations

import math
from collections.abc import Collection

_GROUPED_FROM = 1e3
"""Whole numbers from this on are written in groups of three digits."""

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"))
_LARGEST, _SMALLEST = 1e18, 1e-4


def figure(value: float, digits: int = 4) -> str:
    """Return a number in so many significant digits.

    Parameters
    ----------
    value
        Any number; NaN and infinity are told as such.
    digits
        Significant digits.

    Examples
    --------
    >>> figure(0.0333333), figure(158_312.0), figure(2.164e12), figure(5e-7)
    ('0.03333', '158,300', '2.164T', '5e-07')
    """
    size = abs(value)
    if not math.isfinite(value) or size >= _LARGEST or size < _SMALLEST:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits}g}")
    for least, prefix in _PREFIXES:
        if abs(rounded) >= least:
            return f"{rounded / least:.{digits}g}{prefix}"
    if abs(rounded) >= _GROUPED_FROM:
        return f"{rounded:,.0f}" if rounded == round(rounded) else f"{rounded:,}"
    return f"{rounded:.{digits}g}"


def first_of(texts: Collection[str], n_shown: int) -> str:
    """Join the first of some texts in alphabetical order, and tell how many more there are."""
    more = f" and {len(texts) - n_shown} more" if len(texts) > n_shown else ""
    return ", ".join(sorted(texts)[:n_shown]) + more

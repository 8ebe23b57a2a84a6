"""Mean distance of a member to all its peers over the window: Minder's similarity, made exact and cheap.

For one number per member the L1 distance to all others needs no pair of members: after
sorting, prefix sums give every member's sum of distances in O(n log n). Over a window the
L1 distance is the sum of the distances at each time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def mean_distances(window: FloatArray) -> FloatArray:
    """Return each member's mean absolute distance to all other members over a window.

    Parameters
    ----------
    window : ndarray of shape (n_times, n_members)
        Values; NaN means no sample and takes no part at that time.

    Returns
    -------
    ndarray of shape (n_members,)
        In the unit of the values; NaN for members that never met a peer.

    Notes
    -----
    With s sorted and P its prefix sums, the sum of |x - y| over all y is
    ``x * (2k - n) + P[n] - 2 P[k]`` for x at rank k, because k members lie below and n - k above.
    """
    total = np.zeros(window.shape[1])
    met = np.zeros(window.shape[1])
    for row in window:
        present = np.flatnonzero(np.isfinite(row))
        n = len(present)
        if n < 2:
            continue
        order = present[np.argsort(row[present], kind="stable")]
        s = row[order] - row[order[n // 2]]
        prefix = np.concatenate([[0.0], np.cumsum(s)])
        k = np.arange(n)
        distance = s * (2 * k - n) + prefix[n] - 2 * prefix[k]
        total[order] += np.maximum(distance, 0.0) / (n - 1)
        met[order] += 1
    with np.errstate(invalid="ignore"):
        return np.where(met > 0, total / np.maximum(met, 1), np.nan)


def distance_ratio(distances: FloatArray, floor: float) -> FloatArray:
    """Return each member's mean distance relative to what is usual in its group.

    Parameters
    ----------
    distances : ndarray of shape (n_members,)
        From `mean_distances`.
    floor
        Smallest distance that counts as a spread, > 0.

    Returns
    -------
    ndarray of shape (n_members,)
        1 is usual; NaN stays NaN.
    """
    known = distances[np.isfinite(distances)]
    if not len(known):
        return np.full_like(distances, np.nan)
    return np.asarray(distances / max(float(np.median(known)), floor))

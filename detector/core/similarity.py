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
    present = np.isfinite(window)
    n = present.sum(axis=1)
    window, present, n = window[n >= 2], present[n >= 2], n[n >= 2, None]
    n_times, n_members = window.shape
    # Who is not there comes last.
    order = np.argsort(np.where(present, window, np.inf), axis=1, kind="stable")
    ordered = np.take_along_axis(window, order, axis=1)
    ordered -= np.take_along_axis(ordered, n // 2, axis=1)
    ordered[~np.take_along_axis(present, order, axis=1)] = 0.0
    prefix = np.zeros((n_times, n_members + 1))
    np.cumsum(ordered, axis=1, out=prefix[:, 1:])
    k = np.arange(n_members)
    sums = ordered * (2 * k - n) + prefix[:, -1:] - 2 * prefix[:, :-1]
    distances = np.zeros((n_times, n_members))
    np.put_along_axis(distances, order, np.maximum(sums, 0.0) / (n - 1), axis=1)
    distances[~present] = 0.0
    total, met = distances.sum(axis=0), present.sum(axis=0)
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

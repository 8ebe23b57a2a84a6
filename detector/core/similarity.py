"""Mean distance of a member to all its peers over the window: Minder's similarity, made exact and cheap.

For one number per member the L1 distance to all others needs no pair of members: after
sorting, prefix sums give every member's sum of distances in O(n log n). Over a window the
L1 distance is the sum of the distances at each time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


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
    """
    return mean_over_time(*distances_to_all(window))


def distances_to_all(window: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return each member's mean absolute distance to all other members at each time.

    Parameters
    ----------
    window : ndarray of shape (n_times, n_members)
        As in `mean_distances`.

    Returns
    -------
    distances : ndarray of shape (n_times, n_members)
        0 where a member met no peer.
    met : ndarray of shape (n_times, n_members), bool
        Where it met one.

    Notes
    -----
    With s sorted and P its prefix sums, the sum of |x - y| over all y is
    ``x * (2k - n) + P[n] - 2 P[k]`` for x at rank k, because k members lie below and n - k above.
    """
    met = np.isfinite(window)
    n = met.sum(axis=1, keepdims=True)
    met &= n >= 2
    n = np.maximum(n, 2)
    n_times, n_members = window.shape
    # Who is not there comes last.
    order = np.argsort(np.where(met, window, np.inf), axis=1, kind="stable")
    ordered = np.take_along_axis(np.where(met, window, 0.0), order, axis=1)
    ordered -= np.take_along_axis(ordered, n // 2, axis=1)
    ordered[~np.take_along_axis(met, order, axis=1)] = 0.0
    prefix = np.zeros((n_times, n_members + 1))
    np.cumsum(ordered, axis=1, out=prefix[:, 1:])
    k = np.arange(n_members)
    sums = ordered * (2 * k - n) + prefix[:, -1:] - 2 * prefix[:, :-1]
    distances = np.zeros((n_times, n_members))
    np.put_along_axis(distances, order, np.maximum(sums, 0.0) / (n - 1), axis=1)
    distances[~met] = 0.0
    return distances, met


def mean_over_time(distances: FloatArray, met: BoolArray) -> FloatArray:
    """Return the mean of `distances_to_all` over the times at which a member met a peer, NaN for none."""
    total, times = distances.sum(axis=0), met.sum(axis=0)
    return np.where(times > 0, total / np.maximum(times, 1), np.nan)


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
    known = np.sort(distances[np.isfinite(distances)])
    if not len(known):
        return np.full_like(distances, np.nan)
    median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2.0
    return np.asarray(distances / max(float(median), floor))

"""Random draws of a case, all from one generator: the same seed gives the same case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Array = NDArray[Any]

POINT_S = 5
"""Seconds between two points of the state of a site; exporters are scraped at their own times in between."""

POINTS_PER_MINUTE = 60 // POINT_S

PAGE_BYTES = 4096

_WARM_UP = 60
_LETTERS = tuple("bcdfghjklmnpqrstvwxz2456789")


class Noise:
    """Random numbers over the points of a case.

    Parameters
    ----------
    rng
        Where all draws come from.
    n_points
        Points of the case.
    """

    def __init__(self, rng: np.random.Generator, n_points: int) -> None:
        self.rng = rng
        self.n_points = n_points

    def normal(self) -> Array:
        """Return a standard normal number for each point."""
        return self.rng.standard_normal(self.n_points)

    def uniform(self) -> Array:
        """Return a number in [0, 1) for each point."""
        return self.rng.random(self.n_points)

    def wander(self, shape: tuple[int, ...], memory_s: float, size: float) -> Array:
        """Return first-order autoregressive noise of the given shape times points.

        Parameters
        ----------
        shape
            Shape before the points.
        memory_s
            Seconds after which a deviation has fallen to 1/e.
        size
            Standard deviation.
        """
        decay = np.exp(-POINT_S / memory_s)
        shocks = self.rng.standard_normal((*shape, self.n_points + _WARM_UP)).astype(np.float32)
        scaled = shocks * size * np.sqrt(1 - decay * decay)
        return np.asarray(lfilter([1], [1, -decay], scaled, axis=-1)[..., _WARM_UP:], dtype=np.float32)

    def bursts(self, shape: tuple[int, ...], probability: float, scale: float) -> Array:
        """Return zeros with rare heavy-tailed bursts, each at a point with the probability."""
        chance = self.rng.random((*shape, self.n_points), dtype=np.float32)
        height = self.rng.pareto(2.2, (*shape, self.n_points)) * scale
        return np.where(chance < probability, height, 0).astype(np.float32)

    def spread(self, shape: tuple[int, ...], size: float) -> Array:
        """Return log-normal factors about 1: how copies of a thing differ for good."""
        return np.exp(self.rng.standard_normal(shape) * size).astype(np.float32)

    def factor(self, size: float) -> np.float32:
        """Return one log-normal factor about 1."""
        return np.float32(np.exp(self.rng.standard_normal(()) * size))

    def text(self, n_letters: int) -> str:
        """Return the random part of a Kubernetes name."""
        return "".join(self.rng.choice(_LETTERS, n_letters))

    def counter(
        self, rate: Array, start: float = 0.0, resets: Iterable[int] = (), *, whole: bool = False
    ) -> Array:
        """Return a counter.

        Parameters
        ----------
        rate
            Growth per second at each point.
        start
            Value before the first point.
        resets
            Points at which it begins at 0 again.
        whole
            True to count events one by one, Poisson distributed.
        """
        growth = np.asarray(rate, float) * POINT_S
        if whole:
            growth = self.rng.poisson(np.maximum(growth, 0))
        total = np.cumsum(growth) + start
        for point in resets:
            if 0 < point < self.n_points:
                total[point:] -= total[point - 1]
        return total


def smoothed(values: Array, share: float, *, before: float | None = None) -> Array:
    """Return exponentially smoothed values.

    Parameters
    ----------
    values
        For each point.
    share
        Weight of a new value.
    before
        Value before the first point, None for the first value.
    """
    settled = values[0] if before is None else before
    return np.asarray(lfilter([share], [1, -(1 - share)], values, zi=[settled * (1 - share)])[0])


def in_pages(values: Array) -> Array:
    """Return bytes as the kernel counts them."""
    return np.asarray(np.round(np.maximum(values, 0) / PAGE_BYTES) * PAGE_BYTES)

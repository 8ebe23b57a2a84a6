"""What all parts of the physics are given at a tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.job import JobView
from simulator.mods import Floats, Mods

Drivers = dict[str, Floats]
"""Name -> array that broadcasts to (nodes, parts)."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much each node has to do by its place in the job; arrays have the shape (nodes, 1).

    Parameters
    ----------
    gpu, memory, nvlink, ib, cpu, kernel
        Factors on power, GPU memory, traffic, processor time and kernel memory; 1 is usual.
    util_drop
        Percent of GPU utilisation that is lost to waiting for other stages.
    heat
        Degrees on top of the usual.
    iteration_s
        Seconds of one step.
    """

    gpu: Floats
    memory: Floats
    nvlink: Floats
    ib: Floats
    cpu: Floats
    kernel: Floats
    util_drop: Floats
    heat: Floats
    iteration_s: Floats


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick.

    Parameters
    ----------
    at
        Epoch seconds.
    dt
        Seconds since the tick before.
    mods
        What faults and events change now.
    job
        The job now.
    scraped
        Epoch seconds of each target's scrape, shape (nodes, exporters).
    load
        How much each node has to do.
    """

    at: float
    dt: float
    mods: Mods
    job: JobView
    scraped: Floats
    load: Load

    def day(self) -> float:
        """Return -1 to 1 over a day, highest in the afternoon."""
        return float(np.sin(2 * np.pi * (self.at / 86400.0 - 0.375)))


def column(values: NDArray[Any]) -> Floats:
    """Return one value per node as (nodes, 1)."""
    return np.asarray(values, dtype=float)[:, None]


class Drift:
    """Noise that wanders: an AR(1) process with unit variance.

    Parameters
    ----------
    shape
        Shape of the noise.
    tau_s
        Time constant in seconds.
    rng
        Source of chance.
    """

    def __init__(self, shape: tuple[int, ...], tau_s: float, rng: np.random.Generator) -> None:
        self._tau = tau_s
        self._rng = rng
        self.value = rng.standard_normal(shape)

    def step(self, dt: float) -> Floats:
        """Move on and return the noise."""
        keep = float(np.exp(-dt / self._tau))
        fresh = self._rng.standard_normal(self.value.shape)
        self.value = keep * self.value + np.sqrt(1 - keep**2) * fresh
        return self.value


def relax(state: Floats, target: Floats, dt: float, tau_s: float | Floats) -> Floats:
    """Return a state that follows a target with a time constant."""
    return np.asarray(state + (target - state) * (1 - np.exp(-dt / tau_s)))

"""All metrics of one exporter over one space of parts, as arrays of shape (metric, node, part)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Column
from simulator.mods import Floats


class Block:
    """Turns drivers into samples.

    Parameters
    ----------
    columns
        Metrics of one exporter and space.
    n_nodes, n_parts
        Shape.
    seed
        Seed of the cluster; a block's noise does not depend on which other blocks exist.
    uptime_s
        Seconds since each node's start, shape (n_nodes,); counters begin with what they
        would have summed up in it.
    tail_scale
        Factor on how often heavy-tailed metrics burst.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        n_nodes: int,
        n_parts: int,
        seed: int,
        uptime_s: Floats,
        tail_scale: float = 1.0,
    ) -> None:
        self.columns = tuple(columns)
        self.exporter, self.space = columns[0].exporter, columns[0].space
        self.shape = (len(columns), n_nodes, n_parts)
        self._rng = np.random.default_rng([seed, zlib.crc32(f"{self.exporter}/{self.space}".encode())])
        self._uptime = uptime_s[:, None]
        self._noisy = self._where([c.sigma > 0 for c in columns])
        noisy = [columns[i] for i in self._noisy]
        self._sigma = _per_metric([c.sigma for c in noisy])
        self._ar = _per_metric([c.ar for c in noisy])
        self._noise = np.zeros((len(noisy), n_nodes, n_parts), dtype=np.float32)
        spread = _per_metric([c.spread for c in columns])
        self._offset: NDArray[np.float32] | None = None
        if spread.any():
            self._offset = np.exp(spread * self._rng.standard_normal(self.shape, dtype=np.float32))
        self._tails = [(i, c.tail * tail_scale) for i, c in enumerate(columns) if c.tail > 0]
        self._jitters = [(i, c.jitter) for i, c in enumerate(columns) if c.jitter > 0]
        self._counters = self._where([c.is_counter for c in columns])
        self._sum = np.zeros((len(self._counters), n_nodes, n_parts))
        self._of_process = [k for k, i in enumerate(self._counters) if _is_of_process(columns[i])]
        self._is_new = True

    def _where(self, flags: Sequence[bool]) -> list[int]:
        return [i for i, flag in enumerate(flags) if flag]

    def tick(
        self, drivers: Mapping[str, Floats], dt: float, odd: Sequence[tuple[str, int, int, float]] = ()
    ) -> Floats:
        """Return the values after `dt` more seconds, shape (metric, node, part).

        Parameters
        ----------
        drivers
            What the columns follow.
        dt
            Seconds since the tick before.
        odd
            Single levels that are off, as (metric, node, part or -1 for all parts, factor).
        """
        level = self._levels(drivers)
        if self._is_new:
            self._start_counters(level)
        self._add_noise(level)
        for name, node, part, factor in odd:
            for i, column in enumerate(self.columns):
                if column.name == name:
                    level[i, node, slice(None) if part < 0 else part] *= factor
        for k, i in enumerate(self._counters):
            self._count(k, self.columns[i], level[i], dt)
        for i, jitter in self._jitters:
            level[i] += jitter * self._rng.standard_normal(self.shape[1:], dtype=np.float32)
        for i, column in enumerate(self.columns):
            if not column.is_counter:
                np.clip(level[i], column.low, column.high, out=level[i])
            _quantise(level[i], column)
        return level

    def restart(self, nodes: NDArray[np.bool_]) -> None:
        """Begin all counters of these nodes at 0, as after a reboot."""
        self._sum[:, nodes] = 0.0

    def restart_process(self, nodes: NDArray[np.bool_]) -> None:
        """Begin the counters that live in the exporter's own process at 0."""
        for k in self._of_process:
            self._sum[k, nodes] = 0.0

    def _levels(self, drivers: Mapping[str, Floats]) -> Floats:
        level = np.zeros(self.shape)
        for i, column in enumerate(self.columns):
            for driver, weight in column.terms:
                level[i] += drivers[driver] if weight == 1 else weight * drivers[driver]
        return level

    def _start_counters(self, level: Floats) -> None:
        self._is_new = False
        for k, i in enumerate(self._counters):
            past = level[i] * self._uptime
            if self.columns[i].is_rare:
                self._sum[k] = self._rng.poisson(np.minimum(np.maximum(past, 0.0), 1e15))
            else:
                self._sum[k] = past * self._rng.uniform(0.85, 1.0, self.shape[1:])

    def _add_noise(self, level: Floats) -> None:
        if self._offset is not None:
            level *= self._offset
        if not self._noisy:
            return
        fresh = self._rng.standard_normal(self._noise.shape, dtype=np.float32)
        fresh *= np.sqrt(1 - self._ar**2)
        self._noise *= self._ar
        self._noise += fresh
        factor = np.exp(self._sigma * self._noise - self._sigma**2 / 2)
        if len(self._noisy) == len(self.columns):
            level *= factor
        else:
            level[self._noisy] *= factor
        for i, tail in self._tails:
            n_cells = level[i].size
            hit = self._rng.integers(0, n_cells, self._rng.poisson(tail * n_cells))
            level[i].reshape(-1)[hit] *= 2.0 + self._rng.pareto(1.6, len(hit))

    def _count(self, k: int, column: Column, level: Floats, dt: float) -> None:
        np.maximum(level, 0.0, out=level)
        if column.is_rare:
            self._sum[k] += self._rng.poisson(level * dt)
        else:
            level *= dt
            self._sum[k] += level
        np.copyto(level, self._sum[k])
        if column.wrap:
            np.mod(level, column.wrap, out=level)


def _is_of_process(column: Column) -> bool:
    return column.exporter == "backend_ai" or column.name.startswith(("process_", "go_", "promhttp_"))


def _per_metric(values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32).reshape(-1, 1, 1)


def _quantise(values: Floats, column: Column) -> None:
    """Round in place to the resolution of the exporter, so that numbers print short."""
    q = column.quantum
    if not q:
        return
    rounding = np.floor if column.is_counter else np.rint
    if q < 1:
        scale = float(round(1 / q))
        values *= scale
        rounding(values, out=values)
        values /= scale
    else:
        if q != 1:
            values /= q
        rounding(values, out=values)
        if q != 1:
            values *= q

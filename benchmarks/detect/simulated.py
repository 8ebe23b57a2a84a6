"""A simulated case as a source of samples, generated as it is replayed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from detector.source.base import Batch, Interner
from detector.source.gc_pause import gc_pause
from simulator.cluster import Cluster
from simulator.config import ClusterConfig

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Int32s = NDArray[np.int32]


class Ticking(Protocol):
    """A cluster, or something that repeats one."""

    @property
    def config(self) -> ClusterConfig:
        """Size and habits."""
        ...

    @property
    def series(self) -> list[dict[str, str]]:
        """Labels of every series."""
        ...

    def tick(self, at: float) -> tuple[FloatArray, IntArray]:
        """Return values and times of all series as of a time, see `Cluster.tick`."""
        ...


class Tape:
    """A cluster that several detectors watch one after the other: it is simulated once.

    Parameters
    ----------
    cluster
        A cluster that has not ticked yet.
    keeps
        True to keep all samples, 12 bytes each, so that they can be had again.
    """

    def __init__(self, cluster: Cluster, *, keeps: bool) -> None:
        self._cluster = cluster
        self._keeps = keeps
        self._kept: dict[float, tuple[FloatArray, Int32s]] = {}
        self.config, self.series = cluster.config, cluster.series
        self.seconds = 0.0

    def tick(self, at: float) -> tuple[FloatArray, IntArray]:
        """Return the samples of a time, simulated when it is new; `seconds` counts the CPU time."""
        base = round(at * 1000)
        if at in self._kept:
            values, ago = self._kept[at]
            return values, base + ago.astype(np.int64)
        began = time.process_time()
        values, ts_ms = self._cluster.tick(at)
        self.seconds += time.process_time() - began
        if self._keeps:
            self._kept[at] = values, (ts_ms - base).astype(np.int32)
        return values, ts_ms


class SimulatedSource:
    """Samples of a simulated cluster, tick by tick: nothing is kept but the rows asked for.

    Parameters
    ----------
    cluster
        A cluster that has not ticked yet, or a tape of one.
    keep : ndarray of shape (n_rows,)
        Series whose samples are kept, see `kept`.
    """

    def __init__(self, cluster: Ticking, keep: IntArray | None = None) -> None:
        self._cluster = cluster
        self._step_ms = round(cluster.config.step_s * 1000)
        self._next_ms = round(cluster.config.start * 1000)
        self._keys = [json.dumps(s, separators=(",", ":")).encode() for s in cluster.series]
        self._names = [s["__name__"] for s in cluster.series]
        self._asked: tuple[tuple[str, ...], NDArray[np.bool_]] = ((), np.zeros(0, dtype=bool))
        self._codes = np.full(len(self._keys), -2, dtype=np.int64)
        self._keep = np.zeros(0, dtype=np.int64) if keep is None else keep
        self._kept: list[FloatArray] = []

    @property
    def kept(self) -> FloatArray:
        """Samples of the rows to keep so far, shape (n_ticks, n_rows); NaN where there is none."""
        return np.array(self._kept).reshape(len(self._kept), len(self._keep))

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Move the cluster on to `end_ms` and return the samples since then.

        The cluster can't go back: `start_ms` must be where the fetch before ended.
        """
        wanted = self._wanted(tuple(names))
        found: list[tuple[IntArray, IntArray, FloatArray]] = []
        while self._next_ms <= end_ms:
            values, ts_ms = self._cluster.tick(self._next_ms / 1000)
            self._next_ms += self._step_ms
            self._kept.append(values[self._keep])
            there = np.flatnonzero(np.isfinite(values) & wanted & (ts_ms > start_ms))
            self._intern(there[self._codes[there] == -2], interner)
            there = there[self._codes[there] >= 0]
            found.append((self._codes[there], ts_ms[there], values[there]))
        series, times, values = (np.concatenate(x) for x in zip(*found, strict=True))
        return Batch(series.astype(np.int32), times, values)

    def _wanted(self, names: tuple[str, ...]) -> NDArray[np.bool_]:
        """Return which series have one of the names; the same names are asked for at every tick."""
        if self._asked[0] != names:
            known = set(names)
            self._asked = names, np.array([name in known for name in self._names], dtype=bool)
        return self._asked[1]

    def _intern(self, rows: IntArray, interner: Interner) -> None:
        keys = [self._keys[i] for i in rows.tolist()]
        unknown = [key for key in keys if key not in interner.codes]
        if unknown:
            with gc_pause():
                interner.add_many(unknown)
        self._codes[rows] = [interner.codes[key] for key in keys]

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

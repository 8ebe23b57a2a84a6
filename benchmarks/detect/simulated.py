"""A simulated case as a source of samples, generated as it is replayed; and whether its faults show."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect.incidents import CaseSpec
from detector.source.base import Batch, Interner
from simulator.cluster import Cluster
from simulator.faults import Fault

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

N_WITNESSES = 16
"""Nodes with which an affected node is compared to see whether a fault shows."""

VISIBLE_Z, VISIBLE_TICKS, VISIBLE_WITHIN = 4.0, 4, 40
"""A fault shows when a signal is this many noise widths off, in this many scrapes of that many."""


class SimulatedSource:
    """Samples of a simulated cluster, tick by tick: nothing is kept but the rows asked for.

    Parameters
    ----------
    cluster
        A cluster that has not ticked yet.
    keep : ndarray of shape (n_rows,)
        Series whose samples are kept, see `kept`.
    """

    def __init__(self, cluster: Cluster, keep: IntArray | None = None) -> None:
        self._cluster = cluster
        self._step_ms = round(cluster.config.step_s * 1000)
        self._next_ms = round(cluster.config.start * 1000)
        self._keys = [json.dumps(s, separators=(",", ":")).encode() for s in cluster.series]
        self._names = np.array([s["__name__"] for s in cluster.series])
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
        wanted = np.isin(self._names, list(names))
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

    def _intern(self, rows: IntArray, interner: Interner) -> None:
        keys = [self._keys[i] for i in rows.tolist()]
        unknown = [key for key in keys if key not in interner.codes]
        if unknown:
            interner.add_many(unknown)
        self._codes[rows] = [interner.codes[key] for key in keys]

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class Witness:
    """Tells which faults of a case leave a trace in the samples of their node.

    Parameters
    ----------
    case
        The case.
    """

    def __init__(self, case: CaseSpec) -> None:
        self._case = case
        cluster = case.without_faults()
        self._cluster = cluster
        names = case.config.node_names
        faulty = sorted({names.index(f.node) for f in case.faults})
        rng = np.random.default_rng([case.seed, 9])
        sound = [i for i in range(case.config.train_nodes) if i not in faulty]
        witnesses = rng.permutation(sound)[:N_WITNESSES]
        self._nodes = np.concatenate([np.array(faulty, dtype=np.int64), np.sort(witnesses)])
        self._n_faulty = len(faulty)
        self._shapes = [(c, len(self._nodes), k) for _, (c, _, k) in cluster.blocks]
        rows = [
            first + (np.arange(c)[:, None, None] * n + self._nodes[:, None]) * k + np.arange(k)
            for first, (c, n, k) in cluster.blocks
        ]
        self.rows: IntArray = np.concatenate([r.reshape(-1) for r in rows])

    def visible(self, kept: FloatArray) -> tuple[bool, ...]:
        """Compare with the same cluster without the faults, of the same seed.

        Parameters
        ----------
        kept : ndarray of shape (n_ticks, n_rows)
            Samples of `rows` in the case.

        Returns
        -------
        tuple of bool
            One for each of the case's node faults.
        """
        case, step = self._case, self._case.config.step_s
        times = case.start + step * np.arange(len(kept))
        sound = np.array([self._cluster.tick(at)[0][self.rows] for at in times.tolist()])
        seen = np.zeros((len(times), self._n_faulty), dtype=np.int64)
        at = 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            here = slice(at, at + size)
            at += size
            ours, theirs = (x[:, here].reshape(-1, *shape) for x in (kept, sound))
            seen = np.maximum(seen, self._longest(ours, theirs, len(times)))
        found = []
        names = case.config.node_names
        column = {int(node): i for i, node in enumerate(self._nodes[: self._n_faulty])}
        for fault in case.node_faults:
            during = (times >= fault.onset) & (times <= fault.end + 2 * step)
            marks = seen[during, column[names.index(fault.node)]]
            found.append(bool(fault.codes) or self._is_down(fault) or bool(marks.max(initial=0)))
        return tuple(found)

    @staticmethod
    def _is_down(fault: Fault) -> bool:
        return fault.kind == "machine_down"

    def _longest(self, ours: FloatArray, theirs: FloatArray, n_ticks: int) -> IntArray:
        """Mark the ticks from which on some signal of a faulty node was off often enough."""
        marks = np.zeros((n_ticks, self._n_faulty), dtype=np.int64)
        for a, b in ((ours, theirs), (np.diff(ours, axis=0), np.diff(theirs, axis=0))):
            count: IntArray = np.cumsum(_off(a, b, self._n_faulty), axis=0, dtype=np.int64)
            ago = np.zeros_like(count)
            ago[VISIBLE_WITHIN:] = count[:-VISIBLE_WITHIN]
            enough = np.any(count - ago >= VISIBLE_TICKS, axis=(1, 3))
            marks[n_ticks - len(a) :] |= enough
        return marks


def _off(ours: FloatArray, theirs: FloatArray, n_faulty: int) -> NDArray[np.bool_]:
    """Which samples of the first nodes differ from their own without the fault by more than noise.

    Both have the shape (time, signal, node, part); what happens to all nodes is taken away first.
    """
    with np.errstate(all="ignore"):
        change = ours - theirs
        centred = theirs - _median(theirs, 0)
        noise = centred - _median(centred[:, :, n_faulty:], 2)
        width = (
            1.4826
            * _median(
                np.abs(noise[:, :, n_faulty:])
                .transpose(1, 3, 0, 2)
                .reshape(noise.shape[1], noise.shape[3], -1),
                2,
            )[:, :, 0]
        )
        common = _median(change[:, :, n_faulty:], 2)
        around = 1.4826 * _median(np.abs(change[:, :, n_faulty:] - common), 2)
        own = change[:, :, :n_faulty] - common
        tiny = 1e-6 * np.abs(theirs[:, :, :n_faulty]) + 1e-12
        scale = np.fmax(np.fmax(width[None, :, None, :], around), tiny)
        far = np.abs(own) > VISIBLE_Z * scale
    gone = np.isnan(ours) & ~np.isnan(theirs)
    alone = gone[:, :, :n_faulty] & (gone[:, :, n_faulty:].mean(axis=2, keepdims=True) < 0.5)
    return np.asarray(far | alone)


def _median(values: FloatArray, axis: int) -> FloatArray:
    """Median without NaN, keeping the axis; NaN where all are, without a warning."""
    ordered = np.sort(values, axis=axis)
    count = np.sum(~np.isnan(ordered), axis=axis, keepdims=True)
    middle = np.clip((count - 1) // 2, 0, None)
    return np.take_along_axis(ordered, middle, axis=axis)

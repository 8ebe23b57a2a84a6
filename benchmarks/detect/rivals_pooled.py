"""The Mahalanobis baseline: all signals of a node as one point among those of its peers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect.matrix import CaseMatrix, flags_of_nodes
from benchmarks.detect.rivals_learnt import WINDOW, Candidates, candidates, nearest_filled
from benchmarks.detect.rivals_rules import EVERY, FOUR_MINUTES, LISTS, Setting
from detector.evaluation.model import Flag

COMPONENTS = (1, 2, 3, 6, 12, 18)
"""The smallest cluster has 24 nodes."""

THRESHOLDS = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 40.0, 80.0)

LEAST_NODES = 4

Doubles = NDArray[np.float64]
Prepared = dict[tuple[str, int], Candidates]


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Mahalanobis distance of each node in the pooled signals, four minutes.

    The mean and the deviation of each signal over a window of eight samples are standardised over
    the nodes and reduced by PCA, as there are more signals than nodes. A node is compared with a
    distribution it took no part in, so that it can't hide itself; the distance is put as a ratio
    to the usual one, which is near 1 for any number of nodes and components.
    """

    name: str = "Mahalanobis (Minder's baseline)"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, principal components, threshold."""
        return tuple((w, k, t) for w in EVERY for k in COMPONENTS for t in THRESHOLDS)

    def prepare(self, matrix: CaseMatrix) -> Prepared:
        """Find the farthest node at each time, by list of metrics and number of components."""
        keys, values = matrix.by_node()
        filled = nearest_filled(values)
        found: Prepared = {}
        for which in EVERY:
            used = [i for i, k in enumerate(keys) if which == "all" or k.split(" ", 1)[0] in LISTS[which]]
            score = np.full((len(COMPONENTS), len(filled), len(matrix.pool)), np.nan, np.float32)
            for t in range(WINDOW - 1, len(filled) if len(matrix.pool) >= LEAST_NODES else 0):
                features = _features(filled[t - WINDOW + 1 : t + 1, used])
                for i, distances in enumerate(_distances(features)):
                    score[i, t] = distances
            for i, k in enumerate(COMPONENTS):
                found[which, k] = candidates(score[i], matrix.ticks(FOUR_MINUTES))
        return found

    def flags(self, matrix: CaseMatrix, prepared: Prepared, setting: Setting) -> list[Flag]:
        """Name the farthest node when it stays the farthest and beyond the threshold."""
        which, k, threshold = setting
        there = prepared[which, k]
        alarmed = np.zeros((len(matrix.times), len(matrix.pool)), dtype=bool)
        fired = np.flatnonzero(there.z > threshold)
        alarmed[fired, there.node[fired]] = True
        return flags_of_nodes(matrix, alarmed)


def _features(window: NDArray[np.float32]) -> Doubles:
    """Mean and deviation over the window, standardised over the nodes, shape (n_features, n_nodes)."""
    window = window.astype(np.float64)
    rows = np.concatenate([window.mean(axis=0), window.std(axis=0)])
    rows = rows[np.isfinite(rows).all(axis=1)]
    apart = rows - rows.mean(axis=1, keepdims=True)
    spread = apart.std(axis=1, keepdims=True)
    varies = spread[:, 0] > 1e-6 * np.abs(rows).max(axis=1, initial=0.0) + 1e-12
    return np.asarray(apart[varies] / spread[varies])


def _distances(features: Doubles) -> list[Doubles]:
    """Return for each number of components the distance of each node as a ratio to the usual one."""
    n = features.shape[1]
    if len(features) < 3:
        return []
    size, right = np.linalg.eigh(features.T @ features)
    size, right = size[::-1], right[:, ::-1]
    rank = int((size > 1e-9 * size[0]).sum())
    found = []
    for k in COMPONENTS:
        used = max(1, min(k, rank, n - 2))
        share = (right[:, :used] ** 2).sum(axis=1)
        rest = np.maximum(1 - 1 / n - share, 1e-6)
        found.append(np.sqrt(share / rest * (n - used - 1) / used))
    return found

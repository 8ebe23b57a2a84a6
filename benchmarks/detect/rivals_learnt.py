"""Rivals that learn from the train split: Mahalanobis distance, and Minder written anew.

Minder has no public code. This follows its published description (one denoiser per metric on
windows of eight samples, pairwise Euclidean distance, continuity of four minutes, metrics in the
order of a decision tree, the first metric that names a machine decides) with PCA as the denoiser.
At one sample per 30 s a window of eight is four minutes and not eight seconds: a port, not the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from benchmarks.detect.matrix import Bools, CaseMatrix, Floats, flags_of_nodes, lasting
from benchmarks.detect.rivals_rules import FOUR_MINUTES, Setting
from detector.evaluation.model import Flag
from detector.source.incident_file import Recording

WINDOW = 8
LATENT = (1, 2, 4)
"""Components kept of eight."""

COMPONENTS = (3, 6, 12, 18)
"""Of the Mahalanobis distance; the smallest cluster has 24 nodes."""

MAX_ROWS_PER_CASE = 400
"""Windows of one signal of one case from which denoisers learn."""

TREE_DEPTH = 8

Seen = Iterable[tuple[CaseMatrix, Recording]]


@dataclass(slots=True)
class _Denoiser:
    """Range and principal directions of one signal."""

    low: float
    high: float
    mean: NDArray[np.float64]
    directions: NDArray[np.float64]


@dataclass(slots=True)
class Minder:
    """Minder with a PCA denoiser.

    Parameters
    ----------
    name
        Name in tables.
    denoisers
        By signal, once trained.
    order
        Signals, the most telling first, once trained.
    """

    name: str = "Minder, re-implemented (PCA)"
    denoisers: dict[str, _Denoiser] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Components, number of signals in order, threshold of the normal score."""
        return tuple(
            (latent, top, threshold)
            for latent in LATENT
            for top in (3, 7, 15, 1000)
            for threshold in (2.5, 3.5, 4.5, 5.5, 7.0)
        )

    def train(self, seen: Seen) -> None:
        """Learn ranges, denoisers and the order of the signals.

        Parameters
        ----------
        seen
            Train cases; read once.
        """
        rng = np.random.default_rng(7)
        samples: dict[str, list[NDArray[np.float64]]] = {}
        features: list[dict[str, NDArray[np.float64]]] = []
        labels: list[NDArray[np.bool_]] = []
        for matrix, recording in seen:
            keys, values = matrix.by_node()
            filled = nearest_filled(values)
            peaks = {}
            for s, key in enumerate(keys):
                windows = np.lib.stride_tricks.sliding_window_view(filled[:, s], WINDOW, axis=0)
                flat = windows.reshape(-1, WINDOW)
                flat = flat[np.isfinite(flat).all(axis=1)]
                if len(flat):
                    chosen = rng.integers(len(flat), size=min(len(flat), MAX_ROWS_PER_CASE))
                    samples.setdefault(key, []).append(flat[chosen].astype(np.float64))
                peaks[key] = _peak_z(filled[:, s])
            features.append(peaks)
            labels.append(_labels(matrix, recording))
        self.denoisers = {key: _denoiser(np.vstack(found)) for key, found in sorted(samples.items())}
        self.order = _order(sorted(self.denoisers), features, labels)

    def prepare(self, matrix: CaseMatrix) -> dict[tuple[int, str], Floats]:
        """Compute the normal score of every node for every signal in the order."""
        keys, values = matrix.by_node()
        filled = nearest_filled(values)
        position = {key: s for s, key in enumerate(keys)}
        found = {}
        for key in self.order:
            if key in position:
                for latent in LATENT:
                    found[latent, key] = normal_scores(filled[:, position[key]], self.denoisers[key], latent)
        return found

    def flags(
        self, matrix: CaseMatrix, prepared: dict[tuple[int, str], Floats], setting: Setting
    ) -> list[Flag]:
        """Let the first signal with a lasting candidate decide, at each evaluation."""
        latent, top, threshold = setting
        alarmed = np.zeros((len(matrix.times), len(matrix.pool)), dtype=bool)
        undecided = np.ones(len(matrix.times), dtype=bool)
        for key in self.order[:top]:
            if (latent, key) in prepared:
                mine = lasting(candidates(prepared[latent, key], threshold), FOUR_MINUTES)
                alarmed |= mine & undecided[:, None]
                undecided &= ~mine.any(axis=1)
        return flags_of_nodes(matrix, alarmed)


def nearest_filled(values: Floats) -> Floats:
    """Fill gaps with the sample before (the nearest that is known at the time), along axis 0."""
    out = values.copy()
    for t in range(1, len(out)):
        gap = np.isnan(out[t])
        out[t][gap] = out[t - 1][gap]
    return out


def candidates(score: Floats, threshold: float) -> Bools:
    """Mark at each time the member with the highest score, if it is above the threshold."""
    best = np.argmax(score, axis=1)
    found = np.zeros(score.shape, dtype=bool)
    rows = np.arange(len(score))
    found[rows, best] = score[rows, best] > threshold
    return found


def normal_scores(values: Floats, denoiser: _Denoiser, latent: int) -> Floats:
    """Sum of distances to all others between denoised windows, as a z-score over the nodes.

    Parameters
    ----------
    values : ndarray of shape (n_ticks, n_nodes)
        One signal without gaps inside; NaN where a node never had it.

    Returns
    -------
    ndarray of shape (n_ticks, n_nodes)
        -inf where there is no full window.
    """
    out = np.full(values.shape, -np.inf, dtype=np.float32)
    scaled = (values - denoiser.low) / (denoiser.high - denoiser.low)
    for t in range(WINDOW - 1, len(values)):
        window = scaled[t - WINDOW + 1 : t + 1].T.astype(np.float64)
        there = np.isfinite(window).all(axis=1)
        if there.sum() < 3:
            continue
        # projections are orthogonal, so distances between reconstructions are those of the components
        code = (window[there] - denoiser.mean) @ denoiser.directions[:latent].T
        square = (code**2).sum(axis=1)
        apart = np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * code @ code.T, 0))
        total = apart.sum(axis=1)
        spread = total.std()
        if spread > 1e-9:
            out[t, there] = (total - total.mean()) / spread
    return out


def _denoiser(flat: NDArray[np.float64]) -> _Denoiser:
    low, high = float(flat.min()), float(flat.max())
    high = high if high > low else low + 1.0
    scaled = (flat - low) / (high - low)
    mean = scaled.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov((scaled - mean).T))
    return _Denoiser(low, high, mean, directions[:, ::-1].T.copy())


def _peak_z(values: Floats) -> NDArray[np.float64]:
    """Highest mean-and-deviation z-score of any node at each time, 0 when nothing varies."""
    there = np.isfinite(values)
    n = np.maximum(there.sum(axis=1, keepdims=True), 1)
    filled = np.where(there, values, 0).astype(np.float64)
    mean = filled.sum(axis=1, keepdims=True) / n
    apart = np.where(there, np.abs(filled - mean), 0)
    spread = np.sqrt((apart**2).sum(axis=1, keepdims=True) / n)
    return np.asarray((apart / np.maximum(spread, 1e-12)).max(axis=1) * (spread[:, 0] > 1e-9))


def _labels(matrix: CaseMatrix, recording: Recording) -> NDArray[np.bool_]:
    found = np.zeros(len(matrix.times), dtype=bool)
    for fault in recording.faults:
        found |= (matrix.times >= fault.onset) & (matrix.times <= fault.end)
    return found


def _order(
    keys: Sequence[str],
    features: Sequence[dict[str, NDArray[np.float64]]],
    labels: Sequence[NDArray[np.bool_]],
) -> tuple[str, ...]:
    """Order signals by a decision tree that tells faulty from healthy times."""
    rows = np.vstack(
        [
            np.column_stack([peaks.get(key, np.zeros(len(label))) for key in keys])
            for peaks, label in zip(features, labels, strict=True)
        ]
    )
    tree = DecisionTreeClassifier(
        max_depth=TREE_DEPTH, min_samples_leaf=20, class_weight="balanced", random_state=0
    )
    tree.fit(rows, np.concatenate(labels))
    weight = tree.feature_importances_
    return tuple(keys[i] for i in np.argsort(-weight, kind="stable").tolist() if weight[i] > 0)


@dataclass(slots=True)
class Mahalanobis:
    """Mahalanobis distance of each node in the pooled signals, four minutes.

    Signals are averaged over a window of eight samples, standardised over the nodes, reduced
    by PCA as there are more signals than nodes, and compared with the other nodes of that time.
    """

    name: str = "Mahalanobis (Minder's baseline)"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Principal components, threshold."""
        return tuple((k, t) for k in COMPONENTS for t in (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0))

    def prepare(self, matrix: CaseMatrix) -> dict[int, Floats]:
        """Compute distances, shape (n_ticks, n_pool), by number of components."""
        _, values = matrix.by_node()
        filled = nearest_filled(values)
        out = {k: np.full((len(filled), len(matrix.pool)), -np.inf, np.float32) for k in COMPONENTS}
        for t in range(WINDOW - 1, len(filled)):
            pooled = filled[t - WINDOW + 1 : t + 1].mean(axis=0)
            pooled = pooled[np.isfinite(pooled).all(axis=1)].astype(np.float64)
            apart = pooled - pooled.mean(axis=1, keepdims=True)
            spread = apart.std(axis=1, keepdims=True)
            apart = apart[spread[:, 0] > 1e-9] / spread[spread[:, 0] > 1e-9]
            if len(apart) < 3:
                continue
            _, size, right = np.linalg.svd(apart, full_matrices=False)
            whitened = right * np.sqrt(apart.shape[1])
            for k in out:
                kept = whitened[: min(k, int((size > 1e-6 * size[0]).sum()))]
                out[k][t] = np.sqrt((kept**2).sum(axis=0))
        return out

    def flags(self, matrix: CaseMatrix, prepared: dict[int, Floats], setting: Setting) -> list[Flag]:
        """Name the farthest node when it stays the farthest and beyond the threshold."""
        k, threshold = setting
        return flags_of_nodes(matrix, lasting(candidates(prepared[k], threshold), FOUR_MINUTES))

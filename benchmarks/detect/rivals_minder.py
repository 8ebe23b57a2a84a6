"""Minder with the denoisers of the normal install: PCA, and an autoencoder of scikit-learn."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from benchmarks.detect.matrix import Floats
from benchmarks.detect.rivals_learnt import Denoiser, Doubles, Minder


@dataclass(frozen=True, slots=True)
class Projection:
    """A PCA denoiser: mean and the first principal directions, shape (latent, 8)."""

    mean: Doubles
    directions: Doubles

    def __call__(self, windows: Floats) -> Floats:
        """Project."""
        code = (windows.astype(np.float64) - self.mean) @ self.directions.T
        return (self.mean + code @ self.directions).astype(np.float32)


class MinderPca(Minder):
    """Minder with a PCA of 1, 2 or 4 components as the denoiser."""

    def __init__(self) -> None:
        super().__init__("Minder, re-implemented (PCA)", (1, 2, 4))

    def fitted(self, windows: dict[str, Floats]) -> dict[tuple[int, str], Denoiser]:
        """Return projections."""
        found: dict[tuple[int, str], Denoiser] = {}
        for key, flat in windows.items():
            rows = flat.astype(np.float64)
            mean = rows.mean(axis=0)
            scatter = (rows - mean).T @ (rows - mean)
            _, directions = np.linalg.eigh(scatter)
            for latent in self.variants:
                found[latent, key] = Projection(mean, directions[:, ::-1].T[:latent].copy())
        return found


@dataclass(frozen=True, slots=True)
class Layers:
    """An autoencoder of tanh layers and a linear output."""

    weights: tuple[Doubles, ...]
    offsets: tuple[Doubles, ...] = field(repr=False)

    def __call__(self, windows: Floats) -> Floats:
        """Reconstruct."""
        x = windows.astype(np.float64)
        for weight, offset in zip(self.weights[:-1], self.offsets[:-1], strict=True):
            x = np.tanh(x @ weight + offset)
        return np.asarray(x @ self.weights[-1] + self.offsets[-1]).astype(np.float32)


class MinderMlp(Minder):
    """Minder with an autoencoder of layers 8, 4 and 8 as the denoiser."""

    def __init__(self) -> None:
        super().__init__("Minder, re-implemented (MLP autoencoder)")

    def fitted(self, windows: dict[str, Floats]) -> dict[tuple[int, str], Denoiser]:
        """Return autoencoders; too few windows end early, which is no matter here."""
        found: dict[tuple[int, str], Denoiser] = {}
        for key, flat in windows.items():
            net = MLPRegressor(
                hidden_layer_sizes=(8, 4, 8),
                activation="tanh",
                learning_rate_init=0.01,
                max_iter=60,
                random_state=7,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                net.fit(flat.astype(np.float64), flat.astype(np.float64))
            found[0, key] = Layers(tuple(net.coefs_), tuple(net.intercepts_))
        return found

"""Minder with the denoiser of the paper, an LSTM-VAE per metric; needs PyTorch, the extra ``minder``.

PyTorch only trains. All models are trained side by side as one stack of weights, which gives each
the same gradients as on its own and costs one pass instead of many; what is kept are plain arrays,
so that scoring needs no PyTorch and is the same in every process.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.detect.matrix import Floats
from benchmarks.detect.rivals_learnt import WINDOW, Denoiser, Minder

HIDDEN, LATENT = 4, 8
N_ROWS, BATCH, EPOCHS, RATE = 2048, 256, 60, 0.01
KL_WEIGHT = 1e-4
"""Weight of the divergence from the prior: with more, windows aren't reconstructed as well as published."""

WANTING = "not run: extra minder not installed"

Weights = dict[str, Floats]


def available() -> bool:
    """Tell whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def _sizes() -> dict[str, tuple[int, int]]:
    gates = 4 * HIDDEN
    return {
        "encoder_in": (1, gates),
        "encoder_back": (HIDDEN, gates),
        "encoder_offset": (1, gates),
        "mean": (HIDDEN, LATENT),
        "mean_offset": (1, LATENT),
        "spread": (HIDDEN, LATENT),
        "spread_offset": (1, LATENT),
        "decoder_in": (LATENT, gates),
        "decoder_back": (HIDDEN, gates),
        "decoder_offset": (1, gates),
        "out": (HIDDEN, 1),
        "out_offset": (1, 1),
    }


@dataclass(frozen=True, slots=True)
class LstmVae:
    """A trained model of one metric; reconstructs from the mean of the latent distribution.

    Parameters
    ----------
    weights
        By name, see `_sizes`.
    """

    weights: Weights

    def __call__(self, windows: Floats) -> Floats:
        """Encode and decode windows of shape (n, 8)."""
        w = self.weights
        x = np.clip(windows, -1.0, 2.0).astype(np.float32)
        hidden = cell = np.zeros((len(x), HIDDEN), dtype=np.float32)
        for t in range(WINDOW):
            given = x[:, t : t + 1] @ w["encoder_in"] + w["encoder_offset"]
            hidden, cell = _lstm_step(given + hidden @ w["encoder_back"], cell)
        code = hidden @ w["mean"] + w["mean_offset"]
        given = code @ w["decoder_in"] + w["decoder_offset"]
        hidden = cell = np.zeros_like(hidden)
        out = np.empty_like(x)
        for t in range(WINDOW):
            hidden, cell = _lstm_step(given + hidden @ w["decoder_back"], cell)
            out[:, t : t + 1] = hidden @ w["out"] + w["out_offset"]
        return out


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def _lstm_step(gates: Floats, cell: Floats) -> tuple[Floats, Floats]:
    """One step: gates in the order input, forget, output, new."""
    opened = _sigmoid(gates[:, : 3 * HIDDEN])
    new = np.tanh(gates[:, 3 * HIDDEN :])
    cell = opened[:, HIDDEN : 2 * HIDDEN] * cell + opened[:, :HIDDEN] * new
    return opened[:, 2 * HIDDEN :] * np.tanh(cell), cell


class MinderLstmVae(Minder):
    """Minder with an LSTM-VAE per metric: hidden 4, latent 8, window 8, one layer.

    Parameters
    ----------
    epochs
        Passes over the windows.
    error
        By signal: mean squared error of the windows it was trained on, once trained.
    """

    def __init__(self, epochs: int = EPOCHS) -> None:
        super().__init__("Minder, re-implemented (LSTM-VAE)")
        self.epochs = epochs
        self.error: dict[str, float] = {}

    def fitted(self, windows: dict[str, Floats]) -> dict[tuple[int, str], Denoiser]:
        """Train the models of all metrics side by side."""
        if not windows:
            return {}
        rng = np.random.default_rng(7)
        rows = np.stack([w[rng.integers(len(w), size=N_ROWS)] for w in windows.values()])
        models = [LstmVae(weights) for weights in trained(rows, self.epochs)]
        for key, model, flat in zip(windows, models, rows, strict=True):
            self.error[key] = float(np.mean((model(flat) - flat) ** 2))
        return {(0, key): model for key, model in zip(windows, models, strict=True)}


def trained(rows: Floats, epochs: int) -> list[Weights]:
    """Train one model per metric.

    Parameters
    ----------
    rows : ndarray of shape (n_metrics, n_windows, 8)
        Scaled to about 0 to 1.
    epochs
        Passes over the windows.

    Returns
    -------
    list of dict
        Weights of each model.
    """
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    data = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
    n_metrics, n_rows, _ = data.shape
    p: dict[str, Any] = {}
    for name, (n_in, n_out) in _sizes().items():
        # one draw for all metrics: a model does not depend on which others are trained
        start = torch.randn((1, n_in, n_out), generator=generator) * (0.4 if n_in > 1 else 0.1)
        p[name] = start.repeat(n_metrics, 1, 1).requires_grad_(True)
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in p.items()}
    size = min(BATCH, n_rows)
    n_steps = epochs * (n_rows // size)
    done = 0
    for _ in range(epochs):
        order = torch.randperm(n_rows, generator=generator)
        for first in range(0, n_rows - size + 1, size):
            batch = data[:, order[first : first + size]]
            noise = torch.randn((1, size, LATENT), generator=generator)
            gradients = torch.autograd.grad(_loss(torch, p, batch, noise), list(p.values()))
            done += 1
            rate = RATE * 0.5 * (1 + math.cos(math.pi * done / n_steps))
            with torch.no_grad():
                for (name, value), gradient in zip(p.items(), gradients, strict=True):
                    _adam(value, gradient, moments[name], rate, done)
    arrays = {name: value.detach().numpy() for name, value in p.items()}
    return [{name: value[i].copy() for name, value in arrays.items()} for i in range(n_metrics)]


def _adam(value: Any, gradient: Any, moments: tuple[Any, Any], rate: float, done: int) -> None:
    """One step of Adam in place; the optimisers that come with PyTorch take seconds to load."""
    mean, square = moments
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    wide = (square / (1 - 0.999**done)).sqrt_().add_(1e-8)
    value.addcdiv_(mean, wide, value=-rate / (1 - 0.9**done))


def _loss(torch: Any, p: dict[str, Any], batch: Any, noise: Any) -> Any:
    """Squared error and weighted divergence, means over the batch, summed over the metrics."""

    def step(gates: Any, cell: Any) -> tuple[Any, Any]:
        opened = torch.sigmoid(gates[..., : 3 * HIDDEN])
        new = torch.tanh(gates[..., 3 * HIDDEN :])
        cell = opened[..., HIDDEN : 2 * HIDDEN] * cell + opened[..., :HIDDEN] * new
        return opened[..., 2 * HIDDEN :] * torch.tanh(cell), cell

    hidden = cell = torch.zeros((*batch.shape[:2], HIDDEN))
    for t in range(WINDOW):
        given = batch[:, :, t : t + 1] @ p["encoder_in"] + p["encoder_offset"]
        hidden, cell = step(given + hidden @ p["encoder_back"], cell)
    mean = hidden @ p["mean"] + p["mean_offset"]
    spread = hidden @ p["spread"] + p["spread_offset"]
    given = (mean + noise * torch.exp(0.5 * spread)) @ p["decoder_in"] + p["decoder_offset"]
    hidden = cell = torch.zeros_like(hidden)
    out = []
    for _ in range(WINDOW):
        hidden, cell = step(given + hidden @ p["decoder_back"], cell)
        out.append(hidden @ p["out"] + p["out_offset"])
    error = ((torch.cat(out, dim=-1) - batch) ** 2).mean(dim=(1, 2))
    divergence = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(dim=-1).mean(dim=1)
    return (error + KL_WEIGHT * divergence).sum()

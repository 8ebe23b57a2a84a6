"""Minder written anew: windows of each metric are denoised, and the node farthest from all others stays so.

Minder has no public code. This follows its published description: gaps are filled and each metric is
scaled by the range of the last fifteen minutes; one denoiser per metric on windows of eight samples,
learnt in healthy time; pairwise Euclidean distance of the denoised windows, summed per node and put as
a normal score; the same node is the farthest, and far enough, for four minutes; metrics in the order of
a decision tree; the first that names a node decides. At one sample per 30 s a window is four minutes
and not eight seconds: a port, not the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from benchmarks.detect.matrix import Bools, CaseMatrix, Floats, flags_of_nodes
from benchmarks.detect.rivals_history import healthy
from benchmarks.detect.rivals_rules import FOUR_MINUTES, Setting
from detector.evaluation.model import Flag
from detector.source.incident_file import Recording

WINDOW = 8
PULLED_S = 900.0
"""Each call sees the last fifteen minutes."""

MAX_ROWS_PER_CASE, MAX_ROWS = 400, 3000
"""Windows of one signal of one case, and of all cases, from which denoisers learn."""

TREE_DEPTH, MIN_LEAF = 7, 60
MAX_SIGNALS = 20
"""Signals of the tree that are kept: the lower ones rest on a handful of windows."""

PUBLISHED = (
    "node_infiniband_port_transmit_wait_total",
    "all_smi_cpu_utilization",
    "node_cpu_seconds_total user",
    "DCGM_FI_DEV_GPU_UTIL",
    "all_smi_gpu_utilization",
    "DCGM_FI_DEV_POWER_USAGE",
    "all_smi_gpu_power_consumption_watts",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
)
"""The published order of seven metrics by the names that stand for them here, PFC first."""

KINDS = (
    *PUBLISHED,
    "node_cpu_seconds_total system",
    "node_cpu_seconds_total idle",
    "node_memory_MemAvailable_bytes",
    "all_smi_memory_used_bytes",
    "node_filesystem_avail_bytes /",
    "node_disk_io_time_seconds_total md0",
    "node_network_receive_bytes_total net0",
    "node_network_transmit_bytes_total net0",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
    "DCGM_FI_DEV_FB_USED",
    "all_smi_gpu_memory_used_bytes",
    "DCGM_FI_DEV_GPU_TEMP",
    "all_smi_gpu_temperature_celsius",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_DEV_SM_CLOCK",
    "all_smi_gpu_frequency_mhz",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
)
"""What stands here for the metrics that Minder was given: with all others, too, a tree that sees some tens
of faults puts chance first."""

Z_SCORES = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0)
LEFT_OUT_SCORES = (3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0)

Doubles = NDArray[np.float64]
Seen = Iterable[tuple[CaseMatrix, Recording]]


class Denoiser(Protocol):
    """Maps windows of shape (..., 8) to windows of the same shape."""

    def __call__(self, windows: Floats) -> Floats:
        """Return the windows without what is not usual in them."""
        ...


@dataclass(frozen=True, slots=True)
class Lessons:
    """What all forms of Minder learn from.

    Parameters
    ----------
    windows
        By signal: scaled windows of healthy time, shape (n, 8).
    orders
        Signals, the most telling first: ``tree`` by a decision tree that tells faulty from healthy
        times and is given the kinds of metrics that Minder was given (all when there are none of them),
        ``tree of all`` by one that is given all, ``published`` as published.
    """

    windows: dict[str, Floats]
    orders: dict[str, tuple[str, ...]]

    @property
    def used(self) -> tuple[str, ...]:
        """Signals of any order."""
        return tuple(dict.fromkeys(key for order in self.orders.values() for key in order))


def lessons_of(seen: Seen) -> Lessons:
    """Collect windows of healthy time and the orders of the signals; reads the cases once."""
    rng = np.random.default_rng(7)
    samples: dict[str, list[Floats]] = {}
    features: list[dict[str, Doubles]] = []
    labels: list[Bools] = []
    for matrix, recording in seen:
        keys, values = matrix.by_node()
        filled = nearest_filled(values)
        quiet = healthy(matrix, recording)
        peaks = {}
        for s, key in enumerate(keys):
            windows = scaled_windows(filled[:, s], matrix.ticks(PULLED_S))[quiet]
            flat = windows.reshape(-1, WINDOW)
            flat = flat[np.isfinite(flat).all(axis=1)]
            if len(flat):
                chosen = rng.integers(len(flat), size=min(len(flat), MAX_ROWS_PER_CASE))
                samples.setdefault(key, []).append(flat[chosen])
            peaks[key] = _peak_z(filled[:, s])
        features.append(peaks)
        labels.append(_labels(matrix, recording))
    windows_by_key = {}
    for key, found in sorted(samples.items()):
        every = np.vstack(found)
        windows_by_key[key] = every[rng.permutation(len(every))[:MAX_ROWS]]
    keys = sorted(windows_by_key)
    kinds = [key for key in keys if key.strip() in KINDS] or keys
    orders = {
        "tree": _order(kinds, features, labels),
        "tree of all": _order(keys, features, labels),
        "published": tuple(k for name in PUBLISHED for k in keys if k.strip() == name),
    }
    return Lessons(windows_by_key, orders)


class Candidates(NamedTuple):
    """The farthest node at each time, shape (n_ticks,).

    Parameters
    ----------
    node
        Column of the farthest node.
    z, left_out
        Lowest score of the last four minutes, -inf unless the same node was the farthest all the time:
        as a z-score over all nodes, and against the other nodes only.
    """

    node: NDArray[np.int64]
    z: Floats
    left_out: Floats


class Minder:
    """Minder with some denoiser.

    Parameters
    ----------
    name
        Name in tables.
    variants
        Forms of the denoiser that settings choose from.
    """

    def __init__(self, name: str, variants: tuple[int, ...] = (0,)) -> None:
        self.name = name
        self.variants = variants
        self.denoisers: dict[tuple[int, str], Denoiser] = {}
        self.orders: dict[str, tuple[str, ...]] = {"tree": (), "tree of all": (), "published": ()}

    def order_of(self, setting: Setting) -> tuple[str, ...]:
        """Return the signals that a setting looks at, the first first."""
        _, order, top, *_ = setting
        return self.orders[order][:top]

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Form of the denoiser, order, number of signals in order, form and threshold of the score."""
        tops = [(order, n) for order in ("tree", "tree of all") for n in (1, 3, 7, 20)]
        tops.append(("published", len(PUBLISHED)))
        scores = [("z", t) for t in Z_SCORES] + [("left out", t) for t in LEFT_OUT_SCORES]
        return tuple((v, *top, *score) for v in self.variants for top in tops for score in scores)

    def learn(self, lessons: Lessons) -> None:
        """Fit a denoiser for every signal of an order."""
        self.orders = dict(lessons.orders)
        self.denoisers = self.fitted({key: lessons.windows[key] for key in lessons.used})

    def fitted(self, windows: dict[str, Floats]) -> dict[tuple[int, str], Denoiser]:
        """Return a denoiser for each variant and signal."""
        raise NotImplementedError

    def prepare(self, matrix: CaseMatrix) -> dict[tuple[int, str], Candidates]:
        """Find the farthest node at each time for every signal."""
        keys, values = matrix.by_node()
        position = {key: s for s, key in enumerate(keys)}
        found = {}
        n_ticks = matrix.ticks(FOUR_MINUTES)
        for (variant, key), denoiser in self.denoisers.items():
            if key in position:
                filled = nearest_filled(values[:, position[key]])
                windows = scaled_windows(filled, matrix.ticks(PULLED_S))
                found[variant, key] = candidates(normal_scores(windows, denoiser), n_ticks)
        return found

    def flags(
        self, matrix: CaseMatrix, prepared: dict[tuple[int, str], Candidates], setting: Setting
    ) -> list[Flag]:
        """Let the first signal with a lasting candidate decide, at each evaluation."""
        variant, _, _, form, threshold = setting
        alarmed = np.zeros((len(matrix.times), len(matrix.pool)), dtype=bool)
        undecided = np.ones(len(matrix.times), dtype=bool)
        for key in self.order_of(setting):
            if (variant, key) in prepared:
                there = prepared[variant, key]
                low = there.z if form == "z" else there.left_out
                fired = np.flatnonzero((low > threshold) & undecided)
                alarmed[fired, there.node[fired]] = True
                undecided[fired] = False
        return flags_of_nodes(matrix, alarmed)


def nearest_filled(values: Floats) -> Floats:
    """Fill gaps with the sample before (the nearest that is known at the time), along axis 0."""
    out = values.copy()
    for t in range(1, len(out)):
        gap = np.isnan(out[t])
        out[t][gap] = out[t - 1][gap]
    return out


def scaled_windows(values: Floats, n_pulled: int) -> Floats:
    """Cut windows that end at each time, scaled by the range of all nodes in the time that was pulled.

    Parameters
    ----------
    values : ndarray of shape (n_ticks, n_nodes)
        One signal without gaps inside; NaN where a node never had it.
    n_pulled
        Evaluations of one call, at least a window.

    Returns
    -------
    ndarray of shape (n_ticks, n_nodes, 8)
        NaN before the first full window.
    """
    n_ticks, n_nodes = values.shape
    out = np.full((n_ticks, n_nodes, WINDOW), np.nan, dtype=np.float32)
    if n_ticks < WINDOW:
        return out
    known = np.isfinite(values)
    lowest = np.where(known, values, np.inf).min(axis=1)
    highest = np.where(known, values, -np.inf).max(axis=1)
    n_pulled = max(WINDOW, n_pulled)
    for end in range(WINDOW, n_ticks + 1):
        first = max(0, end - n_pulled)
        low, high = lowest[first:end].min(), highest[first:end].max()
        if np.isfinite(low) and np.isfinite(high):
            out[end - 1] = ((values[end - WINDOW : end] - low) / (high - low if high > low else 1.0)).T
    return out


def normal_scores(windows: Floats, denoiser: Denoiser) -> Floats:
    """Sum of distances to all others between denoised windows, as a z-score over the nodes.

    Parameters
    ----------
    windows : ndarray of shape (n_ticks, n_nodes, 8)

    Returns
    -------
    ndarray of shape (n_ticks, n_nodes)
        NaN where there is no full window.
    """
    there = np.isfinite(windows).all(axis=2)
    clean = np.zeros(windows.shape, dtype=np.float32)
    clean[there] = denoiser(windows[there])
    out = np.full(windows.shape[:2], np.nan, dtype=np.float32)
    for t in np.flatnonzero(there.sum(axis=1) >= 3).tolist():
        points = clean[t, there[t]].astype(np.float64)
        square = (points**2).sum(axis=1)
        apart = np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * points @ points.T, 0))
        total = apart.sum(axis=1)
        spread = total.std()
        # distances of equal windows are not quite 0 when computed so
        if spread > 1e-6 * max(1.0, float(total.mean())):
            out[t, there[t]] = (total - total.mean()) / spread
    return out


def candidates(score: Floats, n_ticks: int) -> Candidates:
    """Return the node with the highest score at each time, and its lowest score while it stayed the highest.

    Parameters
    ----------
    score : ndarray of shape (n_ticks, n_nodes)
        z-scores over the nodes, NaN where there is none.
    n_ticks
        Evaluations over which it must be the same node.
    """
    filled = np.where(np.isfinite(score), score, -np.inf)
    node = np.argmax(filled, axis=1) if score.shape[1] else np.zeros(len(score), dtype=np.int64)
    peak = filled.max(axis=1, initial=-np.inf)
    n = np.isfinite(score).sum(axis=1)
    # the z-score of one of n can't exceed sqrt(n - 1); against the others alone it has no bound
    known = np.where(np.isfinite(peak), peak, 0)
    rest = np.maximum(1 - known**2 / np.maximum(n - 1, 1), 1e-6)
    alone = np.where(known > 0, known * np.sqrt(n / np.maximum(n - 1, 1) / rest), -np.inf)
    low = []
    for values in (peak, alone):
        kept = np.full(len(values), -np.inf, dtype=np.float32)
        for t in range(n_ticks - 1, len(values)):
            if (node[t - n_ticks + 1 : t + 1] == node[t]).all():
                kept[t] = values[t - n_ticks + 1 : t + 1].min()
        low.append(kept)
    return Candidates(node, low[0], low[1])


def _peak_z(values: Floats) -> Doubles:
    """Highest mean-and-deviation z-score of any node at each time, 0 when nothing varies."""
    there = np.isfinite(values)
    n = np.maximum(there.sum(axis=1, keepdims=True), 1)
    filled = np.where(there, values, 0).astype(np.float64)
    mean = filled.sum(axis=1, keepdims=True) / n
    apart = np.where(there, np.abs(filled - mean), 0)
    spread = np.sqrt((apart**2).sum(axis=1, keepdims=True) / n)
    varies = spread[:, 0] > 1e-6 * np.abs(mean[:, 0]) + 1e-12
    return np.asarray((apart / np.maximum(spread, 1e-12)).max(axis=1, initial=0.0) * varies)


def _labels(matrix: CaseMatrix, recording: Recording) -> Bools:
    found = np.zeros(len(matrix.times), dtype=bool)
    for fault in recording.faults:
        found |= (matrix.times >= fault.onset) & (matrix.times <= fault.end)
    return found


def _order(
    keys: Sequence[str], features: Sequence[dict[str, Doubles]], labels: Sequence[Bools]
) -> tuple[str, ...]:
    """Order signals by a decision tree that tells faulty from healthy times."""
    rows = np.vstack(
        [
            np.column_stack([peaks.get(key, np.zeros(len(label))) for key in keys])
            for peaks, label in zip(features, labels, strict=True)
        ]
    )
    tree = DecisionTreeClassifier(
        max_depth=TREE_DEPTH,
        min_samples_leaf=min(MIN_LEAF, max(1, len(rows) // 20)),
        class_weight="balanced",
        random_state=0,
    )
    told = np.concatenate(labels)
    if not told.any():
        # nothing to tell apart: any order is as good
        return tuple(keys[:MAX_SIGNALS])
    tree.fit(rows, told)
    weight = tree.feature_importances_
    first = np.argsort(-weight, kind="stable")[:MAX_SIGNALS]
    return tuple(keys[i] for i in first.tolist() if weight[i] > 0)

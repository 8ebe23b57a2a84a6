"""Rivals that look at one signal at a time: rules, z-scores, MAD and DBSCAN.

Each is written after its public description; where that leaves something open, the docstring
says what was chosen. All get the same aligned samples and the same peer groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect.matrix import Bools, CaseMatrix, Floats, flags_of_cells, lasting
from detector.evaluation.model import Flag
from grouping.layout import Block

Setting = tuple[Any, ...]

FOUR_MINUTES, TEN_MINUTES = 8, 20
"""In evaluations of 30 s."""

FEW = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_transmit_wait_total",
    "node_load1",
    "node_procs_running",
    "node_memory_MemAvailable_bytes",
)
"""A hand-picked set as a person would choose for a first alert."""

ALGALON = ("node_intr_total", "node_procs_running", "node_vmstat_pgpgout")
"""Metrics of the published rules (page-out by its node_exporter name)."""


class Rival(Protocol):
    """A detector whose few settings are chosen on the train split."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    @property
    def grid(self) -> Sequence[Setting]:
        """All settings that are tried."""
        ...

    def prepare(self, matrix: CaseMatrix) -> Any:
        """Compute what does not depend on the setting."""
        ...

    def flags(self, matrix: CaseMatrix, prepared: Any, setting: Setting) -> list[Flag]:
        """Return the flags of a case with one setting."""
        ...


def _chosen(matrix: CaseMatrix, which: str) -> Bools:
    """Cells of the metrics that a setting looks at."""
    if which == "all":
        return np.ones(len(matrix.cell_signal), dtype=bool)
    names = {"few": FEW, "algalon": ALGALON}[which]
    wanted = np.array([metric in names for metric in matrix.metrics], dtype=bool)
    return np.asarray(wanted[matrix.cell_signal])


def per_cell(matrix: CaseMatrix, score: Callable[[Block, Floats], Any], dtype: type = np.float32) -> Any:
    """Apply a function of one block to all blocks; the result has the shape (n_ticks, n_cells)."""
    out: NDArray[Any] = np.zeros(matrix.values.shape, dtype=dtype)
    with np.errstate(all="ignore"):
        for block, values in matrix.groups():
            result = np.asarray(score(block, values)).reshape(len(values), -1)
            out[:, block.cells] = result[:, block.positions]
    return out


def median_of(values: Floats) -> Floats:
    """Median over the members, NaN left out, keeping the axis; faster than `numpy.nanmedian`."""
    ordered = np.sort(values, axis=-1)
    count = np.sum(np.isfinite(ordered), axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.clip((count - 1) // 2, 0, None), axis=-1)
    high = np.take_along_axis(ordered, np.clip(count // 2, 0, values.shape[-1] - 1), axis=-1)
    return np.where(count >= 3, (low + high) / 2, np.nan).astype(np.float32)


@dataclass(frozen=True, slots=True)
class AnyError:
    """The rule "any XID or error counter": an alarm at once, held for ten minutes.

    Settings: XIDs only; also error counters of which any rise is a fault; all error counters.
    """

    name: str = "any XID or error counter"
    grid: tuple[Setting, ...] = (("codes",), ("telling",), ("all",))

    def prepare(self, matrix: CaseMatrix) -> None:
        """Nothing to compute."""

    def flags(self, matrix: CaseMatrix, prepared: None, setting: Setting) -> list[Flag]:
        """Hold each error for ten minutes."""
        every = np.ones_like(matrix.is_code)
        cells = {"codes": matrix.is_code, "telling": matrix.is_telling, "all": every}[setting[0]]
        odd = matrix.errors & cells
        return flags_of_cells(matrix, held(odd, TEN_MINUTES))


def held(odd: Bools, n_ticks: int) -> Bools:
    """Keep what was true for `n_ticks` rows."""
    count = np.cumsum(odd, axis=0, dtype=np.int32)
    ago = np.zeros_like(count)
    ago[n_ticks:] = count[:-n_ticks]
    return np.asarray(count > ago)


def _share(odd: Bools, n_ticks: int) -> Floats:
    """Share of the last `n_ticks` rows that were true."""
    count = np.cumsum(odd, axis=0, dtype=np.float32)
    ago = np.zeros_like(count)
    ago[n_ticks:] = count[:-n_ticks]
    return np.asarray((count - ago) / n_ticks)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A score per sample, a threshold, and how long it must be exceeded.

    Parameters
    ----------
    name
        Name in tables.
    score
        Values of a block to scores of the same shape.
    grid
        (which metrics, threshold).
    n_ticks
        Evaluations without a break.
    """

    name: str
    score: Callable[[Block, Floats], Floats]
    grid: tuple[Setting, ...]
    n_ticks: int = FOUR_MINUTES

    def prepare(self, matrix: CaseMatrix) -> Floats:
        """Compute the scores."""
        return np.asarray(per_cell(matrix, self.score))

    def flags(self, matrix: CaseMatrix, prepared: Floats, setting: Setting) -> list[Flag]:
        """Apply the threshold for long enough."""
        which, threshold = setting
        cells = _chosen(matrix, which)
        return flags_of_cells(matrix, lasting((prepared > threshold) & cells, self.n_ticks))


def _mean_z(_block: Block, x: Floats) -> Floats:
    known = np.isfinite(x)
    n = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    filled = np.where(known, x, 0).astype(np.float64)
    mean = filled.sum(axis=-1, keepdims=True) / n
    spread = np.sqrt((np.where(known, (x - mean) ** 2, 0)).sum(axis=-1, keepdims=True) / n)
    z = np.abs(x - mean) / spread
    return np.where(spread > 1e-6 * np.abs(mean), z, 0).astype(np.float32)


def _robust_z(_block: Block, x: Floats, *, floor: float) -> Floats:
    """Scores whose scale is at least a share of the median."""
    middle = median_of(x)
    apart = np.abs(x - middle)
    scale = 1.4826 * median_of(apart)
    return np.asarray(apart / np.maximum(scale, floor * np.abs(middle) + 1e-9))


def _ratio(_block: Block, x: Floats) -> Floats:
    middle = median_of(x)
    return np.where(middle > 0, np.maximum(x / middle, middle / np.maximum(x, 1e-9)), 0)


def _algalon(_block: Block, x: Floats) -> Floats:
    middle = median_of(x)
    return np.where(middle > 0, (x < 0.5 * middle) | (x > 4 * middle + 1), 0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class DatadogMad:
    """MAD outliers: tolerance for a sample, pct of samples of the window for a member.

    The scaled form keeps tight groups of large values quiet; here its scale is at least one
    per cent of the median. The window is ten minutes.
    """

    name: str = "MAD (tolerance, pct)"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, tolerance, pct, scaled."""
        return tuple(
            (which, tolerance, pct, scaled)
            for which in ("few", "all")
            for tolerance in (3.0, 5.0, 10.0, 20.0, 50.0)
            for pct in (0.3, 0.6, 0.9)
            for scaled in (False, True)
        )

    def prepare(self, matrix: CaseMatrix) -> tuple[Floats, Floats]:
        """Compute deviations in MADs, plain and scaled."""
        return per_cell(matrix, _mads(0.0)), per_cell(matrix, _mads(0.01))

    def flags(self, matrix: CaseMatrix, prepared: tuple[Floats, Floats], setting: Setting) -> list[Flag]:
        """Count the odd samples of the window."""
        which, tolerance, pct, scaled = setting
        odd = (prepared[int(scaled)] > tolerance) & _chosen(matrix, which)
        ever = np.flatnonzero(odd.any(axis=0))
        alarmed = np.zeros(odd.shape, dtype=bool)
        alarmed[:, ever] = _share(odd[:, ever], TEN_MINUTES) >= pct - 1e-9
        return flags_of_cells(matrix, alarmed)


def _mads(relative: float) -> Callable[[Block, Floats], Floats]:
    def score(_block: Block, x: Floats) -> Floats:
        middle = median_of(x)
        apart = np.abs(x - middle)
        return np.asarray(apart / np.maximum(median_of(apart), relative * np.abs(middle) + 1e-9))

    return score


@dataclass(frozen=True, slots=True)
class DatadogDbscan:
    """DBSCAN outliers: a member is a point of twenty dimensions, one per sample of ten minutes.

    The radius is the median distance to the median series times the tolerance. Members within
    it are the cluster, to which others are added as long as one of it is within the radius:
    that is the largest cluster unless the group is split in halves. Looked at every two minutes.
    """

    name: str = "DBSCAN (tolerance)"
    every: int = 4

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, tolerance."""
        return tuple((which, t) for which in ("few", "all") for t in (2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 200.0))

    def prepare(self, matrix: CaseMatrix) -> None:
        """Nothing to keep: windows are too large."""

    def flags(self, matrix: CaseMatrix, prepared: None, setting: Setting) -> list[Flag]:
        """Grow the cluster in each window."""
        which, tolerance = setting
        wanted = _chosen(matrix, which)
        alarmed = np.zeros(matrix.values.shape, dtype=bool)
        for block, values in matrix.groups():
            used = np.unique(block.positions[wanted[block.cells]] // block.n_columns)
            if not len(used):
                continue
            out = np.zeros(values.shape, dtype=bool)
            with np.errstate(all="ignore"):
                for t in range(TEN_MINUTES, len(values) + 1, self.every):
                    window = values[t - TEN_MINUTES : t, used].transpose(1, 2, 0)
                    out[t - 1 : t - 1 + self.every, used] = _outside(window, tolerance)
            alarmed[:, block.cells] = out.reshape(len(values), -1)[:, block.positions]
        return flags_of_cells(matrix, alarmed & wanted)


def _outside(points: Floats, tolerance: float) -> Bools:
    """Members outside the cluster; `points` has the shape (rows, members, samples)."""
    there = np.isfinite(points)
    middle = median_of(points.transpose(0, 2, 1)).transpose(0, 2, 1)
    apart = np.sqrt(np.sum(np.where(there, (points - middle) ** 2, 0), axis=2))
    apart[there.mean(axis=2) < 0.8] = np.nan
    radius = tolerance * median_of(apart)
    tiny = 1e-6 * np.abs(np.where(there, points, 0)).max(axis=(1, 2))[:, None]
    radius = np.maximum(radius, tiny)
    far = apart > radius
    for row in np.flatnonzero(far.any(axis=1)).tolist():
        inside = np.flatnonzero(apart[row] <= radius[row, 0])
        waiting = np.flatnonzero(far[row]).tolist()
        if len(inside) <= len(waiting):
            far[row] = False
            continue
        far[row] = _unreached(np.nan_to_num(points[row]), inside, waiting, float(radius[row, 0]))
    return np.asarray(far)


def _unreached(points: Floats, inside: Any, waiting: list[int], radius: float) -> Bools:
    cluster = points[inside]
    grown = True
    while grown and waiting:
        grown = False
        for member in list(waiting):
            if np.sqrt(((cluster - points[member]) ** 2).sum(axis=1)).min() <= radius:
                cluster = np.vstack([cluster, points[member]])
                waiting.remove(member)
                grown = True
    found = np.zeros(len(points), dtype=bool)
    found[waiting] = True
    return found


@dataclass(frozen=True, slots=True)
class OneDimensional:
    """DBSCAN of one dimension per timestamp: from the middle outward as long as gaps are small.

    The radius is (1 - sensitivity) * span * 1.1, the span being that of the data so far; a
    cluster must hold more than half of the members. Made an alarm by four minutes of it.
    """

    name: str = "1-D DBSCAN per timestamp"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, sensitivity."""
        return tuple((w, s) for w in ("few", "all") for s in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95))

    def prepare(self, matrix: CaseMatrix) -> None:
        """Nothing to keep."""

    def flags(self, matrix: CaseMatrix, prepared: None, setting: Setting) -> list[Flag]:
        """Walk outward in every group."""
        which, sensitivity = setting
        odd = per_cell(matrix, lambda _b, x: _walked(x, sensitivity), np.bool_)
        return flags_of_cells(matrix, lasting(odd & _chosen(matrix, which), FOUR_MINUTES))


def _walked(x: Floats, sensitivity: float) -> Bools:
    known = np.isfinite(x)
    high = np.maximum.accumulate(np.where(known, x, -np.inf).max(axis=-1), axis=0)
    low = np.minimum.accumulate(np.where(known, x, np.inf).min(axis=-1), axis=0)
    radius = ((1 - sensitivity) * 1.1 * (high - low))[..., None]
    order = np.argsort(x, axis=-1)
    ordered = np.take_along_axis(x, order, axis=-1)
    count = known.sum(axis=-1, keepdims=True)
    position = np.arange(x.shape[-1])
    middle = np.clip((count - 1) // 2, 0, None)
    broken = np.diff(ordered, axis=-1) > radius
    # number of breaks up to each member, counted from the lowest; those with the middle's number are joined
    breaks = np.concatenate([np.zeros_like(broken[..., :1]), broken], axis=-1).cumsum(axis=-1)
    joined = breaks == np.take_along_axis(breaks, middle, axis=-1)
    joined &= position < count
    outside = ~joined & (position < count) & (joined.sum(axis=-1, keepdims=True) * 2 > count)
    result = np.zeros(x.shape, dtype=bool)
    np.put_along_axis(result, order, outside, axis=-1)
    return result


def simple_rivals() -> tuple[Rival, ...]:
    """Return every rival that needs no training beyond its settings."""

    def grid(*thresholds: float, which: tuple[str, ...] = ("few", "all")) -> tuple[Setting, ...]:
        return tuple((w, t) for w in which for t in thresholds)

    return (
        AnyError(),
        Threshold(
            "mean and standard deviation z, 4 min", _mean_z, grid(2.5, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)
        ),
        Threshold(
            "median and MAD z, 4 min",
            partial(_robust_z, floor=1e-3),
            grid(3.5, *(5.0 * 2**k for k in range(11))),
        ),
        Threshold(
            "the same with a floor of 5 %",
            partial(_robust_z, floor=0.05),
            grid(3.5, *(5.0 * 2**k for k in range(11))),
        ),
        DatadogMad(),
        DatadogDbscan(),
        OneDimensional(),
        Threshold("PromQL ratio to the median, 4 min", _ratio, grid(1.25, 1.5, 2, 3, 5, 10)),
        Threshold(
            "under half or over 4 times the median, 10 min",
            _algalon,
            grid(0.5, which=("algalon", "few", "all")),
            TEN_MINUTES,
        ),
    )

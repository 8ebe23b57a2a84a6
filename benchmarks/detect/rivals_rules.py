"""Rivals that look at one signal at a time: error counters, rules and z-scores.

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

FOUR_MINUTES, TEN_MINUTES = 240.0, 600.0
"""In seconds."""

STEADY = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP",
    "all_smi_gpu_utilization",
    "all_smi_gpu_frequency_mhz",
    "all_smi_gpu_power_consumption_watts",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_rate_bytes_per_second",
    "node_memory_MemAvailable_bytes",
    "node_intr_total",
)
"""Metrics that all nodes of a training job show alike: what a careful person would alert on."""

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

LISTS = {"steady": STEADY, "few": FEW, "algalon": ALGALON}
EVERY = ("steady", "few", "all")
"""Lists of metrics that settings choose from."""


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


def chosen_cells(matrix: CaseMatrix, which: str) -> Bools:
    """Mark the cells of the metrics that a setting looks at."""
    if which == "all":
        return np.ones(len(matrix.cell_signal), dtype=bool)
    wanted = np.array([metric in LISTS[which] for metric in matrix.metrics], dtype=bool)
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
        return flags_of_cells(matrix, held(odd, matrix.ticks(TEN_MINUTES)))


def held(odd: Bools, n_ticks: int) -> Bools:
    """Keep what was true for `n_ticks` rows."""
    count = np.cumsum(odd, axis=0, dtype=np.int32)
    ago = np.zeros_like(count)
    ago[n_ticks:] = count[:-n_ticks]
    return np.asarray(count > ago)


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
        (which metrics, threshold), or with the seconds as a third.
    seconds
        How long without a break when the setting doesn't say.
    """

    name: str
    score: Callable[[Block, Floats], Floats]
    grid: tuple[Setting, ...]
    seconds: float = FOUR_MINUTES

    def prepare(self, matrix: CaseMatrix) -> Floats:
        """Compute the scores."""
        return np.asarray(per_cell(matrix, self.score))

    def flags(self, matrix: CaseMatrix, prepared: Floats, setting: Setting) -> list[Flag]:
        """Apply the threshold for long enough."""
        which, threshold, *rest = setting
        n_ticks = matrix.ticks(rest[0] if rest else self.seconds)
        return flags_of_cells(
            matrix, lasting_above(prepared, threshold, chosen_cells(matrix, which), n_ticks)
        )


def lasting_above(score: Floats, threshold: float, cells: Bools, n_ticks: int) -> Bools:
    """Tell where a score has been above a threshold for long enough, in the chosen cells."""
    found = np.zeros(score.shape, dtype=bool)
    columns = np.flatnonzero(cells)
    odd = score[:, columns] > threshold
    ever = np.flatnonzero(odd.sum(axis=0) >= n_ticks)
    found[:, columns[ever]] = lasting(odd[:, ever], n_ticks)
    return found


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


def grid_of(thresholds: Sequence[float], which: Sequence[str] = EVERY) -> tuple[Setting, ...]:
    """Every list of metrics with every threshold."""
    return tuple((w, t) for w in which for t in thresholds)


ROBUST = (2.5, 3.5, *(5.0 * 2**k for k in range(16)))
PROMQL = tuple((w, t, s) for w in EVERY for t in (1.1, 1.25, 1.5, 2, 3, 5, 10) for s in (240.0, 600.0))


def rule_rivals() -> tuple[Rival, ...]:
    """Return the rules and z-scores, which need no training beyond their settings."""
    return (
        AnyError(),
        Threshold(
            "mean and standard deviation z, 4 min",
            _mean_z,
            grid_of((2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 10, 12, 15, 20)),
        ),
        Threshold("median and MAD z, 4 min", partial(_robust_z, floor=1e-3), grid_of(ROBUST)),
        Threshold("the same with a floor of 5 %", partial(_robust_z, floor=0.05), grid_of(ROBUST)),
        Threshold("PromQL ratio to the median", _ratio, PROMQL),
        Threshold(
            "under half or over 4 times the median, 10 min",
            _algalon,
            grid_of((0.5,), ("algalon", "steady", "few", "all")),
            TEN_MINUTES,
        ),
    )

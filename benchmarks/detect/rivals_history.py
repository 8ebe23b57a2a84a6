"""Rivals that know what is usual: each machine's own habit, and the spread of each metric.

Both are the robust z-score with one thing added that a careful person would add.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect.matrix import Bools, CaseMatrix, Floats, flags_of_cells
from benchmarks.detect.rivals_rules import (
    EVERY,
    FOUR_MINUTES,
    Setting,
    chosen_cells,
    lasting_above,
    median_of,
    per_cell,
)
from detector.evaluation.model import Flag
from detector.source.incident_file import Recording
from grouping.layout import Block

HABIT_GAP_S, HABIT_EVERY_S = 900.0, 300.0
"""A habit leaves out the last quarter of an hour and is learnt anew every five minutes."""

HABIT_SAMPLES, MOST_SAMPLES = 10, 400
"""Fewest and most samples of a habit."""

Z_GRID = (3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
FLOORS = (0.001, 0.05)
SCALES = ("peers", "own", "larger")


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """Robust z-score of each machine's deviation from its peers less its own habitual deviation.

    The habit is the median of the deviation so far; until it is known, nothing is flagged. What is
    left is measured in the MAD of the peers' values, or in that of the machine's own deviation so
    far, or in the larger of both.
    """

    name: str = "own-history robust z, 4 min"

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, threshold, scale, its floor as a share of the median."""
        return tuple((w, t, s, f) for w in EVERY for t in Z_GRID for s in SCALES for f in FLOORS)

    def prepare(self, matrix: CaseMatrix) -> dict[tuple[str, float], Floats]:
        """Compute the scores for each scale and floor."""
        gap = matrix.ticks(HABIT_GAP_S)
        every = max(1, round(HABIT_EVERY_S / matrix.step_s))
        forms = [(scale, floor) for scale in SCALES for floor in FLOORS]
        out = {form: np.zeros(matrix.values.shape, dtype=np.float32) for form in forms}
        with np.errstate(all="ignore"):
            for block, values in matrix.groups():
                size, scales, middle = _less_habit(values, gap, every)
                for scale, floor in forms:
                    z = size / np.maximum(scales[scale], floor * np.abs(middle) + 1e-9)
                    out[scale, floor][:, block.cells] = z.reshape(len(values), -1)[:, block.positions]
        return out

    def flags(
        self, matrix: CaseMatrix, prepared: dict[tuple[str, float], Floats], setting: Setting
    ) -> list[Flag]:
        """Apply the threshold for four minutes."""
        which, threshold, scale, floor = setting
        cells = chosen_cells(matrix, which)
        score = prepared[scale, floor]
        return flags_of_cells(matrix, lasting_above(score, threshold, cells, matrix.ticks(FOUR_MINUTES)))


def _less_habit(x: Floats, gap: int, every: int) -> tuple[Floats, dict[str, Floats], Floats]:
    """Return the size of the deviation less the habit, scales by name, and the peers' median."""
    middle = median_of(x)
    apart = x - middle
    own, usual = (np.full(x.shape, np.nan, dtype=np.float32) for _ in range(2))
    for first in range(gap + HABIT_SAMPLES, len(x), every):
        past = np.moveaxis(apart[max(0, first - gap - MOST_SAMPLES) : first - gap], 0, -1)
        habit = median_of(past)
        own[first : first + every] = apart[first : first + every] - habit[..., 0]
        usual[first : first + every] = 1.4826 * median_of(np.abs(past - habit))[..., 0]
    peers = 1.4826 * median_of(np.abs(apart))
    scales = {"peers": peers, "own": usual, "larger": np.maximum(peers, usual)}
    return np.abs(own), scales, middle


@dataclass(slots=True)
class KnownSpread:
    """Robust z-score whose scale is at least the usual spread of its metric, as learnt in healthy time.

    Parameters
    ----------
    name
        Name in tables.
    usual
        By metric: deviation from the peers that one sample in a hundred exceeds, over 2.58; once trained.
    """

    name: str = "median and MAD z, spread learnt per metric"
    usual: dict[str, float] = field(default_factory=dict)

    @property
    def grid(self) -> tuple[Setting, ...]:
        """Which metrics, threshold."""
        return tuple((w, t) for w in EVERY for t in (2.0, *Z_GRID))

    def train(self, seen: Iterable[tuple[CaseMatrix, Recording]]) -> None:
        """Learn the spread of each metric outside labelled faults.

        Parameters
        ----------
        seen
            Train cases; read once.
        """
        found: dict[str, list[float]] = {}
        for matrix, recording in seen:
            quiet = healthy(matrix, recording)
            with np.errstate(all="ignore"):
                for block, values in matrix.groups():
                    apart = np.abs(values - median_of(values))[quiet]
                    for row, signal in enumerate(matrix.row_signals(block).tolist()):
                        known = apart[:, row][np.isfinite(apart[:, row])]
                        if signal >= 0 and len(known):
                            wide = float(np.quantile(known, 0.99)) / 2.58
                            found.setdefault(matrix.metrics[signal], []).append(wide)
        self.usual = {metric: float(np.median(widths)) for metric, widths in sorted(found.items())}

    def prepare(self, matrix: CaseMatrix) -> Floats:
        """Compute the scores; a metric that was not in the train split has the plain scale."""
        usual = np.array([self.usual.get(metric, 0.0) for metric in matrix.metrics], dtype=np.float32)

        def score(block: Block, x: Floats) -> Floats:
            signals = matrix.row_signals(block)
            floor = np.where(signals >= 0, usual[signals], 0)[None, :, None]
            middle = median_of(x)
            apart = np.abs(x - middle)
            scale = np.maximum(1.4826 * median_of(apart), floor)
            return np.asarray(apart / np.maximum(scale, 1e-3 * np.abs(middle) + 1e-9))

        return np.asarray(per_cell(matrix, score))

    def flags(self, matrix: CaseMatrix, prepared: Floats, setting: Setting) -> list[Flag]:
        """Apply the threshold for four minutes."""
        which, threshold = setting
        cells = chosen_cells(matrix, which)
        return flags_of_cells(matrix, lasting_above(prepared, threshold, cells, matrix.ticks(FOUR_MINUTES)))


def healthy(matrix: CaseMatrix, recording: Recording) -> Bools:
    """Mark the evaluations that lie in no labelled fault or group event nor soon after one."""
    quiet: NDArray[np.bool_] = np.ones(len(matrix.times), dtype=bool)
    after = max(600.0, 3 * matrix.step_s)
    spans = [(x.onset, x.end) for x in recording.faults]
    spans += [(x.onset, x.end) for x in recording.group_events]
    spans += [(x.onset, x.end) for x in recording.masked]
    for onset, end in spans:
        quiet &= (matrix.times < onset - matrix.step_s) | (matrix.times > end + after)
    return quiet

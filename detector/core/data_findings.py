"""What is odd about the data themselves and counts against no node, beside what absence tells."""

from __future__ import annotations

from collections.abc import Sequence

from detector.core.completeness import Completeness
from detector.core.conclusion import FORGET_S
from detector.core.habit import habit_findings
from detector.core.memory import Memory
from detector.core.naming import NamingNotes
from detector.core.parameters import Parameters
from detector.core.readings import Readings
from detector.core.teller import Evaluation
from detector.core.twins import Twins
from detector.outcome import DataQuality


class DataFindings:
    """Twins that disagree, readings that stand still, what is incomplete, habits, names, notes.

    Parameters
    ----------
    memory, twins, naming
        What is known of cells, of pairs of metrics and of names.
    calibration
        What of a calibration is not used, in sentences.
    """

    def __init__(self, memory: Memory, twins: Twins, naming: NamingNotes, calibration: Sequence[str]) -> None:
        self._memory, self._twins, self._naming = memory, twins, naming
        self._calibration = calibration
        self._completeness, self._readings = Completeness(), Readings()

    def step(
        self, ev: Evaluation, parameters: Parameters, *, is_partial: bool, notes: Sequence[str]
    ) -> list[DataQuality]:
        """Take in an evaluation, and what its source says of it; return what is odd."""
        at, memory, index = ev.at, self._memory, self._memory.index
        found = self._twins.findings(index, parameters.full_s)
        if not is_partial:
            found += self._completeness.step(
                memory.presence, memory.series, index, ev.cells.fresh, at, parameters, FORGET_S
            )
        found += self._readings.step(ev.cells, index, ev.layout, at=at, dt=ev.dt)
        found += habit_findings(memory.habit, index, memory.weights.weight, at)
        found += self._naming.findings(at)
        found.extend(DataQuality("source", "", at, note) for note in notes)
        found.extend(DataQuality("calibration", "", at, note) for note in self._calibration)
        return found

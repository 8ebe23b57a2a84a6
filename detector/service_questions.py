"""What a service is asked of its pipeline: answered between two evaluations, never during one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from detector.core.neighbours import Neighbours
from detector.core.series_view import SeriesQuery, SeriesView
from detector.core.window import Frame
from detector.explanation import Explanation
from detector.service_contracts import PipelineLike, ServiceHooks
from detector.service_view import BusyError, Coverage

SERIES_WAIT_S = 2.0


class Questions:
    """The part of a service that reads its pipeline; answers wait a moment for an evaluation under way."""

    _pipeline: PipelineLike
    _hooks: ServiceHooks
    _pipeline_lock: threading.Lock

    def series(self, query: SeriesQuery, frames: Sequence[Frame] | None = None) -> Sequence[SeriesView]:
        """Return signals of a node."""
        with self.between_evaluations():
            return self._pipeline.series_view(query, frames)

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        """Tell why a node is or is not named now."""
        with self.between_evaluations():
            return self._hooks.explain(node, n_signals) if self._hooks.explain is not None else None

    def coverage(self) -> Coverage | None:
        """Tell what the newest evaluation had to judge by."""
        with self.between_evaluations():
            return self._hooks.coverage()

    def neighbours(self, node: str) -> Sequence[Neighbours]:
        """Return what a node shares with others."""
        with self.between_evaluations():
            return self._pipeline.neighbours(node)

    @contextmanager
    def between_evaluations(self) -> Iterator[None]:
        """Hold the next evaluation up for a moment; `BusyError` when one is under way for too long."""
        if not self._pipeline_lock.acquire(timeout=SERIES_WAIT_S):
            raise BusyError("an evaluation is under way: ask again in a moment")
        try:
            yield
        finally:
            self._pipeline_lock.release()

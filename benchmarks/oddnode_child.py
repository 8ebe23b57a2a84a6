"""Oddnode's side: one warm pipeline on a database, tick by tick, each stage timed.

Run by the benchmarks: ``python -m benchmarks.oddnode_child URL``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import urllib3
from numpy.typing import NDArray

from benchmarks.child import Told, answer_all, peak_rss_mib
from benchmarks.database import export_form
from detector.core.ingest import CellValues
from detector.pipeline import Pipeline
from detector.source.base import Batch, Interner
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.source.samples import SampleCollector
from grouping.catalog import load_catalog
from grouping.layout import Layout
from grouping.pools import Pools

T = TypeVar("T")


class TimedInterner:
    """An interner that tells how long it took to place new label sets."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self.seconds = 0.0

    @property
    def codes(self) -> dict[bytes, int]:
        """Known label objects."""
        return self._interner.codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        """Pass on, with a watch in hand."""
        begun = time.perf_counter()
        self._interner.add_many(keys)
        self.seconds += time.perf_counter() - begun


class TimedPipeline(Pipeline):
    """The pipeline, with the time it spends on bringing samples to their groups apart from the rest."""

    grouping_s = 0.0

    def _take_in(self, batch: Batch, at: float) -> CellValues:
        return self._timed(lambda: super(TimedPipeline, self)._take_in(batch, at))

    def _choose_pools(
        self, cells: CellValues, suspects: NDArray[np.bool_], apart: set[str], at: float
    ) -> None:
        self._timed(lambda: super(TimedPipeline, self)._choose_pools(cells, suspects, apart, at))

    def _arrange(self) -> tuple[Layout, Pools]:
        return self._timed(super()._arrange)

    def _timed(self, call: Callable[[], T]) -> T:
        begun = time.perf_counter()
        try:
            return call()
        finally:
            self.grouping_s += time.perf_counter() - begun


class OddnodeChild:
    """Does what the benchmark asks.

    Parameters
    ----------
    url
        Address of the database.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._pipeline = TimedPipeline(load_catalog())
        self._names = self._pipeline.names()
        self._interner = TimedInterner(self._pipeline.interner)
        self._source = open_source(
            SourceOptions(url, kind="victoriametrics", deadline_s=600.0, read_timeout_s=600.0)
        )

    def __call__(self, told: Told) -> dict[str, Any]:
        """Answer one command: ``tick`` or ``decode``, of a time range."""
        start_ms, end_ms = int(told["start_ms"]), int(told["end_ms"])
        return self._decode(start_ms, end_ms) if told["do"] == "decode" else self._tick(start_ms, end_ms)

    def _tick(self, start_ms: int, end_ms: int) -> dict[str, Any]:
        pipeline = self._pipeline
        pipeline.grouping_s = self._interner.seconds = 0.0
        begun, begun_cpu = time.perf_counter(), time.process_time()
        batch = self._source.fetch(self._names, start_ms, end_ms, self._interner)
        fetched = time.perf_counter()
        outcome = pipeline.evaluate(batch, end_ms / 1000)
        ended = time.perf_counter()
        return {
            "total_s": ended - begun,
            "cpu_s": time.process_time() - begun_cpu,
            "fetch_s": fetched - begun - self._interner.seconds,
            "index_s": self._interner.seconds,
            "grouping_s": pipeline.grouping_s,
            "scoring_s": ended - fetched - pipeline.grouping_s,
            "n_samples": len(batch.series),
            "n_series": outcome.n_series,
            "n_bytes": batch.n_bytes,
            "n_nodes": len(outcome.verdicts),
            "peak_mib": peak_rss_mib(),
        }

    def _decode(self, start_ms: int, end_ms: int) -> dict[str, Any]:
        """Download to memory, then decode, alone."""
        answer = urllib3.request(
            "POST",
            f"{self._url}/api/v1/export",
            body=export_form(self._names, start_ms, end_ms),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        begun = time.perf_counter()
        n_samples = decode(answer.data, self._interner, start_ms, end_ms)
        return {"decode_s": time.perf_counter() - begun, "n_samples": n_samples}


def decode(data: bytes, interner: Interner, start_ms: int, end_ms: int, size: int = 1 << 20) -> int:
    """Decode a whole answer that is in memory already and return its number of samples."""
    collector = SampleCollector(interner, "memory")
    part = collector.part()
    low = 0
    while low < len(data):
        high = data.rfind(b"\n", low, low + size) + 1
        part.add(data[low:high])
        low = high
    collector.commit(part)
    return len(collector.finish(start_ms, end_ms).series)


if __name__ == "__main__":
    answer_all(OddnodeChild(sys.argv[1]))

"""VictoriaMetrics: raw samples by its streaming export, single node or cluster, with or without vmauth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from detector.source.base import Batch, Interner
from detector.source.http import Deadline, Form, HttpClient
from detector.source.options import SourceOptions
from detector.source.prometheus_api import LabelledValue, PrometheusApi
from detector.source.request_plan import RequestPlan, slices
from detector.source.samples import SampleCollector
from detector.source.selector import selectors

EXPORT_PATH = "/api/v1/export"


class VictoriaMetricsSource:
    """Samples as stored, with their own times, from ``/api/v1/export``.

    Export answers of a cluster are complete or refused; it has no partial ones, so `Batch.is_partial`
    stays False and a storage node that is away is a `SourceStatus`.

    Parameters
    ----------
    options
        Address, credentials, bounds.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = HttpClient(options)
        self._api = PrometheusApi(self._client)
        self._plan = RequestPlan(options.max_series_per_request)

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Return every sample of the named metrics with ``start_ms < time <= end_ms``.

        Raises
        ------
        SourceError
            Nothing was returned that can be trusted.
        """
        begun = time.perf_counter()
        deadline = self._client.deadline()
        collector = SampleCollector(interner, self._client.base_url, max_series=self._options.max_series)
        n_bytes = 0

        def ask(group: Sequence[str], low_ms: int, high_ms: int) -> int:
            nonlocal n_bytes
            n_lines, size = self._export(group, low_ms, high_ms, collector, deadline)
            n_bytes += size
            return n_lines

        for low_ms, high_ms in slices(start_ms, end_ms, self._options.slice_s):
            collector.n_lines = 0  # the bound is on the series of one slice: the next has the same ones
            self._plan.run(names, lambda group, low=low_ms, high=high_ms: ask(group, low, high))  # type: ignore[misc]
        batch = collector.finish(start_ms, end_ms)
        waited = time.perf_counter() - begun - batch.decode_s
        notes = () if len(batch.series) else ("the database returned no samples",)
        return replace(batch, n_bytes=n_bytes, fetch_s=waited, notes=batch.notes + notes)

    def query(self, promql: str, at: float) -> list[LabelledValue]:
        """Return the instant vector of a PromQL expression at `at` (epoch seconds)."""
        return self._api.query(promql, at)

    def metadata(self) -> Mapping[str, str]:
        """Return the declared type of each metric; empty when the database keeps none."""
        return self._api.metadata()

    def close(self) -> None:
        """Close connections; ends a fetch that another thread is in."""
        self._client.close()

    def _export(
        self, names: Sequence[str], start_ms: int, end_ms: int, collector: SampleCollector, deadline: Deadline
    ) -> tuple[int, int]:
        form = self._form(names, start_ms, end_ms)
        mark = collector.mark()

        def attempt() -> tuple[int, int]:
            collector.rewind(mark)
            with self._client.post(EXPORT_PATH, form, deadline) as answer:
                for block in answer.line_blocks():
                    collector.add(block)
                return collector.n_lines - mark[1], answer.n_bytes

        try:
            return self._client.retrying(attempt, deadline)
        except BaseException:
            collector.rewind(mark)
            raise

    def _form(self, names: Sequence[str], start_ms: int, end_ms: int) -> Form:
        # both ends are inclusive and read as binary fractions of seconds: ask 1 ms wider, cut exactly later
        form = [("match[]", text) for text in selectors(names, self._options.extra_filters)]
        form.append(("start", seconds(start_ms)))
        form.append(("end", seconds(end_ms + 1)))
        # without this the server holds and merges all series before it sends the first: three times slower
        form.append(("reduce_mem_usage", "1"))
        return form


def seconds(ms: int) -> str:
    """Return epoch milliseconds as decimal seconds, exactly."""
    sign = "-" if ms < 0 else ""
    whole, rest = divmod(abs(ms), 1000)
    return f"{sign}{whole}.{rest:03d}"

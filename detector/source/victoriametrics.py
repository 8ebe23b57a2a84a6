"""VictoriaMetrics: raw samples by its streaming export, single node or cluster, with or without vmauth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from detector.source.answer import Deadline
from detector.source.base import Batch, Interner
from detector.source.http import Form, HttpClient
from detector.source.options import SourceOptions
from detector.source.prometheus_api import LabelledValue, PrometheusApi
from detector.source.request_plan import RequestPlan, slices
from detector.source.samples import Part, SampleCollector
from detector.source.selector import selectors

EXPORT_PATH = "/api/v1/export"
NAMES_PER_REQUEST = 40
"""Small enough that requests side by side end together, large enough to be few."""


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
        self._executor = ThreadPoolExecutor(options.parallel_requests, thread_name_prefix="export")
        self._plan = RequestPlan(options.max_series_per_request, NAMES_PER_REQUEST, self._executor)

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Return every sample of the named metrics with ``start_ms < time <= end_ms``.

        `Batch.decode_s` is time in the decoder, most of it while the next bytes arrive.

        Raises
        ------
        SourceError
            Nothing was returned that can be trusted.
        """
        begun = time.perf_counter()
        deadline = self._client.deadline()
        collector = SampleCollector(interner, self._client.base_url, max_series=self._options.max_series)
        sizes: list[int] = []
        for low_ms, high_ms in slices(start_ms, end_ms, self._options.slice_s):
            collector.new_slice()

            def ask(group: Sequence[str], low: int = low_ms, high: int = high_ms) -> Part:
                part, size = self._export(group, low, high, collector, deadline)
                sizes.append(size)
                return part

            self._plan.run(names, ask, collector, deadline)
        asked_s = time.perf_counter() - begun
        batch = collector.finish(start_ms, end_ms)
        notes = () if len(batch.series) else ("the database returned no samples",)
        return replace(batch, n_bytes=sum(sizes), fetch_s=asked_s, notes=batch.notes + notes)

    def query(self, promql: str, at: float) -> list[LabelledValue]:
        """Return the instant vector of a PromQL expression at `at` (epoch seconds)."""
        return self._api.query(promql, at)

    def metadata(self) -> Mapping[str, str]:
        """Return the declared type of each metric; empty when the database keeps none."""
        return self._api.metadata()

    def close(self) -> None:
        """Close connections; ends a fetch that another thread is in."""
        self._client.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _export(
        self, names: Sequence[str], start_ms: int, end_ms: int, collector: SampleCollector, deadline: Deadline
    ) -> tuple[Part, int]:
        form = self._form(names, start_ms, end_ms)

        def attempt() -> tuple[Part, int]:
            part = collector.part()
            with self._client.post(EXPORT_PATH, form, deadline) as answer:
                for block in answer.line_blocks():
                    part.add(block)
                return part, answer.n_bytes

        return self._client.retrying(attempt, deadline)

    def _form(self, names: Sequence[str], start_ms: int, end_ms: int) -> Form:
        """Return the request.

        Both ends are inclusive and read as binary fractions of seconds: it asks 1 ms wider, and the
        collector cuts exactly. ``reduce_mem_usage=1`` would be three times faster and must not be
        used: releases such as 1.79 then now and then give one series the samples of another.
        """
        form = [("match[]", text) for text in selectors(names, self._options.extra_filters)]
        form.append(("start", seconds(start_ms)))
        form.append(("end", seconds(end_ms + 1)))
        return form


def seconds(ms: int) -> str:
    """Return epoch milliseconds as decimal seconds, exactly."""
    sign = "-" if ms < 0 else ""
    whole, rest = divmod(abs(ms), 1000)
    return f"{sign}{whole}.{rest:03d}"

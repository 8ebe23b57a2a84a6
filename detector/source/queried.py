"""What every source over HTTP shares: one client, questions in PromQL, requests by groups of names."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from detector.source.answer import Deadline
from detector.source.base import Batch, Interner
from detector.source.http import HttpClient
from detector.source.options import SourceOptions
from detector.source.prometheus_api import LabelledValue, PrometheusApi
from detector.source.request_plan import RequestPlan, slices
from detector.source.samples import Part, SampleCollector

Ask = Callable[[Sequence[str], int, int, SampleCollector, Deadline], Part]
"""Asks for one group of metrics in one slice of time (milliseconds)."""


class QueriedSource:
    """A database that is asked for groups of metrics in slices of time.

    Parameters
    ----------
    options
        Address, credentials, bounds.
    names_per_request
        Metrics asked for at once before anything is known of their size.
    n_parallel
        Requests side by side.
    """

    def __init__(self, options: SourceOptions, names_per_request: int, n_parallel: int) -> None:
        self._options = options
        self._client = HttpClient(options)
        self._api = PrometheusApi(self._client)
        self._executor = ThreadPoolExecutor(n_parallel, thread_name_prefix=type(self).__name__)
        self._plan = RequestPlan(options.max_series_per_request, names_per_request, self._executor)

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

    def _gather(
        self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner, ask: Ask
    ) -> tuple[Batch, float]:
        """Ask for all slices and groups; returns the batch and the seconds spent on asking."""
        begun = time.perf_counter()
        deadline = self._client.deadline()
        collector = SampleCollector(interner, self._client.base_url, max_series=self._options.max_series)
        for low_ms, high_ms in slices(start_ms, end_ms, self._options.slice_s):
            collector.new_slice()

            def ask_group(group: Sequence[str], low: int = low_ms, high: int = high_ms) -> Part:
                return ask(group, low, high, collector, deadline)

            self._plan.run(names, ask_group, collector, deadline)
        asked_s = time.perf_counter() - begun
        return collector.finish(start_ms, end_ms), asked_s


def seconds(ms: int) -> str:
    """Return epoch milliseconds as decimal seconds, exactly."""
    sign = "-" if ms < 0 else ""
    whole, rest = divmod(abs(ms), 1000)
    return f"{sign}{whole}.{rest:03d}"

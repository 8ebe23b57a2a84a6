"""Any database with the Prometheus query API: raw samples by a range selector in an instant query."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import msgspec
import numpy as np

from detector.errors import SourceDecode
from detector.source.base import Batch, Interner
from detector.source.http import HttpClient
from detector.source.options import SourceOptions
from detector.source.prometheus_api import LabelledValue, PrometheusApi
from detector.source.request_plan import RequestPlan, slices
from detector.source.samples import SampleCollector
from detector.source.selector import selector
from detector.source.victoriametrics import seconds

NAMES_PER_QUERY = 50
MAX_KNOWN_LABELS = 8_000_000


class _Series(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[tuple[float, str]] = []


_decode_matrix = msgspec.json.Decoder(list[_Series]).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_encode_labels = msgspec.json.Encoder(order="sorted").encode


class PrometheusSource:
    """Samples as stored, with their own times, through the query API.

    The database leaves staleness markers out by itself. Warnings in an answer (a remote store that
    is away, for instance) make the batch partial.

    Parameters
    ----------
    options
        Address, credentials, bounds.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = HttpClient(options)
        self._api = PrometheusApi(self._client)
        self._plan = RequestPlan(options.max_series_per_request, first_size=NAMES_PER_QUERY)
        self._keys: dict[bytes, bytes] = {}

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
        warnings: dict[str, None] = {}
        is_partial = False
        n_bytes = 0

        def ask(group: Sequence[str], low_ms: int, high_ms: int) -> int:
            nonlocal is_partial, n_bytes
            query = f"{selector(group, self._options.extra_filters)}[{high_ms - low_ms}ms]"
            result, said_partial, said, size = self._api.raw_query(query, seconds(high_ms), deadline)
            warnings.update(dict.fromkeys(said))
            is_partial |= said_partial
            n_bytes += size
            return self._take_in(result, collector)

        for low_ms, high_ms in slices(start_ms, end_ms, self._options.slice_s):
            collector.n_lines = 0  # the bound is on the series of one slice: the next has the same ones
            self._plan.run(names, lambda group, low=low_ms, high=high_ms: ask(group, low, high))  # type: ignore[misc]
        batch = collector.finish(start_ms, end_ms)
        notes = tuple(f"the database warns: {' '.join(text.split())[:200]}" for text in warnings)
        if not len(batch.series):
            notes = (*notes, "the database returned no samples")
        waited = time.perf_counter() - begun - batch.decode_s
        return replace(batch, is_partial=is_partial, n_bytes=n_bytes, fetch_s=waited, notes=notes)

    def query(self, promql: str, at: float) -> list[LabelledValue]:
        """Return the instant vector of a PromQL expression at `at` (epoch seconds)."""
        return self._api.query(promql, at)

    def metadata(self) -> Mapping[str, str]:
        """Return the declared type of each metric; empty when the database keeps none."""
        return self._api.metadata()

    def close(self) -> None:
        """Close connections; ends a fetch that another thread is in."""
        self._client.close()

    def _take_in(self, result: bytes, collector: SampleCollector) -> int:
        begun = time.perf_counter()
        try:
            rows = _decode_matrix(result)
            keys = [self._key(bytes(row.metric)) for row in rows]
            counts = np.array([len(row.values) for row in rows], dtype=np.int32)
            pairs = list(chain.from_iterable(row.values for row in rows))
            ts_ms = np.rint(np.array([pair[0] for pair in pairs], dtype=np.float64) * 1000.0).astype(np.int64)
            values = np.array([float(pair[1]) for pair in pairs], dtype=np.float64)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise SourceDecode(f"{self._client.base_url}: the answer holds no raw samples: {error}") from None
        collector.add_rows(keys, counts, ts_ms, values)
        collector.decode_s += time.perf_counter() - begun
        return len(rows)

    def _key(self, raw: bytes) -> bytes:
        """Return the label object with sorted names, whatever order the database sends."""
        key = self._keys.get(raw)
        if key is None:
            if len(self._keys) >= MAX_KNOWN_LABELS:
                self._keys.clear()
            key = _encode_labels(_decode_labels(raw))
            self._keys[raw] = key
        return key

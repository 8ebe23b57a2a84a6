"""Any database with the Prometheus query API: raw samples by a range selector in an instant query."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import msgspec
import numpy as np

from detector.errors import SourceDecode
from detector.source.answer import Deadline
from detector.source.base import Batch, Interner
from detector.source.options import SourceOptions
from detector.source.prometheus_api import RawResult
from detector.source.queried import QueriedSource, seconds
from detector.source.samples import Part, SampleCollector
from detector.source.selector import selector

NAMES_PER_QUERY = 50
MAX_KNOWN_LABELS = 8_000_000


class _Series(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[tuple[float, str]] = []


_decode_matrix = msgspec.json.Decoder(list[_Series]).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_encode_labels = msgspec.json.Encoder(order="sorted").encode


class PrometheusSource(QueriedSource):
    """Samples as stored, with their own times, through the query API.

    The database leaves staleness markers out by itself. Warnings in an answer (a remote store that
    is away, for instance) make the batch partial.

    Parameters
    ----------
    options
        Address, credentials, bounds.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options, NAMES_PER_QUERY, n_parallel=1)
        self._keys: dict[bytes, bytes] = {}

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Return every sample of the named metrics with ``start_ms < time <= end_ms``.

        Raises
        ------
        SourceError
            Nothing was returned that can be trusted.
        """
        answers: list[RawResult] = []

        def ask(
            group: Sequence[str], low: int, high: int, collector: SampleCollector, deadline: Deadline
        ) -> Part:
            query = f"{selector(group, self._options.extra_filters)}[{high - low}ms]"
            answer = self._api.raw_query(query, seconds(high), deadline)
            answers.append(replace(answer, result=b""))
            return self._part(answer.result, collector)

        batch, asked_s = self._gather(names, start_ms, end_ms, interner, ask)
        warnings = dict.fromkeys(text for answer in answers for text in answer.warnings)
        notes = tuple(f"the database warns: {' '.join(text.split())[:200]}" for text in warnings)
        if not len(batch.series):
            notes = (*notes, "the database returned no samples")
        return replace(
            batch,
            is_partial=any(answer.is_partial for answer in answers),
            n_bytes=sum(answer.n_bytes for answer in answers),
            fetch_s=asked_s,
            notes=notes,
        )

    def _part(self, result: bytes, collector: SampleCollector) -> Part:
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
        part = collector.part()
        part.add_rows(keys, counts, ts_ms, values)
        part.decode_s = time.perf_counter() - begun
        return part

    def _key(self, raw: bytes) -> bytes:
        """Return the label object with sorted names, whatever order the database sends."""
        key = self._keys.get(raw)
        if key is None:
            if len(self._keys) >= MAX_KNOWN_LABELS:
                self._keys.clear()
            key = _encode_labels(_decode_labels(raw))
            self._keys[raw] = key
        return key

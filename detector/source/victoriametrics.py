"""VictoriaMetrics: raw samples by its streaming export, single node or cluster, with or without vmauth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detector.source.answer import Deadline
from detector.source.base import Batch, Interner
from detector.source.http import Form
from detector.source.options import SourceOptions
from detector.source.queried import QueriedSource, seconds
from detector.source.samples import Part, SampleCollector
from detector.source.selector import selectors

EXPORT_PATH = "/api/v1/export"
NAMES_PER_REQUEST = 40
"""Small enough that requests side by side end together, large enough to be few."""


class VictoriaMetricsSource(QueriedSource):
    """Samples as stored, with their own times, from ``/api/v1/export``.

    Export answers of a cluster are complete or refused; it has no partial ones, so `Batch.is_partial`
    stays False and a storage node that is away is a `SourceStatus`.

    Parameters
    ----------
    options
        Address, credentials, bounds.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options, NAMES_PER_REQUEST, options.parallel_requests)

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Return every sample of the named metrics with ``start_ms < time <= end_ms``.

        `Batch.decode_s` is time in the decoder, most of it while the next bytes arrive.

        Raises
        ------
        SourceError
            Nothing was returned that can be trusted.
        """
        sizes: list[int] = []

        def ask(
            group: Sequence[str], low: int, high: int, collector: SampleCollector, deadline: Deadline
        ) -> Part:
            part, size = self._export(group, low, high, collector, deadline)
            sizes.append(size)
            return part

        batch, asked_s = self._gather(names, start_ms, end_ms, interner, ask)
        notes = () if len(batch.series) else ("the database returned no samples",)
        return replace(batch, n_bytes=sum(sizes), fetch_s=asked_s, notes=batch.notes + notes)

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

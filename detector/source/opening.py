"""From options to a source: which kind of database answers at an address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from detector.errors import SourceError
from detector.source.answer import HttpRefusal
from detector.source.base import Batch, Interner, Source
from detector.source.http import HttpClient
from detector.source.options import SourceOptions
from detector.source.prometheus import PrometheusSource
from detector.source.prometheus_api import LabelledValue
from detector.source.victoriametrics import EXPORT_PATH, VictoriaMetricsSource

KINDS = ("auto", "victoriametrics", "prometheus")
NO_SUCH_PATH = frozenset({404, 405, 501})


class DatabaseSource(Source, Protocol):
    """A source that can also be asked questions beside the fast path."""

    def query(self, promql: str, at: float) -> list[LabelledValue]:
        """Return the instant vector of a PromQL expression at `at` (epoch seconds)."""

    def metadata(self) -> Mapping[str, str]:
        """Return the declared type of each metric name."""


def open_source(options: SourceOptions) -> DatabaseSource:
    """Return the source for a database; nothing is sent yet.

    Raises
    ------
    SourceError
        When the options contradict each other or the kind is unknown.
    """
    if options.kind == "victoriametrics":
        return VictoriaMetricsSource(options)
    if options.kind == "prometheus":
        return PrometheusSource(options)
    if options.kind == "auto":
        return _AutoSource(options)
    raise SourceError(f"source kind {options.kind!r} is not one of {', '.join(KINDS)}")


def detect_kind(options: SourceOptions) -> str:
    """Ask the database which kind it is, by whether it has the export.

    Raises
    ------
    SourceError
        When it can't be reached or refuses the credentials.
    """
    client = HttpClient(options)
    form = [("match[]", '{__name__="oddnode_kind_probe"}'), ("start", "0"), ("end", "1")]
    deadline = client.deadline()

    def attempt() -> str:
        with client.post(EXPORT_PATH, form, deadline) as answer:
            answer.read()
        return "victoriametrics"

    try:
        return client.retrying(attempt, deadline)
    except HttpRefusal as refusal:
        if refusal.status in NO_SUCH_PATH:
            return "prometheus"
        raise
    finally:
        client.close()


class _AutoSource:
    """Finds out the kind at first use, so that a service can start before its database."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        HttpClient(options).close()  # tells wrong options at once
        self._found: DatabaseSource | None = None

    def _source(self) -> DatabaseSource:
        if self._found is None:
            kind = detect_kind(self._options)
            is_fast = kind == "victoriametrics"
            self._found = (VictoriaMetricsSource if is_fast else PrometheusSource)(self._options)
        return self._found

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        return self._source().fetch(names, start_ms, end_ms, interner)

    def query(self, promql: str, at: float) -> list[LabelledValue]:
        return self._source().query(promql, at)

    def metadata(self) -> Mapping[str, str]:
        return self._source().metadata()

    def close(self) -> None:
        if self._found is not None:
            self._found.close()

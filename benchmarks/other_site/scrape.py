"""From the state of a site to the series that a scraper writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from benchmarks.other_site.noise import Array, Noise

COMPACT = (",", ":")


@dataclass(frozen=True, slots=True)
class Target:
    """A scraped exporter.

    Parameters
    ----------
    labels
        Labels that the scraper adds to every series.
    times_ms, reads, points
        For each scrape: epoch milliseconds, the point whose state it shows, and that at which it happens.
    is_up
        For each scrape, whether it succeeds.
    """

    labels: Mapping[str, str]
    times_ms: Array
    reads: Array
    points: Array
    is_up: Array


class SeriesFile:
    """Lines of JSON as the export of VictoriaMetrics writes them.

    Parameters
    ----------
    file
        Where they go.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, labels: Mapping[str, str], times_ms: Array, values: Array) -> None:
        """Write a series, nothing when it has no sample."""
        if not len(times_ms):
            return
        told = json.dumps(values.tolist(), separators=COMPACT)
        times = json.dumps(times_ms.tolist(), separators=COMPACT)
        self._file.write(f'{{"metric":{json.dumps(labels)},"values":{told},"timestamps":{times}}}\n')


@dataclass(frozen=True, slots=True)
class Exporter:
    """Turns state into the series of one target.

    Parameters
    ----------
    series
        Where they go.
    target
        When it is scraped.
    noise
        For starts of counters.
    boots
        Points at which counters begin again.
    """

    series: SeriesFile
    target: Target
    noise: Noise
    boots: Sequence[int]

    def gauge(
        self,
        name: str,
        labels: Mapping[str, str],
        values: Array,
        *,
        decimals: int | None = None,
        where: Array | None = None,
    ) -> None:
        """Write a gauge.

        Parameters
        ----------
        name, labels
            Of the series; the target's labels are added.
        values
            For each point.
        decimals
            None rounds to whole numbers.
        where
            Points at which the series exists, None for all.
        """
        target = self.target
        is_told = target.is_up if where is None else target.is_up & where[target.points]
        seen = np.asarray(values)[target.reads[is_told]]
        rounded = (
            np.round(seen).astype(np.int64) if decimals is None else np.round(seen.astype(float), decimals)
        )
        self.series.write({"__name__": name, **target.labels, **labels}, target.times_ms[is_told], rounded)

    def counter(
        self,
        name: str,
        labels: Mapping[str, str],
        rate: Array,
        *,
        start: float | None = None,
        decimals: int | None = None,
        whole: bool = False,
    ) -> None:
        """Write a counter that begins again when the node boots.

        Parameters
        ----------
        name, labels
            Of the series; the target's labels are added.
        rate
            Growth per second at each point.
        start
            Value at the start; None for what some days of the mean rate have made.
        decimals
            None rounds to whole numbers.
        whole
            True to count events one by one.
        """
        if start is None:
            start = self.noise.rng.uniform(0.2, 1) * 4e5 * float(np.mean(rate))
        self.gauge(name, labels, self.noise.counter(rate, start, self.boots, whole=whole), decimals=decimals)

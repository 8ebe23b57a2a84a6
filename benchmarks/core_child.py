"""Evaluation alone: samples come from the simulator as arrays, no database, no text.

Run by the benchmarks: ``python -m benchmarks.core_child``
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.child import Told, answer_all, peak_rss_mib
from benchmarks.database import SEED
from detector.pipeline import Pipeline
from detector.source.base import Batch
from grouping.catalog import load_catalog
from grouping.index import SeriesIndex
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.metric_sets import reference_shape


class ArraySource:
    """A cluster's ticks as batches.

    Parameters
    ----------
    cluster
        The cluster.
    index
        Numbers the series; all of them at once, here.
    """

    def __init__(self, cluster: Cluster, index: SeriesIndex) -> None:
        self._cluster = cluster
        keys = label_bytes(cluster.series)
        begun = time.process_time()
        index.add_many(keys)
        self.index_cpu_s = time.process_time() - begun
        codes = np.array([index.codes[key] for key in keys], dtype=np.int32)
        order = np.argsort(codes, kind="stable")
        self._order = order[codes[order] >= 0]
        self._series = codes[self._order]

    def batch(self, at: float) -> Batch:
        """Return one scrape of everything."""
        values, ts_ms = self._cluster.tick(at)
        values, ts_ms = values[self._order], ts_ms[self._order]
        there = np.isfinite(values)
        return Batch(self._series[there], ts_ms[there], values[there])


def label_bytes(series: Sequence[Mapping[str, str]]) -> list[bytes]:
    """Return label objects as a database would send them."""
    dump = json.JSONEncoder(separators=(",", ":")).encode
    return [dump(dict(labels)).encode() for labels in series]


def evaluate(told: Told) -> dict[str, Any]:
    """Run a cluster of the size told through the pipeline and return what a tick took."""
    nodes, cpus = int(told["nodes"]), int(told["cpus"])
    config = ClusterConfig(train_nodes=nodes - 3, cpus=cpus, metrics=reference_shape())
    begun_cpu = time.process_time()
    catalog = load_catalog()
    catalog_cpu_s = time.process_time() - begun_cpu
    cluster, pipeline = Cluster(config, SEED), Pipeline(catalog)
    source = ArraySource(cluster, pipeline.interner)
    times: list[float] = []
    processor: list[float] = []
    for k in range(int(told["ticks"]) + 2):
        at = config.start + k * config.step_s
        batch = source.batch(at)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        outcome = pipeline.evaluate(batch, at)
        times.append(time.perf_counter() - begun)
        processor.append(time.process_time() - begun_cpu)
    return {
        "catalog_cpu_s": catalog_cpu_s,
        "evaluate_s": median(times[2:]),
        "worst_s": max(times[2:]),
        "cpu_s": median(processor[2:]),
        "first_cpu_s": processor[0],
        "index_cpu_s": source.index_cpu_s,
        "n_series": outcome.n_series,
        "n_cells": outcome.n_cells,
        "peak_mib": peak_rss_mib(),
    }


if __name__ == "__main__":
    answer_all(evaluate)

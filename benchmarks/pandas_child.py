"""The yardstick: the same tick written with prometheus-api-client and pandas, as one would at first.

Per metric one query; a data frame as the client makes it; rates between the two newest samples for
counters; for each metric and role a robust z-score of every series; the nodes with the most deviating
series. No incidents, habits, absence or pools: it does less than Oddnode does.

Run by the benchmarks: ``python -m benchmarks.pandas_child URL``
"""

from __future__ import annotations

import sys
import time
from typing import Any

import pandas as pd
from prometheus_api_client import MetricRangeDataFrame, MetricSnapshotDataFrame, PrometheusConnect

from benchmarks.child import Told, answer_all, peak_rss_mib
from detector.core.parameters import Parameters
from grouping.catalog import load_catalog
from grouping.model import Kind, MetricSpec

COUNTERS = (Kind.COUNTER, Kind.ERROR_COUNTER)
NOT_LABELS = ("timestamp", "value")


class PandasChild:
    """Does what the benchmark asks.

    Parameters
    ----------
    url
        Address of the database.
    """

    def __init__(self, url: str) -> None:
        self._connect = PrometheusConnect(url=url, method="POST")
        self._catalog = load_catalog()
        self._threshold = Parameters().z_threshold

    def __call__(self, told: Told) -> dict[str, Any]:
        """Answer one command: ``raw`` (samples, rates made here) or ``instant`` (rates from the database)."""
        at = f"{int(told['end_ms']) / 1000:.3f}"
        newest = self._newest if told["do"] == "raw" else self._instant
        begun, begun_cpu = time.perf_counter(), time.process_time()
        scored = []
        for name, spec in self._catalog.by_name.items():
            frame = newest(name, spec.kind in COUNTERS, at)
            if frame is not None:
                scored.append(self._scores(frame, spec))
        found = pd.concat(scored)
        deviating = found[found["z"].abs() > self._threshold].groupby("node").size().nlargest(5)
        return {
            "total_s": time.perf_counter() - begun,
            "cpu_s": time.process_time() - begun_cpu,
            "n_series": len(found),
            "top": {str(k): int(v) for k, v in deviating.items()},
            "peak_mib": peak_rss_mib(),
        }

    def _newest(self, name: str, is_counter: bool, at: str) -> pd.DataFrame | None:
        rows = self._connect.custom_query(f"{name}[{'1m' if is_counter else '30s'}]", params={"time": at})
        if not rows:
            return None
        frame = MetricRangeDataFrame(rows, ts_as_datetime=False).reset_index()
        labels = [column for column in frame.columns if column not in NOT_LABELS]
        series = frame.groupby(labels, sort=False, dropna=False)
        if is_counter:
            rate = series["value"].diff() / series["timestamp"].diff()
            frame["value"] = rate.where(rate >= 0)
        newest: pd.DataFrame = frame[series.cumcount(ascending=False) == 0]
        return newest

    def _instant(self, name: str, is_counter: bool, at: str) -> pd.DataFrame | None:
        query = f"rate({name}[1m]) keep_metric_names" if is_counter else name
        rows = self._connect.custom_query(query, params={"time": at})
        return MetricSnapshotDataFrame(rows, ts_as_datetime=False) if rows else None

    def _scores(self, frame: pd.DataFrame, spec: MetricSpec) -> pd.DataFrame:
        roles = [role for role in spec.role if role in frame.columns]
        values = frame.groupby(["__name__", *roles], sort=False, dropna=False)["value"]
        median = values.transform("median")
        away = (frame["value"] - median).abs()
        groups = [frame[column] for column in ("__name__", *roles)]
        spread = 1.4826 * away.groupby(groups, sort=False, dropna=False).transform("median")
        floor = (spec.floor_rel * median.abs()).clip(lower=max(spec.floor_abs, 1e-12))
        node = frame["Hostname"] if "Hostname" in frame else frame["instance"].str.rpartition(":")[0]
        return pd.DataFrame({"node": node, "z": (frame["value"] - median) / spread.clip(lower=floor)})


if __name__ == "__main__":
    answer_all(PandasChild(sys.argv[1]))

"""One tick, from the database to the verdict, against curl and against pandas."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.child import Child
from benchmarks.database import (
    SEED,
    STEP_MS,
    database,
    export_form,
    fill,
    make_visible,
    metric_names,
    tick_range_ms,
    version,
)
from benchmarks.report import Row
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.feed import Feeder
from tests.servers import Server

STAGES = ("fetch_s", "grouping_s", "scoring_s")
RATIO_TO_CURL, RATIO_TO_PANDAS, PEAK_MIB = 2.0, 10.0, 700.0
SCALE_TICK_S, SCALE_PEAK_MIB = 30.0, 6 * 1024.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often what is measured.

    Parameters
    ----------
    history
        Ticks in the database before the first measured one.
    warm
        Ticks of Oddnode before the first measured one.
    steady
        Measured ticks; curl and Oddnode take turns in going first.
    pandas
        After how many of them pandas has its turn, too; 0 for never.
    """

    history: int = 10
    warm: int = 2
    steady: int = 12
    pandas: int = 4


def curl_s(server: Server, form: str) -> float:
    """Download a selection from ``/api/v1/export``, throw it away, and return the seconds it took."""
    begun = time.perf_counter()
    subprocess.run(
        ["curl", "-sS", "--fail", "-o", "/dev/null", "--data-binary", "@-", f"{server.url}/api/v1/export"],
        input=form.encode(),
        check=True,
    )
    return time.perf_counter() - begun


class ReferenceTick:
    """The reference cluster, fed tick by tick as it would be live.

    Parameters
    ----------
    config
        The cluster.
    rounds
        How often what is measured.
    """

    def __init__(self, config: ClusterConfig, rounds: Rounds) -> None:
        self._config, self._rounds = config, rounds
        self._names = metric_names()
        self._curl: list[float] = []
        self._ticks: list[Mapping[str, Any]] = []
        self._decode: list[float] = []
        self._pandas: dict[str, list[dict[str, Any]]] = {"raw": [], "instant": []}

    def rows(self) -> list[Row]:
        """Measure and return the table."""
        config, rounds = self._config, self._rounds
        cluster = Cluster(config, SEED)
        with database() as server, Child("benchmarks.oddnode_child", server.url) as oddnode:
            feeder = Feeder(server.url, cluster)
            feeder.load(config.start, config.start + (rounds.history - 1) * config.step_s)
            make_visible(server)
            first = self._ask(oddnode, "tick", rounds.history - 1)
            with Child("benchmarks.pandas_child", server.url) as pandas:
                for k in range(rounds.warm + rounds.steady):
                    tick = rounds.history + k
                    feeder.push(config.start + tick * config.step_s)
                    make_visible(server)
                    self._round(server, oddnode, pandas, tick, k - rounds.warm)
        return self._table(first)

    def _round(self, server: Server, oddnode: Child, pandas: Child, tick: int, measured: int) -> None:
        form = export_form(self._names, *tick_range_ms(self._config, tick))
        turns: list[Callable[[], None]] = [
            lambda: self._curl.append(curl_s(server, form)),
            lambda: self._ticks.append(self._ask(oddnode, "tick", tick)),
        ]
        for turn in turns if measured % 2 else reversed(turns):
            turn()
        if measured < 0:
            self._curl.clear()
            self._ticks.clear()
            return
        self._decode.append(self._ask(oddnode, "decode", tick)["decode_s"])
        if self._rounds.pandas and measured % self._rounds.pandas == 0:
            for kind, found in self._pandas.items():
                found.append(self._ask(pandas, kind, tick))

    def _ask(self, child: Child, what: str, tick: int) -> dict[str, Any]:
        start_ms, end_ms = tick_range_ms(self._config, tick)
        return child.ask(do=what, start_ms=start_ms, end_ms=end_ms)

    def _table(self, first: Mapping[str, Any]) -> list[Row]:
        ticks, newest = self._ticks, self._ticks[-1]
        tick_s, curl = median(t["total_s"] for t in ticks), median(self._curl)
        to_curl = median(t["total_s"] / c for t, c in zip(ticks, self._curl, strict=True))
        shape = f"{newest['n_nodes']} nodes, {newest['n_series']} series compared, {len(ticks)} ticks"
        mb = newest["n_bytes"] / 1e6
        rows = [
            Row("steady tick, fetch to verdict", shape, f"{tick_s:.2f} s"),
            Row("- fetch, decoding as it arrives", f"{mb:.0f} MB", _stage(ticks, "fetch_s")),
            Row("- decode alone, answer in memory", f"{mb:.0f} MB", f"{median(self._decode):.3f} s"),
            Row("- grouping: samples to cells, pools", shape, _stage(ticks, "grouping_s")),
            Row("- scoring, incidents, verdicts", shape, _stage(ticks, "scoring_s")),
            Row("- processor time of Oddnode", shape, _stage(ticks, "cpu_s")),
            Row("curl of the same selection to /dev/null", f"{mb:.0f} MB, {version()}", f"{curl:.2f} s"),
            Row(
                "tick / curl, median of pairs",
                shape,
                f"{to_curl:.2f}",
                f"<= {RATIO_TO_CURL:g}",
                to_curl <= RATIO_TO_CURL,
            ),
            Row("first tick, every label set new", shape, f"{first['total_s']:.2f} s"),
            Row("- of it: parsing and placing label sets", shape, f"{first['index_s']:.2f} s"),
            _peak(shape, newest["peak_mib"], PEAK_MIB),
        ]
        texts = {
            "raw": "pandas, raw samples by range selector",
            "instant": "pandas, rates computed by the database",
        }
        cpu_s = median(t["cpu_s"] for t in ticks)
        for kind, found in self._pandas.items():
            if found:
                slow, own = (median(t[key] for t in found) for key in ("total_s", "cpu_s"))
                n_ticks = f"{found[-1]['n_series']} series, {len(found)} ticks"
                target, is_met = "", None
                if kind == "raw":
                    target, is_met = f">= {RATIO_TO_PANDAS:g}", slow / tick_s >= RATIO_TO_PANDAS
                rows += [
                    Row(texts[kind], n_ticks, f"{slow:.1f} s"),
                    Row("- this / tick of Oddnode", n_ticks, f"{slow / tick_s:.1f}", target, is_met),
                    Row("- this / curl", n_ticks, f"{slow / curl:.1f}"),
                    Row("- processor time of the process / Oddnode's", n_ticks, f"{own / cpu_s:.1f}"),
                ]
        return rows


def scale_rows(sizes: Mapping[str, ClusterConfig], rounds: Rounds) -> Iterator[Row]:
    """Measure clusters of several sizes in turn, everything in the database from the start."""
    for name, config in sizes.items():
        n_ticks = 1 + rounds.warm + rounds.steady
        with database() as server, Child("benchmarks.oddnode_child", server.url) as oddnode:
            fill(server, config, n_ticks)
            told = [_scale_tick(oddnode, config, tick) for tick in range(n_ticks)]
            form = export_form(metric_names(), *tick_range_ms(config, n_ticks - 1))
            curl = curl_s(server, form)
        steady = told[1 + rounds.warm :]
        n_series = steady[-1]["n_series"]
        shape = f"{name}: {config.n_nodes} nodes x {config.cpus} processors, {n_series} series"
        tick_s = median(t["total_s"] for t in steady)
        worst = max(t["total_s"] for t in steady)
        own = median(t["grouping_s"] + t["scoring_s"] for t in steady)
        yield from (
            Row(
                "steady tick, median",
                shape,
                f"{tick_s:.2f} s, worst {worst:.2f} s of {len(steady)}",
                f"< {SCALE_TICK_S:g} s",
                tick_s < SCALE_TICK_S,
            ),
            Row("- fetch / grouping / scoring", shape, " / ".join(_stage(steady, s) for s in STAGES)),
            Row("- tick per million series", shape, f"{tick_s / n_series * 1e6:.1f} s"),
            Row("- grouping and scoring per million series", shape, f"{own / n_series * 1e6:.2f} s"),
            Row("- processor time of Oddnode per million", shape, _per_million(steady, "cpu_s", n_series)),
            Row("curl, once", shape, f"{curl:.2f} s"),
            Row("first tick", shape, f"{told[0]['total_s']:.1f} s (label sets {told[0]['index_s']:.1f} s)"),
            _peak(shape, steady[-1]["peak_mib"], SCALE_PEAK_MIB),
        )


def _peak(shape: str, mib: float, bound: float) -> Row:
    return Row("peak memory of Oddnode", shape, f"{mib:.0f} MiB", f"< {bound:g} MiB", mib < bound)


def _scale_tick(oddnode: Child, config: ClusterConfig, tick: int) -> dict[str, Any]:
    start_ms, end_ms = tick_range_ms(config, tick)
    assert end_ms - start_ms == STEP_MS
    return oddnode.ask(do="tick", start_ms=start_ms, end_ms=end_ms)


def _stage(ticks: list[Mapping[str, Any]] | list[dict[str, Any]], stage: str) -> str:
    return f"{median(t[stage] for t in ticks):.3f} s"


def _per_million(ticks: list[dict[str, Any]], stage: str, n_series: int) -> str:
    return f"{median(t[stage] for t in ticks) / n_series * 1e6:.1f} s"

"""A VictoriaMetrics on this machine with the telemetry of a simulated cluster in it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from detector.pipeline import Pipeline
from detector.source.selector import selectors
from detector.source.victoriametrics import seconds
from grouping.catalog import load_catalog
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.feed import Feeder
from tests import servers

STEP_MS = 30_000
SEED = 1


@contextlib.contextmanager
def database() -> Iterator[servers.Server]:
    """Give an empty database whose bounds let everything out that was put in."""
    with (
        TemporaryDirectory() as folder,
        servers.victoria_metrics(
            Path(folder), "-search.maxUniqueTimeseries=20000000", "-search.latencyOffset=0s"
        ) as server,
    ):
        yield server


def make_visible(server: servers.Server) -> None:
    """Let queries see all that was imported."""
    if not servers.answers(server.port, "/internal/force_flush"):
        raise OSError(f"{server.url} does not flush")


def version() -> str:
    """Return the version of the database by its package: Debian's build does not tell its own."""
    query = ["dpkg-query", "-W", "-f", "${Version}", "victoria-metrics"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False)
    except OSError:
        return "VictoriaMetrics, not from a Debian package"
    return f"VictoriaMetrics {done.stdout}".strip()


def fill(server: servers.Server, config: ClusterConfig, n_ticks: int, shard: int = 125) -> int:
    """Import the first ticks of a cluster of any size, a shard of nodes at a time.

    Returns
    -------
    int
        Number of series imported.
    """
    n_series = 0
    for part in config.shards(shard):
        cluster = Cluster(part, SEED)
        Feeder(server.url, cluster).load(config.start, config.start + (n_ticks - 1) * config.step_s)
        n_series += len(cluster.series)
    make_visible(server)
    return n_series


def tick_range_ms(config: ClusterConfig, tick: int) -> tuple[int, int]:
    """Return the time range of one tick, counted from 0: after the first, up to the second."""
    end_ms = round((config.start + tick * config.step_s) * 1000)
    return end_ms - STEP_MS, end_ms


def metric_names() -> list[str]:
    """Return the names that the service fetches each tick."""
    return Pipeline(load_catalog()).names()


def export_form(names: Sequence[str], start_ms: int, end_ms: int) -> str:
    """Return the selection that the service makes, as one request."""
    form = [("match[]", text) for text in selectors(names)]
    form += [("start", seconds(start_ms)), ("end", seconds(end_ms + 1))]
    return urlencode(form)

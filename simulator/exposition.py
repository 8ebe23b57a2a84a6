"""Serves the current tick as the exporters' text pages, for a real vmagent or Prometheus to scrape."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.feed import sample_head
from simulator.mods import Floats
from simulator.tables import all_columns
from simulator.topology import EXPORTERS, JOBS, target_labels

UNTYPED = ("node_netstat_", "node_vmstat_")
TYPED_COUNTER = frozenset({"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"})
"""Gauges that their exporter calls counters."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Pages of all targets.

    Parameters
    ----------
    cluster
        The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._values: Floats = np.full(len(cluster.series), np.nan)
        self._pages = self._index()

    def update(self, at: float) -> None:
        """Make the scrapes of this time the ones that are served."""
        values, _ = self.cluster.tick(at)
        with self._lock:
            self._values = values

    def page(self, job: str, node: str) -> bytes | None:
        """Return the text of one target; None when there is none or it does not answer.

        Parameters
        ----------
        job
            Job of the exporter, see `topology.JOBS`.
        node
            Node name.
        """
        rows = self._pages.get((job, node))
        if rows is None:
            return None
        with self._lock:
            values = self._values
        lines = [f"{head} {value}\n" for i, head in rows if (value := values[i]) == value]
        return "".join(lines).encode() if lines else None

    def _index(self) -> dict[tuple[str, str], list[tuple[int, str]]]:
        config = self.cluster.config
        of_target = {
            (JOBS[exporter], target_labels(config, n, exporter)["instance"]): (JOBS[exporter], node)
            for n, node in enumerate(config.node_names)
            for exporter in EXPORTERS
        }
        types = _types()
        pages: dict[tuple[str, str], list[tuple[int, str]]] = {}
        last: dict[tuple[str, str], str] = {}
        left_out = _scraper_labels(config)
        for i, labels in enumerate(self.cluster.series):
            name = labels["__name__"]
            if name not in types:
                continue
            target = of_target[labels["job"], labels["instance"]]
            own = {"instance" if key == "exported_instance" else key: value for key, value in labels.items()
                   if key not in left_out}  # fmt: skip
            head = sample_head(own)
            if last.get(target) != name:
                head = f"# TYPE {name} {types[name]}\n{head}"
                last[target] = name
            pages.setdefault(target, []).append((i, head))
        return pages


def _types() -> dict[str, str]:
    """Return the declared type of every metric that an exporter itself gives."""
    found = {}
    for column in all_columns():
        if column.exporter in EXPORTERS:
            is_counter = column.is_counter or column.name in TYPED_COUNTER
            kind = "counter" if is_counter else "gauge"
            found[column.name] = "untyped" if column.name.startswith(UNTYPED) else kind
    return found


def _scraper_labels(config: ClusterConfig) -> frozenset[str]:
    return frozenset(key for exporter in EXPORTERS for key in target_labels(config, 0, exporter))


def scrape_config(config: ClusterConfig, address: str, *, interval_s: float | None = None) -> str:
    """Return a configuration for vmagent or Prometheus that scrapes every target at one address.

    Parameters
    ----------
    config
        The cluster.
    address
        Host and port of `serving`.
    interval_s
        Seconds between scrapes; the cluster's step when None.
    """
    seconds = f"{int(1000 * (interval_s or config.step_s))}ms"
    jobs: list[dict[str, Any]] = []
    for exporter, job in JOBS.items():
        targets = []
        for n, node in enumerate(config.node_names):
            labels = {key: value for key, value in target_labels(config, n, exporter).items() if key != "job"}
            labels["__metrics_path__"] = f"/targets/{job}/{node}/metrics"
            targets.append({"targets": [address], "labels": labels})
        jobs.append({"job_name": job, "static_configs": targets})
    interval = {"scrape_interval": seconds, "scrape_timeout": seconds}
    return json.dumps({"global": interval, "scrape_configs": jobs}, indent=1)


@contextmanager
def serving(exposition: Exposition, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve the pages in a thread; gives the address as ``host:port``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = self.path.split("?")[0].strip("/").split("/")
            is_page = len(parts) == 4 and parts[0] == "targets" and parts[3] == "metrics"
            body = exposition.page(parts[1], parts[2]) if is_page else None
            self.send_response(200 if body else 503 if is_page else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def run_live(exposition: Exposition, stopped: threading.Event, first: float) -> None:
    """Move the cluster on when each tick's time has come, until told to stop."""
    step, at = exposition.cluster.config.step_s, first
    while not stopped.wait(max(0.0, at - time.time_ns() / 1e9)):
        exposition.update(at)
        at += step

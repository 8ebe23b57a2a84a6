"""Command line: ``python -m simulator feed|expose|scrape-config``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.exposition import Exposition, run_live, scrape_config, serving
from simulator.faults import KINDS, Fault
from simulator.feed import Feeder
from simulator.metric_sets import reference_shape, story
from simulator.scenarios import gpu068

METRICS = {"all": lambda: None, "reference": reference_shape, "story": story}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    given = _parser().parse_args(argv)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    config = _config(given)
    if given.command == "scrape-config":
        print(scrape_config(config, given.address))
        return 0
    try:
        cluster = _cluster(config, given)
        if given.command == "feed":
            _feed(given, cluster, stopped)
        else:
            _expose(given, cluster, stopped)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulator", description="Telemetry of a simulated GPU cluster.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--nodes", type=int, default=63, help="nodes, spares among them (default 63)")
    shared.add_argument("--spares", type=int, default=3, help="idle nodes (default 3)")
    shared.add_argument("--cpus", type=int, default=8, help="processors per node (224 is the real machine)")
    shared.add_argument(
        "--metrics", choices=sorted(METRICS), default="all", help="which metrics (default all)"
    )
    shared.add_argument("--step", type=float, default=30.0, help="seconds between scrapes (default 30)")
    shared.add_argument("--seed", type=int, default=1)
    running = argparse.ArgumentParser(add_help=False)
    running.add_argument(
        "--fault", help=f"gpu068, or KIND:NODE[:PART[:SEVERITY]]; kinds: {', '.join(sorted(KINDS))}"
    )
    running.add_argument("--fault-after", type=float, default=300.0, help="seconds from now (default 300)")
    running.add_argument("--fault-length", type=float, default=1800.0, help="seconds (default 1800)")
    commands = parser.add_subparsers(dest="command", required=True)
    feed = commands.add_parser("feed", parents=[shared, running], help="push to VictoriaMetrics")
    feed.add_argument("--url", required=True, help="address of VictoriaMetrics")
    feed.add_argument(
        "--history", type=float, default=1200.0, help="seconds loaded before now (default 1200)"
    )
    feed.add_argument("--once", action="store_true", help="load the history and end")
    feed.add_argument("--gzip", action="store_true", help="send compressed")
    expose = commands.add_parser("expose", parents=[shared, running], help="serve text pages to be scraped")
    expose.add_argument("--port", type=int, default=9999)
    expose.add_argument("--write-config", type=Path, help="write a scrape configuration to this file")
    to_scrape = commands.add_parser("scrape-config", parents=[shared], help="print a scrape configuration")
    to_scrape.add_argument("--address", default="127.0.0.1:9999")
    return parser


def _config(given: argparse.Namespace) -> ClusterConfig:
    return ClusterConfig(
        train_nodes=given.nodes - given.spares,
        spares=given.spares,
        cpus=given.cpus,
        metrics=METRICS[given.metrics](),
        first_number=10 if given.nodes >= 60 else 1,
        step_s=given.step,
    )


def _cluster(config: ClusterConfig, given: argparse.Namespace) -> Cluster:
    now = time.time_ns() / 1e9 // config.step_s * config.step_s
    history = given.history if given.command == "feed" else 0.0
    config = replace(config, start=now - history // config.step_s * config.step_s)
    return Cluster(config, given.seed, _faults(config, given, now))


def _faults(config: ClusterConfig, given: argparse.Namespace, now: float) -> list[Fault]:
    if not given.fault:
        return []
    after = now + given.fault_after
    if given.fault == "gpu068":
        return list(gpu068(config, after_s=after - config.start).faults)
    kind, node, part, severity = [*given.fault.split(":"), "", "", ""][:4]
    return [Fault(kind, node, after, after + given.fault_length, part, float(severity or 1))]


def _feed(given: argparse.Namespace, cluster: Cluster, stopped: threading.Event) -> None:
    feeder = Feeder(given.url, cluster, uses_gzip=given.gzip)
    config = cluster.config
    end = config.start + given.history // config.step_s * config.step_s
    sent = feeder.load(config.start, end)
    print(f"{len(cluster.series)} series, {sent} samples of the past loaded", flush=True)
    if not given.once:
        feeder.live(stopped, end + config.step_s)


def _expose(given: argparse.Namespace, cluster: Cluster, stopped: threading.Event) -> None:
    exposition = Exposition(cluster)
    exposition.update(cluster.config.start)
    with serving(exposition, port=given.port) as address:
        if given.write_config:
            given.write_config.write_text(scrape_config(cluster.config, address), encoding="utf-8")
        print(f"{len(cluster.series)} series at http://{address}/targets/JOB/NODE/metrics", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            run_live(exposition, stopped, cluster.config.start + cluster.config.step_s)


if __name__ == "__main__":
    sys.exit(main())

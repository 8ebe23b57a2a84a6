"""Reading samples: curl, the fast path, the query API with pandas, and recordings, timed apart.

A VictoriaMetrics on this machine is loaded with the shape of the reference cluster: 305 metrics of
63 nodes, about 184,000 series, three samples each. Ratios are taken within one run.

Run: ``python -m benchmarks.bench_decode [--series 184500] [--rounds 5]``
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from prometheus_api_client import MetricSnapshotDataFrame, PrometheusConnect

from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.source.recording import RecordingSource
from detector.source.samples import SampleCollector
from detector.source.selector import selectors
from tests import servers
from tests.interner import DictInterner

N_METRICS, N_NODES, STEP_MS = 305, 63, 30_000
NOW_MS = 1_717_243_200_000
NAMES = [
    f"DCGM_FI_DEV_{m:03d}" if m < 20 else f"node_mountstats_nfs_metric_{m:03d}_total"
    for m in range(N_METRICS)
]


def labels(i: int, rng: np.random.Generator) -> dict[str, str]:
    """Label set of series `i`, as long as those of the real exporters."""
    metric, rest = i % N_METRICS, i // N_METRICS
    node, part = rest % N_NODES, rest // N_NODES
    if metric < 20:
        return {
            "__name__": NAMES[metric],
            "gpu": str(part),
            "UUID": f"GPU-{rng.integers(2**62):x}-{rng.integers(2**62):x}",
            "device": f"nvidia{part}",
            "modelName": "NVIDIA B200",
            "Hostname": f"gpu{node:03d}",
            "instance": f"10.1.0.{node}:9400",
            "job": "dcgm",
            "DCGM_FI_DRIVER_VERSION": "570.86.15",
        }
    return {
        "__name__": NAMES[metric],
        "instance": f"10.1.0.{node}:9100",
        "job": "node",
        "export": f"nfs{part % 2}:/data",
        "operation": f"OP{part}",
        "protocol": "tcp",
        "mountaddr": "10.2.0.1",
    }


def lines(n_series: int, n_ticks: int) -> Iterator[str]:
    """Yield export lines: constants, fractions and large counts in turn."""
    rng = np.random.default_rng(1)
    for i in range(n_series):
        kind = i % 4
        numbers = rng.random(n_ticks)
        values = (
            [0] * n_ticks
            if kind == 0
            else (numbers * (100 if kind < 3 else 1e9)).round(3 if kind == 1 else 0).tolist()
        )
        stamps = (NOW_MS - STEP_MS * np.arange(n_ticks)[::-1] - int(rng.integers(STEP_MS))).tolist()
        yield json.dumps(
            {"metric": labels(i, rng), "values": values, "timestamps": stamps}, separators=(",", ":")
        )


def load(server: servers.Server, n_series: int) -> None:
    """Import the series, three samples each."""
    batch: list[str] = []
    for line in lines(n_series, 3):
        batch.append(line)
        if len(batch) == 20_000:
            servers.import_lines(server, ("\n".join(batch) + "\n").encode())
            batch.clear()
    if batch:
        servers.import_lines(server, ("\n".join(batch) + "\n").encode())


def export_form() -> str:
    """Return the request that `VictoriaMetricsSource` sends, all names in one."""
    form = [("match[]", text) for text in selectors(NAMES)]
    form += [("start", f"{(NOW_MS - STEP_MS + 1) / 1000:.3f}"), ("end", f"{NOW_MS / 1000:.3f}")]
    return urlencode(form)


def with_curl(server: servers.Server) -> None:
    """Download the newest samples and throw them away."""
    command = ["curl", "-sS", "-o", "/dev/null", "--data-binary", "@-", f"{server.url}/api/v1/export"]
    subprocess.run(command, input=export_form().encode(), check=True)


def with_pandas(server: servers.Server) -> None:
    """Get the same newest samples by prometheus-api-client and its data frame."""
    connect = PrometheusConnect(url=server.url, method="POST")
    for selector in selectors(NAMES):
        rows = connect.custom_query(selector, params={"time": f"{NOW_MS / 1000:.3f}"})
        MetricSnapshotDataFrame(rows)


def best_of(rounds: int, run: Callable[[], object]) -> float:
    """Return the shortest of several runs in seconds."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def bench_server(n_series: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield names and seconds of everything that needs the server."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.victoria_metrics(
            Path(folder), "-search.maxUniqueTimeseries=10000000", "-search.latencyOffset=0s"
        ) as server,
    ):
        load(server, n_series)
        source, interner = open_source(SourceOptions(server.url, deadline_s=300)), DictInterner()

        def fetch() -> object:
            return source.fetch(NAMES, NOW_MS - STEP_MS, NOW_MS, interner)

        with_curl(server)
        yield "first fetch, every label set new", best_of(1, fetch)
        # one after another, so that a busy moment of the machine meets both
        curl, fast = [], []
        for _ in range(rounds):
            curl.append(best_of(1, lambda: with_curl(server)))
            fast.append(best_of(1, fetch))
        yield "curl to /dev/null", min(curl)
        yield "fetch, steady", min(fast)
        batch = source.fetch(NAMES, NOW_MS - STEP_MS, NOW_MS, interner)
        assert len(batch.series) == n_series, len(batch.series)
        yield "prometheus-api-client and pandas", best_of(1, lambda: with_pandas(server))
        command = ["curl", "-sS", "--data-binary", "@-", f"{server.url}/api/v1/export"]
        done = subprocess.run(command, input=export_form().encode(), check=True, capture_output=True)
        source.close()
        yield "decode alone", best_of(rounds, lambda: decode(done.stdout, interner))


def decode(data: bytes, interner: DictInterner, size: int = 1 << 20) -> None:
    """Decode a whole answer that is in memory already."""
    collector = SampleCollector(interner, "memory")
    part = collector.part()
    low = 0
    while low < len(data):
        high = data.rfind(b"\n", low, low + size) + 1
        part.add(data[low:high])
        low = high
    collector.commit(part)
    collector.finish(NOW_MS - STEP_MS, NOW_MS)


def bench_recording(n_series: int, n_ticks: int) -> Iterator[tuple[str, float]]:
    """Yield names and seconds of loading and playing a recording."""
    with tempfile.TemporaryDirectory() as folder:
        with gzip.open(Path(folder) / "series.jsonl.gz", "wt", compresslevel=3) as file:
            file.writelines(f"{line}\n" for line in lines(n_series, n_ticks))
        begun = time.perf_counter()
        source = RecordingSource(Path(folder))
        yield f"recording: load {n_series} series x {n_ticks}", time.perf_counter() - begun
        interner = DictInterner()
        ends = range(NOW_MS - STEP_MS * n_ticks, NOW_MS, STEP_MS)
        for end in ends:
            source.fetch(NAMES, end - STEP_MS, end, interner)
        times = [best_of(1, lambda e=end: source.fetch(NAMES, e - STEP_MS, e, interner)) for end in ends]  # type: ignore[misc]
        yield "recording: fetch of one tick", float(np.median(times))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=184_500)
    parser.add_argument("--recorded-series", type=int, default=24_000)
    parser.add_argument("--ticks", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(argv)
    found: dict[str, float] = {}
    print(f"{options.series} series, newest sample of each; best of {options.rounds}")
    for name, seconds in bench_server(options.series, options.rounds):
        found[name] = seconds
        print(f"{name:45s} {seconds * 1000:10.1f} ms", flush=True)
    ratio = found["fetch, steady"] / found["curl to /dev/null"]
    print(f"{'fetch / curl':45s} {ratio:10.2f}")
    slow = found["prometheus-api-client and pandas"] / found["fetch, steady"]
    print(f"{'pandas / fetch':45s} {slow:10.1f}")
    for name, seconds in bench_recording(options.recorded_series, options.ticks):
        print(f"{name:45s} {seconds * 1000:10.2f} ms", flush=True)


if __name__ == "__main__":
    main()

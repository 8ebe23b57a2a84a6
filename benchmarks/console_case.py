"""A simulated incident for looking at the console, and the service that plays it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.metric_sets import select
from simulator.recording import write_case

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
WAIT_S = 300.0
PROGRAM = (
    "import sys; from pathlib import Path; from detector.app import serve; "
    "from detector.settings import load_settings; sys.exit(serve(load_settings(Path(sys.argv[1]))))"
)
ONSET_S = 720.0
FAULTS = ("gpu_throttle", "nvlink_xid", "nic_slow")
METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_XID",
    "node_load1",
    "node_memory_MemAvailable",
    "node_infiniband_port_data_received_bytes_total",
    "node_disk_io_time_seconds",
    "node_context_switches",
    "node_network_receive_bytes_total",
    "backendai_async_task_count",
    "scrape_duration",
)


def cluster_of(n_nodes: int) -> ClusterConfig:
    """Return a cluster with a few metrics of most targets: pages hang on nodes, not on series."""
    spares = max(1, n_nodes // 20)
    return ClusterConfig(
        train_nodes=n_nodes - spares,
        spares=spares,
        cpus=2,
        metrics=select(*METRICS),
        benign_per_node_hour=0.0,
    )


def write_incident(folder: Path, config: ClusterConfig, minutes: int) -> None:
    """Write a recording in which three nodes get bad, one after the other."""
    end = config.start + minutes * 60
    faults = [
        Fault(kind, config.node_names[3 * k + 1], config.start + ONSET_S + 90 * k, end)
        for k, kind in enumerate(FAULTS[: max(1, config.train_nodes // 10)])
    ]
    cluster = Cluster(config, 1, faults)
    name = f"{config.n_nodes}-nodes"
    write_case(folder, cluster, config.start, end, case_id=name, source="the simulator", made="synthetic")


@contextmanager
def served(case: Path, *, speed: float = 30.0, at: float | None = None) -> Iterator[str]:
    """Play a recording, and yield the address of the service once something was evaluated."""
    with tempfile.TemporaryDirectory(prefix="oddnode-console-") as folder:
        log, settings = Path(folder) / "log", Path(folder) / "settings.yaml"
        settings.write_text(
            json.dumps(
                {
                    "recording": {"path": str(case.resolve()), "speed": speed, "at": at},
                    "http": {"port": 0},
                    "store": {"path": f"{folder}/oddnode.db"},
                }
            )
        )
        with log.open("w") as out:
            process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(settings)], cwd=ROOT, stderr=out)
        try:
            url = wait_for(lambda: _url(process, log), log)
            wait_for(lambda: asked(f"{url}/v1/recording")["recording"]["last_at"] is not None, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(found: Callable[[], T], log: Path | None = None) -> T:
    """Wait until something is there."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(0.3)
    told = log.read_text()[-500:] if log is not None else ""
    raise RuntimeError(f"waited {WAIT_S:.0f} s in vain {told}")


def asked(url: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
    """Ask, by POST when there is a body, and return the JSON of the answer, errors included."""
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, sent, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    if process.poll() is not None:
        raise RuntimeError(f"the service has ended: {log.read_text()[-500:]}")
    found = [line for line in log.read_text().splitlines() if "listening url=" in line]
    return found[0].split("url=")[1].split()[0] if found else ""

"""Every query of the Grafana dashboards, on databases that scraped the service while it named a node."""

from __future__ import annotations

import json
import math
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from detector.telemetry import Telemetry
from grouping.catalog import load_catalog
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.feed import Feeder
from simulator.recording import collect, ticks
from tests import servers
from tests.end_to_end import Serving, now_s, on_grid, seed_store
from tests.scripts import script

ROOT = Path(__file__).resolve().parent.parent
GRAFANA = ROOT / "deploy" / "grafana"
FILES = sorted(path.name for path in GRAFANA.glob("*.json"))
STEP, HISTORY_S, SINCE_ONSET_S = 15.0, 600.0, 240.0
FAULTY = "gpu005"
SHOWN = {
    "$__rate_interval": "2m",
    "$__range": "10m",
    "$job": ".*",
    "$node": FAULTY,
    "$peers": ".+",
    "$host_label": "Hostname",
}
NEEDS_CALIBRATION = {"oddnode_calibration_budget_per_month", "oddnode_calibration_expected_per_month"}
SCRAPE = """
scrape_configs:
- job_name: oddnode
  scrape_interval: 1s
  honor_labels: true
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def loaded(name: str) -> dict[str, Any]:
    found = json.loads((GRAFANA / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def queries() -> Iterator[tuple[str, str, str, bool]]:
    """Yield file, panel, expression as Grafana sends it, and whether it is asked for one instant."""
    for name in FILES:
        for panel in loaded(name)["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in SHOWN.items():
                    expression = expression.replace(variable, value)
                yield name, panel["title"], expression, target["instant"]


@dataclass
class Stores:
    """Databases that hold the cluster's metrics and scraped the service."""

    victoria_metrics: str
    prometheus: str

    def ask(self, kind: str, expression: str, *, instant: bool = False) -> list[dict[str, Any]]:
        """Return the series of an expression, over the last five minutes unless it is asked at once."""
        now = now_s()
        times = {"time": now} if instant else {"start": now - 300, "end": now, "step": 15}
        form = urllib.parse.urlencode({"query": expression, **times})
        path = "query" if instant else "query_range"
        answer = urllib3.request(
            "GET", f"{getattr(self, kind)}/api/v1/{path}?{form}", timeout=30, retries=False
        )
        body = json.loads(answer.data)
        assert body["status"] == "success", body
        found = body["data"]["result"]
        assert isinstance(found, list)
        return found


def openmetrics(cluster: Cluster, names: set[str], start: float, end: float) -> str:
    """Return the samples of some metrics as promtool reads them."""
    values, ts_ms = collect(cluster, ticks(start, end, STEP))
    by_name: dict[str, list[str]] = {}
    for i, series in enumerate(cluster.series):
        if series["__name__"] not in names:
            continue
        labels = ",".join(f"{k}={json.dumps(v)}" for k, v in series.items() if k != "__name__")
        for value, when in zip(values[:, i].tolist(), ts_ms[:, i].tolist(), strict=True):
            if math.isfinite(value):
                name = series["__name__"]
                by_name.setdefault(name, []).append(f"{name}{{{labels}}} {value} {when / 1000}\n")
    return "".join(line for lines in by_name.values() for line in lines) + "# EOF\n"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("dashboards")
    now = on_grid(now_s(), STEP)
    used = {word for _, _, text, _ in queries() for word in re.findall(r"\w+", text)}
    used &= set(load_catalog().by_name) | {"node_uname_info"}
    config = ClusterConfig(
        train_nodes=8, spares=0, cpus=2, start=now - HISTORY_S, step_s=STEP,
        missed_scrape=0.0, benign_per_node_hour=0.0,
        metrics=used,
    )  # fmt: skip
    fault = Fault("nvlink_xid", FAULTY, now - SINCE_ONSET_S, now + 86400, "gpu 3")
    with ExitStack() as stack:
        vm = stack.enter_context(servers.victoria_metrics(folder / "vm"))
        Feeder(vm.url, Cluster(config, 1, [fault])).load(config.start, now)
        assert servers.answers(vm.port, "/internal/force_flush")
        schedule = {"step_s": STEP, "evaluation_delay_s": 5.0, "backfill_s": 720.0}
        seed_store(folder, now - SINCE_ONSET_S - 5 * STEP)
        service = Serving(folder, {"source": {"url": vm.url}, "schedule": schedule})
        stack.callback(service.kill)
        service.wait_for("/v1/suspects", lambda body: body["suspects"], "the node is named")
        port = service._listens_on()
        stack.enter_context(servers.vmagent(folder / "vmagent", SCRAPE.format(port=port), vm.url))
        text = openmetrics(Cluster(config, 1, [fault]), used, config.start, now)
        servers.blocks_from_openmetrics(folder / "prometheus", text)
        prometheus = stack.enter_context(servers.prometheus(folder / "prometheus", SCRAPE.format(port=port)))
        found = Stores(vm.url, prometheus.url)
        for kind in ("victoria_metrics", "prometheus"):
            servers.wait_until(
                lambda k=kind: bool(
                    found.ask(k, "sum(rate(oddnode_tick_duration_seconds_count[2m])) > 0", instant=True)
                ),
                f"{kind} has seen a tick",
                90,
            )
        yield found


@pytest.mark.server
@pytest.mark.parametrize("kind", ["victoria_metrics", "prometheus"])
@pytest.mark.parametrize("name", FILES)
def test_every_query_returns_series(stores: Stores, kind: str, name: str) -> None:
    empty = []
    for file, title, expression, instant in queries():
        if file != name:
            continue
        series = stores.ask(kind, expression, instant=instant)
        values = [
            float(value) for one in series for _, value in ([one["value"]] if instant else one["values"])
        ]
        is_there = any(math.isfinite(value) for value in values)
        if not is_there and not any(metric in expression for metric in NEEDS_CALIBRATION):
            empty.append(f"{title}: {expression}")
    assert empty == []


@pytest.mark.server
@pytest.mark.parametrize("kind", ["victoria_metrics", "prometheus"])
def test_the_drill_down_shows_the_faulty_node_outside_the_band_of_its_peers(
    stores: Stores, kind: str
) -> None:
    def newest(title: str, wanted: str) -> list[float]:
        (panel,) = (p for p in loaded("node.json")["panels"] if p["title"] == title)
        (target,) = (t for t in panel["targets"] if t["legendFormat"] == wanted)
        expression = target["expr"]
        for variable, value in SHOWN.items():
            expression = expression.replace(variable, value)
        return [float(one["value"][1]) for one in stores.ask(kind, expression, instant=True)]

    low = newest("GPU utilisation", "peers 5 %")
    own = newest("GPU utilisation", "GPU {{gpu}}")
    assert len(own) == 8
    (median,) = newest("GPU utilisation", "peers median")
    assert len(low) == 1
    assert median > 80
    assert min(own) < median - 30, "the job stopped on this node"
    assert newest("Suspect", "Suspect") == [1.0]
    deviations = newest("GPU temperature in robust deviations from the peers' median", "GPU {{gpu}}")
    assert min(deviations) < -3


def test_files_are_what_the_script_makes() -> None:
    made = script("dashboards").rendered()
    assert set(made) == set(FILES)
    for name, text in made.items():
        assert (GRAFANA / name).read_text(encoding="utf-8") == text, "run scripts/dashboards.py"


@pytest.mark.parametrize("name", FILES)
def test_a_dashboard_is_whole(name: str) -> None:
    found = loaded(name)
    assert found["uid"].startswith("oddnode-")
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["description"].startswith("Healthy: "), panel["title"]
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not taken & cells, f"{panel['title']} lies over another panel"
        taken |= cells
        legends = {target["legendFormat"] for target in panel["targets"]}
        for override in panel["fieldConfig"]["overrides"]:
            assert override["matcher"]["options"] in legends
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    variables = {variable["name"] for variable in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([p["targets"] for p in panels])))
    assert used - {"__rate_interval", "__range"} <= variables


def test_dashboards_use_metrics_that_exist() -> None:
    own = {
        metric.name + {"counter": "_total", "histogram": "_bucket"}.get(metric.type, "")
        for metric in Telemetry().registry.collect()
    }
    known = own | set(load_catalog().by_name) | {"node_uname_info"}
    named = {
        word
        for _, _, text, _ in queries()
        for word in re.findall(
            r"\b((?:oddnode|node|DCGM|backendai)_\w+)", re.sub(r"[{(][^{}()]*[=~][^{}()]*[)}]", "", text)
        )
    }
    assert len(named) > 30
    assert named <= known
    everywhere = " ".join(text for _, _, text, _ in queries())
    assert {name for name in own if name not in everywhere} == set()

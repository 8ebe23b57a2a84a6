"""Make docs/metrics.md from the service's own metrics: `python scripts/metrics_reference.py` writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from detector.telemetry import Telemetry

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "deploy" / "alerts" / "oddnode.rules.yaml"
UNITS = {
    "_timestamp_seconds": "seconds since 1970",
    "_seconds": "seconds",
    "_bytes_read": "bytes",
    "_per_month": "per month",
}
HEAD = """# Own metrics

<!-- Made by scripts/metrics_reference.py from the metrics and the alert rules; a test compares them. -->

`GET /metrics` gives them in the Prometheus text format. All of them live in a registry of their own: there are no metrics of the Python
process. Counters also have a `_created` series with their time of birth.

| column | meaning |
|---|---|
| unit | what the value counts in; empty for a number of things, a 0 or 1, or a score |
| alerts | [rules](monitoring.md) that use it, each with its runbook |

| metric | type | unit | labels | meaning | alerts |
|---|---|---|---|---|---|
"""
TAIL = """
Kinds of `oddnode_ticks_failed_total`: `timeout`, `status_<code>` (the database answered with this HTTP status), `decode` (the answer was not what it
should be), `source` (anything else at the database, such as a refused connection), `pool_query` (the pool query failed; the evaluation goes on
with the pools as they were), `internal` (a defect; the log has the traceback).

Reasons of `oddnode_samples_dropped_total`: `nan` and `inf` (numbers that are none), `sentinel` (numbers that mean "no reading"), `future` (later than
what was asked for), `duplicate` (the same value at the same time again), `collision` (another value at the same time, so that two series look like one:
the larger one is kept).

Reasons of `oddnode_delivery_withheld`: `muted` ([by an operator](control.md)), `dismissed`, `shadow`, `guard`.

Receivers are `alertmanager/NAME`, `webhook/NAME`, `drain_file` and `write_back`, as in [delivery.md](delivery.md). Series by `node` are bounded to 10,000
nodes, suspects first.

Phases of `oddnode_tick_duration_seconds` are per tick: a tick that catches up on several times counts once.

## Alerts to begin with

The whole set, with unit tests and runbooks, and dashboards are in [Dashboards and alerts](monitoring.md). These do for a start:

```yaml
groups:
- name: oddnode
  rules:
  - alert: OddnodeSuspect
    expr: oddnode_suspect == 1 unless on (job, instance, node) oddnode_suspect_muted == 1
    annotations: {summary: "{{ $labels.node }} deviates from its peers: see /v1/nodes/{{ $labels.node }}"}
  - alert: OddnodeBlind
    # no verdict for five minutes, or none at all
    expr: oddnode_data_age_seconds > 300 or absent(oddnode_last_success_timestamp_seconds)
    for: 5m
  - alert: OddnodeComparesNothing
    expr: oddnode_series == 0
    for: 10m
  - alert: OddnodeNotStored
    expr: oddnode_store_pending > 0
    for: 10m
  - alert: OddnodeNotDelivered
    expr: oddnode_delivery_oldest_seconds > 300 or increase(oddnode_delivery_given_up_total[1h]) > 0
```

A suspect needs no `for`: the detector has waited already. With `delivery.alertmanagers` set, leave `OddnodeSuspect` out: it would call twice.
"""


def alerts(rules: Path = RULES) -> dict[str, list[str]]:
    """Return which alerts use a metric, by its name, in the order of the rules."""
    found: dict[str, list[str]] = {}
    for group in YAML(typ="safe").load(rules)["groups"]:
        for rule in group["rules"]:
            for name in sorted(set(re.findall(r"oddnode_\w+", rule["expr"]))):
                found.setdefault(name, []).append(rule["alert"])
    return found


def _unit(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def _row(metric: Any, alerted: Mapping[str, list[str]]) -> str:
    name = metric._name + ("_total" if metric._type == "counter" else "")
    cells = [
        f"`{name}`", metric._type, _unit(metric._name), ", ".join(f"`{label}`" for label in metric._labelnames),
        metric._documentation, ", ".join(f"[{alert}](runbooks/{alert}.md)" for alert in alerted.get(name, [])),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def page(telemetry: Telemetry, alerted: Mapping[str, list[str]]) -> str:
    """Return the page: one row per metric, in the order in which the service makes them."""
    # labels of a metric without series are known to the metric alone, not to what it collects
    metrics = dict.fromkeys(telemetry.registry._collector_to_names)
    return HEAD + "".join(_row(metric, alerted) for metric in metrics) + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(Telemetry(), alerts()), encoding="utf-8")

"""Make the Grafana dashboards of deploy/grafana: `python scripts/dashboards.py` writes them.

Panels are described here in a few words each, because thousand lines of JSON are not reviewed.
Every panel's description begins with what healthy looks like.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "grafana"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
BAND = {0.05: "peers 5 %", 0.5: "peers median", 0.95: "peers 95 %"}
OWN = 'job=~"$job"'


@dataclass
class Panel:
    """A panel.

    Parameters
    ----------
    title, healthy
        What it is called, and what healthy looks like.
    queries
        Expression by legend.
    kind
        Type of the panel.
    unit
        Grafana's name of the unit.
    width, height
        In Grafana's grid of 24 columns.
    band
        Legends of the peers' quantiles are drawn grey, the band filled.
    options, defaults
        What goes into the panel's options and field defaults besides.
    """

    title: str
    healthy: str
    queries: dict[str, str]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    band: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)

    def model(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Return the panel as Grafana reads it."""
        is_instant = self.kind in ("stat", "table")
        targets = [
            {
                "refId": chr(ord("A") + n),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": is_instant,
                "range": not is_instant,
                **({"format": "table"} if self.kind == "table" else {}),
            }
            for n, (legend, expression) in enumerate(self.queries.items())
        ]
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": f"Healthy: {self.healthy}",
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {
                "defaults": {"unit": self.unit, **self.defaults},
                "overrides": _grey_band() if self.band else [],
            },
            "options": self.options,
            "targets": targets,
        }


def _grey_band() -> list[dict[str, Any]]:
    low, middle, high = BAND.values()

    def override(name: str, **properties: Any) -> dict[str, Any]:
        listed = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
        return {"matcher": {"id": "byName", "options": name}, "properties": listed}

    grey = {"mode": "fixed", "fixedColor": "#8e8e8e"}
    return [
        override(low, color=grey, custom__lineWidth=0),
        override(high, color=grey, custom__lineWidth=0, custom__fillBelowTo=low, custom__fillOpacity=20),
        override(middle, color=grey, custom__lineWidth=1),
    ]


def query_variable(name: str, label: str, query: str, **more: Any) -> dict[str, Any]:
    """Return a variable that asks the database."""
    return {
        "type": "query", "name": name, "label": label, "datasource": SOURCE, "refresh": 2, "sort": 1,
        "definition": query, "query": {"query": query, "refId": name}, **more,
    }  # fmt: skip


def text_variable(name: str, label: str, default: str, description: str) -> dict[str, Any]:
    """Return a variable that is typed in."""
    current = {"text": default, "value": default}
    return {
        "type": "textbox", "name": name, "label": label, "description": description, "query": default,
        "current": current, "options": [{**current, "selected": True}],
    }  # fmt: skip


JOB = query_variable(
    "job", "job", "label_values(oddnode_build_info, job)", includeAll=True, allValue=".*",
    current={"text": "All", "value": "$__all"},
)  # fmt: skip
DATASOURCE = {"type": "datasource", "name": "datasource", "label": "data source", "query": "prometheus"}


def dashboard(uid: str, title: str, variables: list[dict[str, Any]], panels: list[Panel]) -> dict[str, Any]:
    """Lay panels out from left to right and return the dashboard."""
    models, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y, row = 0, y + row, 0
        models.append(panel.model(number, x, y))
        x, row = x + panel.width, max(row, panel.height)
    return {
        "uid": uid,
        "title": title,
        "tags": ["oddnode"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [DATASOURCE, *variables]},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "Oddnode",
                "tags": ["oddnode"],
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "panels": models,
    }


def steps(*pairs: tuple[float | None, str]) -> dict[str, Any]:
    """Return thresholds that colour a value."""
    return {
        "thresholds": {
            "mode": "absolute", "steps": [{"value": value, "color": color} for value, color in pairs]
        }
    }  # fmt: skip


def number(title: str, healthy: str, query: str, colours: dict[str, Any], unit: str = "none") -> Panel:
    """Return a single number."""
    return Panel(
        title, healthy, {title: query}, "stat", unit, 4, 4, defaults=colours,
        options={"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"},
    )  # fmt: skip


def suspects() -> dict[str, Any]:
    """Return the overview of suspects."""
    red, amber, green = "red", "orange", "green"
    return dashboard("oddnode-suspects", "Oddnode: suspects", [JOB], [
        number("Suspects", "0.", f"sum(oddnode_suspects{{{OWN}}})", steps((None, green), (1, red))),
        number("First signs", "0, now and then 1 or 2 for a few minutes.", f"sum(oddnode_pending{{{OWN}}})",
               steps((None, green), (3, amber))),
        number("Group events", "0. Else storage, fabric or the job moved many nodes: /v1/groups.",
               f"sum(oddnode_group_events{{{OWN}}})", steps((None, green), (1, amber))),
        number("Undetermined", "0. A node that cannot be judged is not a healthy one.",
               f"sum(oddnode_undetermined{{{OWN}}}) or vector(0)", steps((None, green), (1, amber))),
        number("Age of the verdicts", "30 to 60 s with the default step.",
               f"max(oddnode_data_age_seconds{{{OWN}}})", steps((None, green), (150, amber), (300, red)), "s"),
        number("Nodes", "as many as the cluster has.", f"count(oddnode_suspect{{{OWN}}})", steps((None, "blue"))),
        Panel("Suspects now", "an empty table.", {"": f"sort_desc(oddnode_score{{{OWN}}} and on (job, instance, node) "
              f"(oddnode_suspect{{{OWN}}} == 1))"}, "table", width=8, height=10),
        Panel("Who was suspect when", "no row.", {"{{node}}": f"max by (node) (oddnode_suspect{{{OWN}}}) and on (node) "
              f"(max by (node) (max_over_time(oddnode_suspect{{{OWN}}}[$__range])) == 1)",
              "{{node}} muted": f"max by (node) (oddnode_suspect_muted{{{OWN}}})"},
              "state-timeline", "none", 16, 10, options={"mergeValues": True, "showValue": "never"}),
        Panel("Strongest scores", "below 1, most below 0.5.", {"{{node}}": f"topk(10, oddnode_score{{{OWN}}})"},
              width=24, height=9, defaults={"min": 0, **steps((None, green), (1, red)),
                                            "custom": {"thresholdsStyle": {"mode": "line"}}}),
        Panel("Undetermined nodes by reason", "no series above 0.",
              {"{{reason}}": f"sum by (reason) (oddnode_undetermined{{{OWN}}}) or vector(0)"}, width=8),
        Panel("Steps of incidents per hour", "few; many `pending` that never become `suspect` are noise that was held back.",
              {"{{after}}": f"sum by (after) (increase(oddnode_transitions_total{{{OWN}}}[1h]))"}, width=8),
        Panel("Suspects in 30 days and budget", "within budget and expectation; what is over them is faults.", {
              "raised": f"sum(oddnode_suspects_raised_30d{{{OWN}}})",
              "budget": f"sum(oddnode_calibration_budget_per_month{{{OWN}}})",
              "expected": f"sum(oddnode_calibration_expected_per_month{{{OWN}}})"}, width=8),
    ])  # fmt: skip


def service() -> dict[str, Any]:
    """Return the service's own health."""
    rate = "$__rate_interval"
    return dashboard("oddnode-service", "Oddnode: the service itself", [JOB], [
        Panel("Age of the verdicts", "a saw-tooth below 60 s with the default step.",
              {"{{instance}}": f"oddnode_data_age_seconds{{{OWN}}}"}, unit="s"),
        Panel("Duration of a tick, 95th percentile", "all phases together well below the step of 30 s.",
              {"{{phase}}": "histogram_quantile(0.95, sum by (le, phase) "
               f"(rate(oddnode_tick_duration_seconds_bucket{{{OWN}}}[{rate}])))"}, unit="s"),
        Panel("Ticks per minute", "2 with the default step.",
              {"{{instance}}": f"60 * rate(oddnode_ticks_total{{{OWN}}}[{rate}])"}, width=8),
        Panel("Evaluations per minute", "2 with the default step; more while it catches up.",
              {"{{instance}}": f"60 * rate(oddnode_evaluations_total{{{OWN}}}[{rate}])"}, width=8),
        Panel("Ticks missed, failed or partial in an hour", "0.", {
              "missed": f"sum(increase(oddnode_ticks_missed_total{{{OWN}}}[1h]))",
              "failed: {{kind}}": f"sum by (kind) (increase(oddnode_ticks_failed_total{{{OWN}}}[1h])) or vector(0)",
              "partial": f"sum(increase(oddnode_ticks_partial_total{{{OWN}}}[1h]))"}, width=8),
        Panel("Seconds since the last good tick", "below 60 s.",
              {"{{instance}}": f"time() - oddnode_last_success_timestamp_seconds{{{OWN}}}"}, unit="s", width=8),
        Panel("Samples read per second", "steady; steps when nodes join or leave.",
              {"{{instance}}": f"rate(oddnode_samples_read_total{{{OWN}}}[{rate}])"}, width=8),
        Panel("Bytes read per second", "steady.",
              {"{{instance}}": f"rate(oddnode_bytes_read_total{{{OWN}}}[{rate}])"}, unit="Bps", width=8),
        Panel("What is compared", "steady.", {
              "series": f"sum(oddnode_series{{{OWN}}})", "cells": f"sum(oddnode_cells{{{OWN}}})",
              "peer groups": f"sum(oddnode_groups{{{OWN}}})"}, width=8),
        Panel("Samples left out per second, by reason", "steady and explained by `oddnode catalog check`.",
              {"{{reason}}": f"topk(10, sum by (reason) (rate(oddnode_samples_dropped_total{{{OWN}}}[{rate}]))) "
               "or vector(0)"}, width=8),
        Panel("Findings about the monitoring", "0; see data_quality in /v1/groups.",
              {"{{kind}}": f"sum by (kind) (oddnode_data_quality{{{OWN}}}) or vector(0)"}, width=8),
        Panel("Store", "0.", {
              "waits to be written": f"sum(oddnode_store_pending{{{OWN}}})",
              "failures in an hour": f"sum(increase(oddnode_store_failures_total{{{OWN}}}[1h]))"}, width=8),
        Panel("Settings", "1 and 0. 0 of the first: the newest file cannot be used; 1 of the second: a setting waits for a restart.", {
              "newest in effect: {{instance}}": f"oddnode_config_reload_success{{{OWN}}}",
              "restart pending: {{instance}}": f"oddnode_config_restart_pending{{{OWN}}}"}, width=8),
        Panel("Settings taken over", "the time of the last change that you know of.",
              {"{{instance}}": f"time() - oddnode_config_reload_timestamp_seconds{{{OWN}}}"}, unit="s", width=8),
        Panel("Delivery", "failures, dropped evaluations and messages given up stay 0.", {
              "sent per minute": f"60 * sum(rate(oddnode_delivery_sent_total{{{OWN}}}[5m])) or vector(0)",
              "failed per minute": f"60 * sum(rate(oddnode_delivery_failed_total{{{OWN}}}[5m])) or vector(0)",
              "given up in an hour": f"sum(increase(oddnode_delivery_given_up_total{{{OWN}}}[1h])) or vector(0)",
              "evaluations not seen": f"sum(increase(oddnode_delivery_evaluations_dropped_total{{{OWN}}}[1h])) or vector(0)"},
              width=8),
        Panel("Not told yet", "near 0, and younger than a minute.", {
              "waiting": f"sum(oddnode_delivery_queue{{{OWN}}}) or vector(0)",
              "age of the oldest, s": f"max(oddnode_delivery_oldest_seconds{{{OWN}}}) or vector(0)",
              "since the last success, s":
                  f"time() - max(oddnode_delivery_last_success_timestamp_seconds{{{OWN}}}) or vector(0)"}, width=8),
        Panel("Told and held back", "what is out is what is suspect; 1 of shadow: nothing is sent.", {
              "out": f"sum(oddnode_delivery_out{{{OWN}}})",
              "held back": f"sum(oddnode_delivery_withheld{{{OWN}}}) or vector(0)",
              "shadow": f"max(oddnode_delivery_shadow{{{OWN}}})"}, width=8),
        Panel("Leads", "exactly one replica has 1.", {"{{instance}}": f"oddnode_leader{{{OWN}}}"}, width=8),
        Panel("Suspect for", "nothing, or somebody looks after it.",
              {"{{node}}": f"time() - oddnode_suspect_since_timestamp_seconds{{{OWN}}}"}, unit="s", width=8),
        Panel("Settings in use", "one row per service; replicas have the same hash.",
              {"": f"oddnode_config_info{{{OWN}}}"}, "table", width=8),
        Panel("Calibration", "one row per service that has one, for the catalog in use.",
              {"": f"oddnode_calibration_info{{{OWN}}} or oddnode_build_info{{{OWN}}}"}, "table", width=16),
    ])  # fmt: skip


def gpu(title: str, healthy: str, metric: str, unit: str) -> Panel:
    """Return a GPU metric of the node over the band of all GPUs of the peers."""
    peers = f'{metric}{{$host_label=~"$peers"}}'
    lines = {legend: f"quantile({q:g}, {peers})" for q, legend in BAND.items()}
    lines["GPU {{gpu}}"] = f'{metric}{{$host_label="$node"}}'
    return Panel(title, healthy, lines, unit=unit, band=True)


def host(title: str, healthy: str, expression: str, unit: str, legend: str = "{{nodename}}") -> Panel:
    """Return an expression by instance of node exporter, of the node over the band of its peers."""

    def of(nodes: str) -> str:
        return f"({expression}) * on (instance) group_left (nodename) node_uname_info{{{nodes}}}"

    lines = {name: f"quantile({q:g}, {of(PEER_NODES)})" for q, name in BAND.items()}
    lines[legend] = of(THE_NODE)
    return Panel(title, healthy, lines, unit=unit, band=True)


THE_NODE, PEER_NODES = 'nodename="$node"', 'nodename=~"$peers"'
ROBUST = (
    '({m}{{$host_label="$node"}} - scalar(quantile(0.5, {m}{{$host_label=~"$peers"}}))) / '
    '(1.4826 * scalar(clamp_min(quantile(0.5, abs({m}{{$host_label=~"$peers"}} - '
    'scalar(quantile(0.5, {m}{{$host_label=~"$peers"}})))), {floor})))'
)


def node() -> dict[str, Any]:
    """Return one node beside the band of its peers."""
    alike = "within the grey band or near it; a line that leaves it for minutes is what Oddnode looks for."
    rate = "$__rate_interval"
    variables = [
        JOB,
        query_variable("node", "node", f"label_values(oddnode_suspect{{{OWN}}}, node)"),
        text_variable(
            "peers", "peers", ".+", "Regular expression of the nodes that are its peers, such as gpu0.+"
        ),
        text_variable("host_label", "host label", "Hostname", "Label that names the node in DCGM's series"),
    ]
    return dashboard("oddnode-node", "Oddnode: node", variables, [
        number("Suspect", "0.", f'max(oddnode_suspect{{{OWN}, node="$node"}})', steps((None, "green"), (1, "red"))),
        Panel("Score", "below 1; the grey line is the 95th percentile of all nodes.", {
              "peers 95 %": f"quantile(0.95, oddnode_score{{{OWN}}})",
              "{{node}}": f'oddnode_score{{{OWN}, node="$node"}}'}, width=20, height=6,
              defaults={"min": 0, **steps((None, "green"), (1, "red")),
                        "custom": {"thresholdsStyle": {"mode": "line"}}}),
        gpu("GPU utilisation", alike, "DCGM_FI_DEV_GPU_UTIL", "percent"),
        gpu("GPU power", alike, "DCGM_FI_DEV_POWER_USAGE", "watt"),
        gpu("GPU temperature", alike + " A GPU that is cooler is idle, not well.", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
        Panel("GPU temperature in robust deviations from the peers' median",
              "between -5 and 5 (the default of detection.z_threshold). Without habits, so a hot slot shows here for ever.",
              {"GPU {{gpu}}": ROBUST.format(m="DCGM_FI_DEV_GPU_TEMP", floor=1)}),
        gpu("SM clock", alike, "DCGM_FI_DEV_SM_CLOCK", "mhz"),
        gpu("GPU memory used", alike, "DCGM_FI_DEV_FB_USED", "mbytes"),
        gpu("NVLink traffic (an instantaneous rate)", alike, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "MBs"),
        Panel("Last XID of each GPU", "0 everywhere. The value stays after the error: a change counts, not the value.",
              {"GPU {{gpu}}": 'DCGM_FI_DEV_XID_ERRORS{$host_label="$node"}'}, unit="none"),
        host("CPU in use", alike, f'1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}[{rate}]))',
             "percentunit"),
        host("Memory available", alike, "node_memory_MemAvailable_bytes", "bytes"),
        host("InfiniBand received, all ports", alike,
             f"sum by (instance) (rate(node_infiniband_port_data_received_bytes_total[{rate}]))", "Bps"),
        host("InfiniBand sent, all ports", alike,
             f"sum by (instance) (rate(node_infiniband_port_data_transmitted_bytes_total[{rate}]))", "Bps"),
        host("NFS response time per operation", alike,
             f"sum by (instance) (rate(node_mountstats_nfs_operations_response_time_seconds_total[{rate}])) / "
             f"sum by (instance) (rate(node_mountstats_nfs_operations_requests_total[{rate}]) > 0)", "s"),
        host("TCP segments sent again", alike, f"rate(node_netstat_Tcp_RetransSegs[{rate}])", "cps"),
        Panel("Tasks waiting in Backend.AI's agent", "within the grey band; a growing count often is the first sign.", {
              **{name: f'quantile({q:g}, backendai_async_task_count{{display_name=~"agent-i-($peers)"}})'
                 for q, name in BAND.items()},
              "{{display_name}}": 'backendai_async_task_count{display_name="agent-i-$node"}'}, band=True),
    ])  # fmt: skip


DASHBOARDS = {"suspects.json": suspects, "node.json": node, "service.json": service}


def rendered() -> dict[str, str]:
    """Return each file's text by its name."""
    return {name: json.dumps(make(), indent=2) + "\n" for name, make in DASHBOARDS.items()}


if __name__ == "__main__":
    for file, text in rendered().items():
        (FOLDER / file).write_text(text, encoding="utf-8")

"""Write a case as a recorded incident: what Prometheus would have scraped of a site, and the labels."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import numpy as np

from benchmarks.other_site.cases import OtherCase, state_of
from benchmarks.other_site.dcgm_exporter import tell_gpus
from benchmarks.other_site.node_exporter import tell_node
from benchmarks.other_site.noise import POINT_S, Array
from benchmarks.other_site.scrape import Exporter, SeriesFile, Target
from benchmarks.other_site.site import Site
from detector.source.incident_file import FILE_NAME

SERIES_NAME = "series.jsonl.gz"

FLAKY_NODES, MISSED, MISSED_WHEN_FLAKY = 0.06, 0.0008, 0.0068
"""Share of nodes whose scrapes fail more often, and the shares of failed scrapes."""

TIMEOUT_S = 10.0
"""What Prometheus tells as the duration of a failed scrape."""


def write_case(case: OtherCase, folder: Path) -> Path:
    """Write a case into a folder of its own.

    Parameters
    ----------
    case
        What happens.
    folder
        Where the case's folder is made.

    Returns
    -------
    Path
        The case's folder.
    """
    site = state_of(case)
    path = folder / case.name
    path.mkdir(parents=True, exist_ok=True)
    with (
        (path / SERIES_NAME).open("wb") as raw,
        # without the time of writing, the same case is the same bytes
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as packed,
        TextIOWrapper(packed, encoding="utf-8") as file,
    ):
        _write_series(site, file)
    _write_labels(site, case, path / FILE_NAME)
    return path


def _write_series(site: Site, file: TextIO) -> None:
    is_flaky = site.rng.random(site.n_nodes) < FLAKY_NODES
    unlabelled = []
    for n in site.nodes:
        of_node = _scraped_target(site, site.node_exporter_up[n], flaky=bool(is_flaky[n]))
        of_gpus = _scraped_target(
            site, site.dcgm_exporter_up[n], flaky=bool(is_flaky[n]), collect_s=site.collect_s
        )
        unlabelled.append((of_node, of_gpus))
    series = SeriesFile(file)
    for n, (of_node, of_gpus) in enumerate(unlabelled):
        node_labels, gpu_labels = _target_labels(site, n)
        node_target = replace(of_node, labels=node_labels)
        gpu_target = replace(of_gpus, labels=gpu_labels)
        _tell_scrape(site, series, node_target, duration_s=0.03, n_samples=900 + 30 * site.rng.random())
        _tell_scrape(site, series, gpu_target, duration_s=0.012, n_samples=26 * site.hardware.n_gpus)
        tell_node(site, n, Exporter(series, node_target, site.noise, site.boots[n]))
        tell_gpus(site, n, Exporter(series, gpu_target, site.noise, site.boots[n]))


def _scraped_target(site: Site, is_up: Array, *, flaky: bool, collect_s: int = 0) -> Target:
    """Return a target without labels; one that collects every `collect_s` shows what it saw then."""
    length_s = site.minutes * 60
    since_s = np.arange(length_s // site.step_s + 1) * site.step_s + site.rng.uniform(0, site.step_s)
    since_s = since_s[since_s <= length_s]
    points = _points(site, since_s)
    missed = MISSED_WHEN_FLAKY if flaky else MISSED
    scraped = is_up[points] & (site.rng.random(len(since_s)) > missed)
    reads = points
    if collect_s:
        phase_s = site.rng.uniform(0, collect_s)
        collected_s = np.floor((since_s - phase_s) / collect_s) * collect_s + phase_s
        reads = _points(site, np.maximum(collected_s, 0))
    times_ms = np.round((site.start + since_s) * 1000).astype(np.int64)
    return Target({}, times_ms, reads, points, scraped)


def _points(site: Site, since_s: Array) -> Array:
    return np.asarray(np.minimum((since_s / POINT_S).astype(int), site.n_points - 1))


def _target_labels(site: Site, n: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels of a node's node_exporter and dcgm-exporter."""
    text, rng = site.noise.text, site.rng
    of_node = {
        "endpoint": "http-metrics",
        "instance": f"10.40.{1 + n // 200}.{10 + n % 200}:9100",
        "job": "node-exporter",
        "container": "node-exporter",
        "namespace": "monitoring",
        "pod": f"kps-prometheus-node-exporter-{text(5)}",
        "service": "kps-prometheus-node-exporter",
    }
    of_gpus = {
        "endpoint": "gpu-metrics",
        "instance": f"10.233.{64 + n}.{rng.integers(4, 250)}:9400",
        "job": "nvidia-dcgm-exporter",
        "container": "nvidia-dcgm-exporter",
        "namespace": "gpu-operator",
        "pod": f"nvidia-dcgm-exporter-{text(5)}",
        "service": "nvidia-dcgm-exporter",
    }
    if site.node_label:
        of_node["node"] = of_gpus["node"] = site.full_names[n]
    return of_node, of_gpus


def _tell_scrape(
    site: Site, series: SeriesFile, target: Target, *, duration_s: float, n_samples: float
) -> None:
    """Write what Prometheus itself adds to each scrape."""
    is_up = target.is_up
    usual_s = duration_s * site.noise.factor(0.15)
    took_s = usual_s * np.exp(0.25 * site.rng.standard_normal(len(is_up)))
    samples = np.where(is_up, int(n_samples), 0).astype(int)
    is_back = is_up & ~np.r_[True, is_up[:-1]]
    for name, values in {
        "up": is_up.astype(int),
        "scrape_duration_seconds": np.round(np.where(is_up, took_s, TIMEOUT_S), 9),
        "scrape_samples_scraped": samples,
        "scrape_samples_post_metric_relabeling": samples,
        "scrape_series_added": np.where(is_back, samples, 0).astype(int),
    }.items():
        series.write({"__name__": name, **target.labels}, target.times_ms, values)


def _write_labels(site: Site, case: OtherCase, file: Path) -> None:
    incident = {
        "id": f"other-site-{case.name}",
        "start": site.start,
        "end": site.start + site.minutes * 60,
        "step_s": site.step_s,
        "pool": site.hosts,
        "spares": [],
        "healthy": not site.faults,
        "faults": site.faults,
        "benign": site.benign,
        "masked": site.masked,
        "provenance": {"source": "benchmarks/other_site", "licence": "Apache-2.0", "made": "synthetic"},
        "notes": " ".join([(case.story.__doc__ or "").strip(), site.notes]).strip(),
    }
    file.write_text(json.dumps(incident, indent=1) + "\n", encoding="utf-8")

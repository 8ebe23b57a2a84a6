"""Writes simulated incidents in the form of recorded ones: ``series.jsonl.gz`` and ``incident.yaml``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML

from simulator.benign import benign_between
from simulator.cluster import Cluster
from simulator.faults import OF_EXPORTERS
from simulator.mods import Floats

Int64s = NDArray[np.int64]

MADE = ("reconstructed", "synthetic")


def ticks(start: float, end: float, step_s: float) -> list[float]:
    """Return the times of all scrapes from start to end, both included."""
    return [start + k * step_s for k in range(round((end - start) / step_s) + 1)]


def collect(cluster: Cluster, times: Sequence[float]) -> tuple[Floats, Int64s]:
    """Run the cluster and return all samples.

    Returns
    -------
    values : ndarray of shape (n_times, n_series)
        NaN where there is no sample.
    ts_ms : ndarray of shape (n_times, n_series), int64
        Times in epoch milliseconds.
    """
    n = len(cluster.series)
    values = np.empty((len(times), n))
    ts_ms = np.empty((len(times), n), dtype=np.int64)
    for k, at in enumerate(times):
        values[k], ts_ms[k] = cluster.tick(at)
    return values, ts_ms


def export_line(labels: Mapping[str, str], values: Floats, ts_ms: Int64s) -> bytes:
    """Return one series as VictoriaMetrics exports it, or nothing when it has no sample."""
    there = np.isfinite(values)
    if not there.any():
        return b""
    kept = values[there]
    whole = kept.astype(np.int64)
    numbers = whole.tolist() if (np.abs(kept) < 2**53).all() and (whole == kept).all() else kept.tolist()
    line = {"metric": dict(labels), "values": numbers, "timestamps": ts_ms[there].tolist()}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def write_case(
    path: Path,
    cluster: Cluster,
    start: float,
    end: float,
    *,
    case_id: str,
    source: str,
    made: str,
    licence: str = "Apache-2.0",
    notes: str = "",
    options: Mapping[str, Any] | None = None,
) -> int:
    """Run a cluster and write what it did as a recorded incident.

    The same cluster gives the same bytes.

    Parameters
    ----------
    path
        Folder, made when missing.
    cluster
        A cluster that has not ticked yet.
    start, end
        Epoch seconds of the first and last scrape, on the cluster's step.
    case_id
        Name of the case.
    source
        Where the story comes from.
    made
        ``reconstructed`` after a public description, or ``synthetic``.
    licence
        Licence of the data.
    notes
        Free text.
    options
        Further keys of ``incident.yaml``.

    Returns
    -------
    int
        Size of ``series.jsonl.gz`` in bytes.

    Raises
    ------
    ValueError
        When `made` is none of the two.
    """
    if made not in MADE:
        raise ValueError(f"made must be one of {', '.join(MADE)}, not {made!r}")
    path.mkdir(parents=True, exist_ok=True)
    size = _write_series(path / "series.jsonl.gz", cluster, ticks(start, end, cluster.config.step_s))
    head = {"id": case_id, "start": start, "end": end, "step_s": cluster.config.step_s}
    origin = {
        "source": source,
        "licence": licence,
        "made": made,
        "generator": "simulator",
        "seed": cluster.seed,
    }
    rest = {"provenance": origin, "notes": notes, **(options or {})}
    _write_yaml(path / "incident.yaml", {**head, **_truth(cluster, start, end), **rest})
    return size


def _write_series(file: Path, cluster: Cluster, times: Sequence[float]) -> int:
    values, ts_ms = collect(cluster, times)
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        for i in _by_target(cluster.series):
            out.write(export_line(cluster.series[i], values[:, i], ts_ms[:, i]))
    return file.stat().st_size


def _write_yaml(file: Path, content: Mapping[str, Any]) -> None:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 110
    with file.open("w", encoding="utf-8") as out:
        yaml.dump(dict(content), out)


def _by_target(series: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the order of series by target: those share their times, which then pack to nothing."""
    return sorted(range(len(series)), key=lambda i: (series[i]["job"], series[i]["instance"], i))


def _truth(cluster: Cluster, start: float, end: float) -> dict[str, Any]:
    """Return what evaluation needs to know."""
    config = cluster.config
    faults = [fault for fault in cluster.faults if fault.is_node_fault]
    events: list[dict[str, Any]] = [
        {
            "kind": e.kind,
            "nodes": list(e.nodes),
            "onset": e.onset,
            "end": min(e.end, end),
            "severity": str(e.severity),
        }
        for e in cluster.events
    ]
    events += [
        {"kind": f"{f.kind} {f.part}", "nodes": [f.node], "onset": f.onset, "end": min(f.end, end)}
        for f in cluster.faults
        if f.kind == "exporter_down"
    ]
    masked = [f for f in cluster.faults if f.kind == "maintenance"]
    return {
        "pool": list(config.pool),
        "spares": list(config.spare_names),
        "healthy": not faults,
        "faults": [
            {
                "node": f.node,
                "kind": f.kind,
                "onset": f.onset,
                "end": min(f.end, end),
                "part": f.part,
                "severity": str(f.severity),
            }
            for f in faults
        ],
        "group_events": events,
        "masked": [{"node": f.node, "onset": f.onset, "end": min(f.end, end)} for f in masked],
        "benign": _benign(cluster, start, end),
    }


def _benign(cluster: Cluster, start: float, end: float) -> list[dict[str, Any]]:
    config = cluster.config
    bursts = benign_between(config, cluster.seed, start, end) if config.benign_per_node_hour > 0 else ()
    found = [
        {"node": config.node_name(b.node), "kind": b.kind, "onset": round(b.onset), "end": round(b.end)}
        for b in sorted(bursts, key=lambda b: b.onset)
    ]
    return found + [
        {"node": f.node, "kind": f"{f.kind} {f.part}", "onset": f.onset, "end": min(f.end, end)}
        for f in cluster.faults
        if f.kind in OF_EXPORTERS
    ]

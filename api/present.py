"""From what the service knows to what the REST interface returns."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.core.series_view import SeriesView
from detector.outcome import DataQuality, Diagnosis, Evidence, GroupEvent, Incident, Transition, Verdict
from detector.service_view import Latest, ServiceView

Plain = dict[str, Any]


def finite(value: float | None) -> float | None:
    """Return a number that JSON can hold, or None."""
    return value if value is not None and math.isfinite(value) else None


def timed(view: ServiceView, latest: Latest | None) -> Plain:
    """Return what every answer says of its evaluation."""
    return {
        "at": None if latest is None else latest.outcome.at,
        "data_age_s": None if latest is None else finite(view.data_age_s()),
        "is_partial": latest is not None and latest.outcome.is_partial,
    }


def evidence(item: Evidence) -> Plain:
    """Return one piece of evidence."""
    band = item.band
    return {
        "metric": item.metric,
        "labels": dict(item.labels),
        "part": item.part,
        "layer": item.layer.value,
        "reason": item.reason,
        "score": finite(item.score) or 0.0,
        "value": finite(item.value),
        "peer_median": finite(item.peer_median),
        "band": band if band is not None and all(map(math.isfinite, band)) else None,
        "since": item.since,
        "n_peers": item.n_peers,
        "target": item.target,
        "side": item.side,
        "parts": list(item.parts),
        "n_siblings": item.n_siblings,
        "with_pool": item.with_pool,
    }


def diagnosis(item: Diagnosis | None) -> Plain | None:
    """Return what the evidence looks like, None for incidents that were stored without it."""
    return None if item is None else item.plain()


def suspect(incident: Incident, verdict: Verdict | None) -> Plain:
    """Return a suspect: its incident, with what is known of the node now."""
    now = verdict.evidence if verdict is not None and verdict.evidence else incident.evidence
    return {
        "node": incident.node,
        "score": None if verdict is None else finite(verdict.score),
        "since": incident.active_at,
        "suspect_since": incident.suspect_at,
        "part": (verdict.part if verdict is not None else "") or incident.part,
        "reason": incident.reason,
        "pool": "" if verdict is None else verdict.pool,
        "incident_id": incident.id,
        "diagnosis": diagnosis(incident.diagnosis),
        "evidence": [evidence(item) for item in now],
    }


def incident(item: Incident) -> Plain:
    """Return an incident."""
    return {
        "id": item.id,
        "node": item.node,
        "state": item.state,
        "active_at": item.active_at,
        "suspect_at": item.suspect_at,
        "cleared_at": item.cleared_at,
        "last_evidence_at": item.last_evidence_at,
        "healthy_s": item.healthy_s,
        "peak_score": finite(item.peak_score),
        "part": item.part,
        "reason": item.reason,
        "diagnosis": diagnosis(item.diagnosis),
        "evidence": [evidence(piece) for piece in item.evidence],
    }


def node(verdict: Verdict) -> Plain:
    """Return a node's verdict without its evidence."""
    return {
        "node": verdict.node,
        "pool": verdict.pool,
        "status": verdict.status.value,
        "score": finite(verdict.score),
        "part": verdict.part,
        "since": verdict.since,
        "reason": verdict.reason,
        "diagnosis": diagnosis(verdict.diagnosis),
    }


def plain(item: Transition | GroupEvent | DataQuality) -> Plain:
    """Return what has only texts and times."""
    return dict(msgspec.to_builtins(item))


def series(item: SeriesView) -> Plain:
    """Return a signal for a plot; where there is no sample the value is None."""
    return {
        "metric": item.metric,
        "node": item.node,
        "part": item.part,
        "labels": dict(item.labels),
        "times": item.times.tolist(),
        "value": _numbers(item.value),
        "median": _numbers(item.median),
        "low": _numbers(item.low),
        "high": _numbers(item.high),
        "lower_quartile": _numbers(item.lower_quartile),
        "upper_quartile": _numbers(item.upper_quartile),
        "above": _numbers(item.above),
        "below": _numbers(item.below),
        "usual": _numbers(item.usual),
        "habit": finite(item.habit),
        "n_peers": item.n_peers,
        "scope": item.scope.value,
        "has_slots": item.has_slots,
        "peers": [
            {"node": line.node, "part": line.part, "value": _numbers(line.value)} for line in item.lines
        ],
    }


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers with as many digits as a plot shows."""
    return [float(f"{x:.7g}") if math.isfinite(x) else None for x in values.tolist()]

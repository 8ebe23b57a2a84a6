"""From signals against their peers to the charts of a report."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from detector.core.series_view import SeriesView
from detector.evaluation.model import Moment, Trace
from detector.outcome import Evidence, Incident
from detector.story.model import Piece

MAX_PLOTS = 24


def part_of(item: Evidence) -> str:
    """Return the part that deviates most; of several, the evidence's own part is a count in words."""
    return item.parts[0] if item.parts else item.part


def piece_of(item: Evidence, incident: Incident, views: Iterable[SeriesView]) -> Piece:
    """Return a piece of evidence with that of its signals which was farthest from its peers."""
    traces = [_trace(item, incident, view) for view in views if np.isfinite(view.value).any()]
    return Piece(item, max(traces, key=lambda trace: _fit(item, trace), default=None))


def _fit(item: Evidence, trace: Trace) -> tuple[bool, float]:
    """Order signals of a metric: that with the evidence's own labels, then the farthest from its peers."""
    half = np.maximum(trace.high - trace.median, 1e-300)
    apart = np.abs(trace.value - trace.median) / half
    is_named = all(f"{name}={value}" in trace.metric for name, value in item.labels.items())
    return is_named, float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def _trace(item: Evidence, incident: Incident, view: SeriesView) -> Trace:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(view.labels.items()))
    return Trace(
        moment=Moment(incident.node, incident.active_at),
        metric=f"{item.metric}{{{labels}}}" if labels else item.metric,
        part=view.part,
        reason=item.reason,
        n_peers=view.n_peers,
        times=view.times,
        value=view.value,
        median=view.median,
        low=view.low,
        high=view.high,
    )

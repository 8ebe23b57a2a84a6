"""From signals against their peers to the charts of a report."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from detector.core.series_view import SeriesView
from detector.evaluation.model import Moment, Trace
from detector.evaluation.traces import as_trace, distance
from detector.outcome import Evidence, Incident
from detector.story.model import Piece

MAX_PLOTS = 24


def part_of(item: Evidence) -> str:
    """Return the part that deviates most; of several, the evidence's own part is a count in words."""
    return item.parts[0] if item.parts else item.part


def piece_of(item: Evidence, incident: Incident, views: Iterable[SeriesView]) -> Piece:
    """Return a piece of evidence with that of its signals which was farthest from its peers."""
    moment = Moment(incident.node, incident.active_at)
    seen = (view for view in views if np.isfinite(view.value).any())
    traces = [as_trace(moment, view, item.metric, item.reason) for view in seen]
    return Piece(item, max(traces, key=lambda trace: _fit(item, trace), default=None))


def _fit(item: Evidence, trace: Trace) -> tuple[bool, float]:
    """Order signals of a metric: that with the evidence's own labels, then the farthest from its peers."""
    is_named = all(f"{name}={value}" in trace.metric for name, value in item.labels.items())
    return is_named, distance(trace)

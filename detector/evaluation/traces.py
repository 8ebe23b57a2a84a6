"""One signal against its peers as a trace, and how far it went."""

from __future__ import annotations

import numpy as np

from detector.core.series_view import SeriesView
from detector.evaluation.model import Moment, Trace


def distance(view: SeriesView | Trace) -> float:
    """Return how far the member ever was from its peers, in half-widths of the band."""
    half = np.maximum(view.high - view.median, 1e-300)
    apart = np.abs(view.value - view.median) / half
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def as_trace(moment: Moment, view: SeriesView, metric: str, reason: str) -> Trace:
    """Return a signal as a trace; its labels are told with the metric."""
    labels = ", ".join(f"{key}={value}" for key, value in sorted(view.labels.items()))
    return Trace(
        moment=moment,
        metric=f"{metric}{{{labels}}}" if labels else metric,
        part=view.part,
        reason=reason,
        n_peers=view.n_peers,
        times=view.times,
        value=view.value,
        median=view.median,
        low=view.low,
        high=view.high,
    )

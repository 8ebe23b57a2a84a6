"""Charts over more than one window: what other windows, numbered in another way, hold of the same signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.core.series_view import PeerLine, SeriesQuery, SeriesView, Yardstick, series_views
from detector.core.window import Frame
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]

_LINES = (
    "times", "value", "median", "low", "high", "lower_quartile", "upper_quartile", "above", "below", "usual",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Era:
    """Evaluations whose cells one index numbers.

    Parameters
    ----------
    index
        Cells and their names.
    frames
        In order of time.
    yardstick
        By what deviations are measured.
    """

    index: SeriesIndex
    frames: Sequence[Frame]
    yardstick: Yardstick


def with_era_before(views: Sequence[SeriesView], era: Era, query: SeriesQuery) -> list[SeriesView]:
    """Return signals with what an earlier era holds of them before their own first time.

    Parameters
    ----------
    views
        Later part of each signal; when there are none, the era's own are returned.
    era
        The earlier one.
    query
        What was asked for.
    """
    if not views:
        return series_views(era.index, era.frames, era.yardstick, query)
    found = []
    for view in views:
        same = replace(
            query,
            part=view.part,
            labels=tuple(view.labels.items()),
            lines=tuple((line.node, line.part) for line in view.lines),
            until=min(query.until, float(view.times[0])),
            limit=20,
        )
        before = series_views(era.index, era.frames, era.yardstick, same)
        fitting = [one for one in before if one.part == view.part and one.labels == view.labels]
        found.append(joined(fitting[0], view) if fitting else view)
    return found


def joined(before: SeriesView, after: SeriesView) -> SeriesView:
    """Return one signal over two times: where both have a time, the later one counts.

    What is not a line (habit, number of peers, scope) is that of the later one, and so are the single peers.
    """
    is_new = before.times < after.times[0]
    lines = {(line.node, line.part): line.value for line in before.lines}
    gone = np.full(len(before.times), np.nan)

    def whole(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.concatenate([first[is_new], second])

    over_both: dict[str, Any] = {name: whole(getattr(before, name), getattr(after, name)) for name in _LINES}
    over_both["lines"] = tuple(
        PeerLine(line.node, line.part, whole(lines.get((line.node, line.part), gone), line.value))
        for line in after.lines
    )
    return replace(after, **over_both)

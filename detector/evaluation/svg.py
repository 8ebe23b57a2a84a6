"""Drawings of the report as inline SVG; every text is escaped, every drawing bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from detector.evaluation.model import Trace
from detector.evaluation.scoring import CaseScore
from detector.evaluation.spans import Span
from detector.evaluation.words import utc_words

WIDTH = 860
LEFT, RIGHT = 150, 12
LANE = 18
MAX_LANES = 14
MAX_POINTS = 400
PLOT_HEIGHT = 150
MAX_TICKS = 6
TICKS_S = (5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Distances between times that are told below a drawing, seconds."""

FloatArray = NDArray[np.float64]


def timeline(score: CaseScore) -> str:
    """Return the whole case: one lane per node with a label or an alarm, group events on top."""
    recording = score.recording
    nodes = _lanes(score)
    left_over = max(0, len(nodes) - MAX_LANES)
    nodes = nodes[:MAX_LANES]
    height = LANE * (len(nodes) + 2) + 8
    x = _Axis(recording.start, max(recording.end, recording.start + 1))
    parts = [_open(height, f"Timeline of {recording.id}")]
    parts += [
        _box(x, (g.event.onset, g.event.end), 0, height - 22, "group", f"group event: {g.event.kind}")
        for g in score.groups
    ]
    parts.append(_lane_name("group events told", 0))
    for call in score.findings.calls[:200]:
        end = call.end if call.end is not None else call.start + recording.step_s
        parts.append(_box(x, (call.start, end), 4, 10, "call", f"{call.kind}: {call.reason}"))
    for lane, node in enumerate(nodes, start=1):
        top = lane * LANE
        parts.append(_lane_name(node, top))
        parts += [
            _box(x, (m.onset, m.end), top + 2, LANE - 4, "masked", "masked: counts neither way")
            for m in recording.masked
            if m.node == node
        ]
        for fault in score.faults:
            if fault.fault.node == node:
                f = fault.fault
                css = "fault" if fault.delay_s is not None else "fault missed"
                parts.append(_box(x, (f.onset, f.end), top + 2, LANE - 4, css, f"fault: {f.kind} {f.part}"))
        for flag in score.findings.flags:
            if flag.node == node:
                end = recording.end if flag.cleared_at is None else flag.cleared_at
                css = "alarm false" if _is_false(score, node, flag.raised_at) else "alarm"
                text = f"flagged {utc_words(flag.raised_at)}: {flag.why}"
                parts.append(_box(x, (flag.raised_at, end), top + 6, LANE - 12, css, text))
    parts.append(_time_axis(x, height - 20, height - 6))
    parts.append("</svg>")
    if left_over:
        parts.append(f"<p class='small'>{left_over} more nodes with labels or alarms are not drawn.</p>")
    return "".join(parts)


def trace_plot(trace: Trace, score: CaseScore) -> str:
    """Return one signal against its peers' median and band, with the node's fault and alarms."""
    node = trace.moment.node
    faults = [(f.fault.onset, f.fault.end) for f in score.faults if f.fault.node == node]
    alarms = [Mark(f.raised_at, "raised", "alarm") for f in score.findings.flags if f.node == node]
    return signal_plot(trace, shaded=faults, marks=alarms)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that is drawn as an upright line: epoch seconds, class of the style sheet, and words."""

    at: float
    css: str
    title: str


def signal_plot(
    trace: Trace, *, shaded: Sequence[Span] = (), marks: Sequence[Mark] = (), style: str = ""
) -> str:
    """Return one signal against its peers' median and band; empty when it has no values.

    Parameters
    ----------
    trace
        The signal.
    shaded
        Times of a known fault.
    marks
        Moments.
    style
        Style sheet of the drawing itself, for readers that do not apply that of the page.
    """
    low, high = _y_range(trace)
    if not len(trace.times) or not low < high:
        return ""
    x = _Axis(float(trace.times[0]), float(max(trace.times[-1], trace.times[0] + 1)))
    parts = [_open(PLOT_HEIGHT, f"{trace.metric} of {trace.moment.node} against its peers")]
    if style:
        parts.append(f"<style>{style}</style>")
    body = PLOT_HEIGHT - 24
    parts += [_box(x, span, 0, body, "during", "fault") for span in shaded]
    keep = _thinned(trace)

    def y(values: FloatArray) -> FloatArray:
        return np.clip(4 + (high - values) / (high - low) * (body - 8), -20, body + 20)

    for run in _runs(np.isfinite(trace.low) & np.isfinite(trace.high), keep):
        xs = x.at(trace.times[run])
        edge = [*zip(xs, y(trace.high[run]), strict=True)]
        back = [*zip(xs, y(trace.low[run]), strict=True)][::-1]
        parts.append(f"<polygon class='band' points='{_points([*edge, *back])}'/>")
    for values, css in ((trace.median, "median"), (trace.value, "value")):
        for run in _runs(np.isfinite(values), keep):
            points = [*zip(x.at(trace.times[run]), y(values[run]), strict=True)]
            parts.append(f"<polyline class='{css}' points='{_points(points)}'/>")
            if len(points) == 1:
                parts.append(f"<circle class='{css}' r='2' cx='{points[0][0]:.1f}' cy='{points[0][1]:.1f}'/>")
    for mark in marks:
        if x.start <= mark.at <= x.end:
            at = float(x.at(np.array([mark.at]))[0])
            parts.append(
                f"<line class='{mark.css}' x1='{at:.1f}' x2='{at:.1f}' y1='0' y2='{body}'>"
                f"<title>{escape(mark.title)}</title></line>"
            )
    for value, at_y in ((high, 12), (low, body)):
        parts.append(f"<text x='{LEFT - 6}' y='{at_y}' class='end'>{value:.4g}</text>")
    parts.append(_time_axis(x, body, PLOT_HEIGHT - 8))
    parts.append("</svg>")
    return "".join(parts)


class _Axis:
    """Time on the horizontal axis."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def at(self, times: FloatArray) -> FloatArray:
        share = np.clip((np.asarray(times) - self.start) / (self.end - self.start), 0.0, 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def _lanes(score: CaseScore) -> list[str]:
    """Nodes in order of interest: missed, falsely flagged, found, masked."""
    missed = [f.fault.node for f in score.faults if f.delay_s is None]
    false = [a.episode.node for a in score.false_alarms]
    found = [f.fault.node for f in score.faults if f.delay_s is not None]
    flagged = [f.node for f in score.findings.flags]
    masked = [m.node for m in score.recording.masked]
    return list(dict.fromkeys([*missed, *false, *found, *flagged, *masked]))


def _is_false(score: CaseScore, node: str, at: float) -> bool:
    return any(
        a.episode.node == node and a.episode.raised_at <= at <= a.episode.cleared_at
        for a in score.false_alarms
    )


def _open(height: int, title: str) -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{escape(title, quote=True)}'>"
        f"<title>{escape(title)}</title>"
    )


def _box(x: _Axis, span: Span, top: float, height: float, css: str, title: str) -> str:
    left, right = x.at(np.array(span))
    width = max(2.0, right - left)
    return (
        f"<rect class='{css}' x='{min(left, WIDTH - RIGHT - 2):.1f}' y='{top}' width='{width:.1f}' "
        f"height='{height}'><title>{escape(title[:300])}</title></rect>"
    )


def _lane_name(name: str, top: float) -> str:
    shown = name if len(name) <= 22 else "…" + name[-21:]
    return f"<text x='{LEFT - 6}' y='{top + 13}' class='end'>{escape(shown)}</text>"


def time_ticks(start: float, end: float) -> list[tuple[float, str]]:
    """Return round times of day (UTC) in a time span, and their words; the date is told where it is new."""
    every = next((step for step in TICKS_S if (end - start) / step <= MAX_TICKS), None)
    if every is None:
        days = math.ceil((end - start) / 86400.0 / MAX_TICKS)
        every = days * 86400
    times = [k * every for k in range(math.ceil(start / every), math.floor(end / every) + 1)]
    found: list[tuple[float, str]] = []
    day = ""
    for at in [float(time) for time in times] or [start]:
        date, _, clock = utc_words(at).partition(" ")
        shown = clock if every < 60 else clock[:5]
        found.append((at, shown if date == day else f"{date[5:]} {shown}"))
        day = date
    return found


def _time_axis(x: _Axis, line_y: float, text_y: float) -> str:
    parts = [
        f"<line class='axis' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{line_y}' y2='{line_y}'/>",
        f"<text x='{LEFT - 6}' y='{text_y}' class='end'>UTC</text>",
    ]
    for at, label in time_ticks(x.start, x.end):
        left = float(x.at(np.array([at]))[0])
        anchor = "start" if left < LEFT + 30 else "end" if left > WIDTH - RIGHT - 30 else "middle"
        parts.append(f"<line class='axis' x1='{left:.1f}' x2='{left:.1f}' y1='{line_y}' y2='{line_y + 4}'/>")
        parts.append(f"<text x='{left:.1f}' y='{text_y}' text-anchor='{anchor}'>{escape(label)}</text>")
    return "".join(parts)


def _y_range(trace: Trace) -> tuple[float, float]:
    """Return bounds that show the member and the band; an endless band is left to run out."""
    values = np.concatenate([trace.value, trace.median])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 0.0
    low, high = float(values.min()), float(values.max())
    band = np.concatenate([trace.low, trace.high])
    band = band[np.isfinite(band)]
    room = max(high - low, 1e-12)
    if len(band):
        low = min(low, max(float(band.min()), low - 2 * room))
        high = max(high, min(float(band.max()), high + 2 * room))
    margin = 0.05 * max(high - low, abs(high) * 1e-6, 1e-12)
    return low - margin, high + margin


def _thinned(trace: Trace) -> NDArray[np.int64]:
    """Return the samples to draw: all, or evenly spread ones and in each stretch the farthest."""
    n = len(trace.times)
    if n <= MAX_POINTS:
        return np.arange(n)
    apart = np.nan_to_num(np.abs(trace.value - trace.median), nan=-1.0, posinf=1e300)
    edges = np.linspace(0, n, MAX_POINTS // 2 + 1).astype(np.int64)
    far = [low + int(np.argmax(apart[low:high])) for low, high in pairwise(edges)]
    return np.unique(np.concatenate([edges[:-1], np.array(far), [n - 1]]))


def _runs(known: NDArray[np.bool_], keep: NDArray[np.int64]) -> Iterable[NDArray[np.int64]]:
    """Split the samples to draw where values are missing: a gap is never bridged."""
    chosen = known[keep]
    breaks = np.flatnonzero(~chosen)
    for run in np.split(np.arange(len(keep)), breaks):
        inside = run[chosen[run]]
        if len(inside):
            yield keep[inside]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in points)

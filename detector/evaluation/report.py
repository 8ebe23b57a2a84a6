"""The result as one HTML file: no script, no request to anywhere, every label escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from detector.evaluation.model import Trace
from detector.evaluation.report_style import STYLE
from detector.evaluation.result import Result
from detector.evaluation.scoring import CaseScore
from detector.evaluation.summary import FaultRow, Summary, made_of, set_of
from detector.evaluation.svg import timeline, trace_plot
from detector.evaluation.words import (
    delay_words,
    rate_words,
    seconds_words,
    share_words,
    summary_rows,
    utc_words,
)

MAX_SECTIONS = 400
"""Cases with a section of their own; the JSON holds all."""

MAX_PER_CASE = 30
"""Faults and false alarms listed in one section."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_KEY = (
    "<p class='small key'><i style='background:var(--missed)'></i>missed fault"
    "<i style='background:var(--fault)'></i>found fault<i style='background:var(--alarm)'></i>alarm"
    "<i style='background:var(--alarm);outline:1.5px solid var(--missed)'></i>false alarm"
    "<i style='background:var(--mask)'></i>masked<i style='background:var(--group)'></i>group event. "
    "Curves: the node's signal (blue), its peers' median (dashed) and their ordinary band (grey); "
    "the dotted red line is the alarm.</p>"
)


def html_report(result: Result) -> str:
    """Return the report; misses and false alarms come first."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        "<meta name='viewport' content='width=device-width,initial-scale=1'>",
        f"<title>Evaluation of {escape(result.detector)}</title><style>{STYLE}</style></head><body>",
        f"<h1>Evaluation of {escape(result.detector)}</h1>",
        _rules(result),
        _left_out(result),
    ]
    parts += [_origin(result, summary) for summary in result.origins]
    ordered = worst_first(result.scores)
    shown, rest = ordered[:MAX_SECTIONS], ordered[MAX_SECTIONS:]
    bad = [score for score in shown if faultiness(score) > (0, 0, 0)]
    good = [score for score in shown if faultiness(score) == (0, 0, 0)]
    parts.append("<h2>Misses and false alarms</h2>" + _KEY)
    parts += [_case(result, score, is_open=True) for score in bad] or ["<p>None.</p>"]
    parts.append("<h2>Cases without either</h2>")
    parts += [_case(result, score, is_open=False) for score in good] or ["<p>None.</p>"]
    if rest:
        parts.append(f"<p class='small'>{len(rest)} more cases are in the JSON only.</p>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def faultiness(score: CaseScore) -> tuple[int, int, int]:
    """Return what went wrong in a case: misses, false alarms, group events not called right."""
    missed = sum(fault.delay_s is None for fault in score.faults)
    wrong = sum(not group.right for group in score.groups)
    return missed, len(score.false_alarms), wrong


def worst_first(scores: Iterable[CaseScore]) -> list[CaseScore]:
    """Order cases by misses, then false alarms, then id."""
    return sorted(scores, key=lambda s: (*(-n for n in faultiness(s)), s.recording.id))


def _rules(result: Result) -> str:
    rules = result.rules
    text = (
        f"A fault is found when its node is flagged between one step before the onset and the end plus "
        f"{seconds_words(rules.grace_s)} (or {rules.grace_steps:g} steps, if longer). An alarm that was open "
        f"before finds nothing. Alarms of one node less than {seconds_words(rules.merge_s)} apart are one; "
        f"every one that finds no fault is false, except those that rise in masked time. Intervals: Wilson "
        f"95 % for shares, for F1 that of found / (found + false + missed); 'at most' is the one-sided 95 % "
        f"Poisson bound. A cluster-month is {rules.nodes_per_cluster} nodes for "
        f"{rules.days_per_month:g} days. Recorded, reconstructed and synthetic cases are never added up; "
        f"time that several recorded cases share counts once."
    )
    settings = "; ".join(f"{key}: {value}" for key, value in result.settings.items())
    return f"<p class='small'>{escape(text)}</p><p class='small'>{escape(settings)}</p>"


def _left_out(result: Result) -> str:
    if not result.left_out:
        return f"<p>All {len(result.scores)} cases were evaluated.</p>"
    rows = [(item.path, item.reason) for item in result.left_out]
    n = len(result.left_out)
    text = f"{n} left out, {len(result.scores)} evaluated: the numbers below speak of the latter only."
    return f"<p class='bad'>{text}</p>" + _table("Left out", ("case", "why"), rows)


def _origin(result: Result, s: Summary) -> str:
    head = f"<h2>{escape(s.name)}: {s.n_cases} cases, {s.n_healthy_cases} of them healthy</h2>"
    parts = [head, _table("", ("figure", "value, 95 % interval, n"), summary_rows(s))]
    parts.append(_fault_table("Faults by kind", s.kinds))
    if len(s.severities) > 1:
        parts.append(_fault_table("Faults by severity", s.severities))
    groups = [(g.name, share_words(g.called), share_words(g.right), str(g.n_blamed)) for g in s.groups]
    parts.append(
        _table("Group events and outages", ("kind", "called", "called, nobody blamed", "blamed"), groups)
    )
    sets = [
        (
            x.name,
            str(x.n_cases),
            share_words(x.recall),
            share_words(x.precision),
            rate_words(x.false_rate, per_month=False),
        )
        for x in result.sets[s.name]
    ]
    parts.append(_table("By set", ("set", "cases", "recall", "precision", "false alarms per node-day"), sets))
    return "".join(parts)


def _fault_table(title: str, rows: Sequence[FaultRow]) -> str:
    cells = [[r.name, share_words(r.recall), delay_words(r.delay), share_words(r.part)] for r in rows]
    head = ["name", "recall", "delay", "part right"]
    if any(r.visible.n for r in rows):
        cells = [[*cell, share_words(r.visible)] for cell, r in zip(cells, rows, strict=True)]
        head.append("visible found")
    return _table(title, head, cells)


def _case(result: Result, score: CaseScore, *, is_open: bool) -> str:
    recording = score.recording
    missed, false, _ = faultiness(score)
    said = f"{len(score.faults) - missed} of {len(score.faults)} faults found, {false} false alarms"
    origin = f"{made_of(recording)}, set {set_of(recording)}, step {seconds_words(recording.step_s)}"
    title = f"{escape(recording.id)} <span class='small'>{escape(origin)}</span>"
    body = [_told(score), timeline(score)]
    for trace in result.traces.get(recording.id, ()):
        body.append(_trace(trace, score))
    body += [f"<p class='small'>{escape(note)}</p>" for note in score.findings.notes[:5]]
    inner = "".join(body)
    if is_open:
        return f"<section class='case'><h3>{title}</h3><p class='bad'>{said}</p>{inner}</section>"
    return f"<details class='case'><summary>{title} {said}</summary>{inner}</details>"


def _told(score: CaseScore) -> str:
    """List faults, false alarms and group events of a case in words."""
    lines = []
    for fault in score.faults[:MAX_PER_CASE]:
        f = fault.fault
        what = f"{f.node} {f.part}".strip() + f": {f.kind}, onset {utc_words(f.onset)}"
        what += "".join(f", {word}" for word in (f.severity, f.visible) if word)
        if f.visible_at is not None:
            what += f" {seconds_words(f.visible_at - f.onset)} after it"
            what += f" in {f.visible_in}" if f.visible_in else ""
        if fault.delay_s is None:
            lines.append(f"<li><b class='bad'>missed</b> {escape(what)}; {escape(fault.why)}</li>")
        else:
            named = f", named {fault.named}" if fault.named else ""
            after = f"found after {seconds_words(fault.delay_s)}{named}"
            lines.append(f"<li>{escape(after)}: {escape(what)}</li>")
    for alarm in score.false_alarms[:MAX_PER_CASE]:
        e = alarm.episode
        text = f"{e.node} at {utc_words(e.raised_at)}, in {alarm.during}: {e.flags[0].why}"
        lines.append(f"<li><b class='bad'>false</b> {escape(text)}</li>")
    for group in score.groups[:MAX_PER_CASE]:
        said = "called" if group.called else "not called"
        text = f"group event {group.event.kind}: {said}, {group.n_blamed} blamed"
        lines.append(f"<li>{escape(text)}</li>")
    left = max(0, len(score.faults) - MAX_PER_CASE) + max(0, len(score.false_alarms) - MAX_PER_CASE)
    if left:
        lines.append(f"<li>{left} more</li>")
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _trace(trace: Trace, score: CaseScore) -> str:
    drawing = trace_plot(trace, score)
    if not drawing:
        return ""
    what = f"{trace.moment.node} {trace.part}".strip() + f": {trace.metric} against {trace.n_peers} peers"
    reason = f" ({trace.reason})" if trace.reason else ""
    return f"<p class='why'>{escape(what + reason)}</p>{drawing}"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{caption}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

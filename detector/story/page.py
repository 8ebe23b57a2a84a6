"""A story as one page: no script, no request to anywhere, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from detector.core.evidence import BAND_SIGMAS
from detector.core.figure import figure
from detector.evaluation.report_style import STYLE, on_paper
from detector.evaluation.svg import Mark, signal_plot
from detector.evaluation.words import seconds_words
from detector.outcome import Evidence, Incident
from detector.plain_text import utc_second
from detector.story.model import Piece, Story

MAX_ROWS = 200
"""Rows of one table."""

MAX_TEXT = 2000
"""Characters of one text."""

WORDS = (
    ("peers", "nodes or parts that do the same work at the same time: their readings should be alike"),
    ("median", "the reading in the middle: half of the peers are above it, half below"),
    ("MAD", "median of the peers' distances from their median; 1.4826 MAD is one robust deviation"),
    ("robust deviations (z)", "distance from the peers' median in these; beyond 5 it is hardly chance"),
    (
        "ordinary band",
        f"{BAND_SIGMAS:g} robust deviations to either side: nearly all healthy readings lie in it",
    ),
    ("habit", "by how much this part differs from its peers anyway: only what goes beyond it counts"),
    ("worth", "share of what is needed to name a node: pieces of evidence add up, 1 is the threshold"),
)
"""What a reader who does not know Oddnode needs."""

_OWN = """
body { max-width:900px }
h1 { overflow-wrap:anywhere }
h2 { break-after:avoid }
dl { display:grid; grid-template-columns:max-content 1fr; gap:.25rem 1.2rem; margin:1rem 0 }
dt { color:var(--soft) }
dd { margin:0; overflow-wrap:anywhere }
.lead { font-size:1.1rem; margin:.4rem 0 0 }
.card { background:var(--card); border:1px solid var(--line); border-radius:8px; padding:.6rem 1rem }
.card { margin:.7rem 0; break-inside:avoid }
.card p { margin:.2rem 0; overflow-wrap:anywhere }
code { font-size:.92em; overflow-wrap:anywhere }
.key svg { display:inline-block; width:2.2em; height:.8em; margin:0 .3em 0 .8em; vertical-align:middle }
.first { stroke:var(--fault); stroke-width:1.5; stroke-dasharray:5 3 }
.named { stroke:var(--missed); stroke-width:1.5 }
td:first-child { min-width:9.5em }
tr { break-inside:avoid }
@media print {
  body { margin:0; max-width:none; font-size:12px }
  .small { font-size:11px }
  .card { margin:.4rem 0 }
}
@page { size:A4; margin:16mm; @bottom-right { content:counter(page) " / " counter(pages) } }
"""


def story_page(story: Story, *, for_paper: bool = False) -> str:
    """Return the page.

    Parameters
    ----------
    story
        What to tell.
    for_paper
        True draws in light colours only, and gives each drawing a style sheet of its own, which programs
        that print need.
    """
    style = on_paper(STYLE + _OWN) if for_paper else STYLE + _OWN
    incident = story.incident
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{incident.node}{f', {incident.part}' if incident.part else ''}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "" if for_paper else f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "<meta name='viewport' content='width=device-width,initial-scale=1'>",
        f"<title>{_text(title)}: report of Oddnode</title><style>{style}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        _lead(incident),
        _facts(story),
        _why(incident),
        _order(incident),
        _evidence(story, style if for_paper else ""),
        _table("Steps", ("when (UTC)", "after", "step", "why"), [
            (utc_second(s.at), f"+{seconds_words(max(0.0, s.at - incident.active_at))}",
             f"{s.before} to {s.after}", s.reason) for s in story.transitions
        ]),
        _table("What operators did", ("when (UTC)", "who", "what", "note"), [
            (utc_second(a.at), a.by, f"{a.action.value} {a.subject}", a.note) for a in story.actions
        ]),
        _table("Group events at that time", ("from", "to", "pool", "what"), [
            (utc_second(e.started_at), _until(e.ended_at), e.pool, e.reason) for e in story.events
        ]),
        _list("Other nodes that were named", story.also_named),
        _table("About the monitoring", ("since", "node", "what"), [
            (utc_second(f.since), f.node or "all", f.reason) for f in story.findings
        ]),
        _compared(story),
        _list("Notes", story.notes),
        "</body></html>\n",
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _until(at: float | None) -> str:
    return "it went on" if at is None else utc_second(at)


def _lead(incident: Incident) -> str:
    found = incident.diagnosis
    if found is None:
        return f"<p class='lead'>{_text(incident.reason)}</p>"
    sure = f"{found.confidence}: " if found.confidence else ""
    check = f"<p><b>Check:</b> {_text(found.check)}</p>" if found.check else ""
    return f"<p class='lead'><b>{_text(sure + found.title)}</b></p>{check}"


def _facts(story: Story) -> str:
    i, compared = story.incident, story.compared
    named = "never"
    if i.suspect_at is not None:
        named = (
            f"{utc_second(i.suspect_at)}, {seconds_words(i.suspect_at - i.active_at)} after the first sign"
        )
    rows = [
        ("node", i.node),
        ("part", i.part or "the machine as a whole"),
        *story.hardware,
        ("first sign", utc_second(i.active_at)),
        ("named", named),
        ("cleared", "it was still open" if i.cleared_at is None else utc_second(i.cleared_at)),
        ("highest score", f"{i.peak_score:.1f}; 1 is the threshold"),
        ("evidence", _amount(i.evidence)),
    ]
    if compared is not None and compared.n_pool:
        rows.append(("compared with", f"{compared.n_pool - 1} other nodes of pool {compared.pool}"))
    rows.append(("incident", i.id))
    body = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in rows)
    return f"<dl>{body}</dl>"


def _amount(evidence: Sequence[Evidence]) -> str:
    targets = len({item.target for item in evidence})
    return f"{len(evidence)} signals of {targets} monitored {'target' if targets == 1 else 'targets'}"


def _why(incident: Incident) -> str:
    found = incident.diagnosis
    if found is None:
        return ""
    lines = list(found.reasons)
    if found.role:
        lines.append(f"{found.role}: {found.role_reason}")
    if found.also:
        lines.append(f"also possible: {', '.join(found.also)}")
    return _list("Why this class of fault", lines)


def _order(incident: Incident) -> str:
    """Tell which monitored target moved first: by the earliest onset of its evidence."""
    first: dict[str, Evidence] = {}
    for item in sorted(incident.evidence, key=lambda item: item.since):
        first.setdefault(item.target or "other", item)
    rows = [
        (utc_second(item.since), _after(item.since - incident.active_at), target, _signal(item))
        for target, item in first.items()
    ]
    told = incident.diagnosis.order if incident.diagnosis is not None else ""
    table = _table("What moved first", ("since (UTC)", "", "target", "signal"), rows)
    return table + (f"<p>{_text(told)}</p>" if told else "")


def _after(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{seconds_words(abs(seconds))}"


def _signal(item: Evidence) -> str:
    return f"{item.metric} on {item.part}" if item.part else item.metric


def _evidence(story: Story, style: str) -> str:
    if not story.pieces:
        return ""
    has_plots = any(piece.trace is not None for piece in story.pieces)
    cards = [_card(piece, story.incident, style) for piece in story.pieces[:MAX_ROWS]]
    words = "".join(f"<dt>{_text(word)}</dt><dd>{_text(meaning)}</dd>" for word, meaning in WORDS)
    return (
        f"<h2>Evidence</h2>{_key(style) if has_plots else ''}{''.join(cards)}"
        f"<h2>The words in it</h2><dl class='small'>{words}</dl>"
    )


def _key(style: str) -> str:
    def sample(drawing: str) -> str:
        own = f"<style>{style}</style>" if style else ""
        return f"<svg viewBox='0 0 44 16' width='44' height='16' aria-hidden='true'>{own}{drawing}</svg>"

    pieces = (
        ("<line class='value' x1='0' x2='44' y1='8' y2='8'/>", "the part"),
        ("<line class='median' x1='0' x2='44' y1='8' y2='8'/>", "median of its peers"),
        ("<rect class='band' x='0' y='2' width='44' height='12'/>", "their ordinary band"),
        ("<line class='first' x1='22' x2='22' y1='0' y2='16'/>", "first sign"),
        ("<line class='named' x1='22' x2='22' y1='0' y2='16'/>", "named"),
    )
    body = "".join(f"{sample(drawing)}{word}" for drawing, word in pieces)
    return f"<p class='small key'>{body}. Times of day are UTC.</p>"


def _card(piece: Piece, incident: Incident, style: str) -> str:
    item = piece.evidence
    labels = ", ".join(f"{name}={value}" for name, value in sorted(item.labels.items()))
    where = f" on {item.part}" if item.part else ""
    head = (
        f"<p><code>{_text(item.metric)}</code>{_text(where)}"
        + (f" <span class='small'>{_text(labels)}</span>" if labels else "")
        + f"</p><p>{_text(item.reason)}</p><p class='small'>{_text(_numbers(item))}</p>"
    )
    drawing = ""
    if piece.trace is not None:
        marks = [Mark(incident.active_at, "first", "first sign")]
        if incident.suspect_at is not None:
            marks.append(Mark(incident.suspect_at, "named", "named"))
        drawing = signal_plot(piece.trace, marks=marks, style=style)
    return f"<div class='card'>{head}{drawing}</div>"


def _numbers(item: Evidence) -> str:
    told = [f"layer {item.layer.value}", f"worth {item.score:.2g}", f"since {utc_second(item.since)}"]
    if item.value is not None:
        told.append(f"value {figure(item.value)}")
    if item.peer_median is not None:
        told.append(f"median of {item.n_peers} peers {figure(item.peer_median)}")
    if item.band is not None:
        told.append(f"their band {figure(item.band[0])} to {figure(item.band[1])}")
    return ", ".join(told)


def _compared(story: Story) -> str:
    rows: list[tuple[str, str]] = []
    if (c := story.compared) is not None:
        rows += [
            ("time", f"{utc_second(c.start)} to {utc_second(c.end)}, every {seconds_words(c.step_s)}"),
            ("evaluations", str(c.evaluations)),
            ("nodes", str(c.n_nodes)),
            ("series, compared signals, peer groups", f"{c.n_series}, {c.n_cells}, {c.n_groups}"),
            ("samples", c.source or "a recording"),
        ]
    rows += [("case", story.case), *story.judged_by]
    return _table("What was compared, and by what", ("", ""), rows) + (
        "<p class='small'>A node is named when it differs from nodes that do the same work. That is "
        "evidence, and no proof: the class of fault is the likeliest that fits it.</p>"
    )


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    body = "".join(f"<li>{_text(line)}</li>" for line in lines[:MAX_ROWS])
    return f"<h2>{_text(title)}</h2><ul>{body}</ul>"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    top = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:MAX_ROWS]
    )
    more = f"<p class='small'>and {len(rows) - MAX_ROWS} more</p>" if len(rows) > MAX_ROWS else ""
    head_row = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f"<h2>{_text(title)}</h2><table>{head_row}<tbody>{lines}</tbody></table>{more}"


def _text(text: str) -> str:
    """Return text as markup: escaped, bounded, and without characters that turn its direction."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text[:MAX_TEXT])
    return escape(shown) + ("…" if len(text) > MAX_TEXT else "")

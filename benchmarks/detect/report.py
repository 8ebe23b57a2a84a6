"""The results of the detection bench as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.detect.bench import RULES, Outcome
from benchmarks.detect.circumstances import by_circumstance
from benchmarks.detect.splits import (
    ALL_FAMILIES,
    ALWAYS,
    EARLY_ONSET_MIN,
    EARLY_SHARE,
    FLAP_SHARE,
    HUGE_NODES,
    LENGTH_MIN,
    ONSET_MIN,
    RAMP_SHARE,
    SPLITS,
    TWO_NODES_SHARE,
)
from benchmarks.detect.why import why_lines
from benchmarks.detect.words import CAVEATS, HEAD
from detector.evaluation.summary import FaultRow, Summary, summarise
from detector.evaluation.words import delay_words, f1_words, rate_words, share_words, visible_f1_words

FOLDER = Path(__file__).parents[1]
PAGE, NUMBERS, LONG_NUMBERS = "DETECTION.md", "detection.json", "detection_long.json"


def summaries(outcome: Outcome) -> dict[str, dict[str, Summary]]:
    """Return the numbers by split and detector."""
    return {
        split: {
            name: summarise(name, [r.scores[name] for r in results], RULES)
            for name in (results[0].scores if results else ())
        }
        for split, results in outcome.results.items()
    }


def as_plain(outcome: Outcome, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "run": dict(run),
        "settings": {name: list(setting) for name, setting in outcome.settings.items()},
        "at_edge": list(outcome.at_edge),
        "minder_order": list(outcome.order),
        "not_run": dict(outcome.not_run),
        "failed": list(outcome.failed),
        "splits": {
            split: {
                "n_cases": len(outcome.results[split]),
                "hidden_faults": sum(r.n_hidden for r in outcome.results[split]),
                "why": [line for r in outcome.results[split] for line in why_lines(r, next(iter(r.scores)))],
                "detectors": {name: plain_summary(s) for name, s in found.items()},
            }
            for split, found in summaries(outcome).items()
        },
    }


def plain_summary(s: Summary) -> dict[str, Any]:
    """Return the counts of a summary, from which everything else follows, and the main figures."""
    rate = s.false_rate
    return {
        "found": s.found,
        "missed": s.missed,
        "false_alarms": rate.count,
        "node_days": round(rate.node_days, 6),
        "recall": s.recall.value,
        "recall_interval": s.recall.interval,
        "precision": s.precision.value,
        "precision_interval": s.precision.interval,
        "f1": s.f1,
        "f1_interval": s.f1_interval,
        "false_per_month": rate.per_month,
        "false_per_month_upper": rate.per_month_upper,
        "delay_median_s": s.all_faults.delay.median_s,
        "delay_p90_s": s.all_faults.delay.p90_s,
        "visible": [s.visible_recall.k, s.visible_recall.n],
        "visible_recall_interval": s.visible_recall.interval,
        "visible_f1": s.visible_f1,
        "visible_f1_interval": s.visible_f1_interval,
        "visible_delay_median_s": s.all_faults.visible_delay.median_s,
        "visible_delay_p90_s": s.all_faults.visible_delay.p90_s,
        "part_right": [s.all_faults.part.k, s.all_faults.part.n],
        "false_causes": dict(s.false_causes),
        "kinds": {row.name: [row.recall.k, row.recall.n] for row in s.kinds},
        "severities": {row.name: [row.recall.k, row.recall.n] for row in s.severities},
        "groups": {g.name: [g.called.k, g.right.k, g.called.n] for g in s.groups},
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(str(x).replace("|", "/") for x in line) + " |" for line in lines) + "\n"
    )


def page(
    outcome: Outcome,
    run: Mapping[str, Any],
    long: Mapping[str, Any] | None,
    others: Mapping[str, Mapping[str, Summary]] | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    outcome, run
        Results, and how they were made.
    long
        Numbers of the long healthy run, None when there are none.
    others
        Summaries of recorded and reconstructed cases, by what they are and detector.
    """
    found = summaries(outcome)
    parts = [HEAD, f"Command: `{run['command']}`. Code: {run['commit']}.\n"]
    if outcome.failed:
        parts.append("Left out:\n\n" + "\n".join(f"- {text}" for text in outcome.failed) + "\n")
    parts += [_split(outcome, split, by_name) for split, by_name in found.items()]
    last = list(found)[-1]
    parts += list(_details(last, found[last]))
    if found[last]:
        parts.append(_circumstances(outcome, last, next(iter(found[last]))))
    parts += [origin_section(origin, by_name) for origin, by_name in (others or {}).items()]
    if long is not None:
        parts.append(_long(long))
    parts += [_settings(outcome), _ranges(), CAVEATS]
    return "\n".join(parts)


def _split(outcome: Outcome, split: str, by_name: Mapping[str, Summary]) -> str:
    results = outcome.results[split]
    hidden = sum(r.n_hidden for r in results)
    if not by_name:
        return f"## {split}: no cases\n"
    one = next(iter(by_name.values()))
    n, n_visible = one.found + one.missed, one.visible_recall.n
    weeks = one.false_rate.node_days / 7
    head = (
        f"## {split}: {len(results)} cases, {n} faults, "
        f"{one.n_healthy_cases} cases without any, {weeks:.1f} healthy node-weeks\n\n"
        f"{n_visible} faults are visible, {n - n_visible} faint; {hidden} more left no trace and are masked. "
    )
    if split == "train":
        head += "The rivals' settings were chosen on these very cases: their figures here flatter them.\n"
    return (
        f"{head}\n\n### All faults that left a trace, {split}\n\n{main_table(by_name.values())}"
        f"\n### Visible faults, {split}\n\n{visible_table(by_name.values())}"
    )


def main_table(found: Iterable[Summary]) -> str:
    """Return the main figures of several detectors."""
    return table(
        ["detector", "F1", "recall", "precision", "delay of found", "part right", "false per cluster-month"],
        [
            [
                s.name,
                f1_words(s),
                share_words(s.recall),
                share_words(s.precision),
                delay_words(s.all_faults.delay),
                share_words(s.all_faults.part),
                rate_words(s.false_rate, per_month=True),
            ]
            for s in found
        ],
    )


def visible_table(found: Iterable[Summary]) -> str:
    """Return the figures of several detectors on visible faults; delays count from the visible onset."""
    return table(
        ["detector", "F1", "recall", "precision", "delay of found from the visible onset"],
        [
            [
                s.name,
                visible_f1_words(s),
                share_words(s.visible_recall),
                share_words(s.precision),
                delay_words(s.all_faults.visible_delay),
            ]
            for s in found
        ],
    )


def origin_section(origin: str, by_name: Mapping[str, Summary]) -> str:
    """Return the figures on cases that are not synthetic."""
    one = next(iter(by_name.values()))
    return (
        f"## {origin}: {one.n_cases} cases, {one.found + one.missed} faults, "
        f"{one.false_rate.node_days:.4g} healthy node-days\n\n{main_table(by_name.values())}"
    )


def _details(split: str, by_name: Mapping[str, Summary]) -> Iterator[str]:
    names = list(by_name)
    for what in ("kinds", "severities"):
        rows: dict[str, list[str]] = {}
        for name in names:
            found: tuple[FaultRow, ...] = getattr(by_name[name], what)
            for row in found:
                rows.setdefault(row.name, []).append(str(row.recall.k))
                if name == names[-1]:
                    rows[row.name].append(str(row.recall.n))
        yield f"### Found faults by {'kind' if what == 'kinds' else 'severity'}, {split}\n"
        yield table(["", *names, "of"], [[key, *values] for key, values in rows.items()])
    if not by_name:
        return
    one = by_name[names[0]]
    yield f"### What was nobody's fault, {names[0]}, {split}\n"
    yield table(
        ["event", "called as such", "called and nobody blamed", "nodes blamed"],
        [[g.name, share_words(g.called), share_words(g.right), str(g.n_blamed)] for g in one.groups],
    )
    causes = [[cause, str(n)] for cause, n in one.false_causes.items()]
    if causes:
        yield f"### False alarms of {names[0]} came in, {split}\n"
        yield table(["during", "alarms"], causes)


def _circumstances(outcome: Outcome, split: str, detector: str) -> str:
    rows = [
        [
            s.name,
            str(s.n_cases),
            share_words(s.visible_recall),
            share_words(s.recall),
            delay_words(s.all_faults.visible_delay),
            rate_words(s.false_rate, per_month=True),
        ]
        for s in by_circumstance(outcome.results[split], detector)
    ]
    head = [
        "cases in which",
        "cases",
        "visible faults found",
        "all faults found",
        "delay from the visible onset",
    ]
    return f"### {detector} under different circumstances, {split}\n\n" + table(
        [*head, "false per cluster-month"], rows
    )


def _long(long: Mapping[str, Any]) -> str:
    density = [[kind, f"{n:.2f}"] for kind, n in long["per_cluster_day"].items()]
    causes = "; ".join(f"{cause}: {n}" for cause, n in long["false_causes"].items()) or "none"
    return (
        "## Long healthy run\n\n"
        f"{long['days']:g} cluster-days of {long['nodes']} nodes without any fault, "
        f"{long['chunk_days']:g} days at a stretch, generated as replayed ({long['commit']}): "
        f"{long['false_alarms']} false alarms in {long['node_days']:.4g} node-days, "
        f"{long['per_month']:.3g} per cluster-month, at most {long['per_month_upper']:.3g} (one-sided 95 %). "
        f"{long['neutral_alarms']} alarms rose in masked maintenance. They came in: {causes}. "
        f"What happened meanwhile:\n\n" + table(["event", "per cluster-day"], density)
    )


def _settings(outcome: Outcome) -> str:
    edge = {name: "yes" if name in outcome.at_edge else "" for name in outcome.settings}
    rows = [[name, ", ".join(map(str, setting)), edge[name]] for name, setting in outcome.settings.items()]
    first = ", ".join(f"`{key.strip()}`" for key in outcome.order[:7])
    return (
        "## Settings of the rivals\n\nHighest F1 on the train split among all settings of the grid; "
        "Oddnode runs with its defaults. After a first run, whose figures of all splits were seen, grids "
        "of which an edge had been chosen were widened and the z-score with a floor was added.\n\n"
        + table(["rival", "setting", "at an edge of its grid"], rows)
        + f"\nFirst signals of Minder's order: {first}.\n"
        + "".join(f"\n{name}: {why}.\n" for name, why in outcome.not_run.items())
    )


def _ranges() -> str:
    fields = [name for name in SPLITS["train"].__slots__ if name != "first_seed"]
    rows = [[f, *(str(getattr(split, f)) for split in SPLITS.values())] for f in ("first_seed", *fields)]
    return (
        "## What cases are drawn from\n\n"
        + table(["", *SPLITS], rows)
        + f"\nCases last {LENGTH_MIN[0]:.0f} to {LENGTH_MIN[1]:.0f} minutes. Faults begin "
        f"{ONSET_MIN[0]:.0f} to {ONSET_MIN[1]:.0f} minutes after the start, "
        f"{100 * EARLY_SHARE:.0f} % of them after "
        f"{EARLY_ONSET_MIN[0]:.0f} to {EARLY_ONSET_MIN[1]:.0f}. Of the kinds that can, "
        f"{100 * RAMP_SHARE:.0f} % begin slowly and {100 * FLAP_SHARE:.0f} % come and go. "
        f"{100 * TWO_NODES_SHARE:.0f} % befall two nodes. Huge cases have {HUGE_NODES} nodes. "
        f"Families are drawn from {len(ALL_FAMILIES) + len(ALWAYS)}, "
        "so the telling metric may be missing. The rest is in `benchmarks/detect/splits.py`.\n"
    )


def write(
    outcome: Outcome,
    run: Mapping[str, Any],
    folder: Path,
    others: Mapping[str, Mapping[str, Summary]] | None = None,
) -> None:
    """Write the page and the numbers."""
    long_file = folder / LONG_NUMBERS
    long = json.loads(long_file.read_text("utf-8")) if long_file.exists() else None
    plain = as_plain(outcome, run)
    plain["others"] = {
        origin: {name: plain_summary(s) for name, s in by_name.items()}
        for origin, by_name in (others or {}).items()
    }
    numbers = json.dumps(plain, indent=1, sort_keys=True)
    (folder / NUMBERS).write_text(numbers + "\n", "utf-8")
    (folder / PAGE).write_text(page(outcome, run, long, others), "utf-8")

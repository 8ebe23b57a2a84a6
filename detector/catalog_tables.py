"""Reports on catalogs and drafts, for a terminal and for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from detector.catalog_report import EntryFit, Fit, Report
from detector.discover import Draft
from detector.self_test import Seen, Tried

_TEXT_COLUMNS = ("fit", "note", "metrics", "for instance", "result", "planted", "on")
_ODD = (Fit.MISTYPED, Fit.REFUSED, Fit.FEW_PEERS)


def report_dict(report: Report) -> dict[str, Any]:
    """Return the report as plain data for JSON."""
    plain = asdict(report)
    plain["summary"] = {fit.value: report.count(fit) for fit in Fit}
    return plain


def report_tables(report: Report) -> list[Table]:
    """Return the report as tables for a terminal."""
    units = _table("Comparison units", "unit", "entries", "present", "series", "members", "nodes")
    for unit in report.units:
        units.add_row(
            escape(unit.unit),
            *map(str, (unit.n_entries, unit.n_present, unit.n_series, unit.n_members, unit.n_nodes)),
        )
    fits = _table("Entries", "fit", "entries")
    for fit in Fit:
        fits.add_row(fit.value, str(report.count(fit)))
    odd = _table("Entries that need a look", "metric", "fit", "nodes", "note")
    for entry in report.entries:
        if entry.fit in _ODD or (entry.fit is Fit.GOOD and entry.note):
            odd.add_row(escape(entry.name), entry.fit.value, str(entry.n_nodes), escape(entry.note))
    tables = [units, fits, odd] if odd.row_count else [units, fits]
    for fit, title in ((Fit.MISSING, "Missing"), (Fit.CONSTANT, "Constant: say nothing here")):
        found = [entry for entry in report.entries if entry.fit is fit and (entry.note or fit is Fit.MISSING)]
        if found:
            tables.append(_by_target(title, found))
    if report.conflicts:
        table = _table("Labels that contradict each other", "what")
        for sentence in report.conflicts:
            table.add_row(escape(sentence))
        tables.append(table)
    for title, head, counts in (
        ("Labels that named the nodes", "label", report.identity),
        ("Series that are not compared", "reason", report.refused),
        ("Samples left out", "reason", report.dropped),
    ):
        if counts:
            table = _table(title, head, "number")
            for name, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
                table.add_row(escape(str(name)), str(number))
            tables.append(table)
    return tables


def self_test_tables(tried: Sequence[Tried]) -> list[Table]:
    """Return a self-test as tables: how many were seen, and each metric that was not plainly named."""
    counts = _table("Planted deviations", "result", "number")
    for seen in Seen:
        counts.add_row(seen.value, str(sum(one.seen is seen for one in tried)))
    rest = _table("Metrics by which no node was named", "metric", "result", "planted", "on", "note")
    for one in sorted(tried, key=lambda one: list(Seen).index(one.seen), reverse=True):
        if one.seen is not Seen.NAMED:
            on = f"{one.node} {one.part}".strip()
            rest.add_row(escape(one.name), one.seen.value, escape(one.planted), escape(on), escape(one.note))
    return [counts, rest] if rest.row_count else [counts]


def _by_target(title: str, entries: Sequence[EntryFit]) -> Table:
    """List metric names per monitored target, one row each."""
    table = _table(title, "target", "number", "metrics")
    for target in dict.fromkeys(entry.target for entry in entries):
        names = [escape(entry.name) for entry in entries if entry.target == target]
        table.add_row(escape(target), str(len(names)), ", ".join(names))
    return table


def draft_dict(drafted: Draft) -> dict[str, Any]:
    """Return a draft as plain data for JSON."""
    return {
        "entries": [spec.name for spec in drafted.entries],
        "notes": {name: list(told) for name, told in drafted.notes.items() if told},
        "dropped": [asdict(drop) for drop in drafted.drops],
    }


def draft_table(drafted: Draft) -> Table:
    """Return the drops of a draft as a table, one row per reason."""
    table = _table("Metrics without an entry", "reason", "number", "for instance")
    reasons = Counter(drop.reason for drop in drafted.drops)
    for reason, number in reasons.most_common():
        first = next(drop.name for drop in drafted.drops if drop.reason == reason)
        table.add_row(escape(reason), str(number), escape(first))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        is_text = number == 0 or column in _TEXT_COLUMNS
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    return table

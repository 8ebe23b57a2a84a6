"""Reports on catalogs and drafts, for a terminal and for JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from detector.catalog_report import Fit, Report
from detector.discover import Draft


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
    odd = _table("Entries that need a look", "metric", "fit", "nodes", "note")
    for entry in report.entries:
        if entry.fit is not Fit.GOOD or entry.note:
            odd.add_row(escape(entry.name), entry.fit.value, str(entry.n_nodes), escape(entry.note))
    tables = [units]
    if odd.row_count:
        tables.append(odd)
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


def draft_dict(drafted: Draft) -> dict[str, Any]:
    """Return a draft as plain data for JSON."""
    return {
        "entries": [spec.name for spec in drafted.entries],
        "notes": {name: list(told) for name, told in drafted.notes.items() if told},
        "dropped": [asdict(drop) for drop in drafted.drops],
    }


def draft_table(drafted: Draft) -> Table:
    """Return the drops of a draft as a table, one row per reason."""
    table = _table("Metrics without an entry", "reason", "metrics", "for instance")
    reasons = Counter(drop.reason for drop in drafted.drops)
    for reason, number in reasons.most_common():
        first = next(drop.name for drop in drafted.drops if drop.reason == reason)
        table.add_row(escape(reason), str(number), escape(first))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(
            column, justify="left" if number == 0 or column in ("fit", "note", "for instance") else "right"
        )
    return table

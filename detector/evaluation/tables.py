"""The result as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from detector.evaluation.result import Result
from detector.evaluation.summary import FaultRow, Summary
from detector.evaluation.words import (
    delay_words,
    rate_words,
    share_words,
    summary_rows,
    utc_words,
)

MAX_LISTED = 20


def result_tables(result: Result) -> list[Table]:
    """Return all tables: misses and false alarms first, then one set of numbers per origin."""
    tables = list(_failures(result))
    for summary in result.origins:
        tables.append(_numbers(summary, f"{result.detector} on {summary.name} cases"))
        tables.append(_faults(f"{summary.name}: faults by kind", summary.kinds))
        if len(summary.severities) > 1:
            tables.append(_faults(f"{summary.name}: faults by severity", summary.severities))
        if summary.groups:
            tables.append(_groups(summary))
        sets = result.sets[summary.name]
        if len(sets) > 1:
            tables.append(_sets(summary.name, sets))
    if result.left_out:
        table = _table("Left out", "case", "why")
        for item in result.left_out:
            table.add_row(escape(item.path), escape(item.reason))
        tables.append(table)
    return [table for table in tables if table.row_count]


def _failures(result: Result) -> Iterator[Table]:
    missed = _table("Missed faults", "case", "node", "kind", "part", "onset (UTC)", "why")
    false = _table("False alarms", "case", "node", "raised (UTC)", "during", "evidence")
    n_missed = n_false = 0
    for score in result.scores:
        for fault in score.faults:
            if fault.delay_s is not None:
                continue
            n_missed += 1
            if n_missed <= MAX_LISTED:
                f = fault.fault
                row = (score.recording.id, f.node, f.kind, f.part, utc_words(f.onset), fault.why)
                missed.add_row(*map(escape, row))
        for alarm in score.false_alarms:
            n_false += 1
            if n_false <= MAX_LISTED:
                e = alarm.episode
                row_ = (score.recording.id, e.node, utc_words(e.raised_at), alarm.during, e.flags[0].why)
                false.add_row(*map(escape, row_))
    for table, n in ((missed, n_missed), (false, n_false)):
        if n > MAX_LISTED:
            table.caption = f"{n - MAX_LISTED} more are in the JSON and the report"
        yield table


def _numbers(s: Summary, title: str) -> Table:
    table = _table(title, "figure", "value, 95 % interval, n")
    cases = ("cases", f"{s.n_cases}, {s.n_healthy_cases} of them healthy")
    for name, value in (cases, *summary_rows(s)):
        table.add_row(name, escape(value))
    return table


def _faults(title: str, rows: Sequence[FaultRow]) -> Table:
    graded = any(row.visible.n for row in rows)
    table = _table(title, "name", "recall", "delay", "part right", *(["visible found"] if graded else []))
    for row in rows:
        cells = [row.name, share_words(row.recall), delay_words(row.delay), share_words(row.part)]
        table.add_row(*map(escape, [*cells, share_words(row.visible)] if graded else cells))
    return table


def _groups(s: Summary) -> Table:
    table = _table(f"{s.name}: group events and outages", "kind", "called", "called, nobody blamed", "blamed")
    for row in s.groups:
        cells = (row.name, share_words(row.called), share_words(row.right), str(row.n_blamed))
        table.add_row(*map(escape, cells))
    return table


def _sets(origin: str, sets: Sequence[Summary]) -> Table:
    table = _table(f"{origin}: by set", "set", "cases", "recall", "precision", "false alarms per node-day")
    for s in sets:
        rate = rate_words(s.false_rate, per_month=False)
        cells = (s.name, str(s.n_cases), share_words(s.recall), share_words(s.precision), rate)
        table.add_row(*map(escape, cells))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table

"""A comparison in plain lines, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from detector.plain_text import printable, utc_minute
from detector.what_if.model import Comparison, Difference, Kind, Side

SHOWN = 50

_MARKS = {Kind.GAINED: "+", Kind.LOST: "-", Kind.SAME: "="}


def lines(found: Comparison, advice: Sequence[str]) -> list[str]:
    """Tell what differs, what to trust it by, and what to write to keep it.

    Parameters
    ----------
    found
        What was compared.
    advice
        Lines of a settings file.
    """
    told = [
        f"{utc_minute(found.start)} to {utc_minute(found.end)}: {found.n_evaluations} evaluations of "
        f"{found.n_nodes} nodes, {found.n_series} series",
        f"in effect: {_side(found.before)}",
        f"tried:     {_side(found.after)}",
        _summary(found),
    ]
    shown = found.differences[:SHOWN]
    told += [_line(item) for item in shown]
    if (n_more := len(found.differences) - len(shown) + found.n_left_out) > 0:
        told.append(f"and {n_more} more")
    told += [f"note: {printable(note)}" for note in found.notes]
    told.append("to keep it, write into the settings file (or set the variable, which wins over the file):")
    told += [f"  {line}" for line in advice]
    return told


def _summary(found: Comparison) -> str:
    counts = Counter(item.kind for item in found.differences)
    parts = [f"{counts[kind]} {kind.value}" for kind in Kind if counts[kind] and kind is not Kind.SAME]
    same = f"{counts[Kind.SAME]} the same"
    return f"alarms: {', '.join([*parts, same])}" if parts else f"no alarm differs; {same}"


def _side(side: Side) -> str:
    return (
        f"{_many(side.n_suspects, 'suspect')}, {_many(side.n_group_events, 'group event')}, "
        f"{_many(side.undetermined, 'verdict')} undetermined"
    )


def _many(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _line(item: Difference) -> str:
    alarm = item.before or item.after
    assert alarm is not None  # noqa: S101 (narrowing: one of them is there)
    part = f", {alarm.part}" if alarm.part else ""
    return printable(f"{_MARKS.get(item.kind, '~')} {alarm.what.value} {alarm.name}{part}: {item.text}")

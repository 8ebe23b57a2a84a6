"""`oddnode top`: who is suspect now, in a terminal that follows a running service."""

from __future__ import annotations

import io
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from detector.cli_ask import SERVICE, TokenFileOption, UrlOption, ask, message_of
from detector.cli_files import write_text
from detector.errors import OddnodeError
from detector.plain_text import printable, utc_minute, utc_second

FOUND, UNJUDGED = 1, 3
MAX_ROWS = 100
MAX_EVENTS = 3
MAX_CELL = 200
"""Characters of a cell, and of a line about the whole."""

PLAIN_WIDTH = 2000
"""Wider than any row: no line is wrapped where no terminal does it."""

COLUMNS = {"node": 30, "state": 7, "part": 16, "since (UTC)": 11, "score": 5, "likely": 30}
NARROW = {"node": 18, "part": 10}
"""Greatest width of columns in a terminal, and in one that is not `WIDE`; the last one gets what is left."""

WIDE = 110
"""Columns of a terminal from which on there is room for the reason."""

STYLES = {"suspect": "bold red", "seen": "red", "muted": "dim", "pending": "yellow"}

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class Likely(msgspec.Struct, frozen=True):
    """The class of fault that the evidence looks like."""

    title: str
    confidence: str = ""


class Member(msgspec.Struct, frozen=True):
    """What is shown of a node; `acknowledged` and `muted` are None where nobody has said so."""

    node: str
    part: str
    since: float | None
    score: float | None
    reason: str
    diagnosis: Likely | None = None
    acknowledged: dict[str, object] | None = None
    muted: dict[str, object] | None = None


class Suspects(msgspec.Struct, frozen=True):
    """Of ``/v1/suspects``."""

    at: float
    data_age_s: float | None
    n_nodes: int
    undetermined: dict[str, int]
    suspects: list[Member]
    is_partial: bool = False


class Nodes(msgspec.Struct, frozen=True):
    """Of ``/v1/nodes``."""

    total: int
    nodes: list[Member]


class Event(msgspec.Struct, frozen=True):
    """What moved a whole group."""

    pool: str
    started_at: float
    ended_at: float | None
    reason: str


class Groups(msgspec.Struct, frozen=True):
    """Of ``/v1/groups``."""

    group_events: list[Event]


class Seen(msgspec.Struct, frozen=True):
    """What one look at the service has shown.

    Parameters
    ----------
    named, pending, groups
        The answers.
    """

    named: Suspects
    pending: Nodes
    groups: Groups


def top(
    url: UrlOption = SERVICE,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two looks.")] = 5.0,
    limit: Annotated[int, typer.Option(min=1, max=MAX_ROWS, help="Rows at most.")] = 30,
    once: Annotated[bool, typer.Option("--once", help="One plain table; a pipe gets that anyway.")] = False,
    token_file: TokenFileOption = None,
) -> None:
    """Follow a running service: suspects, then nodes with first signs; Ctrl-C ends."""
    base = url.rstrip("/")
    console = Console()
    first = look(base, token_file)
    if once or not console.is_terminal or console.is_dumb_terminal:
        raise typer.Exit(_printed(first, limit))
    end = End()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end.asked)
    follow(console, base, first, every, limit, token_file, end)
    raise typer.Exit(end.status or 0)


class End:
    """Whether somebody has asked for the end.

    Attributes
    ----------
    status : int or None
        Exit status, None while nobody has.
    """

    def __init__(self) -> None:
        self.status: int | None = None

    def asked(self, number: int, frame: object) -> None:
        """End in order: the screen of its own would be left to the shell otherwise.

        It is remembered, too: an exception that is raised within a finaliser is ignored.

        Raises
        ------
        SystemExit
            With 0 for Ctrl-C, or 128 and the signal.
        """
        self.status = 0 if number == signal.SIGINT else 128 + number
        sys.exit(self.status)


def look(base: str, token_file: Path | None) -> Seen | None:
    """Ask a service once.

    Parameters
    ----------
    base
        Its address.
    token_file
        As of `detector.cli_ask.ask`.

    Returns
    -------
    Seen or None
        None before the first evaluation.

    Raises
    ------
    OddnodeError
        When there is no answer, or not that of a service.
    """
    bound = {"limit": str(MAX_ROWS)}
    named = _asked(f"{base}/v1/suspects", bound, Suspects, token_file)
    pending = _asked(f"{base}/v1/nodes", {**bound, "status": "pending"}, Nodes, token_file)
    groups = _asked(f"{base}/v1/groups", {"limit": "1"}, Groups, token_file)
    return None if named is None or pending is None or groups is None else Seen(named, pending, groups)


def _asked(
    url: str, parameters: dict[str, str], kind: type[_Answer], token_file: Path | None
) -> _Answer | None:
    status, body = ask(url, parameters, token_file=token_file)
    if status == 503:
        return None
    if status != 200:
        raise OddnodeError(
            f"{url}: answered {status}: {message_of(body) or 'is it an Oddnode service of this version?'}"
        )
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise OddnodeError(f"{url}: the answer is not that of an Oddnode service") from None


def _printed(seen: Seen | None, limit: int) -> int:
    """Print one plain table; the exit code is that of `oddnode suspects`."""
    text = io.StringIO()
    console = Console(file=text, width=PLAIN_WIDTH, no_color=True, highlight=False)
    for line in heading(seen):
        console.print(line, markup=False)
    if seen is not None:
        console.print(table(seen, limit))
    write_text(Path("-"), text.getvalue())
    if seen is None:
        return UNJUDGED
    if any(one.muted is None for one in seen.named.suspects):
        return FOUND
    return UNJUDGED if sum(seen.named.undetermined.values()) >= seen.named.n_nodes else 0


def follow(
    console: Console,
    base: str,
    seen: Seen | None,
    every: float,
    limit: int,
    token_file: Path | None,
    end: End,
) -> None:
    """Draw the newest answer, ask again, until somebody ends it."""
    answered, problem = time.monotonic(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while end.status is None:
            live.update(page(base, seen, problem, limit, console.size), refresh=True)
            time.sleep(every)
            try:
                seen, problem, answered = look(base, token_file), "", time.monotonic()
            except OddnodeError as error:
                problem = f"NO ANSWER for {time.monotonic() - answered:.0f} s, asking again: {error}"


def page(base: str, seen: Seen | None, problem: str, limit: int, size: ConsoleDimensions) -> Group:
    """Return what fills the terminal.

    Parameters
    ----------
    base
        Address of the service.
    seen
        Newest answer, which stays while there is no newer one.
    problem
        Why there is no newer one, empty when there is.
    limit
        Rows at most.
    size
        Of the terminal.
    """
    lines = [Text(_cell(f"oddnode top  {base}  (Ctrl-C ends)"), style="bold")]
    if problem:
        lines.append(Text(_cell(problem), style="bold yellow"))
    lines += [Text(line) for line in heading(seen)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    if seen is None:
        return Group(*lines)
    # a line for the names of the columns, one for what is left out
    rows = max(1, min(limit, size.height - len(lines) - 2))
    return Group(*lines, table(seen, rows, width=size.width))


def heading(seen: Seen | None) -> list[str]:
    """Return lines about the whole: age of the data, what cannot be judged, group events."""
    if seen is None:
        return ["nothing has been evaluated yet"]
    named, n_pending = seen.named, seen.pending.total
    age = "of unknown age" if named.data_age_s is None else f"{named.data_age_s:.0f} s old"
    partial = ", partial" if named.is_partial else ""
    n_named = f"{len(named.suspects)}{'+' if len(named.suspects) == MAX_ROWS else ''}"
    lines = [
        f"{utc_second(named.at)}, data {age}{partial}, {named.n_nodes} nodes, "
        f"{n_named} suspect, {n_pending} with first signs"
    ]
    if named.undetermined:
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(named.undetermined.items()))
        lines.append(f"undetermined: {reasons}")
    moving = [event for event in seen.groups.group_events if event.ended_at is None]
    for event in moving[:MAX_EVENTS]:
        where = f" in {event.pool}" if event.pool else ""
        lines.append(f"group event{where} since {utc_minute(event.started_at)}: {event.reason}")
    if len(moving) > MAX_EVENTS:
        lines.append(f"and {len(moving) - MAX_EVENTS} more group events")
    return [_cell(line) for line in lines]


def table(seen: Seen, rows: int, *, width: int | None = None) -> Table | Text:
    """Return suspects and nodes with first signs as one table, a sentence when there are none.

    Parameters
    ----------
    seen
        The answer.
    rows
        How many at most; what is left out is counted in the last line.
    width
        Columns of the terminal; None for plain text that is as wide as it must be.
    """
    found = list(_rows(seen))
    if not found:
        return Text("no suspect")
    is_plain = width is None
    has_why = width is None or width >= WIDE
    made = Table(
        box=None, pad_edge=False, expand=not is_plain, header_style="" if is_plain else "bold underline"
    )
    for name, wide in COLUMNS.items():
        most = None if is_plain else wide if has_why else NARROW.get(name, wide)
        least = most if name in ("state", "since (UTC)", "score") else None
        is_rest = name == "likely" and not has_why
        made.add_column(
            name,
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if is_rest else None,
            min_width=least,
            max_width=None if is_rest else most,
        )
    if has_why:
        made.add_column("why", no_wrap=True, overflow="ellipsis", ratio=None if is_plain else 1)
    for cells in found[:rows]:
        shown = [Text(_cell(cell)) for cell in cells[: len(made.columns)]]
        if not is_plain:
            shown[3] = Text(re.sub(r"^\d{4}-", "", cells[3]))  # without the year
        made.add_row(*shown, style=None if is_plain else STYLES[cells[1]])
    n_all = len(seen.named.suspects) + seen.pending.total
    if n_all > rows:
        made.add_row(Text(f"and {n_all - rows} more"))
    return made


def _rows(seen: Seen) -> Iterator[tuple[str, ...]]:
    for one in seen.named.suspects:
        state = "muted" if one.muted is not None else "seen" if one.acknowledged is not None else "suspect"
        yield _row(one, state)
    for one in seen.pending.nodes:
        yield _row(one, "pending")


def _row(one: Member, state: str) -> tuple[str, ...]:
    likely = "" if one.diagnosis is None else f"{one.diagnosis.confidence} {one.diagnosis.title}".strip()
    since = "" if one.since is None else utc_minute(one.since).removesuffix(" UTC")
    score = "" if one.score is None else f"{one.score:.1f}"
    return one.node, state, one.part, since, score, likely, one.reason


def _cell(text: str) -> str:
    """Return text for one line: it neither steers the terminal nor grows without end."""
    shown = printable(text)
    return shown if len(shown) <= MAX_CELL else shown[: MAX_CELL - 1] + "…"

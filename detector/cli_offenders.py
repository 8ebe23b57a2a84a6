"""`oddnode offenders`: which nodes were suspects again and again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from detector.cli_ask import SERVICE, TokenFileOption, ask, message_of
from detector.errors import OddnodeError
from detector.offenders import Offender
from detector.plain_text import printable

UNJUDGED = 3


class Ranking(msgspec.Struct):
    """What is read of the answer of ``/v1/offenders``."""

    since: float
    until: float
    total: int
    is_complete: bool
    offenders: list[Offender]


def offenders(
    url: Annotated[str, typer.Option(help="Address of the service.")] = SERVICE,
    days: Annotated[float, typer.Option(min=0.01, max=3660, help="How far back.")] = 30.0,
    least: Annotated[int, typer.Option(min=1, max=1000, help="Incidents a node must have had.")] = 2,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many nodes at most.")] = 20,
    token_file: TokenFileOption = None,
) -> None:
    """Rank the nodes that a running service named again and again: for planning repairs, no alarm."""
    address = f"{url.rstrip('/')}/v1/offenders"
    parameters = {"days": f"{days:g}", "least": str(least), "limit": str(limit)}
    status, body = ask(address, parameters, token_file=token_file)
    console = Console()
    if status == 503:
        console.print(message_of(body) or "nothing has been evaluated yet", markup=False, highlight=False)
        raise typer.Exit(UNJUDGED)
    if status != 200:
        raise OddnodeError(f"{address}: answered {status}; is it an Oddnode service of this version?")
    try:
        answer = msgspec.json.decode(body, type=Ranking)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise OddnodeError(f"{address}: the answer is not that of an Oddnode service") from None
    for line in lines(answer, least):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def lines(answer: Ranking, least: int) -> list[str]:
    """Put a ranking into plain lines; none holds a line break.

    Parameters
    ----------
    answer
        What the service said.
    least
        Incidents that were asked for.
    """
    times = f"{least} times or more" if least > 1 else "at all"
    found = [f"{_day(answer.since)} to {_day(answer.until)}: {answer.total} nodes were suspects {times}"]
    if answer.offenders:
        found.append("  incidents  open  suspect for  last named        node")
    for one in answer.offenders:
        what = ", ".join(_counted(names) for names in (one.parts, one.classes) if names)
        found.append(
            f"  {one.n_incidents:>9}  {one.n_open:>4}  {one.suspect_s / 3600:>9.1f} h  {_minute(one.last_at)}"
            f"  {one.node}: {what}"
        )
    if len(answer.offenders) < answer.total:
        found.append(f"  and {answer.total - len(answer.offenders)} more nodes")
    if not answer.is_complete:
        found.append("  there were more incidents than are read at once: older ones are not counted")
    return [printable(line) for line in found]


def _counted(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'node'} ({n})" for name, n in names.items())


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")

"""`oddnode suspects`: what a running service says, to be read in ten seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from detector.cli_ask import SERVICE, TokenFileOption, ask
from detector.diagnosis_text import diagnosis_lines
from detector.errors import OddnodeError
from detector.plain_text import printable, utc_second

FOUND, UNJUDGED = 1, 3
SHOWN = 6


def suspects(
    url: Annotated[str, typer.Option(help="Address of the service.")] = SERVICE,
    evidence: Annotated[int, typer.Option(min=0, max=50, help="Pieces of evidence per node.")] = SHOWN,
    token_file: TokenFileOption = None,
) -> None:
    """Ask a running service who is suspect, and why; exit code 1 when somebody is who is not muted."""
    answer = _ask(f"{url.rstrip('/')}/v1/suspects", token_file)
    console = Console()
    if answer is None:
        console.print("nothing has been evaluated yet")
        raise typer.Exit(UNJUDGED)
    for line in lines(answer, evidence):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    n_nodes, undetermined = answer["n_nodes"], sum(answer["undetermined"].values())
    if any(not one.get("muted") for one in answer["suspects"]):
        raise typer.Exit(FOUND)
    raise typer.Exit(UNJUDGED if undetermined >= n_nodes else 0)


def lines(answer: dict[str, Any], n_evidence: int) -> list[str]:
    """Put an answer of ``/v1/suspects`` into plain lines.

    Parameters
    ----------
    answer
        Parsed JSON.
    n_evidence
        Pieces of evidence shown per node.
    """
    age = answer["data_age_s"]
    found = [f"{utc_second(answer['at'])}, data {age:.0f} s old, {answer['n_nodes']} nodes"]
    if answer["undetermined"]:
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(answer["undetermined"].items()))
        found.append(f"undetermined: {reasons}")
    if not answer["suspects"]:
        found.append("no suspect")
    for one in answer["suspects"]:
        part = f", {one['part']}" if one["part"] else ""
        since = f"since {utc_second(one['since'])}"
        score = "without data now" if one["score"] is None else f"score {one['score']:.1f}, threshold 1"
        found.append(f"SUSPECT {one['node']}{part}: {since}, {score}")
        if muted := one.get("muted"):
            found.append(f"  muted until {utc_second(muted['until'])}: {muted['reason']} ({muted['id']})")
        if seen := one.get("acknowledged"):
            note = f": {seen['note']}" if seen["note"] else ""
            found.append(f"  acknowledged by {seen['by']} {utc_second(seen['at'])}{note}")
        found.extend(diagnosis_lines(one.get("diagnosis")))
        for item in one["evidence"][:n_evidence]:
            where = f" [{item['part']}]" if item["part"] else ""
            found.append(f"  {item['metric']}{where}: {item['reason']}")
        hidden = len(one["evidence"]) - n_evidence
        if hidden > 0:
            found.append(f"  and {hidden} more signals")
    return [printable(line) for line in found]


def _ask(url: str, token_file: Path | None) -> dict[str, Any] | None:
    """Return the answer, None before the first evaluation."""
    status, body = ask(url, token_file=token_file)
    if status == 503:
        return None
    if status != 200:
        raise OddnodeError(f"{url}: answered {status}; is it an Oddnode service?")
    try:
        answer = json.loads(body)
        answer["suspects"], answer["n_nodes"], answer["undetermined"], answer["at"]
    except (ValueError, TypeError, KeyError):
        raise OddnodeError(f"{url}: the answer is not that of an Oddnode service") from None
    return dict(answer)

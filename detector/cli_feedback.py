"""`oddnode feedback`: what operators said of incidents, in the form in which recordings are labelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from detector.cli_ask import SERVICE, TokenFileOption, UrlOption, ask
from detector.cli_control import parsed
from detector.cli_files import write_text
from detector.errors import OddnodeError
from detector.labels import description
from detector.plain_text import moment_of

PAGE, MAX_PAGES = 1000, 100
UNJUDGED = 3


def feedback(
    json_file: Annotated[
        Path, typer.Option("--json", help="File to write, as incident.yaml of a recording; - prints.")
    ],
    start: Annotated[str | None, typer.Option(help="Begin: epoch seconds or ISO 8601.")] = None,
    end: Annotated[str | None, typer.Option(help="End: epoch seconds or ISO 8601.")] = None,
    step_s: Annotated[
        float, typer.Option("--step", min=1, max=3600, help="Seconds between samples of the recording.")
    ] = 30.0,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """Export labels of a time range: acknowledged incidents are faults, unlabelled ones are masked."""
    base = url.rstrip("/")
    begin = None if start is None else moment_of(start, "--start")
    finish = None if end is None else moment_of(end, "--end")
    if begin is not None and finish is not None and not begin < finish:
        raise OddnodeError(f"--start {start} is not before --end {end}")
    span = {
        name: f"{value:.3f}" for name, value in (("since", begin), ("until", finish)) if value is not None
    }
    labels = pages(f"{base}/v1/feedback", "feedback", span, token_file)
    named = pages(f"{base}/v1/incidents", "incidents", {**span, "was_suspect": "true"}, token_file)
    nodes = pages(f"{base}/v1/nodes", "nodes", {}, token_file)
    now = newest(f"{base}/v1/incidents", token_file)
    if now is None and finish is None:
        Console(stderr=True).print("nothing has been evaluated yet: give --end")
        raise typer.Exit(UNJUDGED)
    made = description(labels, named, [node["node"] for node in nodes], begin, finish or now or 0.0, step_s)
    write_text(json_file, json.dumps(made, indent=2) + "\n")
    n_masked = len(made["masked"])
    told = f"{len(made['faults'])} faults, {len(made['benign'])} false alarms, {n_masked} incidents masked"
    Console(stderr=True).print(told, markup=False, highlight=False, soft_wrap=True)


def pages(
    address: str, name: str, parameters: dict[str, str], token_file: Path | None
) -> list[dict[str, Any]]:
    """Return all entries of a list.

    Raises
    ------
    OddnodeError
        When the service refuses, or there are too many.
    """
    found: list[dict[str, Any]] = []
    for _ in range(MAX_PAGES):
        more = {**parameters, "limit": str(PAGE), "offset": str(len(found))}
        status, body = ask(address, more, token_file=token_file)
        if status == 503:
            return found
        answer = parsed(address, status, body, name, "total")
        found.extend(answer[name])
        if not answer[name] or len(found) >= answer["total"]:
            return found
    raise OddnodeError(f"{address}: more than {PAGE * MAX_PAGES} entries: give --start and --end")


def newest(address: str, token_file: Path | None) -> float | None:
    """Return the time of the newest evaluation, None before the first."""
    status, body = ask(address, {"limit": "1"}, token_file=token_file)
    at = parsed(address, status, body).get("at")
    return None if at is None else float(at)

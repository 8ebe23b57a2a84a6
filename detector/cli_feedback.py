"""`oddnode feedback`: what operators said of incidents, in the form in which recordings are labelled."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from detector.cli_ask import SERVICE, TokenFileOption, UrlOption, ask
from detector.cli_control import parsed
from detector.cli_files import write_text
from detector.errors import OddnodeError
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


def description(
    labels: list[dict[str, Any]],
    named: list[dict[str, Any]],
    nodes: list[str],
    start: float | None,
    end: float,
    step_s: float,
) -> dict[str, Any]:
    """Return labels as the description of a recording of that time.

    Parameters
    ----------
    labels
        Entries of ``/v1/feedback``.
    named
        Incidents that named a node; those without a label are masked: nobody knows what they were.
    nodes
        Names of all nodes.
    start, end
        Epoch seconds; None begins with the first incident.
    step_s
        Seconds between samples.
    """
    first = min((one["start"] for one in labels), default=end)
    first = min(first, min((one["active_at"] for one in named), default=end))
    begin = math.floor(first / step_s) * step_s if start is None else start

    def within(onset: float, until: float | None) -> dict[str, float]:
        onset = min(max(onset, begin), end)
        return {"onset": onset, "end": max(onset, min(end if until is None else until, end))}

    said = {one["incident_id"]: one for one in labels}
    faults = [
        {
            "node": one["node"],
            "kind": one["fault_class"] or "unclassified",
            **within(one["start"], one["end"]),
            "part": one["part"],
        }
        for one in labels
        if one["verdict"] == "fault"
    ]
    benign = [
        {
            "node": one["node"],
            "kind": "false_alarm",
            **within(one["start"], one["end"] if one["lifted_at"] is None else one["lifted_at"]),
            "note": one["note"],
        }
        for one in labels
        if one["verdict"] == "false_alarm"
    ]
    masked = [
        {"node": one["node"], **within(one["active_at"], one["cleared_at"])}
        for one in named
        if one["id"] not in said
    ]
    # what a dismissed incident came back for is not known to be false
    masked += [
        {"node": one["node"], **within(one["lifted_at"], one["end"])}
        for one in labels
        if one["verdict"] == "false_alarm" and one["lifted_at"] is not None
    ]
    return {
        "id": f"feedback-{datetime.fromtimestamp(end, UTC).strftime('%Y-%m-%d')}",
        "start": begin,
        "end": max(begin, end),
        "step_s": step_s,
        "pool": sorted(nodes),
        "healthy": not faults and not masked,
        "faults": faults,
        "masked": masked,
        "benign": benign,
        "provenance": {"source": "operators of a running service", "made": "recorded"},
    }


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

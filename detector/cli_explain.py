"""`oddnode explain`: why a node was named at some time, or why it was not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from detector.calibration.chosen import choose
from detector.cli_ask import SERVICE, TokenFileOption, ask, message_of, not_both
from detector.cli_catalog import CatalogOption, ConfigOption, OverlayOption
from detector.cli_files import write_text
from detector.errors import OddnodeError
from detector.explain import MAX_SIGNALS, SHOWN_SIGNALS
from detector.explain import explain as explain_node
from detector.explain_text import lines, status_of
from detector.explanation import Answer, Basis, near
from detector.outcome import Outcome, Status, Transition
from detector.plain_text import recorded_moment, utc_second
from detector.replay import grid, pipeline_for, play
from detector.settings import Settings, load_settings
from detector.source.incident_file import Recording
from detector.source.recording import RecordingSource, load_recording
from grouping.catalog import Catalog, load_catalog

FOUND, UNJUDGED = 1, 3

_STYLES = {Status.SUSPECT: "bold red", Status.PENDING: "yellow", Status.CLEAR: "green"}


def explain(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    case: Annotated[
        Path | None, typer.Argument(help="Folder with a recorded incident; without it a service is asked.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Time: RFC 3339, epoch seconds, or since the recording's start as in +12m or +1h30m. "
            "Without it the recording's end, or now."
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(help=f"Address of a service [default: {SERVICE}]")] = None,
    signals: Annotated[
        int, typer.Option(min=1, max=MAX_SIGNALS, help="Signals against peers at most.")
    ] = SHOWN_SIGNALS,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the answer as JSON instead; - prints.")
    ] = None,
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
    use_pool: Annotated[bool, typer.Option(help="Take pool and spares from the recording.")] = False,
    token_file: TokenFileOption = None,
) -> None:
    """Tell why a node was named at some time, or why not: evidence, thresholds, what was missing.

    Exit code 1 when the node was suspect, 0 when it was not, 3 when it was not or could not be judged.
    """
    not_both(case, url)
    if case is not None:
        settings = load_settings(config)
        chosen = load_catalog(catalog or settings.catalog.path, overlay or settings.catalog.overlays)
        answer = of_recording(case, node, at, chosen, settings, n_signals=signals, use_pool=use_pool)
    else:
        answer = of_service(url or SERVICE, node, at, signals, token_file)
    _show(answer, json_file)
    raise typer.Exit(exit_code(answer))


def exit_code(answer: Answer) -> int:
    """Return 1 for a suspect, 0 for a node that was none, 3 when nothing tells or it was not judged."""
    status = status_of(answer)
    if status == Status.SUSPECT:
        return FOUND
    return 0 if status in (Status.CLEAR, Status.PENDING) else UNJUDGED


def of_recording(
    case: Path,
    node: str,
    at: str | None,
    catalog: Catalog,
    settings: Settings,
    *,
    n_signals: int = SHOWN_SIGNALS,
    use_pool: bool = False,
) -> Answer:
    """Play a recording up to a time and tell why the node was named then, or was not.

    Parameters
    ----------
    case
        Folder of the recording.
    node
        Node name.
    at
        Time as on the command line, None for the end.
    catalog, settings
        As for `oddnode replay`.
    n_signals
        Signals that are told at most.
    use_pool
        True to take pool and spares from the recording.

    Raises
    ------
    OddnodeError
        When the recording cannot be read, the time lies outside of it or the node is not in it.
    """
    recording = load_recording(case)
    asked_at = recording.end if at is None else recorded_moment(at, recording.start)
    times = list(grid(recording.start, min(asked_at, recording.end), recording.step_s))
    if not times or asked_at > recording.end:
        raise OddnodeError(_outside(recording, at or "the end", asked_at))
    steps: list[Transition] = []

    def watch(outcome: Outcome) -> None:
        steps.extend(t for t in outcome.transitions if t.node == node)

    source = RecordingSource(case)
    try:
        pipeline, notes = pipeline_for(
            recording, source, catalog, settings.detection, identity=settings.identity,
            placement=settings.placement, pools=settings.pools, use_pool=use_pool,
            thresholds=choose(settings, catalog).thresholds,
        )  # fmt: skip
        play(replace(recording, end=times[-1]), source, pipeline, watch=watch)
    finally:
        source.close()
    found = explain_node(pipeline, node, n_signals)
    if found is None:
        raise OddnodeError(_unknown(recording, node, times[-1], pipeline.interner.nodes))
    return Answer(node, asked_at, Basis.EVALUATION, "; ".join(notes), found, (), tuple(steps))


def _outside(recording: Recording, text: str, asked_at: float) -> str:
    first = next(grid(recording.start, recording.end, recording.step_s), recording.end)
    span = f"{utc_second(first)} to {utc_second(recording.end)}"
    return f"{recording.path}: --at {text} is {utc_second(asked_at)}, outside of what is evaluated, {span}"


def _unknown(recording: Recording, node: str, at: float, known: Sequence[str]) -> str:
    if node in (*recording.pool, *recording.spares):
        return f"{recording.path}: node {node!r} has no series that is compared up to {utc_second(at)}"
    return f"{recording.path}: node {node!r} is not known{near(node, known)}"


def of_service(
    url: str, node: str, at: str | None, n_signals: int = SHOWN_SIGNALS, token_file: Path | None = None
) -> Answer:
    """Ask a running service why a node is named, or was at a time, or was not.

    Parameters
    ----------
    url
        Address of the service.
    node, at, n_signals
        As in `of_recording`; `at` None for now.

    Raises
    ------
    OddnodeError
        When there is no answer, the service refuses, or it is none of ours.
    typer.Exit
        With code 3 while nothing has been evaluated.
    """
    parameters = {"node": node, "signals": str(n_signals)}
    if at is not None:
        parameters["at"] = repr(recorded_moment(at, None))
    address = f"{url.rstrip('/')}/v1/explain"
    status, body = ask(address, parameters, token_file=token_file)
    told = message_of(body) if status != 200 else ""
    if status == 503:
        Console(stderr=True).print(
            f"oddnode: {address}: {told}", markup=False, highlight=False, soft_wrap=True
        )
        raise typer.Exit(UNJUDGED)
    if status != 200:
        told = told if told and "Not Found" not in told else "is it an Oddnode service of this version?"
        raise OddnodeError(f"{address}: answered {status}: {told}")
    try:
        return msgspec.json.decode(body, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OddnodeError(f"{address}: the answer is not that of an Oddnode service: {error}") from None


def _show(answer: Answer, json_file: Path | None) -> None:
    if json_file is None:
        console = Console()
        style = _STYLES.get(Status(status)) if (status := status_of(answer)) else None
        for k, line in enumerate(lines(answer)):
            first = style if k == 0 else None
            console.print(line, style=first, markup=False, highlight=False, soft_wrap=True)
        return
    write_text(json_file, json.dumps(msgspec.to_builtins(answer), allow_nan=False) + "\n")

"""The `oddnode` command: parses, calls, prints, and says how it went by its exit code.

Exit codes: 0 done and nothing suspect, 1 suspects found (`replay`), 2 the input or the
settings are at fault, 3 it could not be judged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from detector.app import serve as run_service
from detector.app import version as installed_version
from detector.calibration.chosen import choose
from detector.cli_calibrate import calibrate_command
from detector.cli_catalog import CatalogOption, ConfigOption, OverlayOption, catalog_app, database
from detector.cli_control import ack, dismiss, mute, mutes, repaired, unmute
from detector.cli_demo import demo
from detector.cli_evaluate import evaluate
from detector.cli_explain import explain
from detector.cli_export import export
from detector.cli_feedback import feedback
from detector.cli_files import write_text
from detector.cli_offenders import offenders
from detector.cli_report import report
from detector.cli_suspects import suspects
from detector.cli_token import token
from detector.cli_top import top
from detector.cli_what_if import what_if
from detector.diagnosis_text import diagnosis_lines
from detector.errors import OddnodeError
from detector.outcome import Incident
from detector.pipeline import Pipeline
from detector.plain_text import moment_of
from detector.record import CaseDetails
from detector.record import record as write_recording
from detector.reload import Origin
from detector.replay import Replayed, replay_case
from detector.settings import load_settings
from grouping.catalog import CatalogError, load_catalog

app = typer.Typer(
    help="Finds the odd node out of a GPU training cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(catalog_app, name="catalog")
app.command("calibrate")(calibrate_command)
app.command()(demo)
app.command()(evaluate)
app.command()(explain)
app.command()(offenders)
app.command()(report)
app.command()(suspects)
app.command()(top)
app.command("what-if")(what_if)
for _operators in (ack, dismiss, mute, unmute, mutes, repaired, feedback, export, token):
    app.command()(_operators)

FOUND, AT_FAULT, UNJUDGED = 1, 2, 3


def main() -> None:
    """Run the command; errors that a person can mend are one sentence and exit code 2."""
    try:
        app(standalone_mode=True)
    except (OddnodeError, CatalogError) as error:
        _complain(str(error))
        sys.exit(AT_FAULT)


def _complain(text: str) -> None:
    console = Console(stderr=True)
    console.print(f"oddnode: {text}", style="red", markup=False, highlight=False, soft_wrap=True)


def _tell_version(wanted: bool) -> None:
    if wanted:
        Console().print(f"oddnode {installed_version()}", markup=False, highlight=False)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the installed version and end."
        ),
    ] = False,
) -> None:
    """Find the odd node out of a GPU training cluster."""


@app.command()
def replay(
    cases: Annotated[list[Path], typer.Argument(help="Folders with a recorded incident.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write one JSON line per case.")] = None,
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
    use_pool: Annotated[bool, typer.Option(help="Take pool and spares from the recording.")] = False,
) -> None:
    """Run recorded incidents through the same code as the live service."""
    settings = load_settings(config)
    chosen = load_catalog(catalog or settings.catalog.path, overlay or settings.catalog.overlays)
    thresholds = choose(settings, chosen).thresholds
    console = Console(stderr=str(json_file) == "-")  # then standard output is the lines and nothing else
    results: list[Replayed] = []
    failed: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True, disable=not console.is_terminal) as bar:
        for case in cases:
            task = bar.add_task(case.name)
            advance = partial(_advance, bar, task)
            try:
                replayed = replay_case(
                    case,
                    chosen,
                    settings.detection,
                    identity=settings.identity,
                    placement=settings.placement,
                    pools=settings.pools,
                    use_pool=use_pool,
                    thresholds=thresholds,
                    progress=advance,
                )
                results.append(replayed)
            except OddnodeError as error:
                failed.append(f"{case}: {error}")
            bar.remove_task(task)
    for result in results:
        _print_replayed(console, result)
    for line in failed:
        _complain(f"left out: {line}")
    if json_file is not None:
        lines = [json.dumps(result.as_json(), allow_nan=False) + "\n" for result in results]
        write_text(json_file, "".join(lines))
    if failed:
        raise typer.Exit(AT_FAULT)
    if any(result.flags for result in results):
        raise typer.Exit(FOUND)
    raise typer.Exit(0 if all(result.judged for result in results) else UNJUDGED)


def _advance(bar: Progress, task: TaskID, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)


def _print_replayed(console: Console, result: Replayed) -> None:
    for note in result.notes:
        console.print(f"{result.case}: {note}", markup=False, highlight=False)
    if not result.flags:
        console.print(
            f"{result.case}: no suspect in {result.evaluations} evaluations", markup=False, highlight=False
        )
    else:
        table = Table(title=f"{result.case}: suspects", title_justify="left")
        for name in ("node", "part", "flagged (UTC)", "cleared (UTC)", "why"):
            table.add_column(name, overflow="fold")
        for flag in result.flags:
            table.add_row(
                *(
                    _plain(x)
                    for x in (flag.node, flag.part, _utc(flag.suspect_at), _utc(flag.cleared_at), flag.reason)
                )
            )
        console.print(table)
        for flag in result.flags:
            for line in _diagnosis(flag):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    for event in result.group_events:
        until = _utc(event.ended_at)
        console.print(
            f"{result.case}: group event {_utc(event.started_at)} to {until}: {event.reason}",
            markup=False,
            highlight=False,
        )
    for finding in result.data_quality[:10]:
        where = finding.node or "cluster"
        console.print(
            f"{result.case}: data quality, {where}: {finding.reason}", markup=False, highlight=False
        )
    if result.undetermined:
        text = ", ".join(f"{reason}: {count}" for reason, count in sorted(result.undetermined.items()))
        console.print(f"{result.case}: undetermined node-evaluations: {text}", markup=False, highlight=False)


def _diagnosis(flag: Incident) -> list[str]:
    if flag.diagnosis is None:
        return []
    return [f"{flag.node}:", *diagnosis_lines(flag.diagnosis.plain())]


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def _utc(at: float | None) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") if at else "-"


@app.command()
def serve(config: ConfigOption = None) -> None:
    """Run the service: pull, compare, and answer over REST."""
    origin = Origin.of(config)
    raise typer.Exit(run_service(load_settings(config), origin=origin))


@app.command("check-config")
def check_config(config: ConfigOption = None) -> None:
    """Validate settings and catalog, and print what is in effect (without secrets)."""
    settings = load_settings(config)
    catalog = load_catalog(settings.catalog.path, settings.catalog.overlays)
    made = choose(settings, catalog).calibration
    console = Console()
    console.print_json(json.dumps(settings.describe(), default=str))
    console.print(f"catalog {catalog.path}: {len(catalog.specs)} metrics, sha256 {catalog.sha256[:12]}")
    if made is not None:
        armed = sum(entry.armed for entry in made.signals)
        console.print(f"calibration {settings.calibration.path}: {armed} signals armed")


@app.command()
def record(
    out: Annotated[Path, typer.Argument(help="Folder to make.")],
    start: Annotated[str, typer.Option(help="Begin: epoch seconds or ISO 8601.")],
    end: Annotated[str, typer.Option(help="End: epoch seconds or ISO 8601.")],
    url: Annotated[str | None, typer.Option(help="Database (else the one of the settings).")] = None,
    all_metrics: Annotated[bool, typer.Option(help="Record every metric, not only the catalog's.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing folder.")] = False,
    config: ConfigOption = None,
) -> None:
    """Write a time range of a live database as a recorded incident."""
    settings = load_settings(config)
    catalog = load_catalog(settings.catalog.path, settings.catalog.overlays)
    begin, finish = moment_of(start, "--start"), moment_of(end, "--end")
    if not begin < finish:
        raise OddnodeError(f"--start {start} is not before --end {end}")
    names = [] if all_metrics else catalog.fetched_names()
    index = Pipeline(catalog, identity=settings.identity, placement=settings.placement).interner

    def nodes_of(keys: Sequence[bytes]) -> list[str]:
        index.add_many(keys)
        return sorted(name for name, has in zip(index.nodes, index.inhabited, strict=True) if has)

    source = database(settings, url)
    try:
        made = write_recording(
            source,
            names,
            begin,
            finish,
            out,
            CaseDetails(step_s=settings.schedule.step_s),
            nodes_of=nodes_of,
            overwrite=overwrite,
        )
    finally:
        source.close()
    Console().print(f"{out}: {made.n_series} series, {made.n_samples} samples", markup=False, highlight=False)

"""`oddnode catalog`: is the catalog right for a database, and what would one for it look like."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from detector.catalog_report import Questions, check_database, discover_database
from detector.catalog_tables import draft_table, report_dict, report_tables, self_test_tables
from detector.errors import OddnodeError
from detector.sampled import collect
from detector.self_test import Rules, Seen, needed_s, self_test
from detector.settings import Settings, load_settings
from detector.source.base import Source
from detector.source.incident_file import load_recording
from detector.source.opening import DatabaseSource, open_source
from detector.source.recording import RecordingSource
from grouping.catalog import Catalog, load_catalog

catalog_app = typer.Typer(help="The metric catalog: what is compared, and how.", no_args_is_help=True)

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Settings file (YAML).")]
CatalogOption = Annotated[Path | None, typer.Option(help="Catalog to use instead of the shipped one.")]
OverlayOption = Annotated[
    list[Path] | None, typer.Option(help="Catalog that extends or overrides; repeatable.")
]
UrlOption = Annotated[str | None, typer.Option(help="Database to look at (else the one of the settings).")]
CaseOption = Annotated[Path | None, typer.Option(help="A recording to look at instead of a database.")]
MinutesOption = Annotated[float, typer.Option(min=1.0, help="How much of the past to look at.")]


def database(settings: Settings, url: str | None) -> DatabaseSource:
    """Open the database of the settings, or another address with the same credentials and bounds."""
    source = settings.source if url is None else settings.source.model_copy(update={"url": url})
    if url is not None and not url.startswith(("http://", "https://")):
        raise OddnodeError(f"--url {url!r} must begin with http:// or https://")
    return open_source(source.options())


NOTHING_THERE = 3
"""Exit code of `catalog check` when no series of the catalog exists."""

UNSEEN = 1
"""Exit code of `catalog check --self-test` when a planted deviation is not seen."""


@contextmanager
def _looked_at(
    settings: Settings, url: str | None, case: Path | None, minutes: float
) -> Iterator[tuple[Source, Questions | None, float, float]]:
    """Open what is looked at: source, whom to ask for types, and the time range."""
    if case is not None:
        recording = load_recording(case)
        source = RecordingSource(case)
        try:
            yield source, None, recording.start, recording.end
        finally:
            source.close()
        return
    live = database(settings, url)
    now = time.time_ns() / 1e9  # what a database has is a matter of the clock
    try:
        yield live, live, now - 60.0 * minutes, now
    finally:
        live.close()


@catalog_app.command("check")
def catalog_check(
    url: UrlOption = None,
    case: CaseOption = None,
    minutes: MinutesOption = 10.0,
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    test_itself: Annotated[
        bool,
        typer.Option(
            "--self-test", help="Plant a deviation of each metric into a copy of the samples: is it seen?"
        ),
    ] = False,
) -> None:
    """Say which entries exist there, what is missing, constant or of another type, and who is whom.

    With --self-test, exit code 1 when a planted deviation is not seen.
    """
    settings = load_settings(config)
    chosen = load_catalog(catalog or settings.catalog.path, overlay or settings.catalog.overlays)
    if test_itself:
        _self_test(settings, chosen, url, case, as_json=as_json)
        return
    with _looked_at(settings, url, case, minutes) as (source, questions, start_s, end_s):
        report = check_database(
            chosen,
            source,
            questions,
            start_s,
            end_s,
            identity=settings.identity,
            placement=settings.placement,
        )
    if as_json:
        sys.stdout.write(json.dumps(report_dict(report), default=str) + "\n")
        return
    if not any(unit.n_series for unit in report.units):
        complaint = f"not one series of the catalog's {len(chosen.specs)} metrics is there"
        where = f"{complaint} in the last {minutes:g} min (--minutes)" if case is None else complaint
        Console().print(f"{where}: is it the right address, tenant and label filter?", highlight=False)
        raise typer.Exit(NOTHING_THERE)
    for table in report_tables(report):
        Console().print(table)


@catalog_app.command("discover")
def catalog_discover(
    url: UrlOption = None,
    case: CaseOption = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the draft (else standard output).")] = None,
    minutes: MinutesOption = 10.0,
    config: ConfigOption = None,
) -> None:
    """Draft a catalog from a database or a recording that has other metrics."""
    settings = load_settings(config)
    with _looked_at(settings, url, case, minutes) as (source, questions, start_s, end_s):
        drafted = discover_database(source, questions, start_s, end_s, identity=settings.identity)
    if out is None:
        sys.stdout.write(drafted.to_yaml())
        return
    try:
        out.write_text(drafted.to_yaml(), encoding="utf-8")
    except OSError as error:
        raise OddnodeError(f"{out}: cannot be written: {error.strerror}") from error
    Console().print(draft_table(drafted))


def _self_test(
    settings: Settings, catalog: Catalog, url: str | None, case: Path | None, *, as_json: bool
) -> None:
    step_s = settings.schedule.step_s if case is None else float(load_recording(case).step_s)
    rules = Rules(
        replace(settings.detection, step_s=step_s), settings.identity, settings.placement, settings.pools
    )
    takes_s = needed_s(rules.parameters)
    with _looked_at(settings, url, case, takes_s / 60.0) as (source, _, start_s, end_s):
        if end_s - start_s < takes_s:
            raise OddnodeError(f"{case}: a self-test takes {takes_s / 60:.0f} minutes, there are fewer")
        collected = collect(source, catalog.fetched_names(), end_s - takes_s, end_s)
    screen = Console(stderr=True)
    with Progress(transient=True, console=screen, disable=not screen.is_terminal) as bar:
        task = bar.add_task("metrics", total=None)
        tried = self_test(
            catalog, collected, rules, end_s, lambda done, n: bar.update(task, completed=done, total=n)
        )
    if as_json:
        sys.stdout.write(json.dumps({"tried": [asdict(one) for one in tried]}) + "\n")
    else:
        for table in self_test_tables(tried):
            Console().print(table)
    if any(one.seen in (Seen.UNSEEN, Seen.UNTRIED) for one in tried):
        raise typer.Exit(UNSEEN)

"""`oddnode report`: the story of an incident as one page, for the vendor or the post-mortem."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from detector.app import version
from detector.calibration.chosen import choose
from detector.case_archive import case_name
from detector.cli_ask import SERVICE, TokenFileOption, ask
from detector.cli_catalog import CatalogOption, ConfigOption, OverlayOption
from detector.cli_control import ByOption, in_path, parsed, seconds_of, whoever
from detector.cli_export import BadRangeError, fetch
from detector.cli_feedback import pages
from detector.cli_files import write_text
from detector.errors import OddnodeError
from detector.pipeline import Pipeline
from detector.plain_text import printable
from detector.replay import pipeline_for
from detector.settings import Settings, load_settings
from detector.source.incident_file import Recording
from detector.source.recording import RecordingSource
from detector.story.anonymous import anonymised
from detector.story.model import Story, StoryError
from detector.story.page import story_page
from detector.story.paper import pdf_of
from detector.story.replayed import story_of, without_samples
from detector.story.told import told_by_service
from grouping.catalog import Catalog, load_catalog


def report(
    subject: Annotated[
        str,
        typer.Argument(metavar="CASE|INCIDENT", help="Folder of a recording, or an incident of a service."),
    ],
    to: Annotated[
        Path | None, typer.Option(help="File to write; else one named like the case. - prints HTML.")
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write a PDF (extra pdf).")] = False,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Other names for nodes and operators.")
    ] = False,
    node: Annotated[
        str, typer.Option(help="Of a recording: whose story; else the strongest suspect's.")
    ] = "",
    before: Annotated[str, typer.Option(help="Of an incident: margin before the first sign.")] = "30m",
    after: Annotated[str, typer.Option(help="Of an incident: margin after its end.")] = "5m",
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
    use_pool: Annotated[bool, typer.Option(help="Take pool and spares from the recording.")] = False,
    by: ByOption = None,
    url: Annotated[str | None, typer.Option(help=f"Address of a service [default: {SERVICE}]")] = None,
    token_file: TokenFileOption = None,
) -> None:
    """Tell the story of an incident: who, since when, why, with charts against the peers."""
    if pdf and str(to) == "-":
        raise OddnodeError("a PDF is not printed: give --to FILE")
    settings = load_settings(config)
    chosen = load_catalog(catalog or settings.catalog.path, overlay or settings.catalog.overlays)
    teller = _Teller(settings, chosen, node=node, use_pool=use_pool)
    folder = Path(subject)
    if url is None and (folder.exists() or "@" not in subject):
        if not folder.is_dir():
            raise OddnodeError(f"{subject}: no such folder; an incident's id has an @ in it")
        story = teller.tell(folder)
    else:
        span = seconds_of(before, "--before"), seconds_of(after, "--after")
        story = _of_service(teller, subject, url or SERVICE, span, whoever(by), token_file)
    if anonymise:
        story = anonymised(story)
    _write(story, to, is_pdf=pdf)


class _Teller:
    """Replays folders under one set of settings."""

    def __init__(self, settings: Settings, catalog: Catalog, *, node: str, use_pool: bool) -> None:
        self._settings, self._catalog = settings, catalog
        self._node, self._use_pool = node, use_pool

    def tell(self, folder: Path) -> Story:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        with Progress(*columns, transient=True, console=console, disable=not console.is_terminal) as bar:
            return story_of(
                folder,
                self._pipeline,
                self._judged_by(),
                node=self._node,
                progress=partial(_advance, bar, bar.add_task(folder.name)),
            )

    def _pipeline(self, recording: Recording, source: RecordingSource) -> tuple[Pipeline, list[str]]:
        settings = self._settings
        return pipeline_for(
            recording, source, self._catalog, settings.detection, identity=settings.identity,
            placement=settings.placement, pools=settings.pools, use_pool=self._use_pool,
            thresholds=choose(settings, self._catalog).thresholds,
        )  # fmt: skip

    def _judged_by(self) -> list[tuple[str, str]]:
        catalog, detection = self._catalog, self._settings.detection
        made = choose(self._settings, catalog).calibration
        return [
            (
                "this report",
                f"Oddnode {version()}, catalog {catalog.sha256[:12]} of {len(catalog.specs)} metrics",
            ),
            (
                "thresholds",
                f"robust z-score {detection.z_threshold:g}"
                + ("" if made is None else ", calibrated by signal")
                + f", continuity {detection.continuity_s:g} s",
            ),
        ]


def _advance(bar: Progress, task: TaskID, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)


def _of_service(
    teller: _Teller, incident: str, url: str, span: tuple[float, float], who: str, token_file: Path | None
) -> Story:
    """Export the incident and tell its story; without samples, what the service has told of it."""
    sent = {"before_s": span[0], "after_s": span[1], "by": who, "note": "report"}
    with tempfile.TemporaryDirectory(prefix="oddnode-report-") as place:
        folder = Path(place) / case_name(incident)
        try:
            fetch(incident, folder, sent, url=url, token_file=token_file)
        except BadRangeError:
            raise
        except OddnodeError as error:
            return _without_samples(incident, url, str(error).replace(str(folder), "the export"), token_file)
        return teller.tell(folder)


def _without_samples(incident: str, url: str, why: str, token_file: Path | None) -> Story:
    base = url.rstrip("/")
    address = f"{base}/v1/incidents/{in_path(incident)}"
    status, body = ask(address, token_file=token_file)
    answer = parsed(address, status, body, "incident", "transitions")
    trail = pages(f"{base}/v1/audit", "entries", {}, token_file)
    concerned = [line for line in reversed(trail) if line["subject"] == f"incident {incident}"]
    nodes = [one["node"] for one in pages(f"{base}/v1/nodes", "nodes", {}, token_file)]
    # addresses are of no concern to a reader, and name the node in a form of their own
    why = why.replace(f"{address}/export", "the service").replace(base, "the service")
    return without_samples(incident, told_by_service(answer, concerned, ""), nodes, why)


def _write(story: Story, to: Path | None, *, is_pdf: bool) -> None:
    name = case_name(f"report-{story.case}")
    out = Path(f"{name}.{'pdf' if is_pdf else 'html'}") if to is None else to
    page = story_page(story, for_paper=is_pdf)
    if is_pdf:
        try:
            out.write_bytes(pdf_of(page))
        except OSError as error:
            raise StoryError(f"{out}: cannot be written: {error.strerror}") from None
    else:
        write_text(out, page)
    if str(out) != "-":
        named = story.incident
        told = f"{out}: {named.node}" + (f", {named.part}" if named.part else "")
        Console().print(printable(told), markup=False, highlight=False, soft_wrap=True)

"""`oddnode evaluate`: how well recorded incidents with labels are told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from detector.calibration.chosen import choose
from detector.cli_catalog import CatalogOption, ConfigOption, OverlayOption
from detector.evaluation.builtin import OddnodeDetector
from detector.evaluation.command import Options, evaluate_command
from detector.evaluation.model import Rules
from detector.settings import load_settings
from grouping.catalog import load_catalog

Share = typer.Option(min=0.0, max=1.0, help="Exit code 1 when this is not reached.")


def evaluate(
    cases: Annotated[list[Path], typer.Argument(help="Recorded incidents, or folders that hold some.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="File for the results; - prints.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a report to look at.")] = None,
    jobs: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 is one per processor.")] = 0,
    grace: Annotated[float, typer.Option(min=0.0, help="Seconds that still count after a fault.")] = 600.0,
    use_pool: Annotated[bool, typer.Option(help="Take pool and spares from the recordings.")] = False,
    require_precision: Annotated[float | None, Share] = None,
    require_recall: Annotated[float | None, Share] = None,
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Score the detection on labelled recordings: precision, recall, delay, false alarms, with intervals."""
    settings = load_settings(config)
    chosen = load_catalog(catalog or settings.catalog.path, overlay or settings.catalog.overlays)
    options = Options(
        json_file=json_file,
        html_file=html_file,
        rules=Rules(grace_s=grace),
        n_jobs=jobs,
        require_precision=require_precision,
        require_recall=require_recall,
        settings={
            "catalog": chosen.sha256[:12],
            "use_pool": str(use_pool),
            "calibration": str(settings.calibration.path or ""),
        },
    )
    thresholds = choose(settings, chosen).thresholds
    detector = OddnodeDetector(
        chosen,
        settings.detection,
        use_pool=use_pool,
        thresholds=thresholds,
        identity=settings.identity,
        placement=settings.placement,
        pools=settings.pools,
    )
    raise typer.Exit(evaluate_command(cases, detector, options))

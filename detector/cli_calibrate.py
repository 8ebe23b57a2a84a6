"""`oddnode calibrate`: thresholds from healthy history, for a budget of false alarms."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from detector.calibration.file import save
from detector.calibration.history import Rules, Stretch, calibrate, recorded
from detector.calibration.model import Calibration
from detector.cli_catalog import CatalogOption, ConfigOption, OverlayOption, UrlOption, database
from detector.errors import OddnodeError
from detector.plain_text import utc_minute
from detector.settings import Settings, load_settings
from detector.source.credentials import without_userinfo
from grouping.catalog import load_catalog

SHOWN = 10
"""Signals and times shown at most; the file has all of them."""

SETTLE_S = 60.0
"""The newest samples of a database may still be on their way."""


def calibrate_command(
    cases: Annotated[
        list[Path] | None, typer.Argument(help="Folders with recorded history; none asks the database.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, .json or .yaml.")] = Path(
        "calibration.json"
    ),
    url: UrlOption = None,
    hours: Annotated[float, typer.Option(min=0.1, max=24 * 366, help="How much of the past.")] = 168.0,
    budget: Annotated[
        float | None, typer.Option(help="False alarms per month (else the one of the settings).")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Size of the cluster (else the most nodes seen at once).")
    ] = None,
    floor: Annotated[
        float, typer.Option(min=0.5, max=1.0, help="Thresholds may go down to this share of the shipped one.")
    ] = 1.0,
    trust_labels: Annotated[
        bool, typer.Option(help="All faults of the recordings are labelled: leave out nothing else.")
    ] = False,
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Learn thresholds from healthy history so that false alarms stay within the budget."""
    settings = load_settings(config)
    chosen = load_catalog(catalog or settings.catalog.path, overlay or settings.catalog.overlays)
    if not out.absolute().parent.is_dir():
        raise OddnodeError(f"{out}: cannot be written: its folder does not exist")
    if cases and url is not None:
        raise OddnodeError("recordings and --url exclude each other")
    wanted = settings.budget.false_alarms_per_month if budget is None else budget
    stretches = [recorded(case) for case in cases] if cases else [_live(settings, url, hours)]
    rules = Rules(chosen, settings.detection, settings.identity, settings.placement, settings.pools)
    with _bar(Console(stderr=True)) as advance:
        made = calibrate(
            stretches, rules, wanted, n_nodes=nodes, floor=floor, trusted=trust_labels, progress=advance
        )
    save(made, out)
    for line in lines(made):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)
    Console().print(f"written: {out}", markup=False, highlight=False, soft_wrap=True)


def _live(settings: Settings, url: str | None, hours: float) -> Stretch:
    step_s = settings.schedule.step_s
    database(settings, url).close()  # tells a wrong address before anything else
    now = time.time_ns() / 1e9 - settings.schedule.evaluation_delay_s - SETTLE_S  # history ends at the clock
    end = math.floor(now / step_s) * step_s
    name = url or settings.source.url or ""
    return Stretch(
        without_userinfo(name),
        end - 3600.0 * hours,
        end,
        step_s,
        lambda: database(settings, url),
        chunked=True,
    )


def lines(made: Calibration) -> list[str]:
    """Tell a person what was learnt, what was not, and why."""
    h, node, expected = made.history, made.node, made.expected
    armed = [e for e in made.signals if e.armed]
    raised = sorted((e for e in armed if e.threshold > made.z_threshold), key=lambda e: -e.threshold)
    n_lowered = sum(e.threshold < made.z_threshold for e in armed)
    found = [
        f"history: {utc_minute(h.start)} to {utc_minute(h.end)}, {h.node_days:.1f} healthy node-days "
        f"of {h.n_nodes} nodes ({h.cluster_months:.2f} cluster-months)",
        f"budget: {made.budget_per_month:g} false alarms a month",
    ]
    for out in h.left_out[:SHOWN]:
        who, span = out.node or "everybody", f"from {utc_minute(out.start)} to {utc_minute(out.end)}"
        if out.reason.startswith(("labelled", "masked")):
            found.append(f"{who} {span} is left out: {out.reason}")
        else:
            found.append(f"{who} looks faulty {span}: not learnt ({out.reason})")
    if len(h.left_out) > SHOWN:
        found.append(f"and {len(h.left_out) - SHOWN} more times left out: see the file")
    found.append(f"signals: {len(armed)} armed, {len(raised)} of them raised, {n_lowered} lowered")
    for e in raised[:SHOWN]:
        low, high = e.interval
        role = f" [{e.role}]" if e.role else ""
        mean = ", mean of the node" if e.per_node else ""
        found.append(f"  {e.metric}{role}{mean}: {e.threshold:.1f} ({low:.1f} to {high:.1f}), {e.reason}")
    for reason, count in Counter(
        e.reason.partition(":")[0] for e in made.signals if not e.armed
    ).most_common():
        found.append(f"  {count} not armed, the shipped threshold is kept: {reason}")
    low, high = node.interval
    found.append(f"node: threshold {node.threshold:.2f} ({low:.2f} to {high:.2f}), {node.reason}")
    found.append(
        f"expected: {expected.per_month:.2f} false alarms a month by peers; the history alone bounds it "
        f"to {expected.low:.2f} to {expected.high:.2f}"
    )
    return found


@contextmanager
def _bar(screen: Console) -> Iterator[Callable[[float], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("history, twice", total=1.0)
        yield lambda share: bar.update(task, completed=share)

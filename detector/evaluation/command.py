"""What `oddnode evaluate` does: find cases, score, print, write, and say how it went.

Exit codes
----------
0
    Every case was evaluated, and the requirements (if any) are met.
1
    A requirement is not met; this wins over 2.
2
    Some cases were left out; they are named. Also wrong options and files that can't be written.
3
    Nothing could be evaluated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from detector.errors import OddnodeError
from detector.evaluation.cases import MAX_FILE_BYTES, find_cases
from detector.evaluation.model import Detector, Rules
from detector.evaluation.report import html_report, worst_first
from detector.evaluation.result import Result, as_json
from detector.evaluation.runner import Progress as Advance
from detector.evaluation.runner import evaluate, trace_cases
from detector.evaluation.summary import Summary
from detector.evaluation.tables import result_tables

ALL, GATE, SOME, NOTHING = 0, 1, 2, 3

WIDE = 160
"""Columns of the tables in a file or a pipe, where nothing tells the width."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command.

    Parameters
    ----------
    json_file, html_file
        Files to write, None for none; ``-`` as JSON file means standard output.
    rules
        How flags are matched.
    n_jobs
        Processes; 0 takes one per processor.
    require_precision, require_recall
        Least values, for each origin alone; None requires nothing.
    max_pictured
        Cases of the report with curves, worst first: each is replayed once more.
    max_file_bytes
        A larger series file is left out.
    settings
        What is in effect, to be told in JSON and report.
    """

    json_file: Path | None = None
    html_file: Path | None = None
    rules: Rules = field(default_factory=Rules)
    n_jobs: int = 0
    require_precision: float | None = None
    require_recall: float | None = None
    max_pictured: int = 60
    max_file_bytes: int = MAX_FILE_BYTES
    settings: Mapping[str, str] = field(default_factory=dict)


def evaluate_command(
    paths: Sequence[Path], detector: Detector, options: Options | None = None, console: Console | None = None
) -> int:
    """Evaluate a detector on cases and return the exit code.

    Parameters
    ----------
    paths
        Cases, or folders of cases.
    detector
        What is judged, see `builtin.OddnodeDetector`.
    options
        None takes the defaults.
    console
        Where tables go; None is standard output, or standard error when JSON goes to the former.

    Raises
    ------
    OddnodeError
        When an option is wrong or a file can't be written.
    """
    chosen = options or Options()
    _check(chosen)
    is_piped = str(chosen.json_file) == "-"
    screen = console or Console(stderr=is_piped)
    if console is None and not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = WIDE
    found = find_cases(paths, max_file_bytes=chosen.max_file_bytes)
    n_jobs = chosen.n_jobs or max(1, len(os.sched_getaffinity(0)))
    with _bar(screen, "cases") as advance:
        done = evaluate(detector, found.cases, chosen.rules, n_jobs=n_jobs, progress=advance)
    traces = {}
    if chosen.html_file is not None:
        pictured = [score for score in worst_first(done.scores) if score.faults or score.false_alarms]
        with _bar(screen, "pictures") as advance:
            traces = trace_cases(detector, pictured[: chosen.max_pictured], n_jobs=n_jobs, progress=advance)
    result = Result(
        detector=detector.name,
        rules=chosen.rules,
        scores=done.scores,
        left_out=(*found.left_out, *done.left_out),
        settings=chosen.settings,
        traces=traces,
    )
    if chosen.json_file is not None:
        _write(chosen.json_file, as_json(result), screen)
    if chosen.html_file is not None:
        _write(chosen.html_file, html_report(result), screen)
    return _conclude(result, chosen, screen)


def _check(options: Options) -> None:
    if options.n_jobs < 0:
        raise OddnodeError(f"--jobs {options.n_jobs} must be 0 or more")
    for name, value in (
        ("--require-precision", options.require_precision),
        ("--require-recall", options.require_recall),
    ):
        if value is not None and not 0 <= value <= 1:
            raise OddnodeError(f"{name} {value:g} must be between 0 and 1")
    for file in (options.json_file, options.html_file):
        # told before hours of work, not after
        if file is not None and str(file) != "-" and not file.absolute().parent.is_dir():
            raise OddnodeError(f"{file}: cannot be written: its folder does not exist")


def _conclude(result: Result, options: Options, screen: Console) -> int:
    for table in result_tables(result):
        screen.print(table)
    n, left = len(result.scores), len(result.left_out)
    _say(screen, f"{n} cases evaluated, {left} left out")
    unmet = [text for summary in result.origins for text in unmet_requirements(summary, options)]
    if not result.scores:
        return NOTHING
    wanted = options.require_precision is not None or options.require_recall is not None
    if wanted and not any(summary.found + summary.missed for summary in result.origins):
        unmet.append("a requirement is set and no case holds a fault")
    for text in unmet:
        _say(screen, f"not met: {text}")
    if unmet:
        return GATE
    return SOME if left else ALL


def unmet_requirements(summary: Summary, options: Options) -> list[str]:
    """Return the requirements that the cases of one origin don't meet, in words.

    Cases without faults have no recall and no precision: they meet everything.
    """
    if not summary.found + summary.missed:
        return []
    unmet = []
    for name, share, least in (
        ("precision", summary.precision, options.require_precision),
        ("recall", summary.recall, options.require_recall),
    ):
        if least is not None and (share.value is None or share.value < least):
            told = "unknown" if share.value is None else f"{share.value:.3f}"
            unmet.append(f"{summary.name}: {name} is {told} ({share.k} of {share.n}), required {least:g}")
    return unmet


def _write(file: Path, text: str, screen: Console) -> None:
    if str(file) == "-":
        sys.stdout.write(text)
        return
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OddnodeError(f"{file}: cannot be written: {error.strerror}") from error
    _say(screen, f"written: {file}")


def _say(screen: Console, text: str) -> None:
    screen.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _bar(screen: Console, what: str) -> Iterator[Advance]:
    """Show a bar on a terminal, a line every tenth of the way elsewhere."""
    if not screen.is_terminal:
        yield _lines(screen, what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(screen: Console, what: str) -> Advance:
    told = 0

    def advance(done: int, total: int) -> None:
        nonlocal told
        tenth = 10 * done // max(total, 1)
        if tenth > told and total >= 10:
            told = tenth
            _say(screen, f"{what}: {done} of {total}")

    return advance

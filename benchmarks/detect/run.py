"""Oddnode and its rivals on the synthetic incidents; writes ``benchmarks/DETECTION.md`` and its JSON.

Run: ``python -m benchmarks.detect.run [--train N] [--validation N] [--test N]``. The same arguments give
the same numbers. Other uses, which write no page: ``--quick`` (60 train cases), ``--only oddnode`` (no
rivals), ``--kinds a,b`` (cases with these faults only), ``--long`` (the long healthy run), ``--write``.

Exit codes: 0 when every case could be run, 2 when some were left out or an option is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detect.bench import Outcome, Plan, bench, chosen_cases
from benchmarks.detect.cache import DEFAULT_FOLDER, Cache
from benchmarks.detect.incidents import write
from benchmarks.detect.long_run import long_run
from benchmarks.detect.origins import other_origins
from benchmarks.detect.pictures import write_pictures
from benchmarks.detect.report import FOLDER, LONG_NUMBERS, PAGE, main_table, summaries, visible_table
from benchmarks.detect.report import write as write_report
from benchmarks.detect.seen import VARIANTS, Variant, variant_of
from benchmarks.detect.splits import PARTS, SPLITS
from benchmarks.detect.why import seconds_line, why_lines

DEFAULT_CASES = {"train": 60, "validation": 40, "test": 440}
"""440 test cases hold 308 faulty ones; with the ranges of the test split some 280 node-weeks."""

QUICK = {"train": 60, "validation": 0, "test": 0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench and return the exit status."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.html is not None:
        given.html.parent.mkdir(parents=True, exist_ok=True)
    cache = Cache(None if given.no_cache else given.cache)
    commit = commit_of(Path(__file__).parent)
    if given.long:
        result = {**long_run(given.days, given.chunk_days, n_jobs=given.jobs, cache=cache, progress=_tell),
                  "commit": commit}  # fmt: skip
        (given.output / LONG_NUMBERS).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        print(json.dumps(result, indent=1))
        return 0
    try:
        plan = _plan(given, cache)
        drawn = [
            case
            for split, n in plan.n_cases.items()
            for case in chosen_cases(split, n, plan.seed, plan.kinds)
        ]
    except ValueError as error:
        parser.error(str(error))
    if given.write is not None:
        for case in drawn:
            print(f"{case.id}: {write(case, given.write)} bytes")
        return 0
    outcome = bench(plan, _tell)
    _print(outcome, plan.variants[0].name, tells_why=given.why)
    arguments = " ".join(f"--{split} {n}" for split, n in plan.n_cases.items())
    command = f"python -m benchmarks.detect.run {arguments} --seed {given.seed}"
    if given.html is not None:
        settings = {"cases": command, "code": commit}
        write_pictures(outcome, plan.variants[0], drawn, given.html, settings=settings, n_jobs=given.jobs,
                       progress=_tell)  # fmt: skip
        print(f"written: {given.html}")
    if not (given.quick or given.only or given.kinds):
        others = other_origins(given.jobs)
        run = {"command": command, "commit": commit, "seed": given.seed}
        write_report(outcome, run, given.output, others)
        print(f"written: {given.output / PAGE}")
    for text in outcome.failed:
        print(f"left out: {text}")
    return 2 if outcome.failed else 0


def _plan(given: argparse.Namespace, cache: Cache) -> Plan:
    sizes = {split: getattr(given, split) for split in SPLITS}
    defaults = QUICK if given.quick else DEFAULT_CASES
    sizes = {split: defaults[split] if n is None else n for split, n in sizes.items()}
    kinds = frozenset(given.kinds.split(",")) if given.kinds else None
    if unknown := sorted((kinds or frozenset()) - set(PARTS)):
        raise ValueError(f"unknown kind {unknown[0]!r}; known: {', '.join(sorted(PARTS))}")
    return Plan(
        {split: n for split, n in sizes.items() if n > 0},
        seed=given.seed,
        kinds=kinds,
        rivals=given.only is None and given.write is None,
        variants=(Variant(), *(variant_of(text) for text in given.variant)),
        n_jobs=given.jobs,
        cache=cache,
    )


def _print(outcome: Outcome, detector: str, *, tells_why: bool) -> None:
    for split, found in summaries(outcome).items():
        print(f"\n{split}, all faults\n{main_table(found.values())}")
        print(f"{split}, visible faults\n{visible_table(found.values())}")
        if tells_why:
            print(*(line for r in outcome.results[split] for line in why_lines(r, detector)), sep="\n")
    everything = [r for results in outcome.results.values() for r in results]
    print(seconds_line(everything), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.detect.run", description="Oddnode and its rivals.")
    for split, n in DEFAULT_CASES.items():
        parser.add_argument(f"--{split}", type=int, help=f"cases of the split (default {n})")
    parser.add_argument(
        "--seed", type=int, default=1, help="0 to 9 (default 1): other cases of the same ranges"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--quick", action="store_true", help="60 train cases, no page")
    parser.add_argument("--only", choices=("oddnode",), help="no rivals, no page")
    parser.add_argument("--kinds", help="only cases with these kinds of faults, comma between; no page")
    parser.add_argument("--variant", action="append", default=[],
                        help=f"one more row: {', '.join(VARIANTS)}, or NAME=PARAMETER:VALUE,...")  # fmt: skip
    parser.add_argument("--why", action="store_true", help="a line for each miss and each false alarm")
    parser.add_argument("--html", type=Path, help="file for a report with a timeline per case")
    parser.add_argument("--cache", type=Path, default=DEFAULT_FOLDER, help="folder of remembered results")
    parser.add_argument("--no-cache", action="store_true", help="remember nothing")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the page and the numbers")
    parser.add_argument("--write", type=Path, help="write the cases as recorded incidents here instead")
    parser.add_argument("--long", action="store_true", help="the long healthy run instead")
    parser.add_argument("--days", type=float, default=90.0, help="cluster-days of the long run")
    parser.add_argument("--chunk-days", type=float, default=5.0, help="days at a stretch")
    return parser


def commit_of(folder: Path) -> str:
    """Return which code this is: a commit, and whether something is changed."""
    if named := os.environ.get("ODDNODE_BENCH_COMMIT"):
        return named
    try:
        git = ["git", "-C", str(folder)]
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, check=True, text=True
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no", "--", ":/detector", ":/grouping",
             ":/simulator", ":/benchmarks/detect", ":/metric_catalog.yaml"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"
    return f"commit {head.stdout.strip()}{' with changes' if changed.stdout.strip() else ''}"


def _tell(what: str, done: int, n: int) -> None:
    if done == n or done % max(1, n // 20) == 0:
        print(f"{what}: {done} of {n}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

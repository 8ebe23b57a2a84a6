"""Oddnode and its rivals on the synthetic incidents; writes ``benchmarks/DETECTION.md`` and its JSON.

Run: ``python -m benchmarks.detect.run [--train N] [--validation N] [--test N]``, or with ``--long`` the
long healthy run of Oddnode alone. The same arguments give the same numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detect.bench import bench
from benchmarks.detect.incidents import cases, write
from benchmarks.detect.long_run import long_run
from benchmarks.detect.report import FOLDER, LONG_NUMBERS, PAGE, main_table, summaries
from benchmarks.detect.report import write as write_report
from benchmarks.detect.splits import SPLITS

DEFAULT_CASES = {"train": 100, "validation": 60, "test": 440}
"""440 test cases hold 308 faulty ones; with the ranges of the test split some 280 node-weeks."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench and return the exit status."""
    given = _parser().parse_args(argv)
    commit = commit_of(Path(__file__).parent)
    if given.write is not None:
        for split, n in _sizes(given).items():
            for case in cases(split, n, given.seed):
                print(f"{case.id}: {write(case, given.write)} bytes")
        return 0
    if given.long:
        result = {
            **long_run(given.days, given.chunk_days, n_jobs=given.jobs, progress=_tell),
            "commit": commit,
        }
        (given.output / LONG_NUMBERS).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        print(json.dumps(result, indent=1))
        return 0
    sizes = _sizes(given)
    outcome = bench(sizes, seed=given.seed, n_jobs=given.jobs, progress=_tell)
    arguments = " ".join(f"--{split} {n}" for split, n in sizes.items())
    command = f"python -m benchmarks.detect.run {arguments} --seed {given.seed}"
    write_report(outcome, {"command": command, "commit": commit, "seed": given.seed}, given.output)
    for split, found in summaries(outcome).items():
        print(f"\n{split}\n{main_table(found.values())}")
    print(f"written: {given.output / PAGE}")
    return 2 if outcome.failed else 0


def _sizes(given: argparse.Namespace) -> dict[str, int]:
    sizes = {split: getattr(given, split) for split in SPLITS}
    return {split: n for split, n in sizes.items() if n > 0}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.detect.run", description="Oddnode and its rivals.")
    for split, n in DEFAULT_CASES.items():
        parser.add_argument(f"--{split}", type=int, default=n, help=f"cases of the split (default {n})")
    parser.add_argument("--seed", type=int, default=0, help="0 to 9: other cases from the same ranges")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the page and the numbers")
    parser.add_argument("--write", type=Path, help="write the cases as recorded incidents here instead")
    parser.add_argument("--long", action="store_true", help="the long healthy run instead")
    parser.add_argument("--days", type=float, default=90.0, help="cluster-days of the long run")
    parser.add_argument("--chunk-days", type=float, default=10.0, help="days at a stretch")
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
    print(f"{what}: {done} of {n}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

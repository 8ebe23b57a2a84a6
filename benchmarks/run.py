"""All benchmarks; writes ``benchmarks/RESULTS.md``.

Run: ``python -m benchmarks.run [tick] [scale] [replay] [core] [--quick]``
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.bench_core import core_rows
from benchmarks.bench_replay import replay_rows
from benchmarks.bench_tick import ReferenceTick, Rounds, scale_rows
from simulator.config import ClusterConfig
from simulator.metric_sets import reference_shape, story

NAMES = {"tick": "Reference tick", "scale": "Scale", "replay": "Replay", "core": "Evaluation alone"}

TEXTS = {
    "tick": """\
A VictoriaMetrics in a folder of its own on the same processors is fed tick by tick by the simulator; for
every tick, Oddnode (one warm process: newest 30 s of samples, grouping, scores, verdicts) and curl to
`/dev/null`, POSTing the very same `match[]`, start and end to `/api/v1/export`, take turns in going first.
Figures are medians, the ratio is the median of the ratios of these pairs. Each contestant is a process of its
own. What is fetched is decoded while the rest arrives and while the database works on the same processors, so
fetch contains decode.

`reduce_mem_usage=1` would make the export several times faster and is not used, neither by Oddnode nor by
this curl: VictoriaMetrics 1.79 then now and then gives one series the samples of another.

The yardstick in pandas (`pandas_child.py`) does less: per metric one query, a data frame by
prometheus-api-client, rates, a robust z-score by `groupby`; no incidents, habits, absence or pools. What the
database alone needs (see curl) is part of Oddnode's tick and bounds this ratio: a tick that took no longer
than curl would still be only (pandas / curl) times faster. The processor time of the two processes leaves the
database out.""",
    "scale": """\
The same per-node shape at several sizes; all samples are in the database before the first tick.""",
    "replay": """\
A recording of about a hundred metrics, written by the simulator, through `replay_case` in a process that is
bound to one processor.""",
    "core": """\
`Pipeline.evaluate` alone, on samples that are arrays already; median over ticks.""",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for, print tables, and write the page when everything ran at full size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", choices=[*NAMES, []], help="all of them by default")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--output", type=Path, help="page to write; RESULTS.md for a whole run")
    given = parser.parse_args(argv)
    which = given.which or list(NAMES)
    head = {
        "machine": report.machine(),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",  # noqa: TID251 - of the run
        "commit": report.commit(),
        "command": f"python -m benchmarks.run {' '.join(sys.argv[1:] if argv is None else argv)}".strip(),
    }
    sections: dict[str, str] = {}
    for key in which:
        sections[NAMES[key]] = report.table(_runs(quick=given.quick)[key]())
        print(f"\n## {NAMES[key]}\n\n{sections[NAMES[key]]}", flush=True)
    output = given.output or (report.PAGE if not (given.which or given.quick) else None)
    if output is not None:
        texts = {NAMES[key]: text for key, text in TEXTS.items()}
        output.write_text(report.page(head, sections, texts), encoding="utf-8")
    return 0


def _runs(*, quick: bool) -> dict[str, Callable[[], list[report.Row]]]:
    if quick:
        tiny = ClusterConfig(train_nodes=4, spares=1, cpus=2, metrics=story())
        few = Rounds(history=3, warm=1, steady=2, pandas=2)
        return {
            "tick": ReferenceTick(tiny, few).rows,
            "scale": lambda: scale_rows({"tiny": tiny}, few),
            "replay": lambda: replay_rows(tiny, minutes=10, rounds=1),
            "core": lambda: core_rows([(5, 2)], ticks=2),
        }
    shape = reference_shape()
    sizes = {
        f"{n}": ClusterConfig(train_nodes=n - 3, spares=3, cpus=224, metrics=shape) for n in (63, 250, 1000)
    }
    story_config = ClusterConfig(cpus=8, metrics=story())
    return {
        "tick": ReferenceTick(ClusterConfig(metrics=shape), Rounds()).rows,
        "scale": lambda: scale_rows(sizes, Rounds(warm=1, steady=4)),
        "replay": lambda: replay_rows(story_config, minutes=60, rounds=2),
        "core": lambda: core_rows([(63, 8), (63, 224), (250, 8), (250, 224), (1000, 8)], ticks=10),
    }


if __name__ == "__main__":
    sys.exit(main())

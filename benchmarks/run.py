"""All benchmarks; writes ``benchmarks/RESULTS.md``.

Run: ``python -m benchmarks.run [tick] [scale] [replay] [core] [incidents] [day] [month] [what-if] [readers]
[console] [--quick]``; those from day on only when they are asked for.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import report
from benchmarks.bench_console import console_rows
from benchmarks.bench_core import core_rows
from benchmarks.bench_day import DAY_S, HOUR_S, day_rows
from benchmarks.bench_incidents import incident_rows
from benchmarks.bench_readers import readers_rows
from benchmarks.bench_replay import replay_rows
from benchmarks.bench_replay import shapes as replay_shapes
from benchmarks.bench_tick import ReferenceTick, Rounds, scale_rows
from benchmarks.bench_what_if import what_if_rows
from simulator.config import ClusterConfig
from simulator.metric_sets import reference_shape, story

NAMES = {
    "tick": "Reference tick",
    "scale": "Scale",
    "replay": "Replay",
    "core": "Evaluation alone",
    "incidents": "Labelled incidents",
    "day": "A day of the service",
    "month": "A month of the service",
    "what-if": "Ticks beside a try of other settings",
    "readers": "Readers of the interface",
    "console": "The console in a browser",
}
ON_REQUEST = frozenset({"day", "month", "what-if", "readers", "console"})

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
prometheus-api-client, rates, a robust z-score by `groupby`; no incidents, habits, absence or pools. A tick
is nearly all waiting for the database, which both sides share; the processor time of the two processes leaves
the database out. Oddnode sends two requests at a time and curl one, so a tick can take less than curl.""",
    "scale": """\
The same per-node shape at several sizes; all samples are in the database before the first tick. Time limits
of the client are off here: before it sends the first byte, VictoriaMetrics 1.79 collects all series of a
request, and one metric is one request (processor seconds of 1,000 nodes with 224 processors are 1.8 million
series). A cluster of that size needs `source.read_timeout_s` and `source.deadline_s` above their defaults of
20 and 25 seconds on a machine like this one.""",
    "replay": """\
Recordings of a hundred metrics, of all metrics of the simulator's stories, and of all metrics of the catalog,
through `replay_case` in a process that is bound to one processor. Medians of three replays. Where the machine
is shared, processor time says more than time. How fast a replay is hangs on the machine: gunzip and msgspec
alone on the same file are the yardstick beside it. 1,500 times real time was set on a machine on which they
take a sixth of the 3 seconds that this leaves.""",
    "core": """\
`Pipeline.evaluate` alone, on samples that are arrays already; median over ticks.""",
    "incidents": """\
The first cases of the train split as `make bench-detect-quick` has them: each cluster is simulated, once more
without its fault to grade how plainly that shows, replayed and scored; nothing is remembered from before.""",
    "day": """\
24 hours of the reference cluster through `Service` and `Store` (SQLite) at accelerated time: the clock is
put forward a step at a time and `tick` is called, everything else is what `oddnode serve` runs; the learnt
state is saved as often as its bound of a twentieth of the time allows. The cluster is simulated in another
process, so that memory is the service's own. Every two hours another node has a fault for 30 minutes; it
must be named once within 15 minutes and cleared once, not while it lasts and at most 75 minutes after its
end (what grew over an hour is evidence until that hour is over, then 10 minutes of healthy data).""",
    "month": """\
As the day, for `--days` days (30), of a cluster with the hundred metrics of the simulator's stories and two
processors per node: many ticks of fewer series. Every six hours a node has a fault for 30 minutes, and the
store keeps a week (`store.retention_days`: 7), so that it deletes most of what it wrote. Every step of an
incident that was published is looked for in the store at the end. Another node counts as named when it is a
suspect at a time that belongs to none of its faults. There is no restart in it.""",
    "what-if": """\
A VictoriaMetrics with half an hour of the reference cluster, fed on tick by tick, and a try of another
threshold over that time: a process of its own with the lowest priority and one thread, two pipelines, as a
service starts it. Ticks of Oddnode beside the try and ticks while it is held (SIGSTOP) take turns in going
first; the ratio is the median of these pairs. Ticks follow each other without the pause of a live service,
and database, ticks and try share the processors.""",
    "readers": """\
A service that ticks over a filled VictoriaMetrics, without the pause of a live one, and its interface in the
same process, as `oddnode serve` has them; 200 readers in another process, each with a connection
and a token, who ask `/v1/suspects`, wait a second after each answer, and begin at random moments of that
second. That is harder than use: a console asks once an evaluation, every 30 seconds, and a live service
computes for a second or two of these. Blocks of ticks with readers and without take turns in going first.
Database, service and readers share the processors. Processor times hang least on what else is running.""",
    "console": """\
Simulated incidents with a few metrics of most targets and three faulty nodes, played by the service; Debian's
Chromium without a window on the same processors. A page counts as seen once its suspects and its heat map, or
all its charts, are painted, from the start of the navigation and with an empty cache. For memory the pages
Now and of a faulty node stay open side by side while an hour of a recording is played, one evaluation a
second (30 times as fast as live). What they show grows with the incident, so they are compared where it is
the same: when the recording is over, with pages opened just then; and with themselves after 120 redraws more,
each told by the service's events, as an operator mutes a node that nothing is wrong with and takes it back.
What scripts hold is all of a heap snapshot but the browser's own and compiled code, which the engine adds to
for hundreds of redraws; it, heap and document are read after forced collections.""",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for, print it, and put it in the page unless the shapes are tiny."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "which", nargs="*", choices=[*NAMES, []], help=f"by default all but {', '.join(sorted(ON_REQUEST))}"
    )
    parser.add_argument("--days", type=float, default=30.0, help="length of the month")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--output", type=Path, help="page to write; RESULTS.md unless --quick")
    given = parser.parse_args(argv)
    which = given.which or [key for key in NAMES if key not in ON_REQUEST]
    runs = _runs(quick=given.quick) | {"month": lambda: _month(given.days, quick=given.quick)}
    output = given.output or (None if given.quick else report.PAGE)
    for key in which:
        days = f" --days {given.days:g}" if key == "month" else ""
        facts = {
            "machine": report.machine(),
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",  # noqa: TID251 - of the run
            "commit": report.commit(),
            "command": f"python -m benchmarks.run {key}{days}{' --quick' if given.quick else ''}",
        }
        name = NAMES[key]
        rows: list[report.Row] = []
        for row in runs[key]():
            # written row by row: the largest shape takes minutes, and what was found before it shall stay
            rows.append(row)
            section = report.section(name, TEXTS[key], facts, report.table(rows))
            if output is not None:
                before = output.read_text(encoding="utf-8") if output.exists() else ""
                output.write_text(report.page(before, {name: section}, NAMES.values()), encoding="utf-8")
        print(section, flush=True)
    return 0


def _month(days: float, *, quick: bool) -> Iterable[report.Row]:
    shape = ClusterConfig(cpus=2, metrics=story())
    if quick:
        return day_rows(replace(shape, train_nodes=4, spares=1), hours=0.1)
    return day_rows(shape, hours=24 * days, every_s=6 * HOUR_S, retention_s=7 * DAY_S)


def _runs(*, quick: bool) -> dict[str, Callable[[], Iterable[report.Row]]]:
    if quick:
        tiny = ClusterConfig(train_nodes=4, spares=1, cpus=2, metrics=story())
        few = Rounds(history=3, warm=1, steady=2, pandas=2)
        return {
            "tick": ReferenceTick(tiny, few).rows,
            "scale": lambda: scale_rows({"tiny": tiny}, few),
            "replay": lambda: replay_rows(tiny, minutes=10, rounds=1),
            "core": lambda: core_rows([(5, 2)], ticks=2),
            "incidents": lambda: incident_rows(1, n_jobs=1),
            "day": lambda: day_rows(tiny, hours=0.1),
            "what-if": lambda: what_if_rows(tiny, history=60, n_pairs=4),
            "readers": lambda: readers_rows(tiny, n_readers=5, n_pairs=1, n_ticks=2, pause_s=0.01),
            "console": lambda: console_rows((12,), rounds=1, minutes=16, redraws=10),
        }
    shape = reference_shape()
    sizes = {
        name: ClusterConfig(train_nodes=nodes - 3, spares=3, cpus=cpus, metrics=shape)
        for name, nodes, cpus in (("S", 63, 32), ("M", 250, 32), ("L", 1000, 32), ("XL", 1000, 224))
    }
    return {
        "tick": ReferenceTick(ClusterConfig(metrics=shape), Rounds()).rows,
        "scale": lambda: scale_rows(sizes, Rounds(warm=1, steady=3)),
        "replay": lambda: (
            row
            for shape, is_judged in zip(replay_shapes(), (True, False, False), strict=True)
            for row in replay_rows(shape, minutes=75, rounds=3, is_judged=is_judged)
        ),
        "core": lambda: core_rows([(63, 8), (63, 224), (250, 8), (250, 224), (1000, 8)], ticks=10),
        "incidents": incident_rows,
        "day": lambda: day_rows(ClusterConfig(metrics=shape)),
        "what-if": lambda: what_if_rows(ClusterConfig(metrics=shape), history=60, n_pairs=40),
        "readers": lambda: readers_rows(ClusterConfig(metrics=shape)),
        "console": console_rows,
    }


if __name__ == "__main__":
    sys.exit(main())

"""How long it takes to generate and evaluate labelled incidents."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from benchmarks.detect.bench import ODDNODE, Plan, bench
from benchmarks.detect.cache import Cache
from benchmarks.detect.report import summaries
from benchmarks.report import Row

MOST_S = 600.0


def incident_rows(n_cases: int = 60, n_jobs: int = 2, seed: int = 1) -> Iterator[Row]:
    """Generate, grade and evaluate the first train cases; nothing is remembered from before."""
    plan = Plan({"train": n_cases}, seed=seed, rivals=False, n_jobs=n_jobs, cache=Cache())
    begun, begun_cpu = time.perf_counter(), _cpu_s()
    outcome = bench(plan)
    took, took_cpu = time.perf_counter() - begun, _cpu_s() - begun_cpu
    if outcome.failed:
        raise RuntimeError(f"a case could not be run: {outcome.failed[0]}")
    shape = f"{n_cases} cases, {n_jobs} processes"
    told = summaries(outcome)["train"][ODDNODE]
    yield Row("generate and evaluate", shape, f"{took:.0f} s", f"< {MOST_S:.0f} s", took < MOST_S)
    yield Row("- processor time", shape, f"{took_cpu:.0f} s")
    yield Row("- processor time of a case", shape, f"{took_cpu / n_cases:.1f} s")
    yield Row("- found, false alarms", shape, f"{told.found} of {told.recall.n}, {told.false_rate.count}")


def _cpu_s() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system

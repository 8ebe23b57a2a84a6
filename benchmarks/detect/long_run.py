"""Months of healthy time through Oddnode, generated as they are replayed: nothing is stored.

Each finished stretch is remembered by what it depends on, so the run can be stopped and goes on
where it was.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.detect.bench import RULES, Progress
from benchmarks.detect.cache import EVERYTHING, Cache, digest, sources
from benchmarks.detect.incidents import CaseSpec, recording_of
from benchmarks.detect.incidents_everyday import BENIGN_PER_NODE_HOUR, everyday_events
from benchmarks.detect.simulated import SimulatedSource
from detector.errors import OddnodeError
from detector.evaluation.builtin import findings_of
from detector.evaluation.runner import run_all
from detector.evaluation.scoring import CaseScore, score_case
from detector.evaluation.summary import summarise
from detector.pipeline import Pipeline
from detector.replay import play
from grouping.catalog import load_catalog
from simulator.config import ClusterConfig
from simulator.metric_sets import story

DAY_S = 86400.0
FIRST_SEED = 9_000_000


def healthy_stretch(number: int, days: float, nodes: int = 63) -> CaseSpec:
    """Return a case of several days in which nothing is wrong, with what happens every day."""
    seed = FIRST_SEED + number
    config = ClusterConfig(
        train_nodes=nodes - 3,
        spares=3,
        cpus=2,
        n_veth=1,
        metrics=story(),
        benign_per_node_hour=BENIGN_PER_NODE_HOUR,
    )
    length_s = days * DAY_S
    found = everyday_events(config, seed, config.start, config.start + length_s)
    return CaseSpec(f"long-{seed}", "long", seed, config, length_s, found.faults, found.events)


def _run(task: tuple[CaseSpec, Cache]) -> CaseScore | str:
    case, cache = task
    key = digest("long", case, RULES, sources(EVERYTHING))
    found = cache.find(key)
    if isinstance(found, CaseScore):
        return found
    recording = recording_of(case)
    try:
        source = SimulatedSource(case.cluster())
        replayed = play(recording, source, Pipeline(load_catalog()))
    except (OddnodeError, MemoryError, ValueError) as error:
        return f"{case.id}: {error}"
    score = score_case(recording, findings_of(replayed), RULES)
    cache.keep(key, score)
    return score


def density(cases: list[CaseSpec]) -> dict[str, float]:
    """Return how often each thing happens that is nobody's fault, per cluster-day."""
    days = sum(case.length_s for case in cases) / DAY_S
    count = Counter(event.kind for case in cases for event in case.events)
    count.update(fault.kind for case in cases for fault in case.faults)
    for case in cases:
        for item in recording_of(case).benign:
            count[f"benign {item['kind']}"] += 1
    return {kind: n / days for kind, n in sorted(count.items())}


def long_run(
    days: float,
    chunk_days: float,
    *,
    n_jobs: int,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Replay healthy time in stretches, each a cluster of its own.

    Parameters
    ----------
    days
        Cluster-days in all; three cluster-months are 90.
    chunk_days
        Days at a stretch.
    n_jobs
        Processes.
    cache
        Where finished stretches are kept.
    progress
        Called with (what, stretches done, all).

    Raises
    ------
    RuntimeError
        When a stretch could not be run.
    """
    stretches = [healthy_stretch(k, chunk_days) for k in range(max(1, round(days / chunk_days)))]
    tell = (lambda done, n: progress("healthy stretches", done, n)) if progress else None
    tasks = [(case, cache or Cache()) for case in stretches]
    found = run_all(_run, tasks, n_jobs=n_jobs, progress=tell)
    failed = [text for text in found if isinstance(text, str)]
    if failed:
        raise RuntimeError("; ".join(failed))
    scores = [score for score in found if isinstance(score, CaseScore)]
    summary = summarise("long", scores, RULES)
    rate = summary.false_rate
    return {
        "days": len(stretches) * chunk_days,
        "chunk_days": chunk_days,
        "nodes": stretches[0].config.n_nodes,
        "per_cluster_day": density(stretches),
        "false_alarms": rate.count,
        "neutral_alarms": summary.n_neutral,
        "false_causes": dict(summary.false_causes),
        "node_days": rate.node_days,
        "per_month": rate.per_month,
        "per_month_upper": rate.per_month_upper,
        "alarmed_share": summary.alarmed_share,
        "alarms": [
            {
                "case": score.recording.id,
                "node": alarm.episode.node,
                "after_s": round(alarm.episode.raised_at - score.recording.start),
                "during": alarm.during,
                "why": alarm.episode.flags[0].why,
            }
            for score in scores
            for alarm in score.false_alarms
        ],
    }

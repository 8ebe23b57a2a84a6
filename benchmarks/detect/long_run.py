"""Months of healthy time through Oddnode, generated as they are replayed: nothing is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.detect.bench import RULES, Progress
from benchmarks.detect.incidents import CaseSpec, recording_of
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
from simulator.faults import GroupEvent
from simulator.metric_sets import story

DAY_S = 86400.0
FIRST_SEED = 9_000_000


def healthy_stretch(number: int, days: float, nodes: int = 63) -> CaseSpec:
    """Return a case of several days in which nothing is wrong; the job is restarted once a day."""
    seed = FIRST_SEED + number
    config = ClusterConfig(train_nodes=nodes - 3, spares=3, cpus=2, n_veth=1, metrics=story())
    rng = np.random.default_rng([seed, 8])
    starts = config.start + DAY_S * (np.arange(int(days)) + rng.uniform(0.1, 0.9, int(days)))
    events = tuple(GroupEvent("job_restart", float(at), float(at) + 240.0) for at in starts)
    return CaseSpec(f"long-{seed}", "long", seed, config, days * DAY_S, (), events)


def _run(case: CaseSpec) -> CaseScore | str:
    recording = recording_of(case)
    try:
        source = SimulatedSource(case.cluster())
        replayed = play(recording, source, Pipeline(load_catalog()))
    except (OddnodeError, MemoryError, ValueError) as error:
        return f"{case.id}: {error}"
    return score_case(recording, findings_of(replayed), RULES)


def long_run(
    days: float, chunk_days: float, *, n_jobs: int, progress: Progress | None = None
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
    progress
        Called with (what, stretches done, all).

    Raises
    ------
    RuntimeError
        When a stretch could not be run.
    """
    stretches = [healthy_stretch(k, chunk_days) for k in range(max(1, round(days / chunk_days)))]
    tell = (lambda done, n: progress("healthy stretches", done, n)) if progress else None
    found = run_all(_run, stretches, n_jobs=n_jobs, progress=tell)
    failed = [text for text in found if isinstance(text, str)]
    if failed:
        raise RuntimeError("; ".join(failed))
    scores = [score for score in found if isinstance(score, CaseScore)]
    rate = summarise("long", scores, RULES).false_rate
    return {
        "days": len(stretches) * chunk_days,
        "chunk_days": chunk_days,
        "nodes": stretches[0].config.n_nodes,
        "false_alarms": rate.count,
        "node_days": rate.node_days,
        "per_month": rate.per_month,
        "per_month_upper": rate.per_month_upper,
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

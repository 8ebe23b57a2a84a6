"""How the figures of one detector hang on when a fault begins and on the size of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.detect.bench import RULES, CaseResult
from benchmarks.detect.splits import EARLY_ONSET_MIN
from detector.evaluation.summary import Summary, summarise
from detector.source.incident_file import Recording

MINUTE = 60.0
SMALL_BELOW, LARGE_FROM = 48, 128
"""Nodes; a pool this small or large is told apart."""


def begins_early(case: Recording) -> bool:
    """Tell whether a case's first fault begins while hardly any history is there."""
    first = min((fault.onset for fault in case.faults), default=case.end)
    return first - case.start <= EARLY_ONSET_MIN[1] * MINUTE


def _n_nodes(case: Recording) -> int:
    return len(case.pool) + len(case.spares)


CIRCUMSTANCES: Mapping[str, Callable[[Recording], bool]] = {
    f"fault begins {EARLY_ONSET_MIN[0]:.0f} to {EARLY_ONSET_MIN[1]:.0f} min after the first sample": (
        lambda case: bool(case.faults) and begins_early(case)
    ),
    "fault begins later": lambda case: bool(case.faults) and not begins_early(case),
    f"fewer than {SMALL_BELOW} nodes": lambda case: _n_nodes(case) < SMALL_BELOW,
    f"{SMALL_BELOW} to {LARGE_FROM - 1} nodes": lambda case: SMALL_BELOW <= _n_nodes(case) < LARGE_FROM,
    f"{LARGE_FROM} nodes and more": lambda case: _n_nodes(case) >= LARGE_FROM,
}
"""What cases are told apart by; the groups of one line each overlap with those of another."""


def by_circumstance(results: Sequence[CaseResult], detector: str) -> Iterator[Summary]:
    """Yield the figures of a detector under each circumstance that some case has.

    Parameters
    ----------
    results
        Cases of one split.
    detector
        Name of a detector that saw them.
    """
    scores = [result.scores[detector] for result in results]
    for name, holds in CIRCUMSTANCES.items():
        some = [score for score in scores if holds(score.recording)]
        if some:
            yield summarise(name, some, RULES)

"""Oddnode on the cases that are not synthetic; never added up with those."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.detect.seen import ODDNODE, RULES
from detector.evaluation.builtin import OddnodeDetector
from detector.evaluation.cases import find_cases
from detector.evaluation.runner import evaluate
from detector.evaluation.summary import Summary, by_origin
from grouping.catalog import load_catalog

REPLAY_DATA = Path(__file__).resolve().parents[2] / "replay_data"
ORIGINS = ("recorded", "reconstructed")


def other_origins(n_jobs: int, folder: Path = REPLAY_DATA) -> dict[str, dict[str, Summary]]:
    """Return the summaries of recorded and reconstructed cases, by origin and detector.

    Raises
    ------
    RuntimeError
        When a case could not be evaluated: the figures would speak of others than they seem to.
    """
    found = find_cases([folder])
    detector = OddnodeDetector(load_catalog(), name=ODDNODE)
    done = evaluate(detector, found.cases, RULES, n_jobs=n_jobs)
    left_out = [*found.left_out, *done.left_out]
    if left_out:
        raise RuntimeError(f"{left_out[0].path}: {left_out[0].reason}")
    return {
        s.name: {ODDNODE: replace(s, name=ODDNODE)}
        for s in by_origin(done.scores, RULES)
        if s.name in ORIGINS
    }

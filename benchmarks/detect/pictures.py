"""The report of generated cases: they are made again for each picture, as nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.detect.bench import RULES, Outcome, Progress
from benchmarks.detect.incidents import CaseSpec, recording_of
from benchmarks.detect.seen import Variant
from benchmarks.detect.simulated import SimulatedSource
from detector.evaluation.builtin import findings_of, traces_of
from detector.evaluation.model import Case, Findings, LeftOut, Moment, Trace
from detector.evaluation.report import faultiness, html_report, worst_first
from detector.evaluation.result import Result
from detector.evaluation.runner import trace_cases
from detector.evaluation.scoring import CaseScore
from detector.replay import play

MAX_BAD, MAX_GOOD = 60, 8
"""Cases with curves: misses and false alarms, and hits."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A variant of Oddnode on cases that are generated when they are asked for.

    Parameters
    ----------
    variant
        What is judged.
    cases
        By id.
    """

    variant: Variant
    cases: Mapping[str, CaseSpec]

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.variant.name

    def flag(self, case: Case) -> Findings:
        """Generate and replay a case."""
        spec = self.cases[case.id]
        source = SimulatedSource(spec.cluster())
        return findings_of(play(recording_of(spec), source, self.variant.pipeline(case.step_s)))

    def explain(self, case: Case, moments: Sequence[Moment]) -> list[Trace]:
        """Generate a case up to the last moment and keep the signals behind each."""
        source = SimulatedSource(self.cases[case.id].cluster())
        return traces_of(self.variant.pipeline(case.step_s), source, case, moments)


def pictured(scores: Sequence[CaseScore]) -> list[CaseScore]:
    """Choose the cases with curves, the worst first."""
    ordered = worst_first(scores)
    bad = [score for score in ordered if faultiness(score)[:2] > (0, 0)]
    good = [score for score in ordered if score.faults and faultiness(score)[:2] == (0, 0)]
    return [*bad[:MAX_BAD], *good[:MAX_GOOD]]


def write_pictures(
    outcome: Outcome,
    variant: Variant,
    cases: Sequence[CaseSpec],
    file: Path,
    *,
    settings: Mapping[str, str],
    n_jobs: int,
    progress: Progress | None = None,
) -> None:
    """Write the HTML report of one variant: misses and false alarms first, with a timeline each.

    Parameters
    ----------
    outcome
        Results of all splits.
    variant
        One that was run.
    cases
        The cases of the results.
    file
        Written whole or not at all.
    settings
        Told at the top.
    n_jobs, progress
        As for the bench.
    """
    scores = [r.scores[variant.name] for results in outcome.results.values() for r in results]
    detector = Generated(variant, {case.id: case for case in cases})
    tell = (lambda done, n: progress("pictures", done, n)) if progress else None
    traces = trace_cases(detector, pictured(scores), n_jobs=n_jobs, progress=tell)
    left_out = tuple(LeftOut(*text.split(": ", 1)) for text in outcome.failed)
    result = Result(variant.name, RULES, tuple(scores), left_out, settings, traces)
    part = file.with_name(f".{file.name}.part")
    part.write_text(html_report(result), encoding="utf-8")
    part.replace(file)

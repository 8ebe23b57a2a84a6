"""Generate the cases of the other site, replay them with the shipped catalog and defaults, and score them.

python -m benchmarks.other_site.run OUT [--only h01 f02 ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.other_site.cases import CASES, OtherCase
from benchmarks.other_site.write import write_case
from detector.evaluation.builtin import findings_of
from detector.evaluation.model import Rules
from detector.evaluation.scoring import CaseScore, FaultScore, score_case
from detector.evaluation.summary import Summary, by_origin
from detector.replay import replay_case
from detector.source.incident_file import load_recording
from grouping.catalog import Catalog, load_catalog


def score_of(case: OtherCase, folder: Path, catalog: Catalog, rules: Rules) -> CaseScore:
    """Write a case, replay it, and score what was said.

    Parameters
    ----------
    case
        Which.
    folder
        Where the case's folder is made.
    catalog
        What is compared.
    rules
        How flags are matched with labels.

    Raises
    ------
    OddnodeError
        When the case cannot be replayed.
    """
    path = write_case(case, folder)
    return score_case(load_recording(path), findings_of(replay_case(path, catalog)), rules)


def case_line(case: OtherCase, score: CaseScore) -> str:
    """Return what became of a case, in a line."""
    told = [_fault_words(fault) for fault in score.faults] or ["no fault"]
    false = [
        f"false alarm: {alarm.episode.node} ({alarm.episode.flags[0].metric}, during {alarm.during})"
        for alarm in score.false_alarms
    ]
    story = case.story.__name__.replace("_", " ")
    return f"{case.name} {story}: {'; '.join([*told, *false])}"


def _fault_words(score: FaultScore) -> str:
    named = f"{score.fault.kind} of {score.fault.node}"
    if score.delay_s is None:
        return f"{named} missed, {score.why}"
    return f"{named} found after {score.delay_s / 60:.1f} min"


def total_line(summary: Summary) -> str:
    """Return the numbers of all cases of one origin, in a line."""
    recall, rate, delay = summary.recall, summary.false_rate, summary.all_faults.delay
    found = f"{recall.k} of {recall.n} faults found"
    if recall.interval is not None:
        low, high = recall.interval
        found += f" (Wilson 95 %: {low:.0%} to {high:.0%})"
    false = f"{rate.count} false alarms in {rate.node_days:.1f} node-days outside of faults and masked time"
    told = [found, false]
    if delay.median_s is not None and delay.p90_s is not None:
        told.append(f"delay median {delay.median_s / 60:.1f} min, p90 {delay.p90_s / 60:.1f} min")
    return f"{summary.name}, {summary.n_cases} cases: {'; '.join(told)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.other_site.run", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder in which the cases are written")
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CASE", help="some cases")
    chosen = parser.parse_args(arguments)
    catalog, rules = load_catalog(), Rules()
    scores = []
    for case in CASES:
        if case.name in chosen.only:
            scores.append(score_of(case, chosen.out, catalog, rules))
            print(case_line(case, scores[-1]), flush=True)
    for summary in by_origin(scores, rules):
        print(total_line(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

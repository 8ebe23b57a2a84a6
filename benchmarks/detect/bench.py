"""Generate cases, run Oddnode and the rivals on each, choose the rivals' settings on the train split.

A case is simulated once and seen by everybody; it exists in memory only, except that the aligned
samples of the train split wait in a temporary folder while settings are chosen. What does not change
between runs is remembered, see `cache`; the numbers are the same without.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.detect.cache import EVERYTHING, RIVALS, Cache, digest, sources
from benchmarks.detect.incidents import CaseSpec, cases
from benchmarks.detect.matrix import CaseMatrix
from benchmarks.detect.rivals import all_rivals, not_run, train_all
from benchmarks.detect.rivals_learnt import Minder
from benchmarks.detect.rivals_rules import Rival, Setting
from benchmarks.detect.seen import ODDNODE, RULES, Reached, Seen, Variant, see, timed
from detector.errors import OddnodeError
from detector.evaluation.model import Findings
from detector.evaluation.runner import run_all
from detector.evaluation.scoring import CaseScore, score_case
from detector.source.incident_file import Recording

__all__ = ["ODDNODE", "RULES", "CaseResult", "Outcome", "Plan", "Progress", "at_edge", "bench",
           "best_settings", "chosen_cases"]  # fmt: skip

Progress = Callable[[str, int, int], None]
Counts = Mapping[tuple[str, Setting], tuple[int, int, int]]

MOST_CASES = 100_000
FAILURES = (OddnodeError, OSError, MemoryError, ValueError)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Parameters
    ----------
    n_cases
        Cases of each split; ``train`` is needed for rivals because settings are chosen on it.
    seed
        See `incidents.cases`.
    kinds
        Only cases with a fault of these kinds; None for all, with those without faults.
    rivals
        False for Oddnode alone.
    variants
        Of Oddnode, the first is the one that misses and false alarms are told of.
    n_jobs
        Processes; results do not depend on it.
    cache
        Where results are kept.
    """

    n_cases: Mapping[str, int]
    seed: int = 0
    kinds: frozenset[str] | None = None
    rivals: bool = True
    variants: tuple[Variant, ...] = (Variant(),)
    n_jobs: int = 2
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        """Refuse what would give numbers that mean nothing."""
        if self.rivals and self.n_cases.get("train", 0) < 1:
            raise ValueError("the rivals' settings are chosen on the train split: it needs at least one case")
        names = [variant.name for variant in self.variants]
        if not names or len(set(names)) < len(names):
            raise ValueError("at least one variant is needed, each named once")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Scores of all detectors on one case.

    Parameters
    ----------
    n_hidden
        Faults that left no trace, which count neither way.
    scores
        By name of detector.
    reached
        How near the faulty nodes came to being called by the first variant.
    seconds
        CPU seconds by phase when it was computed.
    """

    case: str
    n_hidden: int
    scores: Mapping[str, CaseScore]
    reached: tuple[Reached, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All results.

    Parameters
    ----------
    settings
        Chosen setting of each rival.
    at_edge
        Rivals of which a number in the setting is the lowest or highest tried.
    order
        Signals of the first Minder with its chosen setting, the first first.
    results
        By split.
    failed
        Cases that could not be run, in sentences.
    not_run
        By rival, why it was left out.
    """

    settings: Mapping[str, Setting]
    at_edge: tuple[str, ...]
    order: tuple[str, ...]
    results: Mapping[str, tuple[CaseResult, ...]]
    failed: tuple[str, ...]
    not_run: Mapping[str, str] = field(default_factory=dict)


def chosen_cases(split: str, n: int, seed: int = 0, kinds: frozenset[str] | None = None) -> list[CaseSpec]:
    """Return the first cases of a split, or the first with a fault of some kinds.

    Raises
    ------
    ValueError
        When the first 100,000 cases hold too few of these kinds, or see `incidents.cases`.
    """
    if kinds is None:
        return list(cases(split, n, seed))
    found = (
        case for case in cases(split, MOST_CASES, seed) if any(f.kind in kinds for f in case.node_faults)
    )
    chosen = list(islice(found, n))
    if len(chosen) < n:
        raise ValueError(f"no {n} cases of the kinds {', '.join(sorted(kinds))}")
    return chosen


@dataclass(frozen=True, slots=True)
class _Stored:
    """A train case: what Oddnode said, and where the samples for rivals are."""

    case: CaseSpec
    seen: Seen
    file: Path

    def matrix(self) -> CaseMatrix:
        """Return the samples; they are made again when the file is not there."""
        if not self.file.exists():
            matrix = see(self.case)[1]
            assert matrix is not None
            _write(self.file, matrix)
        with self.file.open("rb") as stored:
            found = pickle.load(stored)
        assert isinstance(found, CaseMatrix)
        return found


def _write(file: Path, matrix: CaseMatrix) -> None:
    part = file.with_suffix(".part")
    with part.open("wb") as out:
        pickle.dump(matrix, out, protocol=5)
    part.replace(file)


def _see_to_file(task: tuple[CaseSpec, Path, Plan]) -> _Stored | str:
    case, folder, plan = task
    file = folder / f"{case.id}.pickle"
    key = digest("seen", case, plan.variants, sources(EVERYTHING))
    try:
        seen = plan.cache.find(key)
        if seen is None:
            seen, matrix = see(case, plan.variants, cache=plan.cache)
            assert matrix is not None
            _write(file, matrix)
            plan.cache.keep(key, seen)
    except FAILURES as error:
        return f"{case.id}: {error}"
    return _Stored(case, seen, file)


@dataclass(frozen=True, slots=True)
class _Ready:
    """The rivals after training, with a key that says what they learnt from."""

    rivals: tuple[Rival, ...]
    learnt: str

    def key(self, rival: Rival) -> str:
        """Return what a rival's answers depend on beside case and setting."""
        learns = hasattr(rival, "train") or hasattr(rival, "learn")
        return digest(rival.name, self.learnt if learns else "", sources(RIVALS), RULES)


def _try_all(task: tuple[_Stored, _Ready, Cache]) -> dict[tuple[str, Setting], tuple[int, int, int]] | str:
    """Count found faults, false alarms and misses of one train case for every setting."""
    stored, ready, cache = task
    counts: dict[tuple[str, Setting], tuple[int, int, int]] = {}
    matrix: CaseMatrix | None = None
    for rival in ready.rivals:
        key = digest("grid", stored.seen.content, ready.key(rival), rival.grid)
        found: dict[Setting, tuple[int, int, int]] | None = cache.find(key)
        if found is None:
            matrix = matrix or stored.matrix()
            found = _grid_counts(rival, matrix, stored.seen.recording)
            cache.keep(key, found)
        counts.update({(rival.name, setting): numbers for setting, numbers in found.items()})
    return counts


def _grid_counts(
    rival: Rival, matrix: CaseMatrix, recording: Recording
) -> dict[Setting, tuple[int, int, int]]:
    prepared = rival.prepare(matrix)
    counts = {}
    for setting in rival.grid:
        score = score_case(recording, Findings(tuple(rival.flags(matrix, prepared, setting))), RULES)
        found = sum(f.delay_s is not None for f in score.faults)
        counts[setting] = (found, len(score.false_alarms), len(score.faults) - found)
    return counts


def _score_all(task: tuple[CaseSpec | _Stored, _Ready, Mapping[str, Setting], Plan]) -> CaseResult | str:
    given, ready, settings, plan = task
    case = given.case if isinstance(given, _Stored) else given
    keys = [(rival.name, ready.key(rival), settings[rival.name]) for rival in ready.rivals]
    key = digest("case", case, plan.variants, keys, sources(EVERYTHING))
    try:
        result = plan.cache.find(key)
        if result is None:
            result = _scored(given, ready, settings, plan)
            plan.cache.keep(key, result)
    except FAILURES as error:
        return f"{case.id}: {error}"
    assert isinstance(result, CaseResult)
    return result


def _scored(
    given: CaseSpec | _Stored, ready: _Ready, settings: Mapping[str, Setting], plan: Plan
) -> CaseResult:
    matrix: CaseMatrix | None = None
    if isinstance(given, _Stored):
        seen = given.seen
    else:
        seen, matrix = see(given, plan.variants, wants_matrix=bool(ready.rivals), cache=plan.cache)
    scores = {name: score_case(seen.recording, found, RULES) for name, found in seen.findings.items()}
    seconds = dict(seen.seconds)
    for rival in ready.rivals:
        key = digest("score", seen.content, ready.key(rival), settings[rival.name])
        score = plan.cache.find(key)
        if score is None:
            if matrix is None:
                assert isinstance(given, _Stored)
                matrix = given.matrix()
            with timed(seconds, "rivals"):
                flags = rival.flags(matrix, rival.prepare(matrix), settings[rival.name])
                score = score_case(seen.recording, Findings(tuple(flags)), RULES)
            plan.cache.keep(key, score)
        scores[rival.name] = score
    return CaseResult(seen.recording.id, seen.n_hidden, scores, seen.reached, seconds)


def best_settings(rivals: Sequence[Rival], counts: Sequence[Counts]) -> dict[str, Setting]:
    """Return for each rival the setting with the highest F1; of equals, the one with fewer false alarms.

    Parameters
    ----------
    rivals
        Those with a grid.
    counts
        Per case: found faults, false alarms and misses of every setting.

    Raises
    ------
    RuntimeError
        When there is no case to choose on.
    """
    if not counts:
        raise RuntimeError("settings can't be chosen: no train case could be evaluated")
    chosen: dict[str, Setting] = {}
    for rival in rivals:
        ranked = []
        for i, setting in enumerate(rival.grid):
            found, false, missed = (sum(c[rival.name, setting][k] for c in counts) for k in range(3))
            f1 = 2 * found / max(2 * found + false + missed, 1)
            ranked.append((-f1, false, i, setting))
        chosen[rival.name] = min(ranked)[3]
    return chosen


def at_edge(grid: Sequence[Setting], setting: Setting) -> bool:
    """Tell whether a number of a setting is the lowest or highest of those tried, of three or more."""
    for k, value in enumerate(setting):
        tried = sorted({other[k] for other in grid if not isinstance(other[k], str | bool)})
        if len(tried) > 2 and value in (tried[0], tried[-1]):
            return True
    return False


def bench(plan: Plan, progress: Progress | None = None) -> Outcome:
    """Run everything.

    Parameters
    ----------
    plan
        What is run.
    progress
        Called with (what, done, all).

    Raises
    ------
    RuntimeError
        When a rival can't be tried: its figures would mean nothing.
    """
    failed: list[str] = []

    def run(what: str, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        tell = (lambda done, n: progress(what, done, n)) if progress else None
        done = run_all(work, tasks, n_jobs=plan.n_jobs, progress=tell)
        failed.extend(text for text in done if isinstance(text, str) and text not in failed)
        return [result for result in done if not isinstance(result, str)]

    given: dict[str, Sequence[CaseSpec | _Stored]] = {
        split: chosen_cases(split, n, plan.seed, plan.kinds) for split, n in plan.n_cases.items()
    }
    ready, settings = _Ready((), ""), dict[str, Setting]()
    with tempfile.TemporaryDirectory(prefix="oddnode-bench-") as folder:
        if plan.rivals:
            tasks = [(case, Path(folder), plan) for case in given["train"]]
            stored: list[_Stored] = run("train cases", _see_to_file, tasks)
            given["train"] = stored
            ready = _trained(stored, plan.cache)
            n_failed = len(failed)
            tried = run("settings of rivals", _try_all, [(s, ready, plan.cache) for s in stored])
            if len(failed) > n_failed:
                raise RuntimeError(f"settings of rivals could not be tried: {failed[n_failed]}")
            settings = best_settings(ready.rivals, tried)
        results = {}
        for split, some in given.items():
            what = f"{split} cases, all detectors" if plan.rivals else f"{split} cases"
            results[split] = tuple(run(what, _score_all, [(one, ready, settings, plan) for one in some]))
    edge = tuple(r.name for r in ready.rivals if at_edge(r.grid, settings[r.name]))
    order = next((r.order_of(settings[r.name]) for r in ready.rivals if isinstance(r, Minder)), ())
    left_out = not_run() if plan.rivals else {}
    return Outcome(settings, edge, order, results, tuple(failed), left_out)


def _trained(stored: Sequence[_Stored], cache: Cache) -> _Ready:
    def again() -> Iterator[tuple[CaseMatrix, Recording]]:
        for one in stored:
            yield one.matrix(), one.seen.recording

    def train() -> tuple[Rival, ...]:
        rivals = all_rivals()
        train_all(rivals, again)
        return rivals

    learnt = digest("learnt", [one.seen.content for one in stored], sources(RIVALS), sorted(not_run()))
    return _Ready(cache.get(learnt, train), learnt)

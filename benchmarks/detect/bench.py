"""Generate cases, run Oddnode and the rivals on each, choose the rivals' settings on the train split.

A case is simulated once and seen by everybody; it exists in memory only, except that the aligned
samples of the train split wait in a temporary folder while settings are chosen.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.detect.incidents import CaseSpec, cases, recording_of
from benchmarks.detect.matrix import CaseMatrix, Collector
from benchmarks.detect.rivals import all_rivals, not_run, train_all
from benchmarks.detect.rivals_learnt import Minder
from benchmarks.detect.rivals_rules import Rival, Setting
from benchmarks.detect.simulated import SimulatedSource, Witness
from detector.errors import OddnodeError
from detector.evaluation.builtin import findings_of
from detector.evaluation.model import Findings, Rules
from detector.evaluation.runner import run_all
from detector.evaluation.scoring import CaseScore, score_case
from detector.pipeline import Pipeline
from detector.replay import play
from detector.source.incident_file import Recording
from grouping.catalog import load_catalog

ODDNODE = "Oddnode"
RULES = Rules()
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """One case after Oddnode saw it."""

    recording: Recording
    n_hidden: int
    findings: Findings
    matrix: CaseMatrix


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Scores of all detectors on one case.

    Parameters
    ----------
    n_hidden
        Faults that left no trace, which count neither way.
    scores
        By name of detector.
    """

    case: str
    n_hidden: int
    scores: Mapping[str, CaseScore]


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
        Minder's signals, the first first.
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


def see(case: CaseSpec) -> Seen:
    """Simulate a case while Oddnode replays it."""
    witness = Witness(case) if case.node_faults else None
    source = SimulatedSource(case.cluster(), witness.rows if witness else None)
    pipeline = Pipeline(load_catalog())
    collector = Collector(pipeline)
    replayed = play(recording_of(case), source, pipeline, watch=collector)
    visible = witness.visible(source.kept) if witness else ()
    recording = recording_of(case, visible)
    return Seen(recording, visible.count(False), findings_of(replayed), collector.matrix(recording))


def _see_to_file(task: tuple[CaseSpec, str]) -> Path | str:
    case, folder = task
    file = Path(folder) / f"{case.id}.pickle"
    try:
        with file.open("wb") as out:
            pickle.dump(see(case), out, protocol=5)
    except (OddnodeError, OSError, MemoryError, ValueError) as error:
        return f"{case.id}: {error}"
    return file


def _load(file: Path) -> Seen:
    with file.open("rb") as stored:
        seen = pickle.load(stored)
    assert isinstance(seen, Seen)
    return seen


def _try_all(task: tuple[Path, tuple[Rival, ...]]) -> dict[tuple[str, Setting], tuple[int, int, int]] | str:
    """Count found faults, false alarms and misses of one train case for every setting."""
    file, rivals = task
    seen = _load(file)
    counts = {}
    for rival in rivals:
        prepared = rival.prepare(seen.matrix)
        for setting in rival.grid:
            flags = rival.flags(seen.matrix, prepared, setting)
            score = score_case(seen.recording, Findings(tuple(flags)), RULES)
            found = sum(f.delay_s is not None for f in score.faults)
            counts[rival.name, setting] = (found, len(score.false_alarms), len(score.faults) - found)
    return counts


def _score_all(task: tuple[CaseSpec | Path, tuple[Rival, ...], Mapping[str, Setting]]) -> CaseResult | str:
    case, rivals, settings = task
    name = case.stem if isinstance(case, Path) else case.id
    try:
        seen = _load(case) if isinstance(case, Path) else see(case)
    except (OddnodeError, OSError, MemoryError, ValueError) as error:
        return f"{name}: {error}"
    scores = {ODDNODE: score_case(seen.recording, seen.findings, RULES)}
    for rival in rivals:
        flags = rival.flags(seen.matrix, rival.prepare(seen.matrix), settings[rival.name])
        scores[rival.name] = score_case(seen.recording, Findings(tuple(flags)), RULES)
    return CaseResult(seen.recording.id, seen.n_hidden, scores)


def best_settings(
    rivals: Sequence[Rival], counts: Sequence[Mapping[tuple[str, Setting], tuple[int, int, int]]]
) -> dict[str, Setting]:
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


def bench(
    n_cases: Mapping[str, int],
    *,
    seed: int = 0,
    n_jobs: int = 2,
    progress: Progress | None = None,
) -> Outcome:
    """Run everything.

    Parameters
    ----------
    n_cases
        Cases of each split; ``train`` is needed because settings are chosen on it.
    seed
        See `incidents.cases`.
    n_jobs
        Processes; results do not depend on it.
    progress
        Called with (what, done, all).

    Raises
    ------
    ValueError
        When there is no train case.
    RuntimeError
        When a rival can't be tried: its figures would mean nothing.
    """
    if n_cases.get("train", 0) < 1:
        raise ValueError("the rivals' settings are chosen on the train split: it needs at least one case")
    rivals = all_rivals()
    failed: list[str] = []

    def told(what: str) -> Callable[[int, int], None] | None:
        return (lambda done, n: progress(what, done, n)) if progress else None

    with tempfile.TemporaryDirectory(prefix="oddnode-bench-") as folder:
        tasks = [(case, folder) for case in cases("train", n_cases["train"], seed)]
        seen = run_all(_see_to_file, tasks, n_jobs=n_jobs, progress=told("train cases"))
        files = [file for file in seen if isinstance(file, Path)]
        failed += [text for text in seen if isinstance(text, str)]
        train_all(rivals, lambda: _pairs(files))
        tried = run_all(
            _try_all, [(f, rivals) for f in files], n_jobs=n_jobs, progress=told("settings of rivals")
        )
        broken = [text for text in tried if isinstance(text, str)]
        if broken:
            raise RuntimeError(f"settings of rivals could not be tried on {len(broken)} cases: {broken[0]}")
        settings = best_settings(rivals, [c for c in tried if not isinstance(c, str)])
        results: dict[str, tuple[CaseResult, ...]] = {}
        for split, n in n_cases.items():
            given: Sequence[CaseSpec | Path] = files if split == "train" else list(cases(split, n, seed))
            scored = run_all(
                _score_all,
                [(case, rivals, settings) for case in given],
                n_jobs=n_jobs,
                progress=told(f"{split} cases, all detectors"),
            )
            failed += [text for text in scored if isinstance(text, str)]
            results[split] = tuple(r for r in scored if not isinstance(r, str))
    edge = tuple(r.name for r in rivals if at_edge(r.grid, settings[r.name]))
    order = next(rival.order for rival in rivals if isinstance(rival, Minder))
    return Outcome(settings, edge, order, results, tuple(failed), not_run())


def _pairs(files: Sequence[Path]) -> Iterator[tuple[CaseMatrix, Recording]]:
    for file in files:
        seen = _load(file)
        yield seen.matrix, seen.recording

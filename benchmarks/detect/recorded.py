"""Oddnode and its rivals on recordings of others; writes ``benchmarks/RECORDED.md``.

Run: ``python -m benchmarks.detect.recorded [FOLDER ...] [--half development]``. The scorer is that of the
synthetic bench. Rivals run with settings from three places, each a row of its own: as published, as chosen
on the synthetic train split (all metrics, as the names differ), and as chosen on the development half of
the recordings themselves. What rivals learn, they learn from the development half of each set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.detect.matrix import CaseMatrix, Collector
from benchmarks.detect.rivals import all_rivals, not_run, train_all
from benchmarks.detect.rivals_learnt import Minder
from benchmarks.detect.rivals_rules import AnyError, Rival, Setting
from detector.errors import OddnodeError
from detector.evaluation.builtin import findings_of
from detector.evaluation.cases import find_cases
from detector.evaluation.model import Findings, Rules
from detector.evaluation.runner import run_all
from detector.evaluation.scoring import CaseScore, score_case
from detector.evaluation.summary import Summary, made_of, set_of, summarise
from detector.replay import pipeline_for, play
from detector.source.incident_file import Recording
from detector.source.recording import RecordingSource, load_recording
from grouping.catalog import load_catalog

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "replay_data" / "real"
PAGE, NUMBERS, SYNTHETIC = "RECORDED.md", "recorded.json", "detection.json"

ODDNODE = ("Oddnode", "defaults")
RULES = Rules()
DEVELOPMENT, HELD_OUT = "development", "held-out"

PUBLISHED: Mapping[str, Setting] = {
    "mean and standard deviation z, 4 min": ("all", 3),
    "median and MAD z, 4 min": ("all", 5.0),
    "the same with a floor of 5 %": ("all", 5.0),
    "PromQL ratio to the median": ("all", 1.5, 600.0),
    "under half or over 4 times the median, 10 min": ("all", 0.5),
    "own-history robust z, 4 min": ("all", 5.0, "larger", 0.001),
    "median and MAD z, spread learnt per metric": ("all", 5.0),
    "MAD (tolerance, pct)": ("all", 3.0, 0.2, False),
    "DBSCAN (tolerance)": ("all", 3.0, False),
    "1-D DBSCAN per timestamp": ("all", 0.5),
    "Mahalanobis (Minder's baseline)": ("all", 3, 3.0),
}
"""Usual or documented settings; Minder's threshold was never published."""

Name = tuple[str, str]
"""Detector, and where its setting is from."""

Counts = dict[tuple[str, Setting], tuple[int, int, int]]


def half_of(name: str, names: Sequence[str]) -> str:
    """Return the half that a case belongs to: even positions in order of name are development.

    Parameters
    ----------
    name
        Folder name of the case.
    names
        Folder names of all cases of its set.
    """
    return HELD_OUT if sorted(names).index(name) % 2 else DEVELOPMENT


@dataclass(frozen=True, slots=True)
class Case:
    """A recording with its set and half."""

    recording: Recording
    set_name: str
    half: str

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.recording.path.parent


def cases_of(folders: Sequence[Path]) -> tuple[list[Case], list[str]]:
    """Return the recorded cases in folders, and what was left out and why."""
    found = find_cases(list(folders))
    left_out = [f"{item.path}: {item.reason}" for item in found.left_out]
    names: dict[str, list[str]] = {}
    recorded = [r for r in found.cases if made_of(r) == "recorded"]
    left_out += [f"{r.path.parent}: is not recorded" for r in found.cases if made_of(r) != "recorded"]
    for recording in recorded:
        names.setdefault(set_of(recording), []).append(recording.path.parent.name)
    return [Case(r, set_of(r), half_of(r.path.parent.name, names[set_of(r)])) for r in recorded], left_out


def see(folder: Path) -> tuple[Recording, Findings, CaseMatrix]:
    """Replay a recording through Oddnode and keep the aligned samples.

    Raises
    ------
    OddnodeError
        When it can't be read.
    """
    recording = load_recording(folder)
    source = RecordingSource(folder)
    try:
        pipeline, notes = pipeline_for(recording, source, load_catalog())
        collector = Collector(pipeline)
        replayed = play(recording, source, pipeline, notes=notes, watch=collector)
    finally:
        source.close()
    return recording, findings_of(replayed), collector.matrix(recording)


@dataclass(frozen=True, slots=True)
class Result:
    """One case: its score by detector and origin of the setting, and counts of all settings tried."""

    scores: Mapping[Name, CaseScore]
    counts: Counts = field(default_factory=dict)


def _run(task: tuple[Path, tuple[Rival, ...], Mapping[Name, Setting], bool]) -> Result | str:
    folder, rivals, settings, wants_grid = task
    try:
        recording, findings, matrix = see(folder)
    except (OddnodeError, OSError, MemoryError, ValueError) as error:
        return f"{folder}: {error}"
    scores = {ODDNODE: score_case(recording, findings, RULES)}
    counts: Counts = {}
    for rival in rivals:
        prepared = rival.prepare(matrix)

        def scored(setting: Setting, rival: Rival = rival, prepared: object = prepared) -> CaseScore:
            flags = rival.flags(matrix, prepared, setting)
            return score_case(recording, Findings(tuple(flags)), RULES)

        for name, setting in settings.items():
            if name[0] == rival.name:
                scores[name] = scored(setting)
        for setting in wide(rival) if wants_grid else ():
            score = scored(setting)
            found = sum(f.delay_s is not None for f in score.faults)
            counts[rival.name, setting] = (found, len(score.false_alarms), len(score.faults) - found)
    return Result(scores, counts)


def wide(rival: Rival) -> tuple[Setting, ...]:
    """Return the settings that look at all metrics: the hand-picked lists name none that is recorded."""
    return tuple(s for s in rival.grid if isinstance(rival, Minder) or s[0] == "all")


def widened(rival: Rival, setting: Setting) -> Setting:
    """Return a setting of the synthetic bench with all metrics instead of a list."""
    return setting if isinstance(rival, Minder) else ("all", *setting[1:])


def best(rival: Rival, counts: Sequence[Counts]) -> Setting:
    """Return the setting with the highest F1; of equals, the one with fewer false alarms."""
    ranked = []
    for i, setting in enumerate(wide(rival)):
        found, false, missed = (sum(c[rival.name, setting][k] for c in counts) for k in range(3))
        ranked.append((-2 * found / max(2 * found + false + missed, 1), false, i, setting))
    return min(ranked)[3]


@dataclass(frozen=True, slots=True)
class Recorded:
    """All results.

    Parameters
    ----------
    settings
        By detector and origin.
    summaries
        By half, detector and origin, and set.
    cases
        By case: half, set, labelled faults, and which detectors found how many with how many false alarms.
    failed
        What could not be run, in sentences.
    """

    settings: Mapping[Name, Setting]
    summaries: Mapping[tuple[str, Name, str], Summary]
    cases: Mapping[str, Mapping[Name, tuple[int, int, int]]]
    failed: tuple[str, ...]


def bench(folders: Sequence[Path], halves: Sequence[str], *, n_jobs: int, synthetic: Path) -> Recorded:
    """Run everything.

    Parameters
    ----------
    folders
        Where recordings are.
    halves
        Which halves are reported; development is always run, as settings are chosen on it.
    n_jobs
        Processes; results don't depend on it.
    synthetic
        Numbers of the synthetic bench with the settings chosen there; may be missing.
    """
    cases, failed = cases_of(folders)
    settings: dict[Name, Setting] = {}
    trained = {name: _trained(cases, name) for name in sorted({case.set_name for case in cases})}
    for rival in next(iter(trained.values()), ()):
        if rival.name in PUBLISHED:
            settings[rival.name, "published"] = PUBLISHED[rival.name]
        told = _synthetic(synthetic).get(rival.name)
        if told is not None and widened(rival, told) in wide(rival):
            settings[rival.name, "synthetic"] = widened(rival, told)
    results: dict[str, Result] = {}

    def run(chosen: Sequence[Case], given: Mapping[Name, Setting], *, grid: bool) -> dict[str, Result]:
        tasks = [(case.folder, trained[case.set_name], given, grid) for case in chosen]
        done = run_all(_run, tasks, n_jobs=n_jobs, progress=_tell)
        failed.extend(text for text in done if isinstance(text, str))
        return {c.recording.id: r for c, r in zip(chosen, done, strict=True) if isinstance(r, Result)}

    developed = [case for case in cases if case.half == DEVELOPMENT]
    results = run(developed, settings, grid=True)
    counts = [result.counts for result in results.values()]
    for rival in next(iter(trained.values()), ()):
        settings[rival.name, "development"] = best(rival, counts)
    again = [case for case in cases if case.half in halves]
    results = run(again, settings, grid=False)
    return _told(again, settings, results, failed)


def _trained(cases: Sequence[Case], set_name: str) -> tuple[Rival, ...]:
    """Rivals trained on the development half of one set; error codes are recorded nowhere."""
    rivals = tuple(rival for rival in all_rivals() if not isinstance(rival, AnyError))
    folders = [c.folder for c in cases if c.set_name == set_name and c.half == DEVELOPMENT]
    seen = [see(folder) for folder in folders]

    def again() -> Iterator[tuple[CaseMatrix, Recording]]:
        for recording, _, matrix in seen:
            yield matrix, recording

    train_all(rivals, again)
    return rivals


def _synthetic(file: Path) -> dict[str, Setting]:
    """Read the settings that were chosen on the synthetic train split; empty when there are none."""
    try:
        told = json.loads(file.read_text("utf-8")).get("settings", {})
    except (OSError, ValueError):
        return {}
    return {name: tuple(setting) for name, setting in told.items()}


def _told(
    cases: Sequence[Case], settings: Mapping[Name, Setting], results: Mapping[str, Result], failed: list[str]
) -> Recorded:
    summaries: dict[tuple[str, Name, str], Summary] = {}
    names = [ODDNODE, *sorted(settings, key=lambda n: list(settings).index(n))]
    for half in dict.fromkeys(case.half for case in cases):
        for set_name in sorted({case.set_name for case in cases}):
            here = [
                c.recording.id
                for c in cases
                if (c.half, c.set_name) == (half, set_name) and c.recording.id in results
            ]
            for name in names:
                scores = [results[i].scores[name] for i in here]
                if scores:
                    summaries[half, name, set_name] = summarise(set_name, scores, RULES)
    per_case = {
        case_id: {
            name: (
                sum(f.delay_s is not None for f in score.faults),
                len(score.faults),
                len(score.false_alarms),
            )
            for name, score in result.scores.items()
        }
        for case_id, result in sorted(results.items())
    }
    return Recorded(settings, summaries, per_case, tuple(dict.fromkeys(failed)))


HEAD = """\
# Recordings of others

Written by `python -m benchmarks.detect.recorded`; not edited by hand. Recorded telemetry with labels of its
authors ([what it is and what it can't show](../replay_data/real/README.md)); never added to synthetic
figures. Found is faults found of all labelled ones; false is alarm episodes that found none, per
machine-day of healthy time. Time that several cases of a set hold counts once. Labels are partly
invisible from outside and effects outlast them, so nobody reaches all, and some false alarms are none.

Rows say where a setting is from: `published` as documented or usual, `synthetic` as chosen on the synthetic
train split, with all metrics, `development` as chosen on the development half here, for the highest F1 over
all sets. What rivals learn, they learn from the development half of each set, so their figures on it flatter
them. Oddnode runs with its defaults and drafts a catalog from each recording.
"""


def page(told: Recorded) -> str:
    """Return the tables as Markdown."""
    parts = [HEAD]
    sets = sorted({key[2] for key in told.summaries})
    for half in dict.fromkeys(key[0] for key in told.summaries):
        parts.append(f"\n## {half}\n")
        header = ["detector", "setting from", "F1", *(f"{s}: found, false per machine-day" for s in sets)]
        parts.append(f"| {' | '.join(header)} |\n|{' --- |' * len(header)}")
        for name in dict.fromkeys(key[1] for key in told.summaries if key[0] == half):
            mine = {s: told.summaries[half, name, s] for s in sets if (half, name, s) in told.summaries}
            row = [*name, _f1(list(mine.values())), *(_words(mine.get(s)) for s in sets)]
            parts.append(f"| {' | '.join(row)} |")
    parts.append("\n## Settings\n\n| detector | setting from | setting |\n| --- | --- | --- |")
    parts += [f"| {n} | {o} | {', '.join(map(str, s))} |" for (n, o), s in told.settings.items()]
    parts += [f"\n{name}: {why}." for name, why in not_run().items()]
    parts += [f"\nLeft out: {text}." for text in told.failed]
    return "\n".join(parts) + "\n"


def _f1(parts: Sequence[Summary]) -> str:
    found, missed = sum(s.found for s in parts), sum(s.missed for s in parts)
    false = sum(s.false_rate.count for s in parts)
    return f"{2 * found / max(2 * found + false + missed, 1):.2f}"


def _words(summary: Summary | None) -> str:
    if summary is None:
        return ""
    rate = summary.false_rate
    false = f"{rate.count} in {rate.node_days:.3g} ({rate.per_node_day or 0:.3g})"
    n = summary.found + summary.missed
    return f"{summary.found} of {n}, {false}" if n else false


def plain(told: Recorded) -> dict[str, object]:
    """Return the numbers for JSON."""
    return {
        "settings": {f"{n} | {o}": list(s) for (n, o), s in told.settings.items()},
        "sets": {
            f"{half} | {name} | {origin} | {set_name}": {
                "found": s.found,
                "faults": s.found + s.missed,
                "false": s.false_rate.count,
                "machine_days": round(s.false_rate.node_days, 3),
            }
            for (half, (name, origin), set_name), s in told.summaries.items()
        },
        "cases": {
            case: {f"{n} | {o}": list(counts) for (n, o), counts in scores.items()}
            for case, scores in told.cases.items()
        },
        "failed": list(told.failed),
        "not_run": not_run(),
    }


def _tell(done: int, n: int) -> None:
    print(f"{done} of {n}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.detect.recorded", description="Recordings of others.")
    parser.add_argument("folders", type=Path, nargs="*", default=[FOLDER])
    parser.add_argument("--half", choices=(DEVELOPMENT, HELD_OUT, "both"), default="both")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks")
    given = parser.parse_args(argv)
    halves = (DEVELOPMENT, HELD_OUT) if given.half == "both" else (given.half,)
    synthetic = ROOT / "benchmarks" / SYNTHETIC
    told = bench(given.folders, halves, n_jobs=given.jobs, synthetic=synthetic)
    (given.output / PAGE).write_text(page(told), "utf-8")
    (given.output / NUMBERS).write_text(json.dumps(plain(told), indent=1) + "\n", "utf-8")
    print(page(told))
    return 2 if told.failed else 0


if __name__ == "__main__":
    sys.exit(main())

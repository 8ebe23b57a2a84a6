"""Run a detector over cases in parallel; a case that fails is named and the others go on."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar, cast

from detector.errors import OddnodeError
from detector.evaluation.model import (
    Detector,
    Explaining,
    LeftOut,
    Moment,
    Rules,
    Trace,
    blind,
)
from detector.evaluation.scoring import CaseScore, flags_of, score_case
from detector.source.incident_file import Recording

MAX_MOMENTS = 6
"""Pictures of one case."""

MOMENT_STEPS = 10
"""A missed fault is shown as of this many steps after its onset, or after it became visible."""

Progress = Callable[[int, int], None]
A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """All cases after scoring.

    Parameters
    ----------
    scores
        In the order of the cases.
    left_out
        Cases on which the detector failed.
    """

    scores: tuple[CaseScore, ...]
    left_out: tuple[LeftOut, ...]


def evaluate(
    detector: Detector,
    cases: Sequence[Recording],
    rules: Rules | None = None,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> Evaluated:
    """Score a detector on labelled cases.

    Parameters
    ----------
    detector
        Gets each case without its labels.
    cases
        See `find_cases`.
    rules
        How flags are matched; None takes the defaults.
    n_jobs
        Processes; 1 stays in this one.
    progress
        Called with (cases done, all).

    Notes
    -----
    The result does not depend on `n_jobs` nor on which case is done first.
    """
    tasks = [(detector, case, rules or Rules()) for case in cases]
    results = run_all(_score, tasks, n_jobs=n_jobs, progress=progress)
    scores = [result for result in results if isinstance(result, CaseScore)]
    failed = [
        LeftOut(str(case.path.parent), result)
        for case, result in zip(cases, results, strict=True)
        if isinstance(result, str)
    ]
    return Evaluated(tuple(scores), tuple(failed))


def trace_cases(
    detector: Detector,
    scores: Sequence[CaseScore],
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, tuple[Trace, ...]]:
    """Collect the signals behind misses, false alarms and hits, by case id.

    A detector that can't explain, or fails to, yields none.
    """
    if not isinstance(detector, Explaining):
        return {}
    tasks = [(detector, score.recording, moments_of(score)) for score in scores]
    results = run_all(_explain, tasks, n_jobs=n_jobs, progress=progress)
    return {
        score.recording.id: result
        for score, result in zip(scores, results, strict=True)
        if not isinstance(result, str)
    }


def moments_of(score: CaseScore) -> tuple[Moment, ...]:
    """Return what is worth a picture: misses, then false alarms, then hits."""
    step = score.recording.step_s
    missed = [
        Moment(
            f.fault.node,
            min(f.fault.end, (f.fault.visible_at or f.fault.onset) + MOMENT_STEPS * step),
            f.fault.visible_in,
        )
        for f in score.faults
        if f.delay_s is None
    ]
    false = [
        Moment(
            a.episode.node, a.episode.raised_at, a.episode.flags[0].metric, a.episode.flags[0].strongest_part
        )
        for a in score.false_alarms
    ]
    hits = []
    for fault in score.faults:
        if fault.delay_s is not None:
            raised = fault.fault.onset + fault.delay_s
            flags = [f for f in score.findings.flags if f.node == fault.fault.node]
            flag = min(flags, key=lambda f: abs(f.raised_at - raised))
            hits.append(Moment(fault.fault.node, raised, flag.metric, flag.strongest_part))
    return tuple([*missed, *false, *hits][:MAX_MOMENTS])


def _score(task: tuple[Detector, Recording, Rules]) -> CaseScore | str:
    detector, recording, rules = task
    try:
        return score_case(recording, flags_of(detector.flag(blind(recording))), rules)
    except (OddnodeError, OSError, MemoryError) as error:
        return _sentence(error)
    except Exception as error:  # noqa: BLE001  (any detector may be scored; its fault must not end the run)
        return f"{detector.name} failed with {type(error).__name__}: {_sentence(error)}"


def _explain(task: tuple[Explaining, Recording, tuple[Moment, ...]]) -> tuple[Trace, ...] | str:
    detector, recording, moments = task
    try:
        return tuple(detector.explain(blind(recording), moments)) if moments else ()
    except Exception as error:  # noqa: BLE001  (a picture that can't be made is left out)
        return _sentence(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return " ".join(str(error).split())[:500] or type(error).__name__


def run_all(
    work: Callable[[A], R | str],
    tasks: Sequence[A],
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> list[R | str]:
    """Call `work` on every task; results are in the order of the tasks.

    When a process dies (out of memory, say), the tasks without a result run again one by one,
    each in a process of its own; those that die again yield a sentence.
    """
    if n_jobs < 1:
        raise ValueError(f"n_jobs is {n_jobs}, must be at least 1")
    results: list[R | str | None] = [None] * len(tasks)
    n_done = 0

    def finish(i: int, result: R | str) -> None:
        nonlocal n_done
        results[i] = result
        n_done += 1
        if progress is not None:
            progress(n_done, len(tasks))

    if n_jobs == 1 or len(tasks) < 2:
        for i, task in enumerate(tasks):
            finish(i, work(task))
        return cast("list[R | str]", results)
    _in_pool(work, tasks, list(range(len(tasks))), n_jobs, finish)
    for i in [i for i, result in enumerate(results) if result is None]:
        _in_pool(work, tasks, [i], 1, finish)
        if results[i] is None:
            finish(i, "its process died, probably for want of memory")
    return cast("list[R | str]", results)


def _in_pool(
    work: Callable[[A], R | str],
    tasks: Sequence[A],
    chosen: Sequence[int],
    n_jobs: int,
    finish: Callable[[int, R | str], None],
) -> None:
    """Run the chosen tasks in new processes; stops early when one of them dies."""
    # spawn: forking a process that has threads (the progress bar) may dead-lock
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(n_jobs, len(chosen)), mp_context=context) as pool:
        futures: dict[Future[R | str], int] = {pool.submit(work, tasks[i]): i for i in chosen}
        for future in as_completed(futures):
            try:
                finish(futures[future], future.result())
            except BrokenProcessPool:
                continue
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                finish(futures[future], f"can't be sent to another process: {_sentence(error)}")

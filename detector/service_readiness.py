"""Whether verdicts can be relied on, judged from what is known of the service at one instant."""

from __future__ import annotations

from dataclasses import dataclass

from detector.outcome import Outcome
from detector.service_view import Readiness

READY_STEPS = 5
"""Verdicts or samples older than this many steps are not fresh."""

MIN_READY_S = 5.0
"""... but a recording that is played fast is not held to less than this."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A service at one instant.

    Parameters
    ----------
    outcome
        Newest published evaluation, None before the first.
    step_s, speed
        Seconds of data between evaluations; seconds of data per real second.
    since_ok_s
        Real seconds since the last good tick.
    newest_sample
        Time of the newest sample, None when there was none.
    problem
        Why the last tick failed, empty when it did not.
    waiting
        Why no tick is run, empty when they are.
    filling
        How far the window is filled.
    store_problem
        Why nothing is written, empty when it is.
    is_over
        True when the recording that is played has ended.
    is_ending
        True when the service was told to end.
    """

    outcome: Outcome | None
    step_s: float
    speed: float
    since_ok_s: float
    newest_sample: float | None
    problem: str = ""
    waiting: str = ""
    filling: str = ""
    store_problem: str = ""
    is_over: bool = False
    is_ending: bool = False


def judge_readiness(now: Condition) -> Readiness:
    """Tell what is wrong, and what a person should know although nothing is."""
    reasons, notes = [], []
    outcome = now.outcome
    if now.is_over:
        notes.append("the recording has ended: these are its last verdicts")
    if outcome is None:
        reasons.append(f"nothing was evaluated yet: {now.waiting or now.problem or now.filling}")
    else:
        if not now.is_over:
            _judge_age(now, outcome, reasons, notes)
        if outcome.is_partial:
            notes.append("the database said that its answer may be incomplete")
        if outcome.n_series == 0:
            reasons.append("the database has no series of any metric in the catalog")
    if now.store_problem:
        reasons.append(f"incidents are not stored, detection goes on in memory: {now.store_problem}")
    if now.is_ending:
        reasons.append("the service is ending")
    return Readiness(tuple(reasons), tuple(notes))


def _judge_age(now: Condition, outcome: Outcome, reasons: list[str], notes: list[str]) -> None:
    limit_s = READY_STEPS * now.step_s
    if now.since_ok_s > max(limit_s / now.speed, MIN_READY_S):
        why = now.waiting or now.problem or "the tick under way takes long"
        reasons.append(f"no evaluation for {now.since_ok_s:.0f} s: {why}")
    elif now.problem:
        notes.append(now.problem)
    if now.newest_sample is not None and outcome.at - now.newest_sample > limit_s:
        old_s = outcome.at - now.newest_sample
        reasons.append(f"the newest sample is {old_s:.0f} s older than the newest evaluation")

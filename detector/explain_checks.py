"""Each condition under which a node is named, with how far it is met."""

from __future__ import annotations

from dataclasses import dataclass

from detector.core.conclusion import Concluded
from detector.core.guard import GUARD_WITHIN_S, guard_limits
from detector.core.judge import BACKED, BACKED_HARD, POINTS_THE_SAME_WAY, SOONER_FROM, needed_s
from detector.core.recurrence import STRONG, WITHIN_FULL
from detector.explain_rows import DIGITS
from detector.explanation import Check
from detector.pipeline import Pipeline

WITHIN = f"{GUARD_WITHIN_S / 3600:.0f} h"
"""Time within which named nodes are one event."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The ways by which a node is named, and what can hold it back.

    Parameters
    ----------
    at_once
        Each of them names the node.
    by_evidence, by_habit
        Both of each together name it.
    came_back
        Names it by itself, too.
    guards
        What holds it back, if anything does; none of them is passed.
    """

    at_once: tuple[Check, ...]
    by_evidence: tuple[Check, ...]
    by_habit: tuple[Check, ...]
    came_back: Check
    guards: tuple[Check, ...]

    def all(self) -> tuple[Check, ...]:
        """Return them in the order in which they are told."""
        return (*self.at_once, *self.by_evidence, *self.by_habit, self.came_back, *self.guards)

    def nearest(self) -> list[Check]:
        """Return what fails of the way that fails in least, and what holds the node back."""
        ways = ([c for c in way if not c.passed] for way in (self.by_evidence, self.by_habit))
        return [*min(ways, key=len), *self.guards]


def conditions_of(pipeline: Pipeline, told: Concluded, node: int) -> Conditions:
    """Tell the conditions of `detector.core.judge.decide` one by one."""
    scores, clock = told.evaluation.scores, pipeline.memory.node_clock
    hard, instant, own = (float(s[node]) for s in (scores.hard, scores.instant, scores.own))
    lasting, shifted = float(scores.lasting[node]), float(scores.shifted[node])
    needed = round(float(needed_s(scores, pipeline.full_s)[node]), DIGITS)
    dwell, dt = float(clock.dwell_s[node]), told.evaluation.dt
    at_once = (
        Check(
            "direct signals and absences", round(hard, DIGITS), 1.0, hard >= 1.0, "",
            "name the node at once, without peers",
        ),
        Check(
            f"all evidence at this moment, with direct evidence over {BACKED_HARD:g}",
            round(instant if hard >= BACKED_HARD else 0.0, DIGITS), BACKED,
            hard >= BACKED_HARD and instant >= BACKED, "", "name the node at once",
        ),
        Check(
            "measured over a long time", round(own, DIGITS), 1.0, own >= 1.0, "",
            "signals of systems that the catalog does not know, and what stands from the start: at once",
        ),
    )  # fmt: skip
    by_evidence = (
        Check(
            "all evidence, by how long it lasted",
            round(lasting, DIGITS),
            1.0,
            lasting >= 1.0,
            "",
            "and the time below: together they name the node",
        ),
        Check(
            "time with all evidence over 1",
            dwell,
            needed,
            dwell >= needed - 1e-3,
            "s",
            _why_so_long(hard, instant),
        ),
    )
    by_habit = (
        Check(
            "direct signals and changes of habit",
            round(shifted, DIGITS),
            1.0,
            shifted >= 1.0,
            "",
            "a habit's change has lasted when it is seen: with the time below it names the node",
        ),
        Check(
            "more than one evaluation over 1",
            dwell,
            dt,
            dwell > dt,
            "s",
            "the time above must be more than one evaluation's",
        ),
    )
    came_back = _came_back(pipeline, pipeline.interner.nodes[node])
    return Conditions(at_once, by_evidence, by_habit, came_back, _guards(pipeline, told, node))


def _guards(pipeline: Pipeline, told: Concluded, node: int) -> tuple[Check, ...]:
    pool_of, names = told.evaluation.pools.pool_of, pipeline.interner.nodes
    pool = int(pool_of[node])
    if node in told.guarded.get(pool, ()):
        size = int((pool_of == pool).sum())
        allowed = min(guard_limits(size, pipeline.parameters))
        count = len({names[n] for n in told.guarded[pool].tolist()} | pipeline.guard.named_lately(pool))
        text = f"{count} of {size} nodes within {WITHIN} are one event: none of them is named anew"
        return (Check("nodes named by peers", float(count), allowed, False, "nodes", text),)
    if told.held[node]:
        text = f"too many were or would have been named within {WITHIN}: one event"
        return (Check("held back by that event", 1.0, 0.0, False, "", text),)
    return ()


def _why_so_long(hard: float, instant: float) -> str:
    if hard >= POINTS_THE_SAME_WAY:
        return f"halved: direct evidence is over {POINTS_THE_SAME_WAY:g}"
    if instant > SOONER_FROM:
        return f"shorter: evidence at this moment is over {SOONER_FROM:g}"
    return "it leaks while below"


def _came_back(pipeline: Pipeline, node: str) -> Check:
    told = " or ".join(f"{n} in {within * pipeline.full_s / 60:.0f} min" for n, within in WITHIN_FULL)
    return Check(
        f"episodes of peer evidence over {STRONG:g}",
        float(pipeline.recurrence.episodes(node)),
        float(WITHIN_FULL[0][0]),
        node in pipeline.recurrence.returned,
        "",
        f"{told} name the node while the newest one lasts, if it had none before",
    )

"""Each condition under which a node is named, with how far it is met."""

from __future__ import annotations

from detector.core.conclusion import Concluded
from detector.core.guard import GUARD_HOLD_S, guard_limits
from detector.core.judge import BACKED, BACKED_HARD, POINTS_THE_SAME_WAY, SOONER_FROM, needed_s
from detector.core.recurrence import STRONG, WITHIN_FULL
from detector.explain_rows import DIGITS
from detector.explanation import Check
from detector.pipeline import Pipeline


def checks_of(pipeline: Pipeline, told: Concluded, node: int) -> tuple[Check, ...]:
    """Tell the conditions of `detector.core.judge.decide` one by one."""
    scores, clock = told.evaluation.scores, pipeline.memory.node_clock
    hard, instant, own = (float(s[node]) for s in (scores.hard, scores.instant, scores.own))
    lasting, shifted = float(scores.lasting[node]), float(scores.shifted[node])
    needed = round(float(needed_s(scores, pipeline.full_s)[node]), DIGITS)
    dwell, dt = float(clock.dwell_s[node]), told.evaluation.dt
    checks = [
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
        Check(
            "all evidence, by how long it lasted", round(lasting, DIGITS), 1.0, lasting >= 1.0, "",
            "and the time below: together they name the node",
        ),
        Check(
            "time with all evidence over 1", dwell, needed, dwell >= needed - 1e-3, "s",
            _why_so_long(hard, instant),
        ),
        Check(
            "direct signals and changes of habit", round(shifted, DIGITS), 1.0, shifted >= 1.0, "",
            "a habit's change has lasted when it is seen: with the time below it names the node",
        ),
        Check(
            "more than one evaluation over 1", dwell, dt, dwell > dt, "s",
            "the time above must be more than one evaluation's",
        ),
    ]  # fmt: skip
    checks.append(_came_back(pipeline, pipeline.interner.nodes[node]))
    pool_of = told.evaluation.pools.pool_of
    guard = next((nodes for nodes in told.guarded.values() if node in nodes), None)
    if guard is not None:
        size = int((pool_of == pool_of[node]).sum())
        allowed = min(guard_limits(size, pipeline.parameters))
        text = f"{len(guard)} of {size} nodes at once are one event: none of them is named anew"
        checks.append(Check("nodes named by peers at once", float(len(guard)), allowed, False, "nodes", text))
    elif told.held[node]:
        text = f"too many would have been named in the last {GUARD_HOLD_S / 60:.0f} min: one event"
        checks.append(Check("held back by that event", 1.0, 0.0, False, "", text))
    return tuple(checks)


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


def nearest(checks: tuple[Check, ...]) -> list[Check]:
    """Return what fails of the way that fails in least, by all evidence or by habit, and of the guard."""
    ways = ([c for c in way if not c.passed] for way in (checks[3:5], checks[5:7]))
    return [*min(ways, key=len), *(c for c in checks[8:] if not c.passed)]

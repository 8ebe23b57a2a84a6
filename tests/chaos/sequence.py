"""Sequences of troubles, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.proxy import FAILING, KINDS, LOSING, PROMETHEUS_ONLY, SLOW, Trouble
from tests.chaos.scene import LONG, SHORT, Scene

OUTAGE_STEPS = 60
"""Half an hour."""

MAX_LOSING_STEPS = 3
"""Series that are gone for longer, unlike their peers', are evidence: then nobody could know better."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """All that goes wrong in one run.

    Parameters
    ----------
    seed
        Where it comes from.
    scene
        The data.
    source_kind
        ``victoriametrics`` or ``prometheus``: how the database is asked.
    retries, max_series_per_request, backfill_s
        Settings of the service.
    troubles
        By step.
    restarts
        Steps before which the service is killed and started again on its store.
    asleep
        Steps at which no tick runs.
    """

    seed: int
    scene: Scene
    source_kind: str = "victoriametrics"
    retries: int = 0
    max_series_per_request: int = 400_000
    backfill_s: float = 600.0
    troubles: Mapping[int, Trouble] = field(default_factory=dict)
    restarts: frozenset[int] = frozenset()
    asleep: frozenset[int] = frozenset()


def draw(seed: int) -> Sequence:
    """Return the sequence of a seed; one in ten holds an outage of half an hour."""
    rng = random.Random(seed)
    has_outage = rng.random() < 0.1
    scene = LONG if has_outage else SHORT
    source_kind = rng.choice(("victoriametrics", "victoriametrics", "prometheus"))
    troubles: dict[int, Trouble] = {}
    for _ in range(rng.randint(2, 5)):
        _add_burst(rng, troubles, scene, source_kind)
    if has_outage:
        _add_outage(rng, troubles, scene)
    free = [k for k in range(2, scene.last) if not scene.is_calm(k)]
    restarts = frozenset(rng.sample(free, 1)) if rng.random() < 0.3 else frozenset()
    begin = rng.choice(free)
    asleep = range(begin, begin + rng.randint(1, 5)) if rng.random() < 0.2 else range(0)
    return Sequence(
        seed,
        scene,
        source_kind,
        retries=rng.choice((0, 0, 0, 1)),
        max_series_per_request=rng.choice((400_000, 100)),
        backfill_s=rng.choice((600.0, 1800.0)),
        troubles={k: troubles[k] for k in sorted(troubles)},
        restarts=restarts,
        asleep=frozenset(k for k in asleep if not scene.is_calm(k)),
    )


def _add_burst(rng: random.Random, troubles: dict[int, Trouble], scene: Scene, source_kind: str) -> None:
    """Add one kind of trouble for a few steps."""
    kinds = [k for k in KINDS if source_kind == "prometheus" or k not in PROMETHEUS_ONLY]
    kind = rng.choice(kinds)
    n_steps = rng.randint(1, MAX_LOSING_STEPS if kind in LOSING or kind in SLOW else 6)
    share = rng.choice((1.0, 1.0, 0.5))
    first = rng.randint(1, scene.last)
    for k in range(first, first + n_steps):
        if not scene.is_calm(k) and k < scene.last:
            troubles[k] = Trouble(kind, share)


def _add_outage(rng: random.Random, troubles: dict[int, Trouble], scene: Scene) -> None:
    """Let the database be away for half an hour: over the onset, during the fault, or over its end."""
    before, after = scene.calm[0]
    if rng.random() < 0.6:
        first = rng.randint(2, before - OUTAGE_STEPS - 1)
    else:
        first = rng.randint(after + 1, min(scene.end + 10, scene.calm[1][0] - OUTAGE_STEPS - 1))
    kinds = sorted(FAILING - SLOW - {"cut", "cut_inside_a_line"})
    trouble = Trouble(rng.choice(kinds))
    for k in range(first, first + OUTAGE_STEPS):
        troubles[k] = trouble

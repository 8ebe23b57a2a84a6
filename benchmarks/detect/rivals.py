"""All rivals, and their training on the train split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.detect.matrix import CaseMatrix
from benchmarks.detect.rivals_density import density_rivals
from benchmarks.detect.rivals_history import KnownSpread, OwnHistory
from benchmarks.detect.rivals_learnt import Minder, lessons_of
from benchmarks.detect.rivals_minder import MinderMlp, MinderPca
from benchmarks.detect.rivals_pooled import Mahalanobis
from benchmarks.detect.rivals_rules import Rival, rule_rivals
from benchmarks.detect.rivals_torch import WANTING, MinderLstmVae, available
from detector.source.incident_file import Recording

SeenAgain = Callable[[], Iterator[tuple[CaseMatrix, Recording]]]


def all_rivals() -> tuple[Rival, ...]:
    """Return every rival that can run here, untrained."""
    known: tuple[Rival, ...] = (*rule_rivals(), OwnHistory(), KnownSpread(), *density_rivals(), Mahalanobis())
    found: tuple[Rival, ...] = (*known, MinderPca(), MinderMlp())
    return (*found, MinderLstmVae()) if available() else found


def not_run() -> dict[str, str]:
    """Return by name why a rival is left out."""
    return {} if available() else {MinderLstmVae().name: WANTING}


def train_all(rivals: Sequence[Rival], seen: SeenAgain) -> None:
    """Train those that learn.

    Parameters
    ----------
    rivals
        Changed in place.
    seen
        Called for each pass over the train cases.
    """
    for rival in rivals:
        if isinstance(rival, KnownSpread):
            rival.train(seen())
    minders = [rival for rival in rivals if isinstance(rival, Minder)]
    if minders:
        lessons = lessons_of(seen())
        for minder in minders:
            minder.learn(lessons)

"""What a try says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """Which kind of alarm."""

    SUSPECT = "suspect"
    GROUP_EVENT = "group event"


class Kind(StrEnum):
    """How an alarm differs; in the order in which they are told."""

    GAINED = "gained"
    LOST = "lost"
    EARLIER = "earlier"
    LATER = "later"
    LONGER = "longer"
    SHORTER = "shorter"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A node that was named, or a pool whose members moved together.

    Parameters
    ----------
    what
        See `What`.
    name
        Node, or pool.
    part
        Part of the node; of a group event its kind.
    first_sign_at, named_at, cleared_at
        Epoch seconds; `cleared_at` is None when it lasted to the end.
    score
        Peak score of a suspect, 0 for a group event.
    reason
        In one sentence.
    """

    what: What
    name: str
    part: str
    first_sign_at: float
    named_at: float
    cleared_at: float | None
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One alarm under both settings.

    Parameters
    ----------
    kind
        See `Kind`.
    before, after
        The alarm under the settings in effect and under those that are tried; None where there is none.
    text
        The difference in words.
    """

    kind: Kind
    before: Alarm | None
    after: Alarm | None
    text: str


@dataclass(frozen=True, slots=True)
class Side:
    """What the hours say under one set of settings.

    Parameters
    ----------
    n_suspects, n_group_events
        Alarms of each kind.
    undetermined
        Verdicts that could not be given.
    """

    n_suspects: int
    n_group_events: int
    undetermined: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The hours under the settings in effect and under others.

    Parameters
    ----------
    start, end, step_s
        Epoch seconds of what was judged; distance of the evaluations.
    n_evaluations, n_verdicts, n_nodes, n_series
        How much was judged, for each set of settings.
    before, after
        What was found under the settings in effect, and under the others.
    differences
        Differences first, then alarms that stay the same; each kind in order of time.
    n_left_out
        Alarms that are not in `differences` because there are too many.
    notes
        What a person should know to trust it.
    """

    start: float
    end: float
    step_s: float
    n_evaluations: int
    n_verdicts: int
    n_nodes: int
    n_series: int
    before: Side
    after: Side
    differences: tuple[Difference, ...]
    n_left_out: int
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Tell whether any alarm differs."""
        return any(item.kind is not Kind.SAME for item in self.differences)

    @property
    def judged(self) -> bool:
        """Tell whether any node could be judged at any time, under both settings."""
        return self.n_verdicts > max(self.before.undetermined, self.after.undetermined)

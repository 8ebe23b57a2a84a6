"""One signal of a node against its peers and against its own habit: the words in which that is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    """What became of a signal; the first rule that holds is told."""

    COUNTS = "counts"
    MOVED = "moved"
    FADING = "fading"
    ORDINARY = "ordinary"
    NO_VALUE = "no value"
    NO_PEERS = "no peers"
    IN_GRACE = "in grace"
    WARMING_UP = "warming up"
    TWIN_DENIES = "twin denies it"
    BETTER_SIDE = "better side"
    HABIT = "habit"
    SHARED = "shared"
    AT_ONCE = "began together"
    SIMILAR = "usual distance"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class HabitChange:
    """How far one signal has moved from what the member habitually differs from its peers.

    Parameters
    ----------
    shift
        What enough samples of a window exceed, signed, in scales; None when it is not known.
    threshold
        Absolute shift from which it counts.
    since
        Epoch seconds at which the present shift began, None for none.
    longer
        How many times as much it weighs because it has lasted, 1 when it has not.
    offset
        Habitual difference from the peers' median, in the unit of the value; None before it is known.
    n_habit, n_needed
        Samples of it that were learnt from, and with how many it is known.
    n_shared
        Nodes of the row that have moved now.
    score
        What it is worth, capped and weighed; 0 when it does not count.
    fate, why
        What became of it, in one word and in one sentence.
    """

    shift: float | None
    threshold: float
    since: float | None
    longer: float
    offset: float | None
    n_habit: int
    n_needed: int
    n_shared: int
    score: float
    fate: Fate
    why: str


@dataclass(frozen=True, slots=True)
class PeerSignal:
    """One signal of the node against its peers, the strongest part of it in numbers.

    Numbers are None where they are not known.

    Parameters
    ----------
    metric, labels, part, target, measure
        What is compared; `part` names several parts together, `measure` is the unit of the value.
    n_parts, n_alike
        Parts of the node of which the same is told, and signals with the same fate that measure the
        same or are other roles of it and are not shown.
    value, peer_median, scale
        Newest value, median of its row and robust standard deviation, in `measure`.
    n_peers
        Other members with a value.
    z
        Robust z-score against the peers.
    offset, spread, n_habit
        Habitual z-score, its usual residual, and the samples both were learnt from.
    deviation
        What is left of z beyond the habit; counted from `threshold` on.
    threshold
        Absolute deviation from which it counts.
    strength
        Deviation smoothed over the time it has lasted, 0 when it has not.
    dwell_s, needed_s
        For how long it has deviated, and for how long it must to count in full.
    since
        Epoch seconds at which that began.
    weight
        Share of a full vote, 0 to 1.
    similarity, similarity_gate
        Distance to the peers over the window as a multiple of the usual one, and the least that counts.
    n_shared, n_nodes
        Nodes of the row that deviate now, of all its nodes.
    twin, twin_deviation
        Metric that measures the same, and its deviation.
    change
        How far it has moved from its own habit: another layer of evidence.
    own
        Share of it that no stronger signal of the node tells already, None when it does not count.
    score
        What it is worth in the layer in which it is worth more, capped and weighed; 1 is the threshold of
        one signal.
    fate, why
        What became of it, in one word and in one sentence.
    """

    metric: str
    labels: Mapping[str, str]
    part: str
    target: str
    measure: str
    n_parts: int
    n_alike: int
    value: float | None
    peer_median: float | None
    scale: float | None
    n_peers: int
    z: float | None
    offset: float | None
    spread: float | None
    n_habit: int
    deviation: float | None
    threshold: float
    strength: float
    dwell_s: float
    needed_s: float
    since: float | None
    weight: float
    similarity: float | None
    similarity_gate: float
    n_shared: int
    n_nodes: int
    twin: str
    twin_deviation: float | None
    change: HabitChange
    own: float | None
    score: float
    fate: Fate
    why: str

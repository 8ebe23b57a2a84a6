"""Which of several nodes differed first, and which only went along when the job stalled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from detector.core.diagnosis import ORDER_FROM, is_hard, span_words
from detector.outcome import Evidence

CULPRIT, VICTIM = "culprit", "victim"


FOLLOWS_WITHIN_S = 600.0
"""Who began later than this after the first one did not follow it, nor who differs for longer."""


@dataclass(frozen=True, slots=True)
class Role:
    """A node's role among the nodes of its pool that deviate.

    Parameters
    ----------
    word
        ``culprit`` or ``victim``.
    reason
        One sentence.
    is_only_victim
        True when all that speaks against the node is a move that the whole pool made.
    """

    word: str
    reason: str
    is_only_victim: bool = False


def roles(
    evidence: Mapping[str, Sequence[Evidence]], pools: Mapping[str, int], resolution_s: float, at: float
) -> dict[str, Role]:
    """Tell culprits from victims; nodes of which nothing can be told are left out.

    Parameters
    ----------
    evidence
        Evidence against each node that deviates enough.
    pools
        Pool of each of them; only nodes of one pool are compared.
    resolution_s
        Nodes that began less than this apart began together.
    at
        Evaluation time.

    Notes
    -----
    A node that began with the first one is kept as a culprit: several can fail at once. A later one
    is a victim only if nothing speaks for itself against it and all its signals went where the
    pool's median went too, and only for `FOLLOWS_WITHIN_S`: who differs still after that may be named.
    """
    began = {node: start for node, items in evidence.items() if (start := first_sign(items)) is not None}
    found: dict[str, Role] = {}
    for pool in sorted(set(pools.values())):
        nodes = sorted((node for node in began if pools[node] == pool), key=lambda n: (began[n], n))
        if pool < 0 or len(nodes) < 2:
            continue
        start = began[nodes[0]]
        first = [node for node in nodes if began[node] - start < resolution_s]
        followed = [node for node in nodes if resolution_s <= began[node] - start <= FOLLOWS_WITHIN_S]
        victims = [n for n in followed if at - began[n] <= FOLLOWS_WITHIN_S and went_along(evidence[n])]
        for node in first if victims else ():
            others = f"{len(victims)} other node{'s' if len(victims) > 1 else ''}"
            when = span_words(began[victims[0]] - start)
            found[node] = Role(CULPRIT, f"differed {when} before {others} that went where the pool went")
        for node in victims:
            behind = span_words(began[node] - start)
            reason = f"began {behind} after {nodes[0]}, and only went where its whole pool went"
            found[node] = Role(VICTIM, reason, is_only_victim=True)
    return found


def first_sign(evidence: Sequence[Evidence]) -> float | None:
    """Return when the first strong piece of evidence began, None when there is none."""
    strong = (item.since for item in evidence if is_hard(item) or item.score >= ORDER_FROM)
    return min(strong, default=None)


def went_along(evidence: Sequence[Evidence]) -> bool:
    """Tell whether all strong evidence is a move that the pool's median made too."""
    strong = [item for item in evidence if is_hard(item) or item.score >= ORDER_FROM]
    return bool(strong) and all(item.layer.is_soft and item.with_pool for item in strong)

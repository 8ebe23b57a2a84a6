"""Too many nodes at once are one event and not as many suspects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detector.core.judge import NodeScores
from detector.core.parameters import Parameters

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

GUARD_NODES, GUARD_SHARE = 4, 0.02
"""So many nodes of a pool, and this share of it, are never named by comparison alone within `GUARD_WITHIN_S`:
machines fail one by one, and what befalls several is a switch, a rack, a mount or a second job."""

GUARD_WITHIN_S = 7200.0
"""Time within which named nodes are counted: where jobs of one node come and go, nodes are odd all day."""

GUARD_HOLD_S = 600.0
"""Nodes that were not named because too many would be are not named by comparison alone for this long."""


class Guard:
    """Which nodes are not named because too many of their pool would be, or would have been a moment ago."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._named: dict[str, tuple[float, int]] = {}
        """When nodes were named by comparison alone, and in which pool."""

    def named_lately(self, pool: int) -> set[str]:
        """Return the nodes of a pool that were named by comparison alone within `GUARD_WITHIN_S`."""
        return {name for name, (_, where) in self._named.items() if where == pool}

    def step(
        self,
        decided: BoolArray,
        fresh: BoolArray,
        scores: NodeScores,
        pool_of: NDArray[np.int32],
        nodes: Sequence[str],
        parameters: Parameters,
        at: float,
    ) -> tuple[dict[int, IntArray], BoolArray]:
        """Find what is held back at one evaluation.

        Parameters
        ----------
        decided, fresh, scores, pool_of, parameters
            As of `blast_guard`.
        nodes
            Names of nodes.
        at
            Epoch seconds.

        Returns
        -------
        guarded
            As of `blast_guard`.
        held : ndarray of shape (n_nodes,), bool
            Nodes that would be named anew now by comparison alone, and are not.
        """
        self._named = {name: one for name, one in self._named.items() if at - one[0] < GUARD_WITHIN_S}
        lately = np.array([self._named.get(name, (at, -1))[1] for name in nodes], dtype=np.int64)
        guarded = blast_guard(decided, fresh, lately, scores, pool_of, parameters)
        for numbers in guarded.values():
            self._until.update((nodes[n], at + GUARD_HOLD_S) for n in numbers.tolist())
        waits = np.array([self._until.get(name, 0.0) >= at for name in nodes], dtype=bool)
        soft = fresh & (scores.hard < 1.0)
        self._named |= {nodes[n]: (at, int(pool_of[n])) for n in np.flatnonzero(soft & ~waits).tolist()}
        return guarded, np.asarray(waits & soft)


def guard_limits(size: int, parameters: Parameters) -> tuple[float, float]:
    """Return from how many nodes of a pool of `size`, in all and newly named, naming them is one event."""
    in_all = max(parameters.group_event_min_nodes, parameters.group_event_share * size)
    return in_all, max(GUARD_NODES, GUARD_SHARE * size)


def blast_guard(
    decided: BoolArray,
    fresh: BoolArray,
    lately: IntArray,
    scores: NodeScores,
    pool_of: NDArray[np.int32],
    parameters: Parameters,
) -> dict[int, IntArray]:
    """Find pools in which so many nodes would be named by peer evidence that it is one event.

    Parameters
    ----------
    decided, fresh : ndarray of shape (n_nodes,), bool
        Nodes that are named now, and those of them that were not before.
    lately : ndarray of shape (n_nodes,), int64
        Pool in which a node was newly named by comparison alone within the last `GUARD_WITHIN_S`, -1 for
        none; it may have left that pool since.

    Returns
    -------
    dict
        Pool to the nodes that are not named. Nodes with deciding direct signals or absences are.
    """
    guarded: dict[int, IntArray] = {}
    soft = decided & (scores.hard < 1.0) & (pool_of >= 0)
    for pool in np.unique(pool_of[soft]).tolist():
        nodes = np.flatnonzero(soft & (pool_of == pool))
        size = int((pool_of == pool).sum())
        in_all, anew = guard_limits(size, parameters)
        n_anew = int(((soft & fresh & (pool_of == pool)) | (lately == pool)).sum())
        if len(nodes) >= in_all or (fresh[nodes].any() and n_anew >= anew):
            guarded[int(pool)] = nodes
    return guarded

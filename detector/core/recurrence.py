"""Strong evidence that comes and goes: what is odd at each checkpoint, and like its peers in between.

An episode is a stretch of strong evidence, too short to decide. One happens to a sound node now and then;
that the same node has another one soon after, or a third one a little later, does not, unless it always was
so: who writes the checkpoints of a job is odd at each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

STRONG = 1.5
"""Peer evidence, in node thresholds, from which an evaluation belongs to an episode."""

QUIET_SHARE = 0.5
"""Two episodes are this share of the full continuity apart; what is nearer is one."""

TWICE_WITHIN, THRICE_WITHIN = 5.0, 11.0
"""Two episodes, or three, whose begins lie within so many full continuities decide."""

LEAST_SAMPLES = 3
"""... with strong evidence in at least so many evaluations in all."""


QUIET_BEFORE = 2.5
"""... when there was none for this many times the longest distance of two of them before."""


WITHIN_FULL = ((2, TWICE_WITHIN), (3, THRICE_WITHIN))


@dataclass(slots=True)
class Episode:
    """A stretch of strong evidence.

    Parameters
    ----------
    first, last
        Epoch seconds of its first and its newest evaluation.
    n
        Evaluations with strong evidence.
    """

    first: float
    last: float
    n: int = 1


@dataclass(slots=True)
class Recurrence:
    """Newest episodes of every node that had any, oldest first, and since when each node is watched."""

    _episodes: dict[str, list[Episode]] = field(default_factory=dict)
    _watched: dict[str, float] = field(default_factory=dict)
    _n_nodes: int = 0
    returned: frozenset[str] = frozenset()
    """Nodes to which strong evidence has come back as of the newest evaluation."""

    def episodes(self, node: str) -> int:
        """Return how many episodes of a node are remembered."""
        return len(self._episodes.get(node, ()))

    def step(
        self, peers: FloatArray, nodes: Sequence[str], fresh_nodes: BoolArray, *, at: float, full_s: float
    ) -> BoolArray:
        """Take in one evaluation and tell to which nodes strong evidence has come back.

        Parameters
        ----------
        peers : ndarray of shape (n_nodes,)
            Peer evidence of this evaluation, 1 is the node threshold; NaN where it is unknown.
        nodes
            Names; grows only.
        fresh_nodes : ndarray of shape (n_nodes,), bool
            Nodes that are new to their peers, and are watched anew.
        at, full_s
            Evaluation time and full continuity, seconds.

        Returns
        -------
        ndarray of shape (n_nodes,), bool
            True while an episode lasts that decides.
        """
        for node in nodes[self._n_nodes :]:
            self._watched.setdefault(node, at)
        self._n_nodes = len(nodes)
        for k in np.flatnonzero(fresh_nodes).tolist():
            self.forget(nodes[k])
            self._watched[nodes[k]] = at
        returned = np.zeros(len(nodes), dtype=bool)
        for k in np.flatnonzero(peers >= STRONG).tolist():
            mine = self._episodes.setdefault(nodes[k], [])
            if mine and at - mine[-1].last <= QUIET_SHARE * full_s:
                mine[-1].last, mine[-1].n = at, mine[-1].n + 1
            else:
                mine.append(Episode(at, at))
                del mine[: -WITHIN_FULL[-1][0] - 1]  # those that may decide, and the one before
            returned[k] = any(self._decides(nodes[k], n, within * full_s) for n, within in WITHIN_FULL)
        oldest = at - (1.0 + QUIET_BEFORE) * THRICE_WITHIN * full_s
        for node in [node for node, mine in self._episodes.items() if mine[-1].last < oldest]:
            del self._episodes[node]
        self.returned = frozenset(nodes[k] for k in np.flatnonzero(returned).tolist())
        return returned

    def _decides(self, node: str, n: int, within_s: float) -> bool:
        """Tell whether the newest `n` episodes of a node name it."""
        mine = self._episodes[node]
        newest = mine[-n:]
        if len(newest) < n or sum(one.n for one in newest) < LEAST_SAMPLES:
            return False
        longest = max(b.first - a.first for a, b in pairwise(newest))
        before = mine[-n - 1].first if len(mine) > n else self._watched[node]
        is_new = newest[0].first - before >= QUIET_BEFORE * longest
        return is_new and newest[-1].first - newest[0].first <= within_s

    def rename(self, renamed: Mapping[str, str]) -> None:
        """Let episodes go on under the better names of their nodes."""
        for old, new in renamed.items():
            if old in self._episodes and new not in self._episodes:
                self._episodes[new] = self._episodes.pop(old)
            if old in self._watched:
                self._watched[new] = min(self._watched.pop(old), self._watched.get(new, np.inf))

    def forget(self, node: str) -> None:
        """Begin anew for a node that was repaired."""
        self._episodes.pop(node, None)

    def dump(self) -> dict[str, list[list[float]]]:
        """Return plain values that `load` takes: since when each node is watched, and its episodes."""
        return {
            node: [[since, since, 0.0]]
            + [[one.first, one.last, float(one.n)] for one in self._episodes.get(node, ())]
            for node, since in self._watched.items()
        }

    def load(self, plain: object) -> None:
        """Go on from what `dump` gave; anything else is left out."""
        if not isinstance(plain, dict):
            return
        for node, told in plain.items():
            if isinstance(told, list) and told and all(isinstance(x, list) and len(x) == 3 for x in told):
                self._watched[str(node)] = float(told[0][0])
                if told[1:]:
                    self._episodes[str(node)] = [Episode(float(a), float(b), int(n)) for a, b, n in told[1:]]

"""Many members moving together: one event for the group instead of many suspects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from detector.core.figure import first_of
from detector.core.pool_changes import Change, PoolChanges
from detector.core.pool_signs import FOR_ALL, SHOWN_ODD, STALLED, reason_of
from detector.outcome import GroupEvent

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

OPEN_AFTER = 2
"""Evaluations in a row with a common deviation before an event is opened."""

QUIET_S = 300.0
"""Seconds without one after which it ends."""

AFTERWARDS = 2.0
"""An event that no single machine causes is felt for this many full continuities after its end."""

SHOWN_METRICS = 12


@dataclass(slots=True)
class GroupEvents:
    """Open group events by pool: of many members, and of the pool as a whole."""

    changes: PoolChanges = field(default_factory=PoolChanges)
    whole: dict[str, GroupEvent] = field(default_factory=dict)
    open: dict[str, GroupEvent] = field(default_factory=dict)
    streak: dict[str, int] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    last_at: dict[str, float] = field(default_factory=dict)
    befell: dict[str, float] = field(default_factory=dict)
    unexplained: set[str] = field(default_factory=set)
    """Events of whole pools that began while no node of the pool was a suspect."""

    def befallen(self, pools: Sequence[str], at: float, full_s: float) -> BoolArray:
        """Tell which of some pools something befalls, or just did, that no single machine causes.

        Parameters
        ----------
        pools
            Names.
        at, full_s
            Evaluation time, and the full continuity: windows that are compared hold what was before.

        Returns
        -------
        ndarray of shape (n_pools,), bool
        """
        self.befell |= {name: at for name, event in self.whole.items() if event.kind in FOR_ALL}
        after_s = AFTERWARDS * full_s
        return np.array([at - self.befell.get(name, -np.inf) <= after_s for name in pools], dtype=bool)

    def stalled_since(self, pools: Sequence[str]) -> FloatArray:
        """Tell since when the job of each pool waits for something unknown, epoch seconds.

        NaN where none does, or where a node was a suspect already when that was seen.
        """
        waiting = (e for e in self.whole.values() if e.kind == STALLED and e.id in self.unexplained)
        began = {event.pool: event.started_at for event in waiting}
        return np.array([began.get(name, np.nan) for name in pools], dtype=np.float64)

    def step(
        self,
        seen: dict[str, tuple[set[str], Counter[str]]],
        at: float,
        n_nodes: dict[str, int],
        cause_of: Callable[[str], str] = lambda pool: "",
        odd: Collection[str] = (),
    ) -> list[GroupEvent]:
        """Advance by one evaluation.

        Parameters
        ----------
        seen
            Per pool the nodes and signals that deviate together now.
        at
            Evaluation time.
        n_nodes
            Size of each pool.
        cause_of
            Names what the nodes of a pool share; asked when an event opens and when it grows.
        odd
            Nodes that are suspects, by signals of their own.

        Returns
        -------
        list of GroupEvent
            Open events and those that ended now.
        """
        for pool, (nodes, metrics) in seen.items():
            self.streak[pool] = self.streak.get(pool, 0) + 1
            self.began.setdefault(pool, at)
            # after a pipeline was replaced, times are seen again that lie before this
            self.last_at[pool] = max(at, self.last_at.get(pool, at))
            if self.streak[pool] < OPEN_AFTER:
                continue
            known = self.open.get(pool)
            all_nodes = nodes | set(known.nodes if known else ())
            names = [name for name, _ in metrics.most_common(SHOWN_METRICS)]
            has_grown = known is None or len(all_nodes) > len(known.nodes)
            cause = (cause_of(pool) if has_grown else "") or (known.cause if known else "")
            reason = f"{len(all_nodes)} of {n_nodes.get(pool, 0)} nodes moved together: nobody is to blame"
            named = all_nodes & set(odd)
            reason += " for that" if named else ""
            reason += f"; shared: {cause}" if cause else ""
            reason += f"; suspects by signals of their own: {first_of(named, SHOWN_ODD)}" if named else ""
            started = known.started_at if known else self.began[pool]
            self.open[pool] = GroupEvent(
                id=f"{pool}@{int(started)}",
                pool=pool,
                started_at=started,
                ended_at=None,
                nodes=tuple(sorted(all_nodes)),
                metrics=tuple(names),
                reason=reason,
                cause=cause,
            )
        ended: list[GroupEvent] = []
        for pool in list(self.began):
            if pool not in seen:
                self.streak[pool] = 0
                if at - self.last_at[pool] >= QUIET_S:
                    event = self.open.pop(pool, None)
                    if event is not None:
                        ended.append(replace(event, ended_at=at))
                    del self.began[pool]
        return [*self.open.values(), *ended]

    def dump(self) -> dict[str, object]:
        """Return what a restart must not lose as JSON values."""
        return self.changes.dump() | {"unexplained": sorted(self.unexplained)}

    def load(self, plain: object) -> None:
        """Go on from what `dump` gave; what cannot be read is left out."""
        self.changes.load(plain)
        names = plain.get("unexplained") if isinstance(plain, Mapping) else None
        self.unexplained = {str(name) for name in names} if isinstance(names, list) else set()

    def take_up(self, old: GroupEvents) -> None:
        """Go on with the events that are open elsewhere; those of whole pools come with the learnt state."""
        self.open, self.streak = dict(old.open), dict(old.streak)
        self.began, self.last_at = dict(old.began), dict(old.last_at)

    def step_whole(
        self,
        found: Mapping[str, Change],
        at: float,
        nodes: Mapping[str, Sequence[str]],
        odd: Collection[str],
        codes: Mapping[str, str] | None = None,
    ) -> list[GroupEvent]:
        """Advance the events of whole pools by one evaluation.

        Parameters
        ----------
        found
            From `PoolChanges.step`.
        at
            Evaluation time.
        nodes
            Nodes of each pool.
        odd
            Nodes that are suspects.
        codes
            By pool the codes that GPUs reported about when its event began, in words.

        Returns
        -------
        list of GroupEvent
            Open events and those that ended now.
        """
        ended: list[GroupEvent] = []
        for pool, event in list(self.whole.items()):
            change = found.get(pool)
            if change is None or change.began != event.started_at:
                ended.append(replace(self.whole.pop(pool), ended_at=at))
        for pool, change in found.items():
            known = self.whole.get(pool)
            mine = tuple(sorted(nodes.get(pool, ()))) or (known.nodes if known else ())
            name = f"{pool}@{int(change.began)}#whole"
            if known is None and not set(mine) & set(odd):
                self.unexplained.add(name)
            self.whole[pool] = GroupEvent(
                id=name,
                pool=pool,
                started_at=change.began,
                ended_at=None,
                nodes=mine,
                metrics=tuple(move.metric for move in change.moves[:SHOWN_METRICS]),
                reason=reason_of(
                    *(change.kind, change.began, change.moves, [n for n in mine if n in odd]),
                    codes=(codes or {}).get(pool, ""),
                ),
                cause=f"the whole pool: {len(mine)} of {len(mine)} nodes",
                kind=change.kind,
            )
        self.unexplained &= {event.id for event in self.whole.values()}
        return [*self.whole.values(), *ended]

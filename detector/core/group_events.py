"""Many members moving together: one event for the group instead of many suspects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from detector.outcome import GroupEvent

OPEN_AFTER = 2
"""Evaluations in a row with a common deviation before an event is opened."""

QUIET_S = 300.0
"""Seconds without one after which it ends."""

SHOWN_METRICS = 12


@dataclass(slots=True)
class GroupEvents:
    """Open group events by pool."""

    open: dict[str, GroupEvent] = field(default_factory=dict)
    streak: dict[str, int] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    last_at: dict[str, float] = field(default_factory=dict)

    def step(
        self,
        seen: dict[str, tuple[set[str], Counter[str]]],
        at: float,
        n_nodes: dict[str, int],
        cause_of: Callable[[str], str] = lambda pool: "",
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

        Returns
        -------
        list of GroupEvent
            Open events and those that ended now.
        """
        for pool, (nodes, metrics) in seen.items():
            self.streak[pool] = self.streak.get(pool, 0) + 1
            self.began.setdefault(pool, at)
            self.last_at[pool] = at
            if self.streak[pool] < OPEN_AFTER:
                continue
            known = self.open.get(pool)
            all_nodes = nodes | set(known.nodes if known else ())
            names = [name for name, _ in metrics.most_common(SHOWN_METRICS)]
            has_grown = known is None or len(all_nodes) > len(known.nodes)
            cause = (cause_of(pool) if has_grown else "") or (known.cause if known else "")
            reason = f"{len(all_nodes)} of {n_nodes.get(pool, 0)} nodes moved together: nobody is to blame"
            reason += f"; shared: {cause}" if cause else ""
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

"""Pools: who is a peer of whom now.

Nodes are told apart by settings, by a mapping from outside (a label or a query), and
otherwise by their own load: idle spares are no peers of nodes that work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grouping.node_patterns import NodePatterns
from grouping.pool_state import Member, dump_members, load_members

MAIN, IDLE, SPARES = "main", "idle", "spares"
MIN_PEERS = 3

IDLE_TOGETHER = 0.8
"""Share of a pool that is idle at once when its job has stopped."""

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DeclaredPool:
    """A pool by name.

    Parameters
    ----------
    name
        Name of the pool.
    patterns
        Patterns of its nodes, see `grouping.node_patterns.NodePattern`.
    """

    name: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class PoolRules:
    """How nodes are sorted into pools; the first rule that names a node holds.

    Parameters
    ----------
    muted
        Patterns of nodes that are in no pool.
    declared
        Pools by name patterns.
    spares
        Patterns of nodes that are spares.
    label
        Label of the mapping's answer that names the pool; read by the caller.
    query
        PromQL whose answer maps nodes to pools; asked by the caller.
    auto
        True to split idle nodes from busy ones among those that nothing else names.
    unknown_load
        ``majority`` or ``apart``: where nodes are put that never had a load while most have one.
    idle_below, busy_from
        Mean activity in percent: idle below the one, busy from the other on.
    settle_s
        Seconds for which nodes must stay idle beside busy ones after a job's start to be its spares.
    leave_after_s
        Seconds of idleness beside busy peers after which a node leaves its pool in any case.
    swap_within_s
        A node that turns idle within this time of a spare turning busy has changed places with it.
    join_grace_s
        Seconds after joining in which a node is not compared.
    max_gap_s
        A longer time between two steps is a gap: it adds nothing to any of these times.

    Raises
    ------
    ValueError
        When a bound, a time or a pattern is wrong; one sentence that names it.
    """

    muted: tuple[str, ...] = ()
    declared: tuple[DeclaredPool, ...] = ()
    spares: tuple[str, ...] = ()
    label: str | None = None
    query: str | None = None
    auto: bool = True
    unknown_load: str = "majority"
    idle_below: float = 5.0
    busy_from: float = 25.0
    settle_s: float = 150.0
    leave_after_s: float = 1800.0
    swap_within_s: float = 180.0
    join_grace_s: float = 300.0
    max_gap_s: float = 900.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_below < self.busy_from <= 100:
            raise ValueError(
                "pools: idle_below must be at least 0 and lower than busy_from, which is at most 100"
            )
        if self.unknown_load not in ("majority", "apart"):
            raise ValueError(f"pools: unknown_load is {self.unknown_load!r}, not majority or apart")
        for name in ("settle_s", "leave_after_s", "swap_within_s", "join_grace_s", "max_gap_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"pools: {name} must be 0 or more seconds")
        for pool in self.declared:
            if not pool.name:
                raise ValueError("pools: a declared pool has no name")
        for patterns in (self.muted, self.spares, *(pool.patterns for pool in self.declared)):
            NodePatterns(patterns)


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools at one evaluation, in the order of the nodes given.

    Parameters
    ----------
    pool_of : ndarray of shape (n_nodes,), int32
        Number of each node's pool, -1 for none.
    names
        Names by number; numbers are kept as long as the tracker lives.
    joined_at : ndarray of shape (n_nodes,), float64
        Epoch seconds at which the node joined its pool, NaN for none.
    in_grace : ndarray of shape (n_nodes,), bool
        True while a node that joined is not compared yet.
    reasons
        Why a node is not compared with peers, empty when it is.
    """

    pool_of: NDArray[np.int32]
    names: tuple[str, ...]
    joined_at: FloatArray
    in_grace: BoolArray
    reasons: tuple[str, ...]


class PoolTracker:
    """Follows the pools over time; all times come from the evaluation.

    Parameters
    ----------
    rules
        See `PoolRules`.
    """

    def __init__(self, rules: PoolRules | None = None) -> None:
        self._rules = rules or PoolRules()
        self._muted = NodePatterns(self._rules.muted)
        self._declared = [(pool.name, NodePatterns(pool.patterns)) for pool in self._rules.declared]
        self._spares = NodePatterns(self._rules.spares)
        self._fixed: dict[str, str | None] = {}
        self._members: dict[str, Member] = {}
        self._names: list[str] = []
        self._began: float | None = None
        self._last_at: float | None = None
        self._clear_s = 0.0
        self._idle_together_since: float | None = None
        self._stopped_at: float | None = None

    def step(
        self,
        nodes: Sequence[str],
        load: FloatArray,
        at: float,
        *,
        declared: Mapping[str, str] | None = None,
        hold: BoolArray | None = None,
        muted: Collection[str] = (),
    ) -> Pools:
        """Sort the nodes into pools at one evaluation.

        Parameters
        ----------
        nodes
            All nodes known.
        load : ndarray of shape (n_nodes,)
            Mean activity of each node now, percent; NaN when it is not known.
        at
            Evaluation time, epoch seconds.
        declared
            Pool by node from a label or a query; nodes not in it are sorted by their load.
        hold : ndarray of shape (n_nodes,), bool
            True for nodes under suspicion: they do not leave their pool by their own idleness.
        muted
            Further nodes that are in no pool.

        Raises
        ------
        ValueError
            When arrays and nodes differ in length.
        """
        held = np.zeros(len(nodes), dtype=bool) if hold is None else hold
        if load.shape != (len(nodes),) or held.shape != (len(nodes),):
            raise ValueError(f"{len(nodes)} nodes, but loads of shape {load.shape} and hold of {held.shape}")
        dt = self._elapsed(at)
        loads = load.tolist()
        free: list[str] = []
        first: list[str] = []
        for name, value, is_held in zip(nodes, loads, held.tolist(), strict=True):
            member = self._members.get(name)
            if member is None:
                member = self._members[name] = Member(first_at=at)
            is_first = not member.load_known and value == value
            member.observe(value, at, dt, self._rules.idle_below, self._rules.busy_from, is_held)
            target = self._target(name, declared, muted)
            if target is not None:
                self._move(member, target, at, "declared")
                continue
            free.append(name)
            if is_first or member.by != "auto":
                first.append(name)
        self._sort_freely(free, first, at, dt, {n for n, h in zip(nodes, held.tolist(), strict=True) if h})
        return self._answer(nodes, at)

    def dump(self) -> dict[str, object]:
        """Return the state as JSON values."""
        return {
            "members": dump_members(self._members),
            "names": list(self._names),
            "began": self._began,
            "last_at": self._last_at,
            "clear_s": self._clear_s,
            "idle_together_since": self._idle_together_since,
            "stopped_at": self._stopped_at,
        }

    def load(self, state: Mapping[str, object]) -> None:
        """Take up the state of an earlier tracker; what cannot be read is left out."""
        self._members = load_members(state.get("members"))
        names = state.get("names")
        self._names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        self._began = _number(state.get("began"))
        self._last_at = _number(state.get("last_at"))
        self._clear_s = _number(state.get("clear_s")) or 0.0
        self._idle_together_since = _number(state.get("idle_together_since"))
        self._stopped_at = _number(state.get("stopped_at"))

    def _elapsed(self, at: float) -> float:
        if self._began is None:
            self._began = at
        before, self._last_at = self._last_at, at if self._last_at is None else max(at, self._last_at)
        dt = 0.0 if before is None else at - before
        return dt if 0 < dt <= self._rules.max_gap_s else 0.0

    def _target(self, name: str, declared: Mapping[str, str] | None, muted: Collection[str]) -> str | None:
        """Return the pool that is said for a node, "" for none of them, None when nothing is said."""
        if name in muted:
            return ""
        if name not in self._fixed:
            self._fixed[name] = self._target_by_name(name)
        fixed = self._fixed[name]
        if fixed is None and declared is not None:
            return declared.get(name) or None
        return fixed

    def _target_by_name(self, name: str) -> str | None:
        if self._muted.match(name):
            return ""
        for pool, patterns in self._declared:
            if patterns.match(name):
                return pool
        return SPARES if self._spares.match(name) else None

    def _move(self, member: Member, pool: str, at: float, by: str, *, grace: bool = True) -> None:
        if member.pool == pool and member.by != "":
            member.by = by
            return
        is_old = self._began is not None and at - self._began > self._rules.join_grace_s
        # A tracker that has just begun knows nobody's history: nobody is new to it.
        is_new_to_pool = grace and pool != "" and (is_old or member.by != "")
        member.pool, member.by, member.joined_at = pool, by, at
        member.grace_until = at + self._rules.join_grace_s if is_new_to_pool else at

    def _sort_freely(self, free: list[str], first: list[str], at: float, dt: float, held: set[str]) -> None:
        rules, members = self._rules, self._members
        if not rules.auto:
            for name in free:
                self._move(members[name], MAIN, at, "auto")
            return
        is_clear = self._is_clear([members[name] for name in free])
        for name in first:
            self._place_first(members[name], is_clear, at)
        if rules.unknown_load == "apart":
            self._set_apart([members[name] for name in free], at)
        main = sorted(name for name in free if members[name].pool == MAIN)
        self._watch_stop(main, at, held)
        self._clear_s = self._clear_s + dt if self._is_clear([members[name] for name in main]) else 0.0
        self._take_in([members[name] for name in free if members[name].pool == IDLE], at)
        if self._clear_s > 0:
            self._let_go(main, at, held)

    def _place_first(self, member: Member, is_clear: bool, at: float) -> None:
        """Put a node where its first known load says; a node without one stays with the majority."""
        side = IDLE if is_clear and member.is_idle else MAIN
        # A load that comes a moment after the node itself is still the first sight of it.
        seen_before = at - member.first_at > self._rules.join_grace_s and member.by == "auto"
        self._move(member, side, at, "auto", grace=seen_before or member.by != "auto")

    def _set_apart(self, members: list[Member], at: float) -> None:
        known = sum(member.load_known for member in members)
        if known * 2 <= len(members):
            return
        for member in members:
            if not member.load_known and at - member.first_at >= self._rules.settle_s:
                self._move(member, "no load", at, "auto")

    def _is_clear(self, members: list[Member]) -> bool:
        """Tell whether some nodes are idle, others busy, and hardly any in between.

        A fleet whose load is spread out has no two sides, and is not split.
        """
        known = [member for member in members if member.load_now]
        n_idle = sum(member.is_idle for member in known)
        n_busy = sum(member.load >= self._rules.busy_from for member in known)
        return n_idle > 0 and n_busy > 0 and len(known) - n_idle - n_busy <= len(known) // 10

    def _watch_stop(self, main: list[str], at: float, held: set[str]) -> None:
        """Notice that the whole pool stopped working: who is idle after the next start is not needed.

        One evaluation is not enough, as all nodes may be met between two steps of their job.
        """
        known = [self._members[name] for name in main if self._members[name].load_now]
        if not known or sum(member.is_idle for member in known) < IDLE_TOGETHER * len(known):
            self._idle_together_since = None
            return
        if self._idle_together_since is None:
            self._idle_together_since = at
            return
        self._stopped_at = self._idle_together_since
        for name in main:
            member = self._members[name]
            if member.is_idle and member.was_busy:
                member.was_busy = False
                member.blamed = member.blamed or name in held

    def _take_in(self, idle: list[Member], at: float) -> None:
        for member in idle:
            if member.busy_ticks >= 2:
                self._move(member, MAIN, at, "auto")
                member.came_from_idle = True

    def _let_go(self, main: list[str], at: float, held: set[str]) -> None:
        """Move those to the idle nodes that are idle by decision and not by a fault of their own."""
        rules = self._rules
        members = [self._members[name] for name in main]
        busy = [member for member in members if member.load >= rules.busy_from]
        # A node that stayed busy while all others stopped may be the one they wait for.
        has_started = self._stopped_at is None or all(m.busy_since > self._stopped_at for m in busy)
        for name, member in zip(main, members, strict=True):
            if not member.load_now or not member.is_idle or member.idle_s < rules.settle_s:
                continue
            is_spare = not (member.was_busy or member.blamed) and has_started
            if (
                (is_spare and self._clear_s >= rules.settle_s)
                or (not member.blamed and self._has_changed_places(member))
                or (member.idle_s >= rules.leave_after_s and name not in held)
            ):
                self._move(member, IDLE, at, "auto")

    def _has_changed_places(self, leaver: Member) -> bool:
        """Tell whether an idle node took up work as this one left it; each counts for one leaver."""
        near = [
            (abs(other.busy_since - leaver.idle_since), name)
            for name, other in self._members.items()
            if other.pool == MAIN and other.came_from_idle
        ]
        distance, name = min(near, default=(np.inf, ""))
        if distance > self._rules.swap_within_s:
            return False
        self._members[name].came_from_idle = False
        return True

    def _answer(self, nodes: Sequence[str], at: float) -> Pools:
        numbers = {name: k for k, name in enumerate(self._names)}
        members = [self._members[name] for name in nodes]
        for member in members:
            if member.pool and member.pool not in numbers:
                numbers[member.pool] = len(self._names)
                self._names.append(member.pool)
        pool_of = np.array([numbers.get(m.pool, -1) if m.pool else -1 for m in members], dtype=np.int32)
        in_grace = np.array([bool(m.pool) and at < m.grace_until for m in members], dtype=bool)
        sizes = np.bincount(pool_of[pool_of >= 0], minlength=len(self._names))
        reasons = []
        for number, is_new in zip(pool_of.tolist(), in_grace.tolist(), strict=True):
            if number < 0:
                reasons.append("in no pool")
            elif sizes[number] < MIN_PEERS:
                reasons.append(f"fewer than {MIN_PEERS} peers")
            else:
                reasons.append("joined its pool a moment ago" if is_new else "")
        joined = np.array([m.joined_at if m.pool else np.nan for m in members], dtype=np.float64)
        return Pools(pool_of, tuple(self._names), joined, in_grace, tuple(reasons))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

"""A scripted source and pipeline: the shell around them is what is tested."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from detector.core.neighbours import Neighbours
from detector.core.series_view import SeriesQuery, SeriesView
from detector.core.views import GroupSummary
from detector.core.window import Frame
from detector.outcome import Evidence, Incident, Outcome, Status, Transition, Verdict
from detector.source.base import Batch, Interner

T0 = 1_767_225_600.0
STEP = 30.0


class ManualClock:
    """Stands where it is put."""

    def __init__(self, now: float = T0, end: float = float("inf")) -> None:
        self.t = now
        self.speed = 1.0
        self.end = end

    def now(self) -> float:
        return self.t


@dataclass
class ScriptedSource:
    """One sample per series and step; what is in `script` happens instead, once each."""

    n_series: int = 4
    script: deque[Callable[[Batch], Batch]] = field(default_factory=deque)
    asked: list[tuple[int, int]] = field(default_factory=list)
    is_empty: bool = False
    closed: threading.Event = field(default_factory=threading.Event)
    answers: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        self.asked.append((start_ms, end_ms))
        keys = [b'{"node":"n%d"}' % i for i in range(self.n_series)]
        new = [key for key in keys if key not in interner.codes]
        if new:
            interner.add_many(new)
        step_ms = int(STEP * 1000)
        times = np.arange(start_ms // step_ms + 1, end_ms // step_ms + 1, dtype=np.int64) * step_ms
        if self.is_empty:
            times = times[:0]
        codes = np.array([interner.codes[key] for key in keys], dtype=np.int32)
        batch = Batch(
            np.repeat(codes, len(times)),
            np.tile(times, self.n_series),
            np.tile(times / 1000.0, self.n_series),
            dropped={"nan": 1},
            n_bytes=100,
        )
        return self.script.popleft()(batch) if self.script else batch

    def query(self, promql: str, at: float) -> list[tuple[dict[str, str], float]]:
        return self.answers

    def close(self) -> None:
        self.closed.set()


def fails(error: Exception) -> Callable[[Batch], Batch]:
    def act(batch: Batch) -> Batch:
        raise error

    return act


def hangs(until: threading.Event) -> Callable[[Batch], Batch]:
    def act(batch: Batch) -> Batch:
        until.wait(60)
        return batch

    return act


def partial(batch: Batch) -> Batch:
    return replace(batch, is_partial=True)


class FakeInterner:
    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}

    @property
    def codes(self) -> dict[bytes, int]:
        return self._codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._codes.setdefault(key, len(self._codes))


@dataclass(frozen=True)
class Plan:
    """When one node shows a first sign, is named, is clear again; offsets from T0 in seconds."""

    node: str
    pending: float
    suspect: float
    cleared: float


class ScriptedPipeline:
    """Moves incidents by a plan, from the incidents that it was restored with."""

    def __init__(self, plans: Sequence[Plan] = (), work: Callable[[float], None] | None = None) -> None:
        self.plans = plans
        self.work = work
        self.calls: list[tuple[float, bool, int, bool]] = []
        self.open: dict[str, Incident] = {}
        self._interner = FakeInterner()
        self.restored: bytes | None = None
        self.declared: Any = None
        self.evidence: dict[str, tuple[Evidence, ...]] = {}
        self.forgotten: list[tuple[str, float]] = []

    @property
    def interner(self) -> FakeInterner:
        return self._interner

    def names(self) -> list[str]:
        return ["m"]

    def evaluate(self, batch: Batch, at: float, *, judge: bool = True) -> Outcome:
        self.calls.append((at, judge, len(batch.ts_ms), batch.is_partial))
        if self.work is not None:
            self.work(at)
        moved: list[Transition] = []
        shown: list[Incident] = []
        if judge and not batch.is_partial:
            for plan in self.plans:
                shown.extend(self._advance(plan, at, moved))
        else:
            shown.extend(self.open.values())
        verdicts = [
            Verdict(i.node, "p", Status(i.state), 2.0, evidence=self.evidence.get(i.node, ()))
            for i in self.open.values()
        ]
        return Outcome(
            at, tuple(verdicts), tuple(shown), tuple(moved), is_partial=batch.is_partial,
            n_series=len(self._interner.codes), n_cells=1, n_groups=1,
        )  # fmt: skip

    def _advance(self, plan: Plan, at: float, moved: list[Transition]) -> list[Incident]:
        since = at - T0
        item = self.open.get(plan.node)
        if item is None:
            if not plan.pending <= since < plan.cleared:
                return []
            item = Incident(f"{plan.node}@{int(at)}", plan.node, "pending", at)
            moved.append(Transition(item.id, plan.node, at, "clear", "pending", "first sign"))
        if item.state == "pending" and since >= plan.suspect:
            item = replace(item, state="suspect", suspect_at=at)
            moved.append(Transition(item.id, plan.node, at, "pending", "suspect", "lasts"))
        if item.state == "suspect" and since >= plan.cleared:
            item = replace(item, state="cleared", cleared_at=at)
            moved.append(Transition(item.id, plan.node, at, "suspect", "cleared", "like its peers"))
            del self.open[plan.node]
        else:
            self.open[plan.node] = item
        return [item]

    def groups(self) -> list[GroupSummary]:
        return [GroupSummary("p", "node", 4, 4, 1, "")]

    def series_view(self, query: SeriesQuery, frames: Sequence[Frame] | None = None) -> list[SeriesView]:
        return []

    def neighbours(self, node: str) -> tuple[Neighbours, ...]:
        return ()

    def forget(self, node: str, at: float) -> None:
        self.forgotten.append((node, at))

    def snapshot(self) -> bytes:
        return json.dumps({"calls": len(self.calls)}).encode()

    def restore(self, blob: bytes | None, incidents: Sequence[Incident]) -> list[str]:
        self.restored = blob
        if blob == b"poison":
            raise TypeError("unexpected keyword")
        self.open = {i.node: i for i in incidents}
        return []

"""Inject and expect: a deviation of each metric, planted into samples of one's own, must be seen.

A comparison can silently do nothing: a wrong label makes groups of one, a floor is above everything that
happens. So each metric is tried by itself, on one member of one node, in the pipeline that `serve` runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np

from detector.core.parameters import Parameters
from detector.errors import OddnodeError
from detector.outcome import Outcome, Status, Verdict
from detector.pipeline import Pipeline
from detector.replay import grid
from detector.sampled import Collected, SampledSeries
from detector.self_test_plant import plant
from detector.source.base import Batch
from grouping.catalog import IDENTITY_METRICS, Catalog
from grouping.identity import IdentityRules
from grouping.model import MetricSpec, Refusal
from grouping.placement import PlacementRules
from grouping.pools import PoolRules

SETTLE_STEPS = 30
"""Steps before the deviation: habits are known after 20."""

SPARE_STEPS = 6
"""Steps that it lasts beyond the time that peer evidence must last."""

_encode = msgspec.json.Encoder().encode


class Seen(StrEnum):
    """What became of a planted deviation: ``evidence`` is seen, and not enough to name a node by itself."""

    NAMED = "named"
    EVIDENCE = "evidence"
    UNCOUNTED = "not counted"
    UNSEEN = "not seen"
    UNTRIED = "not compared"


@dataclass(frozen=True, slots=True)
class Tried:
    """One metric that was tried.

    Parameters
    ----------
    name
        Name of the entry.
    seen
        See `Seen`.
    node, part
        Where it was planted, empty when nowhere.
    planted
        What was planted, in words.
    note
        What to know of the result.
    """

    name: str
    seen: Seen
    node: str = ""
    part: str = ""
    planted: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the pipelines are made with; None for the defaults."""

    parameters: Parameters
    identity: IdentityRules | None = None
    placement: PlacementRules | None = None
    pools: PoolRules | None = None


def needed_s(parameters: Parameters) -> float:
    """Return how much of the past a self-test takes, seconds."""
    return (SETTLE_STEPS + SPARE_STEPS) * parameters.step_s + parameters.full_s


def self_test(
    catalog: Catalog,
    collected: Collected,
    rules: Rules,
    end_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Tried, ...]:
    """Plant a deviation of each metric that is there, one metric at a time, and look whether it is seen.

    Parameters
    ----------
    catalog
        What is compared.
    collected
        Samples of its metrics and of the identity metrics, at least `needed_s` of them.
    rules
        As the service has them.
    end_s
        Epoch seconds of the last evaluation.
    progress
        Called with the number of metrics done and of all.

    Returns
    -------
    tuple of Tried
        One per entry with series, in the catalog's order.

    Raises
    ------
    OddnodeError
        When nobody can be judged without anything planted.

    Notes
    -----
    One pipeline takes everything, to find the pools; then one for each metric takes that metric alone, so the
    cost is that of two replays of the time. Samples are in memory, about 20 bytes each.
    """
    test = _SelfTest(catalog, collected, rules, end_s)
    tried = []
    present = [spec for spec in catalog.specs if spec.name in test.series]
    for done, spec in enumerate(present, start=1):
        tried.append(test.tried(spec))
        if progress is not None:
            progress(done, len(present))
    return tuple(tried)


class _SelfTest:
    """What is the same for all metrics: the samples, the pools, and who is well."""

    def __init__(self, catalog: Catalog, collected: Collected, rules: Rules, end_s: float) -> None:
        self._catalog, self._rules = catalog, rules
        step_s = rules.parameters.step_s
        self._times = list(grid(end_s - needed_s(rules.parameters), end_s, step_s))
        self._onset = self._times[SETTLE_STEPS]
        self._identity = [one for one in collected.series if one.name in IDENTITY_METRICS]
        self.series: dict[str, list[SampledSeries]] = {}
        for one in collected.series:
            spec = catalog.by_name.get(one.name)
            if spec is not None:
                self.series.setdefault(spec.name, []).append(one)
        plain, outcomes = self._run(collected.series, None)
        last = outcomes[-1].verdicts
        self._well = {verdict.node for verdict in last if verdict.status is Status.CLEAR}
        if not self._well:
            reasons = Counter(verdict.reason or verdict.status.value for verdict in last).most_common(1)
            told = f": {reasons[0][0]}" if reasons else ", not one series is compared"
            raise OddnodeError(f"no node can be judged even with nothing planted{told}")
        self._place = plain.placer.place
        self._pool = {verdict.node: verdict.pool for verdict in last}

    def tried(self, spec: MetricSpec) -> Tried:
        """Try one metric."""
        series = self.series[spec.name]
        where = [self._place(one.labels) for one in series]
        members = [(w.node, w.part) for w in where if not isinstance(w, Refusal)]
        target = self._target(members)
        if target is None:
            reasons = Counter(w.reason for w in where if isinstance(w, Refusal)).most_common(1)
            return Tried(
                spec.name, Seen.UNTRIED, note=reasons[0][0] if reasons else "on no node that is well"
            )
        node, part = target
        chosen = [not isinstance(w, Refusal) and (w.node, w.part) == target for w in where]
        planted = plant(spec, series, chosen, self._onset)
        if planted is None:
            return Tried(spec.name, Seen.UNTRIED, node, part, note="fewer than two samples")
        _, outcomes = self._run([*self._identity, *planted.series], self._pool)
        mine = [
            verdict
            for outcome in outcomes
            if outcome.at >= self._onset
            for verdict in outcome.verdicts
            if verdict.node == node
        ]
        seen = _seen(spec, mine)
        n_nodes = len({name for name, _ in members if self._pool.get(name) == self._pool[node]})
        note = f"on {n_nodes} node{'s' * (n_nodes != 1)} of pool {self._pool[node]}"
        return Tried(spec.name, seen, node, part, planted.words, note if seen is Seen.UNSEEN else "")

    def _target(self, members: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
        """Choose a member to deviate: of a node that is well, in the pool that has most of them."""
        well = sorted({member for member in members if member[0] in self._well})
        if not well:
            return None
        ((pool, _),) = Counter(self._pool[node] for node, _ in well).most_common(1)
        mine = [member for member in well if self._pool[member[0]] == pool]
        node = mine[len(mine) // 2][0]
        return min(member for member in mine if member[0] == node)

    def _run(
        self, series: Sequence[SampledSeries], pools: Mapping[str, str] | None
    ) -> tuple[Pipeline, list[Outcome]]:
        rules = self._rules
        pipeline = Pipeline(
            self._catalog,
            rules.parameters,
            identity=rules.identity,
            placement=rules.placement,
            pools=rules.pools,
        )
        pipeline.declared = pools
        samples = _Samples(series, pipeline)
        before = self._times[0] - rules.parameters.step_s
        outcomes = []
        for at in self._times:
            outcomes.append(pipeline.evaluate(samples.between(before, at), at))
            before = at
        return pipeline, outcomes


def _seen(spec: MetricSpec, verdicts: Sequence[Verdict]) -> Seen:
    if any(verdict.status is Status.SUSPECT for verdict in verdicts):
        return Seen.NAMED
    # nothing but this metric is there, so whatever counts against the node is the planted deviation
    if any(verdict.score > 0 for verdict in verdicts):
        return Seen.EVIDENCE
    return Seen.UNCOUNTED if spec.weight == 0 else Seen.UNSEEN


class _Samples:
    """Whole series as batches by time."""

    def __init__(self, series: Sequence[SampledSeries], pipeline: Pipeline) -> None:
        keys = [_encode(dict(one.labels)) for one in series]
        pipeline.interner.add_many(keys)
        codes = [pipeline.interner.codes[key] for key in keys]
        kept = [(code, one) for code, one in zip(codes, series, strict=True) if code >= 0]
        numbers = np.repeat(
            np.array([code for code, _ in kept], dtype=np.int32), [len(one.times) for _, one in kept]
        )
        ts_ms = np.rint(1000 * np.concatenate([np.zeros(0), *(one.times for _, one in kept)]))
        values = np.concatenate([np.zeros(0), *(one.values for _, one in kept)])
        order = np.argsort(ts_ms, kind="stable")
        self._series, self._values = numbers[order], values[order]
        self._ts_ms = ts_ms[order].astype(np.int64)

    def between(self, start_s: float, end_s: float) -> Batch:
        """Return the samples with ``start_s < time <= end_s``, by series and time."""
        low, high = np.searchsorted(self._ts_ms, [round(1000 * start_s), round(1000 * end_s)], side="right")
        order = np.argsort(self._series[low:high], kind="stable")
        return Batch(
            self._series[low:high][order], self._ts_ms[low:high][order], self._values[low:high][order]
        )

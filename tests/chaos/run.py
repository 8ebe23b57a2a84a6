"""Runs the real service through a sequence, tick by tick, and says what it did that it must not do."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from pathlib import Path

from detector.errors import SourceError
from detector.outcome import Incident
from detector.pipeline import Pipeline
from detector.service import Service
from detector.settings import ScheduleSettings
from detector.source.base import Batch, Interner
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.source.queried import QueriedSource
from detector.store import Store
from detector.telemetry import Telemetry
from grouping.catalog import Catalog
from tests.chaos import sequence as chaos
from tests.chaos.proxy import FAILING, SLOW, Proxy
from tests.chaos.scene import FAULTY, PARAMETERS, STEP
from tests.service_fakes import ManualClock

RECOVERY_TICKS = 2
DELAY_S = 30.0
HASTY_S = 0.15
"""Time-out while the proxy keeps silent; at all other times a loaded machine gets all the time it needs."""

PATIENT_S = 60.0

NEVER_S = 1e9
"""The learnt state is saved at the first tick and with a new suspect only, however fast the machine is."""


class TwoTempers:
    """Two real sources; which one asks hangs on whether the proxy is about to keep silent.

    Parameters
    ----------
    proxy
        What is asked.
    sequence
        Gives the kind of source and its options.
    fetched
        Gets the end of each range whose samples came, epoch seconds.
    """

    def __init__(self, proxy: Proxy, sequence: chaos.Sequence, fetched: list[float]) -> None:
        self._proxy = proxy
        self._fetched = fetched
        self._hasty = self._open(sequence, HASTY_S)
        self._patient = self._open(sequence, PATIENT_S)

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        trouble = self._proxy.trouble
        source = self._hasty if trouble is not None and trouble.kind in SLOW else self._patient
        try:
            batch = source.fetch(names, start_ms, end_ms, interner)
        except SourceError:
            _settle(source)
            raise
        self._fetched.append(end_ms / 1000)
        return batch

    def close(self) -> None:
        self._hasty.close()
        self._patient.close()

    def _open(self, sequence: chaos.Sequence, timeout_s: float) -> QueriedSource:
        options = SourceOptions(
            self._proxy.url,
            kind=sequence.source_kind,
            connect_timeout_s=PATIENT_S,
            read_timeout_s=timeout_s,
            deadline_s=timeout_s * 2,
            retries=sequence.retries,
            max_series_per_request=sequence.max_series_per_request,
        )
        source = open_source(options)
        assert isinstance(source, QueriedSource)
        return source


def _settle(source: QueriedSource) -> None:
    """Wait for requests beside the one that failed: under load they would meet the next step's trouble."""
    n_threads = source._executor._max_workers
    barrier = threading.Barrier(n_threads)
    wait([source._executor.submit(barrier.wait, PATIENT_S) for _ in range(n_threads)])


@dataclass(frozen=True, slots=True)
class _State:
    """What a failed tick must leave as it is, and what it must count."""

    evaluated: float | None
    open: dict[str, Incident]
    n_transitions: int
    n_failed: float
    n_defects: float
    n_good: float
    n_partial: float


@dataclass
class Run:
    """One service, one sequence.

    Parameters
    ----------
    sequence
        What goes wrong.
    upstream
        Address of the database that holds the scene.
    folder
        Where the store is made.
    catalog
        What is compared.
    make_pipeline
        Makes the pipeline; tests of the checks give one with a defect.
    """

    sequence: chaos.Sequence
    upstream: str
    folder: Path
    catalog: Catalog
    make_pipeline: Callable[[Catalog], Pipeline] = lambda catalog: Pipeline(catalog, PARAMETERS)
    wrong: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    n_ticks: int = 0
    n_failed: int = 0

    def go(self) -> list[str]:
        """Run all ticks and return what was wrong, in sentences; nothing when all was right."""
        scene = self.sequence.scene
        self._clock = ManualClock()
        self._well_since = 0
        self._fetched: list[float] = []
        with Proxy(self.upstream, self.sequence.seed) as self._proxy:
            self._start()
            try:
                for step in range(scene.last + 1):
                    if step in self.sequence.restarts:
                        self._kill()
                        self._start()
                    self._step(step)
            finally:
                self._kill()
        self._check_life()
        return self.wrong

    def _start(self) -> None:
        self._store = Store(self.folder / "oddnode.db")
        self._telemetry = Telemetry()
        self._pipeline = self.make_pipeline(self.catalog)
        schedule = ScheduleSettings(
            step_s=STEP, evaluation_delay_s=DELAY_S, backfill_s=self.sequence.backfill_s,
            tick_timeout_s=3 * PATIENT_S,
        )  # fmt: skip
        self._service = Service(
            schedule,
            lambda: TwoTempers(self._proxy, self.sequence, self._fetched),
            self._pipeline,
            self._store,
            self._telemetry,
            self._clock,
            snapshot_s=NEVER_S,
        )
        self._before = self._state()

    def _kill(self) -> None:
        """End without saving what was learnt; what was stored is all that the next one knows."""
        self._service._fetcher.close()
        self._store.close()

    def _step(self, step: int) -> None:
        trouble = self.sequence.troubles.get(step)
        self._proxy.make(trouble)
        self._clock.t = self.sequence.scene.at(step) + DELAY_S
        if trouble is not None or step in self.sequence.asleep:
            self._well_since = step + 1
        if step in self.sequence.asleep:
            return
        before, n_fetched = self._before, len(self._fetched)
        self._service.tick()
        self.n_ticks += 1
        self._before = self._state()
        self._check(step, before, self._before, n_fetched)

    def _state(self) -> _State:
        latest = self._service.latest()
        counts: dict[str, float] = defaultdict(float)
        for metric in self._telemetry.registry.collect():
            if metric.type == "counter":
                for sample in metric.samples:
                    counts[sample.name + sample.labels.get("kind", "")] += sample.value
                    counts[sample.name] += sample.value * bool(sample.labels)
        return _State(
            None if latest is None else latest.outcome.at,
            dict(self._pipeline.open),
            len(self._store.transitions(limit=5000)),
            counts["oddnode_ticks_failed_total"],
            counts["oddnode_ticks_failed_totalinternal"],
            counts["oddnode_ticks_total"],
            counts["oddnode_ticks_partial_total"],
        )

    def _say(self, step: int, what: str) -> None:
        kinds = self._proxy.met() or ["all well"]
        self.wrong.append(f"seed {self.sequence.seed}, step {step} ({', '.join(sorted(set(kinds)))}): {what}")

    def _check(self, step: int, before: _State, after: _State, n_fetched: int) -> None:
        met = self._proxy.met()
        self.met.update(met)
        failed = after.n_failed - before.n_failed
        good = after.n_good - before.n_good
        self.n_failed += int(failed)
        if failed + good != 1:
            self._say(step, f"{failed:g} failed and {good:g} good ticks were counted for one tick")
        if any(kind in FAILING for kind in met) and not self.sequence.retries and not failed:
            self._say(step, "the tick took what it got for an answer")
        if set(met) <= {"late", "partial", "stale", "missing"} and failed:
            self._say(step, f"the tick failed: {self._service.readiness().notes}")
        if after.n_defects:
            self._say(step, "a defect of the program itself ended a tick")
        has_moved = (before.evaluated, before.open, before.n_transitions) != (
            after.evaluated, after.open, after.n_transitions,
        )  # fmt: skip
        # a window is filled by several fetches: what came before the one that failed was evaluated
        if failed and has_moved and len(self._fetched) == n_fetched:
            self._say(step, "a tick that failed moved something")
        if (after.evaluated or 0.0) > max(self._fetched, default=0.0):
            self._say(step, "a time was evaluated whose samples have not come")
        if "partial" in met and good and after.n_partial == before.n_partial:
            self._say(step, "a partial answer was not counted as one")
        if step - self._well_since >= RECOVERY_TICKS - 1:
            self._check_recovered(step, after)
        self._check_incidents(step)

    def _check_recovered(self, step: int, after: _State) -> None:
        if after.evaluated != self.sequence.scene.at(step):
            self._say(step, f"all is well since step {self._well_since}, and nothing is evaluated")
        if reasons := self._service.readiness().reasons:
            self._say(step, f"all is well since step {self._well_since}, and it is not ready: {reasons}")

    def _check_incidents(self, step: int) -> None:
        scene = self.sequence.scene
        raised = [i for i in self._store.incidents(limit=5000) if i.suspect_at is not None]
        for incident in raised:
            if incident.node != FAULTY:
                self._say(step, f"{incident.node} is a suspect and is sound")
        own = [i for i in raised if i.node == FAULTY]
        if len(own) > 1:
            self._say(step, f"one fault was named {len(own)} times")
        for incident in own:
            cleared = incident.cleared_at
            if cleared is not None and cleared < scene.at(scene.end) + PARAMETERS.clear_after_s - STEP:
                self._say(step, f"cleared at {cleared:.0f} without enough sound data")
            latest = self._service.latest()
            shown = set() if latest is None else {i.id for i in latest.suspects}
            if latest is not None and incident.state == "suspect" and incident.id not in shown:
                self._say(step, "an open incident is not shown")
        if step >= scene.named_by and not own:
            self._say(step, "the fault is not named")

    def _check_life(self) -> None:
        """The store tells one whole life: clear, pending, suspect, cleared, each once."""
        store = Store(self.folder / "oddnode.db")
        steps = sorted(store.transitions(limit=5000), key=lambda t: t.at)
        incidents = [i for i in store.incidents(limit=5000) if i.node == FAULTY and i.suspect_at is not None]
        store.close()
        for incident in incidents:
            life = [(t.before, t.after) for t in steps if t.incident_id == incident.id]
            if life != [("clear", "pending"), ("pending", "suspect"), ("suspect", "cleared")]:
                self.wrong.append(f"seed {self.sequence.seed}: the life of the incident is {life}")

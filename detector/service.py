"""The service loop: every step fetch, evaluate, store, publish; one tick at a time.

A fetch that fails changes no incident: the pipeline is not called, and the next tick fetches from
where the last good one ended; a window that is filled in several fetches keeps those before it. A verdict
is stored before it is published.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from detector.control.ledger import Keep
from detector.errors import SourceError
from detector.outcome import Incident, Outcome
from detector.service_board import Board
from detector.service_clock import Clock
from detector.service_contracts import PipelineLike, ServiceHooks, Successor
from detector.service_fetch import Fetcher, Stopped
from detector.service_keeping import Keeper
from detector.service_plan import Begin, Owed, newest, owed, part
from detector.service_questions import Questions
from detector.service_readiness import READY_STEPS, Condition, judge_readiness
from detector.service_repair import repair
from detector.service_report import Times, kind_of, log_tick, log_transition
from detector.service_restore import repeat_repairs, restore
from detector.service_view import (
    ONLY_RECORDED,
    BusyError,
    Extent,
    Latest,
    NotKeptError,
    Readiness,
    ServiceView,
)
from detector.settings import ScheduleSettings
from detector.source.base import Batch, Source
from detector.store_contract import Keeping, Reading
from detector.telemetry import Telemetry

log = logging.getLogger("oddnode.detector.service")

CHUNK_SAMPLES = 1_500_000
"""Samples that are fetched at once while a window is filled: bounds memory."""

REPAIR_WAIT_S = 5.0


class Service(Questions):
    """Runs ticks and answers for them.

    Parameters
    ----------
    schedule
        Step, delay, back-fill, time-outs.
    open_source
        Makes a source; called again when a fetch hung.
    pipeline
        Samples to verdicts.
    store
        Keeps incidents.
    telemetry
        Own metrics.
    clock
        Time of the data.
    begin
        Where a recording that is played begins, None for a live source.
    snapshot_s
        How often the learnt state is saved.
    hooks
        Further work of a tick.
    """

    def __init__(
        self,
        schedule: ScheduleSettings,
        open_source: Callable[[], Source],
        pipeline: PipelineLike,
        store: Keeping,
        telemetry: Telemetry,
        clock: Clock,
        *,
        begin: Begin | None = None,
        snapshot_s: float = 600.0,
        hooks: ServiceHooks | None = None,
    ) -> None:
        self._schedule = schedule
        self._pipeline = pipeline
        self._store = store
        self._telemetry = telemetry
        self._clock = clock
        self._begin = begin
        self._hooks = hooks or ServiceHooks()
        self._pipeline_lock = threading.Lock()
        self._fetcher = Fetcher(open_source, pipeline.interner, schedule.tick_timeout_s, self._pipeline_lock)
        self._tick_lock = threading.Lock()
        self._moving = threading.Lock()  # from an evaluation until it is stored and published
        self._stopping = threading.Event()
        self._keeper = Keeper(store, telemetry, snapshot_s)
        self._board = Board(telemetry, self._hooks.operators)
        self._last: int | None = None
        self._fetched_ms: int | None = None
        self._target_seen: int | None = None
        self._judge_after: int | None = None
        self._newest_sample: float | None = None
        self._problem = ""
        self._waiting = ""
        self._filling = "the window is about to be filled"
        self._ok_at: float | None = None
        self._tick_began: float | None = None
        self._per_step = 0
        telemetry.watch_age(lambda: float("nan") if (age := self.data_age_s()) is None else age)
        self._restore()

    @property
    def store(self) -> Reading:
        """Stored incidents."""
        return self._store

    def latest(self) -> Latest | None:
        """Return the newest published evaluation."""
        return self._board.latest

    def data_age_s(self) -> float | None:
        """Return seconds since the newest published evaluation time."""
        latest = self._board.latest
        return None if latest is None else max(0.0, self._clock.now() - latest.outcome.at)

    def metrics_text(self) -> bytes:
        """Return own metrics as text."""
        return self._telemetry.text()

    def tick_runs_for_s(self) -> float:
        """Return for how long the tick under way has run, 0 when there is none."""
        began = self._tick_began
        return 0.0 if began is None else time.monotonic() - began

    def recording(self) -> Extent | None:
        """Tell what of the recording that is played can be shown; None for a live service."""
        return None if self._hooks.recorded is None else self._hooks.recorded.extent()

    def as_of(self, at: float) -> ServiceView:
        """Return the service as it was at `at`, while a recording is played."""
        if self._hooks.recorded is None:
            raise NotKeptError(ONLY_RECORDED)
        return self._hooks.recorded.as_of(self, self.series, at)

    def is_ending(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopping.is_set()

    def repaired(self, node: str, at: float, reason: str, keep: Keep) -> Incident | None:
        """Clear a node's incident and forget what was learnt against it; see `ledger.Detection`."""
        if not self._moving.acquire(timeout=REPAIR_WAIT_S):
            raise BusyError("an evaluation is under way: ask again in a moment")
        try:
            with self.between_evaluations():
                evaluated = max((k for k in (self._last, self._judge_after) if k is not None), default=0)
                incident = self._pipeline.open.get(node)
                done = repair(incident, node, at, reason, evaluated * self._schedule.step_s)
                keep(done.repair, done.incidents, done.transitions)
                self._pipeline.open.pop(node, None)
                self._pipeline.forget(node, at)
            self._board.repaired(done)
            for t in done.transitions:
                self._telemetry.moved(t)
                log_transition(t)
        finally:
            self._moving.release()
        return next(iter(done.incidents), None)

    def readiness(self) -> Readiness:
        """Tell whether verdicts are fresh and stored."""
        return judge_readiness(
            Condition(
                outcome=None if (latest := self._board.latest) is None else latest.outcome,
                step_s=self._schedule.step_s,
                speed=self._clock.speed,
                since_ok_s=time.monotonic() - (self._ok_at or 0.0),
                newest_sample=self._newest_sample,
                problem=self._problem,
                waiting=self._waiting,
                filling=self._filling,
                store_problem=self._store.problem,
                is_over=self._clock.now() >= self._clock.end,
                is_ending=self._stopping.is_set(),
            )
        )

    def stop(self) -> None:
        """End the tick under way at its next evaluation time; a fetch under way is given up. Never waits."""
        self._stopping.set()
        self._fetcher.stop()

    def finish(self, timeout_s: float) -> bool:
        """Wait for the tick under way, save the learnt state, free the source.

        Returns
        -------
        bool
            False when the tick did not end in time.
        """
        self.stop()
        if not self._tick_lock.acquire(timeout=timeout_s):
            return False
        try:
            if (latest := self._board.latest) is not None and self._keeper.is_worth_the_end:
                with self._moving:
                    self._keeper.save(latest.outcome, self._pipeline.snapshot())
            self._fetcher.close()
        finally:
            self._tick_lock.release()
        return True

    def tick(self) -> None:
        """Evaluate all that is due. Never raises; a failure is counted, logged and shown by `readiness`."""
        if self._stopping.is_set() or not self._tick_lock.acquire(blocking=False):
            return
        self._tick_began = time.monotonic()
        try:
            if self._hooks.before_tick is not None:
                self._hooks.before_tick()
            self._run()
        except Stopped:
            log.info("tick aborted=true reason=ending")
        except SourceError as error:
            self._fail(kind_of(error), str(error))
        except Exception as error:
            # the loop must outlive whatever one tick stumbles over
            log.exception("tick failed=true kind=internal")
            self._fail("internal", f"{type(error).__name__}: {error}", is_logged=True)
        finally:
            self._tick_began = None
            self._tick_lock.release()

    def go_on_with(self, successor: Successor) -> None:
        """Judge by another pipeline from the next tick on; only from `ServiceHooks.before_tick`.

        It begins like a service that was started again: the window is filled, and what was judged already is
        learnt from and not judged again. What raises has changed nothing.
        """
        evaluated = max((k for k in (self._last, self._judge_after) if k is not None), default=None)
        new, step_s = successor.pipeline, self._schedule.step_s
        with self._moving:
            with self._pipeline_lock:
                notes = successor.take_up()
                since = math.inf if evaluated is None else evaluated * step_s - self._schedule.backfill_s
                repeat_repairs(new, self._store, since)
                self._pipeline = new
                self._hooks = replace(
                    self._hooks,
                    before_evaluation=successor.before_evaluation,
                    explain=successor.explain,
                    coverage=successor.coverage,
                )
            self._fetcher.number_by(new.interner)
            self._board.expect(new.open.values())
        self._judge_after, self._last, self._fetched_ms, self._per_step = evaluated, None, None, 0
        for note in notes:
            log.warning("restore note=%r", note)

    def _restore(self) -> None:
        incidents, last = restore(self._pipeline, self._store, self._schedule.backfill_s)
        self._board.expect(incidents)
        if last is not None:
            self._judge_after = round(last / self._schedule.step_s)

    def _run(self) -> None:
        begun = time.perf_counter()
        schedule = self._schedule
        target = newest(self._clock.now(), schedule.evaluation_delay_s, schedule.step_s)
        if not self._is_due(target):
            return
        due = owed(
            target, self._last, self._fetched_ms,
            step_s=schedule.step_s, backfill_s=schedule.backfill_s, begin=self._begin,
        )  # fmt: skip
        if due.last < due.first:
            return
        if due.n_left_out:
            log.warning("tick left_out=%d reason=gap_longer_than_backfill", due.n_left_out)
        if self._judge_after is None:
            # a new store: what lies before now is learnt and not judged
            self._judge_after = due.first - 1 if self._begin is not None else target - 1
        self._catch_up(due, begun)

    def _is_due(self, target: int) -> bool:
        """Tell whether there is a new evaluation time; notice times without a tick, clocks set back."""
        step_s = self._schedule.step_s
        known = max((k for k in (self._last, self._judge_after) if k is not None), default=target)
        behind_s = (known - target) * step_s
        if behind_s > READY_STEPS * step_s:
            self._waiting = (
                f"the clock is {behind_s:.0f} s behind the newest evaluation: "
                "nothing is evaluated until it has caught up"
            )
            log.error("tick waiting=true behind_s=%.0f reason=clock_went_back", behind_s)
            return False
        self._waiting = ""
        if self._target_seen is not None and target - self._target_seen > 1:
            n_missed = target - self._target_seen - 1
            self._telemetry.missed(n_missed)
            log.warning("tick missed=%d", n_missed)
        self._target_seen = target if self._target_seen is None else max(target, self._target_seen)
        return self._last is None or target > self._last

    def _catch_up(self, due: Owed, begun: float) -> None:
        step_s = self._schedule.step_s
        names = self._pipeline.names()
        start_ms = due.start_ms
        times = Times()
        outcome: Outcome | None = None
        for first, last in due.chunks(self._chunk_steps):
            self._filling = f"filling the window, {due.last - first + 1} steps are left"
            fetching = time.perf_counter()
            batch = self._fetcher.fetch(names, start_ms, round(last * step_s * 1000))
            times.fetched(batch, time.perf_counter() - fetching)
            self._per_step = len(batch.ts_ms) // (last - first + 1)
            if len(batch.ts_ms):
                self._newest_sample = max(self._newest_sample or 0.0, float(batch.ts_ms.max()) / 1000)
            for k, piece in part(batch, first, last, step_s):
                if self._stopping.is_set():
                    raise Stopped
                if k == due.first:
                    self._before_evaluation(k * step_s)
                outcome = self._step(k, piece, times, is_newest=k == due.last)
            start_ms = round(last * step_s * 1000)
        self._problem = ""
        self._ok_at = time.monotonic()
        assert outcome is not None  # noqa: S101 (narrowing: there was at least one step)
        done = times.done(time.perf_counter() - begun)
        self._telemetry.ticked(done, self._clock.now())
        log_tick(outcome, done)
        self._keep_learnt(outcome)

    def _chunk_steps(self) -> int:
        """Return how many steps are fetched at once: one, until it is known how much that is."""
        if not self._per_step:
            return 1
        return min(self._schedule.fetch_chunk_steps, max(1, CHUNK_SAMPLES // self._per_step))

    def _step(self, k: int, batch: Batch, times: Times, *, is_newest: bool) -> Outcome:
        """Evaluate one time, store what it says, publish it."""
        judge = self._judge_after is None or k > self._judge_after
        with self._moving:
            outcome = self._move(k, batch, times, is_newest=is_newest, judge=judge)
        if judge and self._hooks.published is not None:
            self._hooks.published(outcome)
        return outcome

    def _move(self, k: int, batch: Batch, times: Times, *, is_newest: bool, judge: bool) -> Outcome:
        at = k * self._schedule.step_s
        begun = time.perf_counter()
        with self._pipeline_lock:
            # whatever happens inside, this time is not evaluated again
            self._last, self._fetched_ms = k, round(at * 1000)
            outcome = self._pipeline.evaluate(batch, at, judge=judge)
            groups = tuple(self._pipeline.groups()) if is_newest or judge else ()
        times.evaluate_s += time.perf_counter() - begun
        if judge:
            self._keeper.judged()
            storing = time.perf_counter()
            self._keeper.save(outcome)
            times.store_s += time.perf_counter() - storing
            self._telemetry.judged(outcome)
            for t in outcome.transitions:
                log_transition(t)
        if judge or is_newest:
            self._board.publish(outcome, groups)
        return outcome

    def _before_evaluation(self, at: float) -> None:
        if self._hooks.before_evaluation is None:
            return
        try:
            self._hooks.before_evaluation(self._fetcher, at)
        except SourceError as error:
            self._telemetry.failed("pool_query")
            log.warning("pools not_asked=%r", str(error))

    def _keep_learnt(self, outcome: Outcome) -> None:
        """Save the learnt state when it is due; after the verdict is out, as it may take a while."""
        if not self._keeper.is_due:
            return
        with self._moving:
            with self._keeper.timed(), self._pipeline_lock:
                blob = self._pipeline.snapshot()
            # a repair since then has changed what was published
            latest = self._board.latest
            self._keeper.save(outcome if latest is None else latest.outcome, blob)

    def _fail(self, kind: str, problem: str, *, is_logged: bool = False) -> None:
        self._telemetry.failed(kind)
        self._problem = problem
        if not is_logged:
            log.error("tick failed=true kind=%s problem=%r", kind, problem)

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from detector.core.series_view import SeriesQuery
from detector.errors import SourceDecode, SourceError, SourceStatus, SourceTimeout
from detector.outcome import Outcome
from detector.service import Service
from detector.service_contracts import ServiceHooks
from detector.service_pools import PoolQuery
from detector.service_view import BusyError
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.telemetry import Telemetry
from grouping.pools import PoolRules
from tests.service_fakes import (
    STEP,
    T0,
    ManualClock,
    Plan,
    ScriptedPipeline,
    ScriptedSource,
    fails,
    hangs,
    partial,
)

SCHEDULE = ScheduleSettings(
    step_s=STEP, evaluation_delay_s=30.0, backfill_s=300.0, fetch_chunk_steps=4, tick_timeout_s=20.0
)
FAULT = Plan("bad", 60.0, 180.0, 600.0)


@dataclass
class Bench:
    """A service with everything around it, driven by hand."""

    path: Path
    clock: ManualClock
    source: ScriptedSource
    pipeline: ScriptedPipeline
    store: Store
    telemetry: Telemetry
    service: Service
    opened: list[ScriptedSource]

    def tick(self, at: float) -> None:
        """Run the tick whose newest evaluation time is ``T0 + at``."""
        self.clock.t = T0 + at + SCHEDULE.evaluation_delay_s
        self.service.tick()

    def ticks(self, first: float, last: float) -> None:
        at = first
        while at <= last:
            self.tick(at)
            at += STEP

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0

    @property
    def judged(self) -> list[float]:
        return [at - T0 for at, judge, _, _ in self.pipeline.calls if judge]

    def close(self) -> None:
        self.service.finish(5.0)
        self.store.close()


Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    benches: list[Bench] = []

    def build(
        *,
        plans: tuple[Plan, ...] = (),
        schedule: ScheduleSettings = SCHEDULE,
        hooks: ServiceHooks | None = None,
        pipeline: ScriptedPipeline | None = None,
        clock: ManualClock | None = None,
        **fields: Any,
    ) -> Bench:
        path = tmp_path / "oddnode.db"
        clock = clock or ManualClock()
        source, pipeline = ScriptedSource(), pipeline or ScriptedPipeline(plans)
        store, telemetry = Store(path), Telemetry("1", "abc")
        opened: list[ScriptedSource] = []

        def open_source() -> ScriptedSource:
            opened.append(source)
            return source

        service = Service(schedule, open_source, pipeline, store, telemetry, clock, hooks=hooks, **fields)
        bench = Bench(path, clock, source, pipeline, store, telemetry, service, opened)
        benches.append(bench)
        return bench

    yield build
    for bench in benches:
        bench.close()


def test_a_new_store_learns_the_window_and_judges_the_newest_time(make: Make) -> None:
    bench = make()
    bench.tick(0)
    times = [at - T0 for at, _, _, _ in bench.pipeline.calls]
    assert times == [-300 + STEP * k for k in range(11)]
    assert bench.judged == [0.0]
    latest = bench.service.latest()
    assert latest is not None
    assert latest.outcome.at == T0
    assert bench.store.last_evaluation() == T0


def test_the_window_is_fetched_in_pieces_without_gap_or_overlap(make: Make) -> None:
    bench = make()
    bench.tick(0)
    asked = bench.source.asked
    assert len(asked) == 4, "one step to learn how much that is, then four at once"
    assert asked[0][0] == (T0 - 300 - 2 * STEP) * 1000
    assert [start for start, _ in asked[1:]] == [end for _, end in asked[:-1]]
    assert asked[-1][1] == T0 * 1000
    n_samples = [n for _, _, n, _ in bench.pipeline.calls]
    assert n_samples[0] == 2 * bench.source.n_series, "and the sample before the first"
    assert set(n_samples[1:]) == {bench.source.n_series}


def test_steps_that_are_large_are_fetched_in_smaller_pieces(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.service.CHUNK_SAMPLES", 2 * 4)
    bench = make()
    bench.tick(0)
    steps = [(end - start) / 1000 / STEP for start, end in bench.source.asked]
    assert steps == [2.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0]
    assert sum(n for _, _, n, _ in bench.pipeline.calls) == 12 * 4


def test_each_tick_reads_only_what_is_new(make: Make) -> None:
    bench = make()
    bench.ticks(0, 90)
    assert bench.source.asked[-1] == ((T0 + 60) * 1000, (T0 + 90) * 1000)
    assert bench.judged == [0.0, 30.0, 60.0, 90.0]
    assert bench.metric("oddnode_ticks_total") == 4
    assert bench.metric("oddnode_ticks_missed_total") == 0
    assert bench.metric("oddnode_samples_dropped_total", reason="nan") == 7


def test_the_evaluation_waits_for_late_samples(make: Make) -> None:
    bench = make()
    bench.clock.t = T0 + 59.0
    bench.service.tick()
    assert bench.judged == [0.0]
    bench.clock.t = T0 + 60.0
    bench.service.tick()
    assert bench.judged == [0.0, 30.0]


def test_no_time_is_evaluated_twice(make: Make) -> None:
    bench = make()
    bench.ticks(0, 60)
    for _ in range(3):
        bench.service.tick()
    bench.clock.t -= 40
    bench.service.tick()
    bench.tick(90)
    times = [at for at, _, _, _ in bench.pipeline.calls]
    assert times == sorted(set(times))
    assert bench.judged == [0.0, 30.0, 60.0, 90.0]


def test_a_clock_that_went_far_back_waits_and_says_so(make: Make) -> None:
    bench = make()
    bench.ticks(0, 60)
    bench.clock.t -= 3600
    bench.service.tick()
    assert bench.judged == [0.0, 30.0, 60.0]
    bench.service._ok_at = time.monotonic() - 1000
    (reason,) = bench.service.readiness().reasons
    assert "the clock is 3600 s behind the newest evaluation" in reason
    bench.tick(90)
    assert bench.judged[-1] == 90.0
    assert bench.service.readiness().is_ready


def test_a_clock_that_is_behind_the_store_at_start_waits(make: Make) -> None:
    bench = make()
    bench.tick(7200)
    bench.close()
    again = make()
    again.tick(0)
    assert again.pipeline.calls == []
    assert again.service.latest() is None


def test_a_jump_ahead_is_caught_up_as_far_as_the_window(make: Make) -> None:
    bench = make()
    bench.tick(0)
    bench.tick(86400)
    assert bench.judged == [0.0, *(86400 - 300 + STEP * k for k in range(11))]
    assert bench.metric("oddnode_ticks_missed_total") == 86400 / STEP - 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SourceTimeout("slow"), "timeout"),
        (SourceStatus("refused", 401), "status_401"),
        (SourceDecode("a login page"), "decode"),
        (SourceError("no connection"), "source"),
    ],
)
def test_a_failed_fetch_freezes_everything(make: Make, error: SourceError, kind: str) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 240)
    before = bench.store.incidents(), bench.store.transitions(), len(bench.pipeline.calls)
    latest = bench.service.latest()
    bench.source.script.extend([fails(error)] * 3)
    bench.ticks(270, 330)
    assert (bench.store.incidents(), bench.store.transitions(), len(bench.pipeline.calls)) == before
    assert bench.service.latest() is latest
    assert bench.metric("oddnode_ticks_failed_total", kind=kind) == 3
    assert any(str(error) in note for note in bench.service.readiness().notes)
    bench.tick(360)
    assert bench.judged[-4:] == [270.0, 300.0, 330.0, 360.0], "caught up step by step"
    assert bench.source.asked[-1] == ((T0 + 240) * 1000, (T0 + 360) * 1000)
    assert bench.service.readiness().notes == ()


def test_an_outage_longer_than_the_window_leaves_a_gap(make: Make) -> None:
    bench = make()
    bench.tick(0)
    bench.source.script.extend([fails(SourceStatus("503", 503))] * 40)
    bench.ticks(30, 1200)
    bench.tick(1230)
    assert bench.judged == [0.0, *(930 + STEP * k for k in range(11))]
    assert bench.source.asked[-3][0] == (T0 + 930 - 2 * STEP) * 1000, "three pieces of four at most"


def test_a_fetch_that_fails_while_the_window_is_filled_goes_on_there(make: Make) -> None:
    bench = make()
    bench.source.script.extend([lambda batch: batch, fails(SourceTimeout("slow"))])
    bench.tick(0)
    assert len(bench.pipeline.calls) == 1
    assert "slow" in bench.service.readiness().reasons[0]
    bench.tick(30)
    times = [at - T0 for at, _, _, _ in bench.pipeline.calls]
    assert times == [-300 + STEP * k for k in range(12)]
    assert bench.judged == [0.0, 30.0]


def test_partial_data_is_passed_on_as_partial(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 30)
    bench.source.script.append(partial)
    bench.tick(60)
    assert bench.pipeline.calls[-1][3] is True
    latest = bench.service.latest()
    assert latest is not None
    assert latest.outcome.is_partial
    assert bench.service.readiness().notes == ("the database said that its answer may be incomplete",)
    assert bench.store.incidents() == []
    assert bench.metric("oddnode_ticks_partial_total") == 1


def test_an_incident_lives_through_store_and_log(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oddnode")
    bench = make(plans=(FAULT,))
    bench.ticks(0, 240)
    (item,) = bench.store.open_incidents()
    assert (item.node, item.state, item.suspect_at) == ("bad", "suspect", T0 + 180)
    latest = bench.service.latest()
    assert latest is not None
    assert [i.node for i in latest.suspects] == ["bad"]
    assert bench.metric("oddnode_suspect", node="bad") == 1
    assert bench.metric("oddnode_transitions_total", after="suspect") == 1
    bench.ticks(270, 630)
    assert bench.store.open_incidents() == []
    assert [t.after for t in bench.store.transitions()] == ["pending", "suspect", "cleared"]
    lines = [r.getMessage() for r in caplog.records]
    assert sum(line.startswith("transition node=bad") for line in lines) == 3
    ticks = [line for line in lines if line.startswith("tick at=")]
    assert len(ticks) == len(bench.judged)
    for word in ("groups=", "series=", "suspects=", "pending=", "undetermined=", "partial=", "duration_s="):
        assert word in ticks[0]


def test_a_verdict_is_stored_before_it_is_published(make: Make) -> None:
    seen: list[tuple[float | None, float]] = []
    bench = make()

    def look(outcome: Outcome) -> None:
        latest = bench.service.latest()
        assert latest is not None
        seen.append((bench.store.last_evaluation(), latest.outcome.at))

    bench.service._hooks = ServiceHooks(published=look)
    saving = bench.store.save

    def save(outcome: Outcome, snapshot: bytes | None = None) -> None:
        latest = bench.service.latest()
        assert snapshot is not None or latest is None or latest.outcome.at < outcome.at
        saving(outcome, snapshot)

    bench.store.save = save  # type: ignore[method-assign]
    bench.ticks(0, 60)
    bench.store.save = saving  # type: ignore[method-assign]
    assert seen == [(T0 + at, T0 + at) for at in (0, 30, 60)]


def test_a_restart_goes_on_where_it_ended(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 240)
    bench.close()
    again = make(plans=(FAULT,))
    again.tick(330)
    assert again.pipeline.restored is not None
    assert again.judged == [270.0, 300.0, 330.0]
    assert len(again.store.incidents()) == 1
    again.ticks(360, 630)
    assert [(t.before, t.after) for t in again.store.transitions()] == [
        ("clear", "pending"),
        ("pending", "suspect"),
        ("suspect", "cleared"),
    ]


def test_a_restart_within_one_step_answers_and_changes_nothing(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 240)
    bench.close()
    again = make(plans=(FAULT,))
    again.tick(240)
    latest = again.service.latest()
    assert latest is not None
    assert again.judged == []
    assert [i.node for i in latest.suspects] == ["bad"]
    assert len(again.store.transitions()) == 2
    again.service.finish(5.0)
    assert again.store.last_evaluation() == T0 + 240


def test_a_suspect_that_sends_nothing_after_a_restart_stays_on_the_list(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 240)
    bench.close()
    forgetful = ScriptedPipeline()
    forgetful.restore = lambda blob, incidents: []  # type: ignore[method-assign]
    again = make(pipeline=forgetful)
    again.tick(270)
    latest = again.service.latest()
    assert latest is not None
    assert latest.outcome.verdicts == ()
    assert [i.node for i in latest.suspects] == ["bad"]
    assert again.metric("oddnode_suspects") == 1
    assert again.metric("oddnode_suspect", node="bad") == 1


def test_stored_suspects_are_counted_before_the_first_evaluation(make: Make) -> None:
    bench = make(plans=(FAULT, Plan("early", 210.0, 600.0, 900.0)))
    bench.ticks(0, 240)
    assert sorted(i.state for i in bench.store.open_incidents()) == ["pending", "suspect"]
    bench.close()
    again = make(plans=(FAULT,))
    assert again.service.latest() is None
    assert again.metric("oddnode_suspects") == 1


def test_the_learnt_state_is_saved_now_and_then_and_at_the_end(make: Make) -> None:
    bench = make(snapshot_s=1e6)
    saved = []
    for at in range(0, 300, 30):
        bench.tick(at)
        saved.append(bench.store.snapshot())
    calls = [json.loads(blob or b"{}")["calls"] - 10 for blob in saved]
    assert calls == [1, 2, 2, 4, 4, 4, 4, 8, 8, 8], "whenever twice as much was judged"
    assert bench.service.finish(5.0)
    assert bench.store.snapshot() == b'{"calls": 20}', "at the end"


def test_the_learnt_state_is_saved_with_a_first_sign_and_a_new_suspect(make: Make) -> None:
    bench = make(plans=(FAULT,), snapshot_s=1e6)
    for moment in (FAULT.pending, FAULT.suspect):
        bench.ticks(int(moment) - 30, int(moment))
        with_it = bench.store.snapshot()
        assert with_it == json.dumps({"calls": len(bench.pipeline.calls)}).encode()
    bench.tick(int(FAULT.suspect) + 30)
    assert bench.store.snapshot() == with_it, "once"


def test_a_learnt_state_that_cannot_be_used_is_left_out(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 240)
    bench.close()
    store = Store(bench.path)
    store.save(Outcome(T0 + 240), b"poison")
    store.close()
    again = make(plans=(FAULT,))
    assert again.pipeline.restored is None
    assert list(again.pipeline.open) == ["bad"]


def test_a_hung_fetch_is_given_up_and_the_next_tick_runs(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(schedule=SCHEDULE.model_copy(update={"tick_timeout_s": 0.2}))
    bench.tick(0)
    until = threading.Event()
    bench.source.script.append(hangs(until))
    began = time.monotonic()
    bench.tick(30)
    assert time.monotonic() - began < 10
    assert bench.judged == [0.0]
    assert bench.metric("oddnode_ticks_failed_total", kind="timeout") == 1
    assert bench.source.closed.wait(10), "the source is closed, which ends what hangs"
    assert "until.wait" in caplog.text, "the log says where it hung"
    bench.tick(60)
    assert bench.judged == [0.0, 30.0, 60.0]
    assert len(bench.opened) == 2, "and opened anew"
    until.set()


def test_a_given_up_fetch_can_no_longer_number_series(make: Make) -> None:
    bench = make(schedule=SCHEDULE.model_copy(update={"tick_timeout_s": 0.2}))
    bench.tick(0)
    until, told = threading.Event(), []
    fetch = bench.source.fetch

    def late(names: Any, start_ms: int, end_ms: int, interner: Any) -> Any:
        until.wait(60)
        try:
            interner.add_many([b'{"node":"late"}'])
        except SourceError as error:
            told.append(str(error))
        return fetch(names, start_ms, end_ms, interner)

    bench.source.fetch = late  # type: ignore[method-assign]
    bench.tick(30)
    bench.source.fetch = fetch  # type: ignore[method-assign]
    until.set()
    deadline = time.monotonic() + 10
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told == ["the fetch was given up"]
    assert b'{"node":"late"}' not in bench.pipeline.interner.codes


def test_fetches_that_all_hang_do_not_pile_up(make: Make) -> None:
    bench = make(schedule=SCHEDULE.model_copy(update={"tick_timeout_s": 0.05}))
    until = threading.Event()
    bench.source.script.extend([hangs(until)] * 20)
    bench.ticks(0, 300)
    hanging = [t for t in threading.enumerate() if t.name == "oddnode-fetch"]
    assert len(hanging) == 4
    assert "still hang" in bench.service.readiness().reasons[0]
    until.set()


def test_a_defect_in_an_evaluation_ends_one_tick_only(make: Make) -> None:
    def work(at: float) -> None:
        if at == T0 + 30:
            raise ZeroDivisionError("defect")

    bench = make(pipeline=ScriptedPipeline(work=work))
    bench.ticks(0, 30)
    assert bench.metric("oddnode_ticks_failed_total", kind="internal") == 1
    assert any("defect" in note for note in bench.service.readiness().notes)
    bench.tick(60)
    assert [at - T0 for at, _, _, _ in bench.pipeline.calls][-3:] == [0.0, 30.0, 60.0], "not tried again"
    assert bench.store.last_evaluation() == T0 + 60


def test_stop_ends_a_fetch_under_way_at_once(make: Make) -> None:
    bench = make()
    bench.tick(0)
    until = threading.Event()
    bench.source.script.append(hangs(until))
    ticking = threading.Thread(target=bench.tick, args=(30,))
    ticking.start()
    deadline = time.monotonic() + 10
    while len(bench.source.asked) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    began = time.monotonic()
    assert bench.service.finish(10.0)
    assert time.monotonic() - began < 5
    ticking.join(10)
    assert not ticking.is_alive()
    until.set()


def test_stop_ends_a_catch_up_between_two_evaluations(make: Make) -> None:
    bench = make()

    def work(at: float) -> None:
        if at == T0 - 240:
            bench.service.stop()

    bench.pipeline.work = work
    bench.tick(0)
    assert [at - T0 for at, _, _, _ in bench.pipeline.calls] == [-300, -270, -240]
    bench.tick(30)
    assert len(bench.pipeline.calls) == 3, "no tick after the end"


def test_an_evaluation_that_does_not_end_is_told(make: Make) -> None:
    until = threading.Event()
    bench = make(pipeline=ScriptedPipeline(work=lambda at: until.wait(30) and None))
    ticking = threading.Thread(target=bench.tick, args=(0,))
    ticking.start()
    deadline = time.monotonic() + 10
    while not bench.pipeline.calls and time.monotonic() < deadline:
        time.sleep(0.005)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("detector.service_questions.SERIES_WAIT_S", 0.05)
        with pytest.raises(BusyError):
            bench.service.series(SeriesQuery("a", "b"))
    assert bench.service.finish(0.05) is False
    until.set()
    ticking.join(10)


def test_a_full_disk_does_not_stop_detection(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 30)
    assert bench.store._writer is not None
    bench.store._writer.execute("PRAGMA query_only = 1")
    bench.ticks(60, 240)
    latest = bench.service.latest()
    assert latest is not None
    assert [i.node for i in latest.suspects] == ["bad"], "named, though not stored"
    assert bench.store.incidents() == []
    (reason,) = bench.service.readiness().reasons
    assert reason.startswith("incidents are not stored, detection goes on in memory")
    assert bench.metric("oddnode_store_failures_total") == 7
    assert bench.metric("oddnode_store_pending") > 0
    bench.store._writer.execute("PRAGMA query_only = 0")
    bench.tick(270)
    assert bench.service.readiness().is_ready
    assert [t.after for t in bench.store.transitions()] == ["pending", "suspect"]


def test_readiness_names_what_is_wrong(make: Make) -> None:
    bench = make()
    assert not bench.service.readiness().is_ready
    assert "nothing was evaluated yet" in bench.service.readiness().reasons[0]
    bench.tick(0)
    assert bench.service.readiness().is_ready
    bench.service._ok_at = time.monotonic() - 6 * STEP
    assert "no evaluation for 180 s" in bench.service.readiness().reasons[0]
    bench.tick(30)
    assert bench.service.readiness().is_ready


def test_a_database_without_samples_is_not_ready(make: Make) -> None:
    bench = make()
    bench.source.n_series = 0
    bench.tick(0)
    assert bench.service.readiness().reasons == ("the database has no series of any metric in the catalog",)


def test_samples_that_stop_are_not_ready(make: Make) -> None:
    bench = make()
    bench.tick(0)
    bench.source.is_empty = True
    bench.ticks(30, 300)
    assert bench.service.readiness().reasons == (
        "the newest sample is 300 s older than the newest evaluation",
    )


def test_the_age_of_the_data_is_told(make: Make) -> None:
    bench = make()
    assert bench.service.data_age_s() is None
    bench.tick(0)
    bench.clock.t += 12
    assert bench.service.data_age_s() == 42.0
    assert bench.metric("oddnode_data_age_seconds") == 42.0
    text = bench.service.metrics_text().decode()
    assert 'oddnode_build_info{catalog="abc",version="1"} 1.0' in text


def test_two_ticks_never_run_at_once(make: Make) -> None:
    until, n_inside, most = threading.Event(), [0], [0]

    def work(at: float) -> None:
        n_inside[0] += 1
        most[0] = max(most[0], n_inside[0])
        until.wait(10)
        n_inside[0] -= 1

    bench = make(pipeline=ScriptedPipeline(work=work))
    threads = [threading.Thread(target=bench.tick, args=(0,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    until.set()
    for thread in threads:
        thread.join(30)
    assert most == [1]
    assert len(bench.pipeline.calls) == 11


class Names:
    def node_of(self, labels: dict[str, str], exporter: str) -> str | None:
        return labels.get("node")


def test_pools_are_asked_for_now_and_then(make: Make) -> None:
    pipeline = ScriptedPipeline()
    pipeline.identity = Names()  # type: ignore[attr-defined]
    query = PoolQuery(PoolRules(query="q", label="pool"), pipeline, 60.0)  # type: ignore[arg-type]
    bench = make(pipeline=pipeline, hooks=ServiceHooks(before_evaluation=query))
    bench.source.answers = [({"node": "a", "pool": "train"}, 1.0), ({"pool": "x"}, 1.0), ({"node": "b"}, 1.0)]
    bench.tick(0)
    assert pipeline.declared == {"a": "train"}
    bench.source.answers = []
    bench.ticks(30, 90)
    assert pipeline.declared == {"a": "train"}, "an empty answer changes nothing"
    bench.source.answers = [({"node": "a", "pool": "other"}, 1.0)]
    bench.ticks(120, 180)
    assert pipeline.declared == {"a": "other"}


def test_a_pool_query_that_fails_does_not_fail_the_tick(make: Make) -> None:
    def ask(fetcher: Any, at: float) -> None:
        raise SourceStatus("refused", 422)

    bench = make(hooks=ServiceHooks(before_evaluation=ask))
    bench.tick(0)
    assert bench.judged == [0.0]
    assert bench.metric("oddnode_ticks_failed_total", kind="pool_query") == 1


def test_nodes_that_are_gone_leave_the_metrics(make: Make) -> None:
    bench = make(plans=(replace(FAULT, cleared=300.0),))
    bench.ticks(0, 240)
    assert bench.metric("oddnode_suspect", node="bad") == 1
    bench.ticks(270, 330)
    assert 'node="bad"' not in bench.service.metrics_text().decode()


def test_the_end_of_a_recording_is_told(make: Make) -> None:
    bench = make(clock=ManualClock(end=T0 + 120))
    bench.tick(0)
    bench.clock.t = T0 + 120
    bench.service._ok_at = time.monotonic() - 1e6
    found = bench.service.readiness()
    assert found.is_ready
    assert found.notes == ("the recording has ended: these are its last verdicts",)

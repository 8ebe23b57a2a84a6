from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detector.service_clock import GridTrigger, RecordedClock
from detector.service_plan import Begin, newest, owed, part
from detector.source.base import Batch


def test_newest_is_the_last_grid_time_whose_samples_are_due() -> None:
    assert newest(1000.0, 30.0, 30.0) == 32  # 970 s: 960 is the last multiple
    assert newest(990.0, 30.0, 30.0) == 32
    assert newest(989.99, 30.0, 30.0) == 31
    assert newest(989.9999, 30.0, 30.0) == 32, "a timer may be a hair early"


def test_the_first_tick_owes_the_window() -> None:
    due = owed(100, None, None, step_s=30.0, backfill_s=300.0, begin=None)
    assert (due.first, due.last, due.start_ms) == (90, 100, 88 * 30_000)
    assert list(due.chunks(lambda: 4)) == [(90, 93), (94, 97), (98, 100)]


def test_a_recording_begins_where_it_begins() -> None:
    due = owed(100, None, None, step_s=30.0, backfill_s=60.0, begin=Begin(7, 123))
    assert (due.first, due.last, due.start_ms) == (7, 100, 123)
    due = owed(200, 100, 3_000_000, step_s=30.0, backfill_s=60.0, begin=Begin(7, 123))
    assert (due.first, due.start_ms, due.n_left_out) == (101, 3_000_000, 0), "nothing of it is left out"


@given(
    target=st.integers(1, 500),
    last=st.none() | st.integers(1, 500),
    backfill=st.integers(0, 100),
    chunk=st.integers(1, 50),
)
def test_what_is_owed_covers_each_time_once(target: int, last: int | None, backfill: int, chunk: int) -> None:
    fetched = None if last is None else last * 30_000
    due = owed(target, last, fetched, step_s=30.0, backfill_s=backfill * 30.0, begin=None)
    times = [k for first, end in due.chunks(lambda: chunk) for k in range(first, end + 1)]
    expected = range(target - backfill if last is None else max(last + 1, target - backfill), target + 1)
    assert times == list(expected)
    if last is not None and times:
        assert due.start_ms >= last * 30_000, "no sample is read twice"
        assert due.n_left_out == times[0] - last - 1


samples = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40 * 1000)), max_size=60, unique=True)


@given(samples, st.integers(1, 8), st.sampled_from([1.0, 2.5, 5.0]))
def test_parts_are_the_batch_cut_by_time(found: list[tuple[int, int]], n_steps: int, step_s: float) -> None:
    last = math.ceil(40 / step_s)
    first = last - n_steps + 1
    found.sort()
    batch = Batch(
        np.array([s for s, _ in found], dtype=np.int32),
        np.array([t for _, t in found], dtype=np.int64),
        np.array([float(t) for _, t in found]),
        is_partial=True,
        dropped={"nan": 2},
        notes=("a",),
        n_bytes=7,
    )
    pieces = list(part(batch, first, last, step_s))
    assert [k for k, _ in pieces] == list(range(first, last + 1))
    told: list[tuple[int, int]] = []
    for k, piece in pieces:
        mine = list(zip(piece.series.tolist(), piece.ts_ms.tolist(), strict=True))
        assert mine == sorted(mine), "each series ascending"
        for _, ts_ms in mine:
            assert ts_ms <= k * step_s * 1000
            assert k == first or ts_ms > (k - 1) * step_s * 1000
        assert piece.values.tolist() == [float(t) for _, t in mine]
        assert piece.is_partial
        told.extend(mine)
    assert sorted(told) == found
    assert [piece.n_bytes for _, piece in pieces] == [0] * (n_steps - 1) + [7]
    assert pieces[-1][1].notes == ("a",)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@given(
    st.floats(1e9, 2e9),
    st.sampled_from([0.25, 1.0, 30.0]),
    st.floats(0, 60),
    st.floats(-1e7, 0.0),
)
def test_the_timer_is_on_the_grid_and_ahead(now: float, step_s: float, delay_s: float, before: float) -> None:
    trigger = GridTrigger(step_s, delay_s)
    fired = trigger.get_next_fire_time(None if before == 0.0 else at(now + before), at(now)).timestamp()
    assert now - 0.01 < fired <= now + step_s + 0.01
    phase = (fired - delay_s) / step_s
    assert abs(phase - round(phase)) < 0.01 / step_s
    after = trigger.get_next_fire_time(at(fired), at(fired)).timestamp()
    assert abs(after - fired - step_s) < 0.01


def test_a_timer_whose_clock_was_set_back_does_not_wait_for_the_old_time() -> None:
    trigger = GridTrigger(30.0, 0.0)
    assert trigger.get_next_fire_time(at(1e9 + 3600), at(1e9)).timestamp() <= 1e9 + 30


def test_a_recorded_clock_runs_at_its_speed_and_stops_at_the_end() -> None:
    clock = RecordedClock(100.0, 200.0, 1e9)
    assert clock.now() == 200.0
    slow = RecordedClock(100.0, 200.0, 1.0)
    first = slow.now()
    assert 100.0 <= first < 110.0
    assert slow.now() >= first

"""The scorer can't be flattered: detectors that cheat get what they deserve."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.evaluation.intervals import f1_interval, poisson_upper, wilson
from detector.evaluation.model import Call, Findings, Flag, Rules
from detector.evaluation.parts import same_part
from detector.evaluation.scoring import CaseScore, score_case
from detector.evaluation.spans import common_length, episodes, length, outside, union
from detector.evaluation.summary import Summary, by_origin, summarise
from detector.source.incident_file import MaskedTime, RecordedFault, RecordedGroupEvent, Recording

DAY = 86_400.0
NODES = tuple(f"n{i}" for i in range(10))
FAULT = RecordedFault("n3", 40_000.0, 44_000.0, kind="pcie", part="gpu 3", severity="1.0")
RULES = Rules()


def recording(
    faults: tuple[RecordedFault, ...] = (FAULT,),
    *,
    name: str = "case",
    start: float = 0.0,
    step_s: float = 30.0,
    masked: tuple[MaskedTime, ...] = (),
    groups: tuple[RecordedGroupEvent, ...] = (),
    made: str | None = "synthetic",
    source: str = "generated",
    benign: tuple[object, ...] = (),
) -> Recording:
    return Recording(
        id=name,
        path=Path(f"/data/set/{name}/incident.yaml"),
        start=start,
        end=start + DAY,
        step_s=step_s,
        pool=NODES,
        healthy=not faults,
        faults=faults,
        masked=masked,
        group_events=groups,
        benign=benign,
        provenance={"made": made, "source": source} if made else {},
    )


def scored(case: Recording, *flags: Flag, calls: tuple[Call, ...] = ()) -> CaseScore:
    return score_case(case, Findings(tuple(flags), calls), RULES)


def summary(*scores: CaseScore) -> Summary:
    return summarise("all", scores, RULES)


def numbers(*scores: CaseScore) -> tuple[int, int, int]:
    s = summary(*scores)
    return s.found, s.missed, s.false_rate.count


def test_right_node_in_time_is_found_with_its_delay_from_the_onset() -> None:
    score = scored(recording(), Flag("n3", 40_120.0, 43_000.0, part="GPU 3"))
    assert numbers(score) == (1, 0, 0)
    assert score.faults[0].delay_s == 120.0
    assert score.faults[0].part_right is True


def test_flagging_everyone_from_the_start_finds_nothing_and_is_ten_false_alarms() -> None:
    score = scored(recording(), *(Flag(node, 30.0) for node in NODES))
    assert numbers(score) == (0, 1, 10)
    assert "before the onset" in score.faults[0].why
    assert summary(score).alarmed_share == pytest.approx(1.0, abs=0.01)


def test_flagging_everyone_at_the_onset_finds_the_fault_at_the_cost_of_nine_false_alarms() -> None:
    score = scored(recording(), *(Flag(node, 40_060.0) for node in NODES))
    assert numbers(score) == (1, 0, 9)
    assert summary(score).precision.value == pytest.approx(0.1)
    assert {alarm.during for alarm in score.false_alarms} == {"a fault of another node"}


def test_flagging_no_one_has_recall_zero_and_no_precision() -> None:
    s = summary(scored(recording()))
    assert (s.found, s.missed, s.false_rate.count) == (0, 1, 0)
    assert s.recall.value == 0.0
    assert s.precision.value is None
    assert s.precision.interval is None
    assert s.f1 == 0.0


@pytest.mark.parametrize(
    ("late_s", "expected"), [(0.0, (1, 0, 0)), (600.0, (1, 0, 0)), (601.0, (0, 1, 1)), (9_000.0, (0, 1, 1))]
)
def test_a_late_flag_is_a_miss_and_a_false_alarm_after_the_grace(
    late_s: float, expected: tuple[int, int, int]
) -> None:
    assert numbers(scored(recording(), Flag("n3", FAULT.end + late_s))) == expected


def test_grace_is_three_steps_when_they_are_longer_than_ten_minutes() -> None:
    slow = recording(step_s=300.0)
    assert numbers(scored(slow, Flag("n3", FAULT.end + 900.0))) == (1, 0, 0)
    assert numbers(scored(slow, Flag("n3", FAULT.end + 901.0))) == (0, 1, 1)


@pytest.mark.parametrize(
    ("early_s", "expected"), [(0.0, (1, 0, 0)), (30.0, (1, 0, 0)), (31.0, (0, 1, 1)), (7_200.0, (0, 1, 1))]
)
def test_a_flag_before_the_onset_finds_nothing_even_when_it_stays_open(
    early_s: float, expected: tuple[int, int, int]
) -> None:
    score = scored(recording(), Flag("n3", FAULT.onset - early_s))
    assert numbers(score) == expected
    assert score.faults[0].delay_s in (0.0, None)


def test_flickering_all_day_is_one_alarm_that_rose_before_the_fault() -> None:
    flicker = [Flag("n3", at, at + 60.0) for at in range(600, 80_000, 300)]
    score = scored(recording(), *flicker)
    assert numbers(score) == (0, 1, 1)


def test_flickering_in_the_fault_finds_it_once() -> None:
    flicker = [Flag("n3", at, at + 60.0) for at in range(40_100, 44_000, 1_000)]
    assert len(episodes(flicker, DAY, RULES.merge_s)) == 4
    assert numbers(scored(recording(), *flicker)) == (1, 0, 0)


def test_slow_flickering_in_healthy_time_is_many_false_alarms() -> None:
    flicker = [Flag("n5", at, at + 60.0) for at in range(600, 30_000, 1_000)]
    assert numbers(scored(recording(()), *flicker)) == (0, 0, len(flicker))


def test_masked_time_is_neither_hit_nor_false_nor_healthy() -> None:
    masked = (MaskedTime("n5", 10_000.0, 20_000.0),)
    score = scored(recording(masked=masked), Flag("n5", 12_000.0, 13_000.0), Flag("n5", 30_000.0, 31_000.0))
    assert numbers(score) == (0, 1, 1)
    assert len(score.neutral) == 1
    whole = 10 * DAY - (FAULT.end - FAULT.onset + 600)
    assert summary(score).false_rate.node_days * DAY == pytest.approx(whole - 10_600)
    other = scored(recording(masked=masked), Flag("n6", 12_000.0, 13_000.0))
    assert numbers(other) == (0, 1, 1), "masked for one node only"


def test_an_alarm_that_was_open_before_masked_time_stays_false() -> None:
    masked = (MaskedTime("n5", 10_000.0, 20_000.0),)
    assert numbers(scored(recording(masked=masked), Flag("n5", 9_000.0, 21_000.0))) == (0, 1, 1)


def test_blaming_nodes_in_a_group_event_is_false_unless_they_are_at_fault_too() -> None:
    event = RecordedGroupEvent(("n1", "n2", "n3"), 39_000.0, 45_000.0, "nfs slow")
    flags = (Flag("n1", 40_100.0), Flag("n3", 40_100.0))
    call = Call("group_event", 39_060.0, None, ("n1", "n2"))
    blamed = scored(recording(groups=(event,)), *flags, calls=(call,))
    assert numbers(blamed) == (1, 0, 1)
    assert blamed.false_alarms[0].during == "a group event"
    group = blamed.groups[0]
    assert (group.called, group.n_blamed, group.right) == (True, 1, False)
    quiet = scored(recording(groups=(event,)), calls=(call,))
    assert quiet.groups[0].right


@pytest.mark.parametrize(
    ("kind", "call", "called"),
    [
        ("nfs slow", Call("group_event", 39_060.0, None, ("n1", "n2")), True),
        ("nfs slow", Call("group_event", 39_060.0, None, ("n1", "n7")), False),
        ("nfs slow", Call("group_event", 60_000.0, None, ("n1", "n2", "n3")), False),
        ("nfs slow", Call("group_event", 20_000.0, None, ("n1", "n2", "n3")), False),
        ("nfs slow", Call("monitoring_outage", 39_060.0, None), False),
        ("monitoring_outage", Call("monitoring_outage", 39_060.0, None), True),
        ("monitoring_outage", Call("group_event", 39_060.0, None, ("n1", "n2", "n3")), False),
        ("exporter down", Call("exporter_down", 39_060.0, None, ("n1",)), False),
    ],
)
def test_group_events_and_outages_must_be_called_by_their_name(kind: str, call: Call, called: bool) -> None:
    event = RecordedGroupEvent(("n1", "n2", "n3"), 39_000.0, 45_000.0, kind)
    score = scored(recording((), groups=(event,)), calls=(call,))
    assert score.groups[0].called is called


def test_a_group_event_that_nobody_labelled_is_counted() -> None:
    event = RecordedGroupEvent(("n1",), 39_000.0, 45_000.0, "nfs slow")
    calls = (Call("group_event", 39_060.0, None, ("n1",)), Call("group_event", 70_000.0, None, ("n1",)))
    score = scored(recording((), groups=(event,)), calls=(*calls, Call("exporter_down", 70_000.0, None)))
    assert score.n_other_calls == 1


def test_a_benign_event_explains_a_false_alarm_and_does_not_excuse_it() -> None:
    benign = ({"node": "n4", "kind": "cron", "onset": 5_000, "end": 5_100}, "text", {"onset": None})
    score = scored(recording(benign=benign), Flag("n4", 5_060.0, 5_200.0))
    assert numbers(score) == (0, 1, 1)
    assert score.false_alarms[0].during == "benign: cron"


def test_a_flag_on_a_node_that_the_case_does_not_know_is_false() -> None:
    score = scored(recording(), Flag("ghost", 41_000.0))
    assert numbers(score) == (0, 1, 1)
    assert "does not know" in score.false_alarms[0].during


def test_faults_that_one_alarm_cant_tell_apart_are_one() -> None:
    second = RecordedFault("n3", 44_300.0, 46_000.0, kind="nic")
    score = scored(recording((FAULT, second)), Flag("n3", 40_120.0))
    assert numbers(score) == (1, 0, 0)
    assert score.faults[0].fault.kind == "pcie, nic"


def test_an_alarm_finds_one_fault_though_the_grace_of_one_reaches_the_next() -> None:
    first, second = RecordedFault("n3", 40_000.0, 41_000.0), RecordedFault("n3", 41_800.0, 43_000.0)
    slow = recording((first, second), step_s=300.0)
    score = scored(slow, Flag("n3", 41_600.0))
    assert numbers(score) == (1, 1, 0)
    assert "an alarm finds one" in score.faults[1].why
    both = scored(slow, Flag("n3", 40_300.0, 40_600.0), Flag("n3", 41_700.0))
    assert numbers(both) == (2, 0, 0)
    assert [fault.delay_s for fault in both.faults] == [300.0, 0.0]


def test_an_alarm_left_open_does_not_find_the_next_fault() -> None:
    second = RecordedFault("n3", 60_000.0, 61_000.0)
    score = scored(recording((FAULT, second)), Flag("n3", 40_120.0))
    assert numbers(score) == (1, 1, 0)


def test_origins_are_never_added_up() -> None:
    hit = Flag("n3", 40_120.0)
    scores = [
        scored(recording(name="a", made="recorded", source="x"), hit),
        scored(recording(name="b", made="synthetic")),
        scored(recording(name="c", made=None)),
        scored(recording(name="d", made="reconstructed"), hit),
    ]
    found = {s.name: (s.n_cases, s.found, s.missed) for s in by_origin(scores, RULES)}
    assert found == {
        "recorded": (1, 1, 0),
        "reconstructed": (1, 1, 0),
        "synthetic": (1, 0, 1),
        "unstated": (1, 0, 1),
    }


def test_recorded_cases_cut_from_one_record_count_their_common_time_once() -> None:
    alarm = Flag("n5", 70_000.0, 71_000.0)
    a = scored(recording((), name="a", made="recorded", source="x"), alarm)
    b = scored(recording((), name="b", start=DAY / 2, made="recorded", source="x"), alarm)
    s = summary(a, b)
    assert s.false_rate.count == 1
    assert s.false_rate.node_days == pytest.approx(15.0)
    assert (s.n_repeated_alarms, s.repeated_node_days) == (1, pytest.approx(5.0))


@pytest.mark.parametrize(("made", "source"), [("synthetic", "x"), ("recorded", "y")])
def test_cases_of_different_records_share_names_and_times_but_no_samples(made: str, source: str) -> None:
    alarm = Flag("n5", 70_000.0, 71_000.0)
    first = "x" if made == "recorded" else source
    a = scored(recording((), name="a", made=made, source=first), alarm)
    b = scored(recording((), name="b", made=made, source=source), alarm)
    s = summary(a, b)
    assert s.false_rate.count == 2
    assert s.false_rate.node_days == pytest.approx(20.0)


def test_a_fault_in_two_cases_counts_once_and_only_when_found_in_both() -> None:
    a = scored(recording(name="a", made="recorded", source="x"), Flag("n3", 40_120.0))
    b = scored(recording(name="b", made="recorded", source="x"))
    assert numbers(a, b) == numbers(b, a) == (0, 1, 0)
    assert numbers(a, a) == (1, 0, 0)


def test_kinds_and_severities_carry_their_own_numbers() -> None:
    nic = RecordedFault("n7", 10_000.0, 12_000.0, kind="nic", part="mlx5_5/1", severity="0.5")
    s = summary(
        scored(recording((FAULT, nic)), Flag("n7", 10_300.0, part="gpu 1", strongest_part="mlx5_5/1"))
    )
    rows = {row.name: row for row in s.kinds}
    assert (rows["nic"].recall.k, rows["nic"].recall.n) == (1, 1)
    assert (rows["nic"].part.k, rows["nic"].part.n) == (0, 1)
    assert rows["nic"].strongest_part.k == 1
    assert rows["nic"].delay.median_s == 300.0
    assert (rows["pcie"].recall.k, rows["pcie"].part.n) == (0, 0)
    assert [row.name for row in s.severities] == ["0.5", "1.0"]


@pytest.mark.parametrize(
    ("named", "labelled", "same"),
    [
        ("GPU 3", "gpu3", True),
        ("gpu_03", "gpu 3", True),
        ("gpu 3", "gpu 13", False),
        ("8 gpu parts", "gpu 3", False),
        ("", "gpu 3", False),
        ("mlx5_5/1", "mlx5_5 port 1", True),
        ("gpu 4", "gpu 3, gpu 4", True),
        ("nfs:/데이터", "nfs:/모델", False),
    ],
)
def test_parts_are_the_same_by_words_and_numbers(named: str, labelled: str, same: bool) -> None:
    assert same_part(named, labelled) is same


@pytest.mark.parametrize("flag", [(float("nan"), None), (5.0, float("inf")), (5.0, 4.0)])
def test_a_flag_with_impossible_times_is_refused(flag: tuple[float, float | None]) -> None:
    with pytest.raises(ValueError, match="n1"):
        Flag("n1", *flag)


def test_intervals_agree_with_published_values() -> None:
    low, high = wilson(8, 10) or (0.0, 0.0)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson(0, 0) is None
    assert poisson_upper(0, 1.0) == pytest.approx(2.9957, abs=1e-4)  # minus the log of 0.05
    assert poisson_upper(10, 2.0) == pytest.approx(16.962 / 2, abs=1e-3)
    assert poisson_upper(3, 0.0) is None
    with pytest.raises(ValueError, match="11"):
        wilson(11, 10)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_the_interval_of_f1_holds_f1(found: int, false: int, missed: int) -> None:
    interval = f1_interval(found, false, missed)
    if found + false + missed == 0:
        assert interval is None
        return
    assert interval is not None
    f1 = 2 * found / (2 * found + false + missed)
    assert interval[0] - 1e-9 <= f1 <= interval[1] + 1e-9


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda t: (min(t), max(t))), max_size=8
)


@given(SPANS, SPANS)
def test_lengths_agree_with_counting_seconds(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    def seconds(spans: list[tuple[int, int]]) -> set[int]:
        return {second for low, high in spans for second in range(low, high)}

    assert length(one) == len(seconds(one))
    assert common_length(one, other) == len(seconds(one) & seconds(other))
    assert length(outside(one, 5, 50)) == len(set(range(5, 50)) - seconds(one))
    merged = union(one)
    assert all(a[1] < b[0] for a, b in pairwise(merged))


FLAGS = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(0, 86_000), st.integers(0, 20_000)).map(
        lambda t: Flag(t[0], float(t[1]), float(t[1] + t[2]))
    ),
    max_size=25,
)


@given(FLAGS, FLAGS, st.randoms(use_true_random=False))
def test_more_flags_never_pay_for_nothing(flags: list[Flag], extra: list[Flag], random: object) -> None:
    """Flags on nodes without a fault can only add false alarms or merge, never find a fault."""
    innocent = [flag for flag in extra if flag.node != "n3"]
    before, after = scored(recording(), *flags), scored(recording(), *flags, *innocent)
    assert [f.delay_s for f in before.faults] == [f.delay_s for f in after.faults]
    shuffled = [*flags, *innocent]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = scored(recording(), *shuffled)
    assert [a.episode.raised_at for a in again.false_alarms] == [
        a.episode.raised_at for a in after.false_alarms
    ]


@given(FLAGS)
def test_every_episode_is_a_hit_or_neutral_or_false(flags: list[Flag]) -> None:
    masked = (MaskedTime("n5", 10_000.0, 20_000.0),)
    score = scored(recording(masked=masked), *flags)
    hits = [e for e in score.alarms if e.node == "n3" and FAULT.onset - 30 <= e.raised_at <= FAULT.end + 600]
    assert len(score.alarms) == len(hits) + len(score.neutral) + len(score.false_alarms)
    assert (score.faults[0].delay_s is not None) == bool(hits)

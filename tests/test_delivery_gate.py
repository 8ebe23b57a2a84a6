"""What leaves and what is held back, and the messages that follow: decided without clock, file or socket."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.delivery.gate import Gate
from detector.delivery.ledger import Message, Out, advance
from detector.delivery.notice import clean
from detector.outcome import GroupEvent, Incident
from detector.settings_delivery import DeliverySettings
from tests.delivery_bench import Bench, Catcher, Operators, cleared, outcome, suspect

T = 1_767_225_600.0


class Told:
    """What a receiver of messages and one of states would know."""

    def __init__(self, said: Operators | None = None, **values: Any) -> None:
        self.gate = Gate(DeliverySettings.model_validate(values), said or Operators())
        self.out: dict[str, Out] = {}
        self.messages: list[Message] = []
        self.withheld: dict[str, str] = {}

    def see(
        self, at: float, incidents: list[Incident], events: list[GroupEvent] | None = None,
        silent: list[Incident] | None = None, n_nodes: int = 40,
    ) -> list[tuple[str, str]]:  # fmt: skip
        told = outcome(at, incidents, events or [], n_nodes=n_nodes)
        suspects = [*(i for i in incidents if i.state == "suspect"), *(silent or [])]
        decision = self.gate.decide(told, suspects, self.out)
        self.out, made = advance(self.out, decision, told, at + 30)
        self.messages += made
        self.withheld = dict(decision.withheld)
        return [(message.event, message.notice.node or message.notice.kind) for message in made]

    def open(self) -> set[str]:
        return {item.notice.node or item.notice.kind for item in self.out.values() if item.closed_at is None}


def many(n: int, at: float = T, first: int = 0) -> list[Incident]:
    return [suspect(f"gpu{k:03d}", at) for k in range(first, first + n)]


def test_a_silent_suspect_stays_out() -> None:
    told = Told()
    item = suspect("gpu001", T)
    assert told.see(T, [item]) == [("suspect_raised", "gpu001")]
    assert told.see(T + 30, [], silent=[item]) == []
    assert told.open() == {"gpu001"}
    (kept,) = told.out.values()
    assert (kept.notice.pool, kept.notice.score) == ("main", 0.0)


def test_a_node_that_gets_a_better_name_stays_one_alert() -> None:
    told = Told()
    item = suspect("10.0.0.7", T)
    told.see(T, [item])
    assert told.see(T + 30, [replace(item, node="gpu007")]) == []
    assert told.open() == {"10.0.0.7"}


def test_suspects_up_to_the_share_of_a_pool_leave_and_more_become_one() -> None:
    told = Told(guard_share=0.1)
    assert len(told.see(T, many(4))) == 4
    extra = many(2, first=4)
    assert told.see(T + 30, [*many(4), *extra]) == [("group_event_opened", "too_many_suspects")]
    (one,) = [item.notice for item in told.out.values() if item.notice.kind == "too_many_suspects"]
    assert one.nodes == ("gpu004", "gpu005")
    assert "gpu004, gpu005" in one.summary
    assert "6 of 40 nodes" in one.reason
    assert set(told.withheld.values()) == {"guard"}
    # clearing is never held back, and what fits again leaves by itself
    ended = [cleared(item, T + 60) for item in many(2)]
    assert told.see(T + 60, [*many(2, first=2), *extra, *ended]) == [
        ("suspect_cleared", "gpu000"), ("suspect_cleared", "gpu001"),
        ("group_event_ended", "too_many_suspects"),
        ("suspect_raised", "gpu004"), ("suspect_raised", "gpu005"),
    ]  # fmt: skip


def test_a_burst_leaves_as_one_event_and_not_in_part() -> None:
    told = Told(guard_share=0.25)
    assert told.see(T, many(10, T), n_nodes=12) == [("group_event_opened", "too_many_suspects")]
    assert told.see(T + 30, many(11, T), n_nodes=12) == []
    (one,) = told.out.values()
    assert (one.notice.n_nodes, one.told_at) == (11, T)


def test_a_small_pool_may_have_one_suspect() -> None:
    assert Told(guard_share=0.25).see(T, many(1), n_nodes=3) == [("suspect_raised", "gpu000")]


def test_nodes_per_hour_are_counted_with_those_that_were_cleared_since() -> None:
    told = Told(guard_share=1.0, guard_nodes_per_hour=3)
    first = many(3)
    told.see(T, first)
    told.see(T + 600, [cleared(item, T + 600) for item in first])
    late = many(1, T + 1200, first=7)
    assert told.see(T + 1200, late) == [("group_event_opened", "too_many_suspects")]
    assert told.see(T + 3570, late) == []
    assert told.see(T + 3600, late) == [
        ("group_event_ended", "too_many_suspects"), ("suspect_raised", "gpu007"),
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 19)), min_size=1, max_size=12),
    st.sampled_from([0.05, 0.2, 0.5, 1.0]),
    st.integers(1, 12),
)
def test_the_guard_holds_whatever_comes(steps: list[set[int]], share: float, per_hour: int) -> None:
    told = Told(guard_share=share, guard_nodes_per_hour=per_hour)
    for k, odd in enumerate(steps):
        at = T + 30 * k
        told.see(at, [suspect(f"gpu{n:03d}", T) for n in sorted(odd)], n_nodes=20)
        out = {name for name in told.open() if name.startswith("gpu")}
        assert len(out) <= max(1, int(share * 20 + 1e-9))
        assert out <= {f"gpu{n:03d}" for n in odd}
        shown = {name for i in told.out.values() if i.closed_at is None for name in i.notice.nodes}
        assert shown == {f"gpu{n:03d}" for n in odd}
        raised = {m.notice.node for m in told.messages if m.event == "suspect_raised"}
        assert len(raised) <= per_hour
    ids = [message.id for message in told.messages]
    assert len(ids) == len(set(ids))


def test_rules_of_shadow_hold_what_fits_all_their_fields() -> None:
    rules = [{"pool": "main", "fault_class": "gpu_hot"}, {"kind": "job_slower"}, {"metric": "other"}]
    told = Told(shadow_rules=rules)
    slower = GroupEvent("b@1#whole", "b", T, None, ("x",), ("m",), "slower", kind="job_slower")
    unclassified = suspect("gpu002", T, diagnosis=None)
    assert told.see(T, [suspect("gpu001", T), unclassified], [slower]) == [("suspect_raised", "gpu002")]
    assert told.withheld == {suspect("gpu001", T).id: "shadow", slower.id: "shadow"}
    # one that is out stays out when its class is found later
    assert told.see(T + 30, [suspect("gpu001", T), suspect("gpu002", T)], [slower]) == []
    assert told.open() == {"gpu002"}


def test_a_mute_of_a_pool_holds_its_events_too() -> None:
    said = Operators()
    said.muted.add("pool:main")
    event = GroupEvent("main@1", "main", T, None, ("a",), ("m",), "moved")
    told = Told(said)
    assert told.see(T, [suspect("gpu001", T)], [event]) == []
    assert set(told.withheld.values()) == {"muted"}
    said.muted.clear()
    assert len(told.see(T + 30, [suspect("gpu001", T)], [event])) == 2
    said.muted.add("gpu001")
    assert told.see(T + 60, [suspect("gpu001", T)], [event]) == [("suspect_withdrawn", "gpu001")]


def test_a_group_event_that_an_earlier_process_left_open_ends_after_a_while() -> None:
    told = Told()
    event = GroupEvent("main@1", "main", T, None, ("a",), ("m",), "moved")
    told.see(T, [], [event])
    told.gate = Gate(DeliverySettings(), Operators())  # as after a restart
    for k in range(10):
        assert told.see(T + 600 + 30 * k, []) == []
    assert told.see(T + 900, []) == [("group_event_ended", "moved_together")]


def test_text_from_outside_is_one_bounded_line() -> None:
    assert clean("a\n\tb\x00 \ud800c") == "a b\x00 ?c"
    assert len(clean("x" * 10_000)) == 400


def test_shadow_sends_nothing_and_says_what_it_would(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oddnode.detector.delivery")
    with Catcher() as catcher:
        values = {"webhooks": [{"name": "hook", "url": catcher.url}], "alertmanagers": [{"url": catcher.url}]}
        drain = tmp_path / "drain"
        with Bench(tmp_path, shadow=True, drain_file=str(drain), **values) as bench:
            item = suspect("gpu001", T)
            bench.tell(outcome(T, [item]))
            bench.tell(outcome(T + 30, [item]))
            bench.wait_for_value("oddnode_delivery_out", lambda n: n == 1)
            assert bench.value("oddnode_delivery_shadow") == 1
            assert bench.store.open_incidents() == [item]
        assert caplog.text.count(f"would_send={item.id}/suspect_raised/{int(T)}") == 1
        assert catcher.got == []
        assert not drain.exists()
        # once it is over, the suspect that is still open is told
        with Bench(tmp_path, **values) as bench:
            bench.tell(outcome(T + 60, [item]))
            catcher.wait(1)
            assert bench.value("oddnode_delivery_shadow") == 0

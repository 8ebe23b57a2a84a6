"""What the nodes of a group event share, by their labels."""

from __future__ import annotations

from collections import Counter

from detector.core.group_events import GroupEvents
from detector.core.shared_cause import Member, shared_label


def rack(node: int) -> str:
    return f"r{node // 14}"


def members(n: int, odd: set[int], label: str = "rack") -> list[Member]:
    return [
        Member(f"n{k}", {label: rack(k), "instance": f"n{k}:9100", "job": "node"}, k in odd) for k in range(n)
    ]


def test_a_rack_whose_nodes_all_deviate_and_no_others_is_named():
    found = shared_label(members(56, set(range(14))), 56)
    assert found == "all 14 nodes with rack r0; none of the others"


def test_a_label_that_others_have_too_is_not_the_cause():
    assert shared_label(members(56, set(range(0, 56, 4))), 56) == ""
    assert shared_label(members(56, {3}), 56) == ""


def test_one_node_more_or_less_is_said():
    assert shared_label(members(56, set(range(13))), 56) == "13 of 14 nodes with rack r0; none of the others"
    assert shared_label(members(56, {*range(14), 40}), 56) == "all 14 nodes with rack r0; 1 of the others"


def test_an_export_is_named_when_the_same_nodes_other_export_is_well():
    every = [
        Member(f"n{k}", {"export": export, "operation": "WRITE"}, export == "10.0.0.5:/data")
        for k in range(20)
        for export in ("10.0.0.5:/data", "10.0.0.6:/ckpt")
    ]
    assert shared_label(every, 20) == "all 20 nodes with export 10.0.0.5:/data; nothing with another export"


def test_two_exports_of_one_server_are_the_server():
    every = [
        Member(f"n{k}", {"export": export}, export.startswith("10.0.0.5"))
        for k in range(20)
        for export in ("10.0.0.5:/a", "10.0.0.5:/b", "10.0.0.6:/c")
    ]
    assert shared_label(every, 20) == "all 20 nodes with server 10.0.0.5; nothing with another server"


def test_without_a_telling_label_all_nodes_are_the_whole_pool():
    plain = [Member(f"n{k}", {"job": "node"}, True) for k in range(20)]
    assert shared_label(plain, 20) == "the whole pool: 20 of 20 nodes"
    assert shared_label(plain[:5], 20) == ""
    assert shared_label([], 20) == ""


def test_the_cause_is_asked_only_when_an_event_opens_or_grows():
    events, asked = GroupEvents(), []

    def cause_of(pool: str) -> str:
        asked.append(pool)
        return "all 3 nodes with rack r1; none of the others"

    seen = {"p": ({"a", "b", "c"}, Counter({"m": 3}))}
    for k in range(6):
        told = events.step(seen, 30.0 * k, {"p": 9}, cause_of)
    assert asked == ["p"]
    assert told[0].cause == "all 3 nodes with rack r1; none of the others"
    assert told[0].reason.endswith("nobody is to blame; shared: all 3 nodes with rack r1; none of the others")
    events.step({"p": ({"a", "d"}, Counter({"m": 3}))}, 180.0, {"p": 9}, cause_of)
    assert asked == ["p", "p"]

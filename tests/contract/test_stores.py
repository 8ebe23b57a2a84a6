"""What every store does, whatever keeps it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from detector.control.model import Action, AuditEntry, Feedback, Mute, Repair, Verdict
from detector.delivery.ledger import Message, Out
from detector.delivery.notice import Notice
from detector.delivery.outbox import KEEP_S, Outbox
from detector.errors import StoreError
from detector.outcome import GroupEvent, Outcome
from detector.store_contract import IncidentFilter
from detector.store_control import ControlStore
from tests.contract.stores import Place
from tests.test_store import DAY, T0, incident, moved


def entry(action: Action = Action.MUTE) -> AuditEntry:
    return AuditEntry(at=T0, by="kim", action=action, subject="x")


def mute(name: str, until: float = T0 + 60, ended_at: float | None = None) -> Mute:
    return Mute(id=name, node="n", start=T0, until=until, reason="r", by="kim", made_at=T0, ended_at=ended_at)


def test_a_new_store_is_empty(place: Place) -> None:
    store = place.open()
    assert store.open_incidents() == []
    assert store.incidents() == []
    assert store.group_events() == []
    assert store.last_evaluation() is None
    assert store.snapshot() is None
    assert store.problem == ""


def test_what_is_saved_comes_back_after_a_restart(place: Place) -> None:
    item = incident()
    event = GroupEvent("busy@1", "busy", T0, None, ("a", "b"), ("m",), "2 of 3 nodes moved together")
    first = place.open()
    first.save(
        Outcome(T0, incidents=(item,), transitions=(moved(item, T0),), group_events=(event,)), b"\x00learnt"
    )
    first.close()
    second = place.open()
    assert second.open_incidents() == [item]
    assert second.incident(item.id) == item
    assert second.incident("none") is None
    assert second.transitions(incident_id=item.id) == [moved(item, T0)]
    assert second.transitions(since=T0 + 1) == []
    assert second.group_events() == [event]
    assert second.last_evaluation() == T0
    assert second.snapshot() == b"\x00learnt"


def test_what_is_known_is_written_over_and_never_twice(place: Place) -> None:
    store = place.open()
    item, cleared = incident(), incident(state="cleared")
    event = GroupEvent("busy@1", "busy", T0, None, ("a", "b"), ("m",), "2 of 3 nodes moved together")
    outcome = Outcome(T0, incidents=(item,), transitions=(moved(item, T0),), group_events=(event,))
    store.save(outcome, b"one")
    store.save(outcome)
    assert store.incidents() == [item]
    assert len(store.transitions()) == 1
    ended = replace(event, ended_at=T0 + 30)
    store.save(Outcome(T0 + 30, incidents=(cleared,), group_events=(ended,)))
    store.save(Outcome(T0 - 30))
    assert store.incidents() == [cleared]
    assert store.group_events() == [ended]
    assert store.open_incidents() == []
    assert store.snapshot() == b"one", "a save without one leaves it"
    assert store.last_evaluation() == T0 + 30, "it never goes back"


def test_filters(place: Place) -> None:
    store = place.open()
    first = incident("a", "cleared", T0)
    second = incident("b", "suspect", T0 + 1000)
    third = incident("a", "pending", T0 + 2000)
    store.save(Outcome(T0 + 2000, incidents=(first, second, third)))

    def ids(**wanted: object) -> list[str]:
        return [i.id for i in store.incidents(IncidentFilter(**wanted))]  # type: ignore[arg-type]

    assert ids() == [third.id, second.id, first.id]
    assert ids(node="a") == [third.id, first.id]
    assert ids(state="open") == [third.id, second.id]
    assert ids(state="cleared") == [first.id]
    assert ids(was_suspect=True) == [second.id, first.id]
    assert ids(until=T0 + 500) == [first.id]
    assert ids(since=T0 + 950) == [third.id, second.id]
    assert ids(node="a", state="cleared", since=T0, until=T0 + 10, was_suspect=True) == [first.id]
    assert store.count_incidents(IncidentFilter(node="a")) == 2
    assert store.count_incidents() == 3
    assert store.count_raised(T0 + 500) == 1
    assert [i.id for i in store.incidents(limit=1, offset=1)] == [second.id]
    assert ids(node="' OR 1=1 --") == []


def test_what_is_old_and_over_is_deleted(place: Place) -> None:
    store = place.open(retention_s=10 * DAY)
    old, still_open = incident("old", "cleared", T0), incident("open", "suspect", T0)
    events = (
        GroupEvent("e1", "busy", T0, T0 + 60, ("a",), ("m",), "over"),
        GroupEvent("e2", "busy", T0, None, ("a",), ("m",), "lasts"),
    )
    moves = (moved(old, T0), moved(still_open, T0))
    store.save(Outcome(T0, incidents=(old, still_open), transitions=moves, group_events=events))
    store.save(Outcome(T0 + 11 * DAY))
    assert [i.id for i in store.incidents()] == [still_open.id]
    assert [t.incident_id for t in store.transitions()] == [still_open.id]
    assert [e.id for e in store.group_events()] == ["e2"]


def test_what_is_refused_goes_with_the_next_evaluation(place: Place) -> None:
    store = place.open()
    store.save(Outcome(T0, incidents=(incident("before"),)))
    place.refuse(store, is_on=True)
    item = incident("kept")
    with pytest.raises(StoreError, match="cannot be written"):
        store.save(Outcome(T0 + 30, incidents=(item,), transitions=(moved(item, T0),)), b"blob")
    assert store.n_pending == 2
    assert "cannot be written" in store.problem
    place.refuse(store, is_on=False)
    assert [i.node for i in store.incidents()] == ["before"]
    assert store.last_evaluation() == T0
    store.save(Outcome(T0 + 60))
    assert {i.node for i in store.incidents()} == {"before", "kept"}
    assert store.transitions() == [moved(item, T0)]
    assert (store.problem, store.n_pending) == ("", 0)


def test_steps_of_one_moment_come_in_the_order_of_a_life(place: Place) -> None:
    store = place.open()
    item = incident("a")
    life = [moved(item, T0, *step) for step in (("clear", "pending"), ("pending", "suspect"))]
    for k in range(4):
        other = incident(f"b{k}")
        store.save(Outcome(T0 + k, incidents=(other,), transitions=(moved(other, T0),)))
    store.save(Outcome(T0 + 30, incidents=(item,), transitions=(life[1],)))
    store.save(Outcome(T0 + 60, incidents=(item,), transitions=(life[0],)))
    assert store.transitions(incident_id=item.id) == life
    assert [t for t in store.transitions() if t.node == "a"] == life


def test_a_small_change_takes_along_what_waits(place: Place) -> None:
    """Else a process that is killed next leaves an incident's end without its beginning."""
    store = place.open()
    place.refuse(store, is_on=True)
    item = incident("a")
    with pytest.raises(StoreError):
        store.save(Outcome(T0 + 30, incidents=(item,), transitions=(moved(item, T0),)))
    place.refuse(store, is_on=False)
    cleared = incident("a", "cleared")
    end = moved(item, T0 + 40, "suspect", "cleared")
    repair = Repair(node="a", at=T0 + 40, evaluated_at=T0 + 30)
    ControlStore(store).put_repair(repair, entry(Action.REPAIRED), [cleared], [end])
    assert store.incidents() == [cleared]
    assert store.transitions() == [moved(item, T0), end]
    assert store.last_evaluation() == T0 + 30
    assert (store.problem, store.n_pending) == ("", 0)


def test_one_evaluator_at_a_time(place: Place) -> None:
    first = place.open()
    with pytest.raises(StoreError, match="another evaluator"):
        place.open()
    first.close()
    place.open().save(Outcome(T0))


def test_a_closed_store_takes_nothing(place: Place) -> None:
    store = place.open()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.save(Outcome(T0))
    store.close()


def test_names_with_any_character(place: Place) -> None:
    store = place.open()
    names = ["ünï", "quote ' \"", "?1 $1 %s", "new\nline", "nul\0"]
    store.save(Outcome(T0, incidents=tuple(incident(name) for name in names)))
    assert len(store.incidents()) == len(names)
    for name in names:
        assert [i.node for i in store.incidents(IncidentFilter(node=name))] == [name], "found by its name"


def test_an_unreadable_row_does_not_hide_the_others(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    store = place.open()
    store.save(Outcome(T0, incidents=(incident("a"), incident("b"))))
    with store.writing() as session:
        session.execute("UPDATE incidents SET body = ?1 WHERE node = 'a'", (b'{"id": 1',))
    assert [i.node for i in store.incidents()] == ["b"]
    assert "unreadable" in caplog.text


def test_a_change_and_its_line_of_the_trail_are_one(place: Place) -> None:
    store = place.open()
    kept = ControlStore(store)
    broken = msgspec.structs.replace(entry(), by=None)  # refused by the table
    with pytest.raises(StoreError):
        kept.put_mute(mute("m-1"), broken)
    assert kept.mutes() == []
    kept.put_mute(mute("m-2"), entry())
    store.save(Outcome(T0))
    assert [m.id for m in kept.mutes()] == ["m-2"]
    store.close()
    with pytest.raises(StoreError, match="closed"):
        kept.put_mute(mute("m-3"), entry())


def test_the_trail_is_append_only(place: Place) -> None:
    store = place.open()
    kept = ControlStore(store)
    kept.put_mute(mute("m-1"), entry())
    kept.put_mute(mute("m-2"), entry(Action.ACKNOWLEDGE))
    for statement in ("UPDATE audit SET by = 'eve'", "DELETE FROM audit"):
        with pytest.raises(StoreError, match="append-only"), store.writing() as session:
            session.execute(statement)
    found = kept.audit(limit=10, offset=0)
    assert [(e.by, e.action) for e in found] == [("kim", Action.ACKNOWLEDGE), ("kim", Action.MUTE)]
    kept.put_entry(entry(Action.EXPORT))
    assert [e.action for e in kept.audit(limit=1, offset=0)] == [Action.EXPORT]
    assert found[0].number > found[1].number


def test_mutes_that_are_over(place: Place) -> None:
    store = place.open(retention_s=1000.0)
    kept = ControlStore(store)
    for one in (mute("old"), mute("ended", T0 + 5000, T0 + 10), mute("long", T0 + 5000)):
        kept.put_mute(one, entry())
    kept.put_mute(mute("long", T0 + 6000), entry())
    assert {m.id for m in kept.mutes(T0 + 30)} == {"old", "long"}
    assert kept.count_mutes() == 3
    store.save(Outcome(T0 + 2000))
    assert [(m.id, m.until) for m in kept.mutes()] == [("long", T0 + 6000)], "others go after the retention"
    assert kept.count_audit() == 4


def test_labels_get_their_end_whoever_comes_first(place: Place) -> None:
    store = place.open()
    kept = ControlStore(store)
    for name, cleared_first in (("a", False), ("b", True)):
        is_open = incident(name, active_at=T0)
        cleared = incident(name, "cleared", active_at=T0)
        label = Feedback(
            incident_id=is_open.id, node=name, start=T0, verdict=Verdict.FAULT, by="kim", at=T0 + 1
        )
        store.save(Outcome(T0, incidents=(is_open,)))
        if cleared_first:
            store.save(Outcome(T0 + 30, incidents=(cleared,)))
        kept.put_feedback(label, entry(Action.ACKNOWLEDGE))
        if not cleared_first:
            store.save(Outcome(T0 + 30, incidents=(cleared,)))
        found = next(f for f in kept.feedback() if f.node == name)
        assert found.end == cleared.cleared_at is not None, name
    assert kept.count_feedback() == 2
    assert kept.count_feedback(since=T0, until=T0) == 2
    assert kept.feedback(until=T0 - 1) == []
    assert kept.feedback(since=T0 + 1e6) == []


def test_the_newest_repair_counts_and_clears(place: Place) -> None:
    store = place.open()
    kept = ControlStore(store)
    item, cleared = incident("n"), incident("n", "cleared")
    store.save(Outcome(T0, incidents=(item,)), b"learnt")
    place.refuse(store, is_on=True)
    with pytest.raises(StoreError):
        store.save(Outcome(T0 + 30, incidents=(item,)))
    place.refuse(store, is_on=False)
    for at in (T0, T0 + 60):
        repair = Repair(node="n", at=at, evaluated_at=at)
        kept.put_repair(repair, entry(Action.REPAIRED), (cleared,), (moved(item, at, "suspect", "cleared"),))
    store.save(Outcome(T0 + 60))
    assert [r.at for r in kept.repairs()] == [T0 + 60]
    assert kept.snapshot_at() == T0
    assert store.incidents() == [cleared], "what waited does not undo it"
    assert kept.count_audit() == 2


def message(k: int) -> Message:
    return Message(id=f"m{k}", event="suspect_raised", at=T0, notice=notice())


def notice() -> Notice:
    return Notice(key="k", kind="suspect", node="n", opened_at=T0, since=T0, summary="s", reason="r")


def test_the_outbox_tells_each_receiver_each_message_once(place: Place) -> None:
    store = place.open()
    store.save(Outcome(T0))
    outbox = Outbox(store)
    outbox.register(["hook", "gone"])
    out = {"k": Out(notice(), T0)}
    outbox.record(out, [message(1), message(2)], T0)
    outbox.record(out, [message(2), message(3)], T0 + 1)
    assert outbox.out() == out
    outbox.register(["hook", "late"])
    told = []
    while (waiting := outbox.next("hook")) is not None:
        assert waiting.message is not None
        told.append(waiting.message.id)
        outbox.done("hook", waiting.seq)
    assert told == ["m1", "m2", "m3"]
    assert outbox.waiting("hook") == (0, None)
    assert outbox.next("late") is None, "it begins with what comes from now on"
    store.close()
    again = Outbox(place.open())
    again.record({}, [message(4)], T0 + 2)
    assert again.out() == {}
    assert again.waiting("late") == (1, T0 + 2)
    again.register([])
    assert again.waiting("hook")[0] == 4, "forgotten"
    again.record({}, [message(5)], T0 + 3 + KEEP_S)
    assert again.waiting("hook") == (1, T0 + 3 + KEEP_S)

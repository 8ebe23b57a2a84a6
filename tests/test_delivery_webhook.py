"""Webhooks: nothing lost, nothing out of order, keys that stay, signatures that hold."""

from __future__ import annotations

import hmac
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from detector.outcome import GroupEvent
from tests.delivery_bench import Bench, Catcher, Operators, cleared, now_s, outcome, suspect
from tests.servers import ScriptedServer, free_port, reply, wait_until

RECEIVER = '{receiver="webhook/hook"}'


def hooked(catcher: Catcher, **more: Any) -> dict[str, Any]:
    return {"webhooks": [{"name": "hook", "url": catcher.url, "timeout_s": 2, **more}]}


def keys(catcher: Catcher) -> list[str]:
    return [one.headers["idempotency-key"] for one in catcher.taken()]


def test_each_change_is_one_signed_request(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    at = 1_767_225_600.0
    incident = suspect("gpu007", at)
    event = GroupEvent("main@1767225600", "main", at, None, ("a", "b"), ("m",), "2 of 3 nodes moved")
    with (
        Catcher() as catcher,
        Bench(
            tmp_path, cluster="a", external_url="http://o", **hooked(catcher, secret_file=str(secret))
        ) as bench,
    ):
        bench.tell(outcome(at, [incident], [event]))
        bench.tell(outcome(at + 30, [incident], [event], score=3.0))
        catcher.wait(2)
        secret.write_text("another\n")
        gone = GroupEvent(event.id, "main", at, at + 60, ("a", "b"), ("m",), "2 of 3 nodes moved")
        bench.tell(outcome(at + 60, [cleared(incident, at + 60)], [gone]))
        got = catcher.wait(4)
        assert [one.json()["event"] for one in got] == [
            "suspect_raised", "group_event_opened", "suspect_cleared", "group_event_ended",
        ]  # fmt: skip
        assert keys(catcher) == [
            "gpu007@1767225600/suspect_raised/1767225600",
            "main@1767225600/group_event_opened/1767225600",
            "gpu007@1767225600/suspect_cleared/1767225660",
            "main@1767225600/group_event_ended/1767225660",
        ]
        first = got[0].json()
        assert first["id"] == keys(catcher)[0]
        assert (first["cluster"], first["link"]) == ("a", "http://o/nodes/gpu007")
        assert first["about"]["node"] == "gpu007"
        assert first["about"]["evidence"][0].startswith("GPU temperature 91 C")
        assert got[2].json()["why"] == "like its peers for 10 min of data"
        for number, one in enumerate(got):
            stamp = one.headers["x-oddnode-timestamp"]
            assert abs(int(stamp) - now_s()) < 60
            key = b"s3cret" if number < 2 else b"another"
            made = hmac.new(key, f"{stamp}.".encode() + one.body, sha256).hexdigest()
            assert one.headers["x-oddnode-signature"] == f"sha256={made}"
        bench.wait_for_value(f"oddnode_delivery_queue{RECEIVER}", lambda n: n == 0)
        assert bench.value(f"oddnode_delivery_sent_total{RECEIVER}") == 4


def test_a_burst_of_errors_and_silence_loses_nothing_and_keeps_the_order(tmp_path: Path) -> None:
    with (
        Catcher(statuses=[500, 502, 503, 0, 429, 200, 500, 200]) as catcher,
        Bench(tmp_path, **hooked(catcher, timeout_s=0.3)) as bench,
    ):
        at = now_s()
        incident = suspect("gpu007", at)
        bench.tell(outcome(at, [incident]))
        bench.tell(outcome(at + 600, [cleared(incident, at + 600)]))
        got = catcher.wait(2)
        assert [one.json()["event"] for one in got] == ["suspect_raised", "suspect_cleared"]
        tried = [one.headers["idempotency-key"] for one in catcher.got]
        assert tried == [keys(catcher)[0]] * 6 + [keys(catcher)[1]] * 2
        assert bench.value(f"oddnode_delivery_failed_total{RECEIVER}") == 6
        assert bench.value(f"oddnode_delivery_given_up_total{RECEIVER}") == 0


def test_a_restart_between_loses_nothing_and_tells_nothing_twice(tmp_path: Path) -> None:
    port = free_port()
    down = Catcher(port=port)
    at = now_s()
    first, second = suspect("gpu001", at), suspect("gpu002", at + 30)
    with Bench(tmp_path, **hooked(down)) as bench:
        bench.tell(outcome(at, [first]))
        bench.tell(outcome(at + 30, [first, second]))
        bench.wait_for_value(f"oddnode_delivery_queue{RECEIVER}", lambda n: n == 2)
        bench.wait_for_value(f"oddnode_delivery_failed_total{RECEIVER}", lambda n: n >= 1)
    with Bench(tmp_path, **hooked(down)) as bench, Catcher(port=port) as up:
        bench.tell(outcome(at + 60, [cleared(first, at + 60), second]))
        up.wait(3)
        assert keys(up) == [
            f"{first.id}/suspect_raised/{int(at)}",
            f"{second.id}/suspect_raised/{int(at + 30)}",
            f"{first.id}/suspect_cleared/{int(at + 60)}",
        ]
        bench.wait_for_value(f"oddnode_delivery_queue{RECEIVER}", lambda n: n == 0)
    with Bench(tmp_path, **hooked(down)) as bench, Catcher(port=port) as up:
        bench.tell(outcome(at + 90, [second]))
        bench.tell(outcome(at + 120, [cleared(second, at + 120)]))
        up.wait(1)
        assert keys(up) == [f"{second.id}/suspect_cleared/{int(at + 120)}"]


def test_a_process_killed_before_it_noted_a_message_sends_it_again_with_the_same_key(tmp_path: Path) -> None:
    at = now_s()
    with Catcher() as catcher, Bench(tmp_path, **hooked(catcher)) as bench:
        bench.tell(outcome(at, [suspect("gpu001", at)]))
        catcher.wait(1)
        bench.wait_for_value(f"oddnode_delivery_queue{RECEIVER}", lambda n: n == 0)
        before = catcher.got[0]
    with sqlite3.connect(tmp_path / "oddnode.db") as connection:
        connection.execute("UPDATE told_up_to SET seq = seq - 1")
    connection.close()
    with Catcher() as catcher, Bench(tmp_path, **hooked(catcher)):
        again = catcher.wait(1)[0]
        assert again.headers["idempotency-key"] == before.headers["idempotency-key"]
        assert again.body == before.body


def test_a_new_receiver_is_told_from_now_on_and_each_goes_on_where_it_was(tmp_path: Path) -> None:
    at = now_s()
    first = suspect("gpu001", at)
    with Catcher() as old, Catcher() as new:
        with Bench(tmp_path, **hooked(old)) as bench:
            bench.tell(outcome(at, [first]))
            old.wait(1)
        both = [{"name": "hook", "url": old.url}, {"name": "new", "url": new.url}]
        with Bench(tmp_path, webhooks=both) as bench:
            bench.tell(outcome(at + 30, [first]))
            bench.tell(outcome(at + 60, [cleared(first, at + 60)]))
            old.wait(2)
            new.wait(1)
        assert [one.json()["event"] for one in new.got] == ["suspect_cleared"]
        assert [one.json()["event"] for one in old.got] == ["suspect_raised", "suspect_cleared"]


@pytest.mark.parametrize("status", [400, 413])
def test_what_is_refused_for_good_is_given_up_at_once_and_the_next_is_told(
    tmp_path: Path, status: int
) -> None:
    with Catcher(statuses=[status]) as catcher, Bench(tmp_path, **hooked(catcher)) as bench:
        at = now_s()
        bench.tell(outcome(at, [suspect("gpu001", at)]))
        bench.tell(outcome(at + 30, [suspect("gpu001", at), suspect("gpu002", at + 30)]))
        assert catcher.wait(1)[0].json()["about"]["node"] == "gpu002"
        assert len(catcher.got) == 2
        assert bench.value(f"oddnode_delivery_given_up_total{RECEIVER}") == 1


def test_a_key_with_anything_in_it_is_a_header_and_a_message_beyond_words_holds_up_none(
    tmp_path: Path,
) -> None:
    with Catcher() as catcher, Bench(tmp_path, **hooked(catcher)) as bench:
        at = 1_767_225_600.0
        bench.tell(outcome(at, [suspect("gpu\r\n00\u20ac", at)]))
        assert keys(catcher) or catcher.wait(1)
        assert keys(catcher) == [f"gpu\\r\\n00\\u20ac@{int(at)}/suspect_raised/{int(at)}"]
    with sqlite3.connect(tmp_path / "oddnode.db") as connection:
        connection.execute("INSERT INTO outbox (id, made_at, body) VALUES ('bad', ?, x'00')", (now_s(),))
    connection.close()
    with Catcher() as catcher, Bench(tmp_path, **hooked(catcher)) as bench:
        bench.tell(outcome(at + 30, [suspect("gpu002", at + 30)]))
        assert [one.json()["event"] for one in catcher.wait(2)] == ["suspect_cleared", "suspect_raised"]
        assert bench.value(f"oddnode_delivery_given_up_total{RECEIVER}") == 1


@pytest.mark.parametrize("bound", [{"max_attempts": 3}, {"retry_for_s": 0.4}])
def test_trying_is_bounded_in_number_and_in_time(tmp_path: Path, bound: dict[str, Any]) -> None:
    with Catcher(statuses=[503] * 100) as catcher, Bench(tmp_path, **hooked(catcher, **bound)) as bench:
        at = now_s()
        bench.tell(outcome(at, [suspect("gpu001", at)]))
        bench.wait_for_value(f"oddnode_delivery_given_up_total{RECEIVER}", lambda n: n == 1)
        tries = len(catcher.got)
        assert tries == 3 if "max_attempts" in bound else 2 <= tries <= 6
        catcher.statuses.clear()
        bench.tell(outcome(at + 30, [suspect("gpu001", at), suspect("gpu002", at + 30)]))
        assert catcher.wait(1)[0].json()["about"]["node"] == "gpu002"


def test_no_secret_is_in_what_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token, secret = tmp_path / "token", tmp_path / "secret"
    token.write_text("t0ken-of-ours")
    secret.write_text("s3cret-of-ours")
    with Catcher(statuses=[403, 403, 403, 500]) as catcher:
        url = f"{catcher.url}/p4th-secret?key=qu3ry-secret"
        hook = {
            "name": "hook", "url": url, "bearer_token_file": str(token), "secret_file": str(secret),
            "headers": {"X-Key": "h3ader-secret"},
        }  # fmt: skip
        with Bench(tmp_path, webhooks=[hook]) as bench:
            at = now_s()
            bench.tell(outcome(at, [suspect("gpu001", at)]))
            got = catcher.wait(1)[0]
            metrics = bench.telemetry.text().decode()
    assert got.path == "/hook/p4th-secret?key=qu3ry-secret"
    assert got.headers["authorization"] == "Bearer t0ken-of-ours"
    assert got.headers["x-key"] == "h3ader-secret"
    assert "answered 403: access is forbidden" in caplog.text
    for text in ("t0ken", "s3cret", "p4th", "qu3ry", "h3ader"):
        assert text not in caplog.text + metrics


def test_a_redirect_to_another_host_gets_nothing_and_is_told_without_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken-of-ours")
    with ScriptedServer([reply(200, b"")]) as other:
        away = reply(307, b"", Location=f"{other.url}/elsewhere/p4th-secret?key=qu3ry-secret")
        with ScriptedServer([away, reply(200, b"")]) as asked:
            hook = {"name": "hook", "url": f"{asked.url}/p4th-secret", "bearer_token_file": str(token)}
            with Bench(tmp_path, webhooks=[hook]) as bench:
                bench.tell(outcome(now_s(), [suspect("gpu001")]))
                bench.wait_for_value(f"oddnode_delivery_sent_total{RECEIVER}", lambda n: n == 1)
                assert bench.value(f"oddnode_delivery_failed_total{RECEIVER}") == 1
        assert other.requests == []
    assert f"{asked.url} redirects to {other.url}, another host" in caplog.text
    for text in ("t0ken", "p4th", "qu3ry"):
        assert text not in caplog.text


def test_a_slow_receiver_slows_neither_the_tick_nor_another(tmp_path: Path) -> None:
    with Catcher(statuses=[0] * 50) as hanging, Catcher() as quick:
        both = [{"name": "a", "url": hanging.url, "timeout_s": 60}, {"name": "b", "url": quick.url}]
        bench = Bench(tmp_path, webhooks=both)
        at = now_s()
        told = outcome(at, [suspect("gpu001", at)])
        bench.tell(told)
        quick.wait(1)
        wait_until(lambda: bool(hanging.got), "the hanging one is asked")
        begun = now_s()
        for _ in range(100):
            bench.delivery.feed(told, [suspect("gpu001", at)])
        assert now_s() - begun < 1.0
        bench.end()  # a request that hangs is cut short
        assert now_s() - begun < 8.0


def test_mutes_dismissals_and_their_end(tmp_path: Path) -> None:
    said = Operators()
    with Catcher() as catcher, Bench(tmp_path, muted=said, **hooked(catcher)) as bench:
        at = now_s()
        one, two = suspect("gpu001", at), suspect("gpu002", at)
        said.muted.add("gpu001")
        bench.tell(outcome(at, [one, two]))
        assert catcher.wait(1)[0].json()["about"]["node"] == "gpu002"
        bench.wait_for_value('oddnode_delivery_withheld{reason="muted"}', lambda n: n == 1)

        said.dismissed.add(two.id)
        said.muted.clear()
        bench.tell(outcome(at + 30, [one, two]))
        withdrawn, raised = (item.json() for item in catcher.wait(3)[1:])
        assert (withdrawn["event"], withdrawn["about"]["node"]) == ("suspect_withdrawn", "gpu002")
        assert withdrawn["why"] == "it is dismissed"
        assert (raised["event"], raised["about"]["node"]) == ("suspect_raised", "gpu001")
        said.acknowledged.add(one.id)
        bench.tell(outcome(at + 60, [cleared(one, at + 60), two]))
        assert catcher.wait(4)[3].json()["event"] == "suspect_cleared"

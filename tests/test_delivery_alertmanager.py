"""Alerts in a real Alertmanager: they arrive, stay, resolve; through outages of it and restarts of ours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from detector.outcome import GroupEvent
from tests import servers
from tests.delivery_bench import HOT, SLOW, Bench, Catcher, cleared, get_json, now_s, outcome, suspect
from tests.servers import Server, wait_until

pytestmark = pytest.mark.server

LINK = "https://oddnode.example.com"


@pytest.fixture
def pager() -> Iterator[Catcher]:
    """What Alertmanager tells."""
    with Catcher() as catcher:
        yield catcher


@pytest.fixture
def manager(tmp_path: Path, pager: Catcher) -> Iterator[Server]:
    with servers.alertmanager(tmp_path / "am", pager.url) as server:
        yield server


def alerts(server: Server) -> list[dict[str, Any]]:
    found = get_json(server.port, "/api/v2/alerts")
    assert isinstance(found, list)
    return found


def wait_for(server: Server, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(alerts(server)) == count, f"{count} alerts are open")
    return alerts(server)


def told(pager: Catcher, status: str) -> list[dict[str, Any]]:
    return [alert for one in list(pager.got) for alert in one.json()["alerts"] if alert["status"] == status]


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def test_a_suspect_arrives_with_evidence_and_link_stays_and_resolves(
    tmp_path: Path, manager: Server, pager: Catcher
) -> None:
    settings = {
        "alertmanagers": [{"url": manager.url}],
        "resend_s": 1,
        "external_url": LINK,
        "cluster": "a",
        "labels": {"team": "gpu"},
    }
    with Bench(tmp_path, **settings) as bench:
        at = now_s()
        incident = suspect("gpu 007/é", at)
        bench.tell(outcome(at, [incident]))
        (alert,) = wait_for(manager, 1)
        labels = {
            "alertname": "OddnodeSuspect", "node": "gpu 007/é", "pool": "main", "cluster": "a", "team": "gpu",
        }  # fmt: skip
        assert alert["labels"] == labels
        said = alert["annotations"]
        assert said["evidence"] == f"{HOT}\n{SLOW}"
        assert said["summary"].startswith(
            "gpu 007/é, part gpu 3 deviates from its peers: GPU temperature 91 C"
        )
        assert (said["likely"], said["check"]) == ("GPU too hot (likely)", "look at the fans of GPU 3")
        assert said["score"] == "2 (highest 2.5; 1 is the threshold)"
        assert epoch(said["since"]) == pytest.approx(at - 240, abs=0.01)
        assert alert["generatorURL"] == f"{LINK}/nodes/gpu%20007%2F%C3%A9"
        assert epoch(alert["startsAt"]) == pytest.approx(at, abs=0.01)
        assert at + 4 <= epoch(alert["endsAt"]) <= now_s() + 4

        # nothing is evaluated for a while, and the score changes: the same alert stays
        wait_until(lambda: epoch(alerts(manager)[0]["endsAt"]) > at + 7, "it is sent again and again")
        bench.tell(outcome(now_s(), [incident], score=3.25))
        wait_until(
            lambda: alerts(manager)[0]["annotations"]["score"].startswith("3.25"), "the score is newer"
        )
        assert [one["labels"] for one in alerts(manager)] == [labels]

        ended = now_s()
        bench.tell(outcome(ended, [cleared(incident, ended)]))
        wait_for(manager, 0)
        wait_until(lambda: bool(told(pager, "resolved")), "the pager is told that it is over")
        assert epoch(told(pager, "resolved")[0]["endsAt"]) == pytest.approx(ended, abs=0.01)
        assert len(told(pager, "firing")) == 1
        receiver = f'{{receiver="alertmanager/127.0.0.1:{manager.port}"}}'
        n_sent = bench.value(f"oddnode_delivery_sent_total{receiver}") or 0
        bench.wait_for_value(f"oddnode_delivery_sent_total{receiver}", lambda n: n > n_sent + 1)
        assert bench.value(f"oddnode_delivery_queue{receiver}") == 0
        assert bench.value(f"oddnode_delivery_failed_total{receiver}") == 0
        assert len(told(pager, "resolved")) == 1


def test_group_events_have_alerts_of_their_own(tmp_path: Path, manager: Server) -> None:
    at = now_s()
    nodes = tuple(f"gpu{n:03d}" for n in range(60))
    together = GroupEvent(
        f"main@{int(at)}", "main", at, None, nodes, ("m1", "m2"), "60 of 90 nodes moved", "rack r7"
    )
    slower = GroupEvent(f"b@{int(at)}#whole", "b", at, None, ("x", "y"), ("m3",), "slower", kind="job_slower")
    with Bench(tmp_path, alertmanagers=[{"url": manager.url}], external_url=f"{LINK}/") as bench:
        bench.tell(outcome(at, (), [together, slower]))
        found = {alert["labels"]["alertname"]: alert for alert in wait_for(manager, 2)}
        one = found["OddnodeGroupEvent"]
        assert one["labels"] == {"alertname": "OddnodeGroupEvent", "pool": "main", "kind": "moved_together"}
        assert one["annotations"]["cause"] == "rack r7"
        assert one["annotations"]["nodes"].startswith("gpu000, gpu001, ")
        assert one["annotations"]["nodes"].count(",") == 49
        assert one["generatorURL"] == f"{LINK}/v1/groups"
        whole = found["OddnodePoolEvent"]
        assert whole["labels"] == {"alertname": "OddnodePoolEvent", "pool": "b", "kind": "job_slower"}
        assert "score" not in whole["annotations"]


def test_an_alertmanager_that_was_away_is_told_when_it_is_back(tmp_path: Path, pager: Catcher) -> None:
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    receiver = f'{{receiver="alertmanager/127.0.0.1:{port}"}}'
    with Bench(tmp_path, alertmanagers=[{"url": url}], resend_s=1) as bench:
        at = now_s()
        first, second = suspect("gpu001", at), suspect("gpu002", at)
        bench.tell(outcome(at, [first, second]))
        bench.wait_for_value(f"oddnode_delivery_failed_total{receiver}", lambda n: n >= 2)
        assert bench.value(f"oddnode_delivery_queue{receiver}") == 1
        assert (bench.value(f"oddnode_delivery_oldest_seconds{receiver}") or 0) > 0
        with servers.alertmanager(tmp_path / "am", pager.url, port) as server:
            assert {alert["labels"]["node"] for alert in wait_for(server, 2)} == {"gpu001", "gpu002"}
            bench.wait_for_value(f"oddnode_delivery_queue{receiver}", lambda n: n == 0)
        # one is cleared while it is away again: it hears of that too
        ended = now_s()
        bench.tell(outcome(ended, [cleared(first, ended), second]))
        with servers.alertmanager(tmp_path / "am", pager.url, port) as server:
            assert [alert["labels"]["node"] for alert in wait_for(server, 1)] == ["gpu002"]


def test_two_alertmanagers_get_everything_and_a_dead_third_holds_up_none(
    tmp_path: Path, manager: Server, pager: Catcher
) -> None:
    with servers.alertmanager(tmp_path / "am2", pager.url) as other, Catcher(statuses=[0] * 50) as hanging:
        urls = [{"url": url} for url in (f"http://127.0.0.1:{hanging.port}", manager.url, other.url)]
        with Bench(tmp_path, alertmanagers=urls, resend_s=1) as bench:
            at = now_s()
            bench.tell(outcome(at, [suspect("gpu001", at)]))
            for server in (manager, other):
                assert wait_for(server, 1)[0]["labels"]["node"] == "gpu001"
            wait_until(lambda: bool(hanging.got), "the hanging one is asked")


def test_a_restart_keeps_alerts_and_resolves_those_that_ended(tmp_path: Path, manager: Server) -> None:
    settings: dict[str, Any] = {"alertmanagers": [{"url": manager.url}], "resend_s": 1}
    at = now_s()
    stays, ends = suspect("gpu001", at), suspect("gpu002", at)
    with Bench(tmp_path, **settings) as bench:
        bench.tell(outcome(at, [stays, ends]))
        wait_for(manager, 2)
    with Bench(tmp_path, **settings) as bench:
        # before its first evaluation it tells what was out
        wait_until(
            lambda: min(epoch(one["endsAt"]) for one in alerts(manager)) > now_s() + 3, "it is sent on"
        )
        later = now_s()
        bench.tell(outcome(later, [cleared(ends, later)]), silent=[stays])
        assert [alert["labels"]["node"] for alert in wait_for(manager, 1)] == ["gpu001"]

"""What others are sent in their own forms, and scores in a real VictoriaMetrics."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from detector.delivery.formats import FORMS, drain_line
from detector.delivery.ledger import Message
from detector.delivery.notice import Notice, of_suspect
from detector.delivery.write_back import MAX_WAITING
from detector.outcome import GroupEvent, Outcome, Status, Verdict
from detector.settings_delivery import DeliverySettings
from tests import servers
from tests.delivery_bench import Bench, Catcher, cleared, get_json, now_s, outcome, suspect
from tests.servers import wait_until

T = 1_767_225_600.0


def hook(catcher: Catcher, form: str) -> dict[str, Any]:
    return {"name": form, "format": form, "url": f"http://127.0.0.1:{catcher.port}/base"}


def notice(**changes: Any) -> Notice:
    made = of_suspect(suspect("gpu007", T), None, acknowledged=False)
    return Notice(**{name: getattr(made, name) for name in made.__struct_fields__} | changes)


def test_a_drain_line_is_one_command_of_plain_characters() -> None:
    line = drain_line(notice())
    assert line is not None
    words = shlex.split(line)
    assert words[:4] == ["scontrol", "update", "nodename=gpu007", "state=drain"]
    assert words[4].startswith(
        "reason=oddnode: gpu007, part gpu 3 deviates from its peers: GPU temperature 91 C"
    )


@pytest.mark.parametrize(
    "name",
    [
        "gpu007; reboot",
        "gpu$(id)",
        "",
        "-all",
        "gpu007 state=down",
        'a"b',
        "gpu\n007",
        "gpu[001-100]",
        "ALL,*",
        "é",
    ],
)
def test_a_name_that_is_no_plain_one_is_never_put_into_a_command(name: str) -> None:
    assert drain_line(notice(node=name)) is None


@pytest.mark.parametrize(
    "text", ['"; reboot; "', "$(reboot)", "`reboot`", "\\", "a\nreboot", "!!", "é\u2028x", "'"]
)
def test_a_reason_cannot_leave_its_quotes(text: str) -> None:
    line = drain_line(notice(summary=text))
    assert line is not None
    assert line.isascii()
    assert len(line.splitlines()) == 1
    words = shlex.split(line)
    assert len(words) == 5
    assert not set(line.partition("reason=")[2][1:-1]) & set("\"'`$\\!\n;|&<>") - {";"}


def test_drain_lines_are_appended_for_raised_suspects_only(tmp_path: Path) -> None:
    file = tmp_path / "drain"
    first, second = suspect("a/gpu001", T), suspect("gpu002", T)
    with Bench(tmp_path, drain_file=str(file)) as bench:
        bench.tell(outcome(T, [first]))
        bench.tell(
            outcome(T + 30, [cleared(first, T + 30), second], [GroupEvent("p", "p", T, None, (), (), "x")])
        )
        bench.wait_for_value('oddnode_delivery_sent_total{receiver="drain_file"}', lambda n: n == 2)
    assert [line.split()[2] for line in file.read_text().splitlines()] == [
        "nodename=gpu001",
        "nodename=gpu002",
    ]


def test_other_forms_are_what_their_readers_take(tmp_path: Path) -> None:
    with Catcher() as catcher:
        hooks = [hook(catcher, form) for form in FORMS if form != "json"]
        with Bench(tmp_path, webhooks=hooks, cluster="c", external_url="http://o") as bench:
            item = suspect("gpu007", T)
            bench.tell(outcome(T, [item], [GroupEvent("main@1", "main", T, None, ("a",), ("m",), "moved")]))
            catcher.wait(4)
            bench.tell(outcome(T + 60, [cleared(item, T + 60)]))
            got = catcher.wait(7)
            wait_until(
                lambda: all(
                    bench.value(f'oddnode_delivery_queue{{receiver="webhook/{one["name"]}"}}') == 0
                    for one in hooks
                ),
                "nothing waits",
            )
        assert len(catcher.got) == 7
    by_path: dict[str, list[Any]] = {}
    for one in got:
        by_path.setdefault(f"{one.method} {one.path} {one.headers['content-type']}", []).append(one)
    condition = by_path.pop("PATCH /base/api/v1/nodes/gpu007/status application/strategic-merge-patch+json")
    (raised,), (after,) = (one.json()["status"]["conditions"] for one in condition)
    assert (raised["type"], raised["status"], raised["reason"]) == (
        "OddnodeSuspect",
        "True",
        "DeviatesFromPeers",
    )
    assert raised["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert (after["status"], after["reason"]) == ("False", "Cleared")
    events = [
        one.json() for one in by_path.pop("POST /base/api/v1/namespaces/default/events application/json")
    ]
    assert [event["type"] for event in events] == ["Warning", "Normal"]
    assert [event["reason"] for event in events] == ["OddnodeSuspect", "OddnodeSuspectCleared"]
    assert events[0]["involvedObject"]["name"] == "gpu007"
    assert events[0]["metadata"]["name"] != events[1]["metadata"]["name"]
    (line,) = by_path.pop("POST /base text/plain; charset=utf-8")
    assert line.body.startswith(b"scontrol update nodename=gpu007 state=drain ")
    health = [one.json()["events"][0] for one in by_path.pop("POST /base application/json")]
    assert by_path == {}
    assert [(event["isHealthy"], event["recommendedAction"]) for event in health] == [
        (False, "UNKNOWN"), (True, "NONE"),
    ]  # fmt: skip
    assert health[0]["entitiesImpacted"] == [{"entityType": "GPU", "entityValue": "3"}]
    assert (health[0]["nodeName"], health[0]["processingStrategy"]) == ("gpu007", "STORE_ONLY")
    assert health[0]["metadata"]["link"] == "http://o/nodes/gpu007"


def test_an_event_that_exists_already_was_told(tmp_path: Path) -> None:
    with (
        Catcher(statuses=[409]) as catcher,
        Bench(tmp_path, webhooks=[hook(catcher, "kubernetes_event")]) as bench,
    ):
        bench.tell(outcome(T, [suspect("gpu007", T)]))
        receiver = '{receiver="webhook/kubernetes_event"}'
        bench.wait_for_value(f"oddnode_delivery_sent_total{receiver}", lambda n: n == 1)
        assert bench.value(f"oddnode_delivery_failed_total{receiver}") == 0


@pytest.mark.parametrize("name", ["../../pods", "gpu 7", "GPU/..", "x?y", "a#b", "x" * 300])
def test_a_name_that_kubernetes_does_not_have_is_no_path(name: str) -> None:
    message = Message(id="x", event="suspect_raised", at=T, notice=notice(node=name))
    for form in ("kubernetes_condition", "kubernetes_event"):
        request = FORMS[form](message, DeliverySettings())
        assert request is None or ".." not in request.suffix.split("/")


@pytest.mark.server
def test_scores_are_written_back_to_a_database_that_comes_up_late(tmp_path: Path) -> None:
    port = servers.free_port()
    step = 30.0
    start = now_s() // step * step - 600
    verdicts = (
        Verdict('od"d\\', "main", Status.SUSPECT, 2.5),
        Verdict("gpu001", "main", Status.CLEAR, 0.125),
    )
    receiver = '{receiver="write_back"}'
    values = {"write_back": {"url": f"http://127.0.0.1:{port}"}, "cluster": "c", "shadow": True}
    with Bench(tmp_path, **values) as bench:
        for k in range(3):
            bench.tell(Outcome(start + step * k, verdicts))
        bench.wait_for_value(f"oddnode_delivery_failed_total{receiver}", lambda n: n >= 1)
        bench.wait_for_value(f"oddnode_delivery_queue{receiver}", lambda n: n == 3)
        with servers.victoria_metrics(tmp_path / "vm", port=port) as vm:
            bench.wait_for_value(f"oddnode_delivery_sent_total{receiver}", lambda n: n == 3)
            assert servers.answers(vm.port, "/internal/force_flush")
            asked = f"/api/v1/query_range?query=oddnode_node_score&start={start}&end={start + 60}&step=30s"
            found = get_json(vm.port, asked)["data"]["result"]
            by_node = {series["metric"].pop("node"): series for series in found}
            assert set(by_node) == {'od"d\\', "gpu001"}
            odd = by_node['od"d\\']
            assert odd["metric"] == {"__name__": "oddnode_node_score", "pool": "main", "cluster": "c"}
            assert [(at, float(value)) for at, value in odd["values"]] == [
                (start + step * k, 2.5) for k in range(3)
            ]


def test_scores_that_nobody_takes_are_bounded(tmp_path: Path) -> None:
    receiver = '{receiver="write_back"}'
    with Bench(tmp_path, write_back={"url": f"http://127.0.0.1:{servers.free_port()}"}) as bench:
        for k in range(MAX_WAITING + 5):
            bench.delivery.feed(Outcome(T + k, (Verdict("a", "p", Status.CLEAR, 0.0),)), ())
        bench.wait_for_value(f"oddnode_delivery_given_up_total{receiver}", lambda n: n == 5)
        assert bench.value(f"oddnode_delivery_queue{receiver}") == MAX_WAITING

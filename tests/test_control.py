"""What operators do, through the REST interface of a scripted service, and what it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import api.suspects
from detector.control.mutes import MAX_LIVE
from detector.errors import StoreError
from detector.outcome import Evidence, Layer, Outcome
from detector.store import Store
from tests.control_fakes import FAULTY, LOCAL, OTHER, Cluster, suspects
from tests.service_fakes import STEP, T0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "oddnode.db").run(4)
    yield made
    made.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[TestClient]:
    with cluster.client() as made:
        yield made


def post(client: TestClient, path: str, body: dict[str, Any] | None = None, status: int = 200) -> Any:
    answer = client.post(path, json=body or {})
    assert answer.status_code == status, answer.text
    return answer.json()


def told(answer: Any) -> str:
    return str(answer["error"]["message"])


def test_an_acknowledged_suspect_stays_and_says_by_whom(client: TestClient) -> None:
    incident = suspects(client)[FAULTY]["incident_id"]
    assert suspects(client)[FAULTY]["acknowledged"] is None
    made = post(client, f"/v1/incidents/{incident}/acknowledge", {"by": "kim", "note": "RMA\nopened"})
    assert made["feedback"]["verdict"] == "fault"
    found = suspects(client)
    assert found[FAULTY]["acknowledged"] == {"by": "kim", "at": T0 + 4 * STEP, "note": "RMA\nopened"}
    assert found[OTHER]["acknowledged"] is None
    assert client.get(f"/v1/incidents/{incident}").json()["incident"]["acknowledged"]["by"] == "kim"


def test_a_dismissed_incident_leaves_the_suspects_until_it_has_cleared(
    client: TestClient, cluster: Cluster
) -> None:
    incident = suspects(client)[FAULTY]["incident_id"]
    post(client, f"/v1/incidents/{incident}/dismiss", {"by": "kim", "reason": "checkpoint writer"})
    assert set(suspects(client)) == {OTHER}
    shown = client.get(f"/v1/incidents/{incident}").json()["incident"]
    assert (shown["state"], shown["dismissed"]["reason"]) == ("suspect", "checkpoint writer")
    assert client.get(f"/v1/nodes/{FAULTY}").json()["node"]["dismissed"]["by"] == "kim"
    ranked = client.get("/v1/offenders?least=1").json()["offenders"]
    assert [one["node"] for one in ranked] == [OTHER]
    cluster.run(10)
    assert set(suspects(client)) == {OTHER}, "the same evidence does not bring it back"
    assert 'oddnode_suspect{node="a/gpu01"} 0.0' in client.get("/metrics").text
    assert 'oddnode_suspect_muted{node="a/gpu01"}' not in client.get("/metrics").text
    cluster.run(20)
    assert suspects(client) == {}
    (label,) = client.get("/v1/feedback").json()["feedback"]
    assert (label["verdict"], label["note"], label["end"]) == ("false_alarm", "checkpoint writer", T0 + 900)


def test_acknowledging_takes_a_dismissal_back(client: TestClient) -> None:
    incident = suspects(client)[FAULTY]["incident_id"]
    post(client, f"/v1/incidents/{incident}/dismiss", {"reason": "wrong"})
    post(client, f"/v1/incidents/{incident}/acknowledge")
    assert set(suspects(client)) == {FAULTY, OTHER}
    assert client.get("/v1/feedback").json()["total"] == 1
    assert [e["action"] for e in client.get("/v1/audit").json()["entries"]] == ["acknowledge", "dismiss"]


def evidence(metric: str, layer: Layer, target: str, since: float, value: float = 1.0) -> Evidence:
    return Evidence(metric, {}, "gpu 3", layer, "odd", 1.5, value, None, None, since, 9, target)


@pytest.mark.parametrize(
    ("item", "comes_back"),
    [
        (evidence("temp", Layer.PEER, "GPU", T0), False),
        (evidence("power", Layer.PEER, "GPU", T0), False),
        (evidence("nfs", Layer.PEER, "NFS", T0), False),
        (evidence("nfs", Layer.PEER, "NFS", T0 - 300), True),
        (evidence("xid", Layer.DIRECT, "GPU", T0, 13.0), False),
        (evidence("xid", Layer.DIRECT, "GPU", T0, 79.0), True),
    ],
    ids=["same", "same target", "new target, young", "new target, lasting", "same code", "other code"],
)
def test_what_brings_a_dismissed_incident_back(
    client: TestClient, cluster: Cluster, item: Evidence, comes_back: bool
) -> None:
    known = (evidence("temp", Layer.PEER, "GPU", T0), evidence("xid", Layer.DIRECT, "GPU", T0, 13.0))
    cluster.pipeline.evidence = {FAULTY: known}
    cluster.run(1)
    incident = suspects(client)[FAULTY]["incident_id"]
    post(client, f"/v1/incidents/{incident}/dismiss", {"reason": "wrong"})
    cluster.pipeline.evidence = {FAULTY: (*known, item)}
    cluster.run(1)
    assert (FAULTY in suspects(client)) == comes_back
    (label,) = client.get("/v1/feedback").json()["feedback"]
    assert (label["lifted_at"] is not None) == comes_back
    actions = [e["action"] for e in client.get("/v1/audit").json()["entries"]]
    assert actions == (["reopen", "dismiss"] if comes_back else ["dismiss"])


def test_a_muted_node_stays_visible_and_marked(client: TestClient, cluster: Cluster) -> None:
    made = post(client, "/v1/mutes", {"node": FAULTY, "for_s": 3600, "reason": "swap", "by": "kim"}, 201)
    mute = made["mute"]
    assert (mute["state"], mute["until"] - mute["start"]) == ("active", 3600)
    found = suspects(client)
    assert found[FAULTY]["muted"] == {
        "id": mute["id"], "until": mute["until"], "reason": "swap", "by": "kim"
    }  # fmt: skip
    assert found[OTHER]["muted"] is None
    assert cluster.desk.mute_of(FAULTY, "p", cluster.clock.t) is not None
    assert cluster.desk.mute_of(FAULTY, "p", mute["until"]) is None, "the end does not belong to it"
    ended = client.delete(f"/v1/mutes/{mute['id']}?by=kim&note=done")
    assert ended.json()["mute"]["state"] == "over"
    assert suspects(client)[FAULTY]["muted"] is None
    assert client.delete(f"/v1/mutes/{mute['id']}").status_code == 404
    assert client.get("/v1/mutes").json()["total"] == 0
    assert client.get("/v1/mutes?ended=true").json()["mutes"][0]["ended_by"] == "kim"


def test_alert_rules_see_who_is_muted(client: TestClient, cluster: Cluster) -> None:
    def told() -> dict[str, str]:
        lines = client.get("/metrics").text.splitlines()
        found = [line.split('"') for line in lines if line.startswith("oddnode_suspect_muted{")]
        return {node: value for _, node, value in found}

    assert told() == {FAULTY: "} 0.0", OTHER: "} 0.0"}
    made = post(client, "/v1/mutes", {"pool": "p", "node": OTHER, "for_s": 600, "reason": "x"}, 201)
    cluster.run(2)
    assert told() == {FAULTY: "} 0.0", OTHER: "} 1.0"}
    assert 'oddnode_suspect{node="gpu002"} 1.0' in client.get("/metrics").text, "it still is one"
    client.delete(f"/v1/mutes/{made['mute']['id']}?by=kim")
    cluster.run(1)
    assert told() == {FAULTY: "} 0.0", OTHER: "} 0.0"}
    cluster.run(40)
    assert told() == {}, "both are clear"


def test_a_pool_mute_and_a_combination(client: TestClient) -> None:
    post(client, "/v1/mutes", {"pool": "p", "node": OTHER, "for_s": 60, "reason": "x"}, 201)
    assert [n for n, s in suspects(client).items() if s["muted"]] == [OTHER]
    post(client, "/v1/mutes", {"pool": "p", "for_s": 90, "reason": "rack work"}, 201)
    assert {s["muted"]["reason"] for s in suspects(client).values()} == {"rack work"}, "the longest is told"


def test_a_maintenance_window_begins_later(client: TestClient, cluster: Cluster) -> None:
    start = cluster.clock.t + 600
    made = post(client, "/v1/mutes", {"node": OTHER, "start": start, "for_s": 60, "reason": "fw"}, 201)
    assert made["mute"]["state"] == "planned"
    assert suspects(client)[OTHER]["muted"] is None
    cluster.clock.t = start
    assert suspects(client)[OTHER]["muted"] is not None
    cluster.clock.t = start + 60
    assert suspects(client)[OTHER]["muted"] is None


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"node": OTHER, "reason": "x"}, 422, "needs its end"),
        ({"node": OTHER, "reason": "x", "for_s": 60, "until": T0 + 999}, 422, "needs its end"),
        ({"reason": "x", "for_s": 60}, 422, "a node, a pool or a metric"),
        ({"node": OTHER, "for_s": 60}, 422, "reason"),
        ({"node": OTHER, "for_s": 60, "reason": "  "}, 422, "reason must not be empty"),
        ({"node": OTHER, "for_s": 86400 * 32, "reason": "x"}, 422, "31 days at most"),
        ({"node": OTHER, "until": T0, "reason": "x"}, 422, "is not after the start"),
        ({"pool": "p", "apart": True, "for_s": 60, "reason": "x"}, 422, "apart: goes with a node"),
        ({"node": OTHER, "start": T0 - 999, "for_s": 60, "reason": "x"}, 422, "in the past"),
        ({"node": OTHER, "start": T0 + 86400 * 400, "for_s": 60, "reason": "x"}, 422, "days ahead"),
        ({"node": "nobody", "for_s": 60, "reason": "x"}, 404, "node 'nobody' is not known"),
        ({"pool": "none", "for_s": 60, "reason": "x"}, 404, "pool 'none' is not known"),
        ({"metric": "none", "for_s": 60, "reason": "x"}, 404, "metric 'none' is not known"),
        ({"node": "a\nb", "for_s": 60, "reason": "x"}, 422, "control characters"),
        ({"node": OTHER, "for_s": 60, "reason": "x" * 501}, 422, "at most 500"),
        ({"node": OTHER, "for_s": 60, "reason": "x", "more": 1}, 422, "more"),
    ],
)
def test_mutes_that_are_refused(client: TestClient, body: dict[str, Any], status: int, message: str) -> None:
    assert message in told(post(client, "/v1/mutes", body, status))
    assert client.get("/v1/audit").json()["total"] == 0, "what was refused is not in the trail"


def test_a_node_is_muted_apart(client: TestClient, cluster: Cluster) -> None:
    post(client, "/v1/mutes", {"node": FAULTY, "for_s": 60, "reason": "stays a peer"}, 201)
    made = post(client, "/v1/mutes", {"node": OTHER, "apart": True, "for_s": 60, "reason": "swap"}, 201)[
        "mute"
    ]
    assert made["apart"] is True
    assert [m.node for m in cluster.desk.detection_mutes(made["start"])] == [OTHER]
    assert cluster.desk.detection_mutes(made["until"]) == []
    assert f"node {OTHER}, apart" in client.get("/v1/audit").json()["entries"][0]["subject"]


def test_mutes_are_bounded_in_number(cluster: Cluster, client: TestClient) -> None:
    mute = cluster.desk.mute
    made = post(client, "/v1/mutes", {"node": OTHER, "for_s": 60, "reason": "x"}, 201)["mute"]
    from detector.control.model import Mute

    one = Mute(id="", node=OTHER, start=made["start"], until=made["until"], reason="x", by="y", made_at=0)
    for _ in range(MAX_LIVE - 1):
        mute(one)
    assert "end some first" in told(
        post(client, "/v1/mutes", {"node": OTHER, "for_s": 60, "reason": "x"}, 409)
    )


def test_a_repaired_node_is_cleared_and_judged_afresh(client: TestClient, cluster: Cluster) -> None:
    incident = suspects(client)[FAULTY]["incident_id"]
    done = post(client, f"/v1/nodes/{FAULTY}/repaired", {"by": "kim", "note": "new GPU"})
    assert (done["node"], done["cleared"]) == (FAULTY, incident)
    assert set(suspects(client)) == {OTHER}
    shown = client.get(f"/v1/incidents/{incident}").json()
    assert shown["incident"]["state"] == "cleared"
    assert shown["transitions"][-1]["reason"] == "repaired, said kim: new GPU"
    assert client.get(f"/v1/nodes/{FAULTY}").json()["node"]["status"] == "undetermined"
    assert cluster.pipeline.forgotten == [(FAULTY, cluster.clock.t)]
    cluster.run(2)
    again = suspects(client)[FAULTY]["incident_id"]
    assert again != incident, "a fault that is still there is a new incident"
    assert client.get(f"/v1/incidents/{incident}").json()["incident"]["state"] == "cleared"
    assert "not known" in told(post(client, "/v1/nodes/nobody/repaired", status=404))


def test_a_repair_does_not_wait_for_ever(
    client: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.service.REPAIR_WAIT_S", 0.05)
    with cluster.service._moving:
        answer = client.post(f"/v1/nodes/{FAULTY}/repaired", json={})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert FAULTY in suspects(client)


@pytest.mark.parametrize("what", ["acknowledge", "dismiss"])
def test_incidents_that_cannot_be_labelled(client: TestClient, cluster: Cluster, what: str) -> None:
    body = {"reason": "x"} if what == "dismiss" else {}
    assert "not known" in told(post(client, f"/v1/incidents/none@1/{what}", body, 404))
    first_sign = replace(cluster.pipeline.open[FAULTY], id="early@1", state="pending", suspect_at=None)
    cluster.store.save(Outcome(cluster.clock.t, incidents=(first_sign,)))
    assert "has not named" in told(post(client, f"/v1/incidents/early@1/{what}", body, 409))


def test_the_trail_is_append_only(cluster: Cluster, client: TestClient) -> None:
    post(client, "/v1/mutes", {"node": OTHER, "for_s": 60, "reason": "x"}, 201)
    for sql in ("DELETE FROM audit", "UPDATE audit SET by = 'other'"):
        with pytest.raises(StoreError, match="append-only"):
            cluster.store.apply(lambda connection, sql=sql: connection.execute(sql))
    (entry,) = client.get("/v1/audit").json()["entries"]
    assert (entry["number"], entry["by"], entry["action"]) == (1, "anonymous", "mute")
    assert entry["subject"].endswith(f"node {OTHER}")


def test_all_of_it_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    first = Cluster(path).run(4)
    with first.client() as client:
        incident = suspects(client)[FAULTY]["incident_id"]
        other = suspects(client)[OTHER]["incident_id"]
        post(client, f"/v1/incidents/{incident}/dismiss", {"reason": "wrong"})
        post(client, f"/v1/incidents/{other}/acknowledge")
        mute = post(client, "/v1/mutes", {"node": OTHER, "for_s": 600, "reason": "x"}, 201)["mute"]
    first.store.close()  # as kill -9 leaves it: nothing is saved at the end
    second = Cluster(path, now=first.clock.t).run(1)
    with second.client() as client:
        found = suspects(client)
        assert set(found) == {OTHER}
        assert found[OTHER]["muted"]["id"] == mute["id"]
        assert found[OTHER]["acknowledged"]["by"] == "anonymous"
        assert client.get("/v1/audit").json()["total"] == 3
    second.close()


def test_a_repair_is_not_undone_by_an_older_learnt_state(tmp_path: Path) -> None:
    path = tmp_path / "oddnode.db"
    first = Cluster(path).run(4)
    with first.client() as client:
        post(client, f"/v1/nodes/{FAULTY}/repaired")
    first.store.close()
    second = Cluster(path, now=first.clock.t)
    assert second.pipeline.forgotten == [(FAULTY, first.clock.t)]
    assert FAULTY not in second.pipeline.open
    second.run(2).close()
    third = Cluster(path, now=second.clock.t)
    assert third.pipeline.forgotten == second.pipeline.forgotten, "samples from before it are read again"
    third.run(12).close()
    fourth = Cluster(path, now=third.clock.t)
    assert fourth.pipeline.forgotten == [], "the learnt state was saved after the repair"
    fourth.close()


def test_what_waits_for_the_disk_does_not_undo_a_repair(
    cluster: Cluster, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = suspects(client)[FAULTY]["incident_id"]

    def refuse(self: Store) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_flush", refuse)
        cluster.run(1)
    assert cluster.store.n_pending
    post(client, f"/v1/nodes/{FAULTY}/repaired")
    cluster.pipeline.plans = ()
    cluster.run(1)
    assert client.get(f"/v1/incidents/{incident}").json()["incident"]["state"] == "cleared"


def test_when_the_disk_refuses_nothing_is_changed(
    cluster: Cluster, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Store, *args: object) -> None:
        raise StoreError("oddnode.db: cannot be written: disk full")

    monkeypatch.setattr(Store, "apply", refuse)
    incident = suspects(client)[FAULTY]["incident_id"]
    for path, body in (
        (f"/v1/incidents/{incident}/dismiss", {"reason": "x"}),
        (f"/v1/nodes/{FAULTY}/repaired", {}),
        ("/v1/mutes", {"node": FAULTY, "for_s": 60, "reason": "x"}),
    ):
        assert "disk full" in told(post(client, path, body, 503))
    assert suspects(client)[FAULTY]["muted"] is None
    assert FAULTY in cluster.pipeline.open
    assert cluster.pipeline.forgotten == []


def test_an_interface_without_a_desk_takes_no_requests(cluster: Cluster) -> None:
    from api.app import create_app

    with TestClient(create_app(cluster.service), base_url=LOCAL) as client:
        assert client.get("/v1/mutes").status_code == 503
        assert client.post("/v1/mutes", json={"node": "x", "for_s": 9, "reason": "x"}).status_code == 503


def test_the_suspects_are_made_into_text_once_until_something_is_said_or_evaluated(
    client: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_made = 0
    make = api.suspects.suspects_without_time

    def counted(*given: Any) -> bytes:
        nonlocal n_made
        n_made += 1
        return make(*given)

    monkeypatch.setattr(api.suspects, "suspects_without_time", counted)
    first = client.get("/v1/suspects").json()
    cluster.clock.t += 7.5
    second = client.get("/v1/suspects").json()
    assert n_made == 1
    assert second == first | {"data_age_s": first["data_age_s"] + 7.5}, "the age is that of this moment"
    assert [one["node"] for one in client.get("/v1/suspects?limit=1&offset=1").json()["suspects"]] == [
        first["suspects"][1]["node"]
    ]
    assert n_made == 2, "another page is another text"
    incident = suspects(client)[OTHER]["incident_id"]
    post(client, f"/v1/incidents/{incident}/acknowledge", {})
    assert suspects(client)[OTHER]["acknowledged"] is not None
    cluster.run(1)
    assert client.get("/v1/suspects").json()["at"] == first["at"] + STEP
    assert n_made == 4
    for limit in range(1, 3 * api.suspects.MAX_KEPT):
        assert client.get(f"/v1/suspects?limit={limit}").status_code == 200
    n_before = n_made
    suspects(client)
    assert n_made == n_before, "asking for many pages does not push out what all ask for"

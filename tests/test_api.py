from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from api import examples, schemas
from api.app import create_app
from api.examples_explain import EXPLAIN
from api.explain import ExplainOut
from api.recording import EXAMPLE as RECORDING
from api.recording import RecordingOut
from detector.core.neighbours import Neighbours
from detector.core.series_view import PeerLine, Scope, SeriesQuery, SeriesView
from detector.core.views import GroupSummary
from detector.errors import StoreError
from detector.explanation import Explanation
from detector.outcome import DataQuality, GroupEvent, Outcome, Status, Verdict
from detector.service_view import (
    ONLY_RECORDED,
    BusyError,
    Coverage,
    Extent,
    Latest,
    NotKeptError,
    Readiness,
    ServiceView,
)
from detector.store import Store
from detector.store_read import StoreReader
from tests.test_store import T0, evidence, incident, moved


@dataclass
class FakeView:
    """A service at rest: what it knows is given."""

    store: StoreReader
    now_latest: Latest | None = None
    reasons: tuple[str, ...] = ()
    views: list[SeriesView] = field(default_factory=list)
    is_busy: bool = False
    explained: dict[str, Explanation] = field(default_factory=dict)
    covered: Coverage | None = None
    asked: SeriesQuery | None = None
    ends: bool = False

    def latest(self) -> Latest | None:
        return self.now_latest

    def data_age_s(self) -> float | None:
        return None if self.now_latest is None else 12.5

    def readiness(self) -> Readiness:
        return Readiness(self.reasons)

    def series(self, query: SeriesQuery) -> Sequence[SeriesView]:
        if self.is_busy:
            raise BusyError("an evaluation is under way: ask again in a moment")
        self.asked = query
        return [v for v in self.views if (v.node, v.metric) == (query.node, query.metric)][: query.limit]

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        if self.is_busy:
            raise BusyError("an evaluation is under way: ask again in a moment")
        return self.explained.get(node)

    def coverage(self) -> Coverage | None:
        return self.covered

    def neighbours(self, node: str) -> Sequence[Neighbours]:
        return (Neighbours("rack", "r1", ("gpu002", "gpu003", node, "quiet")),)

    def recording(self) -> Extent | None:
        return None

    def as_of(self, at: float) -> ServiceView:
        raise NotKeptError(ONLY_RECORDED)

    def is_ending(self) -> bool:
        return self.ends

    def metrics_text(self) -> bytes:
        return b"oddnode_ticks_total 1.0\n"


SUSPECT = incident("gpu068", active_at=T0)
SILENT = incident("gone", active_at=T0 - 500)
CLUSTERED = "a/gpu01"


def latest() -> Latest:
    verdicts = (
        Verdict("gpu068", "busy", Status.SUSPECT, 2.4, "gpu 3", T0, "hot", (evidence(), evidence(1.5))),
        Verdict("gpu002", "busy", Status.PENDING, 1.2, "", T0, "slow"),
        Verdict("gpu003", "", Status.UNDETERMINED, 0.0, reason="no data"),
        Verdict(CLUSTERED, "busy", Status.CLEAR, 0.1),
    )
    quality = (
        DataQuality("exporter_down", "gpu003", T0, "dcgm-exporter is silent"),
        DataQuality("stale", "", T0, "samples are late"),
    )
    outcome = Outcome(
        T0 + 240,
        verdicts,
        (SUSPECT,),
        data_quality=quality,
        is_partial=True,
        undetermined={"no data": 1},
        n_series=10,
        n_cells=10,
        n_groups=1,
    )
    return Latest(outcome, (SUSPECT, SILENT), (GroupSummary("busy", "gpu", 60, 480, 18, ""),))


@pytest.fixture
def view(tmp_path: Path) -> Iterator[FakeView]:
    store = Store(tmp_path / "oddnode.db")
    event = GroupEvent("busy@1", "busy", T0, None, ("a", "b"), ("m",), "2 of 3 nodes moved together")
    old = incident("gpu002", "cleared", T0 - 5000)
    store.save(
        Outcome(
            T0 + 240,
            incidents=(SUSPECT, SILENT, old),
            transitions=(moved(SUSPECT, T0 + 240),),
            group_events=(event,),
        )
    )
    view = SeriesView(
        "temp", "gpu068", "gpu 3", {"gpu": "3"},
        np.array([1.0, 2.0]), np.array([80.0, np.nan]), np.array([60.0, 60.0]),
        np.array([-np.inf, 55.0]), np.array([65.0, 65.0]),
        np.array([59.0, np.nan]), np.array([61.0, 61.0]),
        np.array([68.123456789, 68.0]), np.array([np.nan, np.nan]), np.array([60.5, 60.5]), 0.25,
        59, Scope.SLOT, True, (PeerLine("gpu001", "gpu 3", np.array([60.0, np.nan])),),
    )  # fmt: skip
    yield FakeView(store, latest(), views=[view])
    store.close()


@pytest.fixture
def client(view: FakeView) -> Iterator[TestClient]:
    app = create_app(view)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made


def get(client: TestClient, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.text

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(answer.text, parse_constant=refuse)


def test_suspects_tell_who_where_why_and_since_when(client: TestClient) -> None:
    body = get(client, "/v1/suspects")
    assert (body["at"], body["data_age_s"], body["is_partial"]) == (T0 + 240, 12.5, True)
    first, silent = body["suspects"]
    assert first["node"] == "gpu068"
    assert first["score"] == 2.4
    assert first["since"] == T0
    assert first["suspect_since"] == T0 + 240
    assert first["part"] == "gpu 3"
    assert first["pool"] == "busy"
    assert first["incident_id"] == SUSPECT.id
    assert [piece["score"] for piece in first["evidence"]] == [2.0, 1.5]
    assert first["evidence"][0]["labels"]["odd"] == 'quote " newline \n ünïcode'
    assert first["evidence"][0]["band"] == [57.0, 65.0]
    assert silent["node"] == "gone", "a suspect that fell silent stays on the list"
    assert silent["score"] is None
    assert silent["evidence"], "the evidence at the peak"
    assert body["n_nodes"] == 4
    assert body["undetermined"] == {"no data": 1}


def test_no_number_that_json_lacks_gets_out(client: TestClient, view: FakeView) -> None:
    odd = replace(evidence(math.inf), value=math.nan, peer_median=-math.inf, band=(math.nan, 1.0))
    verdict = Verdict("gpu068", "busy", Status.SUSPECT, math.nan, "gpu 3", T0, "hot", (odd,))
    assert view.now_latest is not None
    view.now_latest = replace(view.now_latest, outcome=replace(view.now_latest.outcome, verdicts=(verdict,)))
    first = get(client, "/v1/suspects")["suspects"][0]
    assert first["score"] is None
    assert (first["evidence"][0]["value"], first["evidence"][0]["band"]) == (None, None)
    assert get(client, "/v1/nodes")["nodes"][0]["score"] is None


def test_incidents(client: TestClient) -> None:
    body = get(client, "/v1/incidents")
    assert body["total"] == 3
    assert [i["node"] for i in body["incidents"]] == ["gpu068", "gone", "gpu002"]
    assert [i["node"] for i in get(client, "/v1/incidents?state=open&node=gone")["incidents"]] == ["gone"]
    page = get(client, "/v1/incidents?limit=1&offset=2")
    assert (page["total"], page["limit"], page["offset"]) == (3, 1, 2)
    assert [i["node"] for i in page["incidents"]] == ["gpu002"]
    assert get(client, f"/v1/incidents?until={T0 - 1000}")["total"] == 1
    assert get(client, f"/v1/incidents?since={T0 - 1000}")["total"] == 2


def test_one_incident(client: TestClient) -> None:
    body = get(client, f"/v1/incidents/{SUSPECT.id}")
    assert body["incident"]["id"] == SUSPECT.id
    assert [t["after"] for t in body["transitions"]] == ["suspect"]


def test_nodes(client: TestClient) -> None:
    body = get(client, "/v1/nodes")
    assert [n["status"] for n in body["nodes"]] == ["suspect", "pending", "undetermined", "clear"]
    assert body["nodes"][2]["reason"] == "no data"
    assert [n["node"] for n in get(client, "/v1/nodes?status=pending")["nodes"]] == ["gpu002"]
    assert get(client, "/v1/nodes?pool=busy")["total"] == 3
    assert [n["node"] for n in get(client, "/v1/nodes?limit=1&offset=1")["nodes"]] == ["gpu002"]


def test_one_node(client: TestClient) -> None:
    body = get(client, "/v1/nodes/gpu068")
    assert body["node"]["status"] == "suspect"
    assert len(body["evidence"]) == 2
    assert [i["id"] for i in body["incidents"]] == [SUSPECT.id]
    assert get(client, "/v1/nodes/gpu003")["data_quality"][0]["kind"] == "exporter_down"


def test_a_node_name_with_its_cluster(client: TestClient) -> None:
    assert get(client, f"/v1/nodes/{CLUSTERED}")["node"]["node"] == CLUSTERED
    assert get(client, "/v1/nodes/a%2Fgpu01")["node"]["node"] == CLUSTERED


def test_groups(client: TestClient) -> None:
    body = get(client, "/v1/groups")
    assert body["groups"] == [
        {"pool": "busy", "unit": "gpu", "n_nodes": 60, "n_members": 480, "n_signals": 18, "undetermined": ""}
    ]
    assert body["group_events"][0]["id"] == "busy@1"
    assert [f["kind"] for f in body["data_quality"]] == ["stale"]


def test_series(client: TestClient) -> None:
    body = get(client, "/v1/series?node=gpu068&metric=temp")
    assert body["series"][0]["value"] == [80.0, None]
    assert body["series"][0]["low"] == [None, 55.0]
    assert body["series"][0]["lower_quartile"] == [59.0, None]
    assert body["series"][0]["above"] == [68.12346, 68.0]
    assert (body["series"][0]["scope"], body["series"][0]["has_slots"]) == ("slot", True)
    assert body["series"][0]["peers"] == [{"node": "gpu001", "part": "gpu 3", "value": [60.0, None]}]


def test_neighbours_come_with_their_state(client: TestClient) -> None:
    (shared,) = get(client, "/v1/neighbours?node=gpu068")["shared"]
    assert (shared["label"], shared["value"], shared["n_nodes"]) == ("rack", "r1", 4)
    assert shared["nodes"] == [
        {"node": "gpu002", "status": "pending"},
        {"node": "gpu003", "status": "undetermined"},
        {"node": "quiet", "status": None},
    ]
    assert "is not known" in get(client, "/v1/neighbours?node=nobody", 404)["error"]["message"]


def test_series_are_asked_for_by_part_label_and_scope(client: TestClient, view: FakeView) -> None:
    get(
        client,
        "/v1/series?node=gpu068&metric=temp&part=gpu%203&label=a%3Db%3Dc&label=d%3D&scope=slot&peers=9",
    )
    labels = (("a", "b=c"), ("d", ""))
    assert view.asked == SeriesQuery("gpu068", "temp", "gpu 3", labels, Scope.SLOT, 9)
    told = get(client, "/v1/series?node=gpu068&metric=none&label=a%3Db", 404)["error"]["message"]
    assert "with these labels" in told


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/v1/nodes/nobody", 404, "node 'nobody' is not known"),
        ("/v1/incidents/none@1", 404, "incident 'none@1' is not known"),
        ("/v1/series?node=gpu068&metric=none", 404, "has no metric 'none'"),
        ("/v1/series?node=gpu068", 422, "metric: field required"),
        ("/v1/series?node=a&metric=b&label=c", 422, "label"),
        ("/v1/series?node=a&metric=b&scope=odd", 422, "scope"),
        ("/v1/suspects?limit=0", 422, "limit: input should be greater than or equal to 1"),
        ("/v1/suspects?limit=1001", 422, "limit: input should be less than or equal to 1000"),
        ("/v1/incidents?offset=-1", 422, "offset"),
        ("/v1/incidents?offset=99999999999999999999", 422, "offset"),
        ("/v1/incidents?since=nan", 422, "since: input should be a finite number"),
        ("/v1/incidents?state=odd", 422, "state"),
        ("/v1/nodes?status=odd", 422, "status"),
        ("/v1/nothing", 404, "Not Found"),
        ("/v1/suspects?at=1767225600", 422, "at: only a recording"),
        ("/v1/incidents/none@1?at=1767225600", 422, "at: only a recording"),
        ("/v1/series?node=a&metric=b&at=1767225600", 422, "at: only a recording"),
    ],
)
def test_errors_have_one_shape(client: TestClient, path: str, status: int, told: str) -> None:
    body = get(client, path, status)
    schemas.ErrorOut.model_validate(body)
    assert told in body["error"]["message"]


def test_only_reading_is_possible(client: TestClient) -> None:
    answer = client.post("/v1/suspects", json={})
    assert answer.status_code == 405
    schemas.ErrorOut.model_validate(answer.json())


def test_before_the_first_evaluation(client: TestClient, view: FakeView) -> None:
    view.now_latest, view.reasons = None, ("nothing was evaluated yet: filling the window",)
    for path in ("/v1/suspects", "/v1/nodes", "/v1/groups", "/v1/series?node=a&metric=b", "/v1/nodes/a"):
        assert "filling the window" in get(client, path, 503)["error"]["message"]
    body = get(client, "/v1/incidents")
    assert (body["at"], body["total"]) == (None, 3), "history is there from the start"


def test_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    view = FakeView(StoreReader(tmp_path / "none.db"), latest())
    with TestClient(create_app(view), raise_server_exceptions=False) as client:
        assert "cannot be read" in get(client, "/v1/incidents", 503)["error"]["message"]
        assert len(get(client, "/v1/suspects")["suspects"]) == 2, "suspects don't need the store"


def test_while_an_evaluation_holds_the_data(client: TestClient, view: FakeView) -> None:
    view.is_busy = True
    answer = client.get("/v1/series?node=gpu068&metric=temp")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


def test_a_defect_is_told_in_the_same_shape(
    client: TestClient, view: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "data_age_s", lambda: 1 / 0)
    body = get(client, "/v1/suspects", 500)
    assert body == {
        "error": {"code": "internal", "message": "the request failed; the log of the service says why"}
    }


def test_probes(client: TestClient, view: FakeView) -> None:
    assert get(client, "/healthz") == {"status": "ok"}
    assert get(client, "/readyz") == {"status": "ready", "reasons": [], "notes": []}
    view.reasons = ("the disk is full",)
    assert get(client, "/readyz", 503)["reasons"] == ["the disk is full"]
    assert get(client, "/healthz") == {"status": "ok"}, "not ready is not dead"
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "oddnode_ticks_total" in answer.text
    for link in get(client, "/")["links"].values():
        assert client.get(link).status_code in (200, 503)


def test_openapi_is_complete(client: TestClient) -> None:
    document = get(client, "/openapi.json")
    operations = [(p, op) for p, methods in document["paths"].items() for op in methods.values()]
    assert {path for path, _ in operations} == {
        "/", "/healthz", "/readyz", "/metrics", "/v1/suspects", "/v1/incidents",
        "/v1/incidents/{incident_id}", "/v1/nodes", "/v1/nodes/{node}", "/v1/groups", "/v1/series",
        "/v1/neighbours", "/v1/recording",
        "/v1/explain", "/v1/events", "/v1/fleet", "/v1/offenders", "/v1/incidents/{incident_id}/acknowledge",
        "/v1/incidents/{incident_id}/dismiss", "/v1/nodes/{node}/repaired", "/v1/mutes",
        "/v1/mutes/{mute_id}", "/v1/audit", "/v1/feedback", "/v1/what-if",
        "/v1/incidents/{incident_id}/export", "/v1/incidents/{incident_id}/report",
    }  # fmt: skip
    for path, operation in operations:
        assert operation["summary"], path
        assert operation["description"], path
        assert operation["tags"], path
        for status, answer in operation["responses"].items():
            (content,) = answer["content"].values()
            assert content.get("example"), f"{path} {status} has no example"
        assert "500" in operation["responses"], path
        if path.startswith("/v1"):
            assert {
                *({"201", "202"} & set(operation["responses"]) or {"200"}),
                "401",
                "422",
                "429",
                "503",
            } <= set(operation["responses"]), path
            assert operation["responses"]["422"]["content"]["application/json"]["schema"] == {
                "$ref": "#/components/schemas/ErrorOut"
            }
        if "{" in path or path in ("/v1/series", "/v1/explain", "/v1/neighbours"):
            assert "404" in operation["responses"], path
        for parameter in operation.get("parameters", []):
            if parameter["name"] not in ("incident_id", "node"):
                assert parameter["description"], f"{path} {parameter['name']}"
    assert "HTTPValidationError" not in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("example", "model"),
    [
        (examples.SUSPECTS, schemas.SuspectsOut),
        (examples.INCIDENTS, schemas.IncidentsOut),
        (examples.INCIDENT, schemas.IncidentDetailOut),
        (examples.NODES, schemas.NodesOut),
        (examples.NODE, schemas.NodeDetailOut),
        (examples.GROUPS, schemas.GroupsOut),
        (examples.SERIES, schemas.SeriesOut),
        (examples.NEIGHBOURS, schemas.NeighboursOut),
        (RECORDING, RecordingOut),
        (EXPLAIN, ExplainOut),
        (examples.HEALTH, schemas.HealthOut),
        (examples.READY, schemas.ReadyOut),
        (examples.NOT_READY, schemas.ReadyOut),
        (examples.ROOT, schemas.RootOut),
        (examples.error("a", "b"), schemas.ErrorOut),
    ],
)
def test_examples_are_what_the_schemas_say(example: dict[str, Any], model: type[schemas.Answer]) -> None:
    assert model.model_validate(example).model_dump(mode="json") == example


def test_a_store_error_is_not_a_defect(
    client: TestClient, view: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise StoreError("oddnode.db: cannot be read: disk I/O error")

    monkeypatch.setattr(view.store, "count_incidents", fail)
    answer = client.get("/v1/incidents")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")

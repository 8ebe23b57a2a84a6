"""The console without a browser: what is answered to whom, and the bounds of its live line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from api import events
from api.access import Entrance, Policy
from api.app import create_app
from api.console import is_page, wants_page
from api.events import Listeners, add_events
from api.fleet import EXAMPLE, FleetOut
from detector.service_view import Coverage, ExporterCover, TargetCover
from detector.settings_auth import AuthSettings
from detector.store_read import StoreReader
from detector.tokens import Tokens, hash_of, make_token
from tests.test_api import CLUSTERED, FakeView, latest

ROOT = Path(__file__).resolve().parent.parent
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def view(tmp_path: Path) -> FakeView:
    nodes = {"gpu068": (True, False), "gpu002": (True, True), CLUSTERED: (True, True)}
    targets = (TargetCover("CPU", 9, 4), TargetCover("GPU", 30, 0))
    covered = Coverage(0.0, targets, (ExporterCover("dcgm", 8, 7),), nodes)
    return FakeView(StoreReader(tmp_path / "x.db"), latest(), covered=covered)


@pytest.fixture
def client(view: FakeView) -> Iterator[TestClient]:
    with TestClient(create_app(view, "1.2")) as client:
        yield client


@pytest.mark.parametrize(
    ("accept", "is_wanted"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("application/json", False),
        ("*/*", False),
        ("", False),
        ("application/json, text/html;q=0.5", False),
        ("application/json;q=0.5, TEXT/HTML", True),
        ("text/html;q=0", False),
        ("text/html;q=much", False),
    ],
)
def test_the_root_is_a_page_for_those_who_prefer_one(
    client: TestClient, accept: str, is_wanted: bool
) -> None:
    assert wants_page(accept) == is_wanted
    answer = client.get("/", headers={"accept": accept})
    assert answer.headers["content-type"].startswith("text/html" if is_wanted else "application/json")
    assert answer.headers["vary"] == "Accept"
    if not is_wanted:
        assert answer.json()["links"]["suspects"] == "/v1/suspects"


@pytest.mark.parametrize(
    "path", ["/", "/nodes/gpu068", "/nodes/a/gpu01", "/incidents", "/incidents/x@1", "/tune"]
)
def test_pages_allow_nothing_but_their_own_files(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"accept": BROWSER})
    assert answer.status_code == 200
    policy = dict(item.split(" ", 1) for item in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    text = answer.text
    assert "<style" not in text
    assert " style=" not in text
    assert text.count("<script") == text.count("<script src=") + text.count('<script type="module" src=')
    assert "http" not in text, "nothing is loaded from elsewhere"


def test_a_name_cannot_leave_its_attribute(client: TestClient) -> None:
    text = client.get("/nodes/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    long = client.get(f"/nodes/{'n' * 5000}").text
    assert "n" * 300 in long
    assert "n" * 301 not in long


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/nodes/gpu068", "../"),
        ("/nodes/a/gpu01", "../../"),
        ("/nodes/a%2Fgpu01", "../"),
        ("/incidents", "./"),
        ("/tune", "./"),
        ("/incidents/a%2Fgpu01@17", "../"),
    ],
)
def test_links_are_relative_so_that_a_proxy_may_add_a_prefix(
    client: TestClient, path: str, root: str
) -> None:
    assert f'data-root="{root}"' in client.get(path).text


def test_files_are_sent_once_and_nothing_else_is(client: TestClient) -> None:
    answer = client.get("/static/js/now.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    again = client.get("/static/js/now.js", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/static/nosuch.js", "/static/../app.py", "/static/%2e%2e/app.py", "/static/"):
        assert client.get(path).status_code == 404, path
    assert "MIT" in client.get("/static/vendor/uplot.LICENSE.txt").text


def test_everything_together_is_light() -> None:
    files = [path for path in (ROOT / "api" / "static").rglob("*") if path.is_file()]
    assert 50_000 < sum(path.stat().st_size for path in files) < 250_000


def test_pages_need_no_token_and_what_they_show_does(view: FakeView) -> None:
    token = make_token()
    auth = AuthSettings.model_validate({"tokens": [{"name": "kim", "sha256": hash_of(token)}]})
    client = TestClient(create_app(view, entrance=Entrance(Policy(Tokens(auth), auth=auth))))
    for path in ("/", "/nodes/gpu068", "/incidents", "/incidents/gpu068@1", "/tune", "/static/js/now.js"):
        answer = client.get(path, headers={"accept": BROWSER})
        assert answer.status_code == 200, path
        assert "pool" not in answer.text or path.endswith(".js"), path
    for path in ("/v1/fleet", "/v1/events"):
        assert client.get(path).status_code == 401
    assert client.get("/v1/fleet", headers={"authorization": f"Bearer {token}"}).status_code == 200
    for path in ("/v1/nodes/gpu068", "/incidentsx", "/tunex", "/metrics"):
        assert not is_page(path)


def test_the_fleet_tells_evidence_and_the_lack_of_data(client: TestClient, view: FakeView) -> None:
    body = client.get("/v1/fleet").json()
    FleetOut.model_validate(body)
    FleetOut.model_validate(EXAMPLE)
    assert [item["target"] for item in body["targets"]] == ["CPU", "GPU"]
    assert body["exporters"] == [{"exporter": "dcgm", "n_expected": 8, "n_fresh": 7}]
    cells = {item["node"]: item["cells"] for item in body["nodes"]}
    strongest = max(item.score for item in latest().outcome.verdicts[0].evidence)
    assert cells["gpu068"] == [0.0, strongest], "no fresh sample, yet evidence"
    assert cells["gpu003"] == [None, None]
    assert cells[CLUSTERED] == [0.0, 0.0]
    view.now_latest = None
    assert client.get("/v1/fleet").status_code == 503


async def states(stream: AsyncIterator[str], n: int) -> list[dict[str, Any]]:
    found = []
    async for text in stream:
        kind, data, _, _ = text.split("\n")
        assert kind == "event: state"
        found.append(json.loads(data.removeprefix("data: ")))
        if len(found) == n:
            break
    return found


def test_events_tell_of_changes_and_that_the_line_lives(
    view: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    monkeypatch.setattr(events, "BEAT_S", 0.05)
    held = [object()]

    async def run() -> None:
        stream = events._told(view, lambda: held[0])
        first, beat = await states(stream, 2)
        assert (first["change"], first["at"], first["is_ready"]) == (1, latest().outcome.at, True)
        assert beat["change"] == 1
        stream = events._told(view, lambda: held[0])
        await states(stream, 1)

    asyncio.run(run())

    async def changes() -> None:
        stream = events._told(view, lambda: held[0])
        assert (await anext_state(stream))["change"] == 1
        held[0] = object()
        assert (await anext_state(stream))["change"] == 2
        view.now_latest = latest()
        assert (await anext_state(stream))["change"] == 3
        view.reasons = ("the disk is full",)
        told = await anext_state(stream)
        assert (told["change"], told["reasons"]) == (4, ["the disk is full"])
        view.ends = True
        with pytest.raises(StopAsyncIteration):
            await anext_state(stream)

    asyncio.run(changes())


async def anext_state(stream: AsyncIterator[str]) -> dict[str, Any]:
    return dict(json.loads((await anext(stream)).split("data: ")[1]))


def test_a_stream_ends_after_a_while_so_that_its_token_is_looked_at_again(
    view: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    monkeypatch.setattr(events, "BEAT_S", 0.02)
    monkeypatch.setattr(events, "STREAM_S", 0.2)
    answer = TestClient(create_app(view)).get("/v1/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.count("event: state") >= 2


def test_listeners_are_bounded_and_given_back(view: FakeView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    monkeypatch.setattr(events, "STREAM_S", 0.05)
    counted = Listeners(1)
    app, router = FastAPI(), APIRouter(prefix="/v1")
    add_events(router, view, lambda: None, listeners=counted)
    app.include_router(router)
    client = TestClient(app)
    assert client.get("/v1/events").status_code == 200
    assert counted.n == 0
    counted.n = 1
    assert client.get("/v1/events").status_code == 503


def test_the_wheel_takes_the_package_as_a_whole() -> None:
    made = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert "api" in made["targets"]["wheel"]["packages"]
    assert "api" in made["targets"]["sdist"]["include"]
    assert not {"exclude", "only-include"} & {*made, *made["targets"]["wheel"]}
    files = [path for folder in ("static", "templates") for path in (ROOT / "api" / folder).rglob("*.*")]
    ignored = subprocess.run(  # what git ignores a wheel leaves out
        ["git", "check-ignore", "--", *map(str, files)], cwd=ROOT, capture_output=True, check=False
    )
    assert ignored.stdout == b""

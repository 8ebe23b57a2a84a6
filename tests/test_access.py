"""Who may do what: tokens, scopes, origins, sizes, rates, and hostile requests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import access
from api.access import MAX_BODY_BYTES, Access, Entrance, Policy
from api.headers import HEADERS
from api.limits import MAX_CLIENTS, Rate, client_key
from api.schemas import ErrorOut
from detector.errors import SettingsError
from detector.settings_auth import AuthSettings
from detector.tokens import LOOK_EVERY_S, Tokens, entry_line, hash_of, make_token
from tests.control_fakes import OTHER, Cluster

READER, OPERATOR = make_token(), make_token()
AUTH: dict[str, Any] = {
    "tokens": [
        {"name": "dashboard", "sha256": hash_of(READER), "scope": "read"},
        {"name": "kim", "sha256": hash_of(OPERATOR), "scope": "operate"},
    ]
}
MUTE = {"node": OTHER, "for_s": 60, "reason": "x", "by": "somebody else"}


def policy(*, is_local: bool = False, **auth: Any) -> Policy:
    settings = AuthSettings.model_validate({**AUTH, **auth})
    return Policy(Tokens(settings), is_local, settings)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "oddnode.db").run(3)
    yield made
    made.close()


def refused(answer: Any, status: int, word: str) -> None:
    assert answer.status_code == status, answer.text
    assert word in ErrorOut.model_validate(answer.json()).error.message
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    for secret in (READER, OPERATOR, hash_of(READER), hash_of(OPERATOR)):
        assert secret not in answer.text


@pytest.mark.parametrize(
    ("token", "read", "write"),
    [
        (None, 401, 401),
        (READER, 200, 403),
        (OPERATOR, 200, 201),
        (make_token(), 401, 401),
        ("short", 401, 401),
    ],
    ids=["none", "read", "operate", "unknown", "malformed"],
)
def test_scopes(cluster: Cluster, token: str | None, read: int, write: int) -> None:
    headers = {} if token is None else bearer(token)
    with cluster.client(policy()) as client:
        for path in ("/v1/suspects", "/v1/nodes", "/v1/audit", "/v1/mutes", "/v1/feedback", "/v1/nothing"):
            expected = 404 if read == 200 and path == "/v1/nothing" else read
            assert client.get(path, headers=headers).status_code == expected, path
        answer = client.post("/v1/mutes", headers=headers, json=MUTE)
        assert answer.status_code == write
        if write == 201:
            assert answer.json()["mute"]["by"] == "kim", "the token's name, not what the body claims"
            path = f"/v1/mutes/{answer.json()['mute']['id']}?by=other"
            assert client.delete(path, headers=headers).json()["mute"]["ended_by"] == "kim"
        else:
            assert client.delete("/v1/mutes/m-1", headers=headers).status_code == write
        for path in ("/", "/healthz", "/readyz", "/openapi.json", "/metrics"):
            assert client.get(path).status_code == 200, path


def test_own_metrics_can_be_closed(cluster: Cluster) -> None:
    with cluster.client(policy(metrics_open=False)) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers=bearer(READER)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": READER},
        {"Authorization": f"Basic {READER}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {READER} {READER}"},
        {"Authorization": f"Bearer {hash_of(READER)}"},
        {"Authorization": "Bearer " + "x" * 20_000},
    ],
)
def test_what_is_no_token(cluster: Cluster, headers: dict[str, str]) -> None:
    with cluster.client(policy()) as client:
        answer = client.get("/v1/suspects", headers=headers)
        refused(answer, 401, "token")
        assert answer.headers["www-authenticate"].startswith('Bearer realm="oddnode"')
        twice = [("Authorization", f"Bearer {READER}"), ("Authorization", f"Bearer {READER}")]
        assert client.get("/v1/suspects", headers=twice).status_code == 401


def test_refused_tokens_are_bounded_and_right_ones_still_work(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = make_token()
    with caplog.at_level(logging.WARNING), cluster.client(policy(failures_per_minute=3)) as client:
        for _ in range(3):
            assert client.get("/v1/suspects", headers=bearer(wrong)).status_code == 401
        answer = client.get("/v1/suspects", headers=bearer(wrong))
        refused(answer, 429, "ask again")
        assert 1 <= int(answer.headers["retry-after"]) <= 20
        assert client.get("/v1/suspects", headers=bearer(READER)).status_code == 200
    lines = [r.getMessage() for r in caplog.records if "access refused" in r.getMessage()]
    assert len(lines) == 3, "the log is bounded too"
    assert wrong not in caplog.text


def test_questions_are_bounded_per_token_and_probes_are_not(cluster: Cluster) -> None:
    with cluster.client(policy(reads_per_minute=3)) as client:
        for path in ("/v1/suspects", "/v1/nodes", "/v1/suspects"):
            assert client.get(path, headers=bearer(READER)).status_code == 200
        answer = client.get("/v1/suspects", headers=bearer(READER))
        refused(answer, 429, "too many questions")
        assert 1 <= int(answer.headers["retry-after"]) <= 20
        assert client.get("/v1/suspects", headers=bearer(OPERATOR)).status_code == 200
        assert client.post("/v1/mutes", headers=bearer(OPERATOR), json=MUTE).status_code == 201
        for path in ("/healthz", "/readyz", "/metrics", "/"):
            assert {client.get(path).status_code for _ in range(5)} == {200}, path
    with cluster.client(Policy(auth=AuthSettings(reads_per_minute=1))) as client:
        assert client.get("/v1/suspects").status_code == 200
        refused(client.get("/v1/suspects"), 429, "too many questions")


def test_changes_are_bounded_per_token(cluster: Cluster) -> None:
    with cluster.client(policy(writes_per_minute=2)) as client:
        for _ in range(2):
            assert client.post("/v1/mutes", headers=bearer(OPERATOR), json=MUTE).status_code == 201
        answer = client.post("/v1/mutes", headers=bearer(OPERATOR), json=MUTE)
        refused(answer, 429, "too many changes")
        assert int(answer.headers["retry-after"]) >= 1
        assert client.get("/v1/mutes", headers=bearer(OPERATOR)).json()["total"] == 2


def test_without_tokens_only_this_machine_may_change(cluster: Cluster) -> None:
    beyond = Policy(is_local=False)
    with cluster.client(beyond) as client:
        refused(client.post("/v1/mutes", json=MUTE), 403, "set auth.tokens")
        refused(client.delete("/v1/mutes/m-1"), 403, "set auth.tokens")
        assert client.get("/v1/suspects").status_code == 200
    with cluster.client() as client:
        assert client.post("/v1/mutes", json=MUTE).json()["mute"]["by"] == "somebody else"
        for host, status in (
            ("localhost:8080", 201), ("[::1]:8080", 201), ("127.0.0.1", 201),
            ("evil.example", 403), ("localhost.evil.example", 403), ("10.0.0.1", 403), ("", 403),
            ("[broken", 403),
        ):  # fmt: skip
            answer = client.post("/v1/mutes", json=MUTE, headers={"Host": host})
            assert answer.status_code == status, host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind.a.proxy"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1:8080"}, 201),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://127.0.0.1:8080.evil.example"}, 403),
        ({"Origin": "http://[broken"}, 403),
    ],
)
def test_changes_from_other_sites(cluster: Cluster, headers: dict[str, str], status: int) -> None:
    with cluster.client() as client:
        assert client.post("/v1/mutes", json=MUTE, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data", 415),
        ("", 415),
    ],
)
def test_only_json_is_taken(cluster: Cluster, kind: str, status: int) -> None:
    with cluster.client() as client:
        headers = {"Content-Type": kind}
        answer = client.post("/v1/mutes", content=json.dumps(MUTE), headers=headers)
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b"\xff\xfe", 422),
        (b"[" * 60_000, 400),
        (b'{"node": {"a": 1}, "for_s": 60, "reason": "x"}', 422),
        (b'{"node": "gpu002", "for_s": NaN, "reason": "x"}', 422),
        (b'{"node": "gpu002", "for_s": Infinity, "reason": "x"}', 422),
        (b'{"node": "gpu002", "for_s": 1e400, "reason": "x"}', 422),
        (b'{"node": "gpu002", "for_s": 60, "reason": "\\ud800"}', 422),
        (b'{"node": "gpu002", "for_s": 60, "reason": "a\\u0000b"}', 422),
        (b'{"node": "gpu002", "for_s": 60, "reason": "a\\u202eb"}', 422),
        (b'{"node": "gpu002", "for_s": 60, "reason": "' + b"x" * MAX_BODY_BYTES + b'"}', 413),
    ],
)
def test_bodies_that_are_refused(cluster: Cluster, body: bytes, status: int) -> None:
    with cluster.client() as client:
        answer = client.post("/v1/mutes", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
        ErrorOut.model_validate(answer.json())
        assert client.get("/v1/mutes").json()["total"] == 0


def test_a_body_of_unknown_length_is_bounded_too(cluster: Cluster) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1024

    with cluster.client() as client:
        answer = client.post("/v1/mutes", content=endless(), headers={"Content-Type": "application/json"})
        refused(answer, 413, "at most 65536 bytes")
        for length in ("-1", "1e3", "9" * 30):
            headers = {"Content-Type": "application/json", "Content-Length": length}
            assert client.post("/v1/mutes", content=b"{}", headers=headers).status_code == 413


def test_a_body_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BODY_WAIT_S", 0.05)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(30)

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(*_: Any) -> None:
        raise AssertionError("let through")

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/mutes", "headers": headers, "client": ("::1", 1)}
    asyncio.run(Access(app, Entrance(Policy()))(scope, receive, send))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("name", ["gpu/../../etc", "%2e%2e%2fetc", "a b", "ünï", "x" * 254, "a%0ab", "a%00b"])
def test_odd_names_in_paths(cluster: Cluster, name: str) -> None:
    with cluster.client() as client:
        for path in (f"/v1/nodes/{name}/repaired", f"/v1/incidents/{name}/acknowledge"):
            answer = client.post(path, json={})
            assert answer.status_code in (404, 422), answer.text
            ErrorOut.model_validate(answer.json())


def test_every_answer_carries_the_headers(cluster: Cluster) -> None:
    with cluster.client(policy()) as client:
        for path in ("/", "/healthz", "/metrics", "/v1/suspects", "/nothing"):
            answer = client.get(path)
            for name, value in HEADERS.items():
                assert answer.headers[name] == value, (path, name)


def test_a_defect_carries_them_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.service, "data_age_s", lambda: 1 / 0)
    with cluster.client() as client:
        refused(client.get("/v1/suspects"), 500, "the request failed")


def test_the_description_tells_of_tokens(cluster: Cluster) -> None:
    with cluster.client() as client:
        found = client.get("/openapi.json").json()
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert found["paths"]["/v1/suspects"]["get"]["security"] == [{"token": []}]
    assert {"401", "403", "413", "415", "429"} <= set(found["paths"]["/v1/mutes"]["post"]["responses"])
    assert "security" not in found["paths"]["/healthz"]["get"]


def look_again(tokens: Tokens) -> None:
    tokens._looked -= 2 * LOOK_EVERY_S


def test_a_file_of_tokens_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(entry_line("kim", OPERATOR, "operate") + "\n")
    tokens = Tokens(AuthSettings(tokens_file=path))
    assert tokens.are_set
    owner = tokens.find(OPERATOR)
    assert owner is not None
    assert (owner.name, owner.scope) == ("kim", "operate")
    path.write_text(entry_line("eve", READER, "read") + "\n")
    look_again(tokens)
    assert tokens.find(OPERATOR) is None, "taken back"
    assert tokens.find(READER) is not None
    path.write_text("- {name: kim")
    look_again(tokens)
    assert tokens.find(READER) is not None, "a broken file changes nothing"
    path.unlink()
    look_again(tokens)
    assert tokens.find(READER) is not None
    assert caplog.text.count("tokens not_read=") == 2
    path.write_text("")
    os.utime(path, (1, 1))
    look_again(tokens)
    assert tokens.find(READER) is None
    assert tokens.are_set, "an empty file lets nobody in"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("- {name: a}", "sha256"),
        ("{name: a}", "list"),
        pytest.param(f"- {{name: a, sha256: {make_token()}}}", "never a token", id="a token"),
        (f"- {{name: 'a b', sha256: {hash_of('x')}}}", "letters"),
        (f"- {{name: a, sha256: {hash_of('x')}, scope: root}}", "scope"),
        (f"- {{name: a, sha256: {hash_of('x')}}}\n- {{name: a, sha256: {hash_of('y')}}}", "same name"),
        (f"- {{name: a, sha256: {hash_of('x')}}}\n- {{name: b, sha256: {hash_of('x')}}}", "same hash"),
        ("\x00", "YAML"),
        ("- " * 3000, ""),
    ],
)
def test_files_of_tokens_that_are_wrong(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        Tokens(AuthSettings(tokens_file=path))
    assert str(path) in str(caught.value)
    assert word in str(caught.value)
    assert "odn_" not in str(caught.value)
    assert hash_of("x") not in str(caught.value)


def test_rates_fill_again_and_are_bounded() -> None:
    now = 0.0
    rate = Rate(60, lambda: now)
    assert [rate.take("a") for _ in range(61)][-1] == pytest.approx(1.0)
    now = 1.0
    assert rate.take("a") == 0.0
    assert rate.take("b") == 0.0
    for n in range(2 * MAX_CLIENTS):
        rate.take(str(n))
    assert len(rate._left) == MAX_CLIENTS


def test_clients_of_one_network_are_one() -> None:
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff")
    assert client_key("2001:db8::1") != client_key("2001:db8:0:1::1")
    assert client_key("::ffff:10.0.0.1") == client_key("10.0.0.1") == "10.0.0.1"
    assert len(client_key("x" * 1000)) == 64

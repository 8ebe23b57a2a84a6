"""What a database, or whatever stands in front of it, does wrong, and what is said about it."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.errors import SourceDecode, SourceError, SourceStatus, SourceTimeout
from detector.source.opening import DatabaseSource, detect_kind, open_source
from detector.source.options import SourceOptions
from tests.interner import DictInterner
from tests.servers import Connection, Reply, ScriptedServer, free_port, reply, wait_until

START_MS, END_MS = 1_000_000, 1_060_000
STAMP = 1_030_000


def line(value: object = 1.5, stamp: int = STAMP, **labels: str) -> bytes:
    metric = {"__name__": "m", **labels}
    return json.dumps({"metric": metric, "values": [value], "timestamps": [stamp]}).encode() + b"\n"


def vector(*rows: tuple[dict[str, str], list[tuple[float, str]]], **extra: object) -> bytes:
    result = [{"metric": labels, "values": values} for labels, values in rows]
    return json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": result}, **extra}
    ).encode()


GOOD = {
    "victoriametrics": reply(200, line()),
    "prometheus": reply(200, vector(({"__name__": "m"}, [(STAMP / 1000, "1.5")])), "application/json"),
}


def opened(server: ScriptedServer, kind: str = "victoriametrics", **options: Any) -> DatabaseSource:
    return open_source(SourceOptions(server.url + "/prefix", kind=kind, **{"deadline_s": 10.0, **options}))


def fetch(
    server: ScriptedServer, kind: str = "victoriametrics", names: tuple[str, ...] = ("m",), **options: Any
):
    source = opened(server, kind, **options)
    try:
        return source.fetch(names, START_MS, END_MS, DictInterner())
    finally:
        source.close()


@pytest.fixture(params=["victoriametrics", "prometheus"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_good_answer(kind: str) -> None:
    with ScriptedServer([GOOD[kind]]) as server:
        batch = fetch(server, kind)
    assert batch.values.tolist() == [1.5]
    assert batch.ts_ms.tolist() == [STAMP]
    assert batch.n_bytes > 0
    assert server.requests[0].method == "POST"
    assert server.requests[0].path.startswith("/prefix/api/v1/")


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (401, "", "credentials were refused"),
        (403, "no such tenant", "no such tenant"),
        (400, "missing route for /select", "missing route for /select"),
        (500, "panic\nat line 3", "panic at line 3"),
        (418, "x" * 5000, "xxx ... xxx"),
    ],
)
def test_refusal_is_told_once_with_the_servers_words(kind: str, status: int, text: str, said: str) -> None:
    with (
        ScriptedServer([reply(status, text.encode(), "text/plain")]) as server,
        pytest.raises(SourceStatus) as caught,
    ):
        fetch(server, kind)
    assert caught.value.status == status
    assert str(status) in str(caught.value)
    assert said in str(caught.value)
    assert server.url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 900
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_passing_failure_is_repeated_once(kind: str, status: int) -> None:
    with ScriptedServer([reply(status, b"busy", "text/plain"), GOOD[kind]]) as server:
        assert len(fetch(server, kind).series) == 1
    with (
        ScriptedServer([reply(status, b"busy", "text/plain")]) as server,
        pytest.raises(SourceStatus, match="busy"),
    ):
        fetch(server, kind)
    assert len(server.requests) == 2


def test_retry_after_is_honoured(kind: str) -> None:
    with ScriptedServer([reply(429, b"slow down", "text/plain", Retry_After="1"), GOOD[kind]]) as server:
        begun = time.monotonic()
        fetch(server, kind)
        assert time.monotonic() - begun >= 1.0


def test_retry_after_past_the_deadline_is_not_waited_for(kind: str) -> None:
    with ScriptedServer([reply(429, b"slow down", "text/plain", Retry_After="30"), GOOD[kind]]) as server:
        begun = time.monotonic()
        with pytest.raises(SourceStatus, match="slow down"):
            fetch(server, kind)
        assert time.monotonic() - begun < 5.0
    assert len(server.requests) == 1


def test_too_many_series_splits_the_request_and_remembers(kind: str) -> None:
    def answer(connection: Connection) -> None:
        form = connection.request.form
        selector = form.get("match[]", form.get("query", [""]))[0]
        names = selector.split('"')[1].split("|")
        if len(names) > 2:
            text = b'{"status":"error","error":"the number of matching timeseries exceeds 300000"}'
            reply(422, text, "application/json")(connection)
        elif kind == "victoriametrics":
            reply(200, b"".join(line(n=name) for name in names))(connection)
        else:
            rows = [({"__name__": "m", "n": name}, [(STAMP / 1000, "1")]) for name in names]
            reply(200, vector(*rows), "application/json")(connection)

    names = tuple("abcdefgh")
    with ScriptedServer([answer]) as server:
        source = opened(server, kind)
        assert len(source.fetch(names, START_MS, END_MS, DictInterner()).series) == 8
        first = len(server.requests)
        assert len(source.fetch(names, START_MS, END_MS, DictInterner()).series) == 8
        source.close()
    assert first > 4
    assert len(server.requests) - first == 4


def test_one_metric_that_is_too_much_is_an_error_with_the_servers_words(kind: str) -> None:
    with (
        ScriptedServer([reply(422, b"matching timeseries exceeds 300000", "text/plain")]) as server,
        pytest.raises(SourceStatus, match="exceeds 300000"),
    ):
        fetch(server, kind, names=("a", "b", "c"))


def test_login_page_is_named(kind: str) -> None:
    page = b"<!doctype html><html><title>Please log\n in</title>"
    with (
        ScriptedServer([reply(200, page, "text/html; charset=utf-8")]) as server,
        pytest.raises(SourceDecode, match=r"text/html instead of JSON.*Please log in"),
    ):
        fetch(server, kind)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", [b"<html>", b"upstream error\n", b"[]\n", b"{}\n", b'{"metric":{"a"\n', b"\xff\xfe\n", b"7\n"]
)
def test_body_of_another_form(kind: str, body: bytes) -> None:
    with (
        ScriptedServer([reply(200, body, "application/json")]) as server,
        pytest.raises(SourceDecode) as caught,
    ):
        fetch(server, kind)
    assert server.url in str(caught.value)
    assert len(str(caught.value)) < 600


def test_an_error_in_a_good_answer() -> None:
    body = b'{"status":"error","error":"query timed out"}'
    with (
        ScriptedServer([reply(200, body, "application/json")]) as server,
        pytest.raises(SourceDecode, match="query timed out"),
    ):
        fetch(server, "prometheus")


def test_line_that_is_wrong_is_named() -> None:
    body = line() * 3 + b'{"metric":{"__name__":"m"},"values":[1,"abc"],"timestamps":[1,2]}\n' + line()
    with ScriptedServer([reply(200, body)]) as server, pytest.raises(SourceDecode, match=r"line 4: .*abc"):
        fetch(server)


@pytest.mark.parametrize("body", [line()[:-1], line() + line()[:30], line() + line()[:-1]])
def test_last_line_without_end_is_a_cut(body: bytes) -> None:
    with ScriptedServer([reply(200, body)]) as server, pytest.raises(SourceDecode, match="cut off"):
        fetch(server)
    assert len(server.requests) == 2


def _cut_chunked(connection: Connection) -> None:
    connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    connection.chunk(line() * 100)
    connection.hang_up()


def _cut_inside_chunk(connection: Connection) -> None:
    connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    connection.write(b"ffff\r\n" + line() * 100)
    connection.hang_up()


def _cut_length(connection: Connection) -> None:
    connection.head(200, {"Content-Type": "application/json", "Content-Length": "1000000"})
    connection.write(line() * 100)
    connection.hang_up()


def _reset(connection: Connection) -> None:
    connection.head(200, {"Content-Type": "application/json", "Content-Length": "1000000"})
    connection.write(line() * 100)
    connection.reset()


CUTS = [_cut_chunked, _cut_inside_chunk, _cut_length, _reset]


@pytest.mark.parametrize("cut", CUTS)
def test_answer_that_is_cut_off_at_a_line_end_is_never_taken_for_whole(kind: str, cut: Reply) -> None:
    with ScriptedServer([cut]) as server, pytest.raises(SourceDecode, match="cut off"):
        fetch(server, kind)
    assert len(server.requests) == 2


@pytest.mark.parametrize("cut", CUTS)
def test_nothing_of_a_cut_answer_is_kept(kind: str, cut: Reply) -> None:
    with ScriptedServer([cut, GOOD[kind]]) as server:
        batch = fetch(server, kind)
    assert batch.values.tolist() == [1.5]
    assert batch.dropped == {}


def test_connection_closed_before_an_answer(kind: str) -> None:
    with ScriptedServer([lambda connection: connection.reset(), GOOD[kind]]) as server:
        assert len(fetch(server, kind).series) == 1


def test_database_down(kind: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    source = open_source(SourceOptions(url, kind=kind))
    with pytest.raises(SourceError, match="no connection") as caught:
        source.fetch(["m"], START_MS, END_MS, DictInterner())
    assert url in str(caught.value)
    source.close()


def test_gzip_is_unpacked_though_not_asked_for(kind: str) -> None:
    body = (
        line() * 3000 if kind == "victoriametrics" else vector(({"__name__": "m"}, [(STAMP / 1000, "1.5")]))
    )
    with ScriptedServer(
        [reply(200, gzip.compress(body), "application/json", Content_Encoding="gzip")]
    ) as server:
        assert fetch(server, kind).values.tolist() == [1.5]
    assert server.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_truncated_gzip(kind: str, keep: float) -> None:
    packed = gzip.compress(line() * 3000)
    packed = packed[: int(len(packed) * keep)]
    with (
        ScriptedServer([reply(200, packed, "application/json", Content_Encoding="gzip")]) as server,
        pytest.raises(SourceDecode, match="cut off"),
    ):
        fetch(server, kind)


def test_damaged_gzip_and_unknown_encoding(kind: str) -> None:
    with (
        ScriptedServer(
            [reply(200, b"no gzip at all", "application/json", Content_Encoding="gzip")]
        ) as server,
        pytest.raises(SourceDecode, match="damaged"),
    ):
        fetch(server, kind)
    with (
        ScriptedServer([reply(200, b"???", "application/json", Content_Encoding="br")]) as server,
        pytest.raises(SourceDecode, match="'br'"),
    ):
        fetch(server, kind)


def test_small_gzip_that_unpacks_to_much_is_stopped(kind: str) -> None:
    packed = gzip.compress(b" " * 30_000_000)
    with (
        ScriptedServer([reply(200, packed, "application/json", Content_Encoding="gzip")]) as server,
        pytest.raises(SourceDecode, match="more than 1000000 bytes"),
    ):
        fetch(server, kind, max_response_bytes=1_000_000)


def test_huge_body_is_stopped(kind: str) -> None:
    def endless(connection: Connection) -> None:
        connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
        while not connection.stopped.is_set():
            connection.chunk(line() * 1000)

    with (
        ScriptedServer([endless]) as server,
        pytest.raises(SourceDecode, match="larger than 1000000 bytes"),
    ):
        fetch(server, kind, max_response_bytes=1_000_000)


def test_too_many_series_in_all() -> None:
    body = b"".join(line(n=str(i)) for i in range(50))
    with ScriptedServer([reply(200, body)]) as server:
        assert len(fetch(server, max_series=50).series) == 50
        with pytest.raises(SourceDecode, match="more than 49 series"):
            fetch(server, max_series=49)


def _drip(connection: Connection) -> None:
    connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    while not connection.stopped.wait(0.05):
        connection.chunk(b" ")


def _silence(connection: Connection) -> None:
    connection.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    connection.chunk(line())
    connection.stopped.wait(60)


def _no_answer(connection: Connection) -> None:
    connection.stopped.wait(60)


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (_drip, {"deadline_s": 0.6}, "no complete answer within 0.6 s"),
        (_silence, {"read_timeout_s": 0.3}, "fell silent"),
        (_silence, {"deadline_s": 0.4}, "fell silent|no complete answer"),
        (_no_answer, {"read_timeout_s": 0.3}, "no answer within 0.3 s"),
        (_no_answer, {"deadline_s": 0.4}, "no answer within 0.[34]"),
    ],
)
def test_slow_answers_end_in_time(kind: str, answer: Reply, options: dict[str, float], said: str) -> None:
    with ScriptedServer([answer]) as server:
        begun = time.monotonic()
        with pytest.raises(SourceTimeout, match=said):
            fetch(server, kind, **options)
        assert time.monotonic() - begun < 3.0
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [_no_answer, _silence, _drip])
def test_close_ends_a_fetch_that_hangs(kind: str, answer: Reply) -> None:
    caught: list[BaseException] = []
    with ScriptedServer([answer]) as server:
        source = opened(server, kind, deadline_s=60.0, read_timeout_s=60.0)

        def run() -> None:
            try:
                source.fetch(["m"], START_MS, END_MS, DictInterner())
            except SourceError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: bool(server.requests), "a request")
        source.close()
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert caught
    with pytest.raises(SourceError, match="closed"):
        source.fetch(["m"], START_MS, END_MS, DictInterner())


@pytest.mark.parametrize("refused", ["n00", "n45", "n89"])
def test_one_failed_request_fails_the_fetch_at_once(refused: str) -> None:
    def answer(connection: Connection) -> None:
        if refused in connection.request.form["match[]"][0]:
            reply(403, b"forbidden", "text/plain")(connection)
        else:
            _drip(connection)

    names = tuple(f"n{i:02d}" for i in range(90))
    with ScriptedServer([answer]) as server:
        begun = time.monotonic()
        with pytest.raises(SourceStatus, match="forbidden"):
            fetch(server, names=names, deadline_s=30.0, parallel_requests=4)
        assert time.monotonic() - begun < 5.0


def _redirect(location: str, status: int = 302) -> Reply:
    return reply(status, b"", "text/plain", Location=location)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_on_the_same_host_keeps_the_question(kind: str, status: int) -> None:
    with ScriptedServer([_redirect("/elsewhere", status), GOOD[kind]]) as server:
        fetch(server, kind, bearer_token="secret-token")
    assert [request.path for request in server.requests][1] == "/elsewhere"
    assert server.requests[1].method == "POST"
    assert server.requests[1].form == server.requests[0].form


def test_redirect_to_another_host_is_refused_and_gets_no_credentials(kind: str) -> None:
    with (
        ScriptedServer([GOOD[kind]]) as other,
        ScriptedServer([_redirect(other.url + "/login?a=b")]) as server,
    ):
        with pytest.raises(SourceStatus, match=r"redirects to .*/login, another host"):
            fetch(server, kind, bearer_token="secret-token")
        assert other.requests == []


def test_endless_redirects(kind: str) -> None:
    with ScriptedServer([_redirect("/again")]) as server, pytest.raises(SourceStatus, match="redirects"):
        fetch(server, kind)
    assert len(server.requests) <= 4


def test_no_secret_in_any_error(kind: str) -> None:
    def echo(connection: Connection) -> None:
        headers = connection.request.headers
        text = (headers["Authorization"] + headers.get("X-Key", "")).encode()
        reply(403, b"not allowed: " + text, "text/plain")(connection)

    with ScriptedServer([echo]) as server:
        with pytest.raises(SourceStatus, match="not allowed") as caught:
            fetch(server, kind, bearer_token="secret-token", headers={"X-Key": "secret-key"})
        assert "secret-" not in str(caught.value)
        url = server.url.replace("http://", "http://user:secret-word@")
        source = open_source(SourceOptions(url, kind=kind))
        with pytest.raises(SourceStatus) as caught:
            source.fetch(["m"], START_MS, END_MS, DictInterner())
        source.close()
    assert "secret-word" not in str(caught.value)
    assert server.requests[1].headers["Authorization"].startswith("Basic ")
    assert "secret" not in repr(SourceOptions("http://h", bearer_token="secret", basic_password="secret"))


def test_token_file_is_read_again_when_it_changes_and_when_it_is_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    valid = {"one"}

    def answer(connection: Connection) -> None:
        token = connection.request.headers["Authorization"].removeprefix("Bearer ")
        if token in valid:
            GOOD[kind](connection)
        else:
            reply(401, b"expired", "text/plain")(connection)

    with ScriptedServer([answer]) as server:
        source = opened(server, kind, bearer_token_file=file)

        def ask() -> int:
            return len(source.fetch(["m"], START_MS, END_MS, DictInterner()).series)

        assert ask() == 1
        valid.add("two")
        file.write_text("two2")
        valid.add("two2")
        assert ask() == 1
        assert server.requests[-1].headers["Authorization"] == "Bearer two2"
        valid.clear()
        with pytest.raises(SourceStatus, match="401"):
            ask()
        file.unlink()
        with pytest.raises(SourceError, match=r"token file .*token cannot be read"):
            ask()
        source.close()


def test_token_changed_between_reading_and_refusal_is_tried_again(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    def answer(connection: Connection) -> None:
        if connection.request.headers["Authorization"] == "Bearer old":
            file.write_text("new")
            reply(401, b"expired", "text/plain")(connection)
        else:
            GOOD[kind](connection)

    with ScriptedServer([answer]) as server:
        assert len(fetch(server, kind, bearer_token_file=file, retries=0).series) == 1
    assert len(server.requests) == 2


def test_headers_are_sent_with_every_request(kind: str) -> None:
    with ScriptedServer([GOOD[kind]]) as server:
        fetch(server, kind, headers={"X-Scope-OrgID": "team-a"})
    assert server.requests[0].headers["X-Scope-OrgID"] == "team-a"


@pytest.mark.parametrize("extra", [{"isPartial": True}, {"warnings": ["remote store away"]}])
def test_partial_answers_are_carried(extra: dict[str, object]) -> None:
    body = vector(({"__name__": "m"}, [(STAMP / 1000, "1.5")]), **extra)
    with ScriptedServer([reply(200, body, "application/json")]) as server:
        batch = fetch(server, "prometheus")
    assert batch.is_partial
    assert len(batch.series) == 1
    assert ("remote store away" in " ".join(batch.notes)) == ("warnings" in extra)


def test_times_of_prometheus_are_rounded_to_whole_milliseconds() -> None:
    stamps = [1_000_000.001 + i * 0.001 for i in range(2000)]
    body = vector(({"__name__": "m"}, [(stamp, "1") for stamp in stamps]))
    with ScriptedServer([reply(200, body, "application/json")]) as server:
        source = opened(server, "prometheus")
        batch = source.fetch(["m"], 1_000_000_000, 1_000_002_000, DictInterner())
        source.close()
    assert batch.ts_ms.tolist() == [1_000_000_001 + i for i in range(2000)]


@pytest.mark.parametrize(
    ("answer", "kind_found"),
    [(reply(200, b""), "victoriametrics"), (reply(404, b"404 page not found", "text/plain"), "prometheus")],
)
def test_kind_is_found_by_the_export(answer: Reply, kind_found: str) -> None:
    with ScriptedServer([answer]) as server:
        assert detect_kind(SourceOptions(server.url)) == kind_found


def test_kind_is_not_guessed_from_a_refusal() -> None:
    with ScriptedServer([reply(401, b"", "text/plain")]) as server, pytest.raises(SourceStatus):
        detect_kind(SourceOptions(server.url))


def test_auto_waits_for_its_database() -> None:
    with ScriptedServer(
        [reply(503, b"starting", "text/plain")] * 2 + [reply(200, b""), reply(200, line())]
    ) as server:
        source = opened(server, "auto")
        with pytest.raises(SourceStatus, match="starting"):
            source.fetch(["m"], START_MS, END_MS, DictInterner())
        assert len(source.fetch(["m"], START_MS, END_MS, DictInterner()).series) == 1
        source.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "db:8428"}, "not an http"),
        ({"url": "ftp://db"}, "not an http"),
        ({"url": "http://db", "kind": "influx"}, "'influx' is not one of"),
        ({"url": "http://db", "bearer_token": "a", "basic_username": "b"}, "not both"),
    ],
)
def test_wrong_options_are_told_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        open_source(SourceOptions(**options))


def test_certificate_file_that_is_missing_is_named(tmp_path: Path) -> None:
    source = open_source(SourceOptions("https://127.0.0.1:1", kind="prometheus", ca_file=tmp_path / "ca.pem"))
    with pytest.raises(SourceError, match=r"ca\.pem cannot be read"):
        source.fetch(["m"], START_MS, END_MS, DictInterner())
    source.close()


Query = Callable[[DatabaseSource], object]


@pytest.mark.parametrize(
    "body", [b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}}]}}', b"[]"]
)
def test_query_says_when_there_is_no_vector(kind: str, body: bytes) -> None:
    with ScriptedServer([reply(200, body, "application/json")]) as server:
        source = opened(server, kind)
        with pytest.raises(SourceDecode):
            source.query("up", 1000.0)
        source.close()


def test_query_and_metadata(kind: str) -> None:
    rows = [{"metric": {"node": "a"}, "value": [1000.0, "NaN"]}, {"metric": {}, "value": [1000, "2"]}]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
    kinds = {"status": "success", "data": {"up": [{"type": "gauge", "help": "h", "unit": ""}], "none": []}}
    with ScriptedServer(
        [reply(200, body, "application/json"), reply(200, json.dumps(kinds).encode(), "application/json")]
    ) as server:
        source = opened(server, kind)
        found = source.query('up{a="b"}', 1000.1234)
        assert [labels for labels, _ in found] == [{"node": "a"}, {}]
        assert found[1][1] == 2.0
        assert source.metadata() == {"up": "gauge"}
        source.close()
    assert server.requests[0].form["query"] == ['up{a="b"}']
    assert server.requests[0].form["time"] == ["1000.123"]
    assert "query=" not in server.requests[0].path

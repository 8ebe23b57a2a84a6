"""What commands of operators send, print and refuse, asked of a service at rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner

from detector.cli import app
from detector.cli_control import seconds_of
from detector.cli_feedback import description
from detector.errors import OddnodeError
from detector.plain_text import moment_of
from detector.settings import TOKEN_VARIABLE, load_settings
from detector.source.incident_file import load_recording
from detector.tokens import Tokens
from tests.control_fakes import FAULTY, OTHER, Cluster
from tests.servers import ScriptedServer, reply
from tests.service_fakes import T0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "oddnode.db").run(4)
    yield made
    made.close()


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(cluster.app(), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, f"{result.output} {result.exception!r}"
    return result.output


def fails(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, OddnodeError), f"{result.output} {result.exception!r}"
    return str(result.exception)


def test_a_day_of_an_operator(cluster: Cluster, url: str, tmp_path: Path) -> None:
    to = ("--url", url, "--by", "kim")
    faulty, other = (cluster.pipeline.open[node].id for node in (FAULTY, OTHER))
    assert f"acknowledged: {faulty}, by kim" in run("ack", faulty, "--note", "on it", *to)
    assert f"dismissed: {other}" in run("dismiss", other, "--reason", "checkpoint", *to)
    shown = run("suspects", "--url", url, code=1)
    assert f"SUSPECT {FAULTY}" in shown
    assert "acknowledged by kim" in shown
    assert OTHER not in shown
    muted = run("mute", "--node", FAULTY, "--pool", "p", "--for", "90m", "--reason", "swap", *to)
    assert f"node {FAULTY}, pool p, 2026-01-01 00:02 UTC to 2026-01-01 01:32 UTC, kim: swap" in muted
    apart = run("mute", "--node", OTHER, "--apart", "--for", "1h", "--reason", "swap", *to)
    assert f"node {OTHER}, apart, 2026-01-01" in apart
    assert "ended: " in run("unmute", apart.split()[1], *to)
    window = run(
        "mute", "--pool", "p", "--start", "2026-01-02T10:00", "--until", "2026-01-02T12:00Z",
        "--reason", "fw", *to,
    )  # fmt: skip
    assert window.startswith("planned: m-")
    assert "muted until 2026-01-01 01:32:00 UTC: swap" in run("suspects", "--url", url)
    ids = [word for word in run("mutes", "--url", url).split() if word.startswith("m-")]
    assert len(ids) == 2
    for one in ids:
        assert f"ended: {one}" in run("unmute", one, *to)
    assert "nothing is muted" in run("mutes", "--url", url)
    assert run("mutes", "--ended", "--url", url).count("over: ") == 3
    assert f"cleared {faulty}" in run("repaired", FAULTY, *to)
    assert "had no incident" in run("repaired", FAULTY, *to)
    out = tmp_path / "incident.yaml"
    run("feedback", "--json", str(out), "--url", url)
    found = load_recording(tmp_path)
    assert [(f.node, f.onset, f.end) for f in found.faults] == [(FAULTY, T0 + 30, T0 + 120)]
    assert found.benign[0]["note"] == "checkpoint"
    assert found.masked == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ack", "none@1"), "incident 'none@1' is not known"),
        (("dismiss", "none@1", "--reason", "x"), "incident 'none@1' is not known"),
        (("dismiss", "none@1", "--reason", ""), "reason"),
        (("repaired", "nobody"), "node 'nobody' is not known"),
        (("repaired", " "), "must not be empty"),
        (("unmute", "m-0"), "mute 'm-0' is not known"),
        (("mute", "--node", OTHER, "--reason", "x"), "--for 2h or --until TIME"),
        (("mute", "--node", OTHER, "--reason", "x", "--for", "2h", "--until", "1"), "--for 2h or --until"),
        (("mute", "--node", OTHER, "--reason", "x", "--for", "2 hours"), "--for '2 hours' is no time"),
        (("mute", "--node", OTHER, "--reason", "x", "--until", "soon"), "--until 'soon' is neither"),
        (("mute", "--reason", "x", "--for", "2h"), "a node, a pool or a metric"),
        (("feedback", "--json", "-", "--start", "9", "--end", "5"), "is not before"),
        (("mutes", "--token-file", "/nowhere/token"), "cannot be read"),
    ],
)
def test_what_is_refused_is_one_sentence(url: str, words: tuple[str, ...], message: str) -> None:
    told = fails(*words, "--url", url)
    assert message in told
    assert "\n" not in told


def test_a_token_is_never_part_of_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "odn_secret\nX-Other: 1")
    told = fails("mutes", "--url", "http://127.0.0.1:9")
    assert "holds no token" in told
    assert "secret" not in told
    held = tmp_path / "token"
    held.write_text("")
    assert "is empty" in fails("mutes", "--token-file", str(held), "--url", "http://127.0.0.1:9")
    monkeypatch.setenv(TOKEN_VARIABLE, "odn_secret")
    assert "secret" not in fails("mutes", "--url", "http://127.0.0.1:9")
    assert load_settings().auth.tokens == (), "the variable is no setting, and no error"


@pytest.mark.parametrize("words", [("mutes",), ("ack", "gpu001@1")], ids=["reads", "changes"])
def test_a_redirect_is_not_followed_with_the_token(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "odn_secret")
    with (
        ScriptedServer([reply(200, b"{}", "application/json")]) as other,
        ScriptedServer([reply(307, b"", Location=f"{other.url}/v1/mutes")]) as asked,
    ):
        told = fails(*words, "--url", asked.url)
        assert "307" in told
        assert "secret" not in told
        assert len(asked.requests) == 1
        assert other.requests == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("1d12h", 129_600), ("90m", 5400), ("30s", 30), ("1h30m", 5400)]
)
def test_times_for(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "2", "x" * 10_000, "-2h", "2h 3m", "²h"])
def test_times_for_that_are_none(text: str) -> None:
    with pytest.raises(OddnodeError, match="is no time such as"):
        seconds_of(text)
    with pytest.raises(OddnodeError):
        moment_of("1e400", "--until")


def test_a_token_is_made_with_the_line_to_keep(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["token", "kim", "--scope", "operate"])
    made, line = result.stdout.splitlines()
    path = tmp_path / "oddnode.yaml"
    path.write_text(f"auth:\n  tokens:\n    {line}\n")
    settings = load_settings(path)
    owner = Tokens(settings.auth).find(made)
    assert owner is not None
    assert (owner.name, owner.scope) == ("kim", "operate")
    assert owner.sha256.get_secret_value() not in json.dumps(settings.describe())
    assert "letters, digits" in fails("token", "kim: {x}")


def label(incident_id: str, verdict: str, start: float, end: float | None, **more: Any) -> dict[str, Any]:
    node = incident_id.partition("@")[0]
    return {
        "incident_id": incident_id, "node": node, "start": start, "end": end, "verdict": verdict, "by": "kim",
        "note": "", "at": 0.0, "part": "gpu 3", "fault_class": "nvlink", "lifted_at": None, "lifted_for": "",
    } | more  # fmt: skip


def test_labels_as_the_description_of_a_recording(tmp_path: Path) -> None:
    labels = [
        label("a@100", "fault", 100.0, 400.0),
        label("b@200", "false_alarm", 200.0, None),
        label("c@300", "false_alarm", 300.0, 900.0, lifted_at=600.0),
    ]
    named = [
        {"id": "a@100", "node": "a", "active_at": 100.0, "cleared_at": 400.0},
        {"id": "d@700", "node": "d", "active_at": 700.0, "cleared_at": None},
    ]
    made = description(labels, named, ["d", "a", "b", "c"], None, 1000.0, 30.0)
    (tmp_path / "incident.yaml").write_text(json.dumps(made))
    found = load_recording(tmp_path)
    assert (found.start, found.end, found.pool) == (90.0, 1000.0, ("a", "b", "c", "d"))
    assert [(f.node, f.kind, f.onset, f.end, f.part) for f in found.faults] == [
        ("a", "nvlink", 100.0, 400.0, "gpu 3")
    ]
    assert [(m.node, m.onset, m.end) for m in found.masked] == [("d", 700.0, 1000.0), ("c", 600.0, 900.0)]
    assert [(b["node"], b["onset"], b["end"]) for b in found.benign] == [
        ("b", 200.0, 1000.0), ("c", 300.0, 600.0)
    ]  # fmt: skip
    assert not found.healthy
    clipped = description(labels, named, [], 150.0, 350.0, 30.0)
    assert [(f["onset"], f["end"]) for f in clipped["faults"]] == [(150.0, 350.0)]
    empty = description([], [], ["a"], None, 1000.0, 30.0)
    assert empty["healthy"]

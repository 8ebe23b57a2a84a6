"""Operators and the real service: tokens, commands, TLS, and kill -9."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from detector.app_door import tls_context
from detector.cli import app
from detector.errors import OddnodeError, SettingsError
from detector.settings import TOKEN_VARIABLE, HttpSettings
from detector.source.incident_file import load_recording
from detector.store import Store
from detector.store_control import ControlStore
from detector.tokens import entry_line, make_token
from tests.test_service_serve import FAULTY, START, STEP, Start, start, wait_for, write_recording

__all__ = ["start"]  # a fixture


def asked(port: int, path: str, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_operators_and_a_running_service(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = write_recording(tmp_path / "small")
    reader, operator = make_token(), make_token()
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(entry_line("dashboard", reader, "read") + "\n")
    service = start({"recording": {"path": str(case), "speed": 500}, "auth": {"tokens_file": str(tokens)}})
    port = service.port()
    assert asked(port, "/v1/suspects")[0] == 401
    assert asked(port, "/healthz")[0] == 200
    suspects = wait_for(lambda: asked(port, "/v1/suspects", reader)[1].get("suspects"), what=service.text)
    (incident,) = [one["incident_id"] for one in suspects if one["node"] == FAULTY]
    url = ["--url", f"http://127.0.0.1:{port}"]

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, *url])
        assert result.exit_code == code, f"{result.output} {result.exception}"
        return result.output

    def fails(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, *url])
        assert isinstance(result.exception, OddnodeError), result.output
        return str(result.exception)

    assert f"set {TOKEN_VARIABLE}" in fails("suspects")
    monkeypatch.setenv(TOKEN_VARIABLE, reader)
    assert FAULTY in run("suspects", code=1)
    assert "may only read" in fails("ack", incident)
    held = tmp_path / "token"
    held.write_text(operator + "\n")
    assert "not valid" in fails("ack", incident, "--token-file", str(held))
    with tokens.open("a") as file:
        file.write(entry_line("kim", operator, "operate") + "\n")
    wait_for(lambda: asked(port, "/v1/audit", operator)[0] == 200, what=service.text)
    monkeypatch.setenv(TOKEN_VARIABLE, operator)
    assert f"acknowledged: {incident}, by kim" in run("ack", incident, "--note", "RMA", "--by", "eve")
    shown = run("mute", "--node", FAULTY, "--for", "2h", "--reason", "swap")
    mute_id = next(word for word in shown.split() if word.startswith("m-"))
    assert "muted until 2026-01-01 0" in run("suspects"), "a muted suspect is no reason to fail"
    assert mute_id in run("mutes")
    assert "not known" in fails("mute", "--node", "nobody", "--for", "2h", "--reason", "x")
    assert "31 days" in fails("mute", "--node", FAULTY, "--for", "99d", "--reason", "x")
    run("mute", "--metric", "DCGM_FI_DEV_GPU_TEMP", "--until", str(START + STEP * 900), "--reason", "x")
    assert f"ended: {mute_id}" in run("unmute", mute_id, "--note", "done")
    out = tmp_path / "small" / "incident.yaml"
    run("feedback", "--json", str(out), "--start", str(START), "--end", str(START + STEP * 90))
    labelled = load_recording(out.parent)
    assert [(f.node, f.part) for f in labelled.faults] == [(FAULTY, "gpu 2")]
    assert len(labelled.pool) == 12
    last = START + STEP * 90
    wait_for(lambda: asked(port, "/v1/nodes", operator)[1].get("at") == last, what=service.text)
    done = run("repaired", FAULTY, "--note", "new GPU")
    assert f"cleared {incident}" in done
    assert "no suspect" in run("suspects")
    service.process.send_signal(signal.SIGKILL)
    service.process.wait(30)
    store = Store(tmp_path / "oddnode-recording.db")
    kept = ControlStore(store)
    stored = store.incident(incident)
    assert stored is not None
    assert stored.state == "cleared"
    assert [e.action for e in kept.audit(limit=10, offset=0)] == [
        "repaired", "unmute", "mute", "mute", "acknowledge"
    ]  # fmt: skip
    assert {e.by for e in kept.audit(limit=10, offset=0)} == {"kim"}
    assert [m.metric for m in kept.mutes(0.0)] == ["DCGM_FI_DEV_GPU_TEMP"]
    (label,) = kept.feedback()
    assert label.end == stored.cleared_at
    assert [r.node for r in kept.repairs()] == [FAULTY]
    store.close()
    text = service.text()
    assert reader not in text
    assert operator not in text
    assert "access refused=401" in text
    # labels are read by the evaluation as they are
    result = CliRunner().invoke(app, ["evaluate", str(out.parent)])
    assert result.exit_code in (0, 1), f"{result.output} {result.exception}"


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_tls(tmp_path: Path, start: Start) -> None:
    case = write_recording(tmp_path / "small")
    cert, key = certificate(tmp_path)
    tls = {"port": 0, "tls_cert": str(cert), "tls_key": str(key)}
    service = start({"recording": {"path": str(case), "speed": 500}, "http": tls})
    port = service.port()
    assert f"listening url=https://127.0.0.1:{port}" in service.text()
    trusted = ssl.create_default_context(cafile=str(cert))
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=trusted, timeout=10) as answer:
        assert answer.status == 200
    with pytest.raises((OSError, http.client.HTTPException)):  # plain HTTP is not answered beside it
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10)
    assert service.end() == 0


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    assert tls_context(HttpSettings()) is None
    found = tls_context(HttpSettings(tls_cert=cert, tls_key=key))
    assert found is not None
    assert found.minimum_version == ssl.TLSVersion.TLSv1_2
    for bad_cert, bad_key, word in (
        (tmp_path / "none", key, "none: cannot be read"),
        (cert, cert, "no certificate with its key"),
        (key, key, "no certificate with its key"),
    ):
        with pytest.raises(SettingsError, match=word):
            tls_context(HttpSettings(tls_cert=bad_cert, tls_key=bad_key))
    with pytest.raises(ValueError, match="go together"):
        HttpSettings(tls_cert=cert)


def test_a_service_beyond_this_machine_without_tokens_takes_no_changes(tmp_path: Path, start: Start) -> None:
    case = write_recording(tmp_path / "small")
    http = {"host": "0.0.0.0", "port": 0}
    service = start({"recording": {"path": str(case), "speed": 500}, "http": http})
    port = service.port()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/mutes", data=b"{}", headers={"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert caught.value.code == 403
    assert "oddnode token" in json.load(caught.value)["error"]["message"]
    assert "access open=true" in service.text()

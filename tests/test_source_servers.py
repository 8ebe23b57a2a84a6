"""Sources against real servers: access control, TLS, limits, and bugs of real releases."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector.errors import SourceError, SourceStatus
from detector.source.opening import detect_kind, open_source
from detector.source.options import SourceOptions
from tests import servers
from tests.interner import DictInterner, as_samples

pytestmark = pytest.mark.server

START_MS = 1_717_243_200_000
END_MS = START_MS + 60_000
STAMP = START_MS + 30_000


def lines(n_series: int, name: str = "m", n_names: int = 1) -> bytes:
    """Series whose value tells who they are."""
    rows = (
        f'{{"metric":{{"__name__":"{name}{i % n_names if n_names > 1 else ""}","id":"{i}"}},'
        f'"values":[{i}],"timestamps":[{STAMP - i % 1000}]}}\n'
        for i in range(n_series)
    )
    return "".join(rows).encode()


def fetch(url: str, names: tuple[str, ...] = ("m",), **options: Any) -> tuple[dict[str, float], bool]:
    source = open_source(SourceOptions(url, **options))
    interner = DictInterner()
    try:
        batch = source.fetch(names, START_MS, END_MS, interner)
    finally:
        source.close()
    found = {dict(labels)["id"]: value for (labels, _), value in as_samples(batch, interner).items()}
    return found, batch.is_partial


def test_every_series_has_its_own_samples(fresh_vm: servers.Server) -> None:
    """A faster form of the export gives some series the samples of others in release 1.79."""
    n_series = 30_000
    servers.import_lines(fresh_vm, lines(n_series, "m", 60))
    names = tuple(f"m{i}" for i in range(60))
    for _ in range(3):
        found, _ = fetch(fresh_vm.url, names, kind="victoriametrics")
        assert len(found) == n_series
        assert all(value == float(key) for key, value in found.items())


@pytest.mark.parametrize("kind", ["victoriametrics", "prometheus"])
def test_limit_of_series_is_met_by_smaller_requests(tmp_path: Path, kind: str) -> None:
    with servers.victoria_metrics(
        tmp_path, "-search.maxUniqueTimeseries=40", "-search.maxExportSeries=40"
    ) as vm:
        servers.import_lines(vm, lines(200, "m", 16))
        found, is_partial = fetch(vm.url, tuple(f"m{i}" for i in range(16)), kind=kind)
        assert len(found) == 200
        assert not is_partial
        servers.import_lines(vm, lines(60, "big"))
        with pytest.raises(SourceStatus, match="exceeds 40"):
            fetch(vm.url, ("big",), kind=kind)


def test_limit_of_samples_of_prometheus_is_met_by_smaller_requests(tmp_path: Path) -> None:
    text = "".join(
        f'm{i % 8}{{id="{i}"}} {i} {STAMP / 1000}\n' for i in sorted(range(64), key=lambda i: i % 8)
    )
    servers.blocks_from_openmetrics(tmp_path, text + "# EOF\n")
    with servers.prometheus(tmp_path, "{}", "--query.max-samples=20") as server:
        found, _ = fetch(server.url, tuple(f"m{i}" for i in range(8)), kind="prometheus")
    assert found == {str(i): float(i) for i in range(64)}


AUTH = """
users:
- bearer_token: first-token
  url_prefix: {url}
- bearer_token: second-token
  url_prefix: {url}
- username: oddnode
  password: pass-word
  url_map:
  - src_paths: ["/select/0/prometheus/.*"]
    url_prefix: {url}/tenant
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """vmauth in front of a VictoriaMetrics; one user sees it under a tenant's path only."""
    folder = tmp_path_factory.mktemp("guarded")
    with servers.victoria_metrics(folder / "vm") as vm:
        servers.import_lines(vm, lines(5))
        with servers.vmauth(folder / "vmauth", AUTH.format(url=vm.url)) as server:
            yield server


def test_bearer_token_through_vmauth(guarded: servers.Server) -> None:
    found, _ = fetch(guarded.url, bearer_token="first-token")
    assert len(found) == 5


@pytest.mark.parametrize(
    "options", [{}, {"bearer_token": "wrong"}, {"basic_username": "oddnode", "basic_password": "no"}]
)
def test_wrong_credentials_through_vmauth(guarded: servers.Server, options: dict[str, str]) -> None:
    with pytest.raises(SourceStatus, match=r"401|auth token") as caught:
        fetch(guarded.url, **options)
    assert caught.value.status in (400, 401)
    assert "wrong" not in str(caught.value)


def test_token_rotates_under_a_running_source(guarded: servers.Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token\n")
    source = open_source(SourceOptions(guarded.url, bearer_token_file=file))
    for token, is_good in (("first-token", True), ("wrong", False), ("second-token", True)):
        replacement = tmp_path / "new"
        replacement.write_text(token)
        replacement.replace(file)
        if is_good:
            assert len(source.fetch(["m"], START_MS, END_MS, DictInterner()).series) == 5
        else:
            with pytest.raises(SourceStatus, match=r"401|auth token"):
                source.fetch(["m"], START_MS, END_MS, DictInterner())
    source.close()


@pytest.mark.parametrize("slash", ["", "/"])
def test_tenant_path_and_basic_authentication(slash: str, tmp_path: Path) -> None:
    """vmauth 1.79 keeps the whole path behind its prefix, so the tenant is played by a plain server."""
    answer = servers.reply(200, lines(5))
    config = AUTH.replace("/tenant", "")
    with (
        servers.ScriptedServer([answer]) as database,
        servers.vmauth(tmp_path, config.format(url=database.url)) as server,
    ):
        found, _ = fetch(
            f"{server.url}/select/0/prometheus{slash}",
            kind="victoriametrics",
            basic_username="oddnode",
            basic_password="pass-word",
        )
        assert len(found) == 5
        assert database.requests[0].path.partition("?")[0] == "/select/0/prometheus/api/v1/export"
        with pytest.raises(SourceStatus):
            fetch(f"{server.url}/select/1/prometheus", basic_username="oddnode", basic_password="pass-word")


def test_password_file_and_credentials_in_the_address(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("pass-word\n")
    with servers.ScriptedServer([servers.reply(200, lines(5))]) as server:
        fetch(server.url, kind="victoriametrics", basic_username="oddnode", basic_password_file=file)
        fetch(server.url.replace("//", "//oddnode:pass-word@"), kind="victoriametrics")
    assert server.requests[0].headers["Authorization"] == server.requests[1].headers["Authorization"]


def test_kind_of_real_servers(guarded: servers.Server, fresh_prometheus: servers.Server) -> None:
    assert detect_kind(SourceOptions(guarded.url, bearer_token="first-token")) == "victoriametrics"
    assert detect_kind(SourceOptions(fresh_prometheus.url)) == "prometheus"


def test_wrong_path_is_said(fresh_prometheus: servers.Server) -> None:
    with pytest.raises(SourceStatus, match="404"):
        fetch(fresh_prometheus.url + "/nowhere", kind="prometheus")


def test_tls_needs_the_authority(tmp_path: Path) -> None:
    made = servers.make_certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    with servers.ScriptedServer([servers.reply(200, lines(5))], tls=context) as server:
        with pytest.raises(SourceError, match="TLS failed"):
            fetch(server.url, kind="victoriametrics")
        assert len(fetch(server.url, kind="victoriametrics", ca_file=made.ca)[0]) == 5
        assert len(fetch(server.url, kind="victoriametrics", insecure_skip_verify=True)[0]) == 5


def test_authority_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    made, other = servers.make_certificates(tmp_path / "a"), servers.make_certificates(tmp_path / "b")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    file = tmp_path / "ca.pem"
    file.write_bytes(other.ca.read_bytes())
    with servers.ScriptedServer([servers.reply(200, lines(5))], tls=context) as server:
        source = open_source(SourceOptions(server.url, kind="victoriametrics", ca_file=file))
        with pytest.raises(SourceError, match="TLS failed"):
            source.fetch(["m"], START_MS, END_MS, DictInterner())
        replacement = tmp_path / "new"
        replacement.write_bytes(made.ca.read_bytes())
        replacement.replace(file)
        assert len(source.fetch(["m"], START_MS, END_MS, DictInterner()).series) == 5
        source.close()


def test_client_certificate(tmp_path: Path) -> None:
    made = servers.make_certificates(tmp_path / "server")
    client = servers.make_certificates(tmp_path / "client", "oddnode")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(client.ca)
    with servers.ScriptedServer([servers.reply(200, lines(5))], tls=context) as server:
        with pytest.raises(SourceError):
            fetch(server.url, kind="victoriametrics", ca_file=made.ca)
        found, _ = fetch(
            server.url, kind="victoriametrics", ca_file=made.ca, cert_file=client.cert, key_file=client.key
        )
    assert len(found) == 5


def test_numbers_that_are_none(fresh_vm: servers.Server) -> None:
    """NaN and infinity as VictoriaMetrics stores and exports them, and the blanks of DCGM."""
    values = ["1", "NaN", "+Inf", "-Inf", "9223372036854775794", "2147483632", "140737488355328", "2"]
    text = "".join(f'm{{id="0"}} {value} {STAMP + i}\n' for i, value in enumerate(values))
    servers.post(fresh_vm.url, "/api/v1/import/prometheus", text.encode())
    assert servers.answers(fresh_vm.port, "/internal/force_flush")
    for kind in ("victoriametrics", "prometheus"):
        source = open_source(SourceOptions(fresh_vm.url, kind=kind))
        batch = source.fetch(["m"], START_MS, END_MS, DictInterner())
        source.close()
        assert batch.values.tolist() == [1.0, 2.0]
        assert batch.dropped.get("inf") == 2
        assert batch.dropped.get("sentinel") == 3


def test_two_values_at_one_time(fresh_vm: servers.Server) -> None:
    for value in (8, 7):
        row = f'{{"metric":{{"__name__":"m","id":"0"}},"values":[{value}],"timestamps":[{STAMP}]}}\n'
        servers.import_lines(fresh_vm, row.encode())
    seen = set()
    for _ in range(5):
        source = open_source(SourceOptions(fresh_vm.url, kind="victoriametrics"))
        batch = source.fetch(["m"], START_MS, END_MS, DictInterner())
        source.close()
        seen.add((tuple(batch.values.tolist()), tuple(sorted(batch.dropped.items()))))
    assert len(seen) == 1


def test_staleness_markers_of_prometheus_are_no_samples(fresh_vm: servers.Server, tmp_path: Path) -> None:
    """vmagent writes a marker when it stops; some releases export it as null."""
    page = b'm{id="7"} 5\n'
    with servers.ScriptedServer([servers.reply(200, page, "text/plain")]) as target:
        address = target.url.removeprefix("http://")
        config = (
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs:\n- job_name: test\n  static_configs:\n  - targets: ['{address}']\n"
        )
        with servers.vmagent(tmp_path / "agent", config, fresh_vm.url):
            source = open_source(SourceOptions(fresh_vm.url, kind="victoriametrics"))
            now_ms = time.time_ns() // 1_000_000
            begin, far = now_ms - 60_000, now_ms + 120_000
            servers.wait_until(
                lambda: (
                    servers.answers(fresh_vm.port, "/internal/force_flush")
                    and len(source.fetch(["m"], begin, far, DictInterner()).series) >= 1
                ),
                "scraped samples",
            )
    # the agent has stopped, and marked the series as stale
    assert servers.answers(fresh_vm.port, "/internal/force_flush")
    batch = source.fetch(["m"], begin, far, DictInterner())
    assert np.all(batch.values == 5.0)
    source.close()

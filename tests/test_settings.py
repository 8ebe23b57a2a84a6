from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core.parameters import Parameters
from detector.errors import SettingsError
from detector.settings import Settings, load_settings

SECRET = "s3cr3t-value"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("ODDNODE_"):
            monkeypatch.delenv(name)


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "oddnode.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def problem(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_need_no_file() -> None:
    found = load_settings()
    assert found.detection == Parameters()
    assert found.schedule.step_s == 30.0
    assert found.http.host == "127.0.0.1"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing\n").describe()["schedule"] == load_settings().describe()["schedule"]


def test_a_file_sets_every_section(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
source: {url: "http://vm:8428/prometheus", kind: victoriametrics, headers: {X-Scope: a},
         extra_filters: ['cluster="a"']}
catalog: {overlays: [more.yaml, /etc/oddnode/all.yaml]}
identity: {node_label: machine, aliases: {10.0.0.7: gpu007}, rewrites: [["-bmc$", ""]]}
placement: {ib_exclude: [mlx5_8]}
pools: {declared: [{name: train, patterns: ["gpu[001-060]"]}], spares: ["gpu06[1-3]"]}
detection: {z_threshold: 6, continuity_s: 300}
schedule: {step_s: 15, evaluation_delay_s: 10}
store: {path: var/oddnode.db, retention_days: 7}
http: {host: 0.0.0.0, port: 9000}
log: {level: debug, format: json}
""",
    )
    assert found.source.options().url == "http://vm:8428/prometheus"
    assert found.source.options().headers == {"X-Scope": "a"}
    assert found.catalog.overlays == (tmp_path / "more.yaml", Path("/etc/oddnode/all.yaml"))
    assert found.identity.node_label == "machine"
    assert found.identity.rewrites == (("-bmc$", ""),)
    assert found.placement.ib_exclude == ("mlx5_8",)
    assert found.pools.declared[0].name == "train"
    assert found.detection.z_threshold == 6.0
    assert found.detection.step_s == 15.0, "the schedule's step is the core's step"
    assert found.store.path == tmp_path / "var" / "oddnode.db"
    assert (found.http.host, found.http.port) == ("0.0.0.0", 9000)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_SOURCE__URL", "https://env:1/")
    monkeypatch.setenv("ODDNODE_SCHEDULE__STEP_S", "60")
    monkeypatch.setenv("ODDNODE_CATALOG__OVERLAYS", '["a.yaml"]')
    monkeypatch.setenv("ODDNODE_PLACEMENT__IB_EXCLUDE", '["mlx5_9"]')
    monkeypatch.setenv("ODDNODE_DETECTION__MIN_PEERS", "4")
    monkeypatch.setenv("oddnode_http__port", "1234")
    found = load(tmp_path, "source: {url: 'http://file:1/', kind: prometheus}\n")
    assert found.source.url == "https://env:1/"
    assert found.source.kind == "prometheus"
    assert found.schedule.step_s == 60.0
    assert found.catalog.overlays == (Path("a.yaml"),)
    assert found.placement.ib_exclude == ("mlx5_9",)
    assert found.detection.min_peers == 4
    assert found.http.port == 1234


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("http: {port: 7777}\n", encoding="utf-8")
    monkeypatch.setenv("ODDNODE_CONFIG", str(path))
    assert load_settings().http.port == 7777


def test_an_unknown_key_names_file_line_and_key(tmp_path: Path) -> None:
    message = problem(tmp_path, "http:\n  host: a\n  prot: 80\n")
    assert message == f"{tmp_path}/oddnode.yaml, line 3: http.prot is no setting"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("catalogue: {path: a}\n", "line 1: catalogue is no setting"),
        ("detection:\n  z_treshold: 3\n", "line 2: detection.z_treshold is no setting"),
        ("pools:\n  declared:\n  - name: a\n    pattern: [x]\n", "pools.declared.0.pattern is no setting"),
        ("identity: {nodelabel: a}\n", "identity.nodelabel is no setting"),
        ("http:\n  port: many\n", "line 2: http.port: input should be a valid integer"),
        ("http:\n  port: 70000\n", "line 2: http.port: input should be less than or equal to 65535"),
        ("schedule: {step_s: .nan}\n", "line 1: schedule.step_s: input should be a finite number"),
        ("schedule: {step_s: 0}\n", "schedule.step_s: input should be greater than or equal to 1"),
        ("source: {url: 'vm:8428'}\n", "url must begin with http:// or https://"),
        (
            "source: {kind: influx}\n",
            "source.kind: input should be 'auto', 'victoriametrics' or 'prometheus'",
        ),
        ("source: {basic_password: x}\n", "basic_password needs basic_username"),
        ("source: {cert_file: a.pem}\n", "cert_file and key_file go together"),
        ("source: {bearer_token: a, bearer_token_file: b}\n", "exclude each other"),
        ("detection: {min_peers: 2}\n", "detection.min_peers must be at least 3"),
        ("detection: {z_threshold: 0}\n", "detection.z_threshold must be more than 0"),
        ("detection: {z_threshold: .inf}\n", "detection.z_threshold"),
        ("detection: {step_s: 10}\n", "schedule.step_s sets it"),
        ("schedule: {tick_timeout_s: 20}\n", "must be more than source.deadline_s"),
        ("pools: {declared: [{name: a, patterns: ['gpu[9-1]']}]}\n", "gpu[9-1]"),
        ("pools: {query: 'max by (node) (x)'}\n", "pools.query needs pools.label"),
        ("identity: {rewrites: [['(', 'x']]}\n", "identity rewrite"),
        ("- a\n", "must be a mapping of sections"),
        ("http: {port: 1, port: 2}\n", "line 1: is not YAML: found duplicate key"),
        ("http: [\n", "is not YAML"),
        ("http: nothing\n", "http: input should be a valid dictionary"),
    ],
)
def test_errors_are_one_clear_sentence(tmp_path: Path, text: str, told: str) -> None:
    message = problem(tmp_path, text)
    assert told in message
    assert message.startswith(f"{tmp_path}/oddnode.yaml")


def test_several_errors_are_told_at_once(tmp_path: Path) -> None:
    message = problem(tmp_path, "http: {a: 1, b: 2}\nlog: {level: loud}\n")
    assert "http.a is no setting; " in message
    assert "http.b is no setting; " in message
    assert "log.level" in message


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_HTTP__PORT", "many")
    with pytest.raises(
        SettingsError, match=r"environment variable ODDNODE_HTTP__PORT: http\.port: input should be"
    ):
        load_settings()


def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_SORCE__URL", "http://x")
    with pytest.raises(SettingsError, match="environment variable ODDNODE_SORCE__URL is no setting"):
        load_settings()


def test_an_unknown_variable_in_a_section_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_SOURCE__ULR", "http://x")
    with pytest.raises(
        SettingsError, match=r"environment variable ODDNODE_SOURCE__ULR: source\.ulr is no setting"
    ):
        load_settings()


def test_variables_that_kubernetes_makes_for_a_service_are_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ODDNODE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("ODDNODE_SERVICE_PORT_HTTP", "8080")
    monkeypatch.setenv("ODDNODE_PORT", "tcp://10.0.0.1:8080")
    monkeypatch.setenv("ODDNODE_PORT_8080_TCP_ADDR", "10.0.0.1")
    assert load_settings().http.port == 8080


def test_secrets_are_in_no_description_and_no_error(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        f"source: {{url: 'http://me:{SECRET}@vm:8428/x', bearer_token: {SECRET},\n"
        f"         headers: {{X-Key: {SECRET}}}}}\n",
    )
    assert SECRET not in str(found.describe())
    assert SECRET not in repr(found.source.bearer_token)
    assert found.describe()["source"]["url"] == "http://vm:8428/x"
    assert found.source.options().bearer_token == SECRET
    message = problem(
        tmp_path, f"source: {{bearer_token: [{SECRET}], headers: {SECRET}, basic_password: {SECRET}}}\n"
    )
    assert SECRET not in message


def test_the_address_is_asked_for_when_it_is_needed() -> None:
    with pytest.raises(SettingsError, match=r"source.url \(or ODDNODE_SOURCE__URL\) is missing"):
        load_settings().source.options()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml: cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"http: \xff\xfe\n")
    with pytest.raises(SettingsError, match=r"x\.yaml: is not UTF-8 text"):
        load_settings(path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"# " + b"x" * 1_100_000)
    with pytest.raises(SettingsError, match="bigger than"):
        load_settings(path)


def test_a_played_recording_has_a_store_of_its_own(tmp_path: Path) -> None:
    found = load(tmp_path, "recording: {path: case}\nstore: {path: a.db}\n")
    assert found.recording.path == tmp_path / "case"
    assert found.store_path() == tmp_path / "a-recording.db"
    assert load(tmp_path, "store: {path: a.db}\n").store_path() == tmp_path / "a.db"


def test_describe_is_plain_json() -> None:
    import json

    assert json.loads(json.dumps(load_settings().describe(), allow_nan=False))["http"]["port"] == 8080


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=120) | st.text(max_size=120).map(lambda t: t.encode("utf-8", "replace")))
def test_no_file_makes_anything_but_settings_or_a_settings_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.yaml"
    path.write_bytes(content)
    message = ""
    try:
        load_settings(path)
    except SettingsError as error:
        message = str(error)
    assert not message or str(path) in message

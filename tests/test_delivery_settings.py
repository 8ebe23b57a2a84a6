"""Settings of delivery: what is wrong is told by file, line and rule, and no secret is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detector.errors import SettingsError
from detector.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("ODDNODE_"):
            monkeypatch.delenv(name)


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "oddnode.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("webhooks: [{url: 'http://a'}]", "delivery.webhooks.0.name: field required"),
        (
            "webhooks: [{name: a, url: ftp://s3cret}]",
            "delivery.webhooks.0: url must be an http:// or https://",
        ),
        ("webhooks: [{name: a, url: 's3cret'}]", "delivery.webhooks.0: url must be an http:// or https://"),
        ("webhooks: [{name: a, url: 'http://u:s3cret@a'}]", "url must not hold a password"),
        ("webhooks: [{name: 'a b', url: 'http://a'}]", "delivery.webhooks.0.name: "),
        ("webhooks: [{name: a, url: 'http://a'}, {name: a, url: 'http://b'}]", "the name 'a' is given twice"),
        ("webhooks: [{name: a, url: 'http://a', format: grpc}]", "delivery.webhooks.0.format: "),
        (
            "webhooks: [{name: a, url: 'http://a', secret: s3cret}]",
            "delivery.webhooks.0.secret is no setting",
        ),
        ("alertmanagers: [{url: 'http://a'}, {url: 'http://a/b'}]", "the name 'a' is given twice"),
        ("alertmanagers: [{url: 'http://a', basic_username: u}]", "basic_username and basic_password_file"),
        ("alertmanagers: [{url: 'http://a', cert_file: c}]", "cert_file and key_file go together"),
        ("alertmanagers: [{url: 'http://a', timeout_s: 0}]", "delivery.alertmanagers.0.timeout_s: "),
        ("labels: {node: x}", "labels: 'node' cannot be the name of a further label"),
        ("labels: {a-b: x}", "labels: 'a-b' cannot be the name of a further label"),
        ("shadow_rules: [{}]", "a shadow rule needs kind, pool, fault_class or metric"),
        ("shadow_rules: [{node: x}]", "delivery.shadow_rules.0.node is no setting"),
        ("guard_share: 0", "delivery.guard_share: "),
        ("guard_nodes_per_hour: 0", "delivery.guard_nodes_per_hour: "),
        ("external_url: oddnode.example.com", "delivery.external_url: "),
        ("resend_s: .nan", "delivery.resend_s: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, f"delivery:\n  {text}\n")
    told = str(caught.value)
    assert message in told
    assert "oddnode.yaml, line 2" in told or message.startswith(("labels", "the name"))
    assert "s3cret" not in told


def test_files_are_beside_the_settings_file_and_labels_are_no_files(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
delivery:
  drain_file: drain
  labels: {log_file: here}
  webhooks: [{name: a, url: "http://a", secret_file: s, headers: {X_file: h}}]
  write_back: {url: "http://vm", ca_file: /etc/ca}
""",
    ).delivery
    assert (found.drain_file, found.webhooks[0].secret_file) == (tmp_path / "drain", tmp_path / "s")
    assert found.labels == {"log_file": "here"}
    assert found.webhooks[0].headers["X_file"].get_secret_value() == "h"
    assert found.write_back is not None
    assert found.write_back.ca_file == Path("/etc/ca")


def test_addresses_and_headers_are_masked(tmp_path: Path) -> None:
    found = load(
        tmp_path, 'delivery: {webhooks: [{name: a, url: "http://a/s3cret?k=s3cret", headers: {X: s3cret}}]}'
    )
    assert "s3cret" not in f"{found.describe()} {found!r}"


def test_a_variable_sets_receivers_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODDNODE_DELIVERY__ALERTMANAGERS", '[{"url": "http://am:9093/prefix/"}]')
    monkeypatch.setenv("ODDNODE_DELIVERY__SHADOW", "true")
    found = load_settings().delivery
    assert found.shadow
    (one,) = found.alertmanagers
    assert (one.place, one.path, one.shown_name) == ("http://am:9093", "/prefix", "am:9093")

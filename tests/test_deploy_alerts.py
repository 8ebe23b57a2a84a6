"""The alert rules: promtool's unit tests, that those can fail, and a runbook for each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from detector.telemetry import Telemetry

ROOT = Path(__file__).resolve().parent.parent
ALERTS = ROOT / "deploy" / "alerts"
RUNBOOKS = ROOT / "docs" / "runbooks"


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def rules() -> dict[str, dict[str, Any]]:
    listed = [rule for group in load(ALERTS / "oddnode.rules.yaml")["groups"] for rule in group["rules"]]
    found = {rule["alert"]: rule for rule in listed}
    assert len(found) == len(listed) > 8
    return found


NAMES = sorted(rules())


def run(*command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def unit_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    return run("promtool", "test", "rules", str(folder / "oddnode.rules.test.yaml"))


@pytest.mark.server
def test_unit_tests_of_the_rules_pass() -> None:
    done = unit_tests(ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.server
@pytest.mark.parametrize("wrong", ["({}) and on () vector(0) == 1", "vector(1)"], ids=["never", "always"])
def test_every_rule_that_never_or_always_fires_fails_them(tmp_path: Path, wrong: str) -> None:
    for path in ALERTS.glob("*.yaml"):
        shutil.copy(path, tmp_path)
    document = load(ALERTS / "oddnode.rules.yaml")
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = wrong.format(rule["expr"].strip())
    with (tmp_path / "oddnode.rules.yaml").open("w") as file:
        YAML().dump(document, file)
    done = unit_tests(tmp_path)
    assert done.returncode != 0
    told = set(re.findall(r"alertname:\s*(\w+)", done.stdout + done.stderr))
    assert told == set(NAMES)


@pytest.mark.server
def test_prometheus_and_vmalert_take_them() -> None:
    file = str(ALERTS / "oddnode.rules.yaml")
    for command in (("promtool", "check", "rules", file), ("vmalert", f"-rule={file}", "-dryRun")):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_rules_use_metrics_that_exist() -> None:
    own = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in Telemetry().registry.collect()
    }
    for name, rule in rules().items():
        used = set(re.findall(r"oddnode_\w+", rule["expr"]))
        assert used, name
        assert used <= own, name


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_runbook(name: str) -> None:
    rule = rules()[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    path = ROOT / rule["annotations"]["runbook_url"]
    assert path == RUNBOOKS / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    for part in ("**Means**", "**Costs**", "## Ends"):
        assert part in text


def test_no_runbook_is_left_over() -> None:
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md")) == NAMES
    table = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| \[(Oddnode\w+)\]\(runbooks/\1\.md\) \| (\w+) \|", table, re.MULTILINE)
    assert sorted(told) == [(name, rules()[name]["labels"]["severity"]) for name in NAMES]

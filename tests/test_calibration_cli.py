"""`oddnode calibrate` from recordings and from a live database; what the service tells of it."""

import json
import math
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from detector.cli import app
from detector.errors import OddnodeError
from detector.outcome import Incident, Outcome
from detector.record import record
from detector.store import Store
from detector.telemetry import Telemetry
from tests import servers
from tests.builders import START, STEP
from tests.calibration_history import NAMES, CaseSource, history


def recording(folder: Path) -> Path:
    case = history(5, bursts_per_hour=0.02).with_fault(6, 300, 420, 60.0, metrics=(0, 1))
    record(CaseSource(case), NAMES, START, START + STEP * case.n_ticks, folder)
    return folder


def test_recordings_give_a_file_that_settings_take_and_check_config_tells(tmp_path: Path) -> None:
    out = tmp_path / "calibration.yaml"
    case = recording(tmp_path / "case")
    result = CliRunner().invoke(app, ["calibrate", str(case), "-o", str(out), "--budget", "300"])
    assert result.exit_code == 0, result.output
    assert "gpu007 looks faulty from 2026-01-01" in result.output
    assert "budget: 300 false alarms a month" in result.output
    assert YAML(typ="safe").load(out)["history"]["names"] == ["case"]
    config = tmp_path / "oddnode.yaml"
    config.write_text(f"calibration: {{path: {out.name}}}\n", encoding="utf-8")
    told = CliRunner().invoke(app, ["check-config", "-c", str(config)])
    assert "5 signals armed" in told.output
    lines = tmp_path / "lines.json"
    CliRunner().invoke(app, ["replay", str(case), "-c", str(config), "--json", str(lines)])
    quality = json.loads(lines.read_text(encoding="utf-8"))["data_quality"]
    assert any(q["kind"] == "calibration" and "300" in q["reason"] for q in quality)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "no such recording"),
        (["none", "--url", "http://127.0.0.1:9"], "exclude each other"),
        (["-o", "none/c.json"], "folder does not exist"),
        ([], "source.url"),
        (["--url", "ftp://x"], "must begin with http"),
        (["--url", "http://127.0.0.1:9", "--hours", "1"], "127.0.0.1:9"),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["calibrate", *arguments])
    assert isinstance(result.exception, OddnodeError), result.output
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.server
def test_a_live_database_is_read_like_a_recording(fresh_vm: servers.Server, tmp_path: Path) -> None:
    case = history(1)
    source = CaseSource(case)
    end = math.floor(time.time_ns() / 1e9 / STEP) * STEP - 90.0  # the database is asked up to now
    times = [round((end - STEP * (case.n_ticks - 1 - k)) * 1000) for k in range(case.n_ticks)]
    lines = [
        json.dumps({"metric": json.loads(key), "values": values, "timestamps": times}).encode()
        for key, values in zip(source.keys, source.values.T.tolist(), strict=True)
    ]
    servers.import_lines(fresh_vm, b"\n".join(lines))
    out = tmp_path / "c.json"
    hours = f"{case.n_ticks * STEP / 3600.0:.2f}"
    arguments = ["--url", fresh_vm.url, "--hours", hours, "-o", str(out), "--budget", "200"]
    result = CliRunner().invoke(app, ["calibrate", *arguments])
    assert result.exit_code == 0, result.output
    made = json.loads(out.read_text(encoding="utf-8"))
    assert {entry["metric"] for entry in made["signals"]} == set(NAMES)
    assert made["history"]["node_days"] == pytest.approx(24 * case.n_ticks * STEP / 86400.0, rel=0.1)


def test_metrics_tell_budget_expectation_and_achieved_rate(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.db")
    try:
        for k, at in enumerate((1000.0, 50_000.0, 60_000.0)):
            incident = Incident(f"n{k}", f"n{k}", "suspect" if k else "pending", at, at if k else None)
            store.save(Outcome(at=at, incidents=(incident,)), None)
        telemetry = Telemetry("1", "a" * 64)
        assert "oddnode_suspects_raised_30d NaN" in telemetry.text().decode()
        assert "oddnode_calibration_info{" not in telemetry.text().decode()
        telemetry.watch_raised(lambda: store.count_raised(50_000.0))
        telemetry.calibrated("a" * 64, 1.0, 0.25)
        text = telemetry.text().decode()
        assert "oddnode_suspects_raised_30d 2.0" in text
        assert store.count_raised(50_001.0) == 1
        assert "oddnode_calibration_budget_per_month 1.0" in text
        assert "oddnode_calibration_expected_per_month 0.25" in text
        assert 'oddnode_calibration_info{catalog="aaaaaaaaaaaa"} 1.0' in text
    finally:
        store.close()

"""`oddnode calibrate` from recordings and from a live database; what the service tells of it."""

import json
import math
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from benchmarks.detect.simulated import SimulatedSource
from detector.calibration.history import Rules, Stretch, calibrate
from detector.calibration.learn import poisson_bounds, thresholds_of
from detector.calibration.model import MONTH_S
from detector.cli import app
from detector.core.thresholds import Thresholds
from detector.errors import OddnodeError
from detector.outcome import Incident, Outcome
from detector.pipeline import Pipeline
from detector.record import record
from detector.replay import play
from detector.source.incident_file import Recording
from detector.store import Store
from detector.telemetry import Telemetry
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from tests import servers
from tests.builders import CATALOG, START, STEP
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


METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "node_load1",
    "node_procs_running",
    "node_cpu_seconds_total",
    "node_memory_MemAvailable_bytes",
    "node_disk_written_bytes_total",
    "up",
)


@pytest.mark.slow
def test_a_simulated_cluster_keeps_its_budget_on_another_seed_and_a_fault_is_found() -> None:
    config = ClusterConfig(
        train_nodes=16, spares=0, cpus=2, n_veth=1, metrics=METRICS, benign_per_node_hour=1.5
    )

    def stretch(seed: int, hours: float, *faults: Fault) -> Stretch:
        end = config.start + 3600.0 * hours
        return Stretch(
            f"seed {seed}", config.start, end, 30.0, lambda: SimulatedSource(Cluster(config, seed, faults))
        )

    def suspects(piece: Stretch, learnt: Thresholds) -> list[str]:
        pipeline = Pipeline(CATALOG, thresholds=learnt)
        recording = Recording(piece.name, Path(), piece.start, piece.end, piece.step_s, ())
        return [flag.node for flag in play(recording, piece.open(), pipeline).flags]

    # of 9 hours, 100 a month are one: with none allowed, a single coincidence in the history would ask for
    # more of a node than one target is worth at most
    budget, hours = 100.0, 3.0
    made = calibrate([stretch(1_000_200, 9.0)], Rules(CATALOG), budget, trusted=True)
    learnt = thresholds_of(made.signals, made.node.threshold, made.floor)
    assert any(e.n_peaks for e in made.signals)
    allowed = budget * hours * 3600.0 / MONTH_S
    assert len(suspects(stretch(1_000_201, hours), learnt)) <= poisson_bounds(math.ceil(allowed))[1]
    onset = config.start + 3600.0
    fault = Fault("gpu_throttle", "gpu003", onset, onset + 1800.0, "gpu 2", 0.9)
    assert suspects(stretch(1_000_202, 1.4, fault), learnt) == ["gpu003"]

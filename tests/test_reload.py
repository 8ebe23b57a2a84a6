"""Settings that change under a running service."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from detector.core.parameters import Parameters
from detector.errors import SettingsError
from detector.file_content import contents
from detector.pipeline import Pipeline
from detector.reload import Change, Origin, Reloader
from detector.service_contracts import ServiceHooks, Successor
from detector.settings import Settings, load_settings
from detector.settings_change import applicable, differences, files_of
from detector.telemetry_reload import ReloadTelemetry
from detector.tokens import entry_line, make_token
from grouping.catalog import Catalog
from tests.builders import CATALOG, Telemetry, gpu_gauge, suspects
from tests.service_fakes import STEP, ScriptedPipeline
from tests.test_control_core import BAD, ONSET, POWER, busy, tasks
from tests.test_control_serve import asked
from tests.test_service import FAULT, Make, make
from tests.test_service_serve import FAULTY, Process, Start, start, wait_for, write_recording

__all__ = ["make", "start"]  # fixtures

NOW = 1_767_225_600.0


class Mounted:
    """A folder as Kubernetes mounts a ConfigMap: links into a folder that each update replaces."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        self._n = 0
        folder.mkdir()
        self.put(**files)
        for name in files:
            (folder / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")

    def put(self, **files: str) -> None:
        """Replace all files in one step, with the times of change that they had."""
        self._n += 1
        new = self.folder / f"..{self._n}"
        new.mkdir()
        for name, text in files.items():
            (new / f"{name}.yaml").write_text(text)
            os.utime(new / f"{name}.yaml", (NOW, NOW))
        link = self.folder / "..new"
        link.symlink_to(new.name)
        link.replace(self.folder / "..data")
        old = self.folder / f"..{self._n - 1}"
        if old.exists():
            for file in old.iterdir():
                file.unlink()
            old.rmdir()


class Taker:
    """Takes changes over, or stumbles over them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.files = contents(files_of(settings))
        self.taken: list[Change] = []
        self.stumbles = False
        self.meanwhile: list[Settings] = []

    def prepare(self, wanted: Settings, files: Mapping[Path, str]) -> Change:
        in_effect = self.settings
        settings = applicable(in_effect, wanted)
        if self.meanwhile:
            self.settings = self.meanwhile.pop()
        changed = differences(in_effect, settings)
        if files != self.files:
            changed = (*changed, "files")
        return Change(settings, changed, differences(settings, wanted), files, None, None)

    def take_over(self, change: Change) -> None:
        if self.stumbles:
            raise ValueError("it does not fit")
        self.settings, self.files = change.settings, change.files
        self.taken.append(change)


class Bench:
    """A reloader whose looks are made by hand."""

    def __init__(self, path: Path, between: Callable[[], object] = lambda: None) -> None:
        self.registry = CollectorRegistry()
        origin = Origin.of(path)
        self.taker = Taker(load_settings(path))
        between()
        self.reloader = Reloader(
            origin, self.taker, ReloadTelemetry(self.registry), lambda: NOW, 0.01, files=self.taker.files
        )

    def look(self, *, is_asked: bool = False) -> int:
        """Look and tick; return how many changes were taken over."""
        before = len(self.taker.taken)
        self.reloader.look(is_asked=is_asked)
        self.reloader.between_ticks()
        return len(self.taker.taken) - before

    @property
    def metrics(self) -> tuple[float | None, float | None]:
        """Success, and whether a restart is pending."""
        names = ("oddnode_config_reload_success", "oddnode_config_restart_pending")
        return tuple(map(self.registry.get_sample_value, names))  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.reload.SETTLE_S", 0.01)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]


OVERLAY = "override: {}\n"


def test_a_swapped_mount_is_seen_by_content_and_read_once(tmp_path: Path) -> None:
    settings = "source: {url: 'http://vm:8428'}\ncatalog: {overlays: [overlay.yaml]}\n"
    mounted = Mounted(tmp_path / "mount", settings=settings, overlay=OVERLAY)
    bench = Bench(mounted.folder / "settings.yaml")
    assert bench.look() == 0
    mounted.put(settings=settings, overlay=OVERLAY)
    assert bench.look() == 0, "another folder with the same content is no change"
    mounted.put(settings=settings + "detection: {z_threshold: 7}\n", overlay=OVERLAY)
    assert bench.look() == 1
    assert bench.taker.settings.detection.z_threshold == 7
    assert bench.look() == 0
    mounted.put(settings=settings + "detection: {z_threshold: 7}\n", overlay=OVERLAY + "# more\n")
    assert bench.look() == 1, "a file that the settings name counts as well"
    assert bench.look() == 0
    assert bench.metrics == (1, 0)


def test_what_has_changed_before_it_begins_to_look_is_read_at_the_first_look(tmp_path: Path) -> None:
    overlay, file = tmp_path / "overlay.yaml", tmp_path / "settings.yaml"
    overlay.write_text(OVERLAY)
    file.write_text("source: {url: 'http://vm:8428'}\ncatalog: {overlays: [overlay.yaml]}\n")
    bench = Bench(file, between=lambda: overlay.write_text(OVERLAY + "# more\n"))
    assert bench.look() == 1
    assert bench.look() == 0


def test_a_bad_file_is_told_once_and_a_good_one_clears_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("detection: {z_threshold: 5}\n")
    bench = Bench(file)
    before = bench.taker.settings
    file.write_text("detection:\n  z_treshold: 6\n")
    for _ in range(3):
        assert bench.look() == 0
    (told,) = errors(caplog)
    assert f"{file}, line 2: detection.z_treshold is no setting" in told
    assert bench.metrics == (0, 0)
    assert bench.taker.settings is before
    assert bench.look(is_asked=True) == 0
    assert len(errors(caplog)) == 2, "who asks is told again"
    file.write_text("detection: {z_threshold: -1}\n")
    assert bench.look() == 0
    assert len(errors(caplog)) == 3, "another content is told anew"
    file.write_text("detection: {z_threshold: 5}\n")
    assert bench.look() == 0
    assert bench.metrics == (1, 0), "what was in effect before is good again"
    file.unlink()
    bench.look()
    assert bench.metrics == (0, 0)
    assert "cannot be read" in errors(caplog)[-1]


def test_a_bad_file_after_a_good_one_that_no_tick_has_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    bench = Bench(file)
    file.write_text("detection: {z_threshold: 6}\n")
    bench.reloader.look()
    file.write_text("detection: [\n")
    assert bench.look() == 0
    assert bench.metrics == (0, 0)


def test_a_file_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    bench = Bench(file)
    overlay = tmp_path / "overlay.yaml"
    file.write_text("catalog: {overlays: [overlay.yaml]}\n")

    def prepare(wanted: Settings, files: Mapping[Path, str]) -> Change:
        if not overlay.exists():
            raise SettingsError(f"{overlay}: cannot be read")
        return Taker.prepare(bench.taker, wanted, files)

    bench.taker.prepare = prepare  # type: ignore[method-assign]
    assert bench.look() == 0
    assert bench.metrics == (0, 0)
    overlay.write_text(OVERLAY)
    assert bench.look() == 1
    assert bench.metrics == (1, 0)


def test_what_needs_a_restart_waits_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("schedule: {step_s: 30}\n")
    bench = Bench(file)
    secret = "hunter2-hunter2"
    wanted = {
        "schedule": {"step_s": 15},
        "http": {"port": 99},
        "source": {"bearer_token": secret},
        "log": {"level": "debug"},
    }
    file.write_text(json.dumps(wanted))
    assert bench.look() == 1
    found = bench.taker.settings
    assert (found.log.level, found.http.port) == ("debug", 8080)
    assert found.detection.step_s == found.schedule.step_s == 30
    assert bench.metrics == (1, 1)
    assert "config restart_needed=http.port,schedule.step_s,source.bearer_token" in caplog.text
    assert secret not in caplog.text
    file.write_text("log: {level: debug}\n")
    bench.look()
    assert bench.metrics == (1, 0)


def test_a_change_that_does_not_fit_after_all_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    bench = Bench(file)
    bench.taker.stumbles = True
    file.write_text("detection: {z_threshold: 6}\n")
    assert bench.look() == 0
    assert bench.metrics == (0, 0)
    assert "it does not fit" in errors(caplog)[-1]
    bench.taker.stumbles = False
    assert bench.look() == 0, "the same content is not tried again by itself"
    assert bench.look(is_asked=True) == 1
    assert bench.metrics == (1, 0)


def test_a_change_is_made_anew_when_another_was_taken_over_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("detection: {z_threshold: 5}\n")
    bench = Bench(file)
    other = load_settings(file).model_copy(
        update={"detection": replace(bench.taker.settings.detection, z_threshold=9)}
    )
    bench.taker.meanwhile.append(other)
    file.write_text("detection: {z_threshold: 5}\n# as it was\n")
    assert bench.look() == 1, "against what was taken over meanwhile it is a change"
    assert bench.taker.settings.detection.z_threshold == 5


def test_a_file_that_is_being_written_is_left_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    bench = Bench(file)
    monkeypatch.setattr("detector.reload.SETTLE_S", 0.4)
    file.write_text("detection: {z_threshold: 6}\nlog:")
    writer = threading.Timer(
        0.1, lambda: file.write_text("detection: {z_threshold: 6}\nlog: {level: debug}\n")
    )
    writer.start()
    assert bench.look() == 0
    writer.join()
    assert bench.metrics == (1, 0)
    assert bench.look() == 1
    assert bench.taker.settings.log.level == "debug"


def test_a_path_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = contents([pipe, tmp_path / "none", tmp_path])
    assert set(found.values()) == {"not a file", "unreadable: No such file or directory"}


def judged_by(catalog: Catalog = CATALOG, **parameters: Any) -> Pipeline:
    return Pipeline(catalog, replace(Parameters(), **parameters))


@pytest.mark.parametrize("is_smaller", [False, True], ids=["knobs", "catalog"])
def test_an_open_incident_goes_on_under_other_rules(*, is_smaller: bool) -> None:
    t = busy()
    assert suspects(t.run(ONSET + 19)) == [BAD]
    incident = t.pipeline.open[BAD]
    specs = [spec for spec in CATALOG.specs if not (is_smaller and spec.name == "DCGM_FI_DEV_POWER_USAGE")]
    new = judged_by(Catalog.of(specs, path=CATALOG.path), clear_after_s=900.0)
    assert new.take_up(t.pipeline) == []
    again = busy()
    again.pipeline = new
    again.run(ONSET + 19, judge=False)  # the window is filled
    last = again.run(10)
    assert suspects(last) == [BAD]
    assert new.open[BAD].id == incident.id
    assert [t for outcome in again.outcomes for t in outcome.transitions] == []


def test_an_open_group_event_goes_on_under_other_rules() -> None:
    def moved(until: int) -> Telemetry:
        t = Telemetry()
        odd = t.nodes[:5]
        t.add(gpu_gauge(t, POWER, 800, 8, lambda k, n, g: 400 if n in odd and ONSET <= k < until else None))
        return t.add(tasks(t, lambda k, n: 300 if n in odd and ONSET <= k < until else None))

    t = moved(10_000)
    (before,) = t.run(ONSET + 30).group_events
    assert before.ended_at is None
    new = judged_by(clear_after_s=900.0)
    new.take_up(t.pipeline)
    again = moved(ONSET + 35)
    again.pipeline = new
    again.run(ONSET + 30, judge=False)
    found = [e for e in again.run(3).group_events if e.id == before.id]
    assert [e.ended_at for e in found] == [None]
    ends = [e for k in range(40) for e in again.run(1).group_events if e.id == before.id and e.ended_at]
    assert len(ends) == 1


def test_the_service_goes_on_with_another_pipeline(make: Make) -> None:
    successors: list[Successor] = []
    held: list[Any] = []

    def before_tick() -> None:
        if successors:
            held[0].service.go_on_with(successors.pop())

    bench = make(plans=(FAULT,), hooks=ServiceHooks(before_tick=before_tick))
    held.append(bench)
    bench.ticks(0, 300)
    (suspect,) = bench.service.latest().suspects
    n_judged = len(bench.judged)
    new = ScriptedPipeline((FAULT,))
    old = bench.pipeline

    def take_up() -> list[str]:
        return new.restore(old.snapshot(), list(old.open.values()))

    successors.append(Successor(new, take_up))
    bench.tick(330)
    assert len(bench.judged) == n_judged, "the old one is not asked any more"
    filled = [(at - NOW, judge) for at, judge, _, _ in new.calls]
    assert [at for at, judge in filled if judge] == [330]
    assert [at for at, judge in filled if not judge] == [STEP * k for k in range(1, 11)]
    assert bench.service.latest().suspects == (suspect,)
    assert all(n for _, _, n, _ in new.calls), "series are numbered by the new one"
    bench.ticks(360, 660)
    assert len(bench.store.incidents(limit=10)) == 1
    steps = [t.after for t in sorted(bench.store.transitions(limit=10), key=lambda t: t.at)]
    assert steps == ["pending", "suspect", "cleared"]


def test_a_successor_that_cannot_take_up_changes_nothing(make: Make) -> None:
    bench = make(plans=(FAULT,))
    bench.ticks(0, 60)

    def take_up() -> list[str]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        bench.service.go_on_with(Successor(ScriptedPipeline(), take_up))
    bench.ticks(90, 120)
    assert bench.judged[-1] == 120


@contextmanager
def counted(service: Process, what: str) -> Iterator[None]:
    """Wait until the log has one line more of a kind."""
    before = service.text().count(what)
    yield
    wait_for(lambda: service.text().count(what) > before, what=service.text)


def incidents(body: Any) -> list[str]:
    return [one["incident_id"] for one in body["suspects"]]


def test_a_running_service_takes_over_what_it_can(tmp_path: Path, start: Start) -> None:
    case = write_recording(tmp_path / "small")
    base: dict[str, Any] = {
        "recording": {"path": str(case), "speed": 500},
        "reload": {"every_s": 0.2},
        "delivery": {"alertmanagers": [{"url": "http://127.0.0.1:9", "name": "a"}]},
    }
    service = start(base)
    suspects = wait_for(lambda: service.get("/v1/suspects")[1].get("suspects"), what=service.text)
    assert [one["node"] for one in suspects] == [FAULTY]
    wait_for(lambda: "has ended" in str(service.get("/readyz")[1]["notes"]), what=service.text)
    raised = 'oddnode_transitions_total{after="suspect"} 1.0'
    assert raised in service.get("/metrics")[1]
    sha256 = next(line for line in service.get("/metrics")[1].splitlines() if "config_info{" in line)

    # a bad one changes nothing, SIGHUP or not
    with counted(service, "detection.z is no setting"):
        service.put(base | {"detection": {"z": 1}})
    assert "oddnode_config_reload_success 0.0" in service.get("/metrics")[1]
    with counted(service, "detection.z is no setting"):
        service.process.send_signal(signal.SIGHUP)
    assert incidents(service.get("/v1/suspects")[1]) == incidents({"suspects": suspects})

    # a good one is taken over; the incident goes on
    token = make_token()
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("disable: [DCGM_FI_DEV_GPU_TEMP]\n")
    good = base | {
        "detection": {"clear_after_s": 900},
        "catalog": {"overlays": [str(overlay)]},
        "auth": {
            "tokens": [{"name": "kim", "sha256": entry_line("kim", token, "read").split()[4].strip(",")}]
        },
        "log": {"level": "debug"},
        "http": {"port": 12345},
        "delivery": {"alertmanagers": [{"url": "http://127.0.0.1:9", "name": "b"}]},
    }
    with counted(service, "config reloaded=true"):
        service.put(good)
    assert "restart_needed=http.port" in service.text()
    assert service.get("/v1/suspects")[0] == 401
    metrics = service.get("/metrics")[1]
    assert "oddnode_config_reload_success 1.0" in metrics
    assert "oddnode_config_restart_pending 1.0" in metrics
    assert sha256 not in metrics
    assert 'receiver="alertmanager/' not in metrics, "a played recording calls nobody"
    port = service.port()
    wait_for(lambda: asked(port, "/v1/suspects", token)[1].get("suspects"), what=service.text)
    assert incidents(asked(port, "/v1/suspects", token)[1]) == incidents({"suspects": suspects})
    assert raised in service.get("/metrics")[1]

    # the overlay alone, by its content
    with counted(service, "judging=new"):
        overlay.write_text("disable: []\n")
    with counted(service, "cannot be read"):
        overlay.unlink()
    assert service.end() == 0

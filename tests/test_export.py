"""An incident exported as a case: the samples of the database, what operators said, bounds, and who may."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.access import Entrance, Policy
from api.app import create_app
from detector import export as exporting
from detector.case_archive import ArchiveError, case_name, packed, packed_size, unpack
from detector.cli import app as cli
from detector.control.desk import Desk
from detector.control.model import Action
from detector.control.problems import NotKnownError, NotPossibleError
from detector.errors import OddnodeError, SourceTimeout
from detector.export import Case, Exporter, Known, TooMuchError, span_of
from detector.outcome import Outcome
from detector.replay import replay_case
from detector.service_view import BusyError
from detector.settings_auth import AuthSettings, TokenSettings
from detector.source.base import Batch, Interner
from detector.source.recording import RecordingSource, load_recording
from detector.store import Store
from detector.store_control import ControlStore
from detector.tokens import Tokens, hash_of, make_token
from grouping.catalog import load_catalog
from tests import servers
from tests.end_to_end import Serving, command, now_s, on_grid, seed_store
from tests.test_api import FakeView
from tests.test_service_serve import FAULTY, N_STEPS, ONSET, START, STEP, write_recording
from tests.test_store import incident, moved

NOW = START + STEP * N_STEPS
NAMED = replace(
    incident(FAULTY, active_at=START + STEP * ONSET),
    suspect_at=START + STEP * (ONSET + 8),
    cleared_at=None,
    part="gpu 2",
)
NODES = tuple(f"gpu{n:03d}" for n in range(12))


class Scene:
    """An exporter on a recorded cluster, with a store that knows the incident."""

    def __init__(self, folder: Path) -> None:
        self.case = write_recording(folder / "small")
        self.store = Store(folder / "oddnode.db")
        self.store.save(Outcome(NOW, incidents=(NAMED,), transitions=(moved(NAMED, START + STEP * 48),)))
        self.desk = Desk(ControlStore(self.store), lambda: float(NOW))
        names = load_catalog().by_name
        self.known = Known(sorted(names), NODES, float(STEP), "1.2.3", "0" * 64)
        self.source: Any = RecordingSource(self.case)
        self.exporter = Exporter(
            lambda: self.source, lambda: self.known, self.store, self.desk.ledger, lambda: float(NOW)
        )

    def client(self, policy: Policy | None = None) -> TestClient:
        app = create_app(
            FakeView(self.store),
            desk=self.desk,
            entrance=Entrance(policy or Policy()),
            exporter=self.exporter,
        )
        return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)

    def unpacked(self, case: Case, to: Path) -> Path:
        to.mkdir()
        body = b"".join(case.pieces())
        assert len(body) == case.n_bytes
        (to.parent / "x.tar").write_bytes(body)
        unpack(to.parent / "x.tar", to, 1 << 30)
        case.close()
        return to


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.store.close()


def test_a_case_replays_to_the_same_node(scene: Scene, tmp_path: Path) -> None:
    case = scene.exporter.export(NAMED.id)
    assert case.name == case_name(NAMED.id)
    folder = scene.unpacked(case, tmp_path / "out")
    assert not case.folder.exists(), "its place is free again"
    recording = load_recording(folder)
    assert (recording.start, recording.end, recording.step_s) == (START + STEP * ONSET - 1800, NOW, STEP)
    assert recording.pool == NODES
    assert [(m.node, m.onset, m.end) for m in recording.masked] == [(FAULTY, NAMED.active_at, NOW)]
    assert not recording.faults
    assert not recording.healthy
    assert "Nobody has said what it was" in recording.notes
    replayed = replay_case(folder, load_catalog())
    assert [(flag.node, flag.part) for flag in replayed.flags] == [(FAULTY, "gpu 2")]


def test_what_operators_said_are_its_labels(scene: Scene, tmp_path: Path) -> None:
    scene.desk.acknowledge(NAMED.id, "kim", "RMA")
    told = load_recording(scene.unpacked(scene.exporter.export(NAMED.id), tmp_path / "fault"))
    assert [(f.node, f.part, f.onset, f.end) for f in told.faults] == [
        (FAULTY, "gpu 2", NAMED.active_at, NOW)
    ]
    assert "kim said: fault, RMA." in told.notes
    story = json.loads((tmp_path / "fault" / "story.json").read_bytes())
    assert story["incident"]["id"] == NAMED.id
    assert [step["after"] for step in story["transitions"]] == ["suspect"]
    assert [(one["by"], one["action"]) for one in story["actions"]] == [("kim", "acknowledge")]
    assert (story["version"], story["catalog_sha256"]) == ("1.2.3", "0" * 64)
    scene.desk.dismiss(NAMED.id, "eve", "planned")
    told = load_recording(scene.unpacked(scene.exporter.export(NAMED.id), tmp_path / "false"))
    assert not told.faults
    assert [one["note"] for one in told.benign] == ["planned"]
    assert told.healthy


def test_margins_end_with_the_data_and_with_six_hours() -> None:
    start, end, is_cut = span_of(NAMED, 600, 300, NOW, STEP)
    assert (start, end, is_cut) == (NAMED.active_at - 600, NOW, False)
    cleared = replace(NAMED, cleared_at=NAMED.active_at + 600)
    assert span_of(cleared, 600, 300, NOW + 9e9, STEP)[1] == NAMED.active_at + 900
    assert span_of(cleared, 0, 3600, cleared.cleared_at + 61, STEP)[1] == cleared.cleared_at + 60
    start, end, is_cut = span_of(NAMED, 1800, 0, NOW + 90_000, STEP)
    assert (end - start, is_cut) == (exporting.MAX_SPAN_S, True)


def test_bounds(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotKnownError, match="not known"):
        scene.exporter.export("nobody@1")
    monkeypatch.setattr(exporting, "MAX_BYTES", 1000)
    with pytest.raises(TooMuchError, match="larger than 0 MiB: ask for less"):
        scene.exporter.export(NAMED.id)
    monkeypatch.undo()
    monkeypatch.setattr(exporting, "MAX_S", -1.0)
    with pytest.raises(TooMuchError, match="takes longer"):
        scene.exporter.export(NAMED.id)
    monkeypatch.undo()
    held = scene.exporter.export(NAMED.id)
    with pytest.raises(BusyError, match="another export"):
        scene.exporter.export(NAMED.id)
    held.close()
    held.close()
    scene.exporter.export(NAMED.id).close()
    scene.exporter.stop()
    with pytest.raises(BusyError, match="ending"):
        scene.exporter.export(NAMED.id)


class Broken:
    """A source that answers nothing, or fails."""

    def __init__(self, source: RecordingSource, error: Exception | None = None) -> None:
        self._source, self._error = source, error
        self.is_closed = False

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        if self._error is not None:
            raise self._error
        return self._source.fetch(["none"], start_ms, end_ms, interner)

    def close(self) -> None:
        self.is_closed = True


def test_what_the_source_does_not_have_or_tell(scene: Scene) -> None:
    whole = scene.source
    scene.source = Broken(whole)
    with pytest.raises(NotPossibleError, match=r"no samples between .* UTC any more"):
        scene.exporter.export(NAMED.id)
    assert scene.source.is_closed
    scene.source = Broken(whole, SourceTimeout("no answer"))
    with pytest.raises(SourceTimeout):
        scene.exporter.export(NAMED.id)
    scene.source = whole
    scene.exporter.export(NAMED.id).close()


def test_the_route_is_for_those_who_may_and_leaves_a_line(scene: Scene) -> None:
    reader, operator = make_token(), make_token()
    auth = AuthSettings(
        tokens=(
            TokenSettings(name="dashboard", sha256=hash_of(reader), scope="read"),
            TokenSettings(name="kim", sha256=hash_of(operator), scope="operate"),
        )
    )
    path = f"/v1/incidents/{NAMED.id}/export"
    with scene.client(Policy(Tokens(auth), True, auth)) as client:
        assert client.post(path, json={}).status_code == 401
        refused = client.post(path, json={}, headers={"Authorization": f"Bearer {reader}"})
        assert refused.status_code == 403
        assert scene.desk.ledger.count_audit() == 0
        bearer = {"Authorization": f"Bearer {operator}"}
        answer = client.post(path, json={"note": "for the vendor", "before_s": 900}, headers=bearer)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/x-tar"
        assert answer.headers["content-disposition"] == f'attachment; filename="{case_name(NAMED.id)}.tar"'
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as found:
            assert {name.rpartition("/")[2] for name in found.getnames()} == {
                "incident.yaml", "series.jsonl.gz", "story.json"
            }  # fmt: skip
        (line,) = scene.desk.ledger.audit(limit=10, offset=0)
        assert (line.by, line.action, line.subject) == ("kim", Action.EXPORT, f"incident {NAMED.id}")
        assert line.note == "for the vendor"
        assert client.post(path, json={"before_s": 1e6}, headers=bearer).status_code == 422
        assert client.post("/v1/incidents/no@1/export", json={}, headers=bearer).status_code == 404
        assert client.post(path, json={}, headers=bearer).status_code == 200, "the first one was freed"


def test_a_service_without_an_exporter_says_so(scene: Scene) -> None:
    with TestClient(
        create_app(FakeView(scene.store), desk=scene.desk), base_url="http://127.0.0.1"
    ) as client:
        answer = client.post(f"/v1/incidents/{NAMED.id}/export", json={})
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "exports are not made here")


def test_a_line_of_the_trail_comes_before_the_data(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.desk, "exported", lambda *args: (_ for _ in ()).throw(OddnodeError("disk")))
    with scene.client() as client:
        assert client.post(f"/v1/incidents/{NAMED.id}/export", json={}).status_code == 503
    monkeypatch.undo()
    scene.exporter.export(NAMED.id).close()


def test_case_names() -> None:
    assert case_name("gpu068@1767225240") == "gpu068-1767225240"
    assert case_name("../../a/b\n\u202e") == "a-b"
    assert case_name("@") == "incident"
    assert len(case_name("n" * 500)) <= 80


def tar_of(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return out.getvalue()


GOOD = {"c__incident_dot_yaml": b"x", "c__series_dot_jsonl_dot_gz": b"y" * 700}


def test_an_archive_is_read_without_trust(tmp_path: Path) -> None:
    def tried(body: bytes, limit: int = 10_000) -> Path:
        file, folder = tmp_path / "a.tar", tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        file.write_bytes(body)
        folder.mkdir()
        unpack(file, folder, limit)
        return folder

    folder = tried(tar_of(**GOOD))
    assert {path.name for path in folder.iterdir()} == {"incident.yaml", "series.jsonl.gz"}
    assert b"".join(packed(folder, "c"))[:512].startswith(b"c/incident.yaml")
    assert packed_size(folder) == len(b"".join(packed(folder, "c")))
    for bad, why in (
        (tar_of(**GOOD, etc__passwd=b"root"), "no file of a case"),
        (tar_of(c__incident_dot_yaml=b"x"), "lacks its series"),
        (b"no tar at all", "is no archive"),
        (tar_of(**GOOD)[:1500], "is no archive|ends early"),
    ):
        with pytest.raises(ArchiveError, match=why):
            tried(bad)
    with pytest.raises(ArchiveError, match="more than 100 bytes"):
        tried(tar_of(**GOOD), 100)
    link = tarfile.TarInfo("c/incident.yaml")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(ArchiveError, match="no file of a case"):
        tried(link.tobuf() + bytes(1024))


def shifted(case: Path, by_s: float) -> bytes:
    """Return the series of a recording as lines to import, at another time."""
    found = []
    with gzip.open(case / "series.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            row["timestamps"] = [int(at + by_s * 1000) for at in row["timestamps"]]
            found.append(json.dumps(row) + "\n")
    return "".join(found).encode()


@pytest.mark.server
@pytest.mark.slow
def test_a_fault_in_a_real_database_is_exported_and_named_again(
    fresh_vm: servers.Server, tmp_path: Path
) -> None:
    offset = on_grid(now_s(), STEP) - 2 * STEP - NOW
    servers.import_lines(fresh_vm, shifted(write_recording(tmp_path / "small"), offset))
    seed_store(tmp_path, START + offset + 10 * STEP)
    service = Serving(
        tmp_path, {"source": {"url": fresh_vm.url}, "schedule": {"backfill_s": STEP * (N_STEPS + 10)}}
    )
    try:
        body = service.wait_for("/v1/suspects", lambda found: found["suspects"], "the fault is named")
        (suspect,) = body["suspects"]
        assert suspect["node"] == FAULTY
        url = f"http://127.0.0.1:{service._listens_on()}"
        run = CliRunner().invoke
        acknowledged = run(cli, ["ack", suspect["incident_id"], "--note", "RMA", "--by", "kim", "--url", url])
        assert acknowledged.exit_code == 0
        out = tmp_path / "cases" / "case"
        words = ["export", suspect["incident_id"], "--url", url, "--to", str(out), "--by", "kim"]
        made = run(cli, words)
        assert made.exit_code == 0, f"{made.output} {made.exception}"
        assert isinstance(run(cli, words).exception, OddnodeError), "it exists"
        assert run(cli, [*words, "--overwrite"]).exit_code == 0
        assert [path.name for path in out.parent.iterdir()] == ["case"], "nothing else is left"
        trail = service.get("/v1/audit")[1]["entries"]
        assert [(e["action"], e["by"]) for e in trail] == [
            ("export", "kim"), ("export", "kim"), ("acknowledge", "kim")
        ]  # fmt: skip
        assert "export incident=" in service.log()
    finally:
        service.kill()
    recording = load_recording(out)
    assert [(f.node, f.part) for f in recording.faults] == [(FAULTY, "gpu 2")]
    replayed = command("replay", out, "--json", tmp_path / "out.jsonl")
    assert replayed.returncode == 1, replayed.stderr
    (flag,) = json.loads((tmp_path / "out.jsonl").read_text())["flags"]
    assert (flag["node"], flag["part"]) == (FAULTY, suspect["part"])
    assert flag["since"] == suspect["since"]
    evaluated = command("evaluate", out, "--json", tmp_path / "scored.json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "1 of 1" in evaluated.stdout


def test_an_export_under_way_ends_with_the_service(scene: Scene) -> None:
    begun, ended = threading.Event(), threading.Event()

    class Slow(Broken):
        def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
            begun.set()
            assert ended.wait(30)
            raise SourceTimeout("closed")

        def close(self) -> None:
            ended.set()

    scene.source = Slow(scene.source)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            scene.exporter.export(NAMED.id)
        except BusyError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(30)
    scene.exporter.stop()
    thread.join(30)
    assert "ending" in str(failed[0])

"""Recording from a database: same samples back, and nothing half-written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from detector.cli import app
from detector.errors import SourceTimeout
from detector.record import CaseDetails, RecordError, record
from detector.source.base import Batch, Interner
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.source.recording import RecordingSource, load_recording
from tests import servers
from tests.interner import DictInterner, as_samples
from tests.test_service_serve import FAULTY, N_STEPS, ONSET, STEP, write_recording
from tests.test_service_serve import START as BEGIN

START, END = 1_717_243_200, 1_717_244_400


def lines(n_series: int = 50) -> bytes:
    rows = []
    for i in range(n_series):
        stamps = [START * 1000 + tick * 30_000 + i for tick in range(40)]
        values = [round(i + tick * 0.25, 2) if i % 2 else i * 1000 + tick for tick in range(40)]
        rows.append(
            {"metric": {"__name__": f"m{i % 5}", "i": f'"{i}"\n'}, "values": values, "timestamps": stamps}
        )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def played(tmp_path: Path) -> RecordingSource:
    """A source without a server."""
    (tmp_path / "series.jsonl").write_bytes(lines())
    return RecordingSource(tmp_path / "series.jsonl")


class Failing:
    """Fails at the third fetch."""

    def __init__(self, source: RecordingSource) -> None:
        self._source = source
        self.n_calls = 0

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        self.n_calls += 1
        if self.n_calls == 3:
            raise SourceTimeout("no answer")
        return self._source.fetch(names, start_ms, end_ms, interner)

    def close(self) -> None:
        pass


def everything(source: object, names: Sequence[str] = ()) -> object:
    interner = DictInterner()
    return as_samples(source.fetch(names, START * 1000 - 1, END * 1000, interner), interner)  # type: ignore[attr-defined]


@pytest.mark.server
@pytest.mark.parametrize("kind", ["victoriametrics", "prometheus"])
def test_recorded_samples_are_those_of_the_database(
    fresh_vm: servers.Server, tmp_path: Path, kind: str
) -> None:
    servers.import_lines(fresh_vm, lines())
    source = open_source(SourceOptions(fresh_vm.url, kind=kind))
    details = CaseDetails(step_s=30, pool=("a", "b"), spares=("c",), origin=fresh_vm.url, notes="why")
    out = tmp_path / "deep" / "case"
    shares: list[float] = []
    written = record(source, ["m0", "m1"], START, END, out, details, chunk_s=97.0, progress=shares.append)
    assert everything(RecordingSource(out)) == everything(source, ["m0", "m1"])
    source.close()
    assert (written.n_series, written.n_samples) == (20, 800)
    described = load_recording(out)
    assert (described.id, described.pool, described.spares) == ("case", ("a", "b"), ("c",))
    assert (described.start, described.end, described.step_s) == (START, END, 30)
    assert described.faults == ()
    assert described.provenance["made"] == "recorded"
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["case"]


def test_one_chunk_gives_one_line_per_series_and_the_same_bytes_each_time(
    played: RecordingSource, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        record(played, [], START, END, tmp_path / name, chunk_s=1e6)
    data = (tmp_path / "a" / "series.jsonl.gz").read_bytes()
    assert data == (tmp_path / "b" / "series.jsonl.gz").read_bytes()
    rows = [json.loads(row) for row in gzip.decompress(data).splitlines()]
    assert len(rows) == 50
    assert {type(value) for row in rows for value in row["values"]} == {int, float}


def test_nodes_become_the_pool_unless_it_is_named(played: RecordingSource, tmp_path: Path) -> None:
    def nodes_of(keys: Sequence[bytes]) -> list[str]:
        return [f"node of {len(keys)} series"]

    record(played, ["m0"], START, END, tmp_path / "found", nodes_of=nodes_of)
    assert load_recording(tmp_path / "found").pool == ("node of 10 series",)
    record(played, ["m0"], START, END, tmp_path / "named", CaseDetails(pool=("a",)), nodes_of=nodes_of)
    assert load_recording(tmp_path / "named").pool == ("a",)


@pytest.mark.server
def test_what_was_recorded_can_be_evaluated_once_the_fault_is_written_down(
    fresh_vm: servers.Server, tmp_path: Path
) -> None:
    made = write_recording(tmp_path / "made")
    servers.import_lines(fresh_vm, gzip.decompress((made / "series.jsonl.gz").read_bytes()))
    out, end = tmp_path / "cases" / "incident", BEGIN + STEP * N_STEPS
    arguments = ["record", out, "--start", BEGIN, "--end", end, "--url", fresh_vm.url]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
    assert load_recording(out).pool == load_recording(made).pool

    def evaluated(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["evaluate", str(out.parent), *more])
        return done.exit_code, " ".join(done.output.split())

    code, told = evaluated()
    assert code == 3
    assert "has no labels" in told
    described = (out / "incident.yaml").read_text()
    fault = f"faults:\n- {{node: {FAULTY}, onset: {BEGIN + STEP * ONSET}, end: {end}}}"
    (out / "incident.yaml").write_text(described.replace("faults: []", fault))
    code, told = evaluated("--require-recall", "1", "--require-precision", "1")
    assert code == 0, told
    assert "1 cases evaluated, 0 left out" in told


def test_existing_recording_is_kept_unless_told(played: RecordingSource, tmp_path: Path) -> None:
    out = tmp_path / "case"
    record(played, ["m0"], START, END, out)
    with pytest.raises(RecordError, match="already exists"):
        record(played, ["m1"], START, END, out)
    assert RecordingSource(out).n_series == 10
    record(played, [], START, END, out, overwrite=True)
    assert RecordingSource(out).n_series == 50
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["case", "series.jsonl"]


def test_failure_leaves_nothing_behind_and_an_old_recording_whole(
    played: RecordingSource, tmp_path: Path
) -> None:
    out = tmp_path / "case"
    with pytest.raises(SourceTimeout):
        record(Failing(played), [], START, END, out, chunk_s=60)
    assert [entry.name for entry in tmp_path.iterdir()] == ["series.jsonl"]
    record(played, ["m0"], START, END, out)
    with pytest.raises(SourceTimeout):
        record(Failing(played), [], START, END, out, chunk_s=60, overwrite=True)
    assert RecordingSource(out).n_series == 10
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["case", "series.jsonl"]


def test_nothing_to_record(played: RecordingSource, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no samples"):
        record(played, ["nothing"], START, END, tmp_path / "case")
    with pytest.raises(RecordError, match="end must be after start"):
        record(played, [], END, START, tmp_path / "case")
    assert not (tmp_path / "case").exists()


def test_place_that_cannot_be_written(played: RecordingSource, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="cannot be written"):
        record(played, [], START, END, tmp_path / "file" / "case")

"""Recordings: what is read, what is refused, and that replay sees only what has happened."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from detector.errors import SourceDecode
from detector.source.recording import RecordingSource, load_recording
from tests.interner import DictInterner

GOOD = """
id: case
start: 1000.0
end: 1060
step_s: 30
pool: [a, b]
spares: [c]
faults:
- {node: a, kind: nvlink, onset: 1010, end: 1020, part: gpu 3, severity: drastic, scope: single}
group_events:
- {nodes: [a, b], onset: 1000, end: 1001}
masked:
- {node: b, onset: 1000, end: 1001}
benign: [{what: cron}]
provenance: {source: here, made: synthetic}
notes: text
"""


def lines(n_series: int = 4, n_ticks: int = 5, first_tick: int = 0) -> bytes:
    rows = []
    for i in range(n_series):
        stamps = [1_000_000 + 30_000 * tick + i for tick in range(first_tick, n_ticks)]
        rows.append(
            {"metric": {"__name__": f"m{i % 2}", "i": str(i)}, "values": stamps, "timestamps": stamps}
        )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(folder: Path, data: bytes, name: str = "series.jsonl.gz") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def test_description(tmp_path: Path) -> None:
    (tmp_path / "incident.yaml").write_text(GOOD)
    recording = load_recording(tmp_path)
    assert (recording.id, recording.start, recording.end, recording.step_s) == ("case", 1000.0, 1060.0, 30.0)
    assert (recording.pool, recording.spares) == (("a", "b"), ("c",))
    assert recording.faults[0].part == "gpu 3"
    assert recording.group_events[0].nodes == ("a", "b")
    assert recording.masked[0].node == "b"
    assert not recording.healthy
    assert recording.provenance["made"] == "synthetic"
    assert load_recording(tmp_path / "series.jsonl.gz") == recording
    assert recording.path == tmp_path / "incident.yaml"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: case", "", "id is missing"),
        ("start: 1000.0", "start: soon", "start must be a number, not 'soon'"),
        ("start: 1000.0", "start: 2024-01-01", "start must be a number"),
        ("start: 1000.0", "start: true", "start must be a number"),
        ("start: 1000.0", "start: .nan", "start must be a number"),
        ("start: 1000.0", "start: -1", "start must be epoch seconds from 0 to 4102444800, not -1"),
        ("start: 1000.0", f"start: 1{'0' * 400}", "start must be a number"),
        ("end: 1060", "end: 10", "end must not be before start"),
        ("end: 1060", "end: 1e15", r"end must be epoch seconds from 0 to 4102444800, not 1e\+15"),
        ("end: 1060", "end: 1750000000000", "end must be epoch seconds"),
        ("step_s: 30", "step_s: 0", "step_s must be above 0"),
        ("step_s: 30", "step_s: 1e15", "step_s must be above 0 and at most 4102444800"),
        (
            "end: 1060\nstep_s: 30",
            "end: 4600\nstep_s: 0.0001",
            r"step_s 0\.0001 asks for 3\.6e\+07 evaluations between start and end; at most 1000000 are made",
        ),
        ("step_s: 30", "step_s: 5e-324", "step_s 4.94066e-324 asks for inf evaluations"),
        ("pool: [a, b]", "pool: a", "pool must be a list"),
        ("pool: [a, b]", "pool: [a, [b]]", r"pool\[1\] must be text"),
        ("faults:", "fault:", "faults is missing"),
        ("node: a,", "", r"faults\[0\].node is missing"),
        ("onset: 1010", "onset: x", r"faults\[0\].onset must be a number"),
        ("end: 1020", "end: 1000", r"faults\[0\].end must not be before onset"),
        ("- {node: b,", "- 7\n- {node: b,", r"masked\[0\] must be a mapping"),
        ("made: synthetic", "made: up", "provenance.made must be one of"),
        ("id: case", "id: case\nid: again", "duplicate key"),
        ("pool: [a, b]", "pool: [a, b", "line"),
    ],
)
def test_wrong_description_names_file_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    file = tmp_path / "incident.yaml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(SourceDecode, match=rf"incident\.yaml:.*{said}") as caught:
        load_recording(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"7", b"[]", b"\xff\xfe\x00", b"a: &a [*a]", b"!!python/object:os.system {}"]
)
def test_description_of_another_form(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "incident.yaml").write_bytes(content)
    with pytest.raises(SourceDecode, match=r"incident\.yaml"):
        load_recording(tmp_path)


def test_description_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceDecode, match=r"incident\.yaml: cannot be read: No such file"):
        load_recording(tmp_path)


@pytest.mark.parametrize("name", ["series.jsonl.gz", "series.jsonl"])
def test_series_that_are_there(tmp_path: Path, name: str) -> None:
    source = RecordingSource(write(tmp_path, lines(), name))
    assert source.n_series == 4
    assert source.span_ms == (1_000_000, 1_120_003)
    batch = source.fetch([], 0, 2_000_000, DictInterner())
    assert sorted(batch.values.tolist()) == sorted(batch.ts_ms.astype(float).tolist())
    assert len(batch.series) == 20
    assert len(RecordingSource(tmp_path / name).fetch([], 0, 2_000_000, DictInterner()).series) == 20


def test_packed_members_one_after_another(tmp_path: Path) -> None:
    data = gzip.compress(lines(2)) + gzip.compress(lines(4, 9, 5))
    (tmp_path / "series.jsonl.gz").write_bytes(data)
    assert len(RecordingSource(tmp_path).fetch([], 0, 2**40, DictInterner()).series) == 2 * 5 + 4 * 4


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.99])
def test_truncated_file_is_named(tmp_path: Path, keep: float) -> None:
    rng = np.random.default_rng(3)
    data = b"".join(
        json.dumps(
            {
                "metric": {"__name__": "m", "i": str(i)},
                "values": rng.random(50).tolist(),
                "timestamps": list(range(50)),
            }
        ).encode()
        + b"\n"
        for i in range(5000)
    )
    packed = gzip.compress(data, 1)
    (tmp_path / "series.jsonl.gz").write_bytes(packed[: int(len(packed) * keep)])
    with pytest.raises(
        SourceDecode, match=r"series\.jsonl\.gz: the compressed file ends too early after line \d+"
    ) as caught:
        RecordingSource(tmp_path)
    line = int(str(caught.value).rpartition(" ")[2])
    assert 5000 * keep * 0.98 <= line <= 5000 * keep * 1.02


@pytest.mark.parametrize("n_whole", [0, 1, 105])
def test_truncated_file_is_told_by_its_last_whole_line(tmp_path: Path, n_whole: int) -> None:
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(lines(n_whole) + b'{"metric":{"__na') + packer.flush(zlib.Z_SYNC_FLUSH)
    (tmp_path / "series.jsonl.gz").write_bytes(first)
    with pytest.raises(SourceDecode, match=rf"the compressed file ends too early after line {n_whole}$"):
        RecordingSource(tmp_path)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(lines(200)))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "series.jsonl.gz").write_bytes(packed)
    with pytest.raises(SourceDecode, match=r"series\.jsonl\.gz: "):
        RecordingSource(tmp_path)


def test_broken_line_is_named_by_its_number(tmp_path: Path) -> None:
    write(tmp_path, lines(3000) + b'{"metric":\n' + lines(3))
    with pytest.raises(SourceDecode, match=r"series\.jsonl\.gz: line 3001: "):
        RecordingSource(tmp_path)


def test_not_a_gzip_file(tmp_path: Path) -> None:
    (tmp_path / "series.jsonl.gz").write_bytes(lines())
    with pytest.raises(
        SourceDecode, match=r"series\.jsonl\.gz: the compressed file is damaged at about line 1$"
    ):
        RecordingSource(tmp_path)


def test_last_line_may_lack_its_end_but_not_its_content(tmp_path: Path) -> None:
    assert RecordingSource(write(tmp_path, lines()[:-1])).n_series == 4
    with pytest.raises(SourceDecode, match="line 4"):
        RecordingSource(write(tmp_path, lines()[:-3]))


@pytest.mark.parametrize("content", [b"PAR1 this is not parquet", b""])
def test_parquet_of_another_form(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SourceDecode, match=r"series\.parquet: cannot be read as parquet"):
        RecordingSource(write(tmp_path, content, "series.parquet"))


@pytest.mark.parametrize(
    "table",
    [
        {"metric": ["{}"], "other": [1]},
        {"metric": [7], "value": [1.0], "timestamp": [1]},
        {"metric": ["a"], "values": [["x"]], "timestamps": [[1]]},
        {"metric": ["a"], "values": [[1.0, 2.0]], "timestamps": [[1]]},
        {"metric": ["a"], "values": [None], "timestamps": [[1]]},
        {"metric": ["a"], "value": [1.0], "timestamp": [None]},
        {"metric": ["a"], "value": [1.0], "timestamp": [1.5]},
        {"metric": ["a"], "value": ["x"], "timestamp": [1]},
        {"metric": [None], "value": [1.0], "timestamp": [1]},
    ],
)
def test_parquet_with_other_columns(tmp_path: Path, table: dict[str, list[object]]) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(table), tmp_path / "series.parquet")
    with pytest.raises(SourceDecode, match=r"series\.parquet"):
        RecordingSource(tmp_path)


def test_parquet_keeps_nulls_apart(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    key = '{"__name__":"m"}'
    pq.write_table(
        pa.table({"metric": [key] * 3, "value": [1.0, None, 3.0], "timestamp": [10, 20, 30]}),
        tmp_path / "series.parquet",
    )
    batch = RecordingSource(tmp_path).fetch(["m"], 0, 100, DictInterner())
    assert batch.values.tolist() == [1.0, 3.0]
    assert batch.dropped == {"nan": 1}


def test_missing_recordings(tmp_path: Path) -> None:
    with pytest.raises(SourceDecode, match="holds no series"):
        RecordingSource(tmp_path)
    with pytest.raises(SourceDecode, match="no such recording"):
        RecordingSource(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["series.jsonl.gz", "series.jsonl"])
def test_size_is_bounded(tmp_path: Path, name: str) -> None:
    write(tmp_path, lines(2000), name)
    with pytest.raises(SourceDecode, match="unpacks to more than 1000 bytes"):
        RecordingSource(tmp_path, max_unpacked_bytes=1000)


def test_series_are_told_when_their_first_sample_is_due(tmp_path: Path) -> None:
    """Replay must not know of a series before it appears."""
    late = lines(8, 9, 5)
    source = RecordingSource(write(tmp_path, lines(4, 9) + late.replace(b'"i": "', b'"i": "late')))
    interner = DictInterner()
    source.fetch([], 0, 1_100_000, interner)
    assert len(interner.keys) == 4
    source.fetch([], 1_100_000, 2_000_000, interner)
    assert len(interner.keys) == 12


def test_names_may_change_between_fetches(tmp_path: Path) -> None:
    source, interner = RecordingSource(write(tmp_path, lines())), DictInterner()
    assert len(source.fetch(["m0"], 0, 2**40, interner).series) == 10
    assert len(source.fetch(["m0", "m1"], 0, 2**40, interner).series) == 20
    assert len(source.fetch(["none"], 0, 2**40, interner).series) == 0


def test_what_was_dropped_is_counted_once(tmp_path: Path) -> None:
    row = b'{"metric":{"__name__":"m"},"values":[1,null,"Infinity",2,2],"timestamps":[10,20,30,40,40]}\n'
    source = RecordingSource(write(tmp_path, row))
    assert source.fetch([], 0, 15, DictInterner()).dropped == {"nan": 1, "inf": 1, "duplicate": 1}
    assert source.fetch([], 15, 100, DictInterner()).dropped == {}


@pytest.mark.parametrize("span_ms", [1, 65_535, 65_536, 65_537, 10**9, 10**13])
def test_any_span_of_time_is_cut_exactly(tmp_path: Path, span_ms: int) -> None:
    rng = np.random.default_rng(span_ms)
    stamps = np.unique(np.concatenate([[0, span_ms], rng.integers(0, span_ms + 1, 500)])).tolist()
    row = {"metric": {"__name__": "m"}, "values": stamps, "timestamps": stamps}
    source, interner = RecordingSource(write(tmp_path, json.dumps(row).encode())), DictInterner()
    cuts = sorted({-5, span_ms + 7, *stamps[::7], *rng.integers(0, span_ms + 1, 20).tolist()})
    for low, high in itertools.pairwise(cuts):
        expected = [stamp for stamp in stamps if low < stamp <= high]
        assert source.fetch([], low, high, interner).ts_ms.tolist() == expected

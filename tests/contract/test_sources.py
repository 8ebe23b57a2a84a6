"""Every source gives the same samples for the same data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from detector.source.base import Source
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from detector.source.recording import RecordingSource
from tests import servers
from tests.interner import DictInterner, Samples, as_samples

START_MS = 1_717_243_200_000
STEP_MS = 30_000
N_TICKS = 24
END_MS = START_MS + N_TICKS * STEP_MS
NAMES = ("DCGM_FI_DEV_GPU_TEMP", "node_network_receive_bytes_total", "odd:metric", "node_load1")
ODD_VALUES = {
    "quote": 'a "quoted" \\ value',
    "newline": "two\nlines",
    "unicode": "Zürich 节点 \U0001f525",
    "looks_like_json": '},"values":[1,2],"timestamps":[3,4]}',
    "long": "x" * 10_000,
    "braces": '{a="b"}',
    "tab": "a\tb",
}

Series = tuple[dict[str, str], list[tuple[int, float]]]


def dataset() -> list[Series]:
    rng = np.random.default_rng(7)
    series: list[Series] = []
    for node in range(6):
        phase = int(rng.integers(1, STEP_MS))
        instance = f"10.1.0.{node}:9100"
        for gpu in range(4):
            labels = {
                "__name__": NAMES[0],
                "gpu": str(gpu),
                "Hostname": f"gpu{node:03d}",
                "UUID": f"GPU-{node}{gpu}",
            }
            series.append((labels, _samples(phase, rng.integers(30, 80, N_TICKS).astype(float))))
        counter = np.cumsum(rng.integers(0, 10**9, N_TICKS)).astype(float)
        series.append(
            ({"__name__": NAMES[1], "device": "ib0", "instance": instance}, _samples(phase, counter))
        )
        series.append(
            ({"__name__": NAMES[3], "instance": instance}, _samples(phase, np.round(rng.random(N_TICKS), 6)))
        )
    for name, value in ODD_VALUES.items():
        series.append(
            ({"__name__": NAMES[2], "odd": value, "kind": name}, _samples(11, np.arange(N_TICKS) - 3.5))
        )
    other = {"__name__": "not_asked_for", "instance": "10.1.0.0:9100"}
    series.append((other, _samples(5, np.ones(N_TICKS))))
    return series


# Fractions have few digits: VictoriaMetrics keeps decimals and would lose the last ones of a full double.


def _samples(phase: int, values: np.ndarray) -> list[tuple[int, float]]:
    return [(START_MS + i * STEP_MS + phase, float(value)) for i, value in enumerate(values)]


def export_lines(series: list[Series]) -> bytes:
    lines = [
        json.dumps(
            {"metric": labels, "values": [v for _, v in samples], "timestamps": [t for t, _ in samples]}
        )
        for labels, samples in series
    ]
    return ("\n".join(lines) + "\n").encode()


def openmetrics(series: list[Series]) -> str:
    families: dict[str, list[str]] = {}
    for labels, samples in series:
        pairs = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items() if k != "__name__")
        for ts_ms, value in samples:
            line = f"{labels['__name__']}{{{pairs}}} {value!r} {ts_ms / 1000:.3f}"
            families.setdefault(labels["__name__"], []).append(line)
    text = [line for lines in families.values() for line in lines]
    return "\n".join([*text, "# EOF"]) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def expected(series: list[Series], names: tuple[str, ...], start_ms: int, end_ms: int) -> Samples:
    return {
        (tuple(sorted(labels.items())), ts_ms): value
        for labels, samples in series
        for ts_ms, value in samples
        if labels["__name__"] in names and start_ms < ts_ms <= end_ms
    }


def _write_parquet(folder: Path, by_sample: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [(json.dumps(labels), samples) for labels, samples in dataset()]
    if by_sample:
        flat = sorted((t, key, v) for key, samples in rows for t, v in samples)
        table = {
            "metric": [r[1] for r in flat],
            "timestamp": [r[0] for r in flat],
            "value": [r[2] for r in flat],
        }
    else:
        table = {
            "metric": [key for key, _ in rows],
            "values": [[v for _, v in samples] for _, samples in rows],
            "timestamps": [[t for t, _ in samples] for _, samples in rows],
        }
    pq.write_table(pa.table(table), folder / "series.parquet")


@pytest.fixture(scope="module")
def loaded_vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.victoria_metrics(tmp_path_factory.mktemp("vm"), "-maxLabelValueLen=16384") as server:
        servers.import_lines(server, export_lines(dataset()))
        yield server


@pytest.fixture(scope="module")
def loaded_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    servers.blocks_from_openmetrics(folder, openmetrics(dataset()))
    with servers.prometheus(folder) as server:
        yield server


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {
        name: tmp_path_factory.mktemp(name) for name in ("gz", "plain", "parquet_series", "parquet_samples")
    }
    lines = export_lines(dataset())
    with gzip.open(folders["gz"] / "series.jsonl.gz", "wb") as file:
        file.write(lines)
    (folders["plain"] / "series.jsonl").write_bytes(lines.rstrip(b"\n"))
    _write_parquet(folders["parquet_series"], by_sample=False)
    _write_parquet(folders["parquet_samples"], by_sample=True)
    return folders


DATABASES = [
    pytest.param(("loaded_vm", "victoriametrics"), marks=pytest.mark.server, id="victoriametrics"),
    pytest.param(("loaded_vm", "auto"), marks=pytest.mark.server, id="victoriametrics-auto"),
    pytest.param(("loaded_vm", "prometheus"), marks=pytest.mark.server, id="victoriametrics-as-prometheus"),
    pytest.param(("loaded_prometheus", "prometheus"), marks=pytest.mark.server, id="prometheus"),
    pytest.param(("loaded_prometheus", "auto"), marks=pytest.mark.server, id="prometheus-auto"),
]
RECORDINGS = [
    pytest.param(("recordings", name), id=f"recording-{name}")
    for name in ("gz", "plain", "parquet_series", "parquet_samples")
]
Open = Callable[..., Source]


@pytest.fixture(params=[*DATABASES, *RECORDINGS])
def open_it(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the same data by one kind of source; keywords are options of a database."""
    where, kind = request.param
    target = request.getfixturevalue(where)
    opened: list[Source] = []

    def opener(**options: object) -> Source:
        if where == "recordings":
            opened.append(RecordingSource(target[kind]))
        else:
            opened.append(open_source(SourceOptions(target.url, kind=kind, **options)))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for source in opened:
        source.close()


def test_all_samples_are_the_same(open_it: Open) -> None:
    interner = DictInterner()
    batch = open_it().fetch(NAMES, START_MS, END_MS, interner)
    assert as_samples(batch, interner) == expected(dataset(), NAMES, START_MS, END_MS)
    assert batch.dropped == {}
    assert not batch.is_partial
    assert batch.series.dtype == np.int32
    assert batch.ts_ms.dtype == np.int64
    assert batch.values.dtype == np.float64


def test_times_ascend_within_each_series(open_it: Open) -> None:
    batch = open_it().fetch(NAMES, START_MS, END_MS, DictInterner())
    order = np.argsort(batch.series, kind="stable")
    series, ts_ms = batch.series[order], batch.ts_ms[order]
    same = series[1:] == series[:-1]
    assert (ts_ms[1:] > ts_ms[:-1])[same].all()


def test_start_is_left_out_and_end_is_kept(open_it: Open) -> None:
    source = open_it()
    phase = 11  # of the series with odd labels
    at = START_MS + 3 * STEP_MS + phase
    for start, end, n_ticks in (
        (at - 1, at, 1),
        (at, at + STEP_MS - 1, 0),
        (at, at + STEP_MS, 1),
        (at - 1, at - 1, 0),
    ):
        batch = source.fetch(["odd:metric"], start, end, DictInterner())
        assert len(batch.series) == n_ticks * len(ODD_VALUES), (start, end)


def test_consecutive_ranges_give_each_sample_once(open_it: Open) -> None:
    source, interner = open_it(), DictInterner()
    found: Samples = {}
    for start in range(START_MS, END_MS, 97_531):
        batch = source.fetch(NAMES, start, min(start + 97_531, END_MS), interner)
        piece = as_samples(batch, interner)
        assert not piece.keys() & found.keys()
        found.update(piece)
    assert found == expected(dataset(), NAMES, START_MS, END_MS)


def test_known_series_are_not_asked_for_again(open_it: Open) -> None:
    source, interner = open_it(), DictInterner()
    source.fetch(NAMES, START_MS, START_MS + STEP_MS, interner)
    n_calls = len(interner.calls)
    source.fetch(NAMES, START_MS + STEP_MS, START_MS + 2 * STEP_MS, interner)
    assert len(interner.calls) == n_calls
    assert len({key for call in interner.calls for key in call}) == sum(map(len, interner.calls))


def test_series_not_compared_are_left_out(open_it: Open) -> None:
    source, interner = open_it(), DictInterner(refused_names=["node_load1"])
    rest = tuple(name for name in NAMES if name != "node_load1")
    for _ in range(2):
        batch = source.fetch(NAMES, START_MS, END_MS, interner)
        assert as_samples(batch, interner) == expected(dataset(), rest, START_MS, END_MS)


def test_another_interner_may_take_over(open_it: Open) -> None:
    source = open_it()
    first, second = DictInterner(refused_names=["node_load1"]), DictInterner()
    source.fetch(NAMES, START_MS, END_MS, first)
    batch = source.fetch(NAMES, START_MS, END_MS, second)
    assert as_samples(batch, second) == expected(dataset(), NAMES, START_MS, END_MS)


def test_a_time_without_samples_is_an_empty_batch(open_it: Open) -> None:
    batch = open_it().fetch(NAMES, START_MS - 10_000_000, START_MS - 9_000_000, DictInterner())
    assert len(batch.series) == len(batch.ts_ms) == len(batch.values) == 0
    assert not batch.is_partial


def test_slices_and_small_requests_change_nothing(open_it: Open) -> None:
    source, interner = open_it(slice_s=77.7, max_series_per_request=2), DictInterner()
    for _ in range(3):
        batch = source.fetch(NAMES, START_MS, END_MS, interner)
        assert as_samples(batch, interner) == expected(dataset(), NAMES, START_MS, END_MS)


@pytest.mark.parametrize("text", ['kind="quote"', '{kind="quote"}', ' { kind="quote", } '])
def test_extra_filters_narrow_every_request(open_it: Open, text: str) -> None:
    source, interner = open_it(extra_filters=(text,)), DictInterner()
    if isinstance(source, RecordingSource):
        pytest.skip("a recording has no filters")
    batch = source.fetch(NAMES, START_MS, END_MS, interner)
    kinds = {labels for labels, _ in as_samples(batch, interner)}
    assert [dict(labels)["kind"] for labels in kinds] == ["quote"]

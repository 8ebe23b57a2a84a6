"""Cleaning of samples against a naive version, and each hazard by hand."""

from __future__ import annotations

import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.errors import SourceDecode
from detector.source.base import Batch
from detector.source.request_plan import slices
from detector.source.samples import SampleCollector, drop_sentinels
from detector.source.selector import escape_regex, selector, selectors
from detector.source.victoriametrics import seconds
from tests.interner import DictInterner, as_samples

START_MS, END_MS = 100, 200

Line = tuple[str, list[object], list[int]]


def text(lines: list[Line]) -> bytes:
    rows = (
        json.dumps({"metric": {"__name__": name}, "values": values, "timestamps": stamps})
        for name, values, stamps in lines
    )
    return "".join(row + "\n" for row in rows).encode()


def collect(*blocks: bytes, interner: DictInterner | None = None, shares_times: bool = False) -> Batch:
    collector = SampleCollector(interner or DictInterner(), "here", shares_times=shares_times)
    part = collector.part()
    for block in blocks:
        part.add(block)
    collector.commit(part)
    return collector.finish(START_MS, END_MS)


def naive(lines: list[Line]) -> tuple[dict[tuple[str, int], float], Counter[str]]:
    """One value per series and time: the last of a line, the largest between lines."""
    dropped: Counter[str] = Counter()
    candidates: dict[tuple[str, int], dict[int, list[float]]] = {}
    for number, (name, values, stamps) in enumerate(lines):
        for value, stamp in zip(values, stamps, strict=True):
            number_value = math.nan if value is None else float(value)  # type: ignore[arg-type]
            if stamp <= START_MS:
                continue
            if stamp > END_MS:
                dropped["future"] += 1
            elif math.isnan(number_value):
                dropped["nan"] += 1
            elif math.isinf(number_value):
                dropped["inf"] += 1
            elif number_value in (2147483632.0, 2.0**47 + 1, 2.0**63):
                dropped["sentinel"] += 1
            else:
                candidates.setdefault((name, stamp), {}).setdefault(number, []).append(number_value)
    kept = {key: max(values[-1] for values in by_line.values()) for key, by_line in candidates.items()}
    for key, by_line in candidates.items():
        everything = [value for values in by_line.values() for value in values]
        n_same = everything.count(kept[key])
        if n_same > 1:
            dropped["duplicate"] += n_same - 1
        if len(everything) > n_same:
            dropped["collision"] += len(everything) - n_same
    return kept, dropped


VALUES = st.one_of(
    st.integers(-3, 3),
    st.floats(-1e6, 1e6),
    st.sampled_from([None, "NaN", "Infinity", "-Infinity", 2147483632, 2.0**47 + 1, 9223372036854775794]),
)
SAMPLES = st.lists(st.tuples(VALUES, st.integers(START_MS - 5, END_MS + 5)), min_size=0, max_size=8)
LINES = st.lists(st.tuples(st.sampled_from("abcd"), SAMPLES), max_size=12).map(
    lambda rows: [(name, [v for v, _ in samples], [t for _, t in samples]) for name, samples in rows]
)


@settings(max_examples=300, deadline=None)
@given(lines=LINES, cut=st.integers(0, 12), shares_times=st.booleans(), refused=st.sampled_from(["", "a"]))
def test_samples_are_those_of_the_naive_version(
    lines: list[Line], cut: int, shares_times: bool, refused: str
) -> None:
    interner = DictInterner(refused_names=[refused])
    blocks = [text(lines[:cut]), text(lines[cut:])]
    batch = collect(*blocks, interner=interner, shares_times=shares_times)
    kept, dropped = naive([line for line in lines if line[0] != refused])
    found = {
        (dict(labels)["__name__"], ts): value for (labels, ts), value in as_samples(batch, interner).items()
    }
    assert found == kept
    assert Counter(batch.dropped) == dropped
    order = np.lexsort((batch.ts_ms, batch.series))
    assert order.tolist() == list(range(len(order)))


@settings(max_examples=100, deadline=None)
@given(lines=LINES, seed=st.integers(0, 1000))
def test_order_of_lines_makes_no_difference(lines: list[Line], seed: int) -> None:
    shuffled = lines[:]
    random.Random(seed).shuffle(shuffled)
    first, second = DictInterner(), DictInterner()
    one, other = collect(text(lines), interner=first), collect(text(shuffled), interner=second)
    assert first.keys == second.keys
    for name in ("series", "ts_ms", "values"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert one.dropped == other.dropped


def test_known_series_after_new_ones() -> None:
    interner = DictInterner()
    collect(text([("b", [1], [150])]), interner=interner)
    batch = collect(text([("a", [1], [150]), ("b", [2], [150]), ("a", [3], [160])]), interner=interner)
    assert sorted(zip(batch.series.tolist(), batch.values.tolist(), strict=True)) == [
        (0, 2.0),
        (1, 1.0),
        (1, 3.0),
    ]


def test_a_wide_span_of_times_is_sorted_too() -> None:
    lines: list[Line] = [(f"m{i}", [1.0, 2.0], [2**61, 1]) for i in range(5)]
    collector = SampleCollector(DictInterner(), "here")
    part = collector.part()
    part.add(text(lines))
    collector.commit(part)
    batch = collector.finish(-(2**62), 2**62)
    assert batch.values.tolist() == [2.0, 1.0] * 5


def test_parts_that_are_not_committed_leave_no_trace() -> None:
    interner = DictInterner()
    collector = SampleCollector(interner, "here")
    good, bad = collector.part(), collector.part()
    bad.add(text([("lost", [1], [150])]))
    good.add(text([("kept", [2], [150])]))
    collector.commit(good)
    assert collector.finish(START_MS, END_MS).values.tolist() == [2.0]


@pytest.mark.parametrize(
    ("value", "is_blank"),
    [
        (9223372036854775792, True),
        (9223372036854775794, True),
        (9223372036854775795, True),
        (9223372036854774784, True),
        (9.2e18, False),
        (18446744073709551615, False),
        (2147483631, False),
        (2147483632, True),
        (2147483635, True),
        (2147483636, False),
        (140737488355328, True),
        (140737488355331, True),
        (140737488355332, False),
        (140737488355327, False),
        (-125000, False),
        (0, False),
        (math.nan, False),
        (math.inf, False),
        (-math.inf, False),
    ],
)
def test_blank_values_of_dcgm(value: float, is_blank: bool) -> None:
    assert drop_sentinels(np.array([float(value)])).tolist() == [is_blank]


def test_unknown_speed_is_blank_for_speeds_only() -> None:
    interner = DictInterner()
    lines: list[Line] = [
        ("node_network_speed_bytes", [-125000, 3], [150, 160]),
        ("node_timex_offset", [-125000], [150]),
    ]
    batch = collect(text(lines), interner=interner)
    assert sorted(batch.values.tolist()) == [-125000.0, 3.0]
    assert batch.dropped == {"sentinel": 1}


@pytest.mark.parametrize(
    "bare", ["+Inf", "-Inf", "Inf", "NaN", "1,+Inf,-Inf", "+Inf,NaN", "1.5,NaN,2", "-Inf,1e-7,-3"]
)
def test_bare_infinities_are_no_reason_to_lose_the_answer(bare: str) -> None:
    n = bare.count(",") + 1
    label = 'a,+Inf,NaN],\\"values\\":[+Inf]'
    stamps = list(range(150, 150 + n))
    line = f'{{"metric":{{"__name__":"m","odd":"{label}"}},"values":[{bare}],"timestamps":{stamps}}}\n'
    interner = DictInterner()
    batch = collect(text([("a", [7], [150])]) + line.encode() + text([("b", [8], [150])]), interner=interner)
    assert sum(batch.dropped.values()) == bare.count("Inf") + bare.count("NaN")
    assert {7.0, 8.0} <= set(batch.values.tolist())
    assert len(batch.values) == 2 + n - sum(batch.dropped.values())
    assert label.replace("\\", "") in {dict(json.loads(key)).get("odd") for key in interner.keys}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"metric":{"__name__":"m"},"values":[1,2],"timestamps":[1]}', "2 values but 1 timestamps"),
        (b'{"metric":{"__name__":"m"},"values":["x"],"timestamps":[1]}', "x"),
        (b'{"metric":{"__name__":"m"},"values":[[1]],"timestamps":[1]}', "values"),
        (b'{"metric":{"__name__":"m"},"values":[1],"timestamps":["1"]}', "timestamps"),
        (b'{"metric":{"__name__":"m"},"values":[1],"timestamps":[1e30]}', "timestamps"),
        (b'{"metric":{"__name__":"m"},"values":[1]}', "timestamps"),
        (b'{"metric":{"__name__":"m"},"values":[1],"timestamps":[99999999999999999999]}', "timestamps"),
        (b'{"metric":{"__name__":"m"', "truncated"),
        (b"\x00\xff", "malformed"),
        (b"<html>", "malformed"),
    ],
)
@pytest.mark.parametrize("shares_times", [False, True])
def test_broken_line_is_named(line: bytes, said: str, shares_times: bool) -> None:
    good = text([("a", [1], [150])])
    with pytest.raises(SourceDecode, match=rf"^here: line 4: .*{said}"):
        collect(good * 2, good + line + b"\n" + good, shares_times=shares_times)


def test_no_lines_are_no_samples() -> None:
    for blocks in ((), (b"",), (b"\n",), (text([("a", [], [])]),)):
        batch = collect(*blocks)
        assert len(batch.series) == len(batch.values) == len(batch.ts_ms) == 0


@pytest.mark.parametrize("ms", [0, 1, 999, 1000, 1_717_243_200_001, 2**53 - 1, -1, -1001])
def test_seconds_are_exact(ms: int) -> None:
    from decimal import Decimal

    assert Decimal(seconds(ms)) * 1000 == ms


@settings(max_examples=200, deadline=None)
@given(start=st.integers(-(10**6), 10**13), length=st.integers(0, 10**6), slice_s=st.floats(1e-3, 1e4))
def test_slices_cover_the_range_once(start: int, length: int, slice_s: float) -> None:
    if length / (slice_s * 1000) > 5000:
        return
    found = list(slices(start, start + length, slice_s))
    assert all(high - low <= max(1, round(slice_s * 1000)) and low < high for low, high in found)
    edges = [start, *(high for _, high in found)]
    assert edges[:-1] == [low for low, _ in found]
    assert edges[-1] == start + length


def test_selectors() -> None:
    assert selector(["a.b", "c:d"], ['x="y"']) == '{__name__=~"a\\\\.b|c:d",x="y"}'
    assert selector([], ["{}"]) == '{__name__=~".+"}'
    assert selector(['q"\n\\']) == '{__name__=~"q\\"\\n\\\\\\\\"}'
    many = selectors([f"m{i}" for i in range(305)])
    assert len(many) == 4
    assert "m304" in many[-1]
    assert selectors([]) == ['{__name__=~".+"}']


@given(st.text(max_size=20))
def test_escaped_names_match_themselves(name: str) -> None:
    import re

    assert re.fullmatch(escape_regex(name), name)

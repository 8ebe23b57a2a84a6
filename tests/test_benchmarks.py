"""Every benchmark runs on a tiny shape and says what it should; nothing here is timed."""

import contextlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.bench_console import CHROMIUM, MOST_KB, console_rows
from benchmarks.bench_core import core_rows
from benchmarks.bench_day import (
    CLEARED_WITHIN_S,
    _incident_rows,
    _Seen,
    _store_rows,
    _why_not_once,
    day_rows,
    planted,
)
from benchmarks.bench_incidents import incident_rows
from benchmarks.bench_readers import readers_rows
from benchmarks.bench_replay import replay_rows
from benchmarks.bench_tick import ReferenceTick, Rounds, scale_rows
from benchmarks.bench_what_if import what_if_rows
from benchmarks.child import Child, peak_rss_mib
from benchmarks.report import Row
from benchmarks.run import NAMES, TEXTS, main
from detector.core.incidents import CLEARED, PENDING, SUSPECT
from detector.outcome import Incident, Outcome, Transition
from detector.store import Store
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.metric_sets import select

TINY = ClusterConfig(
    train_nodes=4,
    spares=1,
    cpus=2,
    warm_up_s=60.0,
    metrics=select("DCGM_", "node_load1", "up", "backendai_cpu"),
)
FEW = Rounds(history=3, warm=1, steady=2, pandas=2)


def life(fault: Fault, named_s: float, cleared_s: float | None, number: str = "") -> list[Transition]:
    """The steps of a fault's incident: named so long after its onset, cleared so long after its end."""
    times = [(PENDING, fault.onset + 60), (SUSPECT, fault.onset + named_s)]
    times += [] if cleared_s is None else [(CLEARED, fault.end + cleared_s)]
    return [Transition(f"{fault.node}{number}", fault.node, at, "clear", state, "why") for state, at in times]


def figures(rows: list[Row]) -> dict[str, str]:
    """Figures by name; every one of them has a number or a name in it."""
    assert all(row.name and row.figure for row in rows)
    return {row.name: row.figure for row in rows}


def number(figure: str) -> float:
    found = re.match(r"-?[\d.]+", figure)
    assert found, figure
    return float(found[0])


@pytest.mark.server
def test_the_tick_is_measured_against_curl_and_pandas() -> None:
    rows = ReferenceTick(TINY, FEW).rows()
    told = figures(rows)
    for name in (
        "steady tick, fetch to verdict",
        "tick / curl, median of pairs",
        "peak memory of Oddnode",
        "pandas, raw samples by range selector",
        "pandas, rates computed by the database",
    ):
        assert number(told[name]) >= 0
    assert rows[0].shape.startswith("5 nodes, ")
    assert number(told["peak memory of Oddnode"]) > 10
    compared = {row.shape.partition(" series")[0] for row in rows if row.name.startswith("pandas")}
    assert {int(n) > 100 for n in compared} == {True}, "the yardstick must have scored the same cluster"


@pytest.mark.server
def test_sizes_are_filled_in_shards_and_compared_whole() -> None:
    rows = list(scale_rows({"tiny": TINY}, FEW))
    assert number(figures(rows)["steady tick, median"]) > 0
    assert "tiny: 5 nodes x 2 processors, " in rows[0].shape


def test_a_recording_is_replayed_and_the_faulty_node_looked_for() -> None:
    told = figures(replay_rows(TINY, minutes=5, rounds=1))
    assert number(told["- real time / replay"]) > 0
    assert number(told["- replay / that, processor times"]) > 0
    assert "- flagged (the fault is on gpu002)" in told


def test_evaluation_alone() -> None:
    told = figures(core_rows([(4, 2)], ticks=1))
    assert number(told["evaluate, steady"]) > 0
    assert number(told["label sets parsed and placed"]) > 0


def test_incidents_are_generated_and_evaluated() -> None:
    rows = list(incident_rows(1, n_jobs=1))
    assert (rows[0].target, rows[0].is_met) == ("< 600 s", True)
    told = figures(rows)
    assert number(told["- processor time"]) > 0
    assert re.fullmatch(r"[01] of 1, \d+", told["- found, false alarms"])


def test_a_day_tells_memory_and_whether_each_fault_was_named_and_cleared_once() -> None:
    told = figures(list(day_rows(TINY, hours=0.2)))
    assert number(told["peak memory of the service"]) > 10
    assert told["ticks missed / failed"] == "0 / 0"
    assert told["planted faults named once and cleared once"] == "0 of 0", "none ends within the time"
    day = planted(TINY, 24.0)
    assert len({fault.onset for fault in day}) == len(day) == 11
    assert day[-1].end + CLEARED_WITHIN_S <= TINY.start + 86_400
    fault = day[0]
    assert len({(fault.node, fault.kind) for fault in planted(replace(TINY, train_nodes=60), 720.0)}) == 180

    assert _why_not_once(fault, life(fault, 240, 600)) == ""
    assert _why_not_once(fault, life(fault, 901, 600)) == "named late"
    assert _why_not_once(fault, life(fault, 240, None)) == "not cleared in time"
    assert _why_not_once(fault, life(fault, 240, -30)) == "cleared while it lasted"
    twice = [*life(fault, 240, 600), *life(fault, 240, 600)]
    assert "suspect, cleared, pending, suspect" in _why_not_once(fault, twice)


def test_faults_named_late_or_twice_and_other_nodes_are_told() -> None:
    first, second, third = planted(TINY, 10.0)[:3]
    steps = [*life(first, 240, 600), *life(second, 240, 600, "a"), *life(second, 400, 700, "b")]
    steps += life(replace(third, node="gpu005"), 240, 600)
    told = figures(list(_incident_rows(steps, [first, second, third], "tiny")))
    said = told["planted faults named once and cleared once"]
    assert said.startswith("1 of 3; ")
    assert f"{second.node}: named 2 times" in said
    assert f"{third.node}: named 0 times" in said
    assert told["other nodes named"] == "1: gpu005 after 6.1 h"
    steps = [step for step in steps if step.after != SUSPECT]
    assert figures(list(_incident_rows(steps, [], "tiny")))["incidents that began and made no suspect"] == "4"


def test_a_month_finds_a_store_that_loses_steps_or_keeps_them_too_long(tmp_path: Path) -> None:
    first, second = planted(TINY, 10.0)[:2]
    with contextlib.closing(Store(tmp_path / "oddnode.db")) as store:
        seen, end = _Seen(4), second.end + 86_400
        for name in seen.figures:
            seen.figures[name][:] = 1.0
        for k, fault in enumerate((first, second)):
            steps = life(fault, 240, 600)
            seen.steps += steps
            cleared = Incident(
                steps[0].incident_id, fault.node, CLEARED, steps[0].at, cleared_at=steps[-1].at
            )
            store.save(Outcome(at=first.onset + k, transitions=tuple(steps[k:]), incidents=(cleared,)))

        def told(kept_from: float) -> str:
            return figures(list(_store_rows(store, seen, kept_from, "tiny")))[
                "published steps that the store lacks / incidents kept too long"
            ]

        assert told(first.onset) == "1 / 0, 2 incidents kept at the end"
        assert told(end) == "0 / 2, 2 incidents kept at the end"


@pytest.mark.server
def test_readers_are_answered_while_ticks_run() -> None:
    rows = list(readers_rows(TINY, n_readers=5, n_pairs=2, n_ticks=2, pause_s=0.01))
    told = figures(rows)
    assert number(told["answer of /v1/suspects, 99 of 100 within"]) > 0
    assert number(told["- answers, and a second of ticks"]) >= 10
    assert number(told["- with / without, median of pairs of blocks"]) > 0
    assert "5 readers, pause 0.01 s" in rows[0].shape


@pytest.mark.server
def test_ticks_beside_a_try_are_measured() -> None:
    told = figures(list(what_if_rows(TINY, history=60, n_pairs=4)))
    assert number(told["tick, try held / beside it"]) >= 0
    assert number(told["- beside / held, median of pairs"]) > 0
    assert number(told["processor time of the try"]) > 0
    assert number(told["peak memory of the try"]) > 10


@pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's chromium is not installed: make servers")
def test_pages_are_seen_weighed_and_left_open() -> None:
    rows = list(console_rows((12,), rounds=1, minutes=14, redraws=10))
    told = figures(rows)
    assert number(told["first view of the page Now"]) > 0
    assert number(told["first view of a suspect's page, charts drawn"]) > 0
    assert 50 < number(told["- weight, nothing in the cache"]) < MOST_KB
    for page in ("Now", "of a node"):
        for what in (
            f"what scripts hold, {page}, open / opened just now",
            f"- what scripts hold, {page}, after / before",
            f"- nodes of the document, {page}, open / opened just now",
            f"- nodes of the document, {page}, after / before",
        ):
            assert 0.8 < number(told[what]) < 1.2, "it is the same content"
        assert number(told[f"- heap with compiled code, {page}, after / before"]) > 0
        assert told[f"- charts of before that are still held, {page}"] == "0"
    redraws = [int(re.search(r"(\d+) redraws", row.shape)[1]) for row in rows if "redraws" in row.shape]
    assert min(redraws) > 5


def test_a_child_that_dies_is_an_error() -> None:
    with Child("benchmarks.core_child") as child, pytest.raises(RuntimeError, match="ended with status"):
        child.ask(nodes="many", cpus=2, ticks=1)


def test_peak_memory_is_this_process_own() -> None:
    script = (
        "from benchmarks.child import peak_rss_mib as peak\n"
        "before, held = peak(), bytearray(b'x') * 2**26\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 60 < float(done.stdout) < 70
    assert peak_rss_mib() > 10


def test_a_run_changes_its_own_section_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    old = report.section("Evaluation alone", "old text", {"date": "long ago"}, "| old |\n")
    other = report.section("Replay", "other text", {"date": "yesterday"}, "| other |\n")
    page.write_text(report.page("", {"Evaluation alone": old, "Replay": other}, NAMES.values()))
    assert main(["core", "--quick", "--output", str(page)]) == 0
    text = page.read_text()
    assert "| evaluate, steady | 5 nodes" in text
    assert TEXTS["core"] in text
    for fact in ("- machine: ", "- date: ", "- commit: ", "- command: python -m benchmarks.run core"):
        assert fact in text
    assert other in text
    assert "old text" not in text
    assert text.startswith(report.HEAD)
    assert re.findall("^## (.*)$", text, re.MULTILINE) == ["Replay", "Evaluation alone"]
    assert "evaluate, steady" in capsys.readouterr().out


def test_a_row_is_a_line_of_a_table() -> None:
    rows = [Row("a", "b", "c"), Row("a", "b", "c", "d", True), Row("a", "b", "c", "d", False)]
    assert report.table(rows).splitlines()[-3:] == [
        "| a | b | c |  |",
        "| a | b | c | d: met |",
        "| a | b | c | d: **missed** |",
    ]

"""From folders to tables, JSON and report: bad cases are named, the rest runs, twice the same."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from detector.errors import OddnodeError, SourceDecode
from detector.evaluation.builtin import OddnodeDetector
from detector.evaluation.cases import find_cases
from detector.evaluation.command import Options, evaluate_command
from detector.evaluation.model import Call, Case, Findings, Flag
from detector.evaluation.runner import evaluate, run_all
from grouping.catalog import Catalog
from grouping.model import Kind, MetricSpec

START, STEP, N_STEPS = 1_767_000_000, 30, 120
END = START + STEP * N_STEPS
ONSET = START + 60 * STEP
NODES = [f"node{i}" for i in range(8)]
EVIL = "<script>alert('x')</script>&\"[bold]"


def write_case(folder: Path, *, faulty: str | None = "node3", **changes: Any) -> Path:
    """Write a small case in which one node's temperature rises by forty degrees."""
    folder.mkdir(parents=True)
    with gzip.open(folder / "series.jsonl.gz", "wt", compresslevel=1) as file:
        for i, node in enumerate(NODES):
            stamps = [(START + STEP * k) * 1000 for k in range(N_STEPS + 1)]
            values = [50.0 + (i * 7 + k * 3) % 5 * 0.2 for k in range(N_STEPS + 1)]
            if node == faulty:
                values = [v + 40.0 * (START + STEP * k >= ONSET) for k, v in enumerate(values)]
            labels = {"__name__": "room_temperature_celsius", "instance": f"{node}:9100"}
            file.write(json.dumps({"metric": labels, "values": values, "timestamps": stamps}) + "\n")
    entry: dict[str, Any] = {
        "id": folder.name,
        "start": START,
        "end": END,
        "step_s": STEP,
        "pool": NODES,
        "spares": [],
        "healthy": faulty is None,
        "faults": []
        if faulty is None
        else [{"node": faulty, "kind": "hot", "onset": ONSET, "end": END, "severity": "1.0"}],
        "provenance": {"made": "synthetic", "source": "generated"},
    }
    entry |= changes
    text = json.dumps({key: value for key, value in entry.items() if value is not ...})
    (folder / "incident.yaml").write_text(text, encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Told:
    """Says the same of every case."""

    flags: tuple[Flag, ...] = ()
    calls: tuple[Call, ...] = ()
    name: str = "told"

    def flag(self, case: Case) -> Findings:
        assert not hasattr(case, "faults"), "a detector sees no labels"
        return Findings(self.flags, self.calls)


@dataclass(frozen=True)
class Plain:
    """Answers with a plain list, as a rival may."""

    name: str = "plain"

    def flag(self, case: Case) -> Sequence[Flag]:
        return [Flag("node3", ONSET + 60.0)]


@dataclass(frozen=True)
class Failing:
    """Fails on cases by their name."""

    name: str = "failing"

    def flag(self, case: Case) -> Sequence[Flag]:
        if case.id == "broken":
            raise SourceDecode(f"{case.path}: line 3 is not JSON")
        if case.id == "buggy":
            raise ZeroDivisionError("a bug of the rival")
        if case.id == "deadly":
            os._exit(9)
        return []


def own() -> OddnodeDetector:
    spec = MetricSpec(
        name="room_temperature_celsius",
        exporter="node_exporter",
        target="GPU",
        unit="node",
        kind=Kind.GAUGE,
        measure="celsius",
        floor_abs=0.5,
    )
    return OddnodeDetector(Catalog.of([spec], path=Path("inline.yaml")))


def run(paths: Sequence[Path], detector: Any, **options: Any) -> tuple[int, str]:
    screen = io.StringIO()
    console = Console(file=screen, width=300, force_terminal=False)
    code = evaluate_command(paths, detector, Options(**({"n_jobs": 1} | options)), console)
    return code, screen.getvalue()


def test_oddnode_finds_the_hot_node_and_blames_nobody_else(tmp_path: Path) -> None:
    write_case(tmp_path / "hot")
    write_case(tmp_path / "well", faulty=None)
    out = tmp_path / "out.json"
    code, text = run([tmp_path], own(), json_file=out, html_file=tmp_path / "out.html")
    assert code == 0, text
    document = json.loads(out.read_text())
    (origin,) = document["origins"]
    assert (origin["name"], origin["found"], origin["missed"], origin["false_alarms"]) == (
        "synthetic",
        1,
        0,
        0,
    )
    assert 60 <= origin["all"]["delay"]["median_s"] <= 400
    assert document["complete"]
    assert "polyline class='value'" in (tmp_path / "out.html").read_text(), "the signal is drawn"


def test_two_runs_and_any_number_of_processes_give_the_same_bytes(tmp_path: Path) -> None:
    for i in range(3):
        write_case(tmp_path / "cases" / f"c{i}", faulty=f"node{i}")
    written = []
    for i, n_jobs in enumerate((1, 2, 1)):
        files = {"json_file": tmp_path / f"{i}.json", "html_file": tmp_path / f"{i}.html"}
        assert run([tmp_path / "cases"], own(), n_jobs=n_jobs, **files)[0] == 0
        written.append(tuple(file.read_bytes() for file in files.values()))
    assert written[0] == written[1] == written[2]


def test_a_rival_may_answer_with_a_list(tmp_path: Path) -> None:
    write_case(tmp_path / "hot")
    evaluated = evaluate(Plain(), find_cases([tmp_path]).cases)
    assert evaluated.scores[0].faults[0].delay_s == 60.0


BAD = {
    "no_labels": ({"faulty": None, "healthy": False}, "has no labels"),
    "no_faults_key": ({"faults": ...}, "faults is missing"),
    "outside": (
        {"faults": [{"node": "node3", "kind": "x", "onset": END + 60, "end": END + 90}]},
        "faults[0].onset is outside the time",
    ),
    "before": (
        {"faults": [{"node": "node3", "kind": "x", "onset": START - 60, "end": END}]},
        "faults[0].onset is outside the time",
    ),
    "group_outside": (
        {"group_events": [{"nodes": [], "onset": END + 60, "end": END + 90}]},
        "group_events[0] is outside the time",
    ),
    "unknown_node": (
        {"faults": [{"node": "ghost", "kind": "x", "onset": ONSET, "end": END}]},
        "faults[0] names node 'ghost'",
    ),
    "unknown_masked": (
        {"masked": [{"node": "ghost", "onset": ONSET, "end": END}]},
        "masked[0] names node 'ghost'",
    ),
    "contradiction": ({"healthy": True}, "is called healthy and has faults"),
    "no_such_grade": (
        {"faults": [{"node": "node3", "onset": ONSET, "end": END, "visible": "plain"}]},
        "faults[0].visible must be one of faint, visible, not 'plain'",
    ),
    "visible_too_early": (
        {"faults": [{"node": "node3", "onset": ONSET, "end": END, "visible_at": ONSET - 1}]},
        "faults[0].visible_at must not be before onset",
    ),
    "visible_never": (
        {"faults": [{"node": "node3", "onset": ONSET, "end": END, "visible_at": "soon"}]},
        "faults[0].visible_at must be a number, not 'soon'",
    ),
    "no_pool": ({"pool": []}, "pool names no node"),
    "endless": ({"step_s": 1e-6}, "at most 1000000 are made"),
    "too_many_nodes": (
        {"step_s": (END - START) / 999_999, "pool": [*NODES, *(f"more{k}" for k in range(600))]},
        "is too long",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_case_is_named_and_the_rest_runs(tmp_path: Path, name: str) -> None:
    changes, reason = BAD[name]
    write_case(tmp_path / "good")
    write_case(tmp_path / name, **changes)
    found = find_cases([tmp_path])
    assert [case.id for case in found.cases] == ["good"]
    (left,) = found.left_out
    assert left.path == str(tmp_path / name)
    assert reason in left.reason
    code, text = run([tmp_path], Told())
    assert code == 2
    assert "1 cases evaluated, 1 left out" in text
    assert name in text


def test_folders_that_hold_nothing_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unlabelled").mkdir()
    (tmp_path / "unlabelled" / "series.jsonl").write_text("")
    (tmp_path / "no_samples").mkdir()
    good = write_case(tmp_path / "good")
    (tmp_path / "no_samples" / "incident.yaml").write_text((good / "incident.yaml").read_text())
    paths = [tmp_path / name for name in ("empty", "unlabelled", "no_samples", "absent", "good")]
    found = find_cases(paths)
    assert [case.id for case in found.cases] == ["good"]
    reasons = {Path(item.path).name: item.reason for item in found.left_out}
    assert reasons["empty"] == "holds no case"
    assert "no labels" in reasons["unlabelled"]
    assert reasons["no_samples"].startswith("holds no series.jsonl.gz")
    assert reasons["absent"] == "no such folder"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\xff\xfe", "incident.yaml"),
        (b"{id: [", "incident.yaml: line"),
        (b"- just\n- a list\n", "must be a mapping"),
        (b"", "must be a mapping"),
        (b"id: x\nnotes: " + b"y" * (9 << 20), "larger than"),
    ],
)
def test_labels_that_cannot_be_read_are_named_and_the_rest_runs(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    write_case(tmp_path / "good")
    (write_case(tmp_path / "bad") / "incident.yaml").write_bytes(content)
    code, text = run([tmp_path], Told())
    assert code == 2
    assert "1 cases evaluated, 1 left out" in text
    (left,) = find_cases([tmp_path]).left_out
    assert reason in left.reason


def test_grades_are_counted_and_told(tmp_path: Path) -> None:
    label = {"node": "node3", "kind": "hot", "onset": ONSET, "end": END, "visible": "visible"}
    label |= {"visible_at": ONSET + 30, "visible_in": "room_temperature_celsius"}
    faint = {"node": "node4", "kind": "warm", "onset": ONSET, "end": END, "visible": "faint"}
    write_case(tmp_path / "c" / "graded", faults=[label, faint])
    files = {"json_file": tmp_path / "out.json", "html_file": tmp_path / "out.html"}
    code, text = run([tmp_path / "c"], HIT, **files)
    assert code == 0
    assert "visible found" in text
    document = json.loads(files["json_file"].read_text())
    found = document["origins"][0]["all"]
    assert (found["recall"]["k"], found["recall"]["n"]) == (1, 2)
    assert (found["visible"]["k"], found["visible"]["n"]) == (1, 1)
    assert found["visible_delay"]["median_s"] == 30.0
    assert document["cases"][0]["faults"][1]["visible"] == "faint"
    assert "visible 30 s after it in room_temperature_celsius" in files["html_file"].read_text()


@pytest.mark.parametrize(
    ("flags", "found", "false"),
    [
        (tuple(Flag(node, START + 60.0) for node in NODES), 0, 8),
        (tuple(Flag(node, ONSET + 60.0) for node in NODES), 1, 7),
        ((), 0, 0),
        ((Flag("node3", END + 601.0),), 0, 1),
        ((Flag("node3", END + 599.0),), 1, 0),
    ],
    ids=["everyone, always", "everyone, at the onset", "no one", "late", "just in time"],
)
def test_broken_detectors_score_as_they_should(
    tmp_path: Path, flags: tuple[Flag, ...], found: int, false: int
) -> None:
    write_case(tmp_path / "c" / "hot", end=END + 1200)
    out = tmp_path / "out.json"
    run([tmp_path / "c"], Told(flags), json_file=out)
    (origin,) = json.loads(out.read_text())["origins"]
    assert (origin["found"], origin["missed"], origin["false_alarms"]) == (found, 1 - found, false)


def test_cases_named_twice_or_of_one_id_count_once(tmp_path: Path) -> None:
    good = write_case(tmp_path / "good")
    write_case(tmp_path / "copy", id="good")
    found = find_cases([good, good, tmp_path / "copy"])
    assert len(found.cases) == 1
    assert [item.reason for item in found.left_out] == ["named twice", f"has the id 'good', as {good} does"]


def test_huge_and_damaged_files_are_left_out(tmp_path: Path) -> None:
    write_case(tmp_path / "good")
    big = write_case(tmp_path / "big")
    limit = (big / "series.jsonl.gz").stat().st_size + 1000
    with (big / "series.jsonl.gz").open("ab") as file:
        file.write(bytes(2000))
    damaged = write_case(tmp_path / "damaged")
    (damaged / "series.jsonl.gz").write_bytes((damaged / "series.jsonl.gz").read_bytes()[:300])
    code, text = run([tmp_path], own(), max_file_bytes=limit)
    assert code == 2
    assert "1 cases evaluated, 2 left out" in text
    assert f"more than {limit}" in text
    assert "ends too early" in text


def test_a_detector_that_fails_on_a_case_is_named_and_the_rest_runs(tmp_path: Path) -> None:
    for name in ("broken", "buggy", "well"):
        write_case(tmp_path / name)
    evaluated = evaluate(Failing(), find_cases([tmp_path]).cases)
    assert [score.recording.id for score in evaluated.scores] == ["well"]
    reasons = [item.reason for item in evaluated.left_out]
    assert "line 3 is not JSON" in reasons[0]
    assert reasons[1] == "failing failed with ZeroDivisionError: a bug of the rival"


def test_a_process_that_dies_takes_no_other_case_with_it(tmp_path: Path) -> None:
    for name in ("a", "b", "deadly", "z"):
        write_case(tmp_path / name)
    evaluated = evaluate(Failing(), find_cases([tmp_path]).cases, n_jobs=2)
    assert [score.recording.id for score in evaluated.scores] == ["a", "b", "z"]
    (left,) = evaluated.left_out
    assert left.path.endswith("deadly")
    assert "process died" in left.reason


def test_progress_tells_every_case_once() -> None:
    told: list[tuple[int, int]] = []
    assert run_all(str, [1, 2, 3], progress=lambda done, n: told.append((done, n))) == ["1", "2", "3"]
    assert told == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(ValueError, match="n_jobs"):
        run_all(str, [1], n_jobs=0)


HIT = Told((Flag("node3", ONSET + 60.0),))
WRONG = Told((Flag("node3", ONSET + 60.0), Flag("node5", ONSET + 60.0)))


@pytest.mark.parametrize(
    ("detector", "required", "code"),
    [
        (HIT, {"require_precision": 1.0, "require_recall": 1.0}, 0),
        (WRONG, {"require_precision": 0.5}, 0),
        (WRONG, {"require_precision": 0.51}, 1),
        (Told(), {"require_recall": 0.1}, 1),
        (Told(), {"require_precision": 0.0}, 1),
    ],
)
def test_requirements_decide_the_exit_code(
    tmp_path: Path, detector: Told, required: dict[str, float], code: int
) -> None:
    write_case(tmp_path / "hot")
    assert run([tmp_path], detector, **required)[0] == code


def test_exit_codes_when_cases_are_left_out(tmp_path: Path) -> None:
    write_case(tmp_path / "hot")
    paths = [tmp_path, tmp_path / "absent"]
    assert run(paths, HIT)[0] == 2
    assert run(paths, Told(), require_recall=1.0)[0] == 1, "an unmet requirement wins"
    assert run([tmp_path / "absent"], HIT)[0] == 3
    write_case(tmp_path / "well" / "w", faulty=None)
    assert run([tmp_path / "well"], HIT, require_recall=1.0)[0] == 1, "no fault, no recall to meet"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n_jobs": -1}, "--jobs"),
        ({"require_recall": 1.5}, "--require-recall"),
        ({"json_file": Path("/nowhere/at/all.json")}, "/nowhere/at/all.json"),
    ],
)
def test_wrong_options_are_told_before_any_work(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    write_case(tmp_path / "hot")
    with pytest.raises(OddnodeError, match=told):
        run([tmp_path], Failing(), **options)


def test_json_holds_no_nan_and_every_share_its_n(tmp_path: Path) -> None:
    write_case(tmp_path / "well", faulty=None)
    out = tmp_path / "out.json"
    run([tmp_path], Told(), json_file=out)
    document = json.loads(out.read_text(), parse_constant=lambda text: pytest.fail(text))
    (origin,) = document["origins"]
    assert document["format"] == "oddnode-evaluation/1"
    assert origin["recall"] == {"k": 0, "n": 0, "value": None, "low": None, "high": None}
    assert origin["false_rate"]["count"] == 0
    assert origin["false_rate"]["node_days"] == pytest.approx(8 * STEP * N_STEPS / 86_400)
    assert document["cases"][0]["undetermined_share"] is None


class Strict(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.extend((name, value or "") for name, value in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_labels_cannot_break_out_of_the_report_or_the_tables(tmp_path: Path) -> None:
    nodes = [*NODES, EVIL]
    fault = {"node": EVIL, "kind": EVIL, "onset": ONSET, "end": END, "part": EVIL, "severity": EVIL}
    group = {"nodes": [EVIL], "kind": EVIL, "onset": ONSET, "end": END}
    made = {"made": "synthetic", "source": EVIL}
    bad = {"id": EVIL, "pool": nodes, "faults": [fault], "group_events": [group], "provenance": made}
    write_case(tmp_path / "cases" / "evil", **bad)
    flags = (
        Flag(EVIL, ONSET + 60.0, part=EVIL, metric=EVIL, why=EVIL),
        Flag(EVIL + "2", START + 60.0, why=EVIL),
    )
    page = tmp_path / "out.html"
    told = Told(flags, (Call("group_event", ONSET, None, (EVIL,), EVIL),), name=EVIL)
    code, text = run([tmp_path / "cases", tmp_path / EVIL.replace("/", "")], told, html_file=page)
    assert code == 2
    assert EVIL in text.replace("\n", "")
    parser = Strict()
    parser.feed(page.read_text(encoding="utf-8"))
    assert "script" not in parser.tags
    assert EVIL in "".join(parser.text)
    allowed = {"src", "href", "onerror", "onload", "action", "srcset"}
    assert not allowed & {name for name, _ in parser.attributes}
    assert not any("http" in value and name != "http-equiv" for name, value in parser.attributes)
    assert "@import" not in page.read_text()


def test_misses_and_false_alarms_come_first_in_the_report(tmp_path: Path) -> None:
    write_case(tmp_path / "c" / "a_found", faulty="node3")
    write_case(tmp_path / "c" / "b_missed", faulty="node4")
    page = tmp_path / "out.html"
    run([tmp_path / "c"], Told((Flag("node3", ONSET + 60.0),)), html_file=page)
    text = page.read_text()
    order = [text.index("Misses and false alarms"), text.index("<h3>b_missed"), text.index("Cases without")]
    assert [*order, text.index("<summary>a_found")] == sorted([*order, text.index("<summary>a_found")])
    assert "its node was not flagged" in text
    assert "a fault of another node" in text


def test_json_to_standard_output_is_alone_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_case(tmp_path / "hot")
    assert evaluate_command([tmp_path], HIT, Options(json_file=Path("-"), n_jobs=1)) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["origins"][0]["found"] == 1
    assert "1 cases evaluated" in printed.err

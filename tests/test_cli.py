"""The command line: help, exit codes, and one clear sentence for whatever is wrong."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import typer
from ruamel.yaml import YAML

from detector.cli import app, main
from tests.servers import ScriptedServer, free_port, reply
from tests.test_service_serve import FAULTY, ONSET, START, STEP, write_recording

OOPS = "oddnode: "


@dataclass(frozen=True)
class Done:
    """What a command said."""

    code: int
    out: str
    err: str

    def sentence(self) -> str:
        """The one error that was told; fails when there is more, or a traceback."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith(OOPS)
        return lines[0].removeprefix(OOPS)


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command in this process, in a folder of its own, without settings from outside."""
    for name in [name for name in os.environ if name.startswith("ODDNODE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["oddnode", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return Done(int(ended.value.code or 0), told.out, told.err)

    return call


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with one faulty node."""
    return write_recording(tmp_path_factory.mktemp("cli") / "small")


def damaged(case: Path, folder: Path, *, lines: Callable[[bytes], bytes]) -> Path:
    """Copy a recording and change its unpacked series."""
    shutil.copytree(case, folder)
    file = folder / "series.jsonl.gz"
    file.write_bytes(gzip.compress(lines(gzip.decompress(file.read_bytes()))))
    return folder


def commands() -> Iterator[tuple[str, ...]]:
    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, (*path, name))

    return below(typer.main.get_command(app), ())


class TestHelp:
    @pytest.mark.parametrize("command", list(commands()), ids=lambda command: " ".join(command) or "oddnode")
    def test_every_command_explains_itself_and_its_options(self, run: Run, command: tuple[str, ...]) -> None:
        done = run(*command, "--help")
        assert done.code == 0
        assert done.err == ""
        assert f"Usage: oddnode {' '.join(command)}".rstrip() in done.out
        options = done.out.partition("Options:")[2].partition("Commands:")[0].splitlines()
        for k, line in enumerate(options):
            if line.lstrip().startswith("-"):
                words = [part for part in line.strip().split("  ") if part]
                follows = options[k + 1].startswith("      ") if k + 1 < len(options) else False
                assert len(words) > 1 or follows, f"no help for {line.strip()}"

    def test_the_commands_are_these(self) -> None:
        names = {" ".join(command) for command in commands()}
        assert names >= {"replay", "serve", "check-config", "record", "catalog check", "catalog discover"}

    @pytest.mark.parametrize(
        "args", [("frobnicate",), ("replay",), ("record", "out"), ("serve", "--no-such")]
    )
    def test_wrong_usage_is_exit_code_2(self, run: Run, args: tuple[str, ...]) -> None:
        done = run(*args)
        assert done.code == 2
        assert "Usage: oddnode" in done.err
        assert "Traceback" not in done.err

    def test_the_installed_command(self) -> None:
        """As a process of its own: the entry point exists and errors end without a traceback."""
        command = Path(sys.executable).parent / "oddnode"
        done = subprocess.run(
            [command, "replay", "/no/such/case"], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "oddnode: left out: /no/such/case: /no/such/case: no such recording\n"


class TestReplay:
    def test_a_suspect_is_exit_code_1_and_the_lines_keep_the_contract(
        self, run: Run, case: Path, tmp_path: Path
    ) -> None:
        done = run("replay", case, "--json", tmp_path / "out.jsonl")
        assert (done.code, done.err) == (1, "")
        assert FAULTY in done.out
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        assert len(lines) == 1
        said = json.loads(lines[0])
        assert said.keys() >= {"case", "flags", "group_events", "data_quality", "evaluations", "undetermined"}
        assert (said["case"], said["evaluations"], said["group_events"]) == ("small", 90, [])
        (flag,) = said["flags"]
        assert flag.keys() >= {"node", "flagged_at", "cleared_at", "kind", "evidence"}
        onset = START + STEP * ONSET
        assert (flag["node"], flag["kind"], flag["part"], flag["cleared_at"]) == (
            FAULTY, "suspect", "gpu 2", None,
        )  # fmt: skip
        assert onset + 180 <= flag["flagged_at"] <= onset + 300
        contract = {"metric", "labels", "part", "reason", "score", "value", "peer_median", "since"}
        for item in flag["evidence"]:
            assert item.keys() >= contract
            assert item["since"] <= flag["flagged_at"]
        assert {item["metric"] for item in flag["evidence"]} == {
            "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
        }  # fmt: skip

    def test_json_on_standard_output_stands_alone(self, run: Run, case: Path) -> None:
        done = run("replay", case, case, "--json", "-")
        assert done.code == 1
        assert [json.loads(line)["case"] for line in done.out.splitlines()] == ["small", "small"]
        assert FAULTY in done.err

    def test_nothing_suspect_is_exit_code_0(self, run: Run, case: Path, tmp_path: Path) -> None:
        before = json.dumps(START + STEP * ONSET)
        healthy = damaged(case, tmp_path / "healthy", lines=bytes)
        text = (healthy / "incident.yaml").read_text()
        (healthy / "incident.yaml").write_text(text.replace(f"end: {START + STEP * 90}", f"end: {before}"))
        done = run("replay", healthy)
        assert (done.code, done.err) == (0, "")
        assert "small: no suspect in 40 evaluations" in done.out

    def test_what_cannot_be_judged_is_exit_code_3(self, run: Run, case: Path, tmp_path: Path) -> None:
        def two_nodes(lines: bytes) -> bytes:
            kept = [line for line in lines.splitlines(True) if b'"gpu000"' in line or b'"gpu001"' in line]
            return b"".join(kept)

        done = run("replay", damaged(case, tmp_path / "two", lines=two_nodes))
        assert (done.code, done.err) == (3, "")
        assert "fewer than 3 peers" in done.out

    def test_one_bad_case_is_named_and_the_others_are_replayed(
        self, run: Run, case: Path, tmp_path: Path
    ) -> None:
        done = run("replay", "nowhere", case, "--json", "out.jsonl")
        assert done.code == 2
        assert done.sentence() == "left out: nowhere: nowhere: no such recording"
        assert FAULTY in done.out
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1

    def test_an_empty_folder(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        done = run("replay", "empty")
        assert done.code == 2
        assert "empty/incident.yaml: cannot be read: No such file or directory" in done.sentence()

    def test_a_corrupt_line_is_named_with_its_file(self, run: Run, case: Path, tmp_path: Path) -> None:
        def break_line_9(lines: bytes) -> bytes:
            rows = lines.splitlines(True)
            rows[8] = rows[8][:-20] + b"\n"
            return b"".join(rows)

        done = run("replay", damaged(case, tmp_path / "bad", lines=break_line_9))
        assert done.code == 2
        assert f"{tmp_path}/bad/series.jsonl.gz: line 9: " in done.sentence()

    def test_a_packed_file_cut_short(self, run: Run, case: Path, tmp_path: Path) -> None:
        folder = damaged(case, tmp_path / "cut", lines=bytes)
        file = folder / "series.jsonl.gz"
        file.write_bytes(file.read_bytes()[:-3000])
        done = run("replay", folder)
        assert done.code == 2
        assert "series.jsonl.gz: the compressed file ends too early after line" in done.sentence()

    def test_a_description_that_is_no_yaml(self, run: Run, case: Path, tmp_path: Path) -> None:
        folder = damaged(case, tmp_path / "odd", lines=bytes)
        (folder / "incident.yaml").write_text("id: small\nstart: [1\n")
        done = run("replay", folder)
        assert done.code == 2
        assert f"{folder}/incident.yaml: line 3: " in done.sentence()

    @pytest.mark.parametrize(("key", "value"), [("end", 1e15), ("step_s", 0.0001)])
    def test_a_description_that_asks_for_too_much(
        self, run: Run, case: Path, tmp_path: Path, key: str, value: float
    ) -> None:
        labelled(case, tmp_path / "long", healthy=True, **{key: value})
        done = run("replay", "long")
        assert (done.code, done.out) == (2, "")
        assert f"long/incident.yaml: {key} " in done.sentence()
        done = run("evaluate", "long")
        assert done.code == 3
        assert f"incident.yaml: {key} " in done.out

    def test_a_result_that_cannot_be_written_is_shown_first(self, run: Run, case: Path) -> None:
        done = run("replay", case, "--json", "/no/such/folder/out.jsonl")
        assert done.code == 2
        assert done.sentence() == "/no/such/folder/out.jsonl: cannot be written: No such file or directory"
        assert FAULTY in done.out

    def test_the_rules_of_the_settings_hold_for_recordings_too(
        self, run: Run, case: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "settings.yaml").write_text(json.dumps({"pools": {"muted": [FAULTY]}}))
        done = run("replay", case, "--config", "settings.yaml")
        assert (done.code, done.err) == (0, "")
        assert "no suspect in 90 evaluations" in done.out


def labelled(case: Path, folder: Path, **labels: object) -> Path:
    """Copy a recording and change its description."""
    shutil.copytree(case, folder)
    description = YAML(typ="safe").load(folder / "incident.yaml")
    (folder / "incident.yaml").write_text(json.dumps(description | labels))
    return folder


class TestEvaluate:
    FAULT: Mapping[str, object] = {"node": FAULTY, "onset": START + STEP * ONSET, "end": START + STEP * 90}

    def test_a_labelled_recording_in_other_processes(self, run: Run, case: Path, tmp_path: Path) -> None:
        labelled(case, tmp_path / "cases" / "hot", id="hot", healthy=False, faults=[self.FAULT])
        shutil.copytree(case, tmp_path / "cases" / "unlabelled")
        (tmp_path / "cases" / "unlabelled" / "incident.yaml").unlink()
        labelled(case, tmp_path / "cases" / "too", id="too", healthy=False, faults=[self.FAULT])
        done = run("evaluate", "cases", "--jobs", 2, "--html", "report.html")
        assert (done.code, done.err) == (2, "")
        assert "1.00 [0.34, 1.00] (2 of 2)" in done.out
        assert "has samples but no incident.yaml, so no labels" in done.out
        assert done.out.endswith("2 cases evaluated, 1 left out\n")
        assert "<svg" in (tmp_path / "report.html").read_text()

    @pytest.mark.parametrize("jobs", [0, 1, 2])
    def test_nothing_to_evaluate(self, run: Run, tmp_path: Path, jobs: int) -> None:
        (tmp_path / "empty").mkdir()
        done = run("evaluate", "empty", "absent", "--jobs", jobs)
        assert (done.code, done.err) == (3, "")
        assert "holds no case" in done.out
        assert "no such folder" in done.out

    def test_silence_is_not_taken_for_health(self, run: Run, case: Path, tmp_path: Path) -> None:
        damaged(case, tmp_path / "silent", lines=lambda _: b"")
        labelled(case, tmp_path / "elsewhen", id="elsewhen", start=START + 10**8, end=START + 10**8 + 3600)
        done = run("evaluate", "silent", "elsewhen")
        assert done.code == 3
        assert done.out.count("no compared metric of any node has a sample between start and end") == 2

    def test_tables_in_a_pipe_are_wide_enough_to_search(
        self, run: Run, case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("COLUMNS")
        fault = {**self.FAULT, "node": "gpu003"}
        labelled(case, tmp_path / "hot", id="rack-12-of-2026-01", healthy=False, faults=[fault])
        row = next(line for line in run("evaluate", "hot").out.splitlines() if "gpu003" in line)
        assert "rack-12-of-2026-01" in row
        assert "its node was not flagged" in row

    def test_the_rules_of_the_settings_hold(self, run: Run, case: Path, tmp_path: Path) -> None:
        labelled(case, tmp_path / "hot", healthy=False, faults=[self.FAULT])
        (tmp_path / "settings.yaml").write_text(json.dumps({"pools": {"muted": [FAULTY]}}))
        assert run("evaluate", "hot", "--require-recall", 1).code == 0
        done = run("evaluate", "hot", "--require-recall", 1, "--config", "settings.yaml")
        assert done.code == 1
        assert "recall is 0.000 (0 of 1), required 1" in done.out


class TestWrongInput:
    CATALOG = "metrics:\n- name: node_load1\n  exporter: node\n  kind: gouge\n"

    @pytest.mark.parametrize("command", ["replay", "catalog check"])
    def test_a_wrong_catalog(self, run: Run, case: Path, tmp_path: Path, command: str) -> None:
        (tmp_path / "wrong.yaml").write_text(self.CATALOG)
        where = [case] if command == "replay" else ["--case", case]
        done = run(*command.split(), *where, "--catalog", "wrong.yaml")
        assert done.code == 2
        assert "wrong.yaml, line " in done.sentence()
        assert "node_load1" in done.sentence()
        done = run(*command.split(), *where, "--catalog", "none.yaml")
        assert done.code == 2
        assert done.sentence() == "none.yaml: cannot be read: No such file or directory"

    @pytest.mark.parametrize("command", ["check-config", "serve", "catalog check", "replay x", "record o"])
    def test_wrong_settings(self, run: Run, tmp_path: Path, command: str) -> None:
        (tmp_path / "wrong.yaml").write_text("http:\n  port: 8080\n  prot: 1\n")
        times = ["--start", 0, "--end", 1] if command.startswith("record") else []
        done = run(*command.split(), *times, "--config", "wrong.yaml")
        assert done.code == 2
        assert "wrong.yaml, line 3: http.prot" in done.sentence()
        done = run(*command.split(), *times, "--config", "none.yaml")
        assert done.code == 2
        assert done.sentence() == "none.yaml: cannot be read: No such file or directory"

    def test_a_wrong_variable(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ODDNODE_HTTP__PROT", "1")
        done = run("check-config")
        assert done.code == 2
        assert "ODDNODE_HTTP__PROT" in done.sentence()

    def test_a_right_configuration_is_shown_without_secrets(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ODDNODE_SOURCE__URL", "http://user:hush@db.example/vm")
        monkeypatch.setenv("ODDNODE_SOURCE__HEADERS", '{"X-Key": "hush-too"}')
        done = run("check-config")
        assert (done.code, done.err) == (0, "")
        assert "db.example/vm" in done.out
        assert "305 metrics, sha256" in done.out
        assert "hush" not in done.out

    RECORD = ("record", "out", "--start", "1000", "--end", "2000", "--url")

    @pytest.mark.parametrize(
        "args", [RECORD, ("catalog", "check", "--url"), ("catalog", "discover", "--url")], ids=lambda a: a[0]
    )
    def test_a_database_that_is_not_there(self, run: Run, tmp_path: Path, args: tuple[str, ...]) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        done = run(*args, url)
        assert done.code == 2
        assert done.sentence().startswith(url)
        assert "no connection" in done.sentence()
        assert not list(tmp_path.iterdir()), "nothing half-written"

    def test_a_database_that_refuses(self, run: Run, tmp_path: Path) -> None:
        with ScriptedServer([reply(401, b"who are you")]) as server:
            done = run(*self.RECORD, server.url)
        assert done.code == 2
        assert "401" in done.sentence()
        assert not list(tmp_path.iterdir())

    def test_no_database_at_all(self, run: Run) -> None:
        for args in (self.RECORD[:-1], ("serve",), ("catalog", "check")):
            done = run(*args)
            assert done.code == 2
            assert "source.url (or ODDNODE_SOURCE__URL) is missing" in done.sentence()
        done = run(*self.RECORD, "ftp://db")
        assert done.code == 2
        assert done.sentence() == "--url 'ftp://db' must begin with http:// or https://"

    @pytest.mark.parametrize(
        ("start", "end", "why"),
        [
            ("10", "9", "--start 10 is not before --end 9"),
            ("soon", "9", "--start 'soon' is neither epoch seconds nor ISO 8601"),
            ("0", "2026-13-01", "--end '2026-13-01' is neither epoch seconds nor ISO 8601"),
            ("0", "inf", "--end 'inf' is no time between the years 1970 and 9999"),
            ("nan", "9", "--start 'nan' is no time between the years 1970 and 9999"),
            ("0", "1e300", "--end '1e300' is no time between the years 1970 and 9999"),
        ],
    )
    def test_times_to_record(self, run: Run, start: str, end: str, why: str) -> None:
        done = run("record", "out", "--start", start, "--end", end, "--url", "http://127.0.0.1:1")
        assert done.code == 2
        assert done.sentence() == why

    def test_a_recording_is_not_overwritten_unasked(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        done = run(*self.RECORD, "http://127.0.0.1:1")
        assert done.code == 2
        assert "recording out already exists" in done.sentence()

    def test_a_draft_that_cannot_be_written(self, run: Run, case: Path) -> None:
        done = run("catalog", "discover", "--case", case, "--out", "/no/such/folder/draft.yaml")
        assert done.code == 2
        assert done.sentence() == "/no/such/folder/draft.yaml: cannot be written: No such file or directory"

    @pytest.mark.parametrize("command", ["check", "discover"])
    def test_a_case_to_look_at_that_is_not_there(self, run: Run, command: str) -> None:
        done = run("catalog", command, "--case", "nowhere")
        assert done.code == 2
        assert done.sentence() == "nowhere: no such recording"

    def test_a_case_to_play_that_is_not_there(self, run: Run) -> None:
        done = run("demo", "nowhere")
        assert done.code == 2
        assert "nowhere" in done.sentence()

    @pytest.mark.parametrize(
        ("at", "told"),
        [("soon", "--at 'soon' is neither"), ("+99h", "recording.at: "), ("1", "lies outside of")],
    )
    def test_a_time_to_begin_at_that_is_not_there(self, run: Run, case: Path, at: str, told: str) -> None:
        done = run("demo", case, "--port", "0", "--at", at)
        assert done.code == 2
        assert told in done.sentence()


class TestCatalog:
    def test_check_of_a_recording(self, run: Run, case: Path) -> None:
        done = run("catalog", "check", "--case", case, "--json")
        assert (done.code, done.err) == (0, "")
        assert "DCGM_FI_DEV_GPU_TEMP" in json.dumps(json.loads(done.out))
        done = run("catalog", "check", "--case", case)
        assert (done.code, done.err) == (0, "")
        assert "Hostname" in done.out

    def test_a_draft_of_a_recording_is_a_catalog_for_it(self, run: Run, case: Path) -> None:
        done = run("catalog", "discover", "--case", case, "--out", "draft.yaml")
        assert (done.code, done.err) == (0, "")
        done = run("catalog", "check", "--case", case, "--catalog", "draft.yaml", "--json")
        assert (done.code, done.err) == (0, "")
        entries = json.loads(done.out)["entries"]
        assert {entry["fit"] for entry in entries} == {"good"}
        assert len(entries) == 3

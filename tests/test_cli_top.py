"""`oddnode top`: a real service in a real terminal, across a restart; bounded, without control characters."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from api.app import create_app
from detector import cli_top
from detector.cli import app
from detector.cli_top import End, follow
from detector.control.desk import Desk
from detector.errors import OddnodeError
from detector.outcome import Status, Verdict
from tests import servers
from tests.test_api import FakeView, view
from tests.test_service_serve import FAULTY, ROOT, Start, start, wait_for, write_recording
from tests.test_store import T0, incident

__all__ = ["start", "view"]  # fixtures

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\].*?\x07|[=>])")


@contextmanager
def served(view: FakeView, desk: Desk | None = None) -> Iterator[str]:
    with servers.listening(create_app(view, desk=desk)) as url:
        yield url


def printed(*words: str, code: int) -> list[str]:
    result = CliRunner().invoke(app, ["top", *words])
    assert result.exit_code == code, f"{result.output} {result.exception}"
    assert result.output.isascii() or "…" in result.output
    return result.output.splitlines()


def test_a_pipe_gets_one_plain_table(view: FakeView) -> None:
    with served(view) as url:
        lines = printed("--url", url, code=1)
    assert re.match(r"2026-01-01 .* UTC, data 12 s old, partial, 4 nodes, 2 suspect, 1 with first", lines[0])
    assert lines[1] == "undetermined: 1 no data"
    assert re.match(r"group event in busy since .* UTC: 2 of 3 nodes moved together", lines[2])
    assert lines[3].split() == ["node", "state", "part", "since", "(UTC)", "score", "likely", "why"]
    assert [line.split()[:2] for line in lines[4:]] == [
        ["gpu068", "suspect"], ["gone", "suspect"], ["gpu002", "pending"]
    ]  # fmt: skip
    assert "\x1b" not in "".join(lines)


def test_rows_are_bounded_and_those_left_out_are_counted(view: FakeView) -> None:
    with served(view) as url:
        lines = printed("--url", url, "--once", "--limit", "1", code=1)
    assert "2 suspect" in lines[0]
    assert lines[-2].split()[:2] == ["gpu068", "suspect"]
    assert lines[-1].rstrip() == "and 2 more"


def test_what_nobody_is_suspect_of(view: FakeView) -> None:
    assert view.now_latest is not None
    calm = replace(view.now_latest.outcome, verdicts=(Verdict("a", "p", Status.CLEAR, 0.1),), undetermined={})
    view.now_latest = replace(view.now_latest, outcome=calm, suspects=())
    with served(view) as url:
        assert printed("--url", url, code=0)[-1] == "no suspect"
        view.now_latest = None
        assert printed("--url", url, code=3) == ["nothing has been evaluated yet"]


def written_to(out: int, url: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from detector.cli import main; main()", "top", "--url", url],
            stdout=out, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True, check=False, timeout=120,
        )  # fmt: skip
    finally:
        os.close(out)
    return done.returncode, done.stderr


def test_an_output_that_is_full_or_that_nobody_reads(view: FakeView) -> None:
    assert view.now_latest is not None
    view.now_latest = replace(view.now_latest, suspects=())
    with served(view) as url:
        reader, writer = os.pipe()
        os.close(reader)
        assert written_to(writer, url) == (0, "")
        code, told = written_to(os.open("/dev/full", os.O_WRONLY), url)
    assert (code, told) == (2, "oddnode: standard output: cannot be written: No space left on device\n")


def test_times_that_are_in_no_calendar_are_numbers(view: FakeView) -> None:
    assert view.now_latest is not None
    item = incident("gpu068", active_at=1e17)
    view.now_latest = replace(view.now_latest, suspects=(item,))
    with served(view) as url:
        seen = cli_top.look(url, None)
        assert seen is not None
        assert re.search(r"gpu068 +suspect +gpu 3 +1e\+17 ", printed("--url", url, code=1)[4])
    console = Console(width=120, height=24, force_terminal=True, record=True, file=io.StringIO())
    console.print(cli_top.page("http://u", seen, "", 100, console.size))
    assert re.search(r"suspect +gpu 3 +1e\+17 ", console.export_text(styles=False))


def test_names_cannot_steer_the_terminal_nor_fill_it(view: FakeView) -> None:
    assert view.now_latest is not None
    hostile = replace(
        incident("n\x1b[2J\u202e[bold]x", active_at=T0), reason="r" * 5000 + "\x07", part="\x9b31m\nGPU"
    )
    view.now_latest = replace(view.now_latest, suspects=(hostile,) * 90)
    with served(view) as url:
        seen = cli_top.look(url, None)
        assert seen is not None
        plain = printed("--url", url, "--limit", "100", code=1)
    assert "n [2J [bold]x" in plain[4]
    assert "31m GPU" in plain[4]
    assert max(map(len, plain)) < 1000
    console = Console(width=100, height=24, force_terminal=True, record=True, file=io.StringIO())
    console.print(cli_top.page("http://u", seen, "no \x1b answer", 100, console.size))
    shown = console.export_text(styles=False).splitlines()
    assert len(shown) <= 24
    assert all(len(line) <= 100 for line in shown)
    assert "n [2J [bold]x" in "\n".join(shown)
    assert re.match(r"and \d\d more", shown[-1].strip())
    assert not set("\x1b\x07\u202e\x9b") & set("".join(shown))


@pytest.mark.parametrize("width", [80, 120])
def test_who_since_when_and_how_strong_fit_a_narrow_terminal(view: FakeView, width: int) -> None:
    assert view.now_latest is not None
    long = replace(
        incident("gpu068-with-a-very-long-name.example.org", active_at=T0), part="10.2.0.10:/data/x"
    )
    view.now_latest = replace(view.now_latest, suspects=(long, *view.now_latest.suspects))
    with served(view) as url:
        seen = cli_top.look(url, None)
    console = Console(width=width, height=24, force_terminal=True, record=True, file=io.StringIO())
    console.print(cli_top.page("http://u", seen, "", 100, console.size))
    shown = console.export_text(styles=False).splitlines()
    assert all(len(line) <= width for line in shown)
    row = next(line for line in shown if line.startswith("gpu068 "))
    assert re.search(r"suspect +gpu 3 +01-01 00:00 +2\.4", row)
    assert ("hot" in row) is (width == 120)


@pytest.mark.parametrize("body", [b"{}", b"[]", b"\xff", b'{"suspects": 3}'])
def test_what_is_no_service(body: bytes) -> None:
    async def other(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": body})  # type: ignore[operator]

    with servers.listening(other) as url, pytest.raises(OddnodeError, match="not that of an Oddnode service"):
        cli_top.look(url, None)


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.main, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from detector.cli import main; main()", "top", *words],
            stdin=end, stdout=end, stderr=end, cwd=ROOT, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(end)
        self.raw = ""

    def text(self) -> str:
        while select.select([self.main], [], [], 0)[0]:
            try:
                self.raw += os.read(self.main, 65536).decode("utf-8", "replace")
            except OSError:  # it has ended
                break
        return ESCAPES.sub("", self.raw)

    def forget(self) -> None:
        self.text()
        self.raw = ""

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self.main)


@pytest.mark.slow
def test_a_terminal_follows_a_service_across_its_restart(tmp_path: Path, start: Start) -> None:
    recording = {"recording": {"path": str(write_recording(tmp_path / "small")), "speed": 900}}
    service = start(recording)
    port = service.port()
    wait_for(lambda: service.get("/v1/suspects")[0] == 200, what=service.text)
    terminal = Terminal("--url", f"http://127.0.0.1:{port}", "--every", "1")
    try:
        wait_for(lambda: FAULTY in terminal.text(), what=terminal.text)
        assert "\x1b[?1049h" in terminal.raw, "a screen of its own"
        assert service.end() == 0
        wait_for(lambda: "NO ANSWER for" in terminal.text(), what=terminal.text)
        assert FAULTY in terminal.text().rpartition("oddnode top")[2], "the last answer stays"
        again = start({**recording, "http": {"port": port}})
        again.port()
        terminal.forget()
        wait_for(lambda: FAULTY in terminal.text() and "NO ANSWER" not in terminal.text()
                 .rpartition("oddnode top")[2], what=terminal.text)  # fmt: skip
        terminal.process.send_signal(signal.SIGINT)
        # somebody must read: a terminal that is full holds up who writes
        wait_for(lambda: terminal.text() and terminal.process.poll() is not None, what=terminal.text)
        assert terminal.process.returncode == 0
        terminal.text()
        assert "\x1b[?1049l" in terminal.raw, "the terminal is as it was"
    finally:
        terminal.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_is_given_back_whatever_ends_it(view: FakeView, number: signal.Signals) -> None:
    with served(view) as url:
        terminal = Terminal("--url", url, "--every", "3600")
        try:
            wait_for(lambda: "4 nodes" in terminal.text(), what=terminal.text)
            assert "\x1b[?1049h" in terminal.raw
            terminal.process.send_signal(number)
            wait_for(lambda: terminal.text() and terminal.process.poll() is not None, what=terminal.text)
            assert terminal.process.returncode == 128 + number
            terminal.text()
            assert "\x1b[?1049l" in terminal.raw
            assert "\x1b[?25h" in terminal.raw.rpartition("\x1b[?25l")[2], "the cursor is seen again"
        finally:
            terminal.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_within_a_finaliser_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    end, looks = End(), []

    class Finalised:
        def __del__(self) -> None:
            end.asked(signal.SIGINT, None)

    def look(base: str, token_file: Path | None) -> None:
        looks.append(base)
        assert len(looks) < 3, "it goes on"
        Finalised()

    monkeypatch.setattr("detector.cli_top.look", look)
    follow(Console(file=io.StringIO(), force_terminal=True), "http://service", None, 0.01, 30, None, end)
    assert (end.status, len(looks)) == (0, 1)


def test_no_answer_at_first_is_an_error() -> None:
    result = CliRunner().invoke(app, ["top", "--url", "http://127.0.0.1:9"])
    assert isinstance(result.exception, OddnodeError)
    assert "no answer" in str(result.exception)


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, "oddnode 0.1.0\n")

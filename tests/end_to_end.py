"""The real command against real servers that hold what the simulated cluster sends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from detector.outcome import Outcome
from detector.store import Store
from simulator.feed import Feeder
from tests.servers import wait_until

COMMAND = Path(sys.executable).parent / "oddnode"
UP_TIMEOUT_S = 120.0


def now_s() -> float:
    """Return the time that live samples carry."""
    return time.time_ns() / 1e9


def on_grid(at: float, step_s: float) -> float:
    """Return the newest multiple of the step that is not after `at`."""
    return at // step_s * step_s


def environment() -> dict[str, str]:
    """Return an environment without settings from outside."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ODDNODE_")}


def command(*args: object, timeout_s: float = 200.0) -> subprocess.CompletedProcess[str]:
    """Run the installed command to its end."""
    return subprocess.run(
        [COMMAND, *map(str, args)], capture_output=True, text=True, timeout=timeout_s, check=False,
        env=environment(),
    )  # fmt: skip


class Serving:
    """A running ``oddnode serve``.

    Parameters
    ----------
    folder
        Where settings, store and log lie; a later start in the same folder goes on with the store.
    settings
        Sections of the settings file.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        file = self._file = folder / "settings.yaml"
        self.put(settings)
        self._log = folder / f"serve-{time.monotonic_ns()}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "--config", file], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment(), cwd=folder,
            )  # fmt: skip
        self._port = 0

    def put(self, settings: Mapping[str, Any]) -> None:
        """Write the settings file, as a whole at once."""
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({"http": {"port": 0}, "store": {"path": "oddnode.db"}} | dict(settings)))
        part.replace(self._file)

    def log(self) -> str:
        """Return what it logged so far."""
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, Any]:
        """Ask and return the status and the body, decoded when it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self._listens_on(), timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
            is_json = "json" in answer.headers["content-type"]
            return answer.status, json.loads(body) if is_json else body
        finally:
            connection.close()

    def wait_for(self, path: str, holds: Any, what: str, timeout_s: float = UP_TIMEOUT_S) -> Any:
        """Ask until the body of a 200 answer satisfies `holds`, and return it."""
        found: list[Any] = []

        def look() -> bool:
            assert self.process.poll() is None, self.log()
            status, body = self.get(path)
            if status == 200 and holds(body):
                found.append(body)
            return bool(found)

        try:
            wait_until(look, what, timeout_s)
        except BaseException:
            print(self.log()[-6000:])
            raise
        return found[0]

    def metric(self, line: str) -> float | None:
        """Return the value of one of its own metrics, labels as written; None when there is none."""
        for row in self.get("/metrics")[1].splitlines():
            if row.rpartition(" ")[0] == line:
                return float(row.rpartition(" ")[2])
        return None

    def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """End it hard."""
        self.process.kill()
        self.process.wait(30)

    def _listens_on(self) -> int:
        def look() -> bool:
            assert self.process.poll() is None, self.log()
            for line in self.log().splitlines():
                if "listening url=" in line:
                    self._port = int(line.split("url=")[1].split()[0].rsplit(":", 1)[1])
            return self._port > 0

        if not self._port:
            wait_until(look, "the service listens", UP_TIMEOUT_S)
        return self._port


def seed_store(folder: Path, last_evaluation: float) -> None:
    """Make a store as a service leaves it that evaluated up to this time and suspected nobody.

    A service that finds it judges every evaluation time after that, not the newest alone.
    """
    store = Store(folder / "oddnode.db")
    store.save(Outcome(last_evaluation), None)
    store.close()


@contextlib.contextmanager
def fed_live(feeder: Feeder, first: float) -> Iterator[None]:
    """Import every scrape when its time has come; scrapes that a database does not take are lost."""
    stopped = threading.Event()
    step = feeder.cluster.config.step_s

    def feed() -> None:
        at = first
        while not stopped.wait(max(0.0, at - now_s())):
            with contextlib.suppress(OSError):
                feeder.push(at)
            at += step

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(30)

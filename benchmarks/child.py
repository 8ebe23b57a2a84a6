"""A process of its own per contestant, so that memory and imports of one are no burden of the other.

The child reads one JSON object per line from standard input, does what it says, and prints one back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

Told = Mapping[str, Any]


class Child:
    """A module of this folder as a process.

    Parameters
    ----------
    module
        Its name.
    args
        Its command line.
    """

    def __init__(self, module: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise OSError("no pipes to the benchmark's child process")
        self._to, self._from = self._process.stdin, self._process.stdout

    def ask(self, **what: Any) -> dict[str, Any]:
        """Send one command and return its answer.

        Raises
        ------
        RuntimeError
            When the child ended instead of answering.
        """
        self._to.write(json.dumps(what) + "\n")
        self._to.flush()
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the benchmark's child process ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._to.close()
        self._from.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def answer_all(do: Callable[[Told], Told]) -> None:
    """Answer every command on standard input."""
    for line in sys.stdin:
        print(json.dumps(do(json.loads(line))), flush=True)


def peak_rss_mib() -> float:
    """Return the largest resident memory that this process ever had.

    Not `resource.getrusage`: its figure survives exec, so a child would show its parent's.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status tells no peak of resident memory")

"""Files that commands write."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from detector.errors import OddnodeError


def write_text(path: Path, text: str) -> None:
    """Write a file, or print when the path is ``-``; who reads no further gets no more.

    Raises
    ------
    OddnodeError
        When it cannot be written.
    """
    if str(path) == "-":
        _print(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OddnodeError(f"{path}: cannot be written: {error.strerror}") from error


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # what is left in the buffer would fail once more at the end of the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OddnodeError(f"standard output: cannot be written: {error.strerror}") from error

"""Files that commands write."""

from __future__ import annotations

import sys
from pathlib import Path

from detector.errors import OddnodeError


def write_text(path: Path, text: str) -> None:
    """Write a file, or print when the path is ``-``.

    Raises
    ------
    OddnodeError
        When it cannot be written.
    """
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OddnodeError(f"{path}: cannot be written: {error.strerror}") from error

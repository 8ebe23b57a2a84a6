"""Files by their content: times of change mean nothing where a folder is swapped by a symbolic link."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from pathlib import Path


def contents(paths: Iterable[Path]) -> dict[Path, str]:
    """Return a digest of what each path leads to now; what cannot be read has the reason instead."""
    return {path: _digest(path) for path in paths}


def _digest(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "not a file"  # reading a pipe would wait
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"

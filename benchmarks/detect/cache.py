"""What was computed before, by content: the same samples through the same code are not scored twice.

The key of a result is the digest of everything it depends on, sources included, so that a stale result
can't be found. The folder may be removed at any time. It holds pickles: keep it to yourself.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FOLDER = ROOT / "benchmarks" / ".cache"

RIVALS = (
    "benchmarks/detect/rivals*.py",
    "benchmarks/detect/matrix.py",
    "detector/evaluation/model.py",
    "detector/evaluation/parts.py",
    "detector/evaluation/scoring.py",
    "detector/evaluation/spans.py",
    "detector/source/incident_file.py",
)
"""Sources on which a rival's score depends beside the case."""

SIMULATION = ("simulator/**/*.py", "benchmarks/detect/incidents*.py", "benchmarks/detect/witness.py")
"""Sources on which the grades of a case's faults depend."""

EVERYTHING = (
    *SIMULATION,
    "benchmarks/detect/splits.py",
    "benchmarks/detect/simulated.py",
    "benchmarks/detect/seen.py",
    *RIVALS,
    "detector/**/*.py",
    "grouping/**/*.py",
    "metric_catalog.yaml",
)
"""Sources on which the result of a case depends."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of results by key; can be sent to other processes.

    Parameters
    ----------
    folder
        Made when missing; None remembers nothing.
    """

    folder: Path | None = None

    def get(self, key: str, make: Callable[[], T]) -> T:
        """Return the result of a key, made when it is not there."""
        found = self.find(key)
        if found is not None:
            result: T = found
            return result
        made = make()
        self.keep(key, made)
        return made

    def find(self, key: str) -> Any:
        """Return the result of a key, None when there is none or it can't be read."""
        if self.folder is None:
            return None
        try:
            return pickle.loads(self._file(self.folder, key).read_bytes())
        except (
            OSError,
            pickle.UnpicklingError,
            EOFError,
            AttributeError,
            ImportError,
            TypeError,
            ValueError,
        ):
            return None

    def keep(self, key: str, result: object) -> None:
        """Store a result that is not None; whole or not at all."""
        if self.folder is None:
            return
        file = self._file(self.folder, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{id(result)}.part")
        part.write_bytes(pickle.dumps(result, protocol=5))
        part.replace(file)

    @staticmethod
    def _file(folder: Path, key: str) -> Path:
        return folder / key[:2] / f"{key[2:]}.pickle"


def digest(*content: object) -> str:
    """Return the digest of plain values, arrays and dataclasses of them; order of sets does not matter.

    Raises
    ------
    TypeError
        When something else is in them.
    """
    found = hashlib.blake2b(digest_size=20)
    for item in content:
        _feed(found, item)
    return found.hexdigest()


def _feed(out: Any, item: object) -> None:
    out.update(f"<{type(item).__name__}>".encode())
    if item is None or isinstance(item, str | int | float | bool | Path | np.generic):
        out.update(repr(str(item)).encode())
    elif isinstance(item, bytes):
        out.update(len(item).to_bytes(8, "little") + item)
    elif isinstance(item, np.ndarray):
        out.update(f"{item.dtype} {item.shape}".encode())
        out.update(np.ascontiguousarray(item).data)
    elif is_dataclass(item):
        for field in fields(item):
            _feed(out, field.name)
            _feed(out, getattr(item, field.name))
    elif isinstance(item, Mapping):
        _feed(out, sorted((digest(key), digest(value)) for key, value in item.items()))
    elif isinstance(item, Set):
        _feed(out, sorted(digest(one) for one in item))
    elif isinstance(item, Iterable):
        for one in item:
            _feed(out, one)
        out.update(b"</>")
    else:
        raise TypeError(f"no digest of {type(item).__name__}")


@lru_cache(maxsize=16)
def sources(patterns: tuple[str, ...], root: Path = ROOT) -> str:
    """Return the digest of source files, of Python and of NumPy."""
    files = sorted({file for pattern in patterns for file in root.glob(pattern) if file.is_file()})
    content = [(file.relative_to(root).as_posix(), file.read_bytes()) for file in files]
    return digest(content, sys.version, np.__version__)

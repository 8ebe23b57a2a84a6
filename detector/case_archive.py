"""A recorded case as one file: a tar of its few files, read without trust."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from detector.errors import OddnodeError

STORY_NAME = "story.json"
MEMBERS = frozenset({"incident.yaml", "series.jsonl.gz", STORY_NAME})
"""Names that a case may hold; nothing else is packed or unpacked."""

MAX_NAME = 80
_BLOCK = 512
_PIECE = 1 << 18


class ArchiveError(OddnodeError):
    """What is no archive of a case."""


def case_name(incident_id: str) -> str:
    """Return the name of an incident's case: letters, digits, dots, dashes and underscores only."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", incident_id)[:MAX_NAME].strip(".-") or "incident"


def packed_size(folder: Path) -> int:
    """Return the bytes of the archive of a folder."""
    sizes = [path.stat().st_size for path in _members(folder)]
    return sum(_BLOCK + -(-size // _BLOCK) * _BLOCK for size in sizes) + 2 * _BLOCK


def packed(folder: Path, name: str) -> Iterator[bytes]:
    """Yield the archive of a folder, piece by piece.

    Parameters
    ----------
    folder
        Holds the files of one case.
    name
        Of the folder inside the archive, as of `case_name`.
    """
    for path in _members(folder):
        size = path.stat().st_size
        head = tarfile.TarInfo(f"{name}/{path.name}")
        head.size, head.mode = size, 0o644
        yield head.tobuf(tarfile.USTAR_FORMAT)
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
        yield bytes(-size % _BLOCK)
    yield bytes(2 * _BLOCK)


def unpack(file: Path, folder: Path, max_bytes: int) -> None:
    """Write the files of an archive into a folder that exists; names inside it never become paths.

    Raises
    ------
    ArchiveError
        When it is none, holds anything else, or more than `max_bytes`.
    """
    left = max_bytes
    seen: set[str] = set()
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if not member.isreg() or name not in MEMBERS or name in seen:
                    raise ArchiveError(f"{file.name}: holds {member.name[:80]!r}, which is no file of a case")
                seen.add(name)
                left -= member.size
                if left < 0:
                    raise ArchiveError(f"{file.name}: holds more than {max_bytes} bytes")
                _write(archive, member, folder / name)
    except tarfile.TarError as error:
        raise ArchiveError(f"{file.name}: is no archive of a case: {error}") from None
    if not seen >= MEMBERS - {STORY_NAME}:
        raise ArchiveError(f"{file.name}: is no archive of a case: it lacks its series or its description")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    packed_file = archive.extractfile(member)
    if packed_file is None:
        raise ArchiveError(f"{member.name[:80]!r} cannot be read")
    with packed_file, path.open("xb") as out:
        n_written = 0
        while piece := packed_file.read(_PIECE):
            out.write(piece)
            n_written += len(piece)
    if n_written != member.size:
        raise ArchiveError(f"{member.name[:80]!r} ends early")


def _members(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name in MEMBERS]

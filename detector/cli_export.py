"""`oddnode export`: an incident of a running service as a folder that can be replayed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from detector.case_archive import ArchiveError, case_name, unpack
from detector.cli_ask import SERVICE, TokenFileOption, UrlOption, download, message_of
from detector.cli_control import ByOption, NoteOption, in_path, parsed, seconds_of, whoever
from detector.errors import OddnodeError
from detector.plain_text import printable
from detector.record import put_in_place

MAX_BYTES = 512 << 20
"""Of an archive, and of what is in it, whatever a service sends."""


class BadRangeError(OddnodeError):
    """A margin that a service does not take."""


def export(
    incident: Annotated[str, typer.Argument(help="Incident, such as gpu068@1767225240.")],
    to: Annotated[Path | None, typer.Option(help="Folder to make; else one named like the incident.")] = None,
    before: Annotated[str, typer.Option(help="Margin before the first sign: 30m, 2h.")] = "30m",
    after: Annotated[str, typer.Option(help="Margin after the end: 5m, 1h.")] = "5m",
    overwrite: Annotated[bool, typer.Option(help="Replace an existing folder.")] = False,
    note: NoteOption = "",
    by: ByOption = None,
    url: UrlOption = SERVICE,
    token_file: TokenFileOption = None,
) -> None:
    """Write an incident's telemetry and labels as a recorded incident, for replay and evaluate."""
    out = Path(case_name(incident)) if to is None else to
    sent = {
        "before_s": seconds_of(before, "--before"), "after_s": seconds_of(after, "--after"),
        "note": note, "by": whoever(by),
    }  # fmt: skip
    fetch(incident, out, sent, url=url, token_file=token_file, overwrite=overwrite)
    Console().print(printable(f"{out}: incident {incident}"), markup=False, highlight=False, soft_wrap=True)


def fetch(
    incident: str,
    out: Path,
    sent: dict[str, Any],
    *,
    url: str,
    token_file: Path | None,
    overwrite: bool = False,
) -> None:
    """Make a folder of an incident of a running service; it appears complete or not at all.

    Raises
    ------
    BadRangeError
        When the service does not take what is sent.
    OddnodeError
        When it refuses, sends something else, or the folder cannot be written.
    """
    if out.exists() and not overwrite:
        raise OddnodeError(f"{out} already exists; say --overwrite to replace it")
    address = f"{url.rstrip('/')}/v1/incidents/{in_path(incident)}/export"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise OddnodeError(f"{out}: cannot be written: {error.strerror}") from None
    try:
        archive, folder = work / "case.tar", work / "case"
        folder.mkdir()
        with archive.open("wb") as file:
            status, body = download(address, sent, file, max_bytes=MAX_BYTES, token_file=token_file)
        if status != 200:
            if status == 422:
                raise BadRangeError(f"{address}: answered {status}: {message_of(body)}")
            parsed(address, status, body)
            raise OddnodeError(f"{address}: answered {status}: {message_of(body)}")
        unpack(archive, folder, MAX_BYTES)
        put_in_place(folder, out)
    except ArchiveError as error:
        raise OddnodeError(f"{address}: the answer is not that of an Oddnode service: {error}") from None
    except OSError as error:
        raise OddnodeError(f"{out}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)

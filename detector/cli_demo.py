"""`oddnode demo`: the whole service on a recorded incident that is played as if it were live."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from detector.app import ServeHooks
from detector.app import serve as run_service
from detector.errors import SettingsError
from detector.outcome import Outcome, Status
from detector.plain_text import recorded_moment
from detector.settings import HttpSettings, LogSettings, RecordingSettings, Settings, StoreSettings
from detector.source.incident_file import load_recording

DEFAULT_CASE = Path(__file__).resolve().parent.parent / "replay_data" / "gpu068-nvlink"


class Announcer:
    """Prints where to look, and who it is once a suspect is named.

    Parameters
    ----------
    console
        Where to print.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._url = ""
        self._named: set[str] = set()

    def started(self, url: str) -> None:
        """Print where to look."""
        self._url = url
        self._say(f"Oddnode answers on {url}")
        self._say(f"  console    {url}/ in a browser")
        self._say(f"  suspects   curl -s {url}/v1/suspects")
        self._say(f"  all nodes  curl -s {url}/v1/nodes")
        self._say(f"  API        {url}/openapi.json")
        self._say("Playing the recording; Ctrl-C ends.")

    def published(self, outcome: Outcome) -> None:
        """Print each suspect once, with its strongest evidence."""
        for verdict in outcome.verdicts:
            if verdict.status is not Status.SUSPECT or verdict.node in self._named:
                continue
            self._named.add(verdict.node)
            part = f", {verdict.part}" if verdict.part else ""
            self._say(f"SUSPECT {verdict.node}{part} (score {verdict.score:.1f})")
            for item in verdict.evidence[:5]:
                where = f" [{item.part}]" if item.part else ""
                self._say(f"  {item.metric}{where}: {item.reason}")
            self._say(f"  more: {self._url}/nodes/{quote(verdict.node, safe='')}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def demo(
    case: Annotated[Path, typer.Argument(help="Folder of a recorded incident.")] = DEFAULT_CASE,
    speed: Annotated[float, typer.Option(min=0.1, help="Recorded seconds per second.")] = 60.0,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    at: Annotated[
        str | None,
        typer.Option(
            help="Begin to play here, all before it evaluated at once: RFC 3339, epoch seconds, or since the "
            "recording's start as in +12m or +1h30m."
        ),
    ] = None,
) -> None:
    """Run the service on a recorded incident, played as if it were live; the pages get a slider over time."""
    if not case.is_dir():
        raise SettingsError(f"{case}: no such recording; give the folder of one")
    begin = None if at is None else recorded_moment(at, load_recording(case).start)
    announcer = Announcer(Console())
    with tempfile.TemporaryDirectory(prefix="oddnode-demo-") as folder:
        settings = Settings(
            recording=RecordingSettings(path=case, speed=speed, at=begin),
            store=StoreSettings(path=Path(folder) / "oddnode.db"),
            http=HttpSettings(port=port),
            log=LogSettings(level="error"),
        )
        raise typer.Exit(run_service(settings, ServeHooks(announcer.started, announcer.published)))

"""`oddnode what-if`: which alarms other settings would have raised over recorded hours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from detector.cli_ask import SERVICE, TokenFileOption, ask, message_of, not_both, send
from detector.cli_catalog import CatalogOption, ConfigOption, OverlayOption
from detector.cli_files import write_text
from detector.errors import OddnodeError
from detector.plain_text import printable
from detector.settings import CatalogSettings, load_settings
from detector.what_if.knobs import KNOBS, advice, changed
from detector.what_if.model import Comparison
from detector.what_if.run import Job, run
from detector.what_if.text import lines

DIFFERS, UNJUDGED = 1, 3
POLL_S = 1.0


class _Run(msgspec.Struct):
    """What a service tells of a try; other keys are of no interest here."""

    number: int
    by: str
    start: float
    end: float
    changes: dict[str, float]
    state: str
    progress: float
    problem: str
    advice: list[str]
    comparison: Comparison | None

    def is_same(self, other: _Run) -> bool:
        """Tell whether both are one try; a service that was restarted counts from 1 again."""
        return (self.number, self.start, self.end, self.changes) == (
            other.number, other.start, other.end, other.changes,
        )  # fmt: skip


class _Answer(msgspec.Struct):
    run: _Run | None


def what_if(
    case: Annotated[
        Path | None, typer.Argument(help="Folder with a recording; without it a running service is asked.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting to try, as detection.z_threshold=8; repeatable."),
    ] = None,
    url: Annotated[str | None, typer.Option(help=f"Address of a service [default: {SERVICE}]")] = None,
    hours: Annotated[
        float, typer.Option(min=0.01, max=168, help="How many hours of the service's past.")
    ] = 1.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the comparison as JSON instead; - prints.")
    ] = None,
    catalog: CatalogOption = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
    use_pool: Annotated[bool, typer.Option(help="Take pool and spares from the recording.")] = False,
    token_file: TokenFileOption = None,
) -> None:
    """Compare the alarms of other settings with those of the settings in effect, before you save them.

    Exit code 0 when no alarm differs, 1 when one does, 3 when no node could be judged.
    """
    wanted = parsed(changes or [])
    not_both(case, url)
    if case is None:
        found, keep = of_service(url or SERVICE, wanted, hours, token_file)
    else:
        settings = load_settings(config)
        chosen = CatalogSettings(
            path=catalog or settings.catalog.path, overlays=tuple(overlay or settings.catalog.overlays)
        )
        settings = settings.model_copy(update={"catalog": chosen})
        other = changed(settings, wanted)
        keep = advice(wanted)
        with _bar() as advance:
            found = run(Job(settings, other, case=case, use_pool=use_pool), advance)
    if json_file is None:
        for line in lines(found, keep):
            Console().print(line, markup=False, highlight=False, soft_wrap=True)
    else:
        write_text(json_file, json.dumps(msgspec.to_builtins(found), allow_nan=False) + "\n")
    raise typer.Exit(UNJUDGED if not found.judged else DIFFERS if found.differs else 0)


def parsed(changes: Sequence[str]) -> dict[str, float]:
    """Return values by setting.

    Raises
    ------
    OddnodeError
        When there is none, or one is not of the form ``name=number``.
    """
    found: dict[str, float] = {}
    for text in changes:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise OddnodeError(f"--set {text!r} is not of the form detection.z_threshold=8") from None
    if not found:
        names = ", ".join(knob.name for knob in KNOBS)
        raise OddnodeError(f"give at least one setting to try: --set NAME=VALUE, with NAME one of {names}")
    return found


def of_service(
    url: str, changes: dict[str, float], hours: float, token_file: Path | None = None
) -> tuple[Comparison, Sequence[str]]:
    """Let a running service try settings on its last hours, and wait; Ctrl-C calls it off.

    Parameters
    ----------
    url
        Address of the service.
    changes, hours
        What to try.
    token_file
        File with a token of scope ``operate``.

    Returns
    -------
    tuple
        The comparison, and lines of a settings file.

    Raises
    ------
    OddnodeError
        When it is refused, fails, was called off, or another try has taken its place.
    """
    address = f"{url.rstrip('/')}/v1/what-if"
    sent: dict[str, Any] = {"changes": changes, "hours": hours}
    own = answer = _run_of(address, *send("POST", address, sent, token_file=token_file))
    try:
        with _bar() as advance:
            while answer.state == "running":
                time.sleep(POLL_S)
                answer = _run_of(address, *ask(address, token_file=token_file))
                if not answer.is_same(own):
                    raise OddnodeError(
                        f"{address}: another try, number {answer.number} of {printable(answer.by)}, has taken"
                        f" the place of this one, number {own.number}, whose result is lost: try again"
                    )
                advance(answer.progress)
    except KeyboardInterrupt:
        with suppress(OddnodeError):
            only = {"number": str(own.number)}
            send("DELETE", address, parameters=only, token_file=token_file)
        raise OddnodeError(f"{address}: called off") from None
    if answer.state != "done" or answer.comparison is None:
        raise OddnodeError(f"{address}: {answer.problem or answer.state}")
    return answer.comparison, answer.advice


def _run_of(address: str, status: int, body: bytes) -> _Run:
    if status not in (200, 202):
        told = message_of(body)
        told = told if told and "Not Found" not in told else "is it an Oddnode service of this version?"
        raise OddnodeError(f"{address}: answered {status}: {told}")
    try:
        found = msgspec.json.decode(body, type=_Answer).run
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OddnodeError(f"{address}: the answer is not that of an Oddnode service: {error}") from None
    if found is None:
        raise OddnodeError(f"{address}: the service was restarted and knows of no try")
    return found


@contextmanager
def _bar() -> Iterator[Callable[[float], None]]:
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("both settings", total=1.0)
        yield lambda share: bar.update(task, completed=share)

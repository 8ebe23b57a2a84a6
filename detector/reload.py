"""Reads settings and what they name again: at SIGHUP, and when the content of a file has changed.

A thread of its own reads and checks; what is good is taken over by the thread of the tick between two
ticks. What is bad changes nothing: it is told once and counted until a good one comes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from detector.app_parts import Judging
from detector.errors import OddnodeError
from detector.file_content import contents
from detector.settings import Settings, load_settings, settings_path
from detector.settings_change import files_of
from detector.telemetry_reload import ReloadTelemetry
from detector.tokens import Tokens
from grouping.catalog import CatalogError

log = logging.getLogger("oddnode.detector.reload")

SETTLE_S = 0.5
"""A file whose content still changes after this long is left for the next look."""

STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where settings came from.

    Parameters
    ----------
    path
        Settings file, None without one.
    read
        Its content, by digest, just before it was read.
    """

    path: Path | None
    read: Mapping[Path, str]

    @classmethod
    def of(cls, config: Path | None) -> Origin:
        """Look at the file that `load_settings` would read."""
        path = settings_path(config)
        return cls(path, {} if path is None else contents([path]))


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be taken over.

    Parameters
    ----------
    settings
        In effect once that is done.
    changed
        Names of settings that differ from those in effect.
    waiting
        Names of those that differ and need a restart.
    files
        Content of the files that `settings` name.
    judging
        What samples are to be judged with; None leaves it as it is.
    tokens
        Who may use the interface; None leaves it as it is.
    """

    settings: Settings
    changed: tuple[str, ...]
    waiting: tuple[str, ...]
    files: Mapping[Path, str]
    judging: Judging | None
    tokens: Tokens | None

    @property
    def is_empty(self) -> bool:
        """True when all is in effect already."""
        return not self.changed and self.judging is None


class Reloadable(Protocol):
    """A service whose settings may change."""

    @property
    def settings(self) -> Settings:
        """Settings in effect; another object after each change."""

    def prepare(self, wanted: Settings, files: Mapping[Path, str]) -> Change:
        """Check and build, and change nothing; `files` holds the content of what `wanted` names."""

    def take_over(self, change: Change) -> None:
        """Take over; from the thread of the tick, between two ticks. Raises when nothing was changed."""


class Reloader:
    """Keeps a running service to its settings.

    Parameters
    ----------
    origin
        Where the settings came from.
    service
        Takes changes over.
    telemetry
        Own metrics.
    now
        Tells clock time, epoch seconds.
    every_s
        How often files are looked at; 0 leaves that to SIGHUP.
    files
        Content of the files that the service's settings name, by digest, just before they were read; None
        looks now.
    """

    def __init__(
        self,
        origin: Origin,
        service: Reloadable,
        telemetry: ReloadTelemetry,
        now: Callable[[], float],
        every_s: float,
        *,
        files: Mapping[Path, str] | None = None,
    ) -> None:
        self._origin = origin
        self._service = service
        self._telemetry = telemetry
        self._now = now
        self._every_s = every_s
        self._seen = {**origin.read, **(contents(files_of(service.settings)) if files is None else files)}
        self._lock = threading.Lock()
        self._change: Change | None = None
        self._waiting: tuple[str, ...] = ()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oddnode-reload", daemon=True)
        telemetry.succeeded(now())

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def ask(self) -> None:
        """Read again at once, whatever has changed."""
        self._asked.set()
        self._woken.set()

    def look(self, *, is_asked: bool = False) -> None:
        """Read again when the content of a file has changed, or when asked to."""
        seen = contents(self._seen)
        if not is_asked:
            if seen == self._seen or self._stopping.wait(SETTLE_S):
                return
            if contents(self._seen) != seen:
                return  # somebody is writing
        while not self._read(seen):
            pass

    def between_ticks(self) -> None:
        """Take over what is ready; from the thread of the tick. Never raises."""
        with self._lock:
            change, self._change = self._change, None
            if change is None:
                return
            try:
                self._service.take_over(change)
            except Exception as error:
                # whatever it stumbles over, the tick that follows must run
                log.exception("config not_reloaded=internal")
                self._failed(f"{type(error).__name__}: {error}")
            else:
                self._succeeded(change)

    def _run(self) -> None:
        while True:
            self._woken.wait(self._every_s or None)
            self._woken.clear()
            if self._stopping.is_set():
                return
            is_asked = self._asked.is_set()
            self._asked.clear()
            try:
                self.look(is_asked=is_asked)
            except Exception as error:
                # the next content may be better
                log.exception("config not_reloaded=internal")
                self._failed(f"{type(error).__name__}: {error}")

    def _read(self, seen: dict[Path, str]) -> bool:
        """Read and check; False when the settings in effect have changed meanwhile."""
        in_effect = self._service.settings
        self._seen = seen
        try:
            wanted = load_settings(self._origin.path)
            files = files_of(wanted)
            # their content is looked at before they are read: a change in between is seen at the next look
            self._seen = seen | contents(path for path in files if path not in seen)
            change = self._service.prepare(wanted, {path: self._seen[path] for path in files})
        except (OddnodeError, CatalogError) as error:
            with self._lock:
                self._change = None
                self._failed(str(error))
            return True
        with self._lock:
            if self._service.settings is not in_effect:
                return False
            kept = {*files, *files_of(in_effect), *self._origin.read}
            self._seen = {path: digest for path, digest in self._seen.items() if path in kept}
            self._note_waiting(change.waiting)
            self._change = None if change.is_empty else change
            if change.is_empty:
                self._succeeded(change)
        return True

    def _note_waiting(self, waiting: tuple[str, ...]) -> None:
        if waiting and waiting != self._waiting:
            log.warning("config restart_needed=%s: these stay as they were until then", ",".join(waiting))
        self._waiting = waiting
        self._telemetry.restart_pending(is_pending=bool(waiting))

    def _succeeded(self, change: Change) -> None:
        log.info(
            "config reloaded=true changed=%s judging=%s",
            ",".join(change.changed) or "nothing",
            "kept" if change.judging is None else "new",
        )
        self._telemetry.succeeded(self._now())

    def _failed(self, problem: str) -> None:
        log.error("config not_reloaded=%r: the settings before stay in effect", problem)
        self._telemetry.failed()

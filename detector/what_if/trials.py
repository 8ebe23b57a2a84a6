"""Tries of a running service: one at a time, in a process of its own, that can be called off."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from detector.control.model import Mute
from detector.control.problems import NotPossibleError, NotValidError
from detector.settings import Settings
from detector.what_if.knobs import KNOBS, Knob, advice, changed
from detector.what_if.messages import Advanced, Done, Failed, told
from detector.what_if.model import Comparison
from detector.what_if.run import Job

log = logging.getLogger("oddnode.detector.what_if")

COMMAND = (sys.executable, "-P", "-m", "detector.what_if.child")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""One each: a try takes one processor at most."""
ENDS_WITHIN_S = 5.0
"""How long calling off waits for the process, so that the next try can begin."""


class State(StrEnum):
    """How far a try is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Trial:
    """One try.

    Parameters
    ----------
    number
        Counts the tries of this process, from 1.
    state
        See `State`.
    by
        Who asked.
    start, end
        Epoch seconds of the hours.
    changes
        Values that are tried, by setting.
    advice
        Lines of a settings file that would keep them.
    progress
        Share that is done, 0 to 1.
    took_s
        Seconds so far, or in all.
    problem
        Why it failed, empty when it did not.
    comparison
        None until it is done.
    """

    number: int
    state: State
    by: str
    start: float
    end: float
    changes: Mapping[str, float]
    advice: tuple[str, ...]
    progress: float = 0.0
    took_s: float = 0.0
    problem: str = ""
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """What can be tried.

    Parameters
    ----------
    is_on
        False when the settings refuse it.
    max_hours
        Bound of the hours.
    knobs
        Settings with their values in effect.
    """

    is_on: bool
    max_hours: float
    knobs: tuple[tuple[Knob, float], ...]


@dataclass(slots=True)
class _Running:
    """The process of a try."""

    trial: Trial
    process: subprocess.Popen[bytes]
    begun: float
    limit_s: float
    is_cancelled: bool = False
    is_late: bool = False
    timer: threading.Timer | None = field(default=None)
    ended: threading.Event = field(default_factory=threading.Event)

    def call_off(self) -> Trial:
        self.is_cancelled = True
        took_s = time.monotonic() - self.begun
        self.trial = replace(self.trial, state=State.CANCELLED, took_s=took_s)
        self.process.kill()
        return self.trial


class Trials:
    """Tries other settings on the last hours of the service's own data.

    Parameters
    ----------
    settings
        Returns the settings in effect.
    mutes
        Returns mutes, also those that are over.
    command
        What runs a try.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        mutes: Callable[[], Sequence[Mute]] = tuple,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings = settings
        self._mutes = mutes
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._newest: Trial | None = None
        self._n = 0

    def offered(self) -> Offered:
        """Tell what can be tried."""
        settings = self._settings()
        bounds = settings.what_if
        return Offered(
            bounds.enabled, bounds.max_hours, tuple((knob, knob.value(settings)) for knob in KNOBS)
        )

    def newest(self) -> Trial | None:
        """Return the newest try, None before the first."""
        with self._lock:
            if self._running is None:
                return self._newest
            if self._running.is_cancelled:
                return self._running.trial
            return replace(self._running.trial, took_s=time.monotonic() - self._running.begun)

    def start(self, changes: Mapping[str, float], hours: float, end: float, by: str) -> Trial:
        """Begin to try.

        Parameters
        ----------
        changes
            Values by setting, see `knobs.changed`.
        hours
            How many hours up to `end`.
        end
            Newest evaluation time, epoch seconds.
        by
            Who asks.

        Raises
        ------
        NotValidError
            When a value is none that can be tried, or the hours are too many.
        NotPossibleError
            When one is under way already, or it is switched off.
        """
        settings = self._settings()
        bounds = settings.what_if
        if not bounds.enabled:
            raise NotPossibleError("trying settings is switched off: what_if.enabled")
        if not 0 < hours <= bounds.max_hours:
            raise NotValidError(
                f"hours: must be more than 0 and at most {bounds.max_hours:g} (what_if.max_hours)"
            )
        wanted = changed(settings, changes)
        mutes = tuple(mute for mute in self._mutes() if mute.metric or mute.apart)
        start = end - 3600.0 * hours
        job = Job(
            settings, wanted, start, end, settings.recording.path, settings.recording.use_pool,
            bounds.max_series, mutes,
        )  # fmt: skip
        with self._lock:
            if self._running is not None:
                busy = self._running.trial
                if self._running.is_cancelled:
                    raise NotPossibleError("the try that was called off has not ended yet: ask again")
                raise NotPossibleError(
                    f"a try of {busy.by} is under way, {busy.progress:.0%} done: wait for it, or cancel it"
                )
            self._n += 1
            trial = Trial(self._n, State.RUNNING, by, start, end, dict(changes), advice(changes))
            running = _Running(trial, self._spawn(), time.monotonic(), bounds.time_limit_s)
            self._running = running
        running.timer = threading.Timer(running.limit_s, self._give_up, (running,))
        running.timer.daemon = True
        running.timer.start()
        thread = threading.Thread(
            target=self._follow, args=(running, pickle.dumps(job)), name="oddnode-what-if", daemon=True
        )
        thread.start()
        log.info("what_if started=%d by=%r hours=%g", trial.number, by, hours)
        return trial

    def cancel(self, number: int | None = None) -> Trial:
        """Call off the try that is under way, and wait a moment for its process to end.

        Parameters
        ----------
        number
            Call off this one only; None takes whichever it is.

        Raises
        ------
        NotPossibleError
            When there is none, or it is another one.
        """
        with self._lock:
            running = self._running
            if running is None or running.is_cancelled:
                raise NotPossibleError("no try is under way")
            if number not in (None, running.trial.number):
                raise NotPossibleError(f"try {number} is not under way, but try {running.trial.number} is")
            trial = running.call_off()
        running.ended.wait(ENDS_WITHIN_S)
        return trial

    def close(self) -> None:
        """End what is under way; nothing is waited for."""
        with self._lock:
            if self._running is not None:
                self._running.call_off()

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        return subprocess.Popen(  # noqa: S603 - a fixed command; what clients send goes in as data
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the service, which ends it
        )

    def _give_up(self, running: _Running) -> None:
        running.is_late = True
        running.process.kill()

    def _follow(self, running: _Running, job: bytes) -> None:
        """Hand over the job, take in what is told, and keep the end."""
        process = running.process
        assert process.stdin is not None  # noqa: S101 (narrowing: both are pipes)
        assert process.stdout is not None  # noqa: S101
        end: Done | Failed | None = None
        try:
            process.stdin.write(job)
            process.stdin.flush()
            for message in told(process.stdout):
                if isinstance(message, Advanced):
                    with self._lock:
                        running.trial = replace(running.trial, progress=message.share)
                else:
                    end = message
        except (OSError, msgspec.DecodeError) as error:  # it was ended in the middle of a line
            log.debug("what_if unreadable=%r", str(error))
        finally:
            if running.timer is not None:
                running.timer.cancel()
            process.kill()
            code = process.wait()
            process.stdin.close()
            process.stdout.close()
            self._finish(running, end, code)

    def _finish(self, running: _Running, end: Done | Failed | None, code: int) -> None:
        with self._lock:  # who calls it off comes before or after this, never in between
            trial = self._newest = _ended(running, end, code)
            self._running = None
        running.ended.set()
        log.info("what_if ended=%d state=%s seconds=%.1f", trial.number, trial.state.value, trial.took_s)


def _ended(running: _Running, end: Done | Failed | None, code: int) -> Trial:
    if running.is_cancelled:
        return running.trial
    trial = replace(running.trial, took_s=time.monotonic() - running.begun)
    if isinstance(end, Done):
        return replace(trial, state=State.DONE, progress=1.0, comparison=end.comparison)
    if isinstance(end, Failed):
        problem = end.problem
    elif running.is_late:
        problem = f"not done after {running.limit_s:g} s (what_if.time_limit_s): try fewer hours"
    else:
        problem = f"its process ended with {code} and said nothing: out of memory, or see the log"
    return replace(trial, state=State.FAILED, problem=problem)

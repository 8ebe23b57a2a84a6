"""Clocks of the service: the system's, and the one of a recording that is played."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any, Protocol

from apscheduler.triggers.base import BaseTrigger


class Clock(Protocol):
    """Tells the time of the data."""

    def now(self) -> float:
        """Return epoch seconds."""

    @property
    def speed(self) -> float:
        """Seconds of data per second of waiting."""

    @property
    def end(self) -> float:
        """Epoch seconds at which the data ends, infinity for a live source."""


class SystemClock:
    """The clock of the machine."""

    speed = 1.0
    end = math.inf

    def now(self) -> float:
        """Return epoch seconds."""
        return time.time()  # noqa: TID251 - this is where the service's time comes from


class RecordedClock:
    """Runs through a recording at a multiple of real time, then stands still.

    Parameters
    ----------
    start, end
        Epoch seconds of the recording.
    speed
        Recorded seconds per second.
    at
        Where to begin, epoch seconds; None for the start.
    """

    def __init__(self, start: float, end: float, speed: float, at: float | None = None) -> None:
        self._start = start if at is None else at
        self.end = end
        self.speed = speed
        self._begun = time.monotonic()

    def now(self) -> float:
        """Return epoch seconds of the recording, at most its end."""
        return min(self.end, self._start + (time.monotonic() - self._begun) * self.speed)


class GridTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires at ``k * step_s + delay_s`` of the system clock.

    Unlike an interval it is computed from the time that it is, so a clock that was set, or a
    machine that slept, is back on the grid at once.

    Parameters
    ----------
    step_s, delay_s
        Seconds.
    """

    def __init__(self, step_s: float, delay_s: float) -> None:
        self._step_s = step_s
        self._delay_s = delay_s

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> Any:
        """Return the first time on the grid that is after both."""
        after = now.timestamp()
        if previous_fire_time is not None and previous_fire_time.timestamp() < after + self._step_s:
            after = max(after, previous_fire_time.timestamp())
        k = math.floor((after - self._delay_s + 1e-3) / self._step_s) + 1
        return datetime.fromtimestamp(k * self._step_s + self._delay_s, UTC)

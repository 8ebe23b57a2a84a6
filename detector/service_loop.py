"""The scheduler around the service: one tick per step, never two at once, and a watch over them."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from datetime import UTC
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from detector.service import Service
from detector.service_clock import GridTrigger

log = logging.getLogger("oddnode.detector.service")

STUCK_STEPS = 10
"""A tick that runs for longer than this many steps has its stack logged."""

WATCH_S = 5.0


class Loop:
    """Calls `Service.tick` on the grid of steps.

    Parameters
    ----------
    service
        What is called.
    step_s
        Real seconds between ticks.
    delay_s
        Real seconds after each multiple of the step.
    stuck_after_s
        A tick that takes longer has its stack logged, once.
    """

    def __init__(self, service: Service, *, step_s: float, delay_s: float, stuck_after_s: float) -> None:
        self._service = service
        self._stuck_after_s = max(stuck_after_s, STUCK_STEPS * step_s)
        self._watch_s = min(WATCH_S, step_s)
        self._stopping = threading.Event()
        self._scheduler: Any = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        self._scheduler.add_job(service.tick, id="first")
        self._scheduler.add_job(service.tick, GridTrigger(step_s, delay_s), id="tick")
        self._watcher = threading.Thread(target=self._watch, name="oddnode-watch", daemon=True)

    def start(self) -> None:
        """Begin; the first tick runs at once."""
        self._scheduler.start()
        self._watcher.start()

    def stop(self, timeout_s: float) -> bool:
        """End; a tick under way is ended at its next evaluation time.

        Returns
        -------
        bool
            False when it did not end in time.
        """
        self._stopping.set()
        self._service.stop()
        self._scheduler.shutdown(wait=False)
        return self._service.finish(timeout_s)

    def _watch(self) -> None:
        is_told = False
        while not self._stopping.wait(self._watch_s):
            # a scheduler that went to sleep before the clock was set looks at the clock again
            self._scheduler.wakeup()
            runs_s = self._service.tick_runs_for_s()
            if runs_s < self._stuck_after_s:
                is_told = False
            elif not is_told:
                is_told = True
                log.error("tick stuck_s=%.0f stacks:\n%s", runs_s, _stacks())


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)[-8:])
        for ident, frame in sys._current_frames().items()
    )


def real_delay_s(evaluation_delay_s: float, step_s: float, speed: float) -> float:
    """Return the offset of the real grid; a recording's clock starts at any time, so its grid starts now."""
    if speed == 1.0:
        return evaluation_delay_s
    return time.time() % (step_s / speed)  # noqa: TID251 - the phase of a timer, decides nothing

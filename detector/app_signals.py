"""What signals do to a running service."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class Signals:
    """SIGTERM, SIGINT: the first ends in order, the second at once (the store survives). SIGHUP reloads."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.on_first: Callable[[], None] = lambda: None
        self.on_hangup: Callable[[], None] = lambda: None
        self._n = 0

    def install(self) -> None:
        """Take the signals over, when in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._received)
            signal.signal(signal.SIGHUP, self._hung_up)

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._n += 1
        if self._n > 1:
            os._exit(128 + number)
        # locks may be held by the very frame that was interrupted: another thread does the work
        threading.Thread(target=self._end, daemon=True).start()

    def _hung_up(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=self.on_hangup, daemon=True).start()

    def _end(self) -> None:
        self.stopping.set()
        self.on_first()

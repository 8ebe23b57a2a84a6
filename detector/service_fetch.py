"""Fetching under a watchdog: a fetch that hangs is given up, and nothing it does later counts."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from detector.errors import SourceError, SourceTimeout
from detector.service_memory import LongLived
from detector.source.base import Batch, Interner, Source

log = logging.getLogger("oddnode.detector.service")

MAX_HANGING = 4
"""Given-up fetches that may still be hanging; with more, no new one is begun."""

T = TypeVar("T")


class Stopped(Exception):
    """The service is ending."""


class _Guard:
    """An interner that a given-up fetch can no longer write to."""

    def __init__(self, interner: Interner, lock: threading.Lock) -> None:
        self._interner = interner
        self._lock = lock
        self._is_revoked = False

    @property
    def codes(self) -> dict[bytes, int]:
        return self._interner.codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        with self._lock:
            if self._is_revoked:
                raise SourceError("the fetch was given up")
            self._interner.add_many(keys)

    def revoke(self) -> None:
        """Return when no write is under way and none will follow."""
        with self._lock:
            self._is_revoked = True


class Fetcher:
    """Runs each fetch in a thread of its own, for a bounded time.

    Parameters
    ----------
    open_source
        Makes a source; called again after one was given up.
    interner
        Numbers the series.
    timeout_s
        Bound of one fetch; longer than the source's own deadline.
    lock
        Held while series are numbered, so that who reads the index holds it too.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        interner: Interner,
        timeout_s: float,
        lock: threading.Lock,
    ) -> None:
        self._open_source = open_source
        self._interner = interner
        self._lock = lock
        self._guard = _Guard(interner, lock)
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._is_stopped = False
        self._source: Source | None = None
        self._hanging: list[threading.Thread] = []
        self._long_lived = LongLived()

    def number_by(self, interner: Interner) -> None:
        """Let another interner number the series; not while a fetch is under way."""
        self._guard.revoke()
        self._interner = interner
        self._guard = _Guard(interner, self._lock)
        self._long_lived.replaced()

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int) -> Batch:
        """Return samples with ``start_ms < time <= end_ms``.

        Raises
        ------
        SourceError
            As the source says; `SourceTimeout` when it hung and was given up.
        Stopped
            When the service ends.
        """
        guard = self._guard

        def ask(source: Source) -> Batch:
            return source.fetch(names, start_ms, end_ms, guard)

        batch = self._run(ask)
        self._long_lived.fetched(len(self._interner.codes))
        return batch

    def query(self, promql: str, at: float) -> Sequence[tuple[Any, float]]:
        """Answer an instant query, or nothing when the source cannot be asked.

        Raises
        ------
        SourceError, Stopped
            As `fetch`.
        """

        def ask(source: Any) -> Sequence[tuple[Any, float]]:
            return list(source.query(promql, at)) if hasattr(source, "query") else []

        return self._run(ask)

    def stop(self) -> None:
        """End the fetch under way, from another thread."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Close the source without waiting for it."""
        source, self._source = self._source, None
        if source is not None:
            threading.Thread(target=_close, args=(source,), daemon=True).start()

    def _run(self, call: Callable[[Any], T]) -> T:
        if self._is_stopped:
            raise Stopped
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if len(self._hanging) >= MAX_HANGING:
            raise SourceTimeout(f"{len(self._hanging)} given-up fetches still hang: no new one is begun")
        source = self._source = self._source or self._open_source()
        done: list[T] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                done.append(call(source))
            except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
                failed.append(error)
            with self._changed:
                self._changed.notify_all()

        thread = threading.Thread(target=work, name="oddnode-fetch", daemon=True)
        thread.start()
        with self._changed:
            self._changed.wait_for(lambda: done or failed or self._is_stopped, self._timeout_s)
        if done:
            return done[0]
        if failed:
            raise failed[0]
        self._give_up(thread)
        if self._is_stopped:
            raise Stopped
        raise SourceTimeout(f"the fetch hung for {self._timeout_s:g} s and was given up")

    def _give_up(self, thread: threading.Thread) -> None:
        if not self._is_stopped:
            frame = sys._current_frames().get(thread.ident or 0)
            where = "".join(traceback.format_stack(frame)[-6:]) if frame is not None else "ended just now"
            log.error("fetch hung timeout_s=%g where:\n%s", self._timeout_s, where)
        self._guard.revoke()
        self._guard = _Guard(self._interner, self._lock)
        self._hanging.append(thread)
        self.close()


def _close(source: Source) -> None:
    with suppress(Exception):
        source.close()

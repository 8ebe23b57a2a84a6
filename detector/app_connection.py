"""One connection of a client: ended when it only holds a place, so that none can take all places.

The library keeps a connection that never sends a request, or never reads its answer, for ever. Some hundreds
of these would take all file descriptors, also those of the database and the store.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger("oddnode.detector.app")

REQUEST_WAIT_S = 10.0
"""A request whose head is not there after this long is not waited for."""

READ_WAIT_S = 30.0
"""A client that takes in nothing of its answer for so long gets no more of it."""

MAX_CONNECTIONS = 1024
BACKLOG = 128
"""The event loop takes in as many at once, before any is looked at."""

DESCRIPTORS = 4 * MAX_CONNECTIONS
TOLD_EVERY_S = 60.0


class Connection(H11Protocol):
    """Answers requests of one client; see `uvicorn.Config.http`."""

    most: ClassVar[int] = MAX_CONNECTIONS
    """With more, the one that has waited longest for a request makes room; see `bound`."""

    _told_at: ClassVar[float] = float("-inf")

    @classmethod
    def bound(cls) -> None:
        """Take enough file descriptors for the most connections, or allow as many as fit in half of them."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if resource.RLIM_INFINITY != soft < DESCRIPTORS:
            soft = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        cls.most = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and make room if there is none."""
        super().connection_made(transport)
        self._quiet_since = self.loop.time()
        self._unread: asyncio.TimerHandle | None = None
        self._look = self.loop.call_later(REQUEST_WAIT_S, self._end_if_quiet)
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._look.cancel()
        self._forget_unread()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for the client to take in what was sent, for a while."""
        super().pause_writing()
        self._forget_unread()
        self._unread = self.loop.call_later(READ_WAIT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        self._forget_unread()
        super().resume_writing()

    @property
    def is_quiet(self) -> bool:
        """True while no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _end_if_quiet(self) -> None:
        waits_s = self.loop.time() - self._quiet_since if self.is_quiet else 0.0
        if waits_s >= REQUEST_WAIT_S and self._unread is None:
            self.transport.abort()
            return
        self._look = self.loop.call_later(max(0.1, REQUEST_WAIT_S - waits_s), self._end_if_quiet)

    def _make_room(self) -> None:
        quiet = [
            other
            for other in self.connections
            # one that was ended already is forgotten in the next turn of the loop only
            if isinstance(other, Connection) and other.is_quiet and not other.transport.is_closing()
        ]
        oldest = min(quiet, key=lambda other: other._quiet_since, default=self)
        now = self.loop.time()
        if now - Connection._told_at >= TOLD_EVERY_S:
            Connection._told_at = now
            log.warning("http connections=%d reason=too_many: those that ask nothing make room", self.most)
        oldest.transport.abort()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

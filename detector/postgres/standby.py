"""Waiting for the lead."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from detector.errors import StoreError
from detector.outcome import Incident, Transition
from detector.postgres.server import Connection, Server
from detector.postgres.store import PostgresReader, PostgresStore, try_lead
from detector.store_contract import Statements

log = logging.getLogger("oddnode.detector.store")

POLL_S = 1.0


class View(Protocol):
    """What is served meanwhile."""

    problem: str

    def refresh(self) -> bool:
        """Read what the leading replica has stored; True when it is new."""


class StandbyStore(PostgresReader):
    """Reads the store, and refuses changes.

    Parameters
    ----------
    server
        Where it is.
    refuse
        Raises what a change is refused with.
    """

    def __init__(self, server: Server, refuse: Callable[[Callable[[Statements], None]], None]) -> None:
        super().__init__(server)
        self._refuse = refuse

    def apply(
        self,
        write: Callable[[Statements], None],
        incidents: Sequence[Incident] = (),
        transitions: Sequence[Transition] = (),
    ) -> None:
        """Refuse."""
        self._refuse(write)


class Standby:
    """Takes the lead as soon as nobody has it.

    Parameters
    ----------
    server
        Where the store is.
    view
        Is kept fresh meanwhile.
    changed
        Called when the view has changed.
    retention_s
        As of the store.
    grace_s
        After the server could not be reached, the replica that led before may take the lead back for this
        long: its memory is fresher.
    poll_s
        How often to look.
    """

    def __init__(
        self,
        server: Server,
        view: View,
        changed: Callable[[], None],
        *,
        retention_s: float,
        grace_s: float,
        poll_s: float = POLL_S,
    ) -> None:
        self._server = server
        self._view = view
        self._changed = changed
        self._retention_s = retention_s
        self._grace_s = grace_s
        self._poll_s = poll_s
        self._connection: Connection | None = None
        self._not_before = float("-inf")

    def wait(self, stopping: threading.Event) -> PostgresStore | None:
        """Return the store once this replica leads, None when told to stop before."""
        while not stopping.wait(self._poll_s):
            try:
                if self._view.refresh():
                    self._changed()
                problem = ""
            except StoreError as error:
                problem = str(error)
            try:
                store = self._try()
            except StoreError as error:
                problem = str(error)
                self._not_before = time.monotonic() + self._grace_s
                self._drop()
            else:
                if store is not None:
                    return store
            if problem and problem != self._view.problem:
                log.warning("standby problem=%r", problem)
            self._view.problem = problem
        self._drop()
        return None

    def _try(self) -> PostgresStore | None:
        if self._connection is None:
            self._connection = self._server.connect()
        if time.monotonic() < self._not_before:
            if not self._server.answers(self._connection):
                raise StoreError(f"{self._server.name}: cannot be reached")
            return None
        if not try_lead(self._server, self._connection):
            return None
        lead, self._connection = self._connection, None
        return PostgresStore(self._server, lead, retention_s=self._retention_s)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

"""The store of incidents in PostgreSQL: one evaluator leads and writes, the others read and wait.

The lead is an advisory lock that the writing connection holds. Who takes it raises the epoch, and every
transaction of a leader makes sure of its epoch: one that was cut off for a while cannot write what
another has decided since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from detector.errors import StoreError
from detector.postgres.schema import prepare
from detector.postgres.server import Connection, Server
from detector.store_contract import Statements
from detector.store_sql import SqlReader
from detector.store_writer import StoreWriter

log = logging.getLogger("oddnode.detector.store")

_LOCK = b"SELECT pg_try_advisory_lock(905438, 1)"  # 905438 is 0xDD0DE
_EPOCH = "SELECT value FROM meta WHERE name = 'epoch'"
_NEXT_EPOCH = (
    "INSERT INTO meta (name, value) VALUES ('epoch', 1) "
    "ON CONFLICT (name) DO UPDATE SET value = meta.value + 1 RETURNING value"
)


class LostLead(StoreError):
    """Another evaluator has taken over: what this one knows is no longer what counts."""


class PostgresReader(SqlReader):
    """Reads a store in PostgreSQL; safe from any thread.

    Parameters
    ----------
    server
        Where it is.
    """

    def __init__(self, server: Server) -> None:
        SqlReader.__init__(self, server.name)
        self._server = server

    @contextmanager
    def reading(self) -> Iterator[Statements]:
        """Open a transaction that changes nothing.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        with self._server.pooled("cannot be read", changes=False) as session:
            yield session


class PostgresStore(StoreWriter, PostgresReader):
    """The one writer of a store in PostgreSQL, and a reader of it.

    Parameters
    ----------
    server
        Where it is.
    lead
        Connection that holds the lead, from `take_lead`.
    retention_s
        Age at which cleared incidents and ended group events are deleted.

    Raises
    ------
    StoreError
        When the server refuses, or the schema belongs to another program or was written by a newer
        version.
    """

    refusals = (psycopg.Error,)

    def __init__(self, server: Server, lead: Connection, *, retention_s: float = 90 * 86400.0) -> None:
        StoreWriter.__init__(self, server.name, retention_s)
        self._server = server
        self._on_lost: Callable[[], None] = lambda: None
        self._is_lost = threading.Event()
        try:
            with server.transaction(lead, changes=True) as to:
                prepare(to, server.name)
                self._epoch = float(to.execute(_NEXT_EPOCH).fetchone()[0])
        except psycopg.Error as error:
            lead.close()
            raise StoreError(f"{server.name}: cannot be opened: {server.told(error)}") from None
        except BaseException:
            lead.close()
            raise
        self._lead: Connection | None = lead
        log.info("store path=%s leads=true epoch=%d", server.name, self._epoch)

    def when_lost(self, call: Callable[[], None]) -> None:
        """Have something called once, from any thread, when another evaluator has taken over."""
        self._on_lost = call
        if self._is_lost.is_set():
            call()

    @property
    def is_lost(self) -> bool:
        """True once another evaluator has taken over."""
        return self._is_lost.is_set()

    @contextmanager
    def reading(self) -> Iterator[Statements]:
        """Open a transaction that changes nothing.

        Raises
        ------
        StoreError
            When the store cannot be read.
        LostLead
            When another evaluator has taken over.
        """
        with super().reading() as session:
            self._require_epoch(session)
            yield session

    @contextmanager
    def writing(self) -> Iterator[Statements]:
        """Open a transaction of its own, beside those of the evaluation.

        Raises
        ------
        StoreError
            When the store cannot be written.
        LostLead
            When another evaluator has taken over.
        """
        with self._server.pooled("cannot be written", changes=True) as session:
            self._require_epoch(session, " FOR SHARE")
            yield session

    def close(self) -> None:
        """Write what is pending if possible, give the lead away."""
        with self._guard:
            if not self._is_closed and self._pending.at is not None and not self._is_lost.is_set():
                with suppress(psycopg.Error, StoreError):
                    self._flush()
            self._is_closed = True
            self._drop_lead()
            self._server.close()

    @contextmanager
    def _transaction(self) -> Iterator[Statements]:
        lead = self._hold_lead()
        try:
            with self._server.transaction(lead, changes=True) as to:
                self._require_epoch(to, " FOR SHARE")
                yield to
        finally:
            if lead.closed or lead.broken:
                self._drop_lead()

    def _told(self, error: Exception) -> str:
        return self._server.told(error)

    def _hold_lead(self) -> Connection:
        """Return the connection that leads; take the lead again when the connection was lost."""
        if self._is_lost.is_set():
            raise self._lost()
        if self._lead is not None and self._server.answers(self._lead):
            return self._lead
        self._drop_lead()
        lead = take_lead(self._server)
        if lead is None:
            # it may be that the server has not noticed yet that our last connection is gone
            with self.reading():
                pass  # tells when another has taken over
            raise StoreError(f"{self.name}: the lead is held by another connection")
        self._lead = lead
        log.warning("store path=%s leads_again=true epoch=%d", self.name, self._epoch)
        return lead

    def _require_epoch(self, session: Statements, how: str = "") -> None:
        row = session.execute(_EPOCH + how).fetchone()
        if row is None or float(row[0]) != self._epoch:
            raise self._lost()

    def _lost(self) -> LostLead:
        if not self._is_lost.is_set():
            self._is_lost.set()
            log.error("store path=%s leads=false reason=another_evaluator_has_taken_over", self.name)
            self._on_lost()
        return LostLead(f"{self.name}: another evaluator has taken over")

    def _drop_lead(self) -> None:
        if self._lead is not None:
            self._lead.close()
            self._lead = None


def take_lead(server: Server) -> Connection | None:
    """Return a connection that holds the lead, None when another holds it.

    Raises
    ------
    StoreError
        When the server cannot be reached.
    """
    connection = server.connect()
    try:
        is_taken = try_lead(server, connection)
    except StoreError:
        connection.close()
        raise
    if is_taken:
        return connection
    connection.close()
    return None


def try_lead(server: Server, connection: Connection) -> bool:
    """Take the lead with a connection; False when another holds it.

    Raises
    ------
    StoreError
        When the connection is lost.
    """
    try:
        with server.bounded(connection):
            row = connection.execute(_LOCK).fetchone()
    except psycopg.Error as error:
        raise StoreError(f"{server.name}: cannot be used: {server.told(error)}") from None
    return row is not None and bool(row[0])

"""Connections to the server: bounded in time, taken up again after it was restarted."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import RawCursor

from detector.errors import StoreError
from detector.postgres.address import Address
from detector.store_contract import Rows, Statements

log = logging.getLogger("oddnode.detector.store")

SCHEMA = "oddnode"
"""Schema of our tables: those of others in the same database are never touched."""

CONNECT_S = 5
STATEMENT_S = 10.0
"""How long the server may work on one statement."""

LOCK_S = 5.0
TRANSACTION_S = 20.0
"""How long a transaction may take; a server that does not answer at all is left then."""

MAX_IDLE = 4
"""Connections that are kept for the next transaction."""

_SESSION = (
    ("search_path", SCHEMA),
    ("statement_timeout", f"{STATEMENT_S * 1000:.0f}"),
    ("lock_timeout", f"{LOCK_S * 1000:.0f}"),
    ("idle_in_transaction_session_timeout", f"{TRANSACTION_S * 1000:.0f}"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
)
_SET = ("SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SESSION)).encode()

Connection = psycopg.Connection[tuple[Any, ...]]


class Session:
    """Statements on a connection, with placeholders as `store_contract` has them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        """Run one statement."""
        return self._connection.execute(_query(sql), _clean(values))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for each row."""
        cleaned = [_clean(row) for row in rows]
        if cleaned:
            with self._connection.cursor() as cursor:
                cursor.executemany(_query(sql), cleaned)
        return None


def _query(sql: str) -> bytes:
    return sql.replace("?", "$").encode()


def _clean(values: Sequence[Any]) -> list[Any]:
    """PostgreSQL takes no NUL in texts; names come from outside, and one must not hold up all the others."""
    return [v.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(v, str) else v for v in values]


class Server:
    """One database; safe from any thread.

    Parameters
    ----------
    address
        Where it is.
    transaction_s
        How long a transaction may take.
    """

    def __init__(self, address: Address, transaction_s: float = TRANSACTION_S) -> None:
        self.address = address
        self._transaction_s = transaction_s
        self._idle: list[Connection] = []
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """Where it is, without secrets."""
        return self.address.name

    def connect(self) -> Connection:
        """Open a connection.

        Raises
        ------
        StoreError
            When the server cannot be reached or refuses.
        """
        parameters = self.address.parameters()
        try:
            connection = psycopg.connect(
                **parameters,  # type: ignore[arg-type]
                autocommit=True,
                cursor_factory=RawCursor,
                prepare_threshold=None,
                connect_timeout=CONNECT_S,
                application_name="oddnode",
                tcp_user_timeout=int(self._transaction_s * 1000),
                keepalives_idle=10,  # a machine that is gone is noticed within 25 s, from either side
                keepalives_interval=5,
                keepalives_count=3,
            )
        except psycopg.Error as error:
            raise StoreError(f"{self.name}: cannot be reached: {self.told(error)}") from None
        try:
            with self.bounded(connection):
                connection.execute(_SET)
        except psycopg.Error as error:
            connection.close()
            raise StoreError(f"{self.name}: cannot be used: {self.told(error)}") from None
        return connection

    @contextmanager
    def transaction(self, connection: Connection, *, changes: bool) -> Iterator[Statements]:
        """Run a transaction on a connection; raises `psycopg.Error`, also when it takes too long."""
        with self.bounded(connection):
            connection.execute(_BEGIN[changes])
            try:
                yield Session(connection)
                connection.execute(b"COMMIT")
            except BaseException:
                with suppress(psycopg.Error):
                    connection.execute(b"ROLLBACK")
                raise

    @contextmanager
    def pooled(self, what: str, *, changes: bool) -> Iterator[Statements]:
        """Run a transaction on any connection.

        Parameters
        ----------
        what
            Said of the store when it fails, such as ``cannot be read``.
        changes
            False for one that only reads.

        Raises
        ------
        StoreError
            When the server cannot be reached or refuses.
        """
        connection = self._take()
        try:
            with self.transaction(connection, changes=changes) as session:
                yield session
        except psycopg.Error as error:
            raise StoreError(f"{self.name}: {what}: {self.told(error)}") from error
        finally:
            self._give_back(connection)

    def answers(self, connection: Connection) -> bool:
        """Tell whether a connection can be used: the server may have been restarted since."""
        try:
            with self.bounded(connection):
                connection.execute(b"SELECT 1")
        except psycopg.Error:
            return False
        return True

    @contextmanager
    def bounded(self, connection: Connection) -> Iterator[None]:
        """Cut the connection when what is done takes too long: a server that hangs must not hang us."""
        timer = threading.Timer(self._transaction_s, _cut, (connection,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def told(self, error: Exception) -> str:
        """Return an error as one line without secrets."""
        return self.address.redact(str(error)) or type(error).__name__

    def close(self) -> None:
        """Close what is idle."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.connect()
            if self.answers(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._guard:
            if is_idle and not connection.closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


_BEGIN = {True: b"BEGIN", False: b"BEGIN READ ONLY"}


def _cut(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        log.error("store path=%s hangs=true: the connection is cut", connection.info.dbname)
        line.shutdown(socket.SHUT_RDWR)

"""The store of incidents: one SQLite file, one writer, any number of readers.

`Store.save` writes one evaluation in one transaction, keyed by identifiers that do not change,
so a process killed between or inside evaluations loses nothing and writes nothing twice.
What cannot be written (disk full, file locked) is kept and written with the next evaluation.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from detector.errors import StoreError
from detector.store_read import StoreReader
from detector.store_schema import check_owner, migrate
from detector.store_writer import StoreWriter

log = logging.getLogger("oddnode.detector.store")

BUSY_TIMEOUT_S = 5.0
CHECKPOINT_EVERY = 20
"""Saves between two truncations of the write-ahead log."""

_SIDE_FILES = ("", "-wal", "-shm")
_CORRUPT_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class Store(StoreWriter, StoreReader):
    """The one writer of a store file, and a reader of it.

    Parameters
    ----------
    path
        SQLite file; made when missing. A lock file lies beside it.
    retention_s
        Age at which cleared incidents and ended group events are deleted.
    lock_wait_s
        How long to wait for another process to let go of the store.
    stop
        Ends the waiting early.

    Raises
    ------
    StoreError
        When the file cannot be opened, is locked by another evaluator, belongs to another
        program, or was written by a newer version.
    """

    refusals = (sqlite3.Error, OSError)

    def __init__(
        self,
        path: Path,
        *,
        retention_s: float = 90 * 86400.0,
        lock_wait_s: float = 0.0,
        stop: threading.Event | None = None,
    ) -> None:
        StoreWriter.__init__(self, str(path), retention_s)
        self.path = path
        self._n_saves = 0
        self._opened: tuple[int, int] | None = None
        self._lock_file = _lock(path, lock_wait_s, stop or threading.Event())
        try:
            self._writer: sqlite3.Connection | None = self._open()
        except BaseException:
            self._lock_file.close()
            raise

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction of its own, beside those of the evaluation.

        Raises
        ------
        StoreError
            When the store cannot be written.
        """
        # never makes a file: that is the writer's to do
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        try:
            with (
                closing(
                    sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
                ) as connection,
                _transaction(connection),
            ):
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be written: {error}") from error

    def close(self) -> None:
        """Write what is pending if possible, truncate the log, free the lock."""
        with self._guard:
            if self._writer is not None:
                with suppress(sqlite3.Error, StoreError, OSError):
                    if self._pending.at is not None:
                        self._flush()
                    self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._writer.close()
                self._writer = None
            self._is_closed = True
            self._lock_file.close()

    def _flush(self) -> None:
        try:
            super()._flush()
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error):
                raise
            self._set_aside(str(error))
            super()._flush()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        writer = self._writing()
        with _transaction(writer):
            yield writer

    def _writing(self) -> sqlite3.Connection:
        """Return the writer of the file that lies at the path now: it may have been deleted or replaced."""
        self._hold_lock()
        if self._writer is not None and _inode(self.path) != self._opened:
            log.error("store path=%s was_replaced=true: opened anew", self.path)
            self._writer.close()
            self._writer = None
        if self._writer is None:
            self._writer = self._open()
        return self._writer

    def _hold_lock(self) -> None:
        """Take the lock anew when its file was deleted: another evaluator would find none."""
        held = os.fstat(self._lock_file.fileno())
        if _inode(_lock_path(self.path)) != (held.st_dev, held.st_ino):
            taken = _lock(self.path, 0.0, threading.Event())
            self._lock_file.close()
            self._lock_file = taken

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error):
                raise StoreError(f"{self.path}: cannot be opened: {error}") from error
            self._set_aside(str(error))
        try:
            return self._connect()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be opened: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            check_owner(connection, self.path)  # before anything is changed in the file
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            # a tick every half minute can afford that power loss forgets nothing either
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
            migrate(connection)
            _require_whole(connection)
            # proves that the file can be written, which opening alone does not
            with _transaction(connection):
                connection.execute("DELETE FROM meta WHERE name = 'probe'")
            self._opened = _inode(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, problem: str) -> None:
        """Move a corrupt file out of the way: detection goes on with an empty store."""
        if getattr(self, "_writer", None) is not None:
            with suppress(sqlite3.Error):
                self._writer.close()  # type: ignore[union-attr]
        self._writer = None
        stamp = int(time.time())  # noqa: TID251 - a file name, decides nothing
        aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
        for suffix in _SIDE_FILES:
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").replace(f"{aside}{suffix}")
        log.critical(
            "store path=%s is_corrupt=true moved_to=%s problem=%r: earlier incidents are only in that file",
            self.path, aside, problem,
        )  # fmt: skip

    def _tidy(self, at: float) -> None:
        """Delete what is old and keep the log short; never fails a save."""
        super()._tidy(at)
        self._n_saves += 1
        if self._writer is None:
            return
        try:
            if self._pruned_at == at:
                self._writer.execute("PRAGMA incremental_vacuum(2000)")
            if self._n_saves % CHECKPOINT_EVERY == 0:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            log.warning("store path=%s not_tidied=%s", self.path, error)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # after ENOSPC the transaction may be rolled back already
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _require_whole(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        error = sqlite3.DatabaseError(str(found))
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _CORRUPT_CODES


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _lock(path: Path, wait_s: float, stop: threading.Event) -> IO[str]:
    """Take the lock beside the store, so that two evaluators never share it."""
    name = _lock_path(path)
    try:
        file = name.open("a+", encoding="ascii")
    except OSError as error:
        raise StoreError(f"{name}: cannot be opened: {error.strerror}") from None
    deadline = time.monotonic() + wait_s
    is_told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            if time.monotonic() >= deadline or stop.is_set():
                file.close()
                raise StoreError(f"{path}: another evaluator (process {holder}) uses this store") from None
            if not is_told:
                log.warning("store path=%s standing_by=true holder=%s", path, holder)
                is_told = True
            stop.wait(0.2)
            continue
        with suppress(OSError):  # a full disk must not keep the lock from being taken
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        return file


def remove_store(path: Path) -> None:
    """Delete a store that nobody uses.

    Raises
    ------
    StoreError
        When it is in use or cannot be deleted.
    """
    with closing(_lock(path, 0.0, threading.Event())):
        try:
            for suffix in _SIDE_FILES:
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be deleted: {error.strerror}") from None

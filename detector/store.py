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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from detector.errors import StoreError
from detector.outcome import GroupEvent, Incident, Outcome, Transition
from detector.store_control import end_feedback, prune_mutes
from detector.store_read import StoreReader
from detector.store_schema import check_owner, migrate

log = logging.getLogger("oddnode.detector.store")

BUSY_TIMEOUT_S = 5.0
MAX_PENDING = 20_000
"""Transitions, incidents or group events kept in memory while the disk refuses them."""

CHECKPOINT_EVERY = 20
"""Saves between two truncations of the write-ahead log."""

PRUNE_EVERY_S = 3600.0
_SIDE_FILES = ("", "-wal", "-shm")
_CORRUPT_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

K = TypeVar("K")
V = TypeVar("V")

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Pending:
    """What is not on disk yet; the newest form of each thing."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    transitions: dict[tuple[str, float, str, str], Transition] = field(default_factory=dict)
    group_events: dict[str, GroupEvent] = field(default_factory=dict)
    snapshot: bytes | None = None
    at: float | None = None

    def add(self, outcome: Outcome, snapshot: bytes | None) -> int:
        """Merge one evaluation; return how many old things had to be given up."""
        self.incidents.update({incident.id: incident for incident in outcome.incidents})
        self.transitions.update({(t.incident_id, t.at, t.before, t.after): t for t in outcome.transitions})
        self.group_events.update({event.id: event for event in outcome.group_events})
        self.snapshot = snapshot or self.snapshot
        self.at = outcome.at if self.at is None else max(self.at, outcome.at)
        return _trim(self.incidents) + _trim(self.transitions) + _trim(self.group_events)


def _trim(things: dict[K, V]) -> int:
    """Give up the oldest beyond the bound."""
    lost = max(0, len(things) - MAX_PENDING)
    for key in list(things)[:lost]:
        del things[key]
    return lost


class Store(StoreReader):
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

    def __init__(
        self,
        path: Path,
        *,
        retention_s: float = 90 * 86400.0,
        lock_wait_s: float = 0.0,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(path)
        self._retention_s = retention_s
        self._guard = threading.RLock()
        self._pending = _Pending()
        self._n_saves = 0
        self._pruned_at = float("-inf")
        self._problem = ""
        self._is_closed = False
        self._opened: tuple[int, int] | None = None
        self._lock_file = _lock(path, lock_wait_s, stop or threading.Event())
        try:
            self._writer: sqlite3.Connection | None = self._open()
        except BaseException:
            self._lock_file.close()
            raise

    @property
    def problem(self) -> str:
        """Why the last save did not reach the disk, empty when it did."""
        return self._problem

    @property
    def n_pending(self) -> int:
        """Number of incidents, transitions and group events that wait to be written."""
        with self._guard:
            p = self._pending
            return len(p.incidents) + len(p.transitions) + len(p.group_events)

    def save(self, outcome: Outcome, snapshot: bytes | None = None) -> None:
        """Write one evaluation, and all that is pending, in one transaction.

        Parameters
        ----------
        outcome
            What the evaluation said.
        snapshot
            Learnt state to keep, None to leave the stored one.

        Raises
        ------
        StoreError
            When the disk refuses; everything stays pending and goes with the next save.
        """
        with self._guard:
            if self._is_closed:
                raise StoreError(f"{self.path}: is closed")
            lost = self._pending.add(outcome, snapshot)
            if lost:
                log.error("store path=%s given_up=%d reason=too_much_pending", self.path, lost)
            try:
                self._flush()
            except (sqlite3.Error, OSError, StoreError) as error:
                # a large blob must not hold back the incidents: it is made anew anyway
                self._pending.snapshot = None
                if not self._problem:
                    # one loud line when it begins, without a traceback
                    log.error("store path=%s not_written=%s", self.path, error)  # noqa: TRY400
                self._problem = f"{self.path}: cannot be written: {error}"
                raise StoreError(self._problem) from error
            if self._problem:
                log.warning("store path=%s written_again=true", self.path)
            self._problem = ""
            self._pending = _Pending()
            self._tidy(outcome.at)

    def apply(
        self,
        write: Callable[[sqlite3.Connection], None],
        incidents: Sequence[Incident] = (),
        transitions: Sequence[Transition] = (),
    ) -> None:
        """Make a small change between evaluations in one transaction: on disk when this returns.

        Parameters
        ----------
        write
            Does the writing; called once, inside the transaction.
        incidents, transitions
            Further changes of the same transaction; newer than what waits to be written.

        Raises
        ------
        StoreError
            When the disk refuses; nothing was changed.
        """
        with self._guard:
            if self._is_closed:
                raise StoreError(f"{self.path}: is closed")
            try:
                writer = self._writing()
                with _transaction(writer):
                    _put_incidents(writer, incidents)
                    _put_transitions(writer, transitions)
                    write(writer)
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{self.path}: cannot be written: {error}") from error
            # what waits since the disk refused must not undo this later
            for incident in incidents:
                if incident.id in self._pending.incidents:
                    self._pending.incidents[incident.id] = incident

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
            self._write()
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error):
                raise
            self._set_aside(str(error))
            self._write()

    def _write(self) -> None:
        connection, pending = self._writing(), self._pending
        with _transaction(connection):
            _put_incidents(connection, pending.incidents.values())
            _put_transitions(connection, pending.transitions.values())
            end_feedback(connection, pending.incidents.values())
            connection.executemany(
                "INSERT OR REPLACE INTO group_events VALUES (?,?,?,?,?)",
                [(e.id, e.pool, e.started_at, e.ended_at, _encode(e)) for e in pending.group_events.values()],
            )
            if pending.snapshot is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO state VALUES ('pipeline', ?, ?)", (pending.at, pending.snapshot)
                )
            connection.execute(
                "INSERT INTO meta VALUES ('last_evaluation', ?) "
                "ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
                (pending.at,),
            )

    def _writing(self) -> sqlite3.Connection:
        """Return the writer of the file that lies at the path now: it may have been deleted or replaced."""
        if self._writer is not None and _inode(self.path) != self._opened:
            log.error("store path=%s was_replaced=true: opened anew", self.path)
            self._writer.close()
            self._writer = None
        if self._writer is None:
            self._writer = self._open()
        return self._writer

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
        self._n_saves += 1
        if self._writer is None:
            return
        try:
            if at - self._pruned_at >= PRUNE_EVERY_S:
                self._pruned_at = at
                self._prune(self._writer, at - self._retention_s)
            if self._n_saves % CHECKPOINT_EVERY == 0:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            log.warning("store path=%s not_tidied=%s", self.path, error)

    @staticmethod
    def _prune(connection: sqlite3.Connection, before: float) -> None:
        with _transaction(connection):
            connection.execute(
                "DELETE FROM transitions WHERE incident_id IN "
                "(SELECT id FROM incidents WHERE state = 'cleared' AND cleared_at < ?)",
                (before,),
            )
            connection.execute("DELETE FROM incidents WHERE state = 'cleared' AND cleared_at < ?", (before,))
            connection.execute("DELETE FROM group_events WHERE ended_at < ?", (before,))
            prune_mutes(connection, before)
        connection.execute("PRAGMA incremental_vacuum(2000)")


def _put_incidents(connection: sqlite3.Connection, incidents: Iterable[Incident]) -> None:
    connection.executemany(
        "INSERT INTO incidents VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET "
        "node=excluded.node, state=excluded.state, active_at=excluded.active_at, "
        "suspect_at=excluded.suspect_at, cleared_at=excluded.cleared_at, "
        "peak_score=excluded.peak_score, body=excluded.body",
        [
            (i.id, i.node, i.state, i.active_at, i.suspect_at, i.cleared_at, i.peak_score, _encode(i))
            for i in incidents
        ],
    )


def _put_transitions(connection: sqlite3.Connection, transitions: Iterable[Transition]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO transitions (incident_id, at, before, after, node, reason) "
        "VALUES (?,?,?,?,?,?)",
        [(t.incident_id, t.at, t.before, t.after, t.node, t.reason) for t in transitions],
    )


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


def _lock(path: Path, wait_s: float, stop: threading.Event) -> IO[str]:
    """Take the lock beside the store, so that two evaluators never share it."""
    name = path.with_name(f"{path.name}.lock")
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

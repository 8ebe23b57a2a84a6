"""Writing a store: one evaluation in one transaction; what is refused waits for the next."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from detector.errors import StoreError
from detector.outcome import Incident, Outcome, Transition
from detector.store_contract import Statements
from detector.store_pending import Pending, prune, put_incidents, put_transitions
from detector.store_sql import SqlReader

log = logging.getLogger("oddnode.detector.store")

PRUNE_EVERY_S = 3600.0


class StoreWriter(SqlReader):
    """The one writer of a store, and a reader of it.

    Parameters
    ----------
    name
        Where it is kept, for messages; without secrets.
    retention_s
        Age at which cleared incidents and ended group events are deleted.
    """

    refusals: ClassVar[tuple[type[Exception], ...]]
    """What is raised when the store refuses."""

    def __init__(self, name: str, retention_s: float) -> None:
        SqlReader.__init__(self, name)
        self._refused: tuple[type[Exception], ...] = (*self.refusals, StoreError)
        self._retention_s = retention_s
        self._guard = threading.RLock()
        self._pending = Pending()
        self._pruned_at = float("-inf")
        self._problem = ""
        self._is_closed = False

    @property
    def problem(self) -> str:
        """Why the last save did not reach the disk, empty when it did."""
        return self._problem

    @property
    def n_pending(self) -> int:
        """Number of incidents, transitions and group events that wait to be written."""
        with self._guard:
            return len(self._pending)

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
            When the store refuses; everything stays pending and goes with the next save.
        """
        with self._guard:
            self._require_open()
            lost = self._pending.add(outcome, snapshot)
            if lost:
                log.error("store path=%s given_up=%d reason=too_much_pending", self.name, lost)
            try:
                self._flush()
            except self._refused as error:
                # a large blob must not hold back the incidents: it is made anew anyway
                self._pending.snapshot = None
                problem = self._told(error)
                if not self._problem:
                    # one loud line when it begins, without a traceback
                    log.error("store path=%s not_written=%s", self.name, problem)  # noqa: TRY400
                self._problem = f"{self.name}: cannot be written: {problem}"
                raise StoreError(self._problem) from error
            self._caught_up()
            self._tidy(outcome.at)

    def apply(
        self,
        write: Callable[[Statements], None],
        incidents: Sequence[Incident] = (),
        transitions: Sequence[Transition] = (),
    ) -> None:
        """Make a small change between evaluations in one transaction: on disk when this returns.

        What waits to be written goes first, so that no step of an incident is there without those before it.

        Parameters
        ----------
        write
            Does the writing; called once, inside the transaction.
        incidents, transitions
            Further changes of the same transaction; newer than what waited.

        Raises
        ------
        StoreError
            When the store refuses; nothing was changed.
        """
        with self._guard:
            self._require_open()
            try:
                with self._transaction() as to:
                    if self._pending.at is not None:
                        self._pending.write(to)
                    put_incidents(to, incidents)
                    put_transitions(to, transitions)
                    write(to)
            except self.refusals as error:
                raise StoreError(f"{self.name}: cannot be written: {self._told(error)}") from error
            self._caught_up()

    def _caught_up(self) -> None:
        if self._problem:
            log.warning("store path=%s written_again=true", self.name)
        self._problem = ""
        self._pending = Pending()

    @abstractmethod
    def close(self) -> None:
        """Write what is pending if possible, let others have the store."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Statements]:
        """Open the writer's transaction; raises one of `refusals` or `StoreError`."""

    def _flush(self) -> None:
        """Write what is pending."""
        with self._transaction() as to:
            self._pending.write(to)

    def _told(self, error: Exception) -> str:
        """Return an error as a text without secrets."""
        return str(error)

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.name}: is closed")

    def _tidy(self, at: float) -> None:
        """Delete what is old; never fails a save."""
        if at - self._pruned_at < PRUNE_EVERY_S:
            return
        self._pruned_at = at
        try:
            with self._transaction() as to:
                prune(to, at - self._retention_s)
        except self._refused as error:
            log.warning("store path=%s not_tidied=%s", self.name, self._told(error))

"""Reading a store file: short read-only transactions that never hold up the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from detector.errors import StoreError
from detector.store_contract import IncidentFilter
from detector.store_sql import MAX_ROWS, SqlReader

__all__ = ["CLEARED", "MAX_ROWS", "IncidentFilter", "StoreReader"]

READ_TIMEOUT_S = 2.0
CLEARED = "cleared"


class StoreReader(SqlReader):
    """Reads a store file; safe from any thread.

    Parameters
    ----------
    path
        SQLite file that a `Store` writes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a connection that changes nothing, and close it.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(
                sqlite3.connect(uri, uri=True, timeout=READ_TIMEOUT_S, isolation_level=None)
            ) as opened:
                yield opened
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be read: {error}") from error

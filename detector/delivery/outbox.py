"""Messages that wait for their receivers, in the store: what is out, what is to be told, who was told what.

Transactions are short: nothing is held between two calls, so a store that is moved aside is left at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from detector.delivery.ledger import Message, Out
from detector.store_contract import Tables

KEEP_S = 14 * 86400.0
"""Messages older than this are deleted; every receiver has been told, or given up, long before."""

_out = msgspec.json.Decoder(Out)
_message = msgspec.json.Decoder(Message)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Waiting:
    """The next message of a receiver.

    Parameters
    ----------
    seq
        Its number; numbers rise.
    made_at
        Clock time at which it was made, epoch seconds.
    message
        None when what is stored cannot be read.
    """

    seq: int
    made_at: float
    message: Message | None


class Outbox:
    """Reads and writes the tables of delivery; safe from any thread.

    Parameters
    ----------
    tables
        The store.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def out(self) -> dict[str, Out]:
        """Return what was told before, by key.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        with self._tables.reading() as connection:
            rows = connection.execute("SELECT key, body FROM told").fetchall()
        found = {}
        for key, body in rows:
            try:
                found[str(key)] = _out.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # written by another version: it is told anew when it is still open
        return found

    def record(self, out: Mapping[str, Out], messages: Sequence[Message], now: float) -> None:
        """Store what is out and what is to be told, together.

        Raises
        ------
        StoreError
            When the store cannot be written; nothing is then.
        """
        with self._tables.writing() as connection:
            connection.execute("DELETE FROM told")
            connection.executemany(
                "INSERT INTO told (key, body) VALUES (?1,?2)",
                [(key, _encode(item)) for key, item in out.items()],
            )
            connection.executemany(
                "INSERT INTO outbox (id, made_at, body) VALUES (?1,?2,?3) ON CONFLICT DO NOTHING",
                [(message.id, now, _encode(message)) for message in messages],
            )
            connection.execute("DELETE FROM outbox WHERE made_at < ?1", (now - KEEP_S,))

    def register(self, receivers: Sequence[str]) -> None:
        """Begin receivers that were not there before at what comes from now on; forget those that are gone.

        Raises
        ------
        StoreError
            When the store cannot be written.
        """
        with self._tables.writing() as connection:
            known = {
                str(name) for (name,) in connection.execute("SELECT receiver FROM told_up_to").fetchall()
            }
            connection.executemany(
                "DELETE FROM told_up_to WHERE receiver = ?1", [(name,) for name in known - set(receivers)]
            )
            connection.executemany(
                "INSERT INTO told_up_to (receiver, seq) "
                "VALUES (?1, (SELECT coalesce(max(seq), 0) FROM outbox)) ON CONFLICT DO NOTHING",
                [(receiver,) for receiver in receivers],
            )

    def next(self, receiver: str) -> Waiting | None:
        """Return the oldest message that a receiver was not told, None when there is none.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        sql = f"SELECT seq, made_at, body FROM outbox WHERE seq > {_UP_TO} ORDER BY seq LIMIT 1"  # noqa: S608
        with self._tables.reading() as connection:
            row = connection.execute(sql, (receiver,)).fetchone()
        if row is None:
            return None
        try:
            message = _message.decode(row[2])
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = None
        return Waiting(int(row[0]), float(row[1]), message)

    def waiting(self, receiver: str) -> tuple[int, float | None]:
        """Return how many messages wait for a receiver, and when the oldest was made.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        sql = f"SELECT count(*), min(made_at) FROM outbox WHERE seq > {_UP_TO}"  # noqa: S608
        with self._tables.reading() as connection:
            count, oldest = connection.execute(sql, (receiver,)).fetchone()
        return int(count), None if oldest is None else float(oldest)

    def done(self, receiver: str, seq: int) -> None:
        """Note that a receiver was told up to a message.

        Raises
        ------
        StoreError
            When the store cannot be written.
        """
        with self._tables.writing() as connection:
            connection.execute(
                "INSERT INTO told_up_to (receiver, seq) VALUES (?1,?2) "
                "ON CONFLICT (receiver) DO UPDATE SET seq = excluded.seq",
                (receiver, seq),
            )


_UP_TO = "coalesce((SELECT seq FROM told_up_to WHERE receiver = ?1), 0)"

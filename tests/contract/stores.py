"""Both stores behind their one interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from detector.errors import StoreError
from detector.postgres.address import Address
from detector.postgres.server import Server
from detector.postgres.store import PostgresStore, take_lead
from detector.store import Store
from detector.store_contract import Keeping

KINDS = ("sqlite", "postgresql")


def open_postgres(url: str, **options: float) -> PostgresStore:
    server = Server(Address(url))
    lead = take_lead(server)
    if lead is None:
        raise StoreError("another evaluator leads")
    return PostgresStore(server, lead, **options)


class Place:
    """One place of one kind, where a store is opened, closed and opened again."""

    def __init__(self, kind: str, folder: Path, new_database: Callable[[], str]) -> None:
        self.kind = kind
        self.path = folder / "oddnode.db"
        self.url = new_database() if kind == "postgresql" else ""
        self.opened: list[Keeping] = []

    def open(self, **options: float) -> Keeping:
        made: Keeping
        if self.kind == "postgresql":
            made = open_postgres(self.url, **options)
        else:
            made = Store(self.path, **options)
        self.opened.append(made)
        return made

    def refuse(self, store: Keeping, *, is_on: bool) -> None:
        """Have a store refuse to write, or write again."""
        if isinstance(store, Store):
            assert store._writer is not None
            store._writer.execute(f"PRAGMA query_only = {int(is_on)}")
        else:
            assert isinstance(store, PostgresStore)
            how = "RENAME TO hidden" if is_on else "RENAME TO incidents"
            with store._server.pooled("test", changes=True) as session:
                session.execute(f"ALTER TABLE {'incidents' if is_on else 'hidden'} {how}")

    def close(self) -> None:
        for store in self.opened:
            store.close()

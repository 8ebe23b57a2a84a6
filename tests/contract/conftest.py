from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.stores import KINDS, Place
from tests.servers import Postgres


@pytest.fixture(params=[KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where a store of each kind lies."""

    def new_database() -> str:
        server: Postgres = request.getfixturevalue("postgres_server")
        return server.new_database()

    made = Place(request.param, tmp_path, new_database)
    yield made
    made.close()

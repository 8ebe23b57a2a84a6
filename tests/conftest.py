"""Fixtures for everyone: real servers, one per test process where tests don't disturb each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers


@pytest.fixture(scope="session")
def vm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A VictoriaMetrics shared by the tests of one process; use metric names of your own."""
    with servers.victoria_metrics(tmp_path_factory.mktemp("vm")) as server:
        yield server


@pytest.fixture
def fresh_vm(tmp_path: Path) -> Iterator[servers.Server]:
    """An empty VictoriaMetrics for one test."""
    with servers.victoria_metrics(tmp_path / "vm") as server:
        yield server


@pytest.fixture
def fresh_prometheus(tmp_path: Path) -> Iterator[servers.Server]:
    """An empty Prometheus that takes remote writes, for one test."""
    with servers.prometheus(tmp_path / "prometheus", remote_write=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Postgres]:
    """A PostgreSQL shared by the tests of one process; take a database of your own."""
    with servers.postgres() as server:
        yield server


@pytest.fixture
def fresh_postgres() -> Iterator[servers.Postgres]:
    """A PostgreSQL for one test, that may be stopped."""
    with servers.postgres() as server:
        yield server

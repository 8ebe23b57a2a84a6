"""Fixtures for everyone: real servers, one per test process where tests don't disturb each other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from detector.service_log import LOGGER
from tests import servers


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that run inside a test set up logging for the process; the next test must not see it."""
    root, own = logging.getLogger(), logging.getLogger(LOGGER)
    levels = root.level, own.level
    yield
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]


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

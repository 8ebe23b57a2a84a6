"""Any request that the description allows, and many that it does not: no 5xx, and answers as described."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from api.access import Policy
from detector.settings import Settings
from detector.settings_auth import AuthSettings
from detector.what_if.trials import Trials
from tests.control_fakes import Cluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS: tuple[Callable[..., Any], ...] = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
MANY_ASKED = Policy(auth=AuthSettings(reads_per_minute=1_000_000, writes_per_minute=100_000))
ENDLESS = {"GET /v1/events"}
"""Answers that do not end; `tests/test_console.py` reads them."""

EXAMPLES = 15
"""Per operation and kind of data; all of it takes about a minute."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "oddnode.db").run(4)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_every_operation_answers_as_described(cluster: Cluster) -> None:
    tries = Trials(Settings, command=(sys.executable, "-c", ""))
    described = schemathesis.openapi.from_asgi("/openapi.json", cluster.app(MANY_ASKED, tries))
    everything = [found.ok() for found in described.get_all_operations()]
    operations = [operation for operation in everything if operation.label not in ENDLESS]
    assert len(everything) - len(operations) == len(ENDLESS)
    methods = {operation.method.upper() for operation in operations}
    assert methods >= {"GET", "POST", "DELETE"}
    assert len(operations) > 15
    wrong: list[str] = []
    statuses: set[int] = set()
    for operation in operations:
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            try:
                _ask(operation, mode, statuses)
            except* Exception as error:  # noqa: BLE001 - all operations are tried, then all is told
                wrong.append(f"{operation.label} {mode.value}: {error.exceptions}")
    assert wrong == []
    assert {200, 404, 422} <= statuses


def _ask(operation: Any, mode: Any, statuses: set[int]) -> None:
    cases = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(cases)
        # changes without a token are for those who call this machine by a name of its own
        response = case.call(headers={"Host": "localhost"})
        statuses.add(response.status_code)
        case.validate_response(response, checks=list(CHECKS))

    with suppress(Unsatisfiable):  # nothing can be wrong about a request without any parameter
        ask()

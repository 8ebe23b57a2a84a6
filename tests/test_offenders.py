"""Which nodes were suspects again and again: the ranking, its route and its command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.app import create_app
from api.offenders import EXAMPLE, OffendersOut
from detector.cli import app
from detector.cli_offenders import Ranking, lines
from detector.errors import OddnodeError
from detector.offenders import Offender, rank
from detector.outcome import Diagnosis, Incident, Outcome
from detector.service_view import Latest
from detector.store import Store
from tests.servers import listening
from tests.test_api import FakeView
from tests.test_store import incident

DAY = 86_400.0
NOW = 1_767_225_600.0


def named(node: str, days_ago: float, *, lasted: float | None = 3600.0, **fields: Any) -> Incident:
    """Make an incident that named a node so many days ago."""
    at = NOW - days_ago * DAY
    state = "suspect" if lasted is None else "cleared"
    cleared = None if lasted is None else at + lasted
    return incident(node, state, at - 60, **{"suspect_at": at, "cleared_at": cleared, **fields})


HISTORY = [
    named("twice", 20, part="gpu 3", diagnosis=Diagnosis("nvlink", "NVLink fault")),
    named("twice", 5, lasted=7200, part="", peak_score=5.0),
    named("thrice", 9),
    named("thrice", 8),
    named("thrice", 0.5, lasted=None),
    named("once", 1),
    named("longer", 3, lasted=10 * 3600),
    named("longer", 2, lasted=10 * 3600),
    named("old", 40),
    named("old", 45),
    incident("sign", "pending", NOW - DAY),
    incident("sign", "cleared", NOW - 2 * DAY, suspect_at=None),
]


def test_the_most_often_named_come_first_and_first_signs_and_old_times_do_not_count() -> None:
    found = rank(HISTORY, NOW - 30 * DAY, NOW)
    assert [(o.node, o.n_incidents) for o in found] == [
        ("thrice", 3),
        ("longer", 2),
        ("twice", 2),
        ("once", 1),
    ]
    twice = found[2]
    assert (twice.first_at, twice.last_at) == (NOW - 20 * DAY, NOW - 5 * DAY)
    assert (twice.suspect_s, twice.peak_score, twice.n_open) == (3600 + 7200, 5.0, 0)
    assert twice.parts == {"gpu 3": 1, "": 1}
    assert twice.classes == {"NVLink fault": 1, "unclassified": 1}
    assert (found[0].n_open, found[0].suspect_s) == (1, 2 * 3600 + 0.5 * DAY)


def test_only_the_time_looked_at_is_counted() -> None:
    (one,) = rank([named("a", 2, lasted=DAY)], NOW - 1.5 * DAY, NOW)
    assert one.suspect_s == 0.5 * DAY
    assert rank([named("a", 2, lasted=DAY)], NOW - 0.5 * DAY, NOW) == []
    assert rank([named("a", 2)], NOW - 30 * DAY, NOW - 5 * DAY) == [], "named later"
    assert rank([], 0, NOW) == []


@pytest.fixture
def view(tmp_path: Path) -> Iterator[FakeView]:
    store = Store(tmp_path / "oddnode.db", retention_s=400 * DAY)
    store.save(Outcome(NOW, incidents=tuple(HISTORY)))
    yield FakeView(store, Latest(Outcome(NOW)))
    store.close()


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("", ["thrice", "longer", "twice"]),
        ("?least=1", ["thrice", "longer", "twice", "once"]),
        ("?least=1&limit=1", ["thrice"]),
        ("?days=60", ["thrice", "longer", "twice", "old"]),
        ("?days=1.5&least=1", ["once", "thrice"]),
    ],
)
def test_the_route(view: FakeView, query: str, nodes: list[str]) -> None:
    with TestClient(create_app(view)) as client:
        body = client.get(f"/v1/offenders{query}").json()
    OffendersOut.model_validate(body)
    assert sorted(o["node"] for o in body["offenders"]) == sorted(nodes)
    assert (body["until"], body["is_complete"]) == (NOW, True)


def test_wrong_parameters_and_a_store_without_an_evaluation(view: FakeView, tmp_path: Path) -> None:
    with TestClient(create_app(view)) as client:
        for query in ("days=0", "days=nan", "least=0", "limit=1001"):
            assert client.get(f"/v1/offenders?{query}").status_code == 422
        view.now_latest = None
        assert client.get("/v1/offenders").json()["total"] == 3, "history is there from the start"
    empty = FakeView(Store(tmp_path / "empty.db"), None, ("filling the window",))
    with TestClient(create_app(empty)) as client:
        answer = client.get("/v1/offenders")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "filling the window")
    empty.store.close()  # type: ignore[attr-defined]


def test_the_example_is_what_the_schema_says() -> None:
    assert OffendersOut.model_validate(EXAMPLE).model_dump(mode="json") == EXAMPLE


def test_the_command(view: FakeView) -> None:
    with listening(create_app(view)) as url:
        result = CliRunner().invoke(app, ["offenders", "--url", url, "--limit", "2"])
    assert result.exit_code == 0, "a ranking is no alarm"
    first, _, thrice, _, more = result.output.splitlines()
    assert first.endswith("3 nodes were suspects 2 times or more")
    assert thrice.split()[:4] == ["3", "1", "14.0", "h"]
    assert "thrice: gpu 3 (3), unclassified (3)" in thrice
    assert more == "  and 1 more nodes"


def test_what_is_no_service_is_said() -> None:
    result = CliRunner().invoke(app, ["offenders", "--url", "http://127.0.0.1:9"])
    assert isinstance(result.exception, OddnodeError)
    assert "no answer" in str(result.exception)


def test_hostile_names_stay_on_their_line() -> None:
    evil = Offender("a\n\x1b[31m", 2, 0, 1.0, NOW, NOW, 1.0, {"\r": 1}, {})
    shown = lines(Ranking(NOW, NOW, 1, False, [evil]), 1)
    assert not any(c in line for line in shown for c in "\n\r\x1b")
    assert "older ones are not counted" in shown[-1]

"""The real service behind a proxy that makes trouble: 50 of the sequences of ``python -m tests.chaos``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from detector.errors import SourceDecode, SourceError, SourceStatus, SourceTimeout
from detector.outcome import Outcome
from detector.pipeline import Pipeline
from detector.source.base import Batch
from grouping.catalog import Catalog
from tests import servers
from tests.chaos import proxy as chaos
from tests.chaos.run import HASTY_S, Run, TwoTempers
from tests.chaos.scene import METRICS, PARAMETERS, SHORT, STEP, catalog, load_all
from tests.chaos.sequence import OUTAGE_STEPS, Sequence, draw
from tests.interner import DictInterner

pytestmark = pytest.mark.server

CHUNK = 10


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.victoria_metrics(tmp_path_factory.mktemp("vm")) as server:
        load_all(server)
        yield server.url


@pytest.fixture(scope="module")
def compared() -> Catalog:
    return catalog()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 50, CHUNK))
def test_no_trouble_makes_a_false_suspect_or_loses_the_true_one(
    first: int, database: str, compared: Catalog, tmp_path: Path
) -> None:
    n_failed = 0
    for seed in range(first, first + CHUNK):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run = Run(draw(seed), database, folder, compared)
        assert run.go() == []
        n_failed += run.n_failed
    assert n_failed > CHUNK


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (281, "a window is filled by several fetches, and the second one fails"),
        (401, "a damaged digit gives one GPU the index of another"),
    ],
)
def test_sequences_that_once_found_something(
    seed: int, what: str, database: str, compared: Catalog, tmp_path: Path
) -> None:
    assert Run(draw(seed), database, tmp_path, compared).go() == [], what


def test_the_sequences_meet_every_kind_of_trouble() -> None:
    drawn = [draw(seed) for seed in range(50)]
    assert {t.kind for sequence in drawn for t in sequence.troubles.values()} == set(chaos.KINDS)
    assert any(len(sequence.troubles) >= OUTAGE_STEPS for sequence in drawn)
    assert any(sequence.restarts for sequence in drawn)
    assert any(sequence.asleep for sequence in drawn)
    assert draw(7) == draw(7)


def fetched(database: str, trouble: chaos.Trouble | None, kind: str, *, seed: int = 1) -> Batch:
    """Ask for one step through the proxy, after a question without trouble."""
    at_ms = round(SHORT.at(0) * 1000)
    with chaos.Proxy(database, seed) as proxy:
        source = TwoTempers(proxy, Sequence(0, SHORT, kind), [])
        try:
            source.fetch(METRICS, at_ms - 60_000, at_ms - 30_000, DictInterner())
            proxy.make(trouble)
            return source.fetch(METRICS, at_ms - 30_000, at_ms, DictInterner())
        finally:
            assert proxy.met() == ([] if trouble is None else [trouble.kind])
            source.close()


ERRORS = {
    "silence": SourceTimeout,
    "drip": SourceTimeout,
    "status": SourceStatus,
    "too_many_requests": SourceStatus,
    "cut": SourceDecode,
    "cut_inside_a_line": SourceDecode,
    "page": SourceDecode,
    "reset": SourceError,
    "reset_inside": SourceError,
}


@pytest.mark.parametrize("kind", ["victoriametrics", "prometheus"])
@pytest.mark.parametrize("trouble", sorted(chaos.FAILING))
def test_each_trouble_that_can_be_noticed_is_an_error_of_its_kind(
    trouble: str, kind: str, database: str
) -> None:
    with pytest.raises(ERRORS[trouble]):
        fetched(database, chaos.Trouble(trouble), kind)


@pytest.mark.parametrize("kind", ["victoriametrics", "prometheus"])
def test_each_trouble_that_cannot_be_noticed_does_what_it_says(kind: str, database: str) -> None:
    whole = fetched(database, None, kind)
    assert len(whole.series) > 100
    assert len(fetched(database, chaos.Trouble("late"), kind).series) == len(whole.series)
    assert len(fetched(database, chaos.Trouble("stale"), kind).series) == 0
    assert 0 < len(fetched(database, chaos.Trouble("missing"), kind).series) < len(whole.series)
    damaged = 0
    for seed in range(8):
        try:
            found = fetched(database, chaos.Trouble("corrupt_digits"), kind, seed=seed)
        except SourceError:
            damaged += 1
        else:
            damaged += len(found.values) != len(whole.values) or not np.array_equal(
                np.sort(found.values), np.sort(whole.values)
            )
    assert damaged > 0
    if kind == "prometheus":
        found = fetched(database, chaos.Trouble("partial"), kind)
        assert found.is_partial
        assert 0 < len(found.series) < len(whole.series)


class ForgetsOnGaps(Pipeline):
    """Takes an answer without samples for health."""

    def evaluate(self, batch: Batch, at: float, *, judge: bool = True) -> Outcome:
        if not len(batch.series):
            self.open.clear()
        return super().evaluate(batch, at, judge=judge)


def test_the_checks_notice_an_incident_that_a_gap_ends(
    database: str, compared: Catalog, tmp_path: Path
) -> None:
    troubles = {28: chaos.Trouble("stale")}
    sound = Run(Sequence(-1, SHORT, troubles=troubles), database, tmp_path / "sound", compared)
    sick = Run(
        Sequence(-1, SHORT, troubles=troubles), database, tmp_path / "sick", compared,
        lambda entries: ForgetsOnGaps(entries, PARAMETERS),
    )  # fmt: skip
    for run in (sound, sick):
        run.folder.mkdir()
    assert sound.go() == []
    assert sick.go() != []


def test_the_checks_notice_a_sound_node_that_is_named_and_a_fault_that_is_not(
    database: str, compared: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To checks that take another node for the faulty one, a right service is wrong in both ways."""
    monkeypatch.setattr("tests.chaos.run.FAULTY", "gpu001")
    said = " ".join(Run(Sequence(-1, SHORT), database, tmp_path, compared).go())
    assert "gpu003 is a suspect and is sound" in said
    assert "the fault is not named" in said


def test_the_checks_notice_answers_that_are_taken_in_part(
    database: str, compared: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lenient(self: TwoTempers, names: object, start_ms: int, end_ms: int, interner: object) -> Batch:
        try:
            return self._patient.fetch(names, start_ms, end_ms, interner)  # type: ignore[arg-type]
        except SourceError:
            none = np.zeros(0)
            return Batch(none.astype(np.int32), none.astype(np.int64), none)

    monkeypatch.setattr(TwoTempers, "fetch", lenient)
    troubles = {12: chaos.Trouble("cut")}
    said = Run(Sequence(-1, SHORT, troubles=troubles), database, tmp_path, compared).go()
    assert any("the tick took what it got for an answer" in sentence for sentence in said)


def test_time_outs_are_shorter_than_a_step() -> None:
    assert HASTY_S < STEP

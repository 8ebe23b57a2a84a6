"""A real node_exporter, scraped by a real vmagent, through grouping and scoring: nothing is unexplained."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from detector.core.parameters import Parameters
from detector.outcome import Outcome, Status, Transition
from detector.pipeline import Pipeline
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from grouping.catalog import load_catalog
from tests import servers
from tests.end_to_end import now_s, on_grid

pytestmark = [pytest.mark.server, pytest.mark.slow]

STEP = 2.0
N_SCRAPES = 66
N_STEPS = 28
"""Evaluations: fewer than were scraped, so that every one of them has samples."""
FLEET = tuple(f"host{k}" for k in range(5))


@dataclass(frozen=True)
class Scraped:
    """A database, and the newest evaluation time for which it has all samples."""

    url: str
    end: float


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """One machine as itself and as a fleet of five, scraped as often as in half an hour otherwise."""
    folder = tmp_path_factory.mktemp("exporter")
    with (
        servers.running(
            "prometheus-node-exporter",
            folder / "exporter",
            lambda port: [f"--web.listen-address=127.0.0.1:{port}"],
            "/metrics",
        ) as exporter,
        servers.victoria_metrics(folder / "vm", "-search.latencyOffset=0s") as vm,
    ):
        target = f"targets: ['127.0.0.1:{exporter.port}']"
        fleet = "\n".join(
            f"  - {target}\n    labels: {{node: {name}, instance: '{name}:9100'}}" for name in FLEET
        )
        config = (
            "global: {scrape_interval: 1s}\nscrape_configs:\n"
            f"- job_name: alone\n  static_configs:\n  - {target}\n"
            f"- job_name: fleet\n  static_configs:\n{fleet}\n"
        )
        with servers.vmagent(folder / "agent", config, vm.url):
            source = open_source(SourceOptions(url=vm.url))
            asked = "min(count_over_time(up[1h]))"
            servers.wait_until(
                lambda: any(value >= N_SCRAPES for _, value in source.query(asked, now_s())),
                f"{N_SCRAPES} scrapes",
                N_SCRAPES + 60,
            )
            source.close()
        yield Scraped(vm.url, on_grid(now_s() - 1.0, STEP))


@dataclass
class Passed:
    """What came out, and everything that was said about the data on the way."""

    pipeline: Pipeline
    outcomes: list[Outcome]
    notes: set[str]
    dropped: Counter[str]

    @property
    def suspected(self) -> list[Transition]:
        return [t for outcome in self.outcomes for t in outcome.transitions if t.after == "suspect"]


def through(database: Scraped, job: str) -> Passed:
    """Evaluate every step of the scraped time."""
    parameters = Parameters(step_s=STEP, continuity_s=15.0, absence_after_s=15.0)
    pipeline = Pipeline(load_catalog(), parameters)
    source = open_source(SourceOptions(url=database.url, extra_filters=(f'{{job="{job}"}}',)))
    passed = Passed(pipeline, [], set(), Counter())
    for k in range(-N_STEPS + 1, 1):
        at = database.end + k * STEP
        batch = source.fetch(pipeline.names(), round((at - STEP) * 1000), round(at * 1000), pipeline.interner)
        passed.notes.update(batch.notes)
        passed.dropped.update(batch.dropped)
        passed.outcomes.append(pipeline.evaluate(batch, at))
    source.close()
    return passed


EXPLAINED = {
    "virtual interface left out",
    "virtual disk or partition left out",
    "pseudo file system left out",  # where the machine has mounted one
    "not in catalog",
}


def check_passage(passed: Passed, n_machines: int) -> None:
    """Nothing was dropped, doubted or refused without a reason that is known and right."""
    assert passed.notes == set()
    assert passed.dropped == {}
    assert not any(outcome.is_partial for outcome in passed.outcomes)
    index = passed.pipeline.interner
    assert set(index.refused) <= EXPLAINED
    names = {msgspec.json.decode(key)["__name__"] for key, code in index.codes.items() if code < 0}
    outside = names - set(load_catalog().by_name)
    assert outside == {"node_uname_info"}, "asked for because it tells who is who"
    assert index.refused["not in catalog"] == n_machines
    units = {group.unit: group for group in passed.pipeline.groups()}
    assert units.keys() >= {"node", "network_device", "collector", "cpu_core"}
    assert units["node"].n_signals > 100
    assert passed.suspected == []


def test_a_fleet_is_compared_and_nobody_suspected(database: Scraped) -> None:
    passed = through(database, "fleet")
    check_passage(passed, len(FLEET))
    last = passed.outcomes[-1]
    assert [v.node for v in sorted(last.verdicts, key=lambda v: v.node)] == list(FLEET)
    statuses = {v.node: (v.status, v.reason) for v in last.verdicts}
    assert {status for status, _ in statuses.values()} <= {Status.CLEAR, Status.PENDING}, statuses
    assert all(group.n_nodes == len(FLEET) for group in passed.pipeline.groups())
    assert not any(group.undetermined for group in passed.pipeline.groups())
    # the one doubt is right: five names for one machine that has one name of its own
    doubts = {(finding.kind, finding.node) for outcome in passed.outcomes for finding in outcome.data_quality}
    assert doubts == {("identity_conflict", "")}
    (conflict,) = passed.pipeline.identity.conflicts()
    assert conflict.kind == "name with two names"
    assert set(conflict.values) <= set(FLEET)


def test_a_single_machine_is_undetermined_and_says_why(database: Scraped) -> None:
    passed = through(database, "alone")
    check_passage(passed, 1)
    for outcome in passed.outcomes:
        (verdict,) = outcome.verdicts
        assert verdict.node == platform.node().partition(".")[0], "named by itself, not by its address"
        assert (verdict.status, verdict.reason) == (Status.UNDETERMINED, "fewer than 3 peers")
        assert outcome.undetermined == {"fewer than 3 peers": 1}
        assert outcome.data_quality == ()
        assert outcome.incidents == ()
    assert {group.undetermined for group in passed.pipeline.groups()} == {"fewer than 3 peers"}
    assert passed.pipeline.identity.conflicts() == []

"""The service's own metrics, in a registry of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from detector.outcome import Outcome, Status, Transition
from detector.telemetry_delivery import DeliveryTelemetry
from detector.telemetry_reload import ReloadTelemetry

LEADER_HELP = (
    "1 when this replica evaluates and writes (always, with a store file), 0 when it stands by; "
    "then it is the only metric."
)
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
MAX_LABEL_CHARS = 200
MAX_NODES = 10_000
"""Nodes with series of their own at most, suspects first: names come from outside."""


@dataclass(frozen=True, slots=True)
class TickTimes:
    """Seconds that one tick spent in each phase, and what it read."""

    fetch_s: float = 0.0
    evaluate_s: float = 0.0
    store_s: float = 0.0
    duration_s: float = 0.0
    n_samples: int = 0
    n_bytes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


class Telemetry:
    """Counts and measures ticks.

    Parameters
    ----------
    version
        Version of Oddnode.
    catalog_sha256
        Hash of the catalog in use.
    """

    def __init__(self, version: str = "", catalog_sha256: str = "") -> None:
        registry = self.registry = CollectorRegistry()
        self._build = Gauge(
            "oddnode_build_info",
            "Always 1; the version, and the first 12 digits of the catalog's hash.",
            ("version", "catalog"),
            registry=registry,
        )
        self._version = version
        self.judges_by(catalog_sha256)
        self._leader = Gauge(
            "oddnode_leader",
            LEADER_HELP,
            registry=registry,
        )
        self._leader.set(1)
        self._ticks = Counter("oddnode_ticks", "Ticks that ended with an evaluation.", registry=registry)
        self._evaluations = Counter(
            "oddnode_evaluations",
            "Evaluation times that were judged. More than ticks after a gap was caught up; times "
            "that are only learnt from are not counted.",
            registry=registry,
        )
        self._missed = Counter(
            "oddnode_ticks_missed",
            "Evaluation times without a tick of their own, because the tick before took too long. "
            "They are still evaluated, by the next tick.",
            registry=registry,
        )
        self._failed = Counter(
            "oddnode_ticks_failed",
            "Ticks that failed, by kind. No incident changed by them.",
            ("kind",),
            registry=registry,
        )
        self._partial = Counter(
            "oddnode_ticks_partial", "Judged evaluations on data that may be incomplete.", registry=registry
        )
        self._duration = Histogram(
            "oddnode_tick_duration_seconds",
            "Time of one tick: fetch, evaluate, store, and all.",
            ("phase",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._samples = Counter("oddnode_samples_read", "Samples read.", registry=registry)
        self._bytes = Counter(
            "oddnode_bytes_read",
            "Bytes read from the database; 0 when a recording is played.",
            registry=registry,
        )
        self._dropped = Counter(
            "oddnode_samples_dropped",
            "Samples or series that the source left out.",
            ("reason",),
            registry=registry,
        )
        self._transitions = Counter(
            "oddnode_transitions",
            "Transitions of incidents, by the state that they lead to.",
            ("after",),
            registry=registry,
        )
        self._store_failed = Counter(
            "oddnode_store_failures", "Evaluations that could not be stored at once.", registry=registry
        )
        self._pending_writes = Gauge(
            "oddnode_store_pending",
            "Incidents, transitions and group events that wait to be written.",
            registry=registry,
        )
        self._age = Gauge(
            "oddnode_data_age_seconds",
            "Age of the newest published evaluation time, computed at each scrape. NaN before the first.",
            registry=registry,
        )
        self._success = Gauge(
            "oddnode_last_success_timestamp_seconds",
            "Clock time of the last tick that ended with an evaluation.",
            registry=registry,
        )
        self._series = Gauge("oddnode_series", "Series that are compared.", registry=registry)
        self._cells = Gauge(
            "oddnode_cells",
            "Signals of members that are compared, means over a node's parts included.",
            registry=registry,
        )
        self._groups = Gauge(
            "oddnode_groups", "Peer groups (blocks of one pool and one comparison unit).", registry=registry
        )
        self._suspects = Gauge(
            "oddnode_suspects",
            "Suspect nodes, those that no longer send data included. After a restart those of the store, "
            "until the first evaluation.",
            registry=registry,
        )
        self._pending = Gauge("oddnode_pending", "Nodes with a first sign.", registry=registry)
        self._suspect = Gauge(
            "oddnode_suspect",
            "1 when the node is a suspect, else 0. Nodes that are gone have no series.",
            ("node",),
            registry=registry,
        )
        self._score = Gauge(
            "oddnode_score", "Fused evidence of the node; 1 is the threshold.", ("node",), registry=registry
        )
        self._since = Gauge(
            "oddnode_suspect_since_timestamp_seconds",
            "Time of the first sign of a suspect. Suspects only.",
            ("node",),
            registry=registry,
        )
        self._muted = Gauge(
            "oddnode_suspect_muted",
            "1 when a suspect is muted, else 0. Suspects only; a mute shows with the next evaluation.",
            ("node",),
            registry=registry,
        )
        self._config = Gauge(
            "oddnode_config_info",
            "1; the first 12 digits of the hash of the settings in effect, secrets masked. It "
            "differs between two processes when their settings do, and changes with a reload.",
            ("sha256",),
            registry=registry,
        )
        self._undetermined = Gauge(
            "oddnode_undetermined", "Nodes that cannot be judged, by reason.", ("reason",), registry=registry
        )
        self._group_events = Gauge("oddnode_group_events", "Open group events.", registry=registry)
        self._data_quality = Gauge(
            "oddnode_data_quality", "Findings about the monitoring, by kind.", ("kind",), registry=registry
        )
        self._raised = Gauge(
            "oddnode_suspects_raised_30d",
            "Suspects raised in the last 30 days, by the store; counted at each scrape. NaN while the store "
            "cannot be read. What is over oddnode_calibration_budget_per_month and "
            "oddnode_calibration_expected_per_month is faults, or a calibration to be made anew.",
            registry=registry,
        )
        self._raised.set(math.nan)
        self._calibration = Gauge(
            "oddnode_calibration_info",
            "1 with a calibration; the first 12 digits of the hash of the catalog it was made "
            "for. No series without one.",
            ("catalog",),
            registry=registry,
        )
        self._budget = Gauge(
            "oddnode_calibration_budget_per_month",
            "False alarms per cluster and month that the calibration in use aims at. NaN without one.",
            registry=registry,
        )
        self._budget.set(math.nan)
        self._expected = Gauge(
            "oddnode_calibration_expected_per_month",
            "False alarms per month by peer evidence that the calibration expects. NaN without one.",
            registry=registry,
        )
        self._expected.set(math.nan)
        self.delivery = DeliveryTelemetry(registry)
        self.reload = ReloadTelemetry(registry)
        self._nodes: set[str] = set()
        self._named: set[str] = set()
        self._reasons: set[str] = set()
        self._kinds: set[str] = set()

    def lost_lead(self) -> None:
        """Note that another replica has taken over."""
        self._leader.set(0)

    def watch_age(self, age_s: Callable[[], float]) -> None:
        """Let the age of the data be asked for at every scrape."""
        self._age.set_function(age_s)

    def watch_raised(self, count: Callable[[], float]) -> None:
        """Let the suspects raised in the last 30 days be counted at every scrape."""
        self._raised.set_function(count)

    def judges_by(self, catalog_sha256: str) -> None:
        """Tell which catalog is in use."""
        self._build.clear()
        self._build.labels(self._version, catalog_sha256[:12]).set(1)

    def calibrated(self, catalog_sha256: str, budget: float, expected: float) -> None:
        """Tell which calibration is in use; rates per cluster and month."""
        self._calibration.clear()
        self._calibration.labels(catalog_sha256[:12]).set(1)
        self._budget.set(budget)
        self._expected.set(expected)

    def not_calibrated(self) -> None:
        """Tell that no calibration is in use."""
        self._calibration.clear()
        self._budget.set(math.nan)
        self._expected.set(math.nan)

    def configured(self, settings: Mapping[str, object]) -> None:
        """Tell which settings are in use; secrets are masked, so a changed one does not change the hash."""
        text = json.dumps(settings, sort_keys=True)
        self._config.clear()
        self._config.labels(sha256(text.encode()).hexdigest()[:12]).set(1)

    def missed(self, count: int) -> None:
        """Count evaluation times that had no tick."""
        self._missed.inc(count)

    def failed(self, kind: str) -> None:
        """Count a failed tick; kinds are few and fixed."""
        self._failed.labels(kind).inc()

    def ticked(self, times: TickTimes, now: float) -> None:
        """Count an evaluated tick."""
        self._ticks.inc()
        self._success.set(now)
        for phase, seconds in (
            ("fetch", times.fetch_s),
            ("evaluate", times.evaluate_s),
            ("store", times.store_s),
            ("all", times.duration_s),
        ):
            self._duration.labels(phase).observe(seconds)
        self._samples.inc(times.n_samples)
        self._bytes.inc(times.n_bytes)
        for reason, count in times.dropped.items():
            self._dropped.labels(reason[:MAX_LABEL_CHARS]).inc(count)

    def stored(self, n_pending: int, *, failed: bool) -> None:
        """Note how saving an evaluation went."""
        self._pending_writes.set(n_pending)
        if failed:
            self._store_failed.inc()

    def judged(self, outcome: Outcome) -> None:
        """Show what the newest evaluation says."""
        self._evaluations.inc()
        if outcome.is_partial:
            self._partial.inc()
        for transition in outcome.transitions:
            self.moved(transition)

    def moved(self, transition: Transition) -> None:
        """Count a step of an incident."""
        self._transitions.labels(transition.after).inc()

    def restored(self, n_suspects: int) -> None:
        """Show how many nodes were suspects before a restart, until there is an evaluation."""
        self._suspects.set(n_suspects)

    def show(self, outcome: Outcome, suspects: Mapping[str, float], muted: Collection[str]) -> None:
        """Set the gauges that describe an evaluation; nodes that are gone are taken away.

        Parameters
        ----------
        outcome
            Newest evaluation.
        suspects
            Suspect nodes, those included that no longer send data, with the time of their first sign,
            epoch seconds.
        muted
            Those of them that shall call nobody for now.
        """
        self._series.set(outcome.n_series)
        self._cells.set(outcome.n_cells)
        self._groups.set(outcome.n_groups)
        states = [verdict.status for verdict in outcome.verdicts]
        self._suspects.set(len(suspects))
        self._pending.set(states.count(Status.PENDING))
        self._group_events.set(sum(event.ended_at is None for event in outcome.group_events))
        scores = {**dict.fromkeys(suspects, 0.0), **{v.node: v.score for v in outcome.verdicts}}
        scores = dict(islice(scores.items(), MAX_NODES))
        for node, score in scores.items():
            self._suspect.labels(node).set(node in suspects)
            self._score.labels(node).set(score)
        nodes = set(scores)
        for node in self._nodes - nodes:
            self._suspect.remove(node)
            self._score.remove(node)
        self._nodes = nodes
        named = nodes & suspects.keys()
        for node in self._named - named:
            self._since.remove(node)
            self._muted.remove(node)
        for node in named:
            self._muted.labels(node).set(node in muted)
            self._since.labels(node).set(suspects[node])
        self._named = named
        self._reasons = _set_all(self._undetermined, outcome.undetermined, self._reasons)
        kinds: dict[str, int] = {}
        for finding in outcome.data_quality:
            kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
        self._kinds = _set_all(self._data_quality, kinds, self._kinds)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def _set_all(gauge: Gauge, values: Mapping[str, int], before: set[str]) -> set[str]:
    for name in before - set(values):
        gauge.labels(name).set(0)
    for name, value in values.items():
        gauge.labels(name).set(value)
    return before | set(values)

"""The parts of a running service that a change of settings replaces."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from api.access import Entrance, Policy
from detector.app_door import Door
from detector.app_parts import Judging, Parts
from detector.calibration.model import MONTH_S
from detector.control.desk import Desk
from detector.coverage import coverage
from detector.delivery.delivery import Delivery
from detector.errors import StoreError
from detector.explain import explain
from detector.export import Exporter, Known
from detector.outcome import Outcome, Status
from detector.past import Past
from detector.pipeline import Pipeline
from detector.read_metric import MetricReader
from detector.reload import Change
from detector.reporter import Reporter
from detector.service import Service
from detector.service_contracts import ServiceHooks, Successor
from detector.service_log import configure_logging
from detector.service_operators import Operated
from detector.service_pools import PoolQuery
from detector.service_recorded import Recorded
from detector.service_standby import show_others
from detector.service_view import Latest
from detector.settings import Settings
from detector.settings_change import JUDGING, applicable, differences
from detector.store_contract import Keeping, Shared
from detector.telemetry import Telemetry
from detector.tokens import Tokens
from detector.what_if.trials import Trials

log = logging.getLogger("oddnode.detector.app")

MAX_EXPLAINED = 20
"""Nodes whose reasons are kept of each evaluation of a recording."""

PAST_S = 8 * 86400.0
"""A try reaches back a week and what is read before it: mutes that were over then are of no interest."""


class Running:
    """A service with delivery and interface, under settings that may change (see `reload.Reloadable`).

    Parameters
    ----------
    settings
        In effect at start.
    files
        Content of the files that they name, by digest.
    parts
        Source, clock, and what makes pipelines.
    judging
        The first one.
    store
        Keeps incidents.
    telemetry
        Own metrics.
    desk
        Takes operators' requests.
    door, tokens
        Where requests come in, and who may.
    version
        Of this program.
    """

    def __init__(
        self,
        settings: Settings,
        files: Mapping[Path, str],
        parts: Parts,
        judging: Judging,
        store: Keeping,
        telemetry: Telemetry,
        desk: Desk,
        door: Door,
        tokens: Tokens,
        version: str,
    ) -> None:
        self._settings = settings
        self._files = files
        self._parts = parts
        self._pipeline = judging.pipeline
        self._store = store
        self._telemetry = telemetry
        self._desk = desk
        self._door = door
        self._tokens = tokens
        self.watch: Callable[[Outcome], None] | None = None
        """Called with every judged outcome, after it was handed to delivery."""

        self.before_tick: Callable[[], None] = lambda: None
        """Called between two ticks."""

        self._watch_raised()
        self._show(judging)
        telemetry.configured(settings.describe())
        judging.pipeline.mutes = desk.detection_mutes
        self.delivery = self._make_delivery(settings)
        self.recorded = None
        if (played := parts.recording) is not None:
            self.recorded = Recorded(played.id, played.start, played.end, float(played.step_s))
        self.service = Service(
            parts.schedule,
            parts.open_source,
            judging.pipeline,
            store,
            telemetry,
            parts.clock,
            begin=parts.begin,
            snapshot_s=settings.store.snapshot_s,
            hooks=ServiceHooks(
                self._pool_query(settings, judging.pipeline),
                self._published,
                partial(explain, judging.pipeline),
                partial(coverage, judging.pipeline),
                desk,
                lambda: self.before_tick(),
                self.recorded,
            ),
        )
        desk.attach(Operated(self.service, judging.pipeline.catalog.by_name))
        self.entrance = Entrance(self._policy(settings))
        self.trials = Trials(lambda: self._settings, lambda: desk.ledger.mutes(parts.clock.now() - PAST_S))
        reader = MetricReader(parts.open_another, lambda: self._pipeline, lambda: self._settings)
        self.past = Past(reader, lambda: self._pipeline, self.service, self.recorded)
        known = partial(self._known, version)
        self.reporter = Reporter(self.past, self.service, lambda: self._pipeline, known, desk.ledger)
        self.exporter = Exporter(parts.open_another, known, store, desk.ledger, parts.clock.now)

    @property
    def settings(self) -> Settings:
        """Settings in effect."""
        return self._settings

    def prepare(self, wanted: Settings, files: Mapping[Path, str]) -> Change:
        """Check and build what differs; changes nothing.

        Raises
        ------
        OddnodeError, CatalogError
            When something cannot be used.
        """
        in_effect = self._settings
        settings = applicable(in_effect, wanted)
        changed = differences(in_effect, settings)
        sections = {name.partition(".")[0] for name in changed}
        is_judged_anew = bool(sections & JUDGING) or files != self._files
        return Change(
            settings,
            changed,
            differences(settings, wanted),
            files,
            self._parts.judging(settings) if is_judged_anew else None,
            Tokens(settings.auth) if "auth" in sections else None,
        )

    def take_over(self, change: Change) -> None:
        """Take a change over between two ticks, from their thread; what raises has changed nothing."""
        settings, before = change.settings, self._settings
        delivery = self._make_delivery(settings) if settings.delivery != before.delivery else None
        if change.judging is not None:
            self._judge_by(change.judging, settings)
        if delivery is not None:
            self._deliver_by(delivery)
        self._settings = settings
        self._files = change.files
        if change.tokens is not None:
            self._tokens = change.tokens
            self.entrance.replace(self._policy(settings))
        if settings.log != before.log:
            configure_logging(settings.log.level, settings.log.format)
        self._telemetry.configured(settings.describe())

    def _judge_by(self, judging: Judging, settings: Settings) -> None:
        old, new = self._pipeline, judging.pipeline
        new.mutes = self._desk.detection_mutes
        if settings.pools.query == self._settings.pools.query:
            new.declared = old.declared

        def take_up() -> Sequence[str]:
            return new.take_up(old)

        query, why = self._pool_query(settings, new), partial(explain, new)
        self.service.go_on_with(Successor(new, take_up, query, why, partial(coverage, new)))
        self._pipeline = new
        if self.recorded is not None:
            self.recorded.begin_era(old.interner, old.yardstick())
        self._desk.attach(Operated(self.service, new.catalog.by_name))
        self._show(judging)

    def _deliver_by(self, delivery: Delivery) -> None:
        gone = self.delivery.receivers - delivery.receivers
        if not self.delivery.finish():
            log.warning("config delivery_still_sends=true: a message under way may be sent twice")
        for receiver in gone:
            self._telemetry.delivery.end(receiver)
        self.delivery = delivery
        delivery.start()

    def _published(self, outcome: Outcome) -> None:
        self._desk.observe(outcome)
        latest = self.service.latest()
        if latest is not None:
            if self.recorded is not None:
                self._keep(self.recorded, latest)
            self.delivery.feed(outcome, latest.suspects)
            if isinstance(self._store, Shared):
                show_others(self._store, latest)
        if self.watch is not None:
            self.watch(outcome)

    def _keep(self, recorded: Recorded, latest: Latest) -> None:
        """Keep an evaluation, with the reasons of nodes that are not clear; from the tick's thread."""
        pipeline = self._pipeline
        odd = [v.node for v in latest.outcome.verdicts if v.status in (Status.SUSPECT, Status.PENDING)]
        explained = {
            node: told for node in odd[:MAX_EXPLAINED] if (told := explain(pipeline, node)) is not None
        }
        frame = next(iter(pipeline.window.frames()[-1:]), None)
        recorded.keep(latest, coverage(pipeline), explained, frame)

    def _known(self, version: str) -> Known:
        latest, pipeline = self.service.latest(), self._pipeline
        nodes = () if latest is None else tuple(verdict.node for verdict in latest.outcome.verdicts)
        step_s = float(self._parts.schedule.step_s)
        known = Known(pipeline.names(), nodes, step_s, version, pipeline.catalog.sha256)
        if (played := self._parts.recording) is None:
            return known
        made = str(played.provenance.get("made") or known.made)
        return replace(known, origin=f"a service that played the recording {played.id}", made=made)

    def _make_delivery(self, settings: Settings) -> Delivery:
        return Delivery(
            settings.delivery, self._store, self._parts.clock.now, self._telemetry.delivery,
            muted=self._desk, is_shadow=settings.recording.path is not None,  # what is played calls nobody
        )  # fmt: skip

    def _pool_query(self, settings: Settings, pipeline: Pipeline) -> PoolQuery:
        return PoolQuery(settings.pools, pipeline, self._parts.schedule.pool_query_s)

    def _policy(self, settings: Settings) -> Policy:
        is_local = self._door.is_local
        if not self._tokens.are_set and not is_local:
            log.warning(
                "access open=true url=%s: anybody may read, nobody may change; see auth.tokens",
                self._door.url(),
            )
        return Policy(self._tokens, is_local, settings.auth)

    def _show(self, judging: Judging) -> None:
        self._telemetry.judges_by(judging.catalog_sha256)
        if (made := judging.calibration) is None:
            self._telemetry.not_calibrated()
        else:
            self._telemetry.calibrated(made.catalog_sha256, made.budget_per_month, made.expected.per_month)

    def _watch_raised(self) -> None:
        def raised() -> float:
            try:
                return float(self._store.count_raised(self._parts.clock.now() - MONTH_S))
            except StoreError:
                return math.nan  # a scrape must not fail for it

        self._telemetry.watch_raised(raised)

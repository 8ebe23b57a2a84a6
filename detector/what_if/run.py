"""The same hours through two pipelines, sample by sample; the same code as `serve` and `replay`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from detector.calibration.chosen import choose
from detector.calibration.history import Rules, Stretch, batches, calibrate
from detector.calibration.learn import thresholds_of
from detector.control.model import Mute
from detector.core.thresholds import Thresholds
from detector.discover import catalog_for_recording
from detector.errors import OddnodeError, SourceError
from detector.outcome import GroupEvent, Incident, Outcome
from detector.pipeline import Pipeline
from detector.plain_text import utc_minute
from detector.replay import recorded_pools
from detector.service_pools import PoolQuery
from detector.settings import Settings
from detector.source.base import Interner, Source
from detector.source.opening import open_source
from detector.source.recording import RecordingSource, load_recording
from detector.what_if.compare import compare, group_alarm, suspect_alarm
from detector.what_if.model import Alarm, Comparison, Side
from grouping.catalog import load_catalog

Progress = Callable[[float], None]

PATIENCE = 5.0
"""A fetch may take so many times as long as that of a tick: who reads has the lowest priority."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be tried.

    Parameters
    ----------
    settings, wanted
        In effect, and those that are tried; they may differ in detection and budget only.
    start, end
        Epoch seconds of the hours; None for the whole recording.
    case
        The recording; None asks the database of the settings.
    use_pool
        True to take pool and spares from the recording.
    max_series
        With more series it is given up; None for no bound.
    mutes
        Mutes that held and change what is compared.
    """

    settings: Settings
    wanted: Settings
    start: float | None = None
    end: float | None = None
    case: Path | None = None
    use_pool: bool = False
    max_series: int | None = None
    mutes: tuple[Mute, ...] = ()


@dataclass(slots=True)
class _Hours:
    """What is read: the stretch with the time before it, in which nothing is judged."""

    stretch: Stretch
    judge_after: float
    rules: Rules
    source: Source
    thresholds: Callable[[Settings], Thresholds | None]
    pools: Callable[[Pipeline], Callable[[float], None]]
    notes: list[str]


@dataclass(slots=True)
class _Told:
    """What one pipeline says."""

    pipeline: Pipeline
    incidents: dict[str, Incident] = field(default_factory=dict)
    events: dict[str, GroupEvent] = field(default_factory=dict)
    undetermined: int = 0
    n_verdicts: int = 0
    n_nodes: int = 0

    def take(self, outcome: Outcome) -> None:
        for incident in outcome.incidents:
            self.incidents[incident.id] = incident
        self.events.update({event.id: event for event in outcome.group_events})
        self.undetermined += sum(outcome.undetermined.values())
        self.n_verdicts += len(outcome.verdicts)
        self.n_nodes = max(self.n_nodes, len(outcome.verdicts))

    def alarms(self) -> list[Alarm]:
        named = [suspect_alarm(incident) for incident in self.incidents.values()]
        return [*(alarm for alarm in named if alarm is not None), *map(group_alarm, self.events.values())]

    def side(self) -> Side:
        n = sum(incident.suspect_at is not None for incident in self.incidents.values())
        return Side(n, len(self.events), self.undetermined)


class _Both:
    """Numbers each series in both pipelines.

    Numbers follow from catalog, rules and the order of the label objects alone, and all three are the same.
    """

    def __init__(self, first: Interner, second: Interner) -> None:
        self._first, self._second = first, second

    @property
    def codes(self) -> dict[bytes, int]:
        return self._first.codes

    def add_many(self, keys: Sequence[bytes]) -> None:
        self._first.add_many(keys)
        self._second.add_many(keys)


def run(job: Job, progress: Progress | None = None) -> Comparison:
    """Judge the hours under both settings and compare the alarms.

    Parameters
    ----------
    job
        What is to be tried.
    progress
        Called with the share that is done, 0 to 1.

    Raises
    ------
    OddnodeError, CatalogError
        When the hours cannot be read, nothing was recorded in them, there are too many series, or no
        thresholds can be learnt from them.
    """
    advance = progress or (lambda _share: None)
    hours = _recorded(job) if job.case is not None else _live(job)
    try:
        return _judged(job, hours, advance)
    finally:
        hours.source.close()


def _live(job: Job) -> _Hours:
    settings, step_s = job.settings, job.settings.schedule.step_s
    assert job.start is not None  # noqa: S101 (narrowing: hours of a database are always given)
    assert job.end is not None  # noqa: S101
    catalog = load_catalog(settings.catalog.path, settings.catalog.overlays)
    given = settings.source.options()
    options = replace(
        given, deadline_s=PATIENCE * given.deadline_s, read_timeout_s=PATIENCE * given.read_timeout_s
    )
    source = open_source(options)

    def pools(pipeline: Pipeline) -> Callable[[float], None]:
        query = PoolQuery(settings.pools, pipeline, settings.schedule.pool_query_s)
        return lambda at: query(source, at)

    begin = job.start - settings.schedule.backfill_s
    stretch = Stretch("", begin, job.end, step_s, lambda: open_source(options), chunked=True)
    rules = Rules(catalog, settings.detection, settings.identity, settings.placement, settings.pools)
    return _Hours(stretch, job.start, rules, source, lambda s: choose(s, catalog).thresholds, pools, [])


def _recorded(job: Job) -> _Hours:
    settings, case = job.settings, job.case
    assert case is not None  # noqa: S101 (narrowing: the caller looked)
    recording = load_recording(case)
    source = RecordingSource(case)
    given = load_catalog(settings.catalog.path, settings.catalog.overlays)
    catalog, notes = catalog_for_recording(given, source)
    start = recording.start if job.start is None else max(job.start, recording.start)
    end = recording.end if job.end is None else min(job.end, recording.end)
    if start >= end:
        raise SourceError(
            f"nothing is recorded from {utc_minute(start)} on: {case} is from {utc_minute(recording.start)} "
            f"to {utc_minute(recording.end)}"
        )
    begin = max(recording.start, start - settings.schedule.backfill_s)
    stretch = Stretch(recording.id, begin, end, float(recording.step_s), lambda: RecordingSource(case))
    pools = recorded_pools(recording) if job.use_pool else settings.pools
    rules = Rules(catalog, settings.detection, settings.identity, settings.placement, pools)

    def thresholds(settings: Settings) -> Thresholds | None:
        chosen = choose(settings, given).thresholds
        return chosen if catalog is given else None

    return _Hours(stretch, start, rules, source, thresholds, lambda pipeline: lambda at: None, notes)


def _judged(job: Job, hours: _Hours, advance: Progress) -> Comparison:
    share = 0.0
    learnt, notes = hours.thresholds(job.wanted), list(hours.notes)
    if job.wanted.budget != job.settings.budget:
        share = 0.5
        learnt = _learn(job, hours, notes, lambda done: advance(share * done))
    if learnt is not None:
        notes += learnt.notes
    now = _Told(_pipeline(hours, job, job.settings, hours.thresholds(job.settings)))
    then = _Told(_pipeline(hours, job, job.wanted, learnt))
    both = _Both(now.pipeline.interner, then.pipeline.interner)
    ask_pools = hours.pools(now.pipeline)
    stretch, source = hours.stretch, hours.source
    n_samples = n_evaluations = 0
    for k, batch in batches(source, now.pipeline.names(), stretch, both):
        at = k * stretch.step_s
        n_samples += len(batch.ts_ms)
        _check_size(job, len(both.codes))
        ask_pools(at)
        then.pipeline.declared = now.pipeline.declared
        is_judged = at > hours.judge_after
        n_evaluations += is_judged
        for told in (now, then):
            outcome = told.pipeline.evaluate(batch, at, judge=is_judged)
            if is_judged:
                told.take(outcome)
        advance(share + (1 - share) * (at - stretch.start) / max(stretch.end - stretch.start, 1e-9))
    if not n_samples or not n_evaluations:
        raise SourceError(
            f"nothing is recorded from {utc_minute(stretch.start)} to {utc_minute(stretch.end)}: "
            "not one sample of the catalog's metrics"
        )
    differences, n_left_out = compare(now.alarms(), then.alarms())
    return Comparison(
        hours.judge_after, stretch.end, stretch.step_s, n_evaluations, now.n_verdicts, now.n_nodes,
        now.pipeline.interner.n_series, now.side(), then.side(), differences, n_left_out,
        tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _check_size(job: Job, n_series: int) -> None:
    if job.max_series is not None and n_series > job.max_series:
        raise OddnodeError(
            f"more than {job.max_series} series (what_if.max_series): record the hours with `oddnode "
            "record`, and try the recording on another machine"
        )


def _learn(job: Job, hours: _Hours, notes: list[str], advance: Progress) -> Thresholds:
    """Learn thresholds for the budget that is tried: by itself a budget changes nothing."""
    budget = job.wanted.budget.false_alarms_per_month
    rules = replace(hours.rules, parameters=job.wanted.detection)
    made = calibrate([hours.stretch], rules, budget, progress=advance)
    notes.append(
        f"thresholds were learnt for {budget:g} false alarms a month from these same hours, as `oddnode "
        f"calibrate` does; take a week or more for those that you keep; a node's is {made.node.threshold:.2f}"
    )
    return thresholds_of(made.signals, made.node.threshold, made.floor)


def _pipeline(hours: _Hours, job: Job, settings: Settings, thresholds: Thresholds | None) -> Pipeline:
    rules = hours.rules
    pipeline = Pipeline(
        rules.catalog,
        replace(settings.detection, step_s=hours.stretch.step_s),
        identity=rules.identity,
        placement=rules.placement,
        pools=rules.pools,
        thresholds=thresholds,
    )
    pipeline.mutes = lambda at: [mute for mute in job.mutes if mute.is_active(at)]
    return pipeline

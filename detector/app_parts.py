"""What settings make of the service: source, clock, and what samples are judged with."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from detector.calibration.chosen import choose
from detector.calibration.model import Calibration
from detector.errors import SettingsError
from detector.pipeline import Pipeline
from detector.plain_text import utc_second
from detector.replay import pipeline_for
from detector.service_clock import Clock, RecordedClock, SystemClock
from detector.service_plan import Begin
from detector.settings import ScheduleSettings, Settings
from detector.source.base import Source
from detector.source.incident_file import Recording
from detector.source.opening import open_source
from detector.source.recording import RecordingSource, load_recording
from grouping.catalog import load_catalog

log = logging.getLogger("oddnode.detector.app")


@dataclass(frozen=True, slots=True)
class Judging:
    """What samples are judged with.

    Parameters
    ----------
    pipeline
        A new one.
    catalog_sha256
        Hash of its catalog.
    calibration
        The user's, None without one.
    """

    pipeline: Pipeline
    catalog_sha256: str
    calibration: Calibration | None


@dataclass(frozen=True, slots=True)
class Parts:
    """What is chosen once, at start.

    Parameters
    ----------
    open_source
        Makes a source.
    open_another
        Makes a source that may be read beside it.
    clock
        Time of the data.
    schedule
        The one of the settings; a recording has a step of its own.
    begin
        Where a recording begins, None for a live source.
    recording
        What is played, None for a live source.
    judging
        Makes what samples are judged with, by any settings; raises `OddnodeError` or `CatalogError` when
        they cannot be used.
    """

    open_source: Callable[[], Source]
    open_another: Callable[[], Source]
    clock: Clock
    schedule: ScheduleSettings
    begin: Begin | None
    judging: Callable[[Settings], Judging]
    recording: Recording | None = None


def parts_of(settings: Settings) -> Parts:
    """Return what the settings choose: a live database, or a recording that is played.

    Raises
    ------
    OddnodeError
        When they cannot be used.
    """
    return _live(settings) if settings.recording.path is None else _recorded(settings)


def _live(settings: Settings) -> Parts:
    options = settings.source.options()
    open_source(options).close()  # tells wrong options at once; nothing is sent

    def opened() -> Source:
        return open_source(options)

    return Parts(opened, opened, SystemClock(), settings.schedule, None, _judging)


def _judging(settings: Settings) -> Judging:
    catalog = load_catalog(settings.catalog.path, settings.catalog.overlays)
    chosen = choose(settings, catalog)
    pipeline = Pipeline(
        catalog,
        settings.detection,
        identity=settings.identity,
        placement=settings.placement,
        pools=settings.pools,
        thresholds=chosen.thresholds,
    )
    return Judging(pipeline, catalog.sha256, chosen.calibration)


def _recorded(settings: Settings) -> Parts:
    played = settings.recording
    assert played.path is not None  # noqa: S101 (narrowing: the caller looked)
    recording = load_recording(played.path)
    source = RecordingSource(played.path)

    def judging(settings: Settings) -> Judging:
        catalog = load_catalog(settings.catalog.path, settings.catalog.overlays)
        chosen = choose(settings, catalog)
        pipeline, notes = pipeline_for(
            recording,
            source,
            catalog,
            settings.detection,
            identity=settings.identity,
            placement=settings.placement,
            pools=settings.pools,
            use_pool=played.use_pool,
            thresholds=chosen.thresholds,
        )
        for note in notes:
            log.warning("recording note=%r", note)
        return Judging(pipeline, pipeline.catalog.sha256, chosen.calibration)

    step_s = float(recording.step_s)
    schedule = settings.schedule.model_copy(update={"step_s": step_s, "evaluation_delay_s": 0.0})
    begin = Begin(math.floor(recording.start / step_s) + 1, int((recording.start - step_s) * 1000) - 1)
    if played.at is not None and not recording.start <= played.at <= recording.end:
        lasts = f"{utc_second(recording.start)} to {utc_second(recording.end)}"
        raise SettingsError(f"recording.at: {played.at:.0f} lies outside of {played.path}, {lasts}")
    clock = RecordedClock(recording.start, recording.end, played.speed, played.at)
    again = partial(RecordingSource, source.path)
    return Parts(lambda: source, again, clock, schedule, begin, judging, recording)

"""Recorded incidents through the same code as the live service: other source, other clock, nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from detector.core.parameters import Parameters
from detector.core.thresholds import Thresholds
from detector.discover import catalog_for_recording
from detector.outcome import DataQuality, Evidence, GroupEvent, Incident, Outcome
from detector.pipeline import Pipeline
from detector.source.base import Source
from detector.source.incident_file import Recording
from detector.source.recording import RecordingSource, load_recording
from grouping.catalog import Catalog
from grouping.identity import IdentityRules
from grouping.placement import PlacementRules
from grouping.pools import DeclaredPool, PoolRules

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Replayed:
    """What replaying one case said.

    Parameters
    ----------
    case
        Identifier of the recording.
    flags
        Every incident that became a suspect, in order of time.
    group_events, data_quality
        As in `Outcome`, each once.
    evaluations, node_evaluations
        Number of evaluations, and of verdicts in all of them.
    undetermined
        Node-evaluations that could not be judged, by reason.
    notes
        What the user should know (for instance a drafted catalog).
    """

    case: str
    flags: list[Incident] = field(default_factory=list)
    group_events: list[GroupEvent] = field(default_factory=list)
    data_quality: list[DataQuality] = field(default_factory=list)
    evaluations: int = 0
    node_evaluations: int = 0
    undetermined: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def judged(self) -> bool:
        """True when at least one node could be judged at least once."""
        return self.evaluations > 0 and sum(self.undetermined.values()) < self.node_evaluations

    def as_json(self) -> dict[str, Any]:
        """Return the replay output contract as plain values."""
        return {
            "case": self.case,
            "flags": [_flag(incident) for incident in self.flags],
            "group_events": [msgspec.to_builtins(event) for event in self.group_events],
            "data_quality": [msgspec.to_builtins(finding) for finding in self.data_quality],
            "evaluations": self.evaluations,
            "undetermined": self.undetermined,
            "notes": self.notes,
        }


def _flag(incident: Incident) -> dict[str, Any]:
    return {
        "node": incident.node,
        "flagged_at": incident.suspect_at,
        "cleared_at": incident.cleared_at,
        "kind": "suspect",
        "part": incident.part,
        "score": incident.peak_score,
        "since": incident.active_at,
        "reason": incident.reason,
        "diagnosis": None if incident.diagnosis is None else incident.diagnosis.plain(),
        "evidence": [_evidence(item) for item in incident.evidence],
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    return dict(msgspec.to_builtins(item))


def grid(start: float, end: float, step_s: float) -> Iterator[float]:
    """Yield the evaluation times of a time range: multiples of the step, after the start."""
    first = math.floor(start / step_s) + 1
    for k in range(first, math.floor(end / step_s) + 1):
        yield k * step_s


def pipeline_for(
    recording: Recording,
    source: RecordingSource,
    catalog: Catalog,
    parameters: Parameters | None = None,
    *,
    identity: IdentityRules | None = None,
    placement: PlacementRules | None = None,
    pools: PoolRules | None = None,
    use_pool: bool = False,
    thresholds: Thresholds | None = None,
) -> tuple[Pipeline, list[str]]:
    """Build the pipeline for a recording.

    Parameters
    ----------
    recording, source
        What is recorded; the step comes from it.
    catalog
        What is compared; when none of its metrics is in the recording, a catalog is drafted from it.
    parameters, identity, placement, pools
        Settings, None for the defaults.
    use_pool
        True to take pool and spares from the recording instead of finding them.
    thresholds
        What a calibration has learnt for this catalog; a drafted one has none.

    Returns
    -------
    tuple
        The pipeline, and notes for the user.
    """
    given = catalog
    catalog, notes = catalog_for_recording(catalog, source)
    learnt = thresholds if catalog is given else None
    if use_pool:
        pools = recorded_pools(recording)
    step = replace(parameters or Parameters(), step_s=float(recording.step_s))
    pipeline = Pipeline(catalog, step, identity=identity, placement=placement, pools=pools, thresholds=learnt)
    return pipeline, notes


def recorded_pools(recording: Recording) -> PoolRules:
    """Return the pool and the spares that a recording names, in place of finding them."""
    declared = [DeclaredPool("pool", tuple(recording.pool))]
    if recording.spares:
        declared.append(DeclaredPool("spares", tuple(recording.spares)))
    return PoolRules(declared=tuple(declared))


def replay_case(
    path: Path,
    catalog: Catalog,
    parameters: Parameters | None = None,
    *,
    identity: IdentityRules | None = None,
    placement: PlacementRules | None = None,
    pools: PoolRules | None = None,
    use_pool: bool = False,
    thresholds: Thresholds | None = None,
    progress: Progress | None = None,
    watch: Callable[[Outcome], None] | None = None,
) -> Replayed:
    """Run one recorded incident through the detection pipeline.

    Parameters
    ----------
    path
        Folder of the recording.
    catalog
        What is compared; when none of its metrics is in the recording, a catalog is drafted
        from the recording itself and that is noted.
    parameters
        Knobs; the step is taken from the recording.
    identity, placement, pools
        Settings, None for the defaults.
    use_pool
        True to take pool and spares from the recording instead of finding them.
    thresholds
        What a calibration has learnt for this catalog.
    progress
        Called with (evaluations done, all).
    watch
        Called with every outcome.

    Raises
    ------
    SourceError
        When the recording is missing, corrupt or incomplete.
    """
    recording = load_recording(path)
    source = RecordingSource(path)
    pipeline, notes = pipeline_for(
        recording,
        source,
        catalog,
        parameters,
        identity=identity,
        placement=placement,
        pools=pools,
        use_pool=use_pool,
        thresholds=thresholds,
    )
    try:
        return play(recording, source, pipeline, notes=notes, progress=progress, watch=watch)
    finally:
        source.close()


def play(
    recording: Recording,
    source: Source,
    pipeline: Pipeline,
    *,
    notes: list[str] | None = None,
    progress: Progress | None = None,
    watch: Callable[[Outcome], None] | None = None,
) -> Replayed:
    """Run a pipeline over the time of a recording, whatever the samples come from.

    Parameters
    ----------
    recording
        Only its name, its time and its step are used.
    source
        Left open.
    pipeline
        A fresh one; its state after the last evaluation stays in it.
    notes
        What the user should know.
    progress, watch
        As in `replay_case`.

    Raises
    ------
    SourceError
        When the source fails.
    """
    result = Replayed(recording.id, notes=notes or [])
    names = pipeline.names()
    times = list(grid(recording.start, recording.end, recording.step_s))
    before_ms = int((recording.start - recording.step_s) * 1000) - 1
    seen: dict[str, Incident] = {}
    events: dict[str, GroupEvent] = {}
    quality: dict[tuple[str, str], DataQuality] = {}
    for done, at in enumerate(times, start=1):
        end_ms = round(at * 1000)
        batch = source.fetch(names, before_ms, end_ms, pipeline.interner)
        before_ms = end_ms
        outcome = pipeline.evaluate(batch, at)
        for incident in outcome.incidents:
            if incident.suspect_at is not None:
                seen[incident.id] = incident
        events.update({event.id: event for event in outcome.group_events})
        for finding in outcome.data_quality:
            quality.setdefault((finding.kind, finding.node), finding)
        result.node_evaluations += len(outcome.verdicts)
        for reason, count in outcome.undetermined.items():
            result.undetermined[reason] = result.undetermined.get(reason, 0) + count
        if watch is not None:
            watch(outcome)
        if progress is not None:
            progress(done, len(times))
    result.evaluations = len(times)
    result.flags = sorted(seen.values(), key=lambda i: (i.suspect_at or 0.0, i.node))
    result.group_events = list(events.values())
    result.data_quality = list(quality.values())
    return result

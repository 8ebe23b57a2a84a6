"""Oddnode's own detection as a detector to be scored, through the same replay as everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from detector.core.parameters import Parameters
from detector.core.series_view import SeriesQuery
from detector.core.thresholds import Thresholds
from detector.errors import OddnodeError
from detector.evaluation.model import GROUP_EVENT, Call, Case, Findings, Flag, Moment, Trace
from detector.evaluation.traces import as_trace, distance
from detector.outcome import DataQuality, Evidence, Incident, Outcome
from detector.pipeline import Pipeline
from detector.replay import Replayed, grid, pipeline_for, play
from detector.source.base import Source
from detector.source.recording import Recording, RecordingSource, load_recording
from grouping.catalog import Catalog
from grouping.identity import IdentityRules
from grouping.placement import PlacementRules
from grouping.pools import PoolRules

NO_CALL = frozenset({"identity_conflict", "source"})
"""Findings about labels or the source: they call no event."""

FAR_FRAMES = 20
FAR_REACH = 50.0
"""Evaluations over which the farthest signal is looked for, and the most that one counts."""

SHOWN_AFTER = 0.25
"""Share of the shown time that lies after the moment of interest."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A recording with the pipeline that is to judge it."""

    recording: Recording
    source: RecordingSource
    pipeline: Pipeline
    notes: list[str]


@dataclass(frozen=True, slots=True)
class OddnodeDetector:
    """The detection pipeline with one catalog and one set of parameters.

    Parameters
    ----------
    catalog
        What is compared.
    parameters
        Knobs; the step is taken from each case.
    use_pool
        True to take pool and spares from the case instead of finding them.
    name
        Name in tables.
    thresholds
        What a calibration has learnt, None for one threshold.
    identity, placement, pools
        Rules for node names, parts and pools; None for the defaults.
    """

    catalog: Catalog
    parameters: Parameters = field(default_factory=Parameters)
    use_pool: bool = False
    name: str = "oddnode"
    thresholds: Thresholds | None = None
    identity: IdentityRules | None = None
    placement: PlacementRules | None = None
    pools: PoolRules | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the catalog's entries to other processes: its read-only mapping can't be sent."""
        c = self.catalog
        return _rebuilt, (
            (c.specs, c.version, c.sha256, c.path, c.overlays),
            (self.parameters, self.use_pool, self.name, self.thresholds),
            (self.identity, self.placement, self.pools),
        )

    def flag(self, case: Case) -> Findings:
        """Replay the case.

        Raises
        ------
        OddnodeError
            When the samples are missing, corrupt or incomplete, or tell of no node in the time of the case:
            silence would then pass for health.
        """
        with self._opened(case) as opened:
            replayed = play(opened.recording, opened.source, opened.pipeline, notes=opened.notes)
        if not replayed.node_evaluations:
            raise OddnodeError("no compared metric of any node has a sample between start and end")
        return findings_of(replayed)

    def explain(self, case: Case, moments: Sequence[Moment]) -> list[Trace]:
        """Replay the case up to the last moment and keep the signals behind each.

        Raises
        ------
        SourceError
            When the samples are missing, corrupt or incomplete.
        """
        with self._opened(case) as opened:
            return traces_of(opened.pipeline, opened.source, case, moments)

    @contextmanager
    def _opened(self, case: Case) -> Iterator[_Opened]:
        """Open the recording of a case with a fresh pipeline for it."""
        recording = load_recording(case.path)
        source = RecordingSource(case.path)
        try:
            pipeline, notes = pipeline_for(
                recording,
                source,
                self.catalog,
                self.parameters,
                identity=self.identity,
                placement=self.placement,
                pools=self.pools,
                use_pool=self.use_pool,
                thresholds=self.thresholds,
            )
            yield _Opened(recording, source, pipeline, notes)
        finally:
            source.close()


def traces_of(pipeline: Pipeline, source: Source, case: Case, moments: Sequence[Moment]) -> list[Trace]:
    """Run a fresh pipeline up to the last moment and keep the signals behind each.

    Parameters
    ----------
    pipeline, source
        As for `detector.replay.play`.
    case
        Only its times are used.
    moments
        What is worth a picture.
    """
    names = pipeline.names()
    after = SHOWN_AFTER * 5 * pipeline.n_window * case.step_s
    due = sorted(((min(m.at + after, case.end), i) for i, m in enumerate(moments)), reverse=True)
    found: dict[int, Trace] = {}
    before_ms = int((case.start - case.step_s) * 1000) - 1
    times = list(grid(case.start, case.end, case.step_s))
    for at in times:
        if not due:
            break
        end_ms = round(at * 1000)
        outcome = pipeline.evaluate(source.fetch(names, before_ms, end_ms, pipeline.interner), at)
        before_ms = end_ms
        while due and (due[-1][0] <= at or at == times[-1]):
            _, i = due.pop()
            trace = trace_of(pipeline, outcome, moments[i])
            if trace is not None:
                found[i] = trace
    return [found[i] for i in sorted(found)]


def _rebuilt(catalog: tuple[Any, ...], knobs: tuple[Any, ...], rules: tuple[Any, ...]) -> OddnodeDetector:
    specs, version, sha256, path, overlays = catalog
    again = replace(Catalog.of(specs, path=path, sha256=sha256), version=version, overlays=overlays)
    return OddnodeDetector(again, *knobs, *rules)


def findings_of(replayed: Replayed) -> Findings:
    """Return what a replay said in the scorer's words."""
    flags = tuple(_flag(incident) for incident in replayed.flags if incident.suspect_at is not None)
    events = [Call(GROUP_EVENT, e.started_at, e.ended_at, e.nodes, e.reason) for e in replayed.group_events]
    quality = [_quality(item) for item in replayed.data_quality if item.kind not in NO_CALL]
    share = float("nan")
    if replayed.node_evaluations:
        share = sum(replayed.undetermined.values()) / replayed.node_evaluations
    return Findings(flags, (*events, *quality), tuple(replayed.notes), share)


def _quality(item: DataQuality) -> Call:
    return Call(item.kind, item.since, None, (item.node,) if item.node else (), item.reason)


def _flag(incident: Incident) -> Flag:
    first = incident.evidence[0] if incident.evidence else None
    raised = float(incident.suspect_at or 0.0)
    return Flag(
        node=incident.node,
        raised_at=raised,
        cleared_at=None if incident.cleared_at is None else max(raised, incident.cleared_at),
        part=incident.part,
        strongest_part=first.part if first else "",
        metric=first.metric if first else "",
        why=f"{first.metric}: {first.reason}" if first else incident.reason,
    )


def trace_of(pipeline: Pipeline, outcome: Outcome, moment: Moment) -> Trace | None:
    """Return the signal of a moment against its peers, as far back as the pipeline remembers.

    Without a metric, or when that metric has no series, the strongest evidence against the node is
    shown; without evidence, the signal that is now farthest from its peers.
    """
    told = _evidence(outcome, moment.node)
    wanted = [(moment.metric, moment.part, moment.metric and _reason(told, moment.metric))]
    wanted += [(item.metric, item.part, item.reason) for item in told]
    wanted.append((*farthest_signal(pipeline, moment.node), ""))
    for metric, part, reason in wanted:
        views = pipeline.series_view(SeriesQuery(moment.node, metric, part)) if metric else []
        views = [view for view in views if np.isfinite(view.value).any()]
        if views:
            farthest = max(views, key=distance)
            return as_trace(moment, farthest, farthest.metric, reason)
    return None


def _evidence(outcome: Outcome, node: str) -> tuple[Evidence, ...]:
    for verdict in outcome.verdicts:
        if verdict.node == node:
            return verdict.evidence
    return ()


def _reason(told: Sequence[Evidence], metric: str) -> str:
    return next((item.reason for item in told if item.metric == metric), "")


def farthest_signal(pipeline: Pipeline, node: str) -> tuple[str, str]:
    """Return metric and part of the node's signal that was farthest from its peers of late.

    Farthest in the mean over the last evaluations, so that one odd sample does not decide; empty
    texts when the node has no signal with peers.
    """
    index, frames = pipeline.interner, pipeline.window.frames()[-FAR_FRAMES:]
    if node not in index.nodes or not frames:
        return "", ""
    newest = frames[-1].layout
    cells = np.flatnonzero(index.cell_node[: len(newest.row_of_cell)] == index.nodes.index(node))
    total, count = np.zeros(len(cells)), np.zeros(len(cells))
    for frame in frames:
        here = np.flatnonzero(cells < min(len(frame.values), len(frame.layout.row_of_cell)))
        row = frame.layout.row_of_cell[cells[here]]
        here, row = here[row >= 0], row[row >= 0]
        with np.errstate(all="ignore"):
            apart = np.abs(frame.values[cells[here]] - frame.median[row]) / frame.scale[row]
        known = np.isfinite(apart)
        total[here[known]] += np.minimum(apart[known], FAR_REACH)
        count[here[known]] += 1
    if not count.any():
        return "", ""
    mean = np.where(count > 0, total / np.maximum(count, 1), -1.0)
    best = int(cells[int(np.argmax(mean))])
    return index.signals[index.cell_signal[best]].spec.name, index.parts[index.cell_part[best]]

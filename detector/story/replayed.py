"""From a recorded case to its story: once to learn who was named, once more to draw what spoke against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

from detector.core.eras import joined
from detector.core.series_view import SeriesQuery, SeriesView
from detector.outcome import Incident, Outcome, Transition
from detector.pipeline import Pipeline
from detector.plain_text import utc_second
from detector.replay import Replayed, play
from detector.source.incident_file import Recording
from detector.source.recording import RecordingSource, load_recording
from detector.story.drawn import MAX_PLOTS, part_of, piece_of
from detector.story.model import Compared, Piece, Story, StoryError
from detector.story.told import Told, told_beside

MAX_ALSO = 20
HARDWARE = (
    "UUID", "uuid", "serial", "pci_bus_id", "device", "modelName", "model", "vbios_version",
    "firmware", "DCGM_FI_DRIVER_VERSION", "driver_version",
)  # fmt: skip
"""Labels by which a vendor knows a part."""

Progress = Callable[[int, int], None]
Make = Callable[[Recording, RecordingSource], tuple[Pipeline, list[str]]]
"""Makes a fresh pipeline for a recording, and notes for the reader."""


def story_of(
    folder: Path,
    make: Make,
    judged_by: Sequence[tuple[str, str]],
    *,
    node: str = "",
    progress: Progress | None = None,
) -> Story:
    """Replay a case and tell the story of one node.

    Parameters
    ----------
    folder
        Of the recording, or of an exported incident.
    make
        Makes the pipeline: it is run twice.
    judged_by
        Versions and settings, to be told.
    node
        Whose story; empty for that of the exported incident, else the strongest suspect's.
    progress
        Called with (evaluations done, all).

    Raises
    ------
    StoryError
        When no node was named, or not this one.
    SourceError
        When the recording cannot be read.
    """
    recording, told = load_recording(folder), told_beside(folder)
    source = RecordingSource(folder)
    seen = _Seen()
    pipeline, notes = make(recording, source)
    half = None if progress is None else (lambda done, n: progress(done, 2 * n))
    replayed = play(recording, source, pipeline, notes=list(notes), progress=half, watch=seen.look)
    if told is not None and node in ("", told.incident.node):
        incident = told.incident
    else:
        told, incident = None, _chosen(recording, replayed, node)
    again, _ = make(recording, source)
    drawing = _Drawing(again, incident)
    rest = None if progress is None else (lambda done, n: progress(n + done, 2 * n))
    play(recording, source, again, progress=rest, watch=drawing.look)
    drawing.take()
    source.close()
    return Story(
        case=recording.id,
        incident=incident,
        pieces=drawing.pieces(),
        transitions=tuple(seen.of(incident.node) if told is None else told.transitions),
        actions=() if told is None else tuple(told.actions),
        hardware=hardware_of(again, incident),
        events=tuple(e for e in replayed.group_events if _meets(e.started_at, e.ended_at, incident)),
        findings=tuple(f for f in replayed.data_quality if f.node in ("", incident.node)),
        also_named=_also(replayed, incident),
        compared=_compared(recording, replayed, seen.last, incident.node),
        judged_by=(*_told_by(told), *judged_by),
        notes=(*replayed.notes, *_agreement(told, replayed)),
        nodes=tuple({*again.interner.nodes, *recording.pool, *recording.spares, incident.node}),
    )


@dataclass(slots=True)
class _Seen:
    """What the first run has shown."""

    last: Outcome | None = None
    steps: list[Transition] = field(default_factory=list)

    def look(self, outcome: Outcome) -> None:
        self.last = outcome
        self.steps.extend(outcome.transitions)

    def of(self, node: str) -> list[Transition]:
        return [step for step in self.steps if step.node == node]


class _Drawing:
    """Keeps the signals of an incident's evidence over the whole run, window by window."""

    def __init__(self, pipeline: Pipeline, incident: Incident) -> None:
        self._pipeline = pipeline
        self._incident = incident
        self._every = 5 * pipeline.n_window  # what the pipeline keeps
        self._n = 0
        self._kept: dict[int, dict[tuple[object, ...], list[SeriesView]]] = {}

    def look(self, outcome: Outcome) -> None:
        """Take the window whenever it has run full."""
        self._n += 1
        if self._n % self._every == 0:
            self.take()

    def take(self) -> None:
        """Keep what came since the last time."""
        node = self._incident.node
        for i, item in enumerate(self._incident.evidence[:MAX_PLOTS]):
            views = self._pipeline.series_view(SeriesQuery(node, item.metric, part_of(item)))
            for view in views:
                signal = (view.part, *sorted(view.labels.items()))
                self._kept.setdefault(i, {}).setdefault(signal, []).append(view)

    def pieces(self) -> tuple[Piece, ...]:
        """Return the evidence, each piece with the signal that was farthest from its peers."""
        return tuple(
            piece_of(
                item, self._incident, [reduce(joined, views) for views in self._kept.get(i, {}).values()]
            )
            for i, item in enumerate(self._incident.evidence)
        )


def _chosen(recording: Recording, replayed: Replayed, node: str) -> Incident:
    if not replayed.flags:
        raise StoryError(f"{recording.path}: no node was named in {replayed.evaluations} evaluations")
    found = [flag for flag in replayed.flags if node in ("", flag.node)]
    if not found:
        named = ", ".join(sorted({flag.node for flag in replayed.flags})[:MAX_ALSO])
        raise StoryError(f"{recording.path}: node {node!r} was not named; {named} was")
    return max(found, key=lambda flag: flag.peak_score)


def hardware_of(pipeline: Pipeline, incident: Incident) -> tuple[tuple[str, str], ...]:
    """Return labels of the named part by which a vendor knows it; each once."""
    index = pipeline.interner
    part = incident.part or ("" if incident.diagnosis is None else incident.diagnosis.part)
    if not part or incident.node not in index.nodes or part not in index.parts:
        return ()
    is_part = (index.cell_node == index.nodes.index(incident.node)) & (
        index.cell_part == index.parts.index(part)
    )
    found: dict[str, str] = {}
    for series in index.cell_first_series[is_part].tolist():
        for name, value in (index.labels_of(series) if series >= 0 else {}).items():
            if name in HARDWARE and value and value not in found.values():
                found.setdefault(name, value)
    return tuple((name, found[name]) for name in HARDWARE if name in found)


def _meets(start: float, end: float | None, incident: Incident) -> bool:
    over = incident.cleared_at
    return (over is None or start <= over) and (end is None or end >= incident.active_at)


def _also(replayed: Replayed, incident: Incident) -> tuple[str, ...]:
    others = [flag for flag in replayed.flags if flag.node != incident.node]
    told = [f"{flag.node}, {utc_second(flag.suspect_at or flag.active_at)}: {flag.reason}" for flag in others]
    more = [f"and {len(told) - MAX_ALSO} more"] if len(told) > MAX_ALSO else []
    return (*told[:MAX_ALSO], *more)


def _compared(recording: Recording, replayed: Replayed, last: Outcome | None, node: str) -> Compared | None:
    if last is None:
        return None
    made = (recording.provenance.get(key) for key in ("made", "source"))
    return Compared.at(
        last,
        node,
        start=recording.start,
        end=recording.end,
        step_s=recording.step_s,
        evaluations=replayed.evaluations,
        source=", ".join(str(text) for text in made if text),
    )


def _told_by(told: Told | None) -> tuple[tuple[str, str], ...]:
    if told is None or not told.version:
        return ()
    return (("the service that named it", f"Oddnode {told.version}, catalog {told.catalog_sha256[:12]}"),)


def _agreement(told: Told | None, replayed: Replayed) -> tuple[str, ...]:
    """Say whether the replay of an exported case names the node as the service did."""
    if told is None:
        return ()
    node = told.incident.node
    flag = next((flag for flag in replayed.flags if flag.node == node), None)
    if flag is None:
        return (
            f"Verdict and evidence are those of the service. Replaying the exported samples does not name "
            f"{node}: a replay begins with an empty memory.",
        )
    at = utc_second(flag.suspect_at or flag.active_at)
    return (
        f"Verdict and evidence are those of the service; replaying the exported samples names {node} "
        f"as well, {at}.",
    )


def without_samples(case: str, told: Told, nodes: Sequence[str], why: str) -> Story:
    """Return the story of an incident of which there are no samples, as far as a service has told it."""
    return Story(
        case=case,
        incident=replace(told.incident),
        pieces=tuple(Piece(item) for item in told.incident.evidence),
        transitions=tuple(told.transitions),
        actions=tuple(told.actions),
        judged_by=_told_by(told),
        notes=(f"There are no charts: {why}",),
        nodes=tuple({*nodes, told.incident.node}),
    )

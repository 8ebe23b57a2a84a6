"""The report of an incident by the service that named it: from its store, with the charts of its pages."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from detector.case_archive import case_name
from detector.control.ledger import Ledger
from detector.core.series_view import SeriesQuery
from detector.export import AFTER_S, MAX_TOLD, Known, concerns
from detector.outcome import Incident
from detector.past import Past
from detector.pipeline import Pipeline
from detector.service import Service
from detector.service_view import BusyError, Latest, ServiceView
from detector.story.drawn import MAX_PLOTS, part_of, piece_of
from detector.story.model import Compared, Piece, Story
from detector.story.page import story_page
from detector.story.replayed import hardware_of

BEFORE_S = 900.0
"""Margin before the first sign, as of the charts in the pages."""

MAX_S = 60.0
"""Seconds after which no further chart is begun."""


@dataclass(frozen=True, slots=True)
class Report:
    """A page, and the name of its file."""

    name: str
    page: str


class Reporter:
    """Tells stories of stored incidents; one at a time.

    Parameters
    ----------
    past
        Reads signals over the time of an incident.
    service
        Whose pipeline it is.
    pipeline
        In effect now.
    known
        Tells what the service is now.
    ledger
        What operators did.
    """

    def __init__(
        self,
        past: Past,
        service: Service,
        pipeline: Callable[[], Pipeline],
        known: Callable[[], Known],
        ledger: Ledger,
    ) -> None:
        self._past = past
        self._service = service
        self._pipeline = pipeline
        self._known = known
        self._ledger = ledger
        self._is_used = threading.Lock()

    def report(self, seen: ServiceView, incident: Incident) -> Report:
        """Return the report of an incident.

        Parameters
        ----------
        seen
            The service now, or as it was.
        incident
            As it is told there.

        Raises
        ------
        BusyError
            When another report is under way, or an evaluation for too long.
        StoreError
            When it cannot be read.
        """
        if not self._is_used.acquire(blocking=False):
            raise BusyError("another report is under way: ask again in a moment")
        try:
            story = self._story(seen, incident)
        finally:
            self._is_used.release()
        return Report(f"{case_name(f'report-{incident.id}')}.html", story_page(story))

    def _story(self, seen: ServiceView, incident: Incident) -> Story:
        known, latest = self._known(), seen.latest()
        at = math.inf if latest is None else latest.outcome.at
        pieces, notes = self._pieces(incident, at)
        until = min(at, math.inf if incident.cleared_at is None else incident.cleared_at)
        with self._service.between_evaluations():
            hardware = hardware_of(self._pipeline(), incident)
        trail = self._ledger.audit(limit=MAX_TOLD, offset=0)
        return Story(
            case=incident.id,
            incident=incident,
            pieces=tuple(pieces),
            transitions=tuple(seen.store.transitions(incident_id=incident.id, limit=MAX_TOLD)),
            actions=tuple(entry for entry in reversed(trail) if entry.at <= at and concerns(entry, incident)),
            hardware=hardware,
            events=tuple(
                event
                for event in seen.store.group_events(limit=MAX_TOLD)
                if event.started_at <= until
                and (event.ended_at is None or event.ended_at >= incident.active_at)
            ),
            compared=None if latest is None else _compared(latest, known, incident, until),
            judged_by=(("this report", f"Oddnode {known.version}, catalog {known.catalog_sha256[:12]}"),),
            notes=tuple(notes),
            nodes=tuple({*known.nodes, incident.node}),
        )

    def _pieces(self, incident: Incident, at: float) -> tuple[list[Piece], list[str]]:
        """Return the evidence with charts as far as there are samples, and why there are none."""
        since = incident.active_at - BEFORE_S
        until = math.inf if incident.cleared_at is None else incident.cleared_at + AFTER_S
        begun, pieces, notes = time.monotonic(), [], []
        for k, item in enumerate(incident.evidence):
            views = []
            if k < MAX_PLOTS and time.monotonic() - begun < MAX_S:
                query = SeriesQuery(incident.node, item.metric, part_of(item), since=since, until=until)
                told = self._past.series(query, at)
                views = told.series
                if told.note and told.note not in notes:
                    notes.append(told.note)
            pieces.append(piece_of(item, incident, views))
        n_drawn = sum(piece.trace is not None for piece in pieces)
        if n_drawn < len(pieces):
            notes.append(
                f"{len(pieces) - n_drawn} of {len(pieces)} pieces of evidence have no chart: "
                "there are no samples of that time any more, or there was no time to read them."
            )
        return pieces, notes


def _compared(latest: Latest, known: Known, incident: Incident, until: float) -> Compared:
    start, end = incident.active_at - BEFORE_S, min(until + AFTER_S, latest.outcome.at)
    return Compared.at(
        latest.outcome,
        incident.node,
        start=start,
        end=end,
        step_s=known.step_s,
        evaluations=round((end - start) / known.step_s),
        source=f"{known.made}, {known.origin}",
    )

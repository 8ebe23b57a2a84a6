"""An incident as a recorded case: its telemetry with a margin, and what operators said of it."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from detector.case_archive import STORY_NAME, case_name, packed, packed_size
from detector.control.ledger import Ledger
from detector.control.model import AuditEntry
from detector.control.problems import NotKnownError, NotPossibleError
from detector.errors import OddnodeError, SourceError
from detector.labels import description
from detector.outcome import Incident
from detector.plain_text import utc_second
from detector.record import CaseDetails, NothingRecordedError, RecordError, record
from detector.service_view import BusyError
from detector.source.base import Source
from detector.store_contract import IncidentFilter, Reading

log = logging.getLogger("oddnode.detector.export")

BEFORE_S, MAX_BEFORE_S = 1800.0, 14_400.0
"""Margin before the first sign; peers are judged after 20 samples, and habits want more."""

AFTER_S, MAX_AFTER_S = 300.0, 3600.0
MAX_SPAN_S = 6 * 3600.0
"""Of an incident that lasts longer, the beginning is exported."""

MAX_BYTES = 160 << 20
"""Packed samples at most; with what one more fetch adds they fit a temporary volume of 256 MiB."""

MAX_S = 240.0
"""Seconds that making it may take."""

MAX_TOLD = 1000
"""Labels, incidents, transitions and lines of the trail that are looked at."""


LESS = "ask for less with before_s and after_s, or record it with oddnode record"


class TooMuchError(NotPossibleError):
    """The telemetry is larger, or takes longer, than an export may."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the running service is, for the description of a case.

    Parameters
    ----------
    names
        Metrics that are fetched.
    nodes
        Names of all nodes.
    step_s
        Seconds between samples.
    version, catalog_sha256
        What judged.
    origin, made
        Where the samples are from: a recording that is played stays what it is.
    """

    names: Sequence[str]
    nodes: Sequence[str]
    step_s: float
    version: str
    catalog_sha256: str
    origin: str = "a running service"
    made: str = "recorded"


class Case:
    """A case that lies ready to be sent; `close` frees its place on the disk.

    Parameters
    ----------
    name
        Of the case.
    place
        Temporary folder that holds it.
    freed
        Called once, when it was closed.
    """

    def __init__(self, name: str, place: tempfile.TemporaryDirectory[str], freed: Callable[[], None]) -> None:
        self.name = name
        self._place = place
        self._freed = freed
        self.folder = Path(place.name) / name
        self.n_bytes = packed_size(self.folder)

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive."""
        return packed(self.folder, self.name)

    def close(self) -> None:
        """Delete it."""
        with suppress(OSError):
            self._place.cleanup()
        freed, self._freed = self._freed, lambda: None
        freed()


class Exporter:
    """Reads telemetry of incidents from the source of the service; one at a time, beside the detection.

    Parameters
    ----------
    open_source
        Makes a source that nobody else reads.
    known
        Tells what the service is now.
    store, ledger
        Incidents, and what operators said.
    now
        Clock of the service, epoch seconds.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        known: Callable[[], Known],
        store: Reading,
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        self._open_source = open_source
        self._known = known
        self._store = store
        self._ledger = ledger
        self._now = now
        self._is_used = threading.Lock()
        self._is_stopped = threading.Event()
        self._source: Source | None = None

    def export(self, incident_id: str, before_s: float = BEFORE_S, after_s: float = AFTER_S) -> Case:
        """Make the case of an incident.

        Parameters
        ----------
        incident_id
            Which.
        before_s, after_s
            Margins, seconds.

        Returns
        -------
        Case
            To be closed by the caller; until then no other one is made.

        Raises
        ------
        NotKnownError
            When there is no such incident.
        NotPossibleError
            When the source has no samples of that time, or too many.
        BusyError
            When another export is under way, or the service ends.
        SourceError, StoreError, RecordError
            When samples or incidents cannot be read, or the disk refuses.
        """
        incident = self._store.incident(incident_id)
        if incident is None:
            raise NotKnownError(f"incident {incident_id!r} is not known")
        if not self._is_used.acquire(blocking=False):
            raise BusyError("another export is under way: ask again in a moment")
        try:
            place = tempfile.TemporaryDirectory(prefix="oddnode-export-", ignore_cleanup_errors=True)
        except OSError as error:
            self._is_used.release()
            raise OddnodeError(f"there is no place for an export: {error.strerror}") from None
        try:
            self._write(incident, Path(place.name), before_s, after_s)
            return Case(case_name(incident.id), place, self._is_used.release)
        except BaseException:
            place.cleanup()
            self._is_used.release()
            raise

    def stop(self) -> None:
        """End the export under way, from another thread; no further one is made."""
        self._is_stopped.set()
        source = self._source
        if source is not None:
            source.close()

    def _write(self, incident: Incident, place: Path, before_s: float, after_s: float) -> None:
        begun, known = time.monotonic(), self._known()
        start, end, is_cut = span_of(incident, before_s, after_s, self._now(), known.step_s)
        told = self._told(incident, known, start, end)
        note = f"{_words(incident)} {self._said(incident)}"
        if is_cut:
            note += f" It lasted longer: what is here ends {utc_second(end)}."
        details = CaseDetails(
            step_s=known.step_s,
            pool=told.pop("pool"),
            origin=known.origin,
            made=known.made,
            notes=note,
            labels={key: told[key] for key in ("healthy", "faults", "masked", "benign")},
        )
        folder = place / case_name(incident.id)

        def watch(share: float) -> None:
            if self._is_stopped.is_set():
                raise BusyError("the service is ending")
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            if size > MAX_BYTES:
                raise TooMuchError(f"the telemetry is larger than {MAX_BYTES >> 20} MiB: {LESS}")
            if time.monotonic() - begun > MAX_S:
                raise TooMuchError(f"reading it takes longer than {MAX_S:.0f} s ({share:.0%} done): {LESS}")

        source = self._source = self._open_source()
        try:
            watch(0.0)
            written = record(source, known.names, start, end, folder, details, progress=watch)
        except NothingRecordedError:
            raise NotPossibleError(
                f"the source has no samples between {utc_second(start)} and {utc_second(end)} any more"
            ) from None
        except RecordError as error:
            raise RecordError(str(error).replace(str(place), "of the export")) from None
        except SourceError:
            if self._is_stopped.is_set():
                raise BusyError("the service is ending") from None
            raise
        finally:
            self._source = None
            source.close()
        (folder / STORY_NAME).write_bytes(msgspec.json.encode(self._story(incident, known)))
        took_s = time.monotonic() - begun
        log.info("export incident=%r samples=%d duration_s=%.1f", incident.id, written.n_samples, took_s)

    def _told(self, incident: Incident, known: Known, start: float, end: float) -> dict[str, Any]:
        labels = self._ledger.feedback(since=start, until=end, limit=MAX_TOLD)
        wanted = IncidentFilter(since=start, until=end, was_suspect=True)
        named = {one.id: one for one in (incident, *self._store.incidents(wanted, limit=MAX_TOLD))}
        return description(
            [msgspec.to_builtins(label) for label in labels],
            [msgspec.to_builtins(one) for one in named.values()],
            sorted({*known.nodes, incident.node}),
            start,
            end,
            known.step_s,
        )

    def _said(self, incident: Incident) -> str:
        for label in self._ledger.feedback(
            since=incident.active_at, until=incident.active_at, limit=MAX_TOLD
        ):
            if label.incident_id == incident.id:
                return f"{label.by} said: {label.verdict}" + (f", {label.note}." if label.note else ".")
        return "Nobody has said what it was: its time is masked."

    def _story(self, incident: Incident, known: Known) -> dict[str, Any]:
        """Return what the samples do not tell: what was said of the incident, and by whom."""
        trail = self._ledger.audit(limit=MAX_TOLD, offset=0)
        return {
            "incident": incident,
            "transitions": self._store.transitions(incident_id=incident.id, limit=MAX_TOLD),
            "actions": [entry for entry in reversed(trail) if concerns(entry, incident)],
            "version": known.version,
            "catalog_sha256": known.catalog_sha256,
        }


def span_of(
    incident: Incident, before_s: float, after_s: float, now: float, step_s: float
) -> tuple[float, float, bool]:
    """Return first and last evaluation time of an incident's case, and whether it is cut short.

    Both are multiples of the step; the last one is not after `now`.
    """
    start = incident.active_at - before_s
    over = now if incident.cleared_at is None else incident.cleared_at + after_s
    wanted = min(over, now)
    end = min(wanted, start + MAX_SPAN_S)
    start, end = (at // step_s * step_s for at in (max(0.0, start), end))
    return start, max(end, start + step_s), wanted - end > step_s


def _words(incident: Incident) -> str:
    part = f" ({incident.part})" if incident.part else ""
    likely = "" if incident.diagnosis is None else f", {incident.diagnosis.title}"
    named = "never named it" if incident.suspect_at is None else f"named it {utc_second(incident.suspect_at)}"
    cleared = "open" if incident.cleared_at is None else f"cleared {utc_second(incident.cleared_at)}"
    return (
        f"Incident {incident.id}: {incident.node}{part}{likely}; "
        f"first sign {utc_second(incident.active_at)}, Oddnode {named}, {cleared}."
    )


def concerns(entry: AuditEntry, incident: Incident) -> bool:
    """Tell whether a line of the trail is about an incident, or a repair or a mute of its node."""
    what = entry.subject.partition(": ")[2] if entry.subject.startswith("mute ") else entry.subject
    return entry.subject == f"incident {incident.id}" or f"node {incident.node}" in what.split(", ")

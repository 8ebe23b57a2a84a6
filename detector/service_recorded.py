"""A recording that is played, as of any of its evaluations: what the pages show when they are turned back."""

from __future__ import annotations

import math
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import msgspec

from detector.core.eras import Era, with_era_before
from detector.core.neighbours import Neighbours
from detector.core.series_view import SeriesQuery, SeriesView, Yardstick
from detector.core.window import Frame
from detector.explanation import Explanation
from detector.outcome import GroupEvent, Incident, Transition
from detector.service_view import Coverage, Extent, Latest, Mark, NotKeptError, Readiness, ServiceView
from detector.store_contract import IncidentFilter, Reading
from grouping.index import SeriesIndex

MAX_FRAME_BYTES = 256 << 20
"""Samples beyond this are dropped, oldest first: charts of those times are empty."""

MAX_VERDICT_BYTES = 128 << 20
"""Packed verdicts beyond this are dropped, oldest first: those times cannot be shown any more."""

MAX_FORMER = 4
"""Changes of settings after which samples of before are still shown: each has its own numbers of series."""

MAX_MARKS = 500
N_UNPACKED = 8


SeriesOf = Callable[[SeriesQuery, Sequence[Frame]], Sequence[SeriesView]]


class _Moment(msgspec.Struct):
    latest: Latest
    coverage: Coverage | None
    explained: dict[str, Explanation]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Moment).decode


T = TypeVar("T")


@dataclass(slots=True)
class _Versions(Generic[T]):
    """What was said of one thing, by the time at which it was said."""

    times: list[float] = field(default_factory=list)
    said: list[T] = field(default_factory=list)

    def add(self, at: float, item: T) -> None:
        self.times.append(at)
        self.said.append(item)

    def at(self, at: float) -> T | None:
        k = bisect_right(self.times, at)
        return self.said[k - 1] if k else None


class Recorded:
    """Keeps every evaluation of a recording; safe from any thread.

    Parameters
    ----------
    name
        Of the recording.
    start, end
        Epoch seconds of the recording.
    step_s
        Seconds between evaluations.
    n_frames
        Evaluations that a chart shows.
    """

    def __init__(self, name: str, start: float, end: float, step_s: float, n_frames: int = 40) -> None:
        self._name, self._start, self._end, self._step_s = name, start, end, step_s
        self._n_frames = n_frames
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._packed: list[bytes] = []
        self._frames: deque[Frame] = deque()
        self._former: list[_Former] = []
        self._n_frame_bytes = self._n_packed_bytes = 0
        self._incidents: dict[str, _Versions[Incident]] = {}
        self._events: dict[str, _Versions[GroupEvent]] = {}
        self._transitions: list[Transition] = []
        self._unpacked: OrderedDict[float, _Moment] = OrderedDict()

    def keep(
        self,
        latest: Latest,
        coverage: Coverage | None,
        explained: Mapping[str, Explanation],
        frame: Frame | None,
    ) -> None:
        """Keep one evaluation; later than all before."""
        outcome = latest.outcome
        packed = zlib.compress(_encode(_Moment(latest, coverage, dict(explained))), 1)
        with self._lock:
            self._times.append(outcome.at)
            self._packed.append(packed)
            self._n_packed_bytes += len(packed)
            if frame is not None:
                self._frames.append(frame)
                self._n_frame_bytes += _size(frame)
            for incident in outcome.incidents:
                self._incidents.setdefault(incident.id, _Versions()).add(outcome.at, incident)
            for event in outcome.group_events:
                self._events.setdefault(event.id, _Versions()).add(outcome.at, event)
            self._transitions.extend(outcome.transitions)
            self._drop()

    def begin_era(self, index: SeriesIndex, yardstick: Yardstick) -> None:
        """Go on with another pipeline, which numbers the series anew; `index` has numbered them so far."""
        with self._lock:
            if self._frames:
                self._former.append(_Former(index, yardstick, self._frames))
                self._frames = deque()
            while len(self._former) > MAX_FORMER:
                self._n_frame_bytes -= sum(map(_size, self._former.pop(0).frames))

    def extent(self) -> Extent:
        """Tell what can be shown."""
        with self._lock:
            marks = [
                Mark(step.at, step.node, step.incident_id, step.after)
                for step in self._transitions
                if step.after == "suspect" or step.before == "suspect"
            ]
            first, last = (self._times[0], self._times[-1]) if self._times else (None, None)
            n = len(self._times)
        times = (self._start, self._end, self._step_s, first, last, n)
        return Extent(self._name, *times, tuple(marks[-MAX_MARKS:]))

    def as_of(self, service: ServiceView, series: SeriesOf, at: float) -> ServiceView:
        """Return the service as it was at the newest evaluation that is not after `at`.

        Parameters
        ----------
        service
            As it is now.
        series
            Answers a query by frames.
        at
            Epoch seconds.

        Raises
        ------
        NotKeptError
            When nothing is kept of that time.
        """
        with self._lock:
            k = bisect_right(self._times, at)
            if not k:
                first = f", the first is {self._times[0]:.0f}" if self._times else ""
                raise NotKeptError(f"no evaluation of {at:.0f} or before is kept{first}")
            if k == len(self._times):
                return service
            then, packed = self._times[k - 1], self._packed[k - 1]
            moment = self._unpacked.get(then)
        if moment is None:
            moment = _decode(zlib.decompress(packed))
        with self._lock:
            self._unpacked[then] = moment
            self._unpacked.move_to_end(then)
            while len(self._unpacked) > N_UNPACKED:
                self._unpacked.popitem(last=False)
        return _AsOf(service, self, moment, series)

    def series(self, query: SeriesQuery, at: float, by_frames: SeriesOf) -> list[SeriesView]:
        """Return signals of a node as of `at`: a chart's window, or from `query.since` on.

        Parameters
        ----------
        query
            Which.
        at
            Epoch seconds.
        by_frames
            Answers a query by frames of the pipeline in effect.
        """
        with self._lock:
            frames = [frame for frame in self._frames if frame.at <= at]
            former = [
                Era(era.index, [frame for frame in era.frames if frame.at <= at], era.yardstick)
                for era in self._former
            ]
        if math.isinf(query.since):
            # the window of a chart
            times = [frame.at for era in (*(era.frames for era in former), frames) for frame in era]
            query = replace(query, since=min(times[-self._n_frames :], default=at))
        query = replace(query, until=min(query.until, at))
        views = list(by_frames(query, frames)) if frames else []
        for era in reversed(former):
            views = with_era_before(views, era, query)
        return views

    def incidents_at(self, at: float) -> list[Incident]:
        """Return incidents as they were at `at`, newest first."""
        with self._lock:
            found = [item for known in self._incidents.values() if (item := known.at(at)) is not None]
        return sorted(found, key=lambda item: (-item.active_at, item.id))

    def events_at(self, at: float) -> list[GroupEvent]:
        """Return group events as they were at `at`, newest first."""
        with self._lock:
            found = [item for known in self._events.values() if (item := known.at(at)) is not None]
        return sorted(found, key=lambda item: (-item.started_at, item.id))

    def transitions_until(self, at: float) -> list[Transition]:
        """Return transitions up to `at`, in order of time."""
        with self._lock:
            return [step for step in self._transitions if step.at <= at]

    def _drop(self) -> None:
        while self._n_frame_bytes > MAX_FRAME_BYTES and (self._former or len(self._frames) > 1):
            oldest = self._former[0].frames if self._former else self._frames
            self._n_frame_bytes -= _size(oldest.popleft())
            if not oldest:
                self._former.pop(0)
        n = 0
        while self._n_packed_bytes > MAX_VERDICT_BYTES and n < len(self._packed) - 1:
            self._n_packed_bytes -= len(self._packed[n])
            n += 1
        del self._packed[:n], self._times[:n]


@dataclass(frozen=True, slots=True)
class _Former:
    """Samples that a pipeline has judged which is not in effect any more."""

    index: SeriesIndex
    yardstick: Yardstick
    frames: deque[Frame]


def _size(frame: Frame) -> int:
    return frame.values.nbytes + frame.median.nbytes + frame.scale.nbytes


class _AsOf:
    """A service as it was; see `service_view.ServiceView`."""

    def __init__(self, service: ServiceView, recorded: Recorded, moment: _Moment, series: SeriesOf) -> None:
        self._service, self._recorded, self._moment, self._series = service, recorded, moment, series
        self._at = moment.latest.outcome.at
        self.store: Reading = _StoreAsOf(service.store, recorded, self._at)

    def latest(self) -> Latest:
        return self._moment.latest

    def data_age_s(self) -> float:
        return 0.0

    def readiness(self) -> Readiness:
        return self._service.readiness()

    def series(self, query: SeriesQuery) -> Sequence[SeriesView]:
        return self._recorded.series(query, self._at, self._series)

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        return self._moment.explained.get(node)

    def coverage(self) -> Coverage | None:
        return self._moment.coverage

    def neighbours(self, node: str) -> Sequence[Neighbours]:
        return self._service.neighbours(node)

    def recording(self) -> Extent | None:
        return self._service.recording()

    def as_of(self, at: float) -> ServiceView:
        return self._service.as_of(at)

    def is_ending(self) -> bool:
        return self._service.is_ending()

    def metrics_text(self) -> bytes:
        return self._service.metrics_text()


class _StoreAsOf:
    """A store as it was; see `store_contract.Reading`."""

    def __init__(self, store: Reading, recorded: Recorded, at: float) -> None:
        self._store, self._recorded, self._at = store, recorded, at

    @property
    def name(self) -> str:
        return self._store.name

    def incidents(
        self, wanted: IncidentFilter | None = None, *, limit: int = 100, offset: int = 0
    ) -> list[Incident]:
        return self._fitting(wanted)[offset : offset + limit]

    def count_incidents(self, wanted: IncidentFilter | None = None) -> int:
        return len(self._fitting(wanted))

    def count_raised(self, since: float) -> int:
        known = self._recorded.incidents_at(self._at)
        return sum(item.suspect_at is not None and item.suspect_at >= since for item in known)

    def incident(self, incident_id: str) -> Incident | None:
        return next((i for i in self._recorded.incidents_at(self._at) if i.id == incident_id), None)

    def open_incidents(self) -> list[Incident]:
        return self._fitting(IncidentFilter(state="open"))[::-1]

    def transitions(
        self, *, incident_id: str | None = None, since: float | None = None, limit: int = 100, offset: int = 0
    ) -> list[Transition]:
        found = [
            step
            for step in self._recorded.transitions_until(self._at)
            if incident_id in (None, step.incident_id) and (since is None or step.at >= since)
        ]
        return found[offset : offset + limit]

    def group_events(self, *, limit: int = 100, offset: int = 0) -> list[GroupEvent]:
        return self._recorded.events_at(self._at)[offset : offset + limit]

    def last_evaluation(self) -> float | None:
        return self._at

    def snapshot(self) -> bytes | None:
        return self._store.snapshot()

    def rows(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        return self._store.rows(sql, values)

    def _fitting(self, wanted: IncidentFilter | None) -> list[Incident]:
        known = self._recorded.incidents_at(self._at)
        return known if wanted is None else [item for item in known if _fits(item, wanted)]


def _fits(item: Incident, wanted: IncidentFilter) -> bool:
    if wanted.node not in (None, item.node) or (wanted.was_suspect and item.suspect_at is None):
        return False
    if wanted.state == "open" and item.state == "cleared":
        return False
    if wanted.state not in (None, "open", item.state):
        return False
    if wanted.since is not None and item.cleared_at is not None and item.cleared_at < wanted.since:
        return False
    return wanted.until is None or item.active_at <= wanted.until

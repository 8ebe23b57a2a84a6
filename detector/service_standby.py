"""What a replica that stands by knows: the evaluation that the leading one has stored, and its history."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from detector.control.ledger import Keep
from detector.core.neighbours import Neighbours
from detector.core.series_view import SeriesQuery, SeriesView
from detector.errors import StoreError
from detector.explanation import Explanation
from detector.outcome import Evidence, Incident
from detector.service_view import (
    ONLY_RECORDED,
    BusyError,
    Coverage,
    Extent,
    Latest,
    NotKeptError,
    Readiness,
    ServiceView,
)
from detector.store_contract import Reading, Statements, Tables
from detector.telemetry import LEADER_HELP

log = logging.getLogger("oddnode.detector.service")

STANDING_BY = "this replica stands by: only the one that leads can do this, ask again"

_decoder = msgspec.msgpack.Decoder(Latest)
_encode = msgspec.msgpack.Encoder().encode
_PUT = (
    "INSERT INTO state (name, at, body) VALUES ('latest', ?1, ?2) "
    "ON CONFLICT (name) DO UPDATE SET at=excluded.at, body=excluded.body"
)


def show_others(store: Tables, latest: Latest) -> None:
    """Store the newest evaluation for those that stand by; never raises, the next one comes soon."""
    try:
        with store.writing() as to:
            to.execute(_PUT, (latest.outcome.at, _encode(latest)))
    except StoreError as error:
        log.warning("standby not_shown=%r", str(error))


class StandbyView:
    """A replica that stands by, as the REST interface sees it, and as operators do.

    Parameters
    ----------
    store
        What the leading replica writes.
    now
        Clock, epoch seconds.
    fresh_s
        A stored evaluation whose time is longer ago than this is not fresh, seconds.
    """

    def __init__(self, store: Reading, now: Callable[[], float], fresh_s: float) -> None:
        self._store = store
        self._now = now
        self._fresh_s = fresh_s
        self._latest: Latest | None = None
        self._at: float | None = None
        self._is_ending = False
        self.problem = ""
        self._registry = CollectorRegistry()
        # nothing else: alerts on what a replica measures when it evaluates would fire for this one
        Gauge("oddnode_leader", LEADER_HELP, registry=self._registry).set(0)

    @property
    def store(self) -> Reading:
        """Stored incidents and their history."""
        return self._store

    def refresh(self) -> bool:
        """Read the newest evaluation; True when there is a new one.

        Raises
        ------
        StoreError
            When the store cannot be read.
        """
        found = self._store.rows("SELECT at FROM state WHERE name = 'latest'", ())
        if not found or float(found[0][0]) == self._at:
            return False
        at, body = self._store.rows("SELECT at, body FROM state WHERE name = 'latest'", ())[0]
        self._at = float(at)
        try:
            self._latest = _decoder.decode(body)
        except msgspec.DecodeError as error:
            self._latest = None
            log.warning("standby unreadable=%r: it was written by another version", str(error))
        return True

    def latest(self) -> Latest | None:
        """Return the newest evaluation that the leading replica has stored."""
        return self._latest

    def data_age_s(self) -> float | None:
        """Return seconds between the newest evaluation time and now."""
        latest = self._latest
        return None if latest is None else max(0.0, self._now() - latest.outcome.at)

    def readiness(self) -> Readiness:
        """Tell whether what is served is fresh: another replica leads and stores what it finds."""
        reasons = []
        age_s = self.data_age_s()
        if self.problem:
            reasons.append(self.problem)
        if age_s is None:
            reasons.append("standing by: the replica that leads has stored no evaluation yet")
        elif age_s > self._fresh_s:
            reasons.append(f"standing by: the replica that leads has stored no evaluation for {age_s:.0f} s")
        if self._latest is not None and self._latest.outcome.n_series == 0:
            reasons.append("the database has no series of any metric in the catalog")
        return Readiness(tuple(reasons), ("standing by: another replica leads, this one only reads",))

    def series(self, query: SeriesQuery) -> Sequence[SeriesView]:
        """Refuse: the samples are with the replica that leads."""
        raise BusyError(STANDING_BY)

    def explain(self, node: str, n_signals: int) -> Explanation | None:
        """Return None: what is stored is told instead."""
        return None

    def coverage(self) -> Coverage | None:
        """Refuse: what there is to judge by is with the replica that leads."""
        raise BusyError(STANDING_BY)

    def neighbours(self, node: str) -> Sequence[Neighbours]:
        """Refuse: the labels are with the replica that leads."""
        raise BusyError(STANDING_BY)

    def recording(self) -> Extent | None:
        """Return None: what is played is played by one."""
        return None

    def as_of(self, at: float) -> ServiceView:
        """Refuse: a live service is as it is now."""
        raise NotKeptError(ONLY_RECORDED)

    def is_ending(self) -> bool:
        """Tell whether `end` was called."""
        return self._is_ending

    def end(self) -> None:
        """Stop standing by: streams end."""
        self._is_ending = True

    def metrics_text(self) -> bytes:
        """Return own metrics in the Prometheus text format."""
        return generate_latest(self._registry)

    def evidence_of(self, node: str) -> Sequence[Evidence]:
        """Return none: nothing can be said of an incident here."""
        return ()

    def knows(self, *, node: str = "", pool: str = "", metric: str = "") -> bool:
        """Return True, so that a request is refused for the reason that counts."""
        return True

    def repaired(self, node: str, at: float, reason: str, keep: Keep) -> Incident | None:
        """Refuse: the incident is with the replica that leads."""
        raise BusyError(STANDING_BY)


def refuse(write: Callable[[Statements], None]) -> None:
    """Refuse a change."""
    raise BusyError(STANDING_BY)

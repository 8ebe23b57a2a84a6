"""Puts the service together and runs it until it is told to end."""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from types import FrameType

import uvicorn

from api.access import Policy
from api.app import create_app
from detector.calibration.chosen import choose
from detector.calibration.model import MONTH_S, Calibration
from detector.control.desk import Desk
from detector.delivery.delivery import Delivery
from detector.errors import SettingsError, StoreError
from detector.explain import explain
from detector.outcome import Outcome
from detector.pipeline import Pipeline
from detector.replay import pipeline_for
from detector.service import Service
from detector.service_clock import Clock, RecordedClock, SystemClock
from detector.service_contracts import ServiceHooks
from detector.service_log import configure_logging
from detector.service_loop import Loop, real_delay_s
from detector.service_operators import Operated
from detector.service_plan import Begin
from detector.service_pools import PoolQuery
from detector.service_standby import show_others
from detector.service_view import ServiceView
from detector.settings import HttpSettings, ScheduleSettings, Settings
from detector.source.base import Source
from detector.source.opening import open_source
from detector.source.recording import RecordingSource, load_recording
from detector.store import Store, remove_store
from detector.store_contract import Keeping, Shared
from detector.store_control import ControlStore
from detector.telemetry import Telemetry
from detector.tokens import Tokens
from grouping.catalog import load_catalog

log = logging.getLogger("oddnode.detector.app")

STOP_S = 10.0
"""How long a tick under way may take to end."""

GRACE_S = 3
"""How long open connections may take to end."""


@dataclass(frozen=True, slots=True)
class ServeHooks:
    """What the caller wants to be told.

    Parameters
    ----------
    started
        Called with the address once it answers.
    published
        Called with every judged outcome, from the thread of the tick.
    """

    started: Callable[[str], None] | None = None
    published: Callable[[Outcome], None] | None = None


class _Server(uvicorn.Server):
    """Leaves signals to `serve`, and tells when it answers."""

    def __init__(self, config: uvicorn.Config, answers: Callable[[], None]) -> None:
        super().__init__(config)
        self._answers = answers

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets)
        self._answers()


def version() -> str:
    """Return the installed version, ``unknown`` in a bare checkout."""
    try:
        return metadata.version("oddnode")
    except metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class _Parts:
    pipeline: Pipeline
    open_source: Callable[[], Source]
    clock: Clock
    schedule: ScheduleSettings
    begin: Begin | None
    catalog_sha256: str
    calibration: Calibration | None


def _live(settings: Settings) -> _Parts:
    options = settings.source.options()
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
    open_source(options).close()  # tells wrong options at once; nothing is sent
    return _Parts(
        pipeline,
        lambda: open_source(options),
        SystemClock(),
        settings.schedule,
        None,
        catalog.sha256,
        chosen.calibration,
    )


def _recorded(settings: Settings) -> _Parts:
    chosen = settings.recording
    assert chosen.path is not None  # noqa: S101 (narrowing: the caller looked)
    recording = load_recording(chosen.path)
    source = RecordingSource(chosen.path)
    catalog = load_catalog(settings.catalog.path, settings.catalog.overlays)
    learnt = choose(settings, catalog)
    pipeline, notes = pipeline_for(
        recording,
        source,
        catalog,
        settings.detection,
        identity=settings.identity,
        placement=settings.placement,
        pools=settings.pools,
        use_pool=chosen.use_pool,
        thresholds=learnt.thresholds,
    )
    for note in notes:
        log.warning("recording note=%r", note)
    step_s = float(recording.step_s)
    schedule = settings.schedule.model_copy(update={"step_s": step_s, "evaluation_delay_s": 0.0})
    begin = Begin(math.floor(recording.start / step_s) + 1, int((recording.start - step_s) * 1000) - 1)
    clock = RecordedClock(recording.start, recording.end, chosen.speed)
    sha256 = pipeline.catalog.sha256
    return _Parts(pipeline, lambda: source, clock, schedule, begin, sha256, learnt.calibration)


def _listen(host: str, port: int) -> socket.socket:
    """Bind before anything is started, so that a taken port is told at once."""
    bound: socket.socket | None = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise SettingsError(f"http: cannot listen on {host} port {port}: {error.strerror}") from None
    return bound


@dataclass(frozen=True, slots=True)
class _Door:
    """Where requests come in, and who may."""

    bound: socket.socket
    tokens: Tokens
    tls: ssl.SSLContext | None

    @property
    def is_local(self) -> bool:
        """True when only this machine can reach it."""
        return ipaddress.ip_address(self.bound.getsockname()[0].partition("%")[0]).is_loopback

    def url(self) -> str:
        """Return the address."""
        host, port = self.bound.getsockname()[:2]
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def tls_context(http: HttpSettings) -> ssl.SSLContext | None:
    """Return what TLS needs, None for plain HTTP.

    Raises
    ------
    SettingsError
        When certificate or key cannot be used.
    """
    if http.tls_cert is None or http.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (http.tls_cert, http.tls_key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise SettingsError(f"http: {path}: cannot be read: {error.strerror}") from None
    try:
        # a key with a passphrase would ask on the terminal and wait
        context.load_cert_chain(http.tls_cert, http.tls_key, password="")
    except (ssl.SSLError, OSError, ValueError):
        raise SettingsError(
            f"http.tls_cert {http.tls_cert} and {http.tls_key} are no certificate with its key"
        ) from None
    return context


class _Signals:
    """First signal: end in order. Second: end at once; the store survives that."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.on_first: Callable[[], None] = lambda: None
        self._n = 0

    def install(self) -> None:
        """Take over SIGTERM and SIGINT, when in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._n += 1
        if self._n > 1:
            os._exit(128 + number)
        # locks may be held by the very frame that was interrupted: another thread does the work
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        self.stopping.set()
        self.on_first()


def serve(settings: Settings, hooks: ServeHooks | None = None) -> int:
    """Run the service until SIGTERM or SIGINT.

    Parameters
    ----------
    settings
        Checked settings.
    hooks
        What the caller wants to be told.

    Returns
    -------
    int
        Exit code.

    Raises
    ------
    OddnodeError, CatalogError
        When it cannot be started: settings, catalog, recording, store or address.
    """
    hooks = hooks or ServeHooks()
    configure_logging(settings.log.level, settings.log.format)
    signals = _Signals()
    signals.install()
    tokens = Tokens(settings.auth)
    tls = tls_context(settings.http)
    with _listen(settings.http.host, settings.http.port) as bound:
        parts = _live(settings) if settings.recording.path is None else _recorded(settings)
        if settings.recording.path is not None:
            remove_store(settings.store_path())
        door = _Door(bound, tokens, tls)
        store = _open_store(settings, signals, parts, door)
        if store is None:
            return 0  # told to end while it stood by
        try:
            return _run(settings, hooks, signals, parts, store, door)
        finally:
            store.close()


def _open_store(settings: Settings, signals: _Signals, parts: _Parts, door: _Door) -> Keeping | None:
    """Open the store as its one writer, None when told to end while another process has it."""
    if settings.store.url is None or settings.recording.path is not None:
        try:
            return Store(
                settings.store_path(),
                retention_s=settings.store.retention_days * 86400.0,
                lock_wait_s=settings.store.lock_wait_s,
                stop=signals.stopping,
            )
        except StoreError:
            if signals.stopping.is_set():
                return None
            raise
    from detector.app_standby import lead_or_stand_by  # needs an extra that others do without

    def server(view: ServiceView, desk: Desk) -> uvicorn.Server:
        made = _server(
            settings, door, view, desk, lambda: log.info("listening url=%s standing_by=true", door.url())
        )
        signals.on_first = partial(setattr, made, "should_exit", True)
        return made

    return lead_or_stand_by(settings, parts.clock, server, door.bound, signals.stopping)


def _server(
    settings: Settings, door: _Door, view: ServiceView, desk: Desk, answers: Callable[[], None]
) -> _Server:
    config = uvicorn.Config(
        create_app(view, version(), desk=desk, policy=Policy(door.tokens, door.is_local, settings.auth)),
        log_config=None, access_log=False, lifespan="off", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
    config.load()
    config.ssl = door.tls
    return _Server(config, answers)


def _telemetry(parts: _Parts, store: Keeping) -> Telemetry:
    """Make the service's own metrics, what is known of the budget included."""
    telemetry = Telemetry(version(), parts.catalog_sha256)

    def raised() -> float:
        try:
            return float(store.count_raised(parts.clock.now() - MONTH_S))
        except StoreError:
            return math.nan  # a scrape must not fail for it

    telemetry.watch_raised(raised)
    if (made := parts.calibration) is not None:
        telemetry.calibrated(made.catalog_sha256, made.budget_per_month, made.expected.per_month)
    return telemetry


def _run(
    settings: Settings,
    hooks: ServeHooks,
    signals: _Signals,
    parts: _Parts,
    store: Keeping,
    door: _Door,
) -> int:
    schedule, speed = parts.schedule, parts.clock.speed
    desk = Desk(ControlStore(store), parts.clock.now)
    parts.pipeline.muted_metrics = desk.metric_mutes

    telemetry = _telemetry(parts, store)
    telemetry.configured(settings.describe())
    delivery = Delivery(
        settings.delivery, store, parts.clock.now, telemetry.delivery,
        muted=desk, is_shadow=settings.recording.path is not None,  # what is played calls nobody
    )  # fmt: skip

    def published(outcome: Outcome) -> None:
        desk.observe(outcome)
        latest = service.latest()
        if latest is not None:
            delivery.feed(outcome, latest.suspects)
            if isinstance(store, Shared):
                show_others(store, latest)
        if hooks.published is not None:
            hooks.published(outcome)

    service = Service(
        schedule,
        parts.open_source,
        parts.pipeline,
        store,
        telemetry,
        parts.clock,
        begin=parts.begin,
        snapshot_s=settings.store.snapshot_s,
        hooks=ServiceHooks(
            PoolQuery(settings.pools, parts.pipeline, schedule.pool_query_s),
            published,
            partial(explain, parts.pipeline),
            desk,
        ),
    )
    desk.attach(Operated(service, parts.pipeline.catalog.by_name))
    loop = Loop(
        service,
        step_s=schedule.step_s / speed,
        delay_s=real_delay_s(schedule.evaluation_delay_s, schedule.step_s, speed),
        stuck_after_s=2 * schedule.tick_timeout_s,
    )
    url = door.url()
    if not door.tokens.are_set and not door.is_local:
        log.warning("access open=true url=%s: anybody may read, nobody may change; see auth.tokens", url)

    def answers() -> None:
        log.info("listening url=%s version=%s store=%s", url, version(), store.name)
        if hooks.started is not None:
            hooks.started(url)

    server = _server(settings, door, service, desk, answers)

    def end() -> None:
        server.should_exit = True
        service.stop()

    signals.on_first = end

    def lost() -> None:
        telemetry.lost_lead()
        end()

    if isinstance(store, Shared):
        store.when_lost(lost)
    if signals.stopping.is_set():
        return 0
    delivery.start()
    loop.start()
    server.run(sockets=[door.bound])
    is_over = loop.stop(STOP_S)
    delivery.finish()
    if not is_over:
        log.error("ending tick_still_runs=true waited_s=%g", STOP_S)
        store.close()
        # the interpreter would wait for the thread of the tick; what is stored is whole
        os._exit(0)
    log.info("ended")
    # started again it stands by
    return int(isinstance(store, Shared) and store.is_lost)

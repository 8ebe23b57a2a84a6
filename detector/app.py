"""Puts the service together and runs it until it is told to end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata

import uvicorn

from api.access import Entrance, Policy
from api.app import create_app
from detector.app_connection import BACKLOG, Connection
from detector.app_door import Door, Server, listen, tls_context
from detector.app_parts import Parts, parts_of
from detector.app_running import Running
from detector.app_signals import Signals
from detector.control.desk import Desk
from detector.errors import StoreError
from detector.export import Exporter
from detector.file_content import contents
from detector.outcome import Outcome
from detector.past import Past
from detector.reload import Origin, Reloader
from detector.reporter import Reporter
from detector.service_clock import SystemClock
from detector.service_log import configure_logging
from detector.service_loop import Loop, real_delay_s
from detector.service_view import ServiceView
from detector.settings import Settings
from detector.settings_change import files_of
from detector.store import Store, remove_store
from detector.store_contract import Keeping, Shared
from detector.store_control import ControlStore
from detector.telemetry import Telemetry
from detector.tokens import Tokens
from detector.what_if.trials import Trials

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


def version() -> str:
    """Return the installed version, ``unknown`` in a bare checkout."""
    try:
        return metadata.version("oddnode")
    except metadata.PackageNotFoundError:
        return "unknown"


def serve(settings: Settings, hooks: ServeHooks | None = None, origin: Origin | None = None) -> int:
    """Run the service until SIGTERM or SIGINT.

    Parameters
    ----------
    settings
        Checked settings.
    hooks
        What the caller wants to be told.
    origin
        Where the settings came from, to read them again; None never does.

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
    signals = Signals()
    signals.install()
    tokens = Tokens(settings.auth)
    tls = tls_context(settings.http)
    files = contents(files_of(settings))
    with listen(settings.http.host, settings.http.port) as bound:
        parts = parts_of(settings)
        judging = parts.judging(settings)
        if settings.recording.path is not None:
            remove_store(settings.store_path())
        door = Door(bound, tls)
        store = _open_store(settings, signals, parts, door, tokens)
        if store is None:
            return 0  # told to end while it stood by
        try:
            telemetry = Telemetry(version())
            desk = Desk(ControlStore(store), parts.clock.now)
            running = Running(
                settings, files, parts, judging, store, telemetry, desk, door, tokens, version()
            )
            running.watch = hooks.published
            reloader = None
            if origin is not None:
                reloader = Reloader(
                    origin,
                    running,
                    telemetry.reload,
                    SystemClock().now,
                    settings.reload.every_s,
                    files=files,  # they may have changed while this replica stood by
                )
            speed = parts.clock.speed
            loop = Loop(
                running.service,
                step_s=parts.schedule.step_s / speed,
                delay_s=real_delay_s(parts.schedule.evaluation_delay_s, parts.schedule.step_s, speed),
                stuck_after_s=2 * parts.schedule.tick_timeout_s,
            )
            return _run(running, loop, reloader, signals, desk, store, telemetry, door, hooks)
        finally:
            store.close()


def _open_store(
    settings: Settings, signals: Signals, parts: Parts, door: Door, tokens: Tokens
) -> Keeping | None:
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

    def answers() -> None:
        log.info("listening url=%s standing_by=true", door.url())

    def server(view: ServiceView, desk: Desk) -> Server:
        made = make_server(view, desk, Entrance(Policy(tokens, door.is_local, settings.auth)), door, answers)
        signals.on_first = partial(setattr, made, "should_exit", True)
        return made

    return lead_or_stand_by(settings, parts.clock, server, door.bound, signals.stopping)


def make_server(
    view: ServiceView,
    desk: Desk,
    entrance: Entrance,
    door: Door,
    answers: Callable[[], None],
    trials: Trials | None = None,
    exporter: Exporter | None = None,
    past: Past | None = None,
    reporter: Reporter | None = None,
) -> Server:
    """Return what answers requests, for one door."""
    Connection.bound()
    config = uvicorn.Config(
        create_app(
            view,
            version(),
            desk=desk,
            entrance=entrance,
            trials=trials,
            exporter=exporter,
            past=past,
            reporter=reporter,
        ),
        log_config=None, access_log=False, lifespan="off", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S, http=Connection, backlog=BACKLOG,
    )  # fmt: skip
    config.load()
    config.ssl = door.tls
    return Server(config, answers)


def _run(
    running: Running,
    loop: Loop,
    reloader: Reloader | None,
    signals: Signals,
    desk: Desk,
    store: Keeping,
    telemetry: Telemetry,
    door: Door,
    hooks: ServeHooks,
) -> int:
    url = door.url()

    def answers() -> None:
        log.info("listening url=%s version=%s store=%s", url, version(), store.name)
        if hooks.started is not None:
            hooks.started(url)

    parts = running.trials, running.exporter, running.past, running.reporter
    server = make_server(running.service, desk, running.entrance, door, answers, *parts)

    def end() -> None:
        server.should_exit = True
        running.service.stop()
        running.exporter.stop()

    signals.on_first = end

    def lost() -> None:
        telemetry.lost_lead()
        end()

    if isinstance(store, Shared):
        store.when_lost(lost)
    if signals.stopping.is_set():
        return 0
    running.delivery.start()
    if reloader is not None:
        signals.on_hangup = reloader.ask
        running.before_tick = reloader.between_ticks
        reloader.start()
    loop.start()
    server.run(sockets=[door.bound])
    if reloader is not None:
        reloader.stop()
    is_over = loop.stop(STOP_S)
    running.trials.close()
    running.delivery.finish()
    if not is_over:
        log.error("ending tick_still_runs=true waited_s=%g", STOP_S)
        store.close()
        # the interpreter would wait for the thread of the tick; what is stored is whole
        os._exit(0)
    log.info("ended")
    # started again it stands by
    return int(isinstance(store, Shared) and store.is_lost)

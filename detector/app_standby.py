"""Replicas on one PostgreSQL: one leads, the others answer from the store until they take over."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import uvicorn

from detector.control.desk import Desk
from detector.errors import SettingsError, StoreError
from detector.service_clock import Clock
from detector.service_readiness import READY_STEPS
from detector.service_standby import StandbyView, refuse
from detector.service_view import ServiceView
from detector.settings import Settings
from detector.store_contract import Keeping
from detector.store_control import ControlStore

try:
    from detector.postgres.address import Address
    from detector.postgres.schema import is_there
    from detector.postgres.server import Server
    from detector.postgres.standby import Standby, StandbyStore
    from detector.postgres.store import PostgresStore, take_lead
except ImportError as missing:
    raise SettingsError(
        f"store.url needs the extra postgres: pip install 'oddnode[postgres]' ({missing})"
    ) from None

log = logging.getLogger("oddnode.detector.app")

GRACE_STEPS = 1.5
SCHEMA_WAIT_S = 0.5
STOP_S = 10.0


def lead_or_stand_by(
    settings: Settings,
    clock: Clock,
    make_server: Callable[[ServiceView, Desk], uvicorn.Server],
    bound: socket.socket,
    stopping: threading.Event,
) -> PostgresStore | None:
    """Return the store once this replica leads; until then serve what the leading one has stored.

    Parameters
    ----------
    settings
        Checked settings with ``store.url``.
    clock
        Time of the data.
    make_server
        Makes the server of the REST interface.
    bound
        Where it listens; left open.
    stopping
        Ends the waiting.

    Returns
    -------
    PostgresStore or None
        None when told to stop before.

    Raises
    ------
    SettingsError, StoreError
        When the address is none, or the server cannot be reached at start.
    """
    chosen = settings.store
    assert chosen.url is not None  # noqa: S101 (narrowing: the caller looked)
    server = Server(Address(chosen.url.get_secret_value(), chosen.password_file))
    retention_s = chosen.retention_days * 86400.0
    lead = take_lead(server)
    if lead is not None:
        return PostgresStore(server, lead, retention_s=retention_s)
    log.warning("store path=%s standing_by=true", server.name)
    store = StandbyStore(server, refuse)
    while not is_there(server):  # the leading replica is about to make it
        if stopping.wait(SCHEMA_WAIT_S):
            return None
    step_s = settings.schedule.step_s
    # an evaluation is of a time one delay ago, and takes a while
    fresh_s = settings.schedule.evaluation_delay_s + (READY_STEPS + 1) * step_s
    view = StandbyView(store, clock.now, fresh_s)
    # the desk only reads: every change ends in `refuse`
    desk = Desk(ControlStore(cast(Keeping, store)), clock.now)
    desk.attach(view)

    def changed() -> None:
        with suppress(StoreError):
            desk.reload()

    standby = Standby(server, view, changed, retention_s=retention_s, grace_s=GRACE_STEPS * step_s)
    http = make_server(view, desk)
    found: list[PostgresStore | None] = []

    def wait() -> None:
        try:
            found.append(standby.wait(stopping))
        finally:
            view.end()
            http.should_exit = True

    waiting = threading.Thread(target=wait, name="oddnode-standby", daemon=True)
    waiting.start()
    with bound.dup() as listening:  # the server closes what it is given
        http.run(sockets=[listening])
    waiting.join(STOP_S)
    return found[0] if found else None

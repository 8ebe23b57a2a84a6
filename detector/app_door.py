"""Where requests come in: the address, TLS, and the server that answers."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from detector.errors import SettingsError
from detector.settings import HttpSettings

TURN_S = 0.0005
"""An evaluation gives way to a request after so long; each of a request's turns waits for that."""


class Server(uvicorn.Server):
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
        sys.setswitchinterval(TURN_S)
        await super().startup(sockets)
        self._answers()


def listen(host: str, port: int) -> socket.socket:
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
class Door:
    """Where requests come in."""

    bound: socket.socket
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

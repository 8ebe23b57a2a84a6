"""One bounded HTTP request: credentials, time limits, size limits, redirects, errors in plain words.

Everything that a source asks of a database passes here, whichever library phrased it, and what
delivery tells its receivers.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode, urljoin, urlsplit
from weakref import WeakSet

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError, SSLError, TimeoutError

from detector.errors import SourceError, SourceStatus, SourceTimeout
from detector.source.answer import (
    ERROR_TEXT_BYTES,
    Answer,
    CutOff,
    Deadline,
    HttpRefusal,
    UnreachableError,
    error_text,
    one_line,
    page_title,
    require_json,
)
from detector.source.credentials import Credentials, without_userinfo
from detector.source.options import SourceOptions

T = TypeVar("T")
Form = Sequence[tuple[str, str]]

MAX_REDIRECTS = 3
MAX_RETRY_AFTER_S = 3600.0
PASSING_STATUS = frozenset({429, 502, 503, 504})
FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})


class HttpClient:
    """Sends requests to one database.

    `close` may be called from another thread while a request hangs: it ends that request.

    Raises
    ------
    SourceError
        When the address is none.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.base_url = without_userinfo(options.url)
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SourceError(f"source url {self.base_url!r} is not an http or https address")
        self._credentials = Credentials(options)
        if options.insecure_skip_verify:
            # asked for explicitly: one warning per request would say nothing new
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._closed = threading.Event()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._pool: urllib3.PoolManager | None = None
        self._pool_stamp: tuple[object, ...] = ()
        self._pool_lock = threading.Lock()

    def deadline(self) -> Deadline:
        """Return a new deadline for a whole fetch."""
        return Deadline(self.options.deadline_s)

    def close(self) -> None:
        """End requests under way and close all connections."""
        self._closed.set()
        for sock in list(self._sockets):
            with suppress(OSError):
                # not SSLSocket.shutdown, which would take the TLS state from under the reading thread
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        if self._pool is not None:
            self._pool.clear()

    def retrying(self, attempt: Callable[[], T], deadline: Deadline) -> T:
        """Return `attempt()`, repeated a bounded number of times after failures that may pass.

        Waits as long as the server asked, or a random short time, but never past the deadline.
        """
        for left in range(self.options.retries, -1, -1):
            try:
                return attempt()
            except SourceError as error:
                wait_s = _wait_before_retry(error)
                if not left or wait_s is None or self._closed.is_set():
                    raise
                if wait_s >= deadline.remaining_s(self.base_url):
                    raise
                self._closed.wait(wait_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextmanager
    def post(self, path: str, form: Form, deadline: Deadline, *, method: str = "POST") -> Iterator[Answer]:
        """Send a form (or a query string, for GET) and give the answer, which must be JSON of status 200.

        Raises
        ------
        SourceTimeout, SourceStatus, SourceDecode, SourceError
            Timed out; refused; not JSON; unreachable.
        """
        url = f"{self.base_url}{path}"
        query, body = ("", urlencode(form).encode()) if method == "POST" else (urlencode(form), None)
        send = partial(self._send, method, f"{url}?{query}" if query else url, body, FORM_HEADERS, deadline)
        response = send()
        # vmauth says 400 to a token that it does not know
        if response.status in (400, 401, 403) and self._credentials.renew():
            _discard(response)
            response = send()
        is_complete = False
        try:
            if response.status != 200:
                raise self._refusal(response, url)
            require_json(response, url)
            yield Answer(response, url, deadline, self.options.max_response_bytes)
            is_complete = True
        finally:
            if is_complete:
                response.release_conn()
            else:
                _discard(response)

    def send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], deadline: Deadline
    ) -> None:
        """Send a body as it is; any status of 2xx is success, and what is answered is left unread.

        Parameters
        ----------
        method, path
            How and where; the path follows the base address and may hold a query.
        body, headers
            What is sent; credentials and the headers of the options are added.
        deadline
            Bound of the request.

        Raises
        ------
        SourceTimeout, SourceStatus, SourceError
            Timed out; refused; unreachable.
        """
        url = f"{self.base_url}{path}"
        send = partial(self._send, method, url, body, headers, deadline)
        response = send()
        if response.status in (401, 403) and self._credentials.renew():
            _discard(response)
            response = send()
        try:
            if not 200 <= response.status < 300:
                raise self._refusal(response, url.partition("?")[0])
        finally:
            _discard(response)

    def _send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], deadline: Deadline
    ) -> urllib3.BaseHTTPResponse:
        here = url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._request(method, here, body, headers, deadline)
            if response.status not in _REDIRECT_STATUS:
                return response
            target = urljoin(here, response.headers.get("Location", ""))
            _discard(response)
            if not _is_same_host(here, target):
                shown = without_userinfo(target)[:200]
                raise SourceStatus(
                    f"{url.partition('?')[0]} redirects to {shown}, another host, which is not followed: "
                    "set the url to the address that answers",
                    response.status,
                )
            here = target
        raise SourceStatus(f"{url.partition('?')[0]}: more than {MAX_REDIRECTS} redirects", 310)

    def _request(
        self, method: str, url: str, body: bytes | None, more: Mapping[str, str], deadline: Deadline
    ) -> urllib3.BaseHTTPResponse:
        shown = url.partition("?")[0]
        if self._closed.is_set():
            raise SourceError(f"{shown}: the source is closed")
        left = deadline.remaining_s(shown)
        options = self.options
        timeout = urllib3.Timeout(
            connect=min(options.connect_timeout_s, left), read=min(options.read_timeout_s, left)
        )
        headers = {"Accept-Encoding": "identity", **options.headers, **self._credentials.header()}
        if body is not None:
            headers.update(more)
        try:
            return self._connections().request(
                method, url, body=body, headers=headers, timeout=timeout,
                retries=False, redirect=False, preload_content=False, decode_content=False,
            )  # fmt: skip
        except urllib3.exceptions.NewConnectionError as error:
            # refused or unknown host; the library counts it as a kind of ConnectTimeoutError
            raise UnreachableError(f"{shown}: {_plain_reason(error)}") from None
        except urllib3.exceptions.ConnectTimeoutError:
            raise SourceTimeout(f"{shown}: no connection within {timeout.connect_timeout:g} s") from None
        except TimeoutError:
            raise SourceTimeout(f"{shown}: no answer within {timeout.read_timeout:g} s") from None
        except SSLError as error:
            raise SourceError(f"{shown}: TLS failed: {one_line(str(error))}") from None
        except (HTTPError, OSError) as error:
            raise UnreachableError(f"{shown}: {_plain_reason(error)}") from None

    def _connections(self) -> urllib3.PoolManager:
        """Return the pool, made anew when a certificate file changed."""
        options = self.options
        files = (options.ca_file, options.cert_file, options.key_file)
        stamp = tuple(_stamp(file) for file in files)
        with self._pool_lock:
            return self._pool_of(stamp)

    def _pool_of(self, stamp: tuple[object, ...]) -> urllib3.PoolManager:
        options = self.options
        if self._pool is None or stamp != self._pool_stamp:
            if self._pool is not None:
                self._pool.clear()
            self._pool = urllib3.PoolManager(
                num_pools=2,
                maxsize=max(4, options.parallel_requests),
                cert_reqs="CERT_NONE" if options.insecure_skip_verify else "CERT_REQUIRED",
                ca_certs=None if options.ca_file is None else str(options.ca_file),
                cert_file=None if options.cert_file is None else str(options.cert_file),
                key_file=None if options.key_file is None else str(options.key_file),
                assert_hostname=False if options.insecure_skip_verify else None,
            )
            self._pool.pool_classes_by_scheme = _tracking_pools(self._sockets)
            self._pool_stamp = stamp
        return self._pool

    def _refusal(self, response: urllib3.BaseHTTPResponse, url: str) -> HttpRefusal:
        status = response.status
        try:
            data = response.read(ERROR_TEXT_BYTES)
        except (HTTPError, OSError, ValueError):
            data = b""
        is_page = "html" in response.headers.get("Content-Type", "").lower()
        text = self._credentials.redact(page_title(data) if is_page else error_text(data))
        shown = one_line(text)
        hint = {401: ": the credentials were refused", 403: ": access is forbidden"}.get(status, "")
        message = f"{url} answered {status}{hint}" + (f": {shown}" if shown else "")
        return HttpRefusal(message, status, text, _retry_after_s(response.headers.get("Retry-After")))


def _tracking_pools(sockets: WeakSet[socket.socket]) -> dict[str, type[HTTPConnectionPool]]:
    """Return connection pools that note every socket they open."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class Tls(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}


def _wait_before_retry(error: SourceError) -> float | None:
    """Return the seconds to wait before another attempt, None when another attempt is no use."""
    if isinstance(error, HttpRefusal):
        if error.status not in PASSING_STATUS or error.is_too_much:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s
    elif not isinstance(error, UnreachableError | CutOff):
        return None
    return random.uniform(0.05, 0.5)  # noqa: S311 - jitter, not a secret


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; dates, which need a clock, are not honoured."""
    if value is None or not value.strip().isdigit():
        return None
    return min(float(value), MAX_RETRY_AFTER_S)


def _is_same_host(before: str, after: str) -> bool:
    """Tell whether a redirect stays: same host and port, or the same host's TLS port."""
    old, new = urlsplit(before), urlsplit(after)
    if new.scheme not in ("http", "https") or old.hostname != new.hostname:
        return False
    if old.scheme == new.scheme:
        return old.port == new.port
    return old.scheme == "http" and new.scheme == "https"


def _discard(response: urllib3.BaseHTTPResponse) -> None:
    """Close without reading the rest; the connection is not used again."""
    with suppress(HTTPError, OSError):
        response.close()


def _stamp(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        stat = path.stat()
    except OSError as error:
        raise SourceError(f"certificate file {path} cannot be read: {error.strerror}") from None
    return stat.st_mtime_ns, stat.st_ino


def _plain_reason(error: Exception) -> str:
    if isinstance(error, ProtocolError):
        return "the connection was closed before an answer came"
    return "no connection: " + one_line(str(error).rpartition(": ")[2])

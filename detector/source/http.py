"""One bounded HTTP request: credentials, time limits, size limits, redirects, errors in plain words.

Everything that a source asks of a database passes here, whichever library phrased it.
"""

from __future__ import annotations

import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, SSLError, TimeoutError

from detector.errors import SourceDecode, SourceError, SourceStatus, SourceTimeout
from detector.source.credentials import Credentials, without_userinfo
from detector.source.options import SourceOptions

T = TypeVar("T")
Form = Sequence[tuple[str, str]]

PIECE_BYTES = 1 << 18
ERROR_TEXT_BYTES = 4096
ERROR_TEXT_CHARS = 700
MAX_REDIRECTS = 3
MAX_RETRY_AFTER_S = 3600.0
PASSING_STATUS = frozenset({429, 502, 503, 504})
_REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
_TOO_MUCH = re.compile(r"too many|too large|exceed|limit|more than \d", re.IGNORECASE)


class HttpRefusal(SourceStatus):
    """A refusal with what the server said about it.

    Parameters
    ----------
    message, status
        As in `SourceStatus`.
    text
        The server's own words, bounded.
    retry_after_s
        Seconds the server asks to wait, None when it doesn't say.
    """

    def __init__(self, message: str, status: int, text: str, retry_after_s: float | None) -> None:
        super().__init__(message, status)
        self.text = text
        self.retry_after_s = retry_after_s

    @property
    def is_too_much(self) -> bool:
        """True when the request asked for more than the server gives at once."""
        if self.status in (413, 422):
            return True
        return self.status in (400, 500, 503) and _TOO_MUCH.search(self.text) is not None


class CutOff(SourceDecode):
    """The answer ended before its end."""


class Deadline:
    """The time by which a whole fetch must be over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_cancelled = False
        self._at = time.monotonic() + seconds

    def cancel(self) -> None:
        """End what is still being waited for: another request of the same fetch has failed."""
        self._is_cancelled = True

    def remaining_s(self, where: str) -> float:
        """Return the seconds left, > 0.

        Raises
        ------
        SourceTimeout
            When there are none left.
        SourceError
            When the fetch was given up.
        """
        if self._is_cancelled:
            raise SourceError(f"{where}: given up, as another request of the same fetch failed")
        left = self._at - time.monotonic()
        if left <= 0:
            raise SourceTimeout(f"{where}: no complete answer within {self._seconds:g} s")
        return left


class Answer:
    """An answer with status 200 whose body is still to come.

    Parameters
    ----------
    response
        Open response.
    where
        Address, for messages.
    deadline
        Bound of the reading.
    max_bytes
        Bound of the body, compressed or not.
    """

    def __init__(
        self, response: urllib3.BaseHTTPResponse, where: str, deadline: Deadline, max_bytes: int
    ) -> None:
        self._response = response
        self._where = where
        self._deadline = deadline
        self._max_bytes = max_bytes
        self.n_bytes = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives, decompressed.

        Raises
        ------
        SourceDecode
            When it is cut off, too large, or in an encoding nobody asked for.
        SourceTimeout
            When the deadline passes or the server falls silent.
        """
        encoding = self._response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding in ("identity", ""):
            yield from self._received()
        elif encoding in ("gzip", "x-gzip", "deflate"):
            yield from self._inflated()
        else:
            raise SourceDecode(
                f"{self._where}: the answer is encoded as {encoding[:40]!r}, which was not asked for"
            )

    def read(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.pieces())

    def line_blocks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Yield the body in blocks of whole lines, about `size` bytes each.

        Raises
        ------
        SourceDecode
            Also when the last line has no end.
        """
        held: list[bytes] = []
        n_held = 0
        for piece in self.pieces():
            end = piece.rfind(b"\n") + 1
            if end and n_held + end >= size:
                held.append(piece[:end])
                yield b"".join(held)
                held, n_held = [piece[end:]], len(piece) - end
            else:
                held.append(piece)
                n_held += len(piece)
        rest = b"".join(held)
        if rest and not rest.endswith(b"\n"):
            raise CutOff(f"{self._where}: the answer was cut off inside a line after {self.n_bytes} bytes")
        if rest:
            yield rest

    def _received(self) -> Iterator[bytes]:
        while True:
            self._deadline.remaining_s(self._where)
            try:
                piece = self._response.read1(PIECE_BYTES, decode_content=False)
            except TimeoutError:
                raise SourceTimeout(
                    f"{self._where}: the server fell silent after {self.n_bytes} bytes of the answer"
                ) from None
            except (HTTPError, OSError, ValueError):
                raise CutOff(f"{self._where}: the answer was cut off after {self.n_bytes} bytes") from None
            if not piece:
                return
            self.n_bytes += len(piece)
            if self.n_bytes > self._max_bytes:
                raise TooLarge(f"{self._where}: the answer is larger than {self._max_bytes} bytes")
            yield piece

    def _inflated(self) -> Iterator[bytes]:
        # 47 = 15 (window) + 32: gzip or zlib, whichever the header says
        inflater = zlib.decompressobj(wbits=47)
        n_out = 0
        for piece in self._received():
            data = piece
            while data and not inflater.eof:
                try:
                    out = inflater.decompress(data, PIECE_BYTES * 4)
                except zlib.error:
                    raise SourceDecode(f"{self._where}: the compressed answer is damaged") from None
                n_out += len(out)
                if n_out > self._max_bytes:
                    raise TooLarge(f"{self._where}: the answer unpacks to more than {self._max_bytes} bytes")
                if out:
                    yield out
                data = inflater.unconsumed_tail
        if not inflater.eof:
            raise CutOff(f"{self._where}: the compressed answer was cut off after {self.n_bytes} bytes")


class TooLarge(SourceDecode):
    """The answer passes the bound of its size; asking for less may help."""


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
        self._open: set[urllib3.BaseHTTPResponse] = set()
        self._pool: urllib3.PoolManager | None = None
        self._pool_stamp: tuple[object, ...] = ()
        self._pool_lock = threading.Lock()

    def deadline(self) -> Deadline:
        """Return a new deadline for a whole fetch."""
        return Deadline(self.options.deadline_s)

    def close(self) -> None:
        """End requests under way and close all connections."""
        self._closed.set()
        for response in list(self._open):
            with suppress(OSError, HTTPError):
                response.shutdown()
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
        response = self._send(method, url, urlencode(form), deadline)
        # vmauth says 400 to a token that it does not know
        if response.status in (400, 401, 403) and self._credentials.renew():
            _discard(response)
            response = self._send(method, url, urlencode(form), deadline)
        self._open.add(response)
        is_complete = False
        try:
            if response.status != 200:
                raise self._refusal(response, url)
            _require_json(response, url)
            yield Answer(response, url, deadline, self.options.max_response_bytes)
            is_complete = True
        finally:
            self._open.discard(response)
            if is_complete:
                response.release_conn()
            else:
                _discard(response)

    def _send(self, method: str, url: str, form: str, deadline: Deadline) -> urllib3.BaseHTTPResponse:
        here = url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._request(method, here, form, deadline)
            if response.status not in _REDIRECT_STATUS:
                return response
            target = urljoin(here, response.headers.get("Location", ""))
            _discard(response)
            if not _is_same_host(here, target):
                shown = without_userinfo(target)[:200]
                raise SourceStatus(
                    f"{url} redirects to {shown}, another host, which is not followed: "
                    "set the source url to the address that serves the data",
                    response.status,
                )
            here = target
        raise SourceStatus(f"{url}: more than {MAX_REDIRECTS} redirects", 310)

    def _request(self, method: str, url: str, form: str, deadline: Deadline) -> urllib3.BaseHTTPResponse:
        if self._closed.is_set():
            raise SourceError(f"{url}: the source is closed")
        left = deadline.remaining_s(url)
        options = self.options
        timeout = urllib3.Timeout(
            connect=min(options.connect_timeout_s, left), read=min(options.read_timeout_s, left)
        )
        headers = {"Accept-Encoding": "identity", **options.headers, **self._credentials.header()}
        body: bytes | None = None
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = form.encode()
        elif form:
            url = f"{url}?{form}"
        shown = url.partition("?")[0]
        try:
            return self._connections().request(
                method, url, body=body, headers=headers, timeout=timeout,
                retries=False, redirect=False, preload_content=False, decode_content=False,
            )  # fmt: skip
        except urllib3.exceptions.ConnectTimeoutError:
            raise SourceTimeout(f"{shown}: no connection within {timeout.connect_timeout:g} s") from None
        except TimeoutError:
            raise SourceTimeout(f"{shown}: no answer within {timeout.read_timeout:g} s") from None
        except SSLError as error:
            raise SourceError(f"{shown}: TLS failed: {_one_line(str(error))}") from None
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
            self._pool_stamp = stamp
        return self._pool

    def _refusal(self, response: urllib3.BaseHTTPResponse, url: str) -> HttpRefusal:
        status = response.status
        try:
            data = response.read(ERROR_TEXT_BYTES)
        except (HTTPError, OSError, ValueError):
            data = b""
        is_page = "html" in response.headers.get("Content-Type", "").lower()
        text = self._credentials.redact(_page_title(data) if is_page else _error_text(data))
        shown = _one_line(text)
        hint = {401: ": the credentials were refused", 403: ": access is forbidden"}.get(status, "")
        message = f"{url} answered {status}{hint}" + (f": {shown}" if shown else "")
        return HttpRefusal(message, status, text, _retry_after_s(response.headers.get("Retry-After")))


class UnreachableError(SourceError):
    """There is no connection to the database."""


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


def _require_json(response: urllib3.BaseHTTPResponse, url: str) -> None:
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not content_type or "json" in content_type:
        return
    try:
        start = response.read(ERROR_TEXT_BYTES)
    except (HTTPError, OSError, ValueError):
        start = b""
    text = _page_title(start) if "html" in content_type else _one_line(_error_text(start))
    raise SourceDecode(
        f"{url} answered with {content_type[:60]} instead of JSON ({text!r}): "
        "is the address right, or does a login page stand in front?"
    )


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
    return "no connection: " + _one_line(str(error).rpartition(": ")[2])


def _page_title(data: bytes) -> str:
    found = re.search(rb"<title[^>]*>([^<]{1,200})", data, re.IGNORECASE)
    return "a web page titled " + _one_line(found[1].decode("utf-8", "replace")) if found else "a web page"


def _error_text(data: bytes) -> str:
    """Return what the server says: the ``error`` of a JSON answer, or the text."""
    try:
        text = str(msgspec.json.decode(data, type=dict[str, Any])["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        text = data.decode("utf-8", "replace")
    return _one_line(text, ERROR_TEXT_BYTES)


def _one_line(text: str, limit: int = ERROR_TEXT_CHARS) -> str:
    """Return printable text on one line; of long text the start and, where causes stand, the end."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(flat) <= limit:
        return flat
    n_start = limit // 3
    return f"{flat[:n_start]} ... {flat[n_start + 5 - limit :]}"

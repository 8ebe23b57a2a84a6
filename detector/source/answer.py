"""What comes back from a database: an answer as it arrives, a refusal, or the lack of one."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, TimeoutError

from detector.errors import SourceDecode, SourceError, SourceStatus, SourceTimeout

PIECE_BYTES = 1 << 18
ERROR_TEXT_BYTES = 4096
ERROR_TEXT_CHARS = 700
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


class UnreachableError(SourceError):
    """There is no connection to the database."""


def require_json(response: urllib3.BaseHTTPResponse, url: str) -> None:
    """Raise `SourceDecode` when the answer says that it is something else, a login page for instance."""
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not content_type or "json" in content_type:
        return
    try:
        start = response.read(ERROR_TEXT_BYTES)
    except (HTTPError, OSError, ValueError):
        start = b""
    text = page_title(start) if "html" in content_type else one_line(error_text(start))
    raise SourceDecode(
        f"{url} answered with {content_type[:60]} instead of JSON ({text!r}): "
        "is the address right, or does a login page stand in front?"
    )


def page_title(data: bytes) -> str:
    """Return what a web page calls itself."""
    found = re.search(rb"<title[^>]*>([^<]{1,200})", data, re.IGNORECASE)
    return "a web page titled " + one_line(found[1].decode("utf-8", "replace")) if found else "a web page"


def error_text(data: bytes) -> str:
    """Return what the server says: the ``error`` of a JSON answer, or the text."""
    try:
        text = str(msgspec.json.decode(data, type=dict[str, Any])["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        text = data.decode("utf-8", "replace")
    return one_line(text, ERROR_TEXT_BYTES)


def one_line(text: str, limit: int = ERROR_TEXT_CHARS) -> str:
    """Return printable text on one line; of long text the start and, where causes stand, the end."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(flat) <= limit:
        return flat
    n_start = limit // 3
    return f"{flat[:n_start]} ... {flat[n_start + 5 - limit :]}"

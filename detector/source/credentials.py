"""Authentication headers from options, with files that may rotate under a running service."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from detector.errors import SourceError
from detector.source.options import SourceOptions


class WatchedFile:
    """Text of a small file, read again when the file behind the name changes.

    A replaced symlink (as Kubernetes swaps secrets) counts as a change.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._stamp: tuple[int, int, int] | None = None
        self._text = ""

    def text(self) -> str:
        """Return the stripped content.

        Raises
        ------
        SourceError
            When the file can't be read; names it.
        """
        try:
            stat = self._path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp != self._stamp:
                self._text = self._path.read_text(encoding="utf-8").strip()
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise SourceError(f"{self._what} {self._path} cannot be read: {reason}") from None
        return self._text

    def forget(self) -> None:
        """Read the file at the next use whatever its time stamp says."""
        self._stamp = None


class Credentials:
    """The ``Authorization`` header of a source.

    Raises
    ------
    SourceError
        When options name more than one way to authenticate.
    """

    def __init__(self, options: SourceOptions) -> None:
        in_url = urlsplit(options.url)
        username, password = options.basic_username, options.basic_password
        if in_url.username is not None and username is None:
            username, password = unquote(in_url.username), unquote(in_url.password or "")
        has_bearer = options.bearer_token is not None or options.bearer_token_file is not None
        if has_bearer and username is not None:
            raise SourceError("source: set either a bearer token or basic authentication, not both")
        self._bearer = options.bearer_token
        self._username = username
        self._password = password
        self._token_file = _watched(options.bearer_token_file, "bearer token file")
        self._password_file = _watched(options.basic_password_file, "password file")
        self._headers = tuple(options.headers.values())
        self._last_secret = ""
        self._last_pair = ""

    def header(self) -> dict[str, str]:
        """Return the header as of now, empty when there are no credentials."""
        if self._token_file is not None or self._bearer is not None:
            token = self._token_file.text() if self._token_file else (self._bearer or "")
            self._last_secret = token
            return {"Authorization": f"Bearer {token}"}
        if self._username is not None:
            password = self._password_file.text() if self._password_file else (self._password or "")
            self._last_secret = password
            pair = base64.b64encode(f"{self._username}:{password}".encode()).decode()
            self._last_pair = pair
            return {"Authorization": f"Basic {pair}"}
        return {}

    def renew(self) -> bool:
        """Read files anew; True when that gave another header than the last one."""
        before = self._last_secret
        for file in (self._token_file, self._password_file):
            if file is not None:
                file.forget()
        self.header()
        return self._last_secret != before

    def redact(self, text: str) -> str:
        """Return `text` without secrets and the values of extra headers, should a server echo them."""
        for secret in (self._last_pair, self._last_secret, *self._headers):
            if len(secret) > 3:
                text = text.replace(secret, "***")
        return text


def without_userinfo(url: str) -> str:
    """Return the address without user, password, query and trailing slash."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _watched(path: Path | None, what: str) -> WatchedFile | None:
    return None if path is None else WatchedFile(path, what)

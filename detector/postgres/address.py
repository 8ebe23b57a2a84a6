"""Where the server is and how to log in; secrets stay in here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from detector.errors import SettingsError, SourceError, StoreError
from detector.source.credentials import WatchedFile

KNOWN = frozenset(
    {
        "host", "hostaddr", "port", "dbname", "user", "password", "target_session_attrs",
        "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "channel_binding",
    }
)  # fmt: skip
"""Parameters of an address that are taken; time-outs and sessions are not the address' to say."""

_SECRET = ("password", "sslpassword")
MIN_SECRET = 3


class Address:
    """One database of one server.

    Parameters
    ----------
    url
        ``postgresql://user@host:5432/database?sslmode=verify-full``.
    password_file
        File with the password, read again when it changes; None when the address or the environment of
        libpq has it.

    Raises
    ------
    SettingsError
        When the address is none. Never shows what was given.
    """

    def __init__(self, url: str, password_file: Path | None = None) -> None:
        try:
            found = conninfo_to_dict(url)
        except ProgrammingError:
            raise SettingsError(
                "store.url is no PostgreSQL address such as postgresql://user@host:5432/database"
            ) from None
        unknown = sorted(found.keys() - KNOWN)
        if unknown:
            raise SettingsError(f"store.url: {unknown[0]} is no parameter that is taken here")
        if password_file is not None and found.get("password"):
            raise SettingsError("store.url has a password and there is store.password_file: give one")
        self._parameters = {name: str(value) for name, value in found.items() if value is not None}
        self._file = None if password_file is None else WatchedFile(password_file, "store.password_file")
        self._last_password = ""

    @property
    def name(self) -> str:
        """Host, port and database: what may be shown."""
        found = self._parameters
        host = found.get("host") or found.get("hostaddr") or "localhost"
        return f"postgresql://{host}:{found.get('port', '5432')}/{found.get('dbname', '')}"

    def parameters(self) -> Mapping[str, str]:
        """Return what libpq takes, the password as of now.

        Raises
        ------
        StoreError
            When the password file cannot be read.
        """
        if self._file is None:
            return self._parameters
        try:
            self._last_password = self._file.text()
        except SourceError as error:
            raise StoreError(str(error)) from None
        return {**self._parameters, "password": self._last_password}

    def redact(self, text: str) -> str:
        """Return a server's words on one line, without secrets."""
        for secret in (self._last_password, *(self._parameters.get(name, "") for name in _SECRET)):
            if len(secret) > MIN_SECRET:
                text = text.replace(secret, "***")
        return " ".join(text.split())[:500]

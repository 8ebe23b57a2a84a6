"""Tokens of the REST interface: made, hashed, looked up; their file may change under a running service."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from detector.errors import SettingsError
from detector.settings_auth import MAX_TOKENS, AuthSettings, TokenSettings

log = logging.getLogger("oddnode.detector.tokens")

PREFIX = "odn_"
RANDOM_BYTES = 32
MAX_FILE_BYTES = 1 << 20
LOOK_EVERY_S = 1.0
"""How often the file of tokens is looked at, at most."""

_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_entries = TypeAdapter(list[TokenSettings])


def make_token() -> str:
    """Return a new token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def hash_of(token: str) -> str:
    """Return the hash by which a token is known; a fast one will do, as nobody can guess 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def entry_line(name: str, token: str, scope: str) -> str:
    """Return the line for the settings, or for the file of tokens."""
    return f"- {{name: {name}, sha256: {hash_of(token)}, scope: {scope}}}"


def read_tokens(path: Path) -> tuple[TokenSettings, ...]:
    """Read a file of tokens.

    Raises
    ------
    SettingsError
        When it cannot be read or is no list of tokens; shows nothing of what it holds.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise SettingsError(f"auth.tokens_file {path}: is bigger than {MAX_FILE_BYTES} bytes")
        loaded = YAML(typ="safe", pure=True).load(content.decode("utf-8"))
        found = _entries.validate_python([] if loaded is None else loaded)
        AuthSettings(tokens=tuple(found))
    except OSError as error:
        raise SettingsError(f"auth.tokens_file {path}: cannot be read: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError, RecursionError):
        raise SettingsError(f"auth.tokens_file {path}: is not YAML") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise SettingsError(f"auth.tokens_file {path}: entry {place or 'list'}: {message}") from None
    except ValueError:
        raise SettingsError(f"auth.tokens_file {path}: is not YAML") from None
    return tuple(found)


class Tokens:
    """Looks tokens up by their hash.

    Parameters
    ----------
    settings
        Tokens, and the file of further ones.

    Raises
    ------
    SettingsError
        When the file cannot be used at start, or has a token of the settings again.
    """

    def __init__(self, settings: AuthSettings) -> None:
        self._fixed = settings.tokens
        self._path = settings.tokens_file
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._looked = time.monotonic()
        self._all = _by_hash(self._fixed)
        if self._path is not None:
            self._stamp = _stamp(self._path)
            self._all = self._joined(read_tokens(self._path))

    @property
    def are_set(self) -> bool:
        """True when tokens are asked for; a file without one lets nobody in."""
        return bool(self._fixed) or self._path is not None

    def find(self, token: str) -> TokenSettings | None:
        """Return whose token it is, None when it is nobody's."""
        self._refresh()
        if not _FORM.fullmatch(token):
            return None
        asked = hash_of(token)
        found = None
        for known, owner in self._all:
            if hmac.compare_digest(known, asked):  # all are compared, whichever fits
                found = owner
        return found

    def _refresh(self) -> None:
        """Read the file again when it changed; one that is wrong changes nothing and is told once."""
        now = time.monotonic()
        if self._path is None or now - self._looked < LOOK_EVERY_S or not self._lock.acquire(blocking=False):
            return
        try:
            self._looked = now
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._all = self._joined(read_tokens(self._path))
            log.info("tokens file=%s read_again=true", self._path)
        except SettingsError as error:
            log.error("tokens not_read=%r: those known before stay valid", str(error))  # noqa: TRY400
        finally:
            self._lock.release()

    def _joined(self, more: Sequence[TokenSettings]) -> tuple[tuple[str, TokenSettings], ...]:
        both = (*self._fixed, *more)
        if len(both) > MAX_TOKENS or len({token.name for token in both}) < len(both):
            raise SettingsError(
                f"auth.tokens_file {self._path}: has a name of auth.tokens again, or too many"
            )
        return _by_hash(both)


def _by_hash(tokens: Sequence[TokenSettings]) -> tuple[tuple[str, TokenSettings], ...]:
    return tuple((token.sha256.get_secret_value(), token) for token in tokens)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino

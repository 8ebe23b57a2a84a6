"""The settings file as data that knows its lines, and errors that name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from detector.errors import SettingsError

MAX_BYTES = 1_000_000
MAX_DEPTH = 12
SHOWN_ERRORS = 5

Loc = tuple[str | int, ...]

_SECRET = re.compile(r"token|password|headers|secret|sha256|(delivery|store).*url", re.IGNORECASE)
_PATHS = frozenset(
    {
        ("source", "bearer_token_file"),
        ("source", "basic_password_file"),
        ("source", "ca_file"),
        ("source", "cert_file"),
        ("source", "key_file"),
        ("catalog", "path"),
        ("catalog", "overlays"),
        ("calibration", "path"),
        ("http", "tls_cert"),
        ("http", "tls_key"),
        ("auth", "tokens_file"),
        ("store", "path"),
        ("store", "password_file"),
        ("recording", "path"),
    }
)
_SERVICE_LINK = re.compile(r"^(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""Variables that Kubernetes makes up for a Service called ``oddnode``."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a settings file says.

    Parameters
    ----------
    name
        File name for messages.
    data
        Plain values.
    lines
        Line, from 1, of each key by its place in the file.
    """

    name: str
    data: dict[str, Any]
    lines: Mapping[Loc, int]

    def place(self, loc: Loc) -> str:
        """Return file and, where known, line of a key or of what is nearest around it."""
        for end in range(len(loc), 0, -1):
            if loc[:end] in self.lines:
                return f"{self.name}, line {self.lines[loc[:end]]}"
        return self.name


def read_settings_file(path: Path) -> SettingsFile:
    """Read a YAML mapping.

    Raises
    ------
    SettingsError
        When the file is missing, too big, no UTF-8, no YAML, or no mapping.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise SettingsError(f"{path}: is bigger than {MAX_BYTES} bytes")
    try:
        loaded = YAML(typ="rt", pure=True).load(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(error.problem or error.context).split())
        raise SettingsError(f"{path}{line}: is not YAML: {problem}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{path}: is not YAML: {' '.join(str(error).split())[:200]}") from None
    if loaded is None:
        return SettingsFile(str(path), {}, {})
    if not isinstance(loaded, CommentedMap):
        raise SettingsError(f"{path}: must be a mapping of sections")
    lines: dict[Loc, int] = {}
    data = _plain(loaded, (), lines, path)
    _resolve_paths(data, _folder_of(path))
    return SettingsFile(str(path), data, lines)


def _folder_of(path: Path) -> Path:
    """Return the folder that paths are relative to.

    Kubernetes mounts files as links into a folder that each update replaces: there it is the folder of the
    link, which stays.
    """
    return path.absolute().parent if (path.parent / "..data").is_symlink() else path.resolve().parent


def _plain(node: Any, loc: Loc, lines: dict[Loc, int], path: Path) -> Any:
    """Copy into plain values, noting lines."""
    if len(loc) > MAX_DEPTH:
        raise SettingsError(f"{path}: is nested too deeply")
    if isinstance(node, CommentedMap):
        found: dict[str, Any] = {}
        for key, value in node.items():
            here = (*loc, str(key))
            lines[here] = node.lc.key(key)[0] + 1
            found[str(key)] = _plain(value, here, lines, path)
        return found
    if isinstance(node, CommentedSeq):
        for i in range(len(node)):
            lines[(*loc, i)] = node.lc.item(i)[0] + 1
        return [_plain(value, (*loc, i), lines, path) for i, value in enumerate(node)]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    for section, key in _PATHS:
        fields = data.get(section)
        if not isinstance(fields, dict):
            continue
        value = fields.get(key)
        if isinstance(value, str):
            fields[key] = str(folder / value)
        elif isinstance(value, list):
            fields[key] = [str(folder / item) if isinstance(item, str) else item for item in value]
    _resolve_files(data.get("delivery"), folder)


def _resolve_files(node: object, folder: Path) -> None:
    """Resolve all that is called ``..._file``, however deep it lies."""
    if isinstance(node, list):
        for item in node:
            _resolve_files(item, folder)
    elif isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, str) and key.endswith("_file"):
                node[key] = str(folder / value)
            elif key not in ("labels", "headers"):
                _resolve_files(value, folder)


def stray_variables(
    environment: Mapping[str, str], sections: Iterable[str], config_variable: str, prefix: str
) -> list[str]:
    """Return variables with our prefix that name no section."""
    known = {f"{prefix}{section}".upper() for section in sections}
    return sorted(
        name
        for name in environment
        if name.upper().startswith(prefix)
        and name.upper() != config_variable
        and name.upper().partition("__")[0] not in known
        and not _SERVICE_LINK.match(name.upper().removeprefix(prefix))
    )


def explain(error: ValidationError, file: SettingsFile, environment: Mapping[str, str], prefix: str) -> str:
    """Turn validation errors into one sentence each, with file and line or the variable."""
    told = [
        _explain_one(item, file, environment, prefix)
        for item in error.errors(include_url=False)[:SHOWN_ERRORS]
    ]
    more = error.error_count() - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _explain_one(item: Any, file: SettingsFile, environment: Mapping[str, str], prefix: str) -> str:
    loc: Loc = tuple(
        part for part in item["loc"] if isinstance(part, int) or ("-" not in part and "[" not in part)
    )
    key = ".".join(str(part) for part in loc)
    where = _variable(loc, environment, prefix) or file.place(loc)
    kind = item["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}: {key} is no setting"
    message = str(item["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    shown = item.get("input")
    is_secret = bool(_SECRET.search(key))
    if isinstance(shown, str | int | float) and not is_secret and kind != "value_error":
        text = repr(shown)
        message += f", not {text if len(text) <= 60 else text[:60] + '...'}"
    return f"{where}: {key}: {message}" if key else f"{where}: {message}"


def _variable(loc: Loc, environment: Mapping[str, str], prefix: str) -> str:
    """Return the variable that gave a key, empty when it came from elsewhere."""
    by_upper = {name.upper(): name for name in environment}
    names = [str(part) for part in loc]
    for end in range(len(names), 0, -1):
        name = by_upper.get((prefix + "__".join(names[:end])).upper())
        if name is not None:
            return f"environment variable {name}"
    return ""

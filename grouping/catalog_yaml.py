"""Catalog files as YAML nodes that still know their line.

The nodes are read directly instead of being turned into objects first: the line of every
field is at hand when something is wrong with it, and nothing in a file can make an object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_FILE_BYTES = 2_000_000
"""A catalog of 10,000 entries stays below this."""

MAX_ITEMS = 20_000
"""Longest list or mapping that is read."""

MAX_TEXT = 200
"""Longest name, label or word in a catalog."""

_TAG = "tag:yaml.org,2002:"
_T = TypeVar("_T")


class CatalogError(ValueError):
    """A catalog cannot be used; names the file, the line, the entry and the field."""


@dataclass(frozen=True, slots=True)
class Value:
    """A YAML node with its place in a file.

    Parameters
    ----------
    node
        As composed by the YAML library.
    file
        File name for messages.
    where
        Entry that the node belongs to, empty at the top.
    field
        Field that the node is the value of, empty for an entry itself.
    """

    node: Node
    file: str
    where: str = ""
    field: str = ""

    @property
    def line(self) -> int:
        """Line in the file, from 1."""
        return int(self.node.start_mark.line) + 1

    def fail(self, problem: str) -> NoReturn:
        """Raise `CatalogError` for this place."""
        parts = [f"{self.file}, line {self.line}", self.where, self.field and f"field {self.field!r}"]
        raise CatalogError(": ".join([*filter(None, parts), problem]))

    def mapping(self, allowed: frozenset[str] | None = None) -> dict[str, Value]:
        """Return the fields of a mapping; unknown or doubled keys are errors."""
        if not isinstance(self.node, MappingNode):
            self.fail(f"must be a mapping, not {_describe(self.node)}")
        fields: dict[str, Value] = {}
        for key_node, value_node in self._bounded(self.node.value):
            key = Value(key_node, self.file, self.where, self.field).text()
            value = Value(value_node, self.file, self.where, f"{self.field}.{key}" if self.field else key)
            placed = Value(key_node, self.file, self.where, value.field)
            if allowed is not None and key not in allowed:
                placed.fail(f"is unknown; known are {', '.join(sorted(allowed))}")
            if key in fields:
                placed.fail(f"is given twice, first on line {fields[key].line}")
            fields[key] = value
        return fields

    def items(self) -> Iterator[Value]:
        """Go through a list."""
        if not isinstance(self.node, SequenceNode):
            self.fail(f"must be a list, not {_describe(self.node)}")
        for node in self._bounded(self.node.value):
            yield Value(node, self.file, self.where, self.field)

    def text(self) -> str:
        """Return a non-empty string."""
        node = self._scalar("a string")
        if str(node.tag) != f"{_TAG}str" or not node.value or len(node.value) > MAX_TEXT:
            self.fail(f"must be a string of 1 to {MAX_TEXT} characters, not {_describe(node)}")
        return str(node.value)

    def number(self) -> float:
        """Return a number; ``.inf`` is one, ``.nan`` is not."""
        node = self._scalar("a number")
        if str(node.tag) not in (f"{_TAG}int", f"{_TAG}float"):
            self.fail(f"must be a number, not {_describe(node)}")
        raw = str(node.value).replace("_", "").lower()
        try:
            value = float(raw.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            self.fail(f"must be a decimal number, not {_describe(node)}")
        if math.isnan(value):
            self.fail("must be a number, not NaN")
        return value

    def flag(self) -> bool:
        """Return true or false."""
        node = self._scalar("true or false")
        if str(node.tag) != f"{_TAG}bool":
            self.fail(f"must be true or false, not {_describe(node)}")
        return str(node.value).lower() == "true"

    def each(self, read: Callable[[Value], _T]) -> tuple[_T, ...]:
        """Read every item of a list; an item that occurs twice is an error."""
        found: list[_T] = []
        for item in self.items():
            value = read(item)
            if value in found:
                item.fail(f"lists {value!r} twice")
            found.append(value)
        return tuple(found)

    def choice(self, options: Mapping[str, _T]) -> _T:
        """Return what one of the given words stands for."""
        word = self.text()
        if word not in options:
            self.fail(f"must be one of {', '.join(options)}, not {word!r}")
        return options[word]

    def _scalar(self, wanted: str) -> ScalarNode:
        if not isinstance(self.node, ScalarNode):
            self.fail(f"must be {wanted}, not {_describe(self.node)}")
        return self.node

    def _bounded(self, content: list[_T]) -> list[_T]:
        if len(content) > MAX_ITEMS:
            self.fail(f"has {len(content)} items, more than {MAX_ITEMS}")
        return content


def _describe(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if str(node.tag) == f"{_TAG}null":
        return "nothing"
    text = str(node.value)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def read_document(path: Path) -> tuple[Value, bytes]:
    """Read one catalog file.

    Returns
    -------
    tuple
        The document, whose lines start at 1, and the bytes of the file.

    Raises
    ------
    CatalogError
        When the file is missing, too big, no UTF-8, no YAML, or empty.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CatalogError(f"{file}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise CatalogError(f"{file}: is bigger than {MAX_FILE_BYTES} bytes")
    return parse_document(content, file), content


def parse_document(content: bytes, file: str) -> Value:
    """Parse the bytes of a catalog file; `file` is named in errors (see `read_document`)."""
    try:
        node = YAML(typ="safe", pure=True).compose(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise CatalogError(f"{file}, line {line}: is not UTF-8 text") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise CatalogError(f"{file}{where}: is not YAML: {error.problem or error.context}") from error
    except YAMLError as error:
        problem = " ".join(str(error).split())[:MAX_TEXT]
        raise CatalogError(f"{file}: is not YAML: {problem}") from error
    except RecursionError as error:
        raise CatalogError(f"{file}: is nested too deeply") from error
    if node is None:
        raise CatalogError(f"{file}: is empty")
    return Value(node, file)

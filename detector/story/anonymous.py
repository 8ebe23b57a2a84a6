"""Other names for nodes, the same everywhere in a story: in fields, labels and texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar, cast
from urllib.parse import quote

import msgspec

from detector.case_archive import case_name
from detector.control.desk import SERVICE
from detector.control.model import AuditEntry
from detector.story.model import Story

_T = TypeVar("_T")


def anonymised(story: Story) -> Story:
    """Return a story that names nodes ``node-1``, ``node-2`` and operators ``operator-1``.

    The node of the story is the first; the others follow in the order of their names. A name is
    replaced where it stands as a word of its own, with the domain after it: a name of digits only where
    it is the whole of a value, as it would be every number else.
    """
    names = _Names(story.incident.node, story.nodes)
    people: dict[str, str] = {}
    for action in story.actions:
        if action.by != SERVICE:
            people.setdefault(action.by, f"operator-{len(people) + 1}")
    actions = tuple(_of_nobody(action, people) for action in story.actions)
    transitions = tuple(replace(step, reason=_without(step.reason, people)) for step in story.transitions)
    found = names.everywhere(replace(story, actions=actions, transitions=transitions))
    # cut to its length, the name of a case may end within that of a node
    is_own = story.case == case_name(story.incident.id)
    return replace(found, case=case_name(found.incident.id)) if is_own else found


def _of_nobody(action: AuditEntry, people: dict[str, str]) -> AuditEntry:
    return msgspec.structs.replace(
        action, by=people.get(action.by, action.by), note=_without(action.note, people)
    )


def _without(text: str, people: dict[str, str]) -> str:
    for name, other in people.items():
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", other, text)
    return text


class _Names:
    """Replaces names."""

    def __init__(self, first: str, names: Iterable[str]) -> None:
        ordered = [first, *sorted({*names} - {first, ""})]
        self._other = {name: f"node-{k}" for k, name in enumerate(ordered, start=1)}
        words = {name: name for name in ordered}
        for name in ordered:
            # a name with its cluster is told without it as well
            words.setdefault(name.rpartition("/")[2], name)
            # as it stands in an address, and in the name of a case or a file
            words.setdefault(quote(name), name)
            words.setdefault(quote(name, safe=""), name)
            if any(c.isalnum() and c.isascii() for c in name):
                words.setdefault(case_name(name), name)
        self._words = {word.casefold(): self._other[name] for word, name in words.items()}
        longest = sorted((word for word in words if word and not word.isdecimal()), key=len, reverse=True)
        either = "|".join(_pattern(word) for word in longest)
        self._search = (
            re.compile(rf"(?<![A-Za-z0-9])(?P<name>{either})(?:\.[A-Za-z][A-Za-z0-9-]*)*(?![A-Za-z0-9])")
            if longest
            else None
        )

    def everywhere(self, value: _T) -> _T:
        """Return a value of any shape with other names in all its texts."""
        return cast(_T, self._mapped(value))

    def _mapped(self, value: object) -> object:
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, tuple):
            return tuple(self._mapped(item) for item in value)
        if isinstance(value, Mapping):
            return {self._mapped(key): self._mapped(item) for key, item in value.items()}
        if isinstance(value, msgspec.Struct):
            changed = {key: self._mapped(item) for key, item in msgspec.structs.asdict(value).items()}
            return msgspec.structs.replace(value, **changed)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: self._mapped(getattr(value, f.name)) for f in fields(value)})
        return value

    def _text(self, text: str) -> str:
        if text in self._other:
            return self._other[text]
        if self._search is None:
            return text
        return self._search.sub(lambda found: self._words[found["name"].casefold()], text)


def _pattern(word: str) -> str:
    """Match a name; one without a digit may be a word of the language, and counts as it is written only."""
    exact = re.escape(word)
    return f"(?i:{exact})" if any(c.isdigit() for c in word) else exact

"""Patterns for node names in settings: globs, number ranges, regular expressions."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_PATTERN = 500

_RANGES = re.compile(r"\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\]")


@dataclass(frozen=True, slots=True)
class _Range:
    low: int
    high: int
    width: int

    def holds(self, digits: str) -> bool:
        if self.width and len(digits) != self.width:
            return False
        return self.low <= int(digits) <= self.high


class NodePattern:
    """One pattern for node names, matched against the whole name in any case.

    ``gpu[001-060,070]`` is a list of numbers (as wide as the first one when that starts with 0),
    ``~ regular expression`` is one, and all else is a shell glob or a plain name. A pattern
    without ``/`` also matches behind the cluster's part of a name (``a/gpu001``).

    Parameters
    ----------
    text
        The pattern.

    Raises
    ------
    ValueError
        When it is empty, too long, no regular expression, or a range runs backwards.

    Examples
    --------
    >>> pattern = NodePattern("gpu[001-060]")
    >>> pattern.matches("gpu007"), pattern.matches("gpu061"), pattern.matches("gpu7")
    (True, False, False)
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if not 0 < len(self.text) <= MAX_PATTERN:
            raise ValueError(f"node pattern {text[:40]!r} must have 1 to {MAX_PATTERN} characters")
        self._ranges: list[list[_Range]] = []
        self._any_cluster = "/" not in self.text or self.text.startswith("~")
        try:
            self._regex = re.compile(self._translate(), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"node pattern {text!r} is no regular expression: {error}") from None

    def matches(self, node: str) -> bool:
        """Tell whether a node's whole name matches."""
        if self._holds(node):
            return True
        return self._any_cluster and "/" in node and self._holds(node.partition("/")[2])

    def _holds(self, name: str) -> bool:
        found = self._regex.fullmatch(name)
        if found is None:
            return False
        groups = zip(self._ranges, found.groups(), strict=False)
        return all(any(r.holds(digits) for r in ranges) for ranges, digits in groups)

    def _translate(self) -> str:
        if self.text.startswith("~"):
            return self.text[1:].strip()
        pieces = []
        end = 0
        for found in _RANGES.finditer(self.text):
            pieces.append(_glob(self.text[end : found.start()]))
            if "-" in found[1] or "," in found[1]:
                self._ranges.append([self._read(item) for item in found[1].split(",")])
                pieces.append("([0-9]{1,18})")
            else:
                pieces.append(_glob(found[0]))
            end = found.end()
        pieces.append(_glob(self.text[end:]))
        return "".join(pieces)

    def _read(self, item: str) -> _Range:
        low, _, high = item.partition("-")
        high = high or low
        if int(low) > int(high) or len(high) > 18:
            raise ValueError(f"node pattern {self.text!r}: range {item} runs backwards or is too long")
        return _Range(int(low), int(high), len(low) if low.startswith("0") and len(low) > 1 else 0)


def _glob(text: str) -> str:
    translated = fnmatch.translate(text)
    return translated.removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")


class NodePatterns:
    """Several patterns as one test.

    Parameters
    ----------
    texts
        Patterns; none match nothing.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._patterns = [NodePattern(text) for text in texts]

    def match(self, node: str) -> bool:
        """Tell whether any pattern matches."""
        return any(pattern.matches(node) for pattern in self._patterns)

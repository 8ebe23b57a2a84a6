"""Series selectors: metric names and label filters, escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NAMES_PER_SELECTOR = 100
"""VictoriaMetrics looks up to this many alternatives of a regular expression directly; more are scanned."""

_SPECIAL = frozenset("\\.+*?()|[]{}^$")


def escape_regex(text: str) -> str:
    """Return a regular expression (RE2) that matches exactly `text`."""
    return "".join("\\" + char if char in _SPECIAL else char for char in text)


def quote(text: str) -> str:
    """Return `text` as a double-quoted PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def selector(names: Sequence[str], filters: Iterable[str] = ()) -> str:
    """Return one selector of all series with one of these names, anchored, plus filters.

    Parameters
    ----------
    names
        Metric names, literal; none means every name.
    filters
        Matchers such as ``cluster="a"``, braces optional.
    """
    name_pattern = "|".join(map(escape_regex, names)) if names else ".+"
    matchers = [f"__name__=~{quote(name_pattern)}"]
    matchers.extend(text for text in (_bare(f) for f in filters) if text)
    return "{" + ",".join(matchers) + "}"


def selectors(names: Sequence[str], filters: Iterable[str] = ()) -> list[str]:
    """Return as few selectors as stay fast to evaluate, together covering all names."""
    filters = tuple(filters)
    if not names:
        return [selector((), filters)]
    return [
        selector(names[i : i + NAMES_PER_SELECTOR], filters) for i in range(0, len(names), NAMES_PER_SELECTOR)
    ]


def _bare(text: str) -> str:
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    return text.strip(",").strip()

"""A diagnosis in plain lines, the same for `oddnode suspects` and `oddnode replay`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN_REASONS = 3


def diagnosis_lines(found: Mapping[str, Any] | None, indent: str = "  ") -> list[str]:
    """Put a diagnosis into lines; none for incidents that were stored without one.

    Parameters
    ----------
    found
        The ``diagnosis`` object of the answers.
    indent
        Put before each line.
    """
    if not found:
        return []
    told = f"{found['confidence']}: {found['title']}" if found["confidence"] else str(found["title"])
    lines = [told + (f" ({found['part']})" if found["part"] else "")]
    lines += [f"  because {reason}" for reason in found["reasons"][:SHOWN_REASONS]]
    if found["also"]:
        lines.append(f"  also possible: {'; '.join(found['also'])}")
    if found["order"]:
        lines.append(f"order: {found['order']}")
    if found["role"]:
        lines.append(f"{found['role']}: {found['role_reason']}")
    lines.append(f"check: {found['check']}")
    return [f"{indent}{line}" for line in lines]

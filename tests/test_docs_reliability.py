"""The page of failures names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests of a file, those in classes included, but for those known to fail."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any("xfail" in ast.unparse(decorator) for decorator in node.decorator_list)
    )


def rows() -> list[list[str]]:
    return [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]


def test_every_named_test_exists_and_passes() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 100
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []
    assert all(name.startswith("test_") for _, name in named)


def test_every_failure_has_a_test_or_a_reason() -> None:
    for row in rows():
        cells = [cell.strip() for cell in row]
        assert all(cells), row
        if len(cells) == 3 and cells[0] != "failure":
            assert NAMED.search(cells[2]), row


def test_the_page_is_in_the_navigation() -> None:
    assert "reliability.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

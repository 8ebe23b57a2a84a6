"""Hook of MkDocs: pages of the repository outside docs/ become part of the site, and links to them work.

A link is followed from the file that has it, as on disk. What lies outside docs/ is added below
``project/`` with the same path, and its own links are followed too. Pages that not every version
has are left out of the navigation when they are missing.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUTSIDE = "project"
OPTIONAL = frozenset({"security.md", "control.md", "delivery.md"})
LINK = re.compile(r"(?P<head>\]\()(?P<target>[^)\s#]+)(?P<tail>#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Leave optional pages that are missing out of the navigation."""
    config.nav = list(_existing(config.nav))
    return config


def _existing(entries: list[Any]) -> Iterator[Any]:
    for entry in entries:
        ((title, what),) = entry.items()
        if isinstance(what, list):
            yield {title: list(_existing(what))}
        elif what not in OPTIONAL or (DOCS / what).exists():
            yield entry


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages link to outside docs/, and what that links to."""
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            if target in seen or not target.is_relative_to(ROOT):
                continue
            seen.add(target)
            if not target.is_relative_to(DOCS):
                uri = f"{OUTSIDE}/{target.relative_to(ROOT).as_posix()}"
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                if target.suffix == ".md":
                    waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links as on disk into links within the site."""
    source = Path(page.file.abs_src_path)
    here = Path(page.file.src_uri).parent

    def within(found: re.Match[str]) -> str:
        target = _on_disk(source, found["target"])
        if target is None:
            return found[0]
        is_page = target.is_relative_to(DOCS)
        uri = target.relative_to(DOCS) if is_page else OUTSIDE / target.relative_to(ROOT)
        return f"{found['head']}{Path(os.path.relpath(uri, here)).as_posix()}{found['tail'] or ''})"

    pieces = FENCE.split(markdown)
    return "".join(piece if piece.startswith("```") else LINK.sub(within, piece) for piece in pieces)


def _targets(page: Path) -> Iterator[Path]:
    for found in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = _on_disk(page, found["target"])
        if target is not None:
            yield target


def _on_disk(source: Path, link: str) -> Path | None:
    """Return the file that a link means, None for addresses and for what is not there."""
    if re.match(r"[a-z]+:", link):
        return None
    target = (source.parent / link).resolve()
    if target.is_dir():
        target = next(iter([*target.glob("README.md"), *sorted(target.glob("*.md"))]), target)
    return target if target.is_file() else None

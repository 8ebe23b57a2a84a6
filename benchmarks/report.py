"""Rows of figures, and the page that they are written to."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).with_name("RESULTS.md")
HEAD = """\
# Results of the benchmarks

Written by `make bench`, section by section; not edited by hand. Times are wall time unless they say
processor time; a busy machine shows in the difference.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Parameters
    ----------
    name
        What was measured.
    shape
        On how much.
    figure
        With its unit.
    target
        What it should be; empty when there is no target.
    is_met
        Whether it is; None when there is no target.
    """

    name: str
    shape: str
    figure: str
    target: str = ""
    is_met: bool | None = None


def table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| what | on | figure | target |", "|---|---|---|---|"]
    words = {True: ": met", False: ": **missed**", None: ""}
    lines += [f"| {r.name} | {r.shape} | {r.figure} | {r.target}{words[r.is_met]} |" for r in rows]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Return one line about processor, memory and versions."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"numpy {version('numpy')}; load average before the run {os.getloadavg()[0]:.1f}"
    )


def commit() -> str:
    """Return the commit that was measured, and whether files were changed since."""
    changed = " and uncommitted changes" if _first_line("git", "status", "--porcelain", "-uno") else ""
    return (_first_line("git", "rev-parse", "--short", "HEAD") or "unknown") + changed


def section(name: str, text: str, facts: Mapping[str, str], figures: str) -> str:
    """Return one section of the page: what was done, the facts of the run, the table."""
    told = "".join(f"- {fact}: {value}\n" for fact, value in facts.items())
    return f"## {name}\n\n{text}\n\n{told}\n{figures}"


def page(before: str, sections: Mapping[str, str], order: Iterable[str]) -> str:
    """Return the whole page.

    Parameters
    ----------
    before
        The page so far; its sections stay unless there is a new one. Empty when there is none.
    sections
        New sections by name.
    order
        Names of all sections in order.
    """
    old = {part.partition("\n")[0]: f"## {part}".strip() + "\n" for part in before.split("\n## ")[1:]}
    known = {**old, **sections}
    return "\n".join([HEAD, *(known[name] for name in order if name in known)])


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PAGE.parent)
    except OSError:
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "")

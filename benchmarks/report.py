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
    """

    name: str
    shape: str
    figure: str
    target: str = ""


def table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| what | on | figure | target |", "|---|---|---|---|"]
    lines += [f"| {row.name} | {row.shape} | {row.figure} | {row.target} |" for row in rows]
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


def page(head: Mapping[str, str], sections: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return the whole page: facts of the run, then each section's text and table."""
    parts = ["# Results of the benchmarks\n", "Written by `make bench`; not edited by hand.\n"]
    parts.append("".join(f"- {name}: {value}\n" for name, value in head.items()))
    for name, figures in sections.items():
        parts += [f"## {name}\n", f"{texts[name]}\n" if texts.get(name) else "", figures]
    return "\n".join(part for part in parts if part)


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PAGE.parent)
    except OSError:
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "")

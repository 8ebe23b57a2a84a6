"""Find labelled cases in folders, and name what can't be scored before any time is spent on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from detector.errors import OddnodeError
from detector.evaluation.model import CaseList, LeftOut
from detector.source.incident_file import FILE_NAME, Recording, load_recording
from detector.source.recording import SERIES_FILES

MAX_DEPTH = 5
MAX_CASES = 100_000
MAX_FILE_BYTES = 2 << 30
MAX_NODE_STEPS = 500_000_000
"""Nodes times evaluations; three months of 63 nodes every 30 s are 16 million."""


def find_cases(paths: Sequence[Path], *, max_file_bytes: int = MAX_FILE_BYTES) -> CaseList:
    """Find every case in the folders given, at any depth up to five.

    Parameters
    ----------
    paths
        Cases, or folders of cases.
    max_file_bytes
        A larger series file is left out.

    Returns
    -------
    CaseList
        A case whose id or folder was found before is left out: it would count twice.
    """
    cases: list[Recording] = []
    left_out: list[LeftOut] = []
    ids: dict[str, Path] = {}
    folders: set[Path] = set()
    for path in paths:
        found = list(_folders(path))
        if not found:
            reason = "holds no case" if path.is_dir() else "no such folder"
            left_out.append(LeftOut(str(path), reason))
        for folder in found:
            if folder.resolve() in folders:
                left_out.append(LeftOut(str(folder), "named twice"))
                continue
            folders.add(folder.resolve())
            checked = _checked(folder, max_file_bytes)
            if isinstance(checked, str):
                left_out.append(LeftOut(str(folder), checked))
            elif checked.id in ids:
                left_out.append(LeftOut(str(folder), f"has the id {checked.id!r}, as {ids[checked.id]} does"))
            else:
                ids[checked.id] = folder
                cases.append(checked)
    return CaseList(tuple(cases), tuple(left_out))


def _folders(path: Path) -> Iterator[Path]:
    """Yield folders that are cases or look like one, sorted; links to folders are not followed."""
    path = path.parent if path.is_file() and path.name == FILE_NAME else path
    base = len(path.parts)
    n_found = 0
    for top, inner, files in os.walk(path):
        inner.sort()
        folder = Path(top)
        if FILE_NAME in files or any(name in files for name in SERIES_FILES):
            inner.clear()
            yield folder
            n_found += 1
            if n_found >= MAX_CASES:
                return
        elif len(folder.parts) - base >= MAX_DEPTH:
            inner.clear()


def _checked(folder: Path, max_file_bytes: int) -> Recording | str:
    """Return the recording, or why it can't be scored."""
    if not (folder / FILE_NAME).is_file():
        return f"has samples but no {FILE_NAME}, so no labels"
    try:
        recording = load_recording(folder)
        sizes = [(folder / n).stat().st_size for n in SERIES_FILES if (folder / n).is_file()]
    except OddnodeError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not sizes:
        return f"holds no {', '.join(SERIES_FILES[:-1])} or {SERIES_FILES[-1]}"
    if max(sizes) > max_file_bytes:
        return f"its series file has {max(sizes)} bytes, more than {max_file_bytes}"
    return label_fault(recording) or recording


def label_fault(recording: Recording) -> str:
    """Say what is wrong with the labels of a case, empty when nothing is."""
    nodes = {*recording.pool, *recording.spares}
    if not nodes:
        return "pool names no node, so node-time can't be counted: list the nodes there"
    if not (recording.faults or recording.group_events or recording.masked or recording.healthy):
        return "has no labels: no fault, no group event, and it is not called healthy"
    if recording.healthy and recording.faults:
        return "is called healthy and has faults"
    if len(nodes) * (recording.end - recording.start) / recording.step_s > MAX_NODE_STEPS:
        return "is too long: more than 500 million nodes times steps"
    named: list[tuple[str, int, tuple[str, ...], float, float]] = []
    named += [("faults", i, (f.node,), f.onset, f.end) for i, f in enumerate(recording.faults)]
    named += [("masked", i, (m.node,), m.onset, m.end) for i, m in enumerate(recording.masked)]
    named += [("group_events", i, g.nodes, g.onset, g.end) for i, g in enumerate(recording.group_events)]
    for key, i, members, onset, end in named:
        unknown = sorted(set(members) - nodes)
        if unknown:
            return f"{key}[{i}] names node {unknown[0]!r}, which is in neither pool nor spares"
        if key == "faults" and not recording.start <= onset <= recording.end:
            return f"{key}[{i}].onset is outside the time of the case"
        if key == "group_events" and (end < recording.start or onset > recording.end):
            return f"{key}[{i}] is outside the time of the case"
    return ""

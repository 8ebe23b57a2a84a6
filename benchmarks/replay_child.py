"""Oddnode's side of the replay benchmark: one recording, on one processor.

Run by the benchmarks: ``python -m benchmarks.replay_child FOLDER``
"""

from __future__ import annotations

import gzip
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.child import Told, answer_all, peak_rss_mib
from detector.replay import replay_case
from detector.source.recording import RecordingSource
from grouping.catalog import load_catalog


class Line(msgspec.Struct):
    """One line of a recording, as plainly decoded as can be."""

    metric: msgspec.Raw
    values: list[float | None]
    timestamps: list[int]


def yardstick(folder: Path) -> float:
    """Return the processor time of unpacking and decoding the recording and nothing else, seconds."""
    decode = msgspec.json.Decoder(Line).decode
    begun = time.process_time()
    with gzip.open(folder / "series.jsonl.gz") as file:
        for line in file.read().splitlines():
            decode(line)
    return time.process_time() - begun


def replay(folder: Path) -> dict[str, Any]:
    """Replay the case and return what it took, reading the file included."""
    catalog = load_catalog()
    begun = time.perf_counter()
    source = RecordingSource(folder)
    loaded_s = time.perf_counter() - begun
    n_series = source.n_series
    del source
    bare_s = yardstick(folder)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    found = replay_case(folder, catalog)
    return {
        "load_s": loaded_s,
        "bare_s": bare_s,
        "replay_s": time.perf_counter() - begun,
        "replay_cpu_s": time.process_time() - begun_cpu,
        "evaluations": found.evaluations,
        "flags": [flag.node for flag in found.flags],
        "n_series": n_series,
        "peak_mib": peak_rss_mib(),
    }


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    case = Path(sys.argv[1])

    def do(_: Told) -> Told:
        """Answer one command."""
        return replay(case)

    answer_all(do)

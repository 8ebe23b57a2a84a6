"""How much of what the catalog names is there: by monitored target, by exporter, by node."""

from __future__ import annotations

from collections import Counter

import numpy as np

from detector.core.conclusion import FORGET_S
from detector.pipeline import Pipeline
from detector.service_view import Coverage, ExporterCover, TargetCover


def coverage(pipeline: Pipeline) -> Coverage | None:
    """Return what the newest evaluation had to judge by, None before the first.

    Parameters
    ----------
    pipeline
        A running detection; the caller sees to it that it does not evaluate meanwhile.
    """
    if (told := pipeline.concluded) is None:
        return None
    index, presence, ev = pipeline.interner, pipeline.memory.presence, told.evaluation
    specs = pipeline.catalog.specs
    targets = sorted({spec.target for spec in specs} | {s.spec.target for s in index.signals})
    number = {target: k for k, target in enumerate(targets)}
    fresh = np.asarray(ev.cells.fresh, dtype=bool)
    n = len(fresh)
    signal_target = np.array([number[s.spec.target] for s in index.signals], dtype=np.int64)
    cell_signal, cell_node = (
        np.asarray(index.cell_signal[:n]),
        np.asarray(index.cell_node[:n], dtype=np.int64),
    )
    key = (cell_node * len(targets) + signal_target.take(cell_signal))[fresh]
    counts = np.bincount(key, minlength=len(index.nodes) * len(targets))
    has_signals = counts.reshape(len(index.nodes), len(targets)) > 0
    seen = {index.signals[s].spec.name for s in np.unique(cell_signal[fresh]).tolist()}
    catalogued = Counter(spec.target for spec in specs)
    there = Counter(spec.target for spec in specs if spec.name in seen)
    expected = presence.expected(ev.at, FORGET_S)[:n]
    exporters = []
    for e, name in enumerate(presence.exporters):
        mine = expected & (presence.exporter[:n] == e)
        if mine.any():
            exporters.append(ExporterCover(name, int(mine.sum()), int((mine & fresh).sum())))
    return Coverage(
        at=ev.at,
        targets=tuple(TargetCover(t, catalogued[t], there[t]) for t in targets),
        exporters=tuple(exporters),
        nodes={name: tuple(row.tolist()) for name, row in zip(index.nodes, has_signals, strict=True)},
    )

"""Turns numbers into evidence that an engineer can argue with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detector.core.direct import DirectState, severity_of
from detector.core.figure import figure
from detector.core.peers import RowStats
from detector.outcome import Evidence, Layer
from grouping.index import SeriesIndex
from grouping.layout import Layout
from grouping.model import Kind

FloatArray = NDArray[np.float64]

BAND_SIGMAS = 3.0
"""Half-width of the ordinary band shown with evidence, in robust standard deviations."""

MANY_PARTS = 3
"""From this many parts of one unit on, the evidence names them together."""

PLURAL = {
    "gpu": "GPUs",
    "ib_device": "InfiniBand ports",
    "network_device": "interfaces",
    "disk": "disks",
    "nfs_export": "exports",
    "cpu_core": "cores",
}
"""How several parts of a comparison unit are called."""


def labels_of(index: SeriesIndex, cell: int) -> dict[str, str]:
    """Role and part labels of a cell's signal, as found in the database."""
    signal = index.signals[index.cell_signal[cell]]
    first = int(index.cell_first_series[cell])
    if first < 0:
        return dict(zip(signal.spec.role, signal.role.split("|"), strict=False)) if signal.role else {}
    found = index.labels_of(first)
    names: list[str] = []
    for name in (*signal.spec.role, *signal.spec.part):
        names.extend(name.split("|"))
    single = signal.spec.compare == ("node",) and signal.spec.part
    wanted = signal.spec.role if single else names
    return {name: found[name] for name in wanted if name in found}


def peer_evidence(
    index: SeriesIndex,
    layout: Layout,
    stats: RowStats,
    values: FloatArray,
    cell: int,
    *,
    score: float,
    strength: float,
    since: float,
    at: float,
    similarity: float | None,
    parts: Sequence[str],
    siblings: Sequence[str],
    with_pool: bool,
    is_shift: bool = False,
) -> Evidence:
    """Describe one deviating cell, and on which parts of the node the same metric deviates.

    Parameters
    ----------
    parts
        Different parts that deviate to the same side, strongest first.
    siblings
        All parts of the node that have this metric.
    with_pool
        True when the peers' median has moved to the same side.
    is_shift
        True when `strength` is how far the member has moved from its own habit, not from the peers.
    """
    signal = index.signals[index.cell_signal[cell]]
    spec = signal.spec
    row = int(layout.row_of_cell[cell])
    row = row if row >= 0 else int(layout.slot_row_of_cell[cell])
    median, scale, n = float("nan"), float("nan"), 0
    if row >= 0:
        median, scale, n = float(stats.median[row]), float(stats.scale[row]), int(stats.n_valid[row])
    value = float(values[cell]) if np.isfinite(values[cell]) else None
    known = np.isfinite(median) and np.isfinite(scale)
    band = (median - BAND_SIGMAS * scale, median + BAND_SIGMAS * scale) if known else None
    per_second = "/s" if spec.kind in (Kind.COUNTER, Kind.ERROR_COUNTER) else ""
    shown = "no value now" if value is None else f"{figure(value)} {spec.measure}{per_second}"
    peers = f"peers {figure(median)}" if known else "peers unknown"
    side = "above" if strength > 0 else "below"
    far = f"{abs(strength):.1f} robust deviations {side}"
    far = f"moved {far} its habit" if is_shift else far
    text = f"{shown}, {peers} (n={n}): {far} for {_minutes(at - since)}"
    if signal.per_node:
        text = f"mean over the node's parts {text}"
        parts = parts or siblings
    if similarity is not None and not is_shift:
        text += f"; distance to peers {similarity:.1f} times the usual"
    return Evidence(
        metric=spec.name,
        labels=labels_of(index, cell),
        part=name_parts(parts, spec.unit),
        layer=Layer.HABIT if is_shift else Layer.PEER,
        reason=text,
        score=round(score, 3),
        value=value,
        peer_median=median if known else None,
        band=band,
        since=since,
        n_peers=max(0, n - 1),
        target=spec.target,
        side=side,
        parts=tuple(part for part in parts if part),
        n_siblings=len(siblings),
        with_pool=with_pool,
    )


def direct_evidence(
    index: SeriesIndex,
    layout: Layout,
    stats: RowStats,
    values: FloatArray,
    state: DirectState,
    k: int,
    *,
    score: float,
    n_siblings: int,
    is_blamed: bool,
) -> Evidence:
    """Describe one direct signal; `is_blamed` when it counts because the whole job waits since about then."""
    cell = int(state.cells[k])
    spec = index.signals[index.cell_signal[cell]].spec
    rule = spec.fault
    event = float(state.event_value[k])
    held = bool(np.isfinite(state.event_at[k]))
    number = event if held else float(state.last[k])
    severity = severity_of(index, cell, number)
    if held and rule is not None and rule.on == "rise":
        text = f"rose by {figure(event)} ({severity})"
        if state.n_events[k] > 1:
            text += f" in {int(state.n_events[k])} evaluations"
    elif "XID" in spec.name:
        text = f"XID {event:.0f} appeared ({severity})"
    else:
        text = f"state {figure(number)} is a fault value ({severity})"
    if is_blamed:
        text += "; the whole job waits since about then, and no other node reported a code then"
    row = int(layout.row_of_cell[cell])
    median = float(stats.median[row]) if row >= 0 else float("nan")
    since = float(state.since[k]) if np.isfinite(state.since[k]) else float(state.event_at[k])
    return Evidence(
        metric=spec.name,
        labels=labels_of(index, cell),
        part=index.parts[index.cell_part[cell]],
        layer=Layer.DIRECT,
        reason=text,
        score=round(score, 3),
        value=number if np.isfinite(number) else None,
        peer_median=median if np.isfinite(median) else None,
        band=None,
        since=since,
        n_peers=max(0, int(layout.row_members[row]) - 1) if row >= 0 else 0,
        target=spec.target,
        side="above" if held and rule is not None and rule.on == "rise" else "",
        n_siblings=n_siblings,
    )


def name_parts(parts: Sequence[str], unit: str) -> str:
    """Name the parts on which one metric deviates: one by its name, many together.

    Parameters
    ----------
    parts
        Different parts, strongest first.
    unit
        Their comparison unit.
    """
    if len(parts) < MANY_PARTS:
        return parts[0] if parts else ""
    return f"{len(parts)} {PLURAL.get(unit, unit + ' parts')}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

"""What has vanished: a part, an exporter, a node. Judged against siblings, twin exporters and peers.

Everything vanishing at once is a monitoring outage. One exporter gone while its twin still
reports is an exporter fault. A part gone from all exporters that had it, beside siblings
that report, is a part that fell off. What was never there is not absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.ingest import grow
from detector.outcome import DataQuality
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

EXPECT_AFTER_SAMPLES = 5
"""Evaluations with a fresh value before a cell's absence means anything."""

GONE_SHARE = 0.9
"""Share of expected cells that must be missing before an exporter or a part is gone."""

OUTAGE_SHARE = 0.5
"""Share of an exporter's expected cells over all nodes whose loss is an outage of the monitoring."""

PART_UNITS = ("gpu", "ib_device", "network_device", "disk", "nfs_export")
"""Comparison units whose parts can fall off by themselves."""

SCRAPE = "scrape"
"""Exporter name of the scraper's own series, which go on when a target is gone."""

TWINS = (frozenset({"dcgm", "all_smi"}),)
"""Exporters that watch the same hardware."""

PART_SCORE, NODE_SCORE, EXPORTERS_SCORE = 1.2, 1.5, 1.2

DURATION, TIMES_OUT_S = "scrape_duration_seconds", 2.5
"""A target that is refused answers at once; scrapes of a machine that is gone last until their timeout."""


@dataclass(frozen=True, slots=True)
class Absent:
    """One absence that counts as evidence against a node.

    Parameters
    ----------
    node
        Number of the node.
    part
        Name of the part, empty for the node or its exporters.
    metric
        A metric that is missing, for the evidence.
    reason
        One sentence.
    score
        On the scale of the node threshold.
    since
        Epoch seconds of the last fresh sample.
    """

    node: int
    part: str
    metric: str
    reason: str
    score: float
    since: float


@dataclass(frozen=True, slots=True)
class AbsenceReport:
    """Absences, findings about the monitoring, and nodes without any data."""

    absent: tuple[Absent, ...] = ()
    quality: tuple[DataQuality, ...] = ()
    silent: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    outage: bool = False


@dataclass(slots=True)
class Presence:
    """When each cell was last fresh and how often; grows with the index.

    Parameters
    ----------
    n_fresh : ndarray of shape (n_cells,)
        Evaluations with a fresh sample.
    last_s : ndarray of shape (n_cells,)
        Epoch seconds of the newest evaluation with one.
    exporter, exporter_of : ndarray of shape (n_cells,)
        Exporter of each cell; `exporter` is -1 for cells that may come and go.
    unit : ndarray of shape (n_cells,)
        Number of the comparison unit in `PART_UNITS`, -1 for the rest.
    exporters
        Names of exporters.
    unheard : ndarray of shape (n_cells,), bool
        Cells of muted metrics, which nobody expects; empty for none.
    resumed_s : ndarray of shape (n_exporters,)
        Epoch seconds of the newest evaluation at which most of an exporter's cells were missing everywhere.
        Absences are counted from there: what comes back need not come back in one piece.
    """

    n_fresh: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    last_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    exporter: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    exporter_of: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    unit: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    exporters: list[str] = field(default_factory=list)
    unheard: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    resumed_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    def grow_to(self, index: SeriesIndex) -> None:
        """Make room for new cells."""
        start, size = len(self.n_fresh), index.n_cells
        if start == size:
            return
        self.n_fresh = grow(self.n_fresh, size, 0)  # type: ignore[assignment]
        self.last_s = grow(self.last_s, size, 0.0)  # type: ignore[assignment]
        exporter, exporter_of, unit = [], [], []
        for signal in index.signals:
            if signal.spec.exporter not in self.exporters:
                self.exporters.append(signal.spec.exporter)
            exporter_of.append(self.exporters.index(signal.spec.exporter))
            ignored = signal.per_node or signal.spec.exporter == SCRAPE or signal.spec.sum_over
            exporter.append(-1 if ignored else exporter_of[-1])
            unit.append(PART_UNITS.index(signal.spec.unit) if signal.spec.unit in PART_UNITS else -1)
        new = index.cell_signal[start:size]
        self.exporter = np.concatenate([self.exporter, np.array(exporter, dtype=np.int64)[new]])
        self.exporter_of = np.concatenate([self.exporter_of, np.array(exporter_of, dtype=np.int64)[new]])
        self.unit = np.concatenate([self.unit, np.array(unit, dtype=np.int64)[new]])

    def see(self, fresh: BoolArray, at: float) -> None:
        """Note which cells are fresh now."""
        self.n_fresh += fresh
        np.putmask(self.last_s, fresh, at)

    def expected(self, at: float, forget_s: float) -> BoolArray:
        """Cells that should be there: seen often enough, and not given up."""
        found = (self.n_fresh >= EXPECT_AFTER_SAMPLES) & (self.exporter >= 0) & (at - self.last_s < forget_s)
        return found & ~self.unheard if len(self.unheard) == len(found) else found

    def note_outages(self, expected: BoolArray, missing: BoolArray, at: float) -> None:
        """Note which exporters have lost most of their cells at once."""
        n = len(self.exporters)
        had = np.bincount(self.exporter[expected], minlength=n)
        lost = np.bincount(self.exporter[missing], minlength=n)
        self.resumed_s = grow(self.resumed_s, n, 0.0)  # type: ignore[assignment]
        np.putmask(self.resumed_s, lost > OUTAGE_SHARE * had, at)


def judge_absence(
    presence: Presence,
    index: SeriesIndex,
    fresh: BoolArray,
    values: FloatArray,
    *,
    at: float,
    absence_after_s: float,
    forget_s: float,
    group_share: float,
) -> AbsenceReport:
    """Say what is missing, and whether the node or the monitoring is to blame.

    Parameters
    ----------
    presence
        After `Presence.see`.
    index
        Cells, nodes, parts.
    fresh : ndarray of shape (n_cells,), bool
        Cells with a young sample now.
    values : ndarray of shape (n_cells,)
        Newest values, NaN where unknown.
    at
        Evaluation time.
    absence_after_s
        Younger absences are not evidence yet.
    forget_s
        Cells gone for longer are no longer expected.
    group_share
        Share of nodes that lose an exporter together before it is an outage.
    """
    n_nodes, n_exp = len(index.nodes), len(presence.exporters)
    if not n_exp:
        return AbsenceReport(silent=np.zeros(n_nodes, dtype=bool))
    expected = presence.expected(at, forget_s)
    missing = expected & ~fresh
    if not missing.any():
        return AbsenceReport(silent=np.zeros(n_nodes, dtype=bool))
    node = index.cell_node.astype(np.int64)
    presence.note_outages(expected, missing, at)
    gone_from = np.maximum(presence.last_s, presence.resumed_s[np.maximum(presence.exporter, 0)])
    long_gone = missing & (at - gone_from >= absence_after_s)
    key = node * n_exp + np.maximum(presence.exporter, 0)
    shape = (n_nodes, n_exp)
    had = np.bincount(key[expected], minlength=n_nodes * n_exp).reshape(shape)
    lost = np.bincount(key[missing], minlength=n_nodes * n_exp).reshape(shape)
    gone_long = np.bincount(key[long_gone], minlength=n_nodes * n_exp).reshape(shape)
    known = had > 0
    gone = known & (lost >= GONE_SHARE * had)
    last = np.zeros(n_nodes * n_exp)
    np.maximum.at(last, key[expected], presence.last_s[expected])
    last = last.reshape(shape)
    silent = np.asarray(known.any(axis=1) & (gone | ~known).all(axis=1))
    quality: list[DataQuality] = []
    outage = _outages(presence, gone, known, last, group_share, at, quality)
    absent: list[Absent] = []
    lasting = gone & (gone_long >= GONE_SHARE * had) & ~outage[None, :]
    for n in np.flatnonzero(lasting.any(axis=1)).tolist():
        _judge_node(presence, index, values, n, lasting[n], known[n], last[n], absent, quality)
    absent.extend(_parts(presence, index, expected, missing, long_gone, gone, quality, at))
    return AbsenceReport(tuple(absent), tuple(quality), silent, bool(outage.all()))


def _outages(
    presence: Presence,
    gone: BoolArray,
    known: BoolArray,
    last: FloatArray,
    share: float,
    at: float,
    quality: list[DataQuality],
) -> BoolArray:
    """Find exporters that many nodes lost together: the monitoring is at fault, not the nodes."""
    n_gone, n_known = gone.sum(axis=0), known.sum(axis=0)
    outage = (n_gone >= 2) & (n_gone >= share * n_known) | (n_known > 0) & (n_gone == n_known)
    if outage.any() and (outage | (n_known == 0)).all():
        since = float(last[gone].max()) if gone.any() else at
        quality.append(
            DataQuality(
                "monitoring_outage",
                "",
                since,
                "no exporter of most nodes reports: the monitoring is at fault",
            )
        )
    else:
        for e in np.flatnonzero(outage).tolist():
            quality.append(
                DataQuality(
                    "exporter_outage",
                    "",
                    float(last[gone[:, e], e].max()),
                    f"{presence.exporters[e]} is gone on {n_gone[e]} of {n_known[e]} nodes together",
                )
            )
    return np.asarray(outage)


def _judge_node(
    presence: Presence,
    index: SeriesIndex,
    values: FloatArray,
    n: int,
    gone: BoolArray,
    known: BoolArray,
    last: FloatArray,
    absent: list[Absent],
    quality: list[DataQuality],
) -> None:
    """One node with at least one exporter gone: unreachable, hardware, or just an exporter."""
    names = {presence.exporters[e] for e in np.flatnonzero(gone)}
    had = {presence.exporters[e] for e in np.flatnonzero(known)}
    since = float(last[gone].max())
    if names == had and len(had) >= 2:
        reason = f"all {len(had)} exporters of the node are silent while its peers report"
        absent.append(Absent(n, "", "up", reason, NODE_SCORE, since))
        return
    if names == had and _times_out(index, values, n):
        reason = (
            f"the only exporter of the node, {min(had)}, is silent and its scrapes run into their timeout"
        )
        absent.append(Absent(n, "", DURATION, reason, NODE_SCORE, since))
        return
    for twins in TWINS:
        both = twins & had
        if both and both <= names and len(both) == len(twins):
            reason = f"{' and '.join(sorted(both))} are both gone while other exporters of the node report"
            absent.append(Absent(n, "", "up", reason, EXPORTERS_SCORE, since))
            names -= both
    for name in sorted(names):
        quality.append(
            DataQuality(
                "exporter_down", index.nodes[n], since, f"{name} is gone; what else the node reports goes on"
            )
        )


def _times_out(index: SeriesIndex, values: FloatArray, n: int) -> bool:
    """Say whether every scrape of a node lasts as long as one that is given up."""
    cells = np.flatnonzero(index.cell_node == n)
    signals = index.cell_signal[cells].tolist()
    told = [index.signals[s].spec.name == DURATION and not index.signals[s].per_node for s in signals]
    lasted = values[cells[np.array(told, dtype=bool)]]
    return bool(len(lasted) and (lasted >= TIMES_OUT_S).all())


def _parts(
    presence: Presence,
    index: SeriesIndex,
    expected: BoolArray,
    missing: BoolArray,
    long_gone: BoolArray,
    gone: BoolArray,
    quality: list[DataQuality],
    at: float,
) -> list[Absent]:
    """Parts that vanished from every exporter that had them, while siblings or peers report."""
    part_cells = np.flatnonzero(expected & (presence.unit >= 0) & (index.cell_part > 0))
    if not missing[part_cells].any():
        return []
    n_exp, n_parts, n_units = len(presence.exporters), len(index.parts), len(PART_UNITS)
    node = index.cell_node[part_cells].astype(np.int64)
    key = (node * n_units + presence.unit[part_cells]) * n_parts + index.cell_part[part_cells]
    full = key * n_exp + presence.exporter[part_cells]
    codes, inverse = np.unique(full, return_inverse=True)
    had = np.bincount(inverse)
    lost = np.bincount(inverse, weights=missing[part_cells])
    old = np.bincount(inverse, weights=long_gone[part_cells])
    last = np.zeros(len(codes))
    np.maximum.at(last, inverse, presence.last_s[part_cells])
    exporter, part_key = codes % n_exp, codes // n_exp
    node_of = part_key // (n_parts * n_units)
    exporter_gone = gone[node_of, exporter]
    vanished = (lost >= GONE_SHARE * had) & ~exporter_gone
    lasting = vanished & (old >= GONE_SHARE * had)
    found: list[Absent] = []
    for code in np.unique(part_key[lasting]).tolist():
        same = part_key == code
        n, unit, part = code // (n_parts * n_units), code // n_parts % n_units, index.parts[code % n_parts]
        here = {presence.exporters[e] for e in exporter[same & ~vanished & ~exporter_gone].tolist()}
        since = float(last[same & lasting].max())
        if here:
            reason = f"{part} is missing from one exporter while {' and '.join(sorted(here))} still shows it"
            quality.append(DataQuality("partial_series", index.nodes[n], since, reason))
            continue
        share = _peers_with_part(
            node_of, part_key, vanished, int(n), int(unit), n_parts, n_units, code % n_parts
        )
        if share < 0.5:
            continue
        first = part_cells[np.flatnonzero(np.isin(full, codes[same & lasting]))[0]]
        metric = index.signals[index.cell_signal[first]].spec.name
        reason = f"{part} has vanished from its exporters while its siblings and peers report"
        found.append(Absent(int(n), part, metric, reason, PART_SCORE, since))
    return found


def _peers_with_part(
    node_of: IntArray,
    part_key: IntArray,
    vanished: BoolArray,
    n: int,
    unit: int,
    n_parts: int,
    n_units: int,
    part: int,
) -> float:
    """Share of the other nodes' same parts that are still there, or of the siblings when no node has it."""
    same_part = (part_key % n_parts == part) & (part_key // n_parts % n_units == unit) & (node_of != n)
    siblings = (node_of == n) & (part_key // n_parts % n_units == unit) & (part_key % n_parts != part)
    pool = same_part if same_part.any() else siblings
    return float((~vanished[pool]).mean()) if pool.any() else 0.0

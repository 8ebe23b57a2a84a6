"""What the monitoring does not say: metrics that vanished, devices that were never seen, full counters.

None of this counts against a node. It says where "no deviation" must not be read as "healthy".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.absence import EXPECT_AFTER_SAMPLES, GONE_SHARE, PART_UNITS, Presence
from detector.core.evidence import PLURAL
from detector.core.ingest import SeriesState
from detector.core.parameters import Parameters
from detector.outcome import DataQuality
from grouping.index import SeriesIndex

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

PEERS_SHARE = 0.8
"""Share of the other nodes that must have an exporter or a device before its lack is told."""

SETTLED_SAMPLES = 2 * EXPECT_AFTER_SAMPLES
"""Evaluations with data after which what a node has shown is taken for what it has."""

MAX_NAMED = 3
MAX_FINDINGS = 200


@dataclass(slots=True)
class Completeness:
    """Remembers since when a finding holds, and which metric each cell belongs to.

    Parameters
    ----------
    since
        Epoch seconds by kind and subject of a finding.
    """

    since: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _metric_of_signal: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _names: list[str] = field(default_factory=list)
    _is_code: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    _seen: tuple[int, BoolArray, BoolArray] | None = None
    _lacks: tuple[tuple[str, str, str, str], ...] = ()

    def step(
        self,
        presence: Presence,
        series: SeriesState,
        index: SeriesIndex,
        fresh: BoolArray,
        at: float,
        parameters: Parameters,
        forget_s: float,
    ) -> list[DataQuality]:
        """Return the findings of one evaluation.

        Parameters
        ----------
        presence, series
            After the newest samples were taken in.
        fresh : ndarray of shape (n_cells,), bool
            Cells with a young sample now.
        at
            Evaluation time.
        parameters
            Times and shares.
        forget_s
            Cells gone for longer are no longer expected.
        """
        if not index.n_cells:
            return []
        self._extend(index)
        found: list[tuple[str, str, str, str]] = []
        expected = presence.expected(at, forget_s)
        gone = expected & ~fresh
        refused: dict[int, float] = {}
        if gone.any():
            after_s = max(parameters.absence_after_s, 3 * parameters.step_s)
            gone &= at - presence.last_s >= after_s
            refused = _refused_cells(series, index, gone, at - after_s)
        found.extend(self._metrics(presence, index, expected, gone, refused, parameters.group_event_share))
        found.extend(self._never_seen(presence, index))
        found.extend(_saturated(series, index))
        del found[MAX_FINDINGS:]
        keys = {(kind, node, subject) for kind, node, subject, _ in found}
        self.since = {key: self.since.get(key, at) for key in sorted(keys)}
        return [
            DataQuality(kind, node, self.since[kind, node, subject], text)
            for kind, node, subject, text in found
        ]

    def _extend(self, index: SeriesIndex) -> None:
        start = len(self._metric_of_signal)
        if start == len(index.signals):
            return
        number = {name: k for k, name in enumerate(self._names)}
        new: list[int] = []
        for signal in index.signals[start:]:
            spec = signal.spec
            if spec.name not in number:
                number[spec.name] = len(self._names)
                self._names.append(spec.name)
                is_code = spec.fault is not None and spec.fault.on == "change"
                self._is_code = np.append(self._is_code, is_code)
            new.append(number[spec.name])
        self._metric_of_signal = np.concatenate([self._metric_of_signal, np.array(new, dtype=np.int64)])

    def _metrics(
        self,
        presence: Presence,
        index: SeriesIndex,
        expected: BoolArray,
        gone: BoolArray,
        refused: dict[int, float],
        share: float,
    ) -> Iterator[tuple[str, str, str, str]]:
        """Find metrics that a node lost while the exporter goes on; codes are left out, they come and go."""
        if not gone.any():
            return
        n_metrics, n_exp, n_nodes = len(self._names), len(presence.exporters), len(index.nodes)
        metric = self._metric_of_signal[index.cell_signal]
        node = index.cell_node.astype(np.int64)
        expected = expected & ~self._is_code[metric]
        gone = gone & expected
        key = node * n_metrics + metric
        had = np.bincount(key[expected], minlength=n_nodes * n_metrics)
        lost = np.bincount(key[gone], minlength=n_nodes * n_metrics)
        exporter = node * n_exp + np.maximum(presence.exporter, 0)
        all_had = np.bincount(exporter[expected], minlength=n_nodes * n_exp)
        all_lost = np.bincount(exporter[gone], minlength=n_nodes * n_exp)
        silent = (all_lost >= GONE_SHARE * all_had)[exporter]
        whole = gone & ~silent & (lost >= GONE_SHARE * had)[key]
        had_nodes = (had.reshape(n_nodes, n_metrics) > 0).sum(axis=0)
        by_node: dict[int, set[int]] = defaultdict(set)
        absurd = {int(key[cell]): value for cell, value in refused.items() if whole[cell]}
        of_metric: dict[int, set[int]] = defaultdict(set)
        for pair in np.unique(key[whole]).tolist():
            of_metric[pair % n_metrics].add(pair // n_metrics)
        for number, nodes in of_metric.items():
            if len(nodes) > 1 and len(nodes) >= share * had_nodes[number]:
                where = f"on {len(nodes)} of {had_nodes[number]} nodes"
                values = [absurd[n * n_metrics + number] for n in nodes if n * n_metrics + number in absurd]
                text = f"is gone {where}, whose exporters go on"
                if len(values) == len(nodes):
                    text = f"reports values that cannot be {where}, e.g. {values[0]:g}"
                yield "metrics_missing", "", self._names[number], f"{self._names[number]} {text}"
                continue
            for n in nodes:
                by_node[n].add(number)
        for n, numbers in by_node.items():
            refusals = {
                self._names[k]: absurd[n * n_metrics + k] for k in numbers if n * n_metrics + k in absurd
            }
            text = _lost_text({self._names[k] for k in numbers} - set(refusals), refusals)
            yield "metrics_missing", index.nodes[n], "", text

    def _never_seen(self, presence: Presence, index: SeriesIndex) -> tuple[tuple[str, str, str, str], ...]:
        """Find what a node never had, anew only when cells came or were seen often enough."""
        lasting = (presence.n_fresh >= EXPECT_AFTER_SAMPLES) & (presence.exporter >= 0)
        settled = presence.n_fresh >= SETTLED_SAMPLES
        before = self._seen
        if (
            before is None
            or before[0] != index.version
            or not np.array_equal(before[1], lasting)
            or not np.array_equal(before[2], settled)
        ):
            self._seen = index.version, lasting, settled
            self._lacks = tuple(_never_seen(presence, index, lasting, settled))
        return self._lacks


def _never_seen(
    presence: Presence, index: SeriesIndex, lasting: BoolArray, settled: BoolArray
) -> Iterator[tuple[str, str, str, str]]:
    """Find exporters and kinds of devices that a node never had though nearly all others have them."""
    n_nodes, n_exp, n_units = len(index.nodes), len(presence.exporters), len(PART_UNITS)
    if n_nodes < 3:
        return
    node = index.cell_node.astype(np.int64)
    key = node[lasting] * n_exp + presence.exporter[lasting]
    has = np.bincount(key, minlength=n_nodes * n_exp).reshape(n_nodes, n_exp) > 0
    told = (np.bincount(node[settled], minlength=n_nodes) > 0) & has.any(axis=1)
    usual = has.sum(axis=0) >= PEERS_SHARE * max(1, int(told.sum()))
    for n, e in np.argwhere(told[:, None] & ~has & usual[None, :]).tolist():
        text = f"{presence.exporters[e]} has never sent a metric of {index.nodes[n]}"
        yield "never_seen", index.nodes[n], presence.exporters[e], f"{text}; {has[:, e].sum()} nodes have it"
    part_cells = np.flatnonzero(lasting & (presence.unit >= 0) & (index.cell_part > 0))
    if not len(part_cells):
        return
    unit, part = presence.unit[part_cells], index.cell_part[part_cells].astype(np.int64)
    pairs = np.unique((node[part_cells] * n_units + unit) * len(index.parts) + part) // len(index.parts)
    n_parts = np.bincount(pairs, minlength=n_nodes * n_units).reshape(n_nodes, n_units)
    source = np.zeros(n_units, dtype=np.int64)
    source[unit] = presence.exporter[part_cells]
    usual = (n_parts > 0).sum(axis=0) >= PEERS_SHARE * max(1, int(told.sum()))
    for n, u in np.argwhere(told[:, None] & (n_parts == 0) & usual[None, :]).tolist():
        if has[n, source[u]]:
            count = int(np.median(n_parts[n_parts[:, u] > 0, u]))
            what = PLURAL.get(PART_UNITS[u], PART_UNITS[u])
            text = f"{index.nodes[n]} lacks the {count} {what} that its peers have, and has never had them"
            yield "never_seen", index.nodes[n], PART_UNITS[u], text


def _refused_cells(
    series: SeriesState, index: SeriesIndex, gone: BoolArray, since: float
) -> dict[int, float]:
    """Return the newest value that was refused as one that cannot be, of each gone cell with such."""
    found: dict[int, float] = {}
    for batch in series.refused:
        young = np.flatnonzero(batch.ts_ms > since * 1000.0)
        cells = index.component_cell[index.series_component[batch.series.take(young)]]
        chosen = np.flatnonzero((cells >= 0) & gone[cells])
        values = batch.values.take(young.take(chosen))
        found.update(zip(cells[chosen].tolist(), values.tolist(), strict=True))
    return found


def _saturated(series: SeriesState, index: SeriesIndex) -> Iterator[tuple[str, str, str, str]]:
    """Find counters at the end of their range, which cannot show another error.

    One that is above it, or that still rises, is wider than that.
    """
    full = np.flatnonzero((series.last_value == series.stops_at) & (series.rise == 0.0))
    cells = index.component_cell[index.series_component[full]]
    for cell in sorted(set(cells[cells >= 0].tolist())):
        spec = index.signals[index.cell_signal[cell]].spec
        part = index.parts[index.cell_part[cell]]
        where = f" of {part}" if part else ""
        text = f"{spec.name}{where} stands at the end of its range and cannot show further errors"
        yield "saturated", index.nodes[index.cell_node[cell]], f"{spec.name} {part}", text


def _lost_text(gone: set[str], refused: dict[str, float]) -> str:
    """Say what a node no longer tells: metrics that are gone, and those with a value that cannot be."""
    told = []
    if refused:
        example = refused[min(refused)]
        told.append(f"{_named(set(refused), 'reports', 'report')} values that cannot be, e.g. {example:g}")
    if gone:
        told.append(f"{_named(gone, 'is', 'are')} gone while the exporter goes on")
    return "; ".join(told)


def _named(names: set[str], one: str, several: str) -> str:
    shown = sorted(names)[:MAX_NAMED]
    more = f" and {len(names) - MAX_NAMED} more metrics" if len(names) > MAX_NAMED else ""
    return f"{', '.join(shown)}{more} {one if len(names) == 1 else several}"

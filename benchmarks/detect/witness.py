"""Whether a fault shows: a case against the same cluster of the same seed without its faults.

A fault is *visible* when the node sends a fault code, when the machine is down, or when in its time
one signal of its node (the level, of a counter that rises in sound nodes the rate; of a part or in
the mean over the parts) is off in at least 8 of 40 consecutive scrapes. Off means: gone while the other
nodes' is there, or farther from the node's own habit, less what all nodes do at the time, than 1.5 times

- the 99.9 % quantile of what sound nodes show of that signal in the case without the fault,
- and what the second farthest sound node shows in the same scrape of the case,

and farther than 1.5 % of the level, and not as far in the case without the fault. A fault with some
trace below that mark is *faint*; one without any is *hidden*: masked time, which counts neither way.

Which part is at fault is asked only where that can be seen: where the fault has a code, or a series of
that part has a trace. A case may have the pressure that a slow disk makes and no metric of disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.detect.incidents import CaseSpec, recording_of
from detector.source.incident_file import Recording
from simulator.faults import Fault

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

N_WITNESSES = 16
"""Sound nodes with which an affected node is compared."""

WITHIN = 40
VISIBLE_TICKS, VISIBLE_TIMES, VISIBLE_QUANTILE = 8, 1.5, 0.999
"""A signal must be off in this many of `WITHIN` scrapes by this many times that quantile."""

TINY_SHARE, TINY = 0.01, 1e-9
"""Less than 1.5 times this share of the level is never plain, however constant the signal is otherwise."""

RISING_SHARE = 0.2
"""A signal that never falls and rises in this share of the scrapes of the median sound node is a counter."""

FAINT_TICKS, FAINT_Z = 4, 4.0
"""A fault leaves a trace when a signal is this many noise widths off, in this many of `WITHIN`."""

HIDDEN, FAINT, VISIBLE = "hidden", "faint", "visible"


@dataclass(frozen=True, slots=True)
class Grade:
    """How plainly a fault shows.

    Parameters
    ----------
    name
        ``hidden``, ``faint`` or ``visible``.
    at
        Epoch seconds of the first sample that is off, None unless visible.
    metric
        Of the signal that is off in most scrapes, empty when none is visible.
    shows_part
        False when no series of the labelled part tells that it is this one.
    """

    name: str
    at: float | None = None
    metric: str = ""
    shows_part: bool = True


def graded(case: CaseSpec, grades: Sequence[Grade]) -> Recording:
    """Return what is known of a case; hidden faults are masked time, the others carry their grade."""
    recording = recording_of(case, tuple(grade.name != HIDDEN for grade in grades))
    shown = [grade for grade in grades if grade.name != HIDDEN]
    faults = tuple(
        replace(
            fault,
            part=fault.part if grade.shows_part else "",
            visible=grade.name,
            visible_at=grade.at,
            visible_in=grade.metric,
        )
        for fault, grade in zip(recording.faults, shown, strict=True)
    )
    return replace(recording, faults=faults)


class Witness:
    """Grades the faults of a case.

    Parameters
    ----------
    case
        The case.
    """

    def __init__(self, case: CaseSpec) -> None:
        self._case = case
        cluster = case.without_faults()
        self._cluster = cluster
        names = case.config.node_names
        faulty = sorted({names.index(f.node) for f in case.faults})
        rng = np.random.default_rng([case.seed, 9])
        sound = [i for i in range(case.config.train_nodes) if i not in faulty]
        witnesses = rng.permutation(sound)[:N_WITNESSES]
        self._nodes = np.concatenate([np.array(faulty, dtype=np.int64), np.sort(witnesses)])
        self._n_faulty = len(faulty)
        self._metrics = [
            [cluster.series[first + m * n * k]["__name__"] for m in range(c)]
            for first, (c, n, k) in cluster.blocks
        ]
        self._shapes = [(c, len(self._nodes), k) for _, (c, _, k) in cluster.blocks]
        rows = [
            first + (np.arange(c)[:, None, None] * n + self._nodes[:, None]) * k + np.arange(k)
            for first, (c, n, k) in cluster.blocks
        ]
        self.rows: IntArray = np.concatenate([r.reshape(-1) for r in rows])
        self._of_part = [self._series_of(fault) for fault in case.node_faults]

    def _series_of(self, fault: Fault) -> list[BoolArray]:
        """Tell of each block which series of the node are of the labelled part, shape (signals, parts)."""
        node = self._case.config.node_names.index(fault.node)
        found = []
        for first, (c, n, k) in self._cluster.blocks:
            numbers = first + (np.arange(c)[:, None] * n + node) * k + np.arange(k)
            named = [_names(self._cluster.series[i], fault.part) for i in numbers.reshape(-1).tolist()]
            found.append(np.array(named, dtype=bool).reshape(c, k))
        return found

    def grades(self, kept: FloatArray) -> tuple[Grade, ...]:
        """Compare with the same cluster without the faults, of the same seed.

        Parameters
        ----------
        kept : ndarray of shape (n_ticks, n_rows)
            Samples of `rows` in the case.

        Returns
        -------
        tuple of Grade
            One for each of the case's node faults.
        """
        case, step = self._case, self._case.config.step_s
        times: FloatArray = case.start + step * np.arange(len(kept), dtype=np.float64)
        sound = np.array([self._cluster.tick(at)[0][self.rows] for at in times.tolist()])
        column = {int(node): i for i, node in enumerate(self._nodes[: self._n_faulty])}
        columns = [column[case.config.node_names.index(f.node)] for f in case.node_faults]
        spans = [(times >= f.onset) & (times <= f.end + 2 * step) for f in case.node_faults]
        seen_at = [self._told_at(fault, times) for fault in case.node_faults]
        faint = [False] * len(columns)
        shows_part = [not f.part or bool(f.codes) for f in case.node_faults]
        plainest = [(0, "")] * len(columns)
        for block, metrics, ours, theirs in self._signals(kept, sound):
            plain, some = _plain(ours, theirs, self._n_faulty), _some(ours, theirs, self._n_faulty)
            if len(ours) == len(times):
                counts = _is_counter(theirs[:, :, self._n_faulty :])
                plain[:, counts] = False
            else:
                plain[:, ~counts] = False
            late = times[len(times) - len(ours) :]
            for i, (span, col) in enumerate(zip(spans, columns, strict=True)):
                during = span[len(times) - len(ours) :, None, None]
                off = plain[:, :, col] & during
                first = first_of_enough(off, VISIBLE_TICKS)
                if first is not None:
                    seen_at[i] = min(seen_at[i], float(late[first]))
                    often = off.sum(axis=0).max(axis=1)
                    plainest[i] = max(plainest[i], (int(often.max()), metrics[int(often.argmax())]))
                trace = some[:, :, col] & during
                faint[i] |= first_of_enough(trace, FAINT_TICKS) is not None
                of_part = self._of_part[i][block]
                if not shows_part[i] and trace.shape[1:] == of_part.shape:
                    shows_part[i] = first_of_enough(trace & of_part, FAINT_TICKS) is not None
        return tuple(
            Grade(VISIBLE, at, metric, shows)
            if np.isfinite(at)
            else Grade(FAINT if is_faint else HIDDEN, shows_part=shows)
            for at, is_faint, (_, metric), shows in zip(seen_at, faint, plainest, shows_part, strict=True)
        )

    def _signals(
        self, kept: FloatArray, sound: FloatArray
    ) -> Iterator[tuple[int, list[str], FloatArray, FloatArray]]:
        """Yield number of the block, metrics, and their signals in the case and without faults.

        The latter have the shape (ticks or one less, signals, nodes, parts).
        """
        at = 0
        for block, (metrics, shape) in enumerate(zip(self._metrics, self._shapes, strict=True)):
            here = slice(at, at + int(np.prod(shape)))
            at = here.stop
            pair = kept[:, here].reshape(-1, *shape), sound[:, here].reshape(-1, *shape)
            pairs = [pair]
            if shape[2] > 1:
                pairs.append((_mean_of_parts(pair[0]), _mean_of_parts(pair[1])))
            for ours, theirs in pairs:
                yield block, metrics, ours, theirs
                yield block, metrics, np.diff(ours, axis=0), np.diff(theirs, axis=0)

    @staticmethod
    def _told_at(fault: Fault, times: FloatArray) -> float:
        """Return when the node tells the fault by itself, infinity when it doesn't."""
        if fault.codes:
            at = fault.onset + fault.codes[0][1]
        elif fault.kind == "machine_down":
            at = fault.onset
        else:
            return np.inf
        later = times[times >= at]
        return float(later[0]) if len(later) else np.inf


def _names(labels: Mapping[str, str], part: str) -> bool:
    """Tell whether a series is of a part: a GPU, a port as ``device/port``, a disk or an export."""
    unit, _, number = part.partition(" ")
    if number:
        return number in (labels.get(unit), labels.get("index") if "uuid" in labels else None)
    device = part.partition("/")[0] if part.startswith("mlx5") else part
    return bool(part) and device in labels.values()


def first_of_enough(off: BoolArray, enough: int) -> int | None:
    """Return the first time of the earliest `WITHIN` ticks in which a signal is off often enough.

    Parameters
    ----------
    off : ndarray of shape (n_ticks, ...), bool
        Signals by themselves.
    """
    flat = off.reshape(len(off), -1)
    flat = flat[:, flat.sum(axis=0) >= enough]
    count: IntArray = np.cumsum(flat, axis=0, dtype=np.int64)
    ago = np.zeros_like(count)
    ago[WITHIN:] = count[:-WITHIN]
    reached = count - ago >= enough
    found = []
    for signal in np.flatnonzero(reached.any(axis=0)).tolist():
        last = int(np.argmax(reached[:, signal]))
        begin = max(0, last - WITHIN + 1)
        found.append(begin + int(np.argmax(flat[begin : last + 1, signal])))
    return min(found, default=None)


def _is_counter(sound: FloatArray) -> BoolArray:
    """Tell which signals only rise in sound nodes; `sound` has the shape (time, signal, node, part)."""
    step = np.diff(sound, axis=0)
    falls = np.mean(step < 0, axis=(0, 2, 3)) > 0.01
    rises = _median(np.mean(step > 0, axis=(0, 3)), 1)[:, 0] >= RISING_SHARE
    return np.asarray(rises & ~falls)


def _mean_of_parts(values: FloatArray) -> FloatArray:
    there = np.isfinite(values)
    count = there.sum(axis=3, keepdims=True)
    total = np.where(there, values, 0).sum(axis=3, keepdims=True)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _plain(ours: FloatArray, theirs: FloatArray, n_faulty: int) -> BoolArray:
    """Tell which samples of the first nodes are off by the strict rule, shape (time, signal, node, part)."""
    with np.errstate(all="ignore"):
        habit = _median(theirs, 0)
        own, usual = ours - habit, theirs - habit
        own = np.abs(own - _median(own[:, :, n_faulty:], 2))
        usual = np.abs(usual - _median(usual[:, :, n_faulty:], 2))
        sound = usual[:, :, n_faulty:].transpose(0, 2, 1, 3).reshape(-1, ours.shape[1], 1, ours.shape[3])
        ordered = np.sort(own[:, :, n_faulty:], axis=2)
        there = np.sum(~np.isnan(ordered), axis=2, keepdims=True)
        second = np.take_along_axis(ordered, np.clip(there - 2, 0, None), axis=2)
        tiny = TINY_SHARE * np.abs(habit[:, :, :n_faulty]) + TINY
        mark = VISIBLE_TIMES * np.fmax(np.fmax(_quantile(sound, VISIBLE_QUANTILE), second), tiny)
        far = (own[:, :, :n_faulty] > mark) & ~(usual[:, :, :n_faulty] > mark)
    return np.asarray(far | _gone_alone(ours, theirs, n_faulty))


def _some(ours: FloatArray, theirs: FloatArray, n_faulty: int) -> BoolArray:
    """Tell which samples of the first nodes differ from their own without the fault by more than noise.

    Both have the shape (time, signal, node, part); what happens to all nodes is taken away first.
    """
    with np.errstate(all="ignore"):
        change = ours - theirs
        centred = theirs - _median(theirs, 0)
        noise = np.abs(centred - _median(centred[:, :, n_faulty:], 2))[:, :, n_faulty:]
        noise = noise.transpose(0, 2, 1, 3).reshape(-1, ours.shape[1], 1, ours.shape[3])
        width = 1.4826 * _median(noise, 0)
        common = _median(change[:, :, n_faulty:], 2)
        around = 1.4826 * _median(np.abs(change[:, :, n_faulty:] - common), 2)
        own = change[:, :, :n_faulty] - common
        tiny = 1e-6 * np.abs(theirs[:, :, :n_faulty]) + 1e-12
        far = np.abs(own) > FAINT_Z * np.fmax(np.fmax(width, around), tiny)
    return np.asarray(far | _gone_alone(ours, theirs, n_faulty))


def _gone_alone(ours: FloatArray, theirs: FloatArray, n_faulty: int) -> BoolArray:
    gone = np.isnan(ours) & ~np.isnan(theirs)
    return np.asarray(gone[:, :, :n_faulty] & (gone[:, :, n_faulty:].mean(axis=2, keepdims=True) < 0.5))


def _median(values: FloatArray, axis: int) -> FloatArray:
    """Lower median without NaN, keeping the axis; NaN where all are, without a warning."""
    return _quantile(values, 0.5, axis)


def _quantile(values: FloatArray, share: float, axis: int = 0) -> FloatArray:
    ordered = np.sort(values, axis=axis)
    count = np.sum(~np.isnan(ordered), axis=axis, keepdims=True)
    place = np.clip(np.ceil(share * count).astype(np.int64) - 1, 0, None)
    return np.take_along_axis(ordered, place, axis=axis)

"""From a budget of false alarms to thresholds.

Peer evidence names a healthy node in two ways: one signal alone at 1 / `TARGET_SHARE` thresholds, or signals
of two targets at their thresholds at once. Half of the budget goes to each. With M signals, W
windows of a full continuity per cluster and month, and a rate r at which each signal crosses its
threshold, chance brings two together ``(M r)^2 / (2 W)`` times: that is half the budget B at
``r = sqrt(B W) / M``. What is left of coincidence that is no chance, the node's threshold takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from detector.calibration.levels import CELL_LEVELS, NODE_LEVELS, spread
from detector.calibration.model import MONTH_S, NodeEntry, Rate, SignalEntry
from detector.calibration.tail import MIN_PEAKS, Tail, fit_tail
from detector.calibration.tally import Watched, judged_s
from detector.core.fusion import TARGET_SHARE
from detector.core.thresholds import ANY_ROLE, SignalKey, Thresholds
from detector.errors import OddnodeError

FloatArray = NDArray[np.float64]

MIN_WINDOWS = 2000
"""Node-windows of a full continuity below which nothing is armed: 2.2 hours of 60 nodes at 240 s."""

MAX_FACTOR = 20.0
"""No threshold is raised beyond this many times the shipped one."""

MAX_BEYOND = 10.0
"""Levels are extrapolated to once in this many histories, not to what is rarer still."""

CONFIDENCE = 0.9

_LEAST = "the lowest threshold allowed is enough"


class CalibrationError(OddnodeError):
    """A calibration cannot be made, read or used; says why."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What is wanted.

    Parameters
    ----------
    budget
        False alarms per cluster and month.
    n_nodes
        Size of the cluster.
    full_s
        Full continuity, seconds.
    z_threshold
        Shipped threshold.
    floor
        Share of it down to which healthy history may lower a threshold.
    """

    budget: float
    n_nodes: int
    full_s: float
    z_threshold: float
    floor: float = 1.0

    def months(self, node_s: float) -> float:
        """Return node-seconds as months of the cluster."""
        return node_s / (self.n_nodes * MONTH_S)

    def reachable(self, rate: float, months: float) -> float:
        """Return the rate, or the least one that a history of so many months can speak of."""
        return max(rate, 1.0 / (MAX_BEYOND * months))

    def crossings(self, n_signals: int) -> float:
        """Return how often per month each signal may cross its threshold on some node."""
        windows = self.n_nodes * MONTH_S / self.full_s
        return math.sqrt(self.budget * windows) / n_signals

    def alone(self, n_signals: int) -> float:
        """Return how often per month each signal may decide by itself."""
        return 0.5 * self.budget / n_signals


@dataclass(slots=True)
class _Pool:
    """Peaks of signals that are taken together; None for a tail that cannot be fitted."""

    tail: Tail | None
    n_peaks: int


def learn_signals(watched: Sequence[Watched], aim: Aim) -> tuple[SignalEntry, ...]:
    """Learn the threshold of every signal.

    Parameters
    ----------
    watched
        Healthy history.
    aim
        Budget and size.

    Raises
    ------
    CalibrationError
        When the history is too short, or nothing in it ever moved.
    """
    node_s = judged_s(watched)
    if node_s < MIN_WINDOWS * aim.full_s:
        needed = MIN_WINDOWS * aim.full_s / 3600.0
        raise CalibrationError(
            f"too little healthy history: {node_s / 3600.0:.1f} node-hours could be judged, "
            f"at least {needed:.0f} are needed"
        )
    seconds = _sum_up(watched)
    moving = {key for one in watched for key in one.moving}
    if not moving:
        raise CalibrationError("the history is constant: no signal of it ever differed from its peers")
    targets = {key: target for one in watched for key, target in one.targets.items()}
    weights = {key: weight for one in watched for key, weight in one.weights.items()}
    peaks = _peaks(watched)
    months = aim.months(node_s)
    by_target = {t: _pool([peaks.get(k, _NONE) for k in seconds if targets[k] == t], months)
                 for t in set(targets.values())}  # fmt: skip
    everything = _pool([peaks.get(k, _NONE) for k in seconds], months)
    enough = {key for key, s in seconds.items() if s >= MIN_WINDOWS * aim.full_s and key in moving}
    counted = [key for key in enough if weights[key] > 0]
    if not counted:
        raise CalibrationError("no signal was watched for long enough to learn anything of it")
    entries = []
    for key in sorted(seconds):
        if weights[key] <= 0:
            continue
        mine = peaks.get(key, _NONE)
        days = seconds[key] / 86400.0
        if key not in enough:
            reason = _too_little(seconds[key], aim) if key in moving else "never differed from its peers"
            entries.append(_kept(key, aim, days, len(mine), reason))
            continue
        own = _Pool(fit_tail(mine, months, float(CELL_LEVELS[0])), len(mine))
        entries.append(
            _entry(
                key,
                days,
                len(mine),
                (("own", own), ("target", by_target[targets[key]]), ("all", everything)),
                weights[key],
                len(counted),
                aim,
            )
        )
    return tuple(entries + _any_role(entries))


_NONE: FloatArray = np.zeros(0)


def _sum_up(watched: Sequence[Watched]) -> dict[SignalKey, float]:
    seconds: dict[SignalKey, float] = {}
    for one in watched:
        for key, s in one.signal_s.items():
            seconds[key] = seconds.get(key, 0.0) + s
    return seconds


def _peaks(watched: Sequence[Watched]) -> dict[SignalKey, FloatArray]:
    levels: dict[SignalKey, list[int]] = {}
    for one in watched:
        for episode in one.signals:
            if episode.key is not None:
                levels.setdefault(episode.key, []).append(episode.level)
    return {key: spread(np.array(found, dtype=np.int64), CELL_LEVELS) for key, found in levels.items()}


def _pool(parts: Sequence[FloatArray], months: float) -> _Pool:
    peaks = np.concatenate([*parts, _NONE])
    return _Pool(fit_tail(peaks, months, float(CELL_LEVELS[0])), len(peaks))


def _too_little(seconds: float, aim: Aim) -> str:
    needed = MIN_WINDOWS * aim.full_s / 3600.0
    return f"too little data: {seconds / 3600.0:.1f} node-hours, {needed:.0f} are needed"


def _kept(key: SignalKey, aim: Aim, days: float, n_peaks: int, reason: str) -> SignalEntry:
    plain = aim.z_threshold
    bounds = (plain, plain)
    return SignalEntry(
        key.metric, key.role, key.per_node, False, plain, bounds, days, n_peaks, "", 0.0, 0.0, reason
    )


def _entry(
    key: SignalKey,
    days: float,
    n_peaks: int,
    pools: Sequence[tuple[str, _Pool]],
    weight: float,
    n_signals: int,
    aim: Aim,
) -> SignalEntry:
    """Take the stricter of both shares of the budget, by the first pool that has a tail."""
    name, pool = next(((n, p) for n, p in pools if p.tail is not None), ("", pools[0][1]))
    if pool.tail is None or not n_peaks:
        least = aim.z_threshold * aim.floor
        reason = f"kept half its threshold {n_peaks} times: {_LEAST}"
        return SignalEntry(
            key.metric, key.role, key.per_node, True, least, (least, least), days, n_peaks, "", 0, 0, reason
        )
    # a borrowed tail says how high peaks are; how many there are is the signal's own
    share = 1.0 if name == "own" else pool.n_peaks / (n_peaks + 1.0)
    months = pool.tail.exposure
    crossing = aim.reachable(aim.crossings(n_signals), months) * share
    alone = aim.reachable(aim.alone(n_signals), months) * share
    by_itself = TARGET_SHARE * weight if weight * 4.0 * TARGET_SHARE >= 1.0 else 0.0
    first = pool.tail.level_of(crossing)
    second = pool.tail.level_of(alone) * by_itself
    factor, low, high = first, *pool.tail.interval_of(crossing)
    why = "crosses it as often as chance may pair"
    if second > first:
        low, high = (x * by_itself for x in pool.tail.interval_of(alone))
        factor, why = second, "decides by itself as seldom as its share allows"
    factor, low, high = (float(np.clip(x, aim.floor, MAX_FACTOR)) for x in (factor, low, high))
    if factor == aim.floor:
        why = _LEAST
    return SignalEntry(
        key.metric,
        key.role,
        key.per_node,
        True,
        aim.z_threshold * factor,
        (aim.z_threshold * min(low, factor), aim.z_threshold * max(high, factor)),
        days,
        n_peaks,
        name,
        pool.tail.shape,
        pool.tail.scale,
        why,
    )


def _any_role(entries: Sequence[SignalEntry]) -> list[SignalEntry]:
    """For metrics with several roles, what holds for a role not seen: the median of those that were."""
    groups: dict[tuple[str, bool], list[SignalEntry]] = {}
    for entry in entries:
        if entry.role:
            groups.setdefault((entry.metric, entry.per_node), []).append(entry)
    made = []
    for (metric, per_node), group in sorted(groups.items()):
        armed = sorted((e for e in group if e.armed), key=lambda e: (e.threshold, e.role))
        if armed:
            middle = armed[len(armed) // 2]
            made.append(
                SignalEntry(
                    metric, ANY_ROLE, per_node, True, middle.threshold, middle.interval,
                    sum(e.node_days for e in armed), sum(e.n_peaks for e in armed), middle.tail,
                    middle.shape, middle.scale, f"roles not seen: the middle one of {len(armed)}",
                )
            )  # fmt: skip
    return made


def thresholds_of(entries: Sequence[SignalEntry], node: float = 1.0, floor: float = 1.0) -> Thresholds:
    """Return what the pipeline takes."""
    signals = {SignalKey(e.metric, e.role, e.per_node): e.threshold for e in entries if e.armed}
    return Thresholds(signals, max(node, 1.0), floor)


def learn_node(watched: Sequence[Watched], aim: Aim) -> tuple[NodeEntry, Rate]:
    """Learn the threshold of the fused evidence, and the rate that is then to be expected.

    Parameters
    ----------
    watched
        The same healthy history, replayed with the thresholds of the signals.
    aim
        Budget and size.
    """
    months = aim.months(judged_s(watched))
    levels = np.array([e.level for one in watched for e in one.nodes], dtype=np.int64)
    peaks = spread(levels, NODE_LEVELS)
    tail = fit_tail(peaks, months, float(NODE_LEVELS[0]))
    n_over = int(np.count_nonzero(peaks >= 1.0))
    if n_over <= aim.budget * months:
        threshold, bounds, reason = 1.0, (1.0, 1.0), f"{n_over} over it in the history: within the budget"
    elif tail is None:
        threshold = float(np.nextafter(np.sort(peaks)[::-1][int(aim.budget * months)], np.inf))
        bounds = (threshold, threshold)
        reason = f"counted: fewer than {MIN_PEAKS} peaks make no tail"
    else:
        rate = aim.reachable(aim.budget, months)
        threshold = max(1.0, tail.level_of(rate))
        low, high = tail.interval_of(rate)
        bounds = (max(1.0, min(low, threshold)), max(high, threshold))
        reason = f"{n_over} over 1 in the history: more than the budget"
    n = int(np.count_nonzero(peaks >= threshold))
    low, high = poisson_bounds(n)
    rate = n / months if tail is None else tail.rate_above(threshold)
    shape, scale = (tail.shape, tail.scale) if tail is not None else (0.0, 0.0)
    entry = NodeEntry(True, threshold, bounds, len(peaks), shape, scale, reason)
    return entry, Rate(rate, low / months, high / months)


def poisson_bounds(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact bounds of a Poisson mean of which `count` was seen."""
    out = (1.0 - confidence) / 2.0
    low = 0.0 if count == 0 else float(chi2.ppf(out, 2 * count)) / 2.0
    return low, float(chi2.isf(out, 2 * count + 2)) / 2.0

"""The whole pool against its own past: what befalls everybody shows in no comparison with peers.

The level of a metric in a pool is the mean of its groups' medians, so no single node moves it. A short
window of levels is tested against the last hour of such windows: by their median, their robust spread
and a smallest change that counts. Checkpoints, evaluations and loading show in the activity of the GPUs
too, so only levels at the usual activity are compared; a job that waits for something keeps it, or spins
at a higher one while nothing moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.core.peers import MAD_TO_SIGMA
from detector.core.pool_signs import ACTIVITY, STALLED, STOPPED, Move, Sign, kind_of, sign_of
from grouping.index import Signal
from grouping.layout import Layout

FloatArray = NDArray[np.float64]

HISTORY_SAMPLES = 120
"""Windows remembered of each pool, an hour of half minutes."""

WARM_UP = 30
"""Windows after which a pool's usual levels count as known."""

ACTIVITY_WARM_UP = 10
"""Samples after which the usual activity does."""

CHANGE_SIGMAS = 6.0
"""Robust standard deviations of past windows by which a window must differ."""

ACTIVITY_SIGMAS = 1.5
"""... and of the activity, within which it is the usual one."""

LONGER, SURE_FROM = 1.5, 60
"""Levels at another activity are compared when that lasts this many times longer than ever before, and
so many windows are known."""

DENSEST, DENSEST_TO_SIGMA = 0.4, 1.0488
"""Share of the activities from which the usual one is taken; how many standard deviations of normal data
the interval that holds it is wide."""

BUSY_FROM = 20.0
"""Activity in percent from which a pool has a job."""

STOPPED_SHARE = 0.3
"""Below this share of the usual activity a job has stopped."""

NEW_USUAL_S = 3600.0
"""An event that lasts as long is the new usual."""

UNKNOWN_S = 1800.0
"""Seconds without a level of a pool after which what befell it is over."""

NEVER = -1.0
"""Before any time, epoch seconds."""

FRESH_WINDOWS = 3.0
"""A window reaches back at most this many times its length, over phases in which nothing is compared."""


@dataclass(frozen=True, slots=True)
class Change:
    """What befalls a pool as a whole at one evaluation.

    Parameters
    ----------
    kind
        See `pool_signs.TITLES`.
    began
        Epoch seconds at which it began.
    moves
        The metrics behind it, strongest first.
    """

    kind: str
    began: float
    moves: tuple[Move, ...]


@dataclass(slots=True)
class PoolPast:
    """What one pool remembers; arrays have one column per metric."""

    window: deque[tuple[float, FloatArray]] = field(default_factory=deque)
    usual: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    activity: list[float] = field(default_factory=list)
    kind: str = ""
    began: float = 0.0
    held_s: float = 0.0
    is_open: bool = False
    quiet_s: float = 0.0
    apart_s: float = 0.0
    longest_s: float = 0.0
    busier_at: float = NEVER
    seen_at: float = NEVER
    unknown_s: float = 0.0
    moves: tuple[Move, ...] = ()

    def forget(self) -> None:
        """Begin anew, as after a stop: the next job is another one."""
        self.window.clear()
        self.usual = self.usual[:0]
        self.close()

    def close(self) -> None:
        """End what is open."""
        self.kind, self.is_open, self.held_s, self.quiet_s, self.moves = "", False, 0.0, 0.0, ()


@dataclass(slots=True)
class PoolChanges:
    """The past of all pools."""

    metrics: list[str] = field(default_factory=list)
    signs: list[Sign] = field(default_factory=list)
    pools: dict[str, PoolPast] = field(default_factory=dict)
    _layout: Layout | None = None
    _rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _columns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def step(
        self,
        layout: Layout,
        names: Sequence[str],
        signals: Sequence[Signal],
        median: FloatArray,
        *,
        at: float,
        dt: float,
        full_s: float,
    ) -> dict[str, Change]:
        """Advance all pools by one evaluation.

        Parameters
        ----------
        layout, signals
            Groups and what they measure.
        names
            Names of the pools by number.
        median : ndarray of shape (n_rows,)
            Median of each group, NaN where it is not known.
        at, dt
            Evaluation time and seconds since the one before.
        full_s
            How long a change must last.

        Returns
        -------
        dict
            By pool what is going on now.
        """
        self._look_up(layout, signals)
        n = len(self.metrics)
        if not n:
            return {}
        values = median[self._rows]
        known = np.isfinite(values)
        key = layout.row_pool[self._rows[known]] * n + self._columns[known]
        size = len(names) * n
        count = np.bincount(key, minlength=size)
        total = np.bincount(key, weights=values[known], minlength=size)
        level = np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(len(names), n)
        for number, name in enumerate(names):
            if not np.isfinite(level[number]).any():
                continue
            past = self.pools.setdefault(name, PoolPast())
            if at > past.seen_at:  # times are seen again after a restart, and are no second past
                past.seen_at, past.unknown_s = at, 0.0
                self._advance(past, level[number], at, dt, full_s)
        for past in self.pools.values():
            past.unknown_s += dt * (at > past.seen_at)
            if past.unknown_s > UNKNOWN_S:
                past.close()
        return {k: Change(p.kind, p.began, p.moves) for k, p in self.pools.items() if p.is_open}

    def _look_up(self, layout: Layout, signals: Sequence[Signal]) -> None:
        if layout is self._layout:
            return
        rows, columns = [], []
        for row, signal in enumerate(layout.row_signal.tolist()):
            name, sign = signals[signal].spec.name, sign_of(signals[signal].spec.name)
            if sign is None or signals[signal].per_node:
                continue
            if name not in self.metrics:
                self.metrics.append(name)
                self.signs.append(sign)
            rows.append(row)
            columns.append(self.metrics.index(name))
        self._layout = layout
        self._rows, self._columns = np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)
        for past in self.pools.values():
            past.usual = _wider(past.usual, len(self.metrics))
            past.window = deque((t, _wider(x[None], len(self.metrics))[0]) for t, x in past.window)

    def _advance(self, past: PoolPast, level: FloatArray, at: float, dt: float, full_s: float) -> None:
        active = [k for k, sign in enumerate(self.signs) if sign.meaning == ACTIVITY and level[k] == level[k]]
        if not active:
            return
        activity = float(np.mean(level[active]))
        usual, spread = _centre(past.activity)
        warm = len(past.activity) >= ACTIVITY_WARM_UP
        if warm and usual >= BUSY_FROM and activity < STOPPED_SHARE * usual:
            self._stop(past, Move(self.metrics[active[0]], ACTIVITY, usual, activity, 1.0), at, dt, full_s)
            return
        if past.kind == STOPPED:
            past.forget() if past.held_s >= full_s else past.close()
        past.activity = [*past.activity[1 - HISTORY_SAMPLES :], activity]
        if warm and abs(activity - usual) > max(self.signs[active[0]].least, ACTIVITY_SIGMAS * spread):
            past.apart_s += dt
            if past.apart_s <= max(2 * full_s, LONGER * past.longest_s) or len(past.usual) < SURE_FROM:
                if activity < usual:
                    return
                past.busier_at = at
        elif past.apart_s:
            past.longest_s, past.apart_s = max(past.longest_s, min(past.apart_s, NEW_USUAL_S)), 0.0
        past.window.append((at, level))
        while past.window[0][0] < at - FRESH_WINDOWS * full_s or len(past.window) > max(4, full_s / dt):
            past.window.popleft()
        self._compare(past, at, dt, full_s)

    def _stop(self, past: PoolPast, move: Move, at: float, dt: float, full_s: float) -> None:
        if past.kind != STOPPED:
            past.close()
            past.window.clear()
            past.kind, past.began = STOPPED, at
        past.held_s += dt
        past.moves = (move,)
        past.is_open = past.held_s >= full_s
        if past.held_s >= NEW_USUAL_S:
            past.forget()
            past.activity = []

    def _compare(self, past: PoolPast, at: float, dt: float, full_s: float) -> None:
        if len(past.window) < max(3, 0.5 * full_s / dt):
            return
        samples = np.array([x for _, x in past.window])
        now = _median(samples)
        kind = ""
        moves: list[Move] = []
        if len(past.usual) >= WARM_UP:
            moves, raised = self._moves(past.usual, now)
            kind = kind_of(moves, raised)
        if past.window[0][0] <= past.busier_at and kind != STALLED:
            return
        if kind:
            if not past.kind:
                past.began = min(self._began(past, samples, moves[0]), at - max(past.apart_s - dt, 0.0))
            past.kind, past.moves, past.quiet_s = kind, tuple(moves), 0.0
            past.held_s += dt
            past.is_open = past.is_open or past.held_s >= 0.5 * full_s
            if past.held_s >= NEW_USUAL_S:
                past.forget()
            return
        if past.kind:
            past.quiet_s += dt
            if past.is_open and past.quiet_s < full_s:
                return
            past.close()
        past.usual = np.concatenate([_wider(past.usual, len(now))[1 - HISTORY_SAMPLES :], now[None]])

    def _moves(self, past: FloatArray, now: FloatArray) -> tuple[list[Move], frozenset[str]]:
        """Return what has moved to the worse side, and meanings that rose without being worse."""
        usual = _median(past)
        spread = MAD_TO_SIGMA * _median(np.abs(past - usual))
        in_units = np.array([sign.in_units for sign in self.signs])
        least = np.array([sign.least for sign in self.signs]) * np.where(in_units, 1.0, np.abs(usual))
        needed = np.fmax(least, CHANGE_SIGMAS * spread)
        change = now - usual
        moves: list[Move] = []
        raised: set[str] = set()
        for k in np.flatnonzero((np.abs(change) >= needed) & (needed > 0)).tolist():
            sign = self.signs[k]
            if change[k] * sign.side > 0:
                strength = abs(float(change[k] / needed[k]))
                moves.append(Move(self.metrics[k], sign.meaning, float(usual[k]), float(now[k]), strength))
            elif change[k] > 0:
                raised.add(sign.meaning)
        moves.sort(key=lambda move: -move.strength)
        return moves, frozenset(raised)

    def _began(self, past: PoolPast, samples: FloatArray, move: Move) -> float:
        """Return the time of the first sample of the window that is nearer to the new level."""
        values = samples[:, self.metrics.index(move.metric)]
        nearer = np.abs(values - move.now) < np.abs(values - move.before)
        return past.window[int(np.argmax(nearer))][0]

    def dump(self) -> dict[str, object]:
        """Return the state as JSON values."""
        return {
            "metrics": list(self.metrics),
            "pools": {
                name: {
                    "usual": _plain(past.usual),
                    "window": [[t, *_plain(x[None])[0]] for t, x in past.window],
                    "activity": list(past.activity),
                    "kind": past.kind,
                    "began": past.began,
                    "held_s": past.held_s,
                    "is_open": past.is_open,
                    "longest_s": past.longest_s,
                    "seen_at": past.seen_at,
                    "moves": [[m.metric, m.meaning, m.before, m.now, m.strength] for m in past.moves],
                }
                for name, past in self.pools.items()
            },
        }

    def load(self, state: object) -> None:
        """Take up an earlier state; what cannot be read is left out."""
        if not isinstance(state, Mapping):
            return
        try:
            self._take_up(state)
        except (KeyError, TypeError, ValueError):
            self.metrics, self.signs, self.pools = [], [], {}

    def _take_up(self, state: Mapping[str, object]) -> None:
        names, pools = state["metrics"], state["pools"]
        if not isinstance(names, list) or not isinstance(pools, Mapping):
            raise TypeError
        kept = [(k, str(name), sign) for k, name in enumerate(names) if (sign := sign_of(str(name)))]
        columns = [k for k, _, _ in kept]
        self.metrics, self.signs = [name for _, name, _ in kept], [sign for _, _, sign in kept]
        for name, saved in pools.items():
            usual = np.array(saved["usual"], dtype=np.float64).reshape(-1, len(names))[:, columns]
            past = PoolPast(usual=usual[-HISTORY_SAMPLES:])
            window = np.array(saved["window"], dtype=np.float64).reshape(-1, len(names) + 1)
            past.window.extend((float(row[0]), row[1:][columns]) for row in window)
            past.activity = [float(x) for x in saved["activity"]][-HISTORY_SAMPLES:]
            past.kind, past.began = str(saved["kind"]), float(saved["began"])
            past.held_s, past.is_open = float(saved["held_s"]), bool(saved["is_open"])
            past.longest_s, past.seen_at = float(saved["longest_s"]), float(saved.get("seen_at", NEVER))
            past.moves = tuple(
                Move(str(metric), str(meaning), *(float(x) for x in numbers))
                for metric, meaning, *numbers in saved["moves"]
            )
            self.pools[str(name)] = past


def _median(rows: FloatArray) -> FloatArray:
    """Median of each column over the rows that have it, NaN where none has."""
    ordered = np.sort(rows, axis=0)
    count = len(rows) - np.isnan(rows).sum(axis=0)
    columns = np.arange(rows.shape[1])
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, len(rows) - 1)
    return np.asarray((ordered[low, columns] + ordered[high, columns]) / 2.0)


def _centre(values: Sequence[float]) -> tuple[float, float]:
    """Return the usual value and its robust standard deviation; 0 of nothing.

    Both come from the shortest interval that holds `DENSEST` of all, so that phases may take up half of
    the time on one side without being met half-way.
    """
    if not values:
        return 0.0, 0.0
    ordered = np.sort(np.array(values))
    n = max(1, int(np.ceil(DENSEST * len(ordered))))
    widths = ordered[n - 1 :] - ordered[: len(ordered) - n + 1]
    first = int(np.argmin(widths))
    median = (ordered[first + (n - 1) // 2] + ordered[first + n // 2]) / 2.0
    return float(median), float(widths[first]) / DENSEST_TO_SIGMA


def _wider(rows: FloatArray, n: int) -> FloatArray:
    """Return rows with unknown values in the columns that they lack."""
    if rows.shape[1] == n:
        return rows
    return np.hstack([rows, np.full((len(rows), n - rows.shape[1]), np.nan)])


def _plain(rows: FloatArray) -> list[list[float | None]]:
    """Return rows as JSON values of six digits."""
    return [[float(f"{x:.6g}") if x == x else None for x in row] for row in rows.tolist()]

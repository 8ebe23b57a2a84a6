"""Faults in the history: what is labelled, what direct signals name, and what only few nodes ever do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detector.calibration.levels import CELL_LEVELS
from detector.calibration.tally import EVERY_NODE, Raised, Span, Watched
from detector.core.thresholds import SignalKey
from detector.source.incident_file import Recording

MARGIN_S = 1800.0
"""Seconds before and after a labelled fault that are left out too."""

RARE_SHARE = 0.05
"""A signal that only this share of the nodes (at least one) ever exceeded is no habit of the cluster."""

ODD_CONTINUITIES = 5.0
"""Signal-time over the threshold, in full continuities, from which rare deviations look like a fault."""

NAMED = 2


def labelled(recording: Recording) -> tuple[Span, ...]:
    """Return the times that a recording says were not healthy, or not to be judged."""
    spans = [
        Span(f.node, f.onset - MARGIN_S, f.end + MARGIN_S, f"labelled fault {f.kind}".strip())
        for f in recording.faults
    ]
    spans += [Span(m.node, m.onset, m.end, "masked") for m in recording.masked]
    spans += [
        Span(node, e.onset, e.end, f"labelled group event {e.kind}".strip())
        for e in recording.group_events
        for node in (e.nodes or (EVERY_NODE,))
    ]
    return tuple(spans)


@dataclass(slots=True)
class _Bout:
    """Episodes of one node that lie together."""

    node: str
    episodes: list[Raised]
    start: float
    end: float


def odd_spans(watched: Sequence[Watched], full_s: float) -> list[list[Span]]:
    """Find nodes that look faulty, for each stretch.

    Parameters
    ----------
    watched
        Stretches of history; nodes of the same name in different stretches are told apart.
    full_s
        Full continuity.

    Returns
    -------
    list of list of Span
        Times to leave out, for each stretch, in order of time.
    """
    plain = int(np.searchsorted(CELL_LEVELS, 1.0 - 1e-9))
    high = [[e for e in one.signals if e.level >= plain] for one in watched]
    exceeded: dict[SignalKey | None, set[tuple[int, str]]] = {}
    for number, episodes in enumerate(high):
        for e in episodes:
            exceeded.setdefault(e.key, set()).add((number, e.node))
    n_nodes = sum(len(one.node_s) for one in watched)
    few = max(1, int(RARE_SHARE * n_nodes))
    rare = {key for key, nodes in exceeded.items() if len(nodes) <= few}
    found = []
    for one, episodes in zip(watched, high, strict=True):
        spans = list(one.hard)
        for bout in _bouts(episodes, full_s):
            odd = [e for e in bout.episodes if e.key in rare]
            if sum(e.end - e.start for e in odd) >= ODD_CONTINUITIES * full_s:
                spans.append(Span(bout.node, bout.start - full_s, bout.end + full_s, _signals(odd)))
        found.append(sorted(spans, key=lambda s: (s.start, s.node)))
    return found


def _bouts(episodes: Sequence[Raised], full_s: float) -> list[_Bout]:
    bouts: list[_Bout] = []
    newest: dict[str, _Bout] = {}
    for e in sorted(episodes, key=lambda e: (e.start, e.node)):
        bout = newest.get(e.node)
        if bout is None or e.start - bout.end > 2 * full_s:
            bout = newest[e.node] = _Bout(e.node, [], e.start, e.end)
            bouts.append(bout)
        bout.episodes.append(e)
        bout.end = max(bout.end, e.end)
    return bouts


def _signals(episodes: Sequence[Raised]) -> str:
    lasted: Counter[str] = Counter()
    for e in episodes:
        if e.key is not None:
            lasted[e.key.metric] += round(e.end - e.start)
    named = [name for name, _ in lasted.most_common(NAMED)]
    more = len(lasted) - len(named)
    text = " and ".join(named) if not more else ", ".join(named) + f" and {more} more"
    return f"{text}: hardly any other node ever does that"

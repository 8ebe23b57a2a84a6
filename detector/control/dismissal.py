"""When a dismissed incident comes back: for evidence that was not there when it was dismissed.

Of comparisons the monitored target is remembered: a false alarm that spreads to more signals of the same
target is the same one. Of direct signals and absences the very signal is, with its code: another XID is news.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detector.outcome import Evidence, Layer

LASTS_S = 240.0
"""Evidence by comparison is news only when it has lasted this long."""

NEWS = 1.0
"""New evidence of this worth, on the scale of the node threshold, brings an incident back."""


def key_of(item: Evidence) -> str:
    """Return what is remembered of a piece of evidence."""
    if item.layer in (Layer.DIRECT, Layer.ABSENCE):
        # a rise goes on with ever higher sums, a state or a code is another one with another value
        code = "" if item.side or item.value is None else f"{item.value:g}"
        return "\x1f".join((item.layer.value, item.metric, item.part, code))
    return f"target\x1f{item.target}"


def keys_of(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """Return what is remembered of all evidence against a node, in order."""
    return tuple(sorted({key_of(item) for item in evidence}))


def news(told: Collection[str], evidence: Sequence[Evidence], at: float) -> str:
    """Return in words what new evidence brings a dismissed incident back, empty when none does.

    Parameters
    ----------
    told
        From `keys_of`, when it was dismissed.
    evidence
        Of the newest evaluation.
    at
        Its time, epoch seconds.
    """
    best: dict[str, Evidence] = {}
    for item in evidence:
        key = key_of(item)
        if key in told or (item.layer.is_soft and at - item.since < LASTS_S):
            continue
        if key not in best or item.score > best[key].score:
            best[key] = item
    if sum(item.score for item in best.values()) < NEWS:
        return ""
    first = max(best.values(), key=lambda item: item.score)
    where = f" on {first.part}" if first.part else ""
    return f"{first.metric}{where}: {first.reason}"

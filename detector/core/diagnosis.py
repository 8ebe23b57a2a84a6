"""What the evidence against one node looks like: likely fault class, its reasons, part and order.

Pure functions of ranked evidence. Nothing here decides whether a node is named, and nothing is
stated as certain: the class is ``likely`` or ``possible``, or the node is unclassified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from detector.core.fault_classes import (
    CONSEQUENCE,
    FAULT_CLASSES,
    LIKELY,
    NAMES_ITSELF,
    PATTERN,
    RULES,
    Rule,
)
from detector.core.fault_signs import SIGNS, Sign
from detector.core.fusion import TARGET_SHARE
from detector.core.pointers import POINTED_SCORE
from detector.core.xid_codes import XID_CODES
from detector.outcome import Diagnosis, Evidence, Layer

UNCLASSIFIED = "unclassified"

HARD_FROM = 0.5
"""Direct signals and absences from this score on speak for themselves."""

MOST_SHARE = 0.5
"""Share of a node's parts of one kind from which they deviate together."""

MOST_PARTS = 3
"""... and how many they must be at least."""

POSSIBLE_SHARE = 0.7
"""What a possible class explains counts this much against a likely one."""

FURTHER_SHARE = 0.15
"""What each further piece of evidence adds to what a class explains, as a share of its worth."""

ALSO_SHARE = 0.5
"""Other classes are told when they explain at least this share of what the given one does."""

MAX_ALSO = 2

MAX_REASONS = 5

ORDER_FROM = 1.0
"""Peer evidence below this score does not say when a target moved."""

MAX_ORDER = 4
"""Targets named in an order at most."""

REPORTING = "reporting"
"""What is said to have moved when series vanished."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Signs found in the evidence, each with the pieces that show it, strongest first."""

    by_sign: Mapping[str, tuple[Evidence, ...]]
    nfs_stage: str = ""

    def of(self, names: Sequence[str]) -> list[Evidence]:
        """Return the pieces that show any of the signs, each once."""
        found: dict[int, Evidence] = {}
        for name in names:
            for item in self.by_sign.get(name, ()):
                found.setdefault(id(item), item)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A class whose rule is met."""

    rule: Rule
    needed: tuple[str, ...]
    """Signs that met the rule."""
    tier: int
    explains: float


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A diagnosis, and the piece of evidence that shows it best."""

    diagnosis: Diagnosis
    first: Evidence | None = None


def is_hard(item: Evidence) -> bool:
    """Tell whether a piece of evidence speaks for itself."""
    return not item.layer.is_soft and item.score >= HARD_FROM


def worth(item: Evidence) -> float:
    """Return what a piece of evidence weighs, on the scale of the node threshold."""
    return TARGET_SHARE * item.score if item.layer.is_soft else item.score


def conclude(evidence: Sequence[Evidence], resolution_s: float) -> Diagnosed:
    """Say what the evidence against one node looks like.

    Parameters
    ----------
    evidence
        Ranked, strongest first; may be empty.
    resolution_s
        Differences of time below this cannot be told.
    """
    if not evidence:
        return Diagnosed(Diagnosis(UNCLASSIFIED, UNCLASSIFIED))
    order = order_of(evidence, resolution_s)
    found = find_signs(evidence)
    ranked = candidates(found)
    if not ranked:
        return _unclassified(evidence, order)
    best = ranked[0]
    known = FAULT_CLASSES[best.rule.fault_class]
    needed = sorted(found.of(best.needed), key=worth, reverse=True)
    part = _part_of(needed, found.of(best.rule.supports)) if known.has_part else ""
    first = next((item for item in needed if item.part == part and item.score > POINTED_SCORE), needed[0])
    also = [
        FAULT_CLASSES[other.rule.fault_class].title
        for other in ranked[1:]
        if other.tier < CONSEQUENCE and other.explains >= ALSO_SHARE * best.explains
    ]
    diagnosis = Diagnosis(
        fault_class=best.rule.fault_class,
        title=known.title,
        confidence=best.rule.confidence,
        reasons=_reasons(best, found),
        order=order,
        check=_xid_check(needed) or known.check,
        also=tuple(also[:MAX_ALSO]),
        part=part,
        weight=round(best.explains, 3),
    )
    return Diagnosed(diagnosis, first)


def is_better(new: Diagnosis, old: Diagnosis | None) -> bool:
    """Tell whether a newer diagnosis of one node is at least as well supported as the older one.

    Another class takes over only when it is nearer to the cause or likelier: what happens to the node
    later, while its incident is still open, is not its fault. The same class is told anew when more
    speaks for it.
    """
    if old is None or old.fault_class == UNCLASSIFIED:
        return True
    if new.fault_class != old.fault_class:
        return _nearness(new) > _nearness(old)
    return (_nearness(new), new.weight) > (_nearness(old), old.weight)


def _nearness(item: Diagnosis) -> tuple[int, bool]:
    known = FAULT_CLASSES.get(item.fault_class)
    return -(known.tier if known else CONSEQUENCE + 1), item.confidence == LIKELY


def find_signs(evidence: Sequence[Evidence]) -> Findings:
    """Find all signs that the evidence shows."""
    pieces: dict[str, list[Evidence]] = {}
    for item in evidence:
        for name in _signs_of_metric(item.metric):
            if _fits(SIGNS[name], item):
                pieces.setdefault(name, []).append(item)
    found = {
        name: tuple(items)
        for name, items in pieces.items()
        if not SIGNS[name].spread or SIGNS[name].spread == spread_of(items)
    }
    return Findings(found, nfs_stage(found))


def candidates(found: Findings) -> list[Candidate]:
    """Return the classes whose rules are met, best first, each once."""
    best: dict[str, Candidate] = {}
    for rule in RULES:
        met = _met(rule, found)
        if met is None:
            continue
        pieces, supports = found.of(met), found.of(rule.supports)
        tier = FAULT_CLASSES[rule.fault_class].tier
        if tier == NAMES_ITSELF and not any(is_hard(item) for item in pieces):
            tier = PATTERN
        weights = sorted((worth(item) for item in pieces), reverse=True)
        further = sum(weights[1:]) + sum(worth(item) for item in supports if item not in pieces)
        explains = weights[0] + FURTHER_SHARE * further
        if rule.confidence != LIKELY:
            explains *= POSSIBLE_SHARE
        made = Candidate(rule, met, tier, explains)
        known = best.get(rule.fault_class)
        if known is None or (made.tier, -made.explains) < (known.tier, -known.explains):
            best[rule.fault_class] = made
    return sorted(best.values(), key=lambda c: (c.tier, -c.explains, c.rule.fault_class))


def spread_of(items: Sequence[Evidence]) -> str:
    """Say whether the evidence is on ``most`` of a node's parts or on a ``few``; empty without parts."""
    parts = {part for item in items for part in item.parts} | {
        item.part for item in items if item.part and not item.parts
    }
    if not parts:
        return ""
    siblings = max(item.n_siblings for item in items)
    return "most" if len(parts) >= MOST_PARTS and len(parts) >= MOST_SHARE * siblings else "few"


def nfs_stage(found: Mapping[str, Sequence[Evidence]]) -> str:
    """Say where slow NFS requests spend their time: ``queue``, ``response`` (network and server) or empty.

    The excess over the peers decides, because a busy client queues more in healthy times too.
    """
    excess = {
        stage: sum(
            max(0.0, (item.value or 0.0) - (item.peer_median or 0.0))
            for item in found.get(f"nfs_{stage}_time", ())
        )
        for stage in ("queue", "response")
    }
    if not any(excess.values()):
        return ""
    return "queue" if excess["queue"] > excess["response"] else "response"


def order_of(evidence: Sequence[Evidence], resolution_s: float) -> str:
    """Say which monitored targets moved first, such as ``NFS moved 90 s before GPU``.

    Parameters
    ----------
    evidence
        In any order; weak pieces are passed over.
    resolution_s
        Targets less than this apart moved together.
    """
    began: dict[str, float] = {}
    for item in evidence:
        if not (is_hard(item) or (item.layer.is_soft and item.score >= ORDER_FROM)):
            continue
        name = REPORTING if item.layer is Layer.ABSENCE else item.target
        began[name] = min(began.get(name, item.since), item.since)
    if len(began) < 2:
        return ""
    ranked = sorted(began, key=lambda name: (began[name], name))
    start = began[ranked[0]]
    first = [name for name in ranked if began[name] - start < resolution_s]
    later = [name for name in ranked if name not in first]
    within = f"(within {resolution_s:.0f} s)"
    if not later:
        return f"{_listed(first)} moved together {within}"
    together = f" {within}" if len(first) > 1 else ""
    by_span: dict[str, list[str]] = {}
    for name in later[:MAX_ORDER]:
        by_span.setdefault(span_words(began[name] - start), []).append(name)
    after = ", ".join(f"{span} before {_listed(names)}" for span, names in by_span.items())
    return f"{_listed(first)}{together} moved {after}"


def _met(rule: Rule, found: Findings) -> tuple[str, ...] | None:
    """Return the signs that meet a rule, None when it is not met."""
    signs = found.by_sign
    if rule.nfs_stage and rule.nfs_stage != found.nfs_stage:
        return None
    if any(name in signs for name in rule.none_of) or any(name not in signs for name in rule.all_of):
        return None
    some = [name for name in rule.any_of if name in signs]
    if rule.any_of and len(some) < rule.at_least:
        return None
    return (*rule.all_of, *some)


@lru_cache(maxsize=8192)
def _signs_of_metric(metric: str) -> tuple[str, ...]:
    name = metric.casefold()
    return tuple(key for key, sign in SIGNS.items() if any(fnmatchcase(name, glob) for glob in sign.metrics))


def _fits(sign: Sign, item: Evidence) -> bool:
    layer = Layer.PEER if item.layer.is_soft else item.layer
    if layer is Layer.TREND and "steadily" not in item.reason:
        layer = Layer.DIRECT
    if layer != sign.layer and (sign.layer or layer is Layer.ABSENCE):
        return False
    if sign.side and _side(item) != sign.side:
        return False
    if sign.codes and (item.value is None or item.value not in sign.codes):
        return False
    if sign.part and not fnmatchcase(item.part, sign.part):
        return False
    if sign.reads and not fnmatchcase(item.reason, sign.reads):
        return False
    return all(item.labels.get(name) == value for name, value in sign.labels)


def _side(item: Evidence) -> str:
    """Return the side of a piece of evidence; a counter of errors that rose is above."""
    return item.side or ("above" if item.layer is Layer.DIRECT and item.reason.startswith("rose") else "")


def _part_of(needed: Sequence[Evidence], supporting: Sequence[Evidence]) -> str:
    """Return the part that the evidence for a class points to; hard evidence is asked first."""
    hard = [item for item in needed if not item.layer.is_soft and item.part]
    for items in (hard, needed, supporting):
        named = [item for item in items if item.part]
        if not named:
            continue
        if items is hard and spread_of(named) == "most":
            kind = named[0].part.split(" ")[0]
            return f"{len({item.part for item in named})} {'GPUs' if kind == 'gpu' else 'parts'}"
        votes: dict[str, float] = {}
        for item in named:
            votes[item.part] = votes.get(item.part, 0.0) + worth(item)
        return max(votes, key=lambda part: (votes[part], part))
    return ""


def _reasons(best: Candidate, found: Findings) -> tuple[str, ...]:
    told: list[str] = []
    used: set[int] = set()
    for name in (*best.needed, *best.rule.supports):
        for item in found.by_sign.get(name, ()):
            if id(item) in used or len(told) >= MAX_REASONS:
                continue
            used.add(id(item))
            told.append(_reason(SIGNS[name].says, item))
    if best.rule.nfs_stage:
        where = "the client's queue" if best.rule.nfs_stage == "queue" else "network and server"
        told.append(f"most of the time that is lost passes in {where}")
    return tuple(told)


def _reason(says: str, item: Evidence) -> str:
    where = f" on {item.part}" if item.part else ""
    code = _code_of(item)
    if code is not None:
        meaning = XID_CODES[code].meaning if code in XID_CODES else "a code without an entry"
        return f"XID {code}{where}: {meaning}"
    short = item.reason.split(" (n=")[0] if item.layer.is_soft else item.reason
    return f"{says}: {item.metric}{where}, {short}"


def _code_of(item: Evidence) -> int | None:
    is_xid = item.layer is Layer.DIRECT and "xid" in item.metric.casefold()
    return int(item.value) if is_xid and item.value is not None else None


def _xid_check(items: Sequence[Evidence]) -> str:
    for item in items:
        code = _code_of(item)
        if code is not None and code in XID_CODES:
            return XID_CODES[code].check
    return ""


def _unclassified(evidence: Sequence[Evidence], order: str) -> Diagnosed:
    first = evidence[0]
    codes = [item for item in evidence if _code_of(item) is not None]
    reasons = tuple(_reason("unlike its peers", item) for item in (codes or evidence)[:MAX_REASONS])
    check = _xid_check(codes) or "look at the evidence: it fits no known class of fault"
    title = f"{UNCLASSIFIED}: {first.target}"
    return Diagnosed(Diagnosis(UNCLASSIFIED, title, "", reasons, order, check, part=first.part), first)


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def span_words(seconds: float) -> str:
    """Put a span of time into words."""
    return f"{seconds:.0f} s" if seconds <= 180 else f"{seconds / 60:.0f} min"

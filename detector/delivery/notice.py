"""What is told of one suspect or one group event, whoever is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from detector.outcome import Evidence, GroupEvent, Incident, Verdict

SUSPECT, MOVED_TOGETHER, TOO_MANY = "suspect", "moved_together", "too_many_suspects"
"""Kinds of notices; events of a whole pool have their own kinds (``job_slower`` ...)."""

SHOWN_EVIDENCE, SHOWN_NODES, SHOWN_CHARS = 6, 50, 400


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One open suspect or group event.

    Parameters
    ----------
    key
        Stable identifier: that of the incident or the group event.
    kind
        ``suspect``, ``moved_together``, ``too_many_suspects`` or a kind of event of a whole pool.
    node, pool
        Names; `node` is empty for a group event.
    nodes
        Nodes of a group event, at most `SHOWN_NODES`; `n_nodes` counts all.
    n_nodes
        How many nodes it is about.
    opened_at
        Epoch seconds at which the suspect was named or the group event began.
    since
        Epoch seconds of the first sign.
    summary
        One sentence.
    reason
        Why, in one sentence.
    score, peak_score
        Fused evidence, now and at most; 1 is the threshold; 0 for a group event.
    part
        Part of the node that the evidence points to, empty for the node as a whole.
    evidence
        Reasons, strongest first.
    metrics
        Their metrics, in the same order.
    fault_class, title, confidence, check
        What the evidence looks like, how sure that is, and what to check first.
    cause
        What all nodes of a group event share.
    acknowledged
        True when somebody looks after it.
    """

    key: str
    kind: str
    node: str = ""
    pool: str = ""
    nodes: tuple[str, ...] = ()
    n_nodes: int = 0
    opened_at: float
    since: float
    summary: str
    reason: str = ""
    score: float = 0.0
    peak_score: float = 0.0
    part: str = ""
    evidence: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    fault_class: str = ""
    title: str = ""
    confidence: str = ""
    check: str = ""
    cause: str = ""
    acknowledged: bool = False

    @property
    def is_suspect(self) -> bool:
        """True for a suspect, False for a group event."""
        return self.kind == SUSPECT


def of_suspect(incident: Incident, verdict: Verdict | None, *, acknowledged: bool) -> Notice:
    """Return the notice of an open suspect.

    Parameters
    ----------
    incident
        In state ``suspect``.
    verdict
        Of its node at the newest evaluation; None when the node is silent.
    acknowledged
        Whether somebody looks after it.
    """
    found = incident.diagnosis
    evidence = _strongest(incident.evidence)
    where = f", part {incident.part}" if incident.part else ""
    looks = f"; looks like: {found.title}" if found is not None and found.confidence else ""
    because = evidence[0].reason if evidence else incident.reason
    return Notice(
        key=incident.id,
        kind=SUSPECT,
        node=incident.node,
        pool="" if verdict is None else verdict.pool,
        nodes=(incident.node,),
        n_nodes=1,
        opened_at=incident.active_at if incident.suspect_at is None else incident.suspect_at,
        since=incident.active_at,
        summary=clean(f"{incident.node}{where} deviates from its peers: {because}{looks}"),
        reason=clean(incident.reason),
        score=0.0 if verdict is None else round(verdict.score, 3),
        peak_score=round(incident.peak_score, 3),
        part=clean(incident.part),
        evidence=tuple(clean(item.reason) for item in evidence),
        metrics=tuple(item.metric for item in evidence),
        fault_class="" if found is None else found.fault_class,
        title="" if found is None else clean(found.title),
        confidence="" if found is None else found.confidence,
        check="" if found is None else clean(found.check),
        acknowledged=acknowledged,
    )


def of_group_event(event: GroupEvent) -> Notice:
    """Return the notice of an open group event."""
    return Notice(
        key=event.id,
        kind=event.kind or MOVED_TOGETHER,
        pool=event.pool,
        nodes=event.nodes[:SHOWN_NODES],
        n_nodes=len(event.nodes),
        opened_at=event.started_at,
        since=event.started_at,
        summary=clean(f"{event.pool}: {event.reason}"),
        reason=clean(event.reason),
        metrics=event.metrics,
        cause=clean(event.cause),
    )


def of_held(pool: str, held: Sequence[Notice], at: float, why: str) -> Notice:
    """Return the one notice that stands for suspects that are held back in a pool.

    Parameters
    ----------
    pool
        Their pool.
    held
        Their notices, at least one.
    at
        Epoch seconds at which holding began.
    why
        Which bound was passed.
    """
    nodes = tuple(sorted(notice.node for notice in held))
    first = min(held, key=lambda notice: notice.since)
    return Notice(
        key=f"held:{pool}@{int(at)}",
        kind=TOO_MANY,
        pool=pool,
        nodes=nodes[:SHOWN_NODES],
        n_nodes=len(nodes),
        opened_at=at,
        since=first.since,
        summary=clean(
            f"{pool}: {len(nodes)} nodes are suspect together and are told as one: {listed(nodes)}"
        ),
        reason=clean(why),
        evidence=tuple(clean(notice.summary) for notice in held[:SHOWN_EVIDENCE]),
        metrics=tuple(dict.fromkeys(metric for notice in held for metric in notice.metrics[:1])),
    )


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names in words, cut to a bound."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def clean(text: str) -> str:
    """Return text as one bounded line of valid UTF-8: names and labels come from outside."""
    line = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 3] + "..."


def verdicts_by_node(verdicts: Sequence[Verdict]) -> Mapping[str, Verdict]:
    """Return verdicts by the names of their nodes."""
    return {verdict.node: verdict for verdict in verdicts}


def _strongest(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return the strongest pieces, one per sentence."""
    by_reason = {item.reason: item for item in sorted(evidence, key=lambda item: item.score)}
    return sorted(by_reason.values(), key=lambda item: -item.score)[:SHOWN_EVIDENCE]

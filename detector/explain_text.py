"""An explanation in plain lines, to be read in a terminal at night or in a ticket in the morning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from detector.core.figure import figure
from detector.explanation import Answer, Basis, DirectSignal, Explanation, PastIncident
from detector.explanation_signals import Fate, HabitChange, PeerSignal
from detector.outcome import Status, Transition
from detector.plain_text import printable, utc_second

SELF_EVIDENT = frozenset({Fate.COUNTS, Fate.ORDINARY})
"""What became of these is told by their numbers."""


def lines(answer: Answer) -> list[str]:
    """Put an answer into plain lines; none holds a line break.

    Parameters
    ----------
    answer
        From a recording or from a service; texts in it may come from the monitored machines.
    """
    return [printable(line).rstrip() for line in _lines(answer)]


def _lines(answer: Answer) -> Iterator[str]:
    found = answer.explanation
    if found is not None:
        yield f"{found.node} at {utc_second(found.at)}: {found.status.upper()}"
        yield f"  {found.summary}"
        yield from (f"  {text}" for text in found.diagnosis)
        yield from _state(found)
        if answer.note:
            yield f"  {answer.note}"
        for part in (_decision, _direct, _absence, _peers, _doubts):
            yield ""
            yield from part(found)
    elif answer.basis is Basis.HISTORY:
        yield f"{answer.node} at {utc_second(answer.asked_at or 0.0)}: {_status_then(answer).upper()}"
        yield f"  {answer.note}"
        for incident in answer.incidents:
            yield ""
            yield from _incident(incident)
    yield from _transitions(answer.transitions)


def status_of(answer: Answer) -> str:
    """Return the node's status at the time that the answer is about; empty when nothing tells it."""
    return answer.explanation.status.value if answer.explanation is not None else _state_then(answer)


def _state_then(answer: Answer) -> str:
    """Return the state of the incident as of the time asked for, by its steps up to then."""
    if not answer.transitions or not answer.incidents:
        return ""
    newest = answer.transitions[-1]
    return newest.after if newest.after in (Status.SUSPECT, Status.PENDING) else ""


def _status_then(answer: Answer) -> str:
    return _state_then(answer) or "no incident"


def _clock(at: float | None) -> str:
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")


def _number(value: float | None) -> str:
    return "-" if value is None else figure(value)


def _state(found: Explanation) -> Iterator[str]:
    yield f"  {found.pool.text}"
    item = found.incident
    if item is not None:
        text = f"  incident {item.id}: first sign {_clock(item.active_at)}, named {_clock(item.suspect_at)}"
        yield f"{text}, cleared {_clock(item.cleared_at)}, highest score {item.peak_score:.2f}"


def _decision(found: Explanation) -> Iterator[str]:
    yield "DECISION                                    is    needs"
    for check in found.checks:
        unit = f" {check.unit}" if check.unit == "s" else ""
        value, needed = _number(round(check.value, 2)) + unit, _number(round(check.needed, 2)) + unit
        yield f"  {check.name:<36}{value:>8} {needed:>8}  {'yes' if check.passed else 'no':<4} {check.text}"


def _direct(found: Explanation) -> Iterator[str]:
    yield (
        f"DIRECT SIGNALS   {len(found.direct)} have something to tell, "
        f"{found.n_direct} error counters, codes and states are watched"
    )
    if found.direct:
        yield "  score  severity  since           signal"
    for item in found.direct:
        yield (
            f"  {item.score:>5.2f}  {item.severity:<8}  {_clock(item.since):<14}  "
            f"{_named(item.metric, item.labels, item.part)}: {_event(item)}; {item.why}"
        )


def _event(item: DirectSignal) -> str:
    if item.event_value is None:
        return f"stands at {_number(item.value)}" + (f" for {item.faulty_s:.0f} s" if item.faulty_s else "")
    text = f"event {_number(item.event_value)}"
    if item.n_events > 1:
        text += f" in {item.n_events} evaluations"
    return f"{text}, held until {_clock(item.expires_at)}"


def _absence(found: Explanation) -> Iterator[str]:
    gone = f"{len(found.absences)} count" if found.absences else "nothing is gone that counts"
    yield f"ABSENCE   {gone}"
    for item in found.absences:
        where = f" [{item.part}]" if item.part else ""
        yield f"  {item.score:>5.2f}  since {_clock(item.since)}  {item.metric}{where}: {item.reason}"
    for lack in found.missing:
        yield f"  {lack.exporter}: {lack.n_missing} of {lack.n_expected} expected signals: {lack.text}"


def _peers(found: Explanation) -> Iterator[str]:
    yield f"PEERS   {found.pool.n_peers} others in the pool, at least {found.pool.min_peers - 1} needed"
    fates = ", ".join(f"{n} {fate}" for fate, n in found.fates.items())
    yield f"  {sum(found.fates.values())} signals with a vote: {fates or 'none'}"
    if found.targets:
        parts = (f"{t.target} {t.instant:.2f}/{t.lasting:.2f}/{t.shifted:.2f}" for t in found.targets)
        yield f"  score of each target, now / by how long it lasted / by habit alone: {', '.join(parts)}"
    if not found.signals:
        return
    yield (
        "  score  beyond habit/needs      z   habit       value       peers       scale     n"
        "  lasted/needs  distance  moved/needs  weight   own  signal"
    )
    for item in found.signals:
        yield _row(item)
        if item.fate not in SELF_EVIDENT:
            yield f"         {item.fate.value}: {item.why}"
        if (
            item.change.fate not in SELF_EVIDENT
            and item.fate is not Fate.MOVED
            and item.change.shift is not None
        ):
            yield f"         its own habit, {item.change.fate.value}: {item.change.why}"


def _row(item: PeerSignal) -> str:
    beyond = f"{_short(item.deviation)}/{item.threshold:.3g}"
    lasted = f"{item.dwell_s:.0f}/{item.needed_s:.0f} s"
    alike = f" and {item.n_alike} alike" if item.n_alike else ""
    name = _named(item.metric, item.labels, item.part)
    return (
        f"  {item.score:>5.2f}  {beyond:>18}  {_short(item.z):>5}  {_short(item.offset):>6}"
        f"  {_number(item.value):>10}  {_number(item.peer_median):>10}  {_number(item.scale):>10}"
        f"  {item.n_peers:>4}  {lasted:>12}  {_number(_rounded(item.similarity)):>8}"
        f"  {_moved(item.change):>11}  {item.weight:>6.3g}  {_share(item.own):>4}"
        f"  {name} ({item.measure}){alike}"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _moved(change: HabitChange) -> str:
    return f"{_short(change.shift)}/{change.threshold:.3g}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}" if abs(value) < 1e4 else f"{value:+.1e}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _named(metric: str, labels: object, part: str) -> str:
    """Name a signal by its part, else by its labels."""
    if part:
        return f"{metric} [{part}]"
    shown = ", ".join(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, dict) else ""
    return f"{metric} [{shown}]" if shown else metric


def _doubts(found: Explanation) -> Iterator[str]:
    told = [f"not judged: {found.undetermined}"] if found.undetermined else []
    told += found.notes
    told += [
        f"group event of pool {e.pool} since {_clock(e.started_at)}: {e.reason}" for e in found.group_events
    ]
    told += [f"{f.kind}, since {_clock(f.since)}: {f.reason}" for f in found.data_quality]
    yield "IN DOUBT" if told else "IN DOUBT   nothing was missing or undetermined"
    for line in told:
        yield f"  {line}"


def _incident(item: PastIncident) -> Iterator[str]:
    part = f", {item.part}" if item.part else ""
    yield f"INCIDENT {item.id}{part}: highest score {item.peak_score:.2f}"
    named, cleared = _clock(item.suspect_at), _clock(item.cleared_at)
    yield f"  first sign {_clock(item.active_at)}, named {named}, cleared {cleared}"
    for text in item.evidence:
        yield f"  {text}"


def _transitions(steps: Sequence[Transition]) -> Iterator[str]:
    if steps:
        yield ""
        yield "STEPS UNTIL THEN"
    for step in steps:
        yield f"  {_clock(step.at)}  {step.before} -> {step.after}: {step.reason}"

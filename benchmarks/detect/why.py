"""One line for each missed fault and each false alarm: what was there to be seen."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.detect.bench import CaseResult


def why_lines(result: CaseResult, detector: str) -> Iterator[str]:
    """Yield a line per missed fault and per false alarm of one case."""
    score = result.scores[detector]
    reached = {one.node: one for one in result.reached}
    for fault in score.faults:
        if fault.delay_s is not None:
            continue
        f = fault.fault
        line = f"missed {result.case}: {f.kind}, {f.severity}, {f.visible or 'ungraded'}, {f.node}"
        line += f" {f.part}".rstrip() + (f", plainest in {f.visible_in}" if f.visible_in else "")
        one = reached.get(f.node)
        if one is not None:
            line += (
                f"; best score {one.score:.2f} after {one.after_s:.0f} s, pending for {one.pending_s:.0f} s"
                f" at most; saw {one.seen}; farthest {one.farthest or 'nothing'}"
            )
        yield f"{line}; {fault.why}"
    for alarm in score.false_alarms:
        e = alarm.episode
        after = e.raised_at - score.recording.start
        flag = e.flags[0]
        yield (
            f"false {result.case}: {e.node} {flag.part}".rstrip()
            + f" after {after:.0f} s, in {alarm.during}; saw {flag.why or flag.metric or 'no evidence'}"
        )


def seconds_line(results: list[CaseResult]) -> str:
    """Return the mean CPU seconds of a case by phase, over the cases that had it."""
    phases = sorted({phase for r in results for phase in r.seconds})
    parts = []
    for phase in phases:
        spent = [r.seconds[phase] for r in results if phase in r.seconds]
        parts.append(f"{phase} {sum(spent) / len(spent):.2f} (n={len(spent)})")
    return "CPU seconds per case: " + ", ".join(parts)

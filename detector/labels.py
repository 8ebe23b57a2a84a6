"""What operators said, as labels of a recording: the truth that evaluation reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


def description(
    labels: Sequence[Mapping[str, Any]],
    named: Sequence[Mapping[str, Any]],
    nodes: Sequence[str],
    start: float | None,
    end: float,
    step_s: float,
) -> dict[str, Any]:
    """Return labels as the description of a recording of that time.

    Parameters
    ----------
    labels
        Entries of ``/v1/feedback``.
    named
        Incidents that named a node; those without a label are masked: nobody knows what they were.
    nodes
        Names of all nodes.
    start, end
        Epoch seconds; None begins with the first incident.
    step_s
        Seconds between samples.
    """
    first = min((one["start"] for one in labels), default=end)
    first = min(first, min((one["active_at"] for one in named), default=end))
    begin = math.floor(first / step_s) * step_s if start is None else start

    def within(onset: float, until: float | None) -> dict[str, float]:
        onset = min(max(onset, begin), end)
        return {"onset": onset, "end": max(onset, min(end if until is None else until, end))}

    said = {one["incident_id"]: one for one in labels}
    faults = [
        {
            "node": one["node"],
            "kind": one["fault_class"] or "unclassified",
            **within(one["start"], one["end"]),
            "part": one["part"],
        }
        for one in labels
        if one["verdict"] == "fault"
    ]
    benign = [
        {
            "node": one["node"],
            "kind": "false_alarm",
            **within(one["start"], one["end"] if one["lifted_at"] is None else one["lifted_at"]),
            "note": one["note"],
        }
        for one in labels
        if one["verdict"] == "false_alarm"
    ]
    masked = [
        {"node": one["node"], **within(one["active_at"], one["cleared_at"])}
        for one in named
        if one["id"] not in said
    ]
    # what a dismissed incident came back for is not known to be false
    masked += [
        {"node": one["node"], **within(one["lifted_at"], one["end"])}
        for one in labels
        if one["verdict"] == "false_alarm" and one["lifted_at"] is not None
    ]
    return {
        "id": f"feedback-{datetime.fromtimestamp(end, UTC).strftime('%Y-%m-%d')}",
        "start": begin,
        "end": max(begin, end),
        "step_s": step_s,
        "pool": sorted(nodes),
        "healthy": not faults and not masked,
        "faults": faults,
        "masked": masked,
        "benign": benign,
        "provenance": {"source": "operators of a running service", "made": "recorded"},
    }

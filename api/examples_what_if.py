"""Examples of trying settings."""

from __future__ import annotations

from typing import Any

ALARM: dict[str, Any] = {
    "what": "suspect",
    "name": "gpu068",
    "part": "gpu 3",
    "first_sign_at": 1767000210.0,
    "named_at": 1767000300.0,
    "cleared_at": None,
    "score": 7.3,
    "reason": "NVLink fault: XID 149 appeared (critical)",
}

WHAT_IF_IN: dict[str, Any] = {"changes": {"detection.z_threshold": 20.0}, "hours": 1.0}

SETTING: dict[str, Any] = {
    "name": "detection.z_threshold",
    "value": 5.0,
    "least": 0.5,
    "most": 1000.0,
    "unit": "robust deviations",
    "is_whole": False,
    "text": "higher: fewer alarms, weak faults missed",
}

RUN: dict[str, Any] = {
    "number": 1,
    "state": "done",
    "by": "kim",
    "start": 1766998500.0,
    "end": 1767002100.0,
    "changes": {"detection.z_threshold": 20.0},
    "advice": ["detection:", "  z_threshold: 20"],
    "progress": 1.0,
    "took_s": 41.7,
    "problem": "",
    "comparison": {
        "start": 1766998500.0,
        "end": 1767002100.0,
        "step_s": 30.0,
        "n_evaluations": 120,
        "n_verdicts": 7200,
        "n_nodes": 60,
        "n_series": 28735,
        "before": {"n_suspects": 1, "n_group_events": 0, "undetermined": 0},
        "after": {"n_suspects": 1, "n_group_events": 0, "undetermined": 0},
        "differences": [
            {
                "kind": "later",
                "before": ALARM,
                "after": {**ALARM, "named_at": 1767000360.0},
                "text": "would be named 60 s later, at 2025-12-29 09:26:00 UTC instead of "
                "2025-12-29 09:25:00 UTC",
            }
        ],
        "n_left_out": 0,
        "notes": [],
    },
}

WHAT_IF: dict[str, Any] = {
    "at": 1767002100.0,
    "data_age_s": 31.2,
    "is_partial": False,
    "is_on": True,
    "max_hours": 6.0,
    "settings": [SETTING],
    "run": RUN,
    "n_named": 1,
}

STARTED: dict[str, Any] = {
    **WHAT_IF,
    "run": {**RUN, "state": "running", "progress": 0.0, "took_s": 0.0, "comparison": None},
    "n_named": None,
}

CANCELLED: dict[str, Any] = {
    **WHAT_IF,
    "run": {**RUN, "state": "cancelled", "progress": 0.4, "took_s": 12.0, "comparison": None},
    "n_named": None,
}

"""Examples of what operators send and get back."""

from __future__ import annotations

from typing import Any

Example = dict[str, Any]

NOTE_IN: Example = {"by": "kim", "note": "RMA opened, node is drained"}
DISMISS_IN: Example = {"by": "kim", "reason": "checkpoint writer, expected"}
MUTE_IN: Example = {"node": "gpu068", "for_s": 7200.0, "reason": "swapping GPU 3", "by": "kim"}
EXPORT_IN: Example = {"by": "kim", "note": "for the vendor", "before_s": 1800.0, "after_s": 300.0}
_MUTE: Example = {
    "id": "m-4f1c2a9b7d30",
    "state": "active",
    "node": "gpu068",
    "pool": "",
    "metric": "",
    "apart": False,
    "start": 1767225600.0,
    "until": 1767232800.0,
    "reason": "swapping GPU 3",
    "note": "",
    "by": "kim",
    "made_at": 1767225600.0,
    "ended_at": None,
    "ended_by": "",
}
MUTE: Example = {"mute": _MUTE}
MUTES: Example = {"at": 1767225660.0, "total": 1, "limit": 100, "offset": 0, "mutes": [_MUTE]}
ENDED: Example = {"mute": {**_MUTE, "state": "over", "ended_at": 1767226000.0, "ended_by": "kim"}}
_FALSE_ALARM: Example = {
    "incident_id": "gpu068@1767225240",
    "node": "gpu068",
    "start": 1767225240.0,
    "end": None,
    "verdict": "false_alarm",
    "by": "kim",
    "note": "checkpoint writer, expected",
    "at": 1767225660.0,
    "part": "gpu 3",
    "fault_class": "nvlink",
    "lifted_at": None,
    "lifted_for": "",
}
DISMISSED: Example = {"feedback": _FALSE_ALARM}
ACKNOWLEDGED: Example = {
    "feedback": {**_FALSE_ALARM, "verdict": "fault", "note": "RMA opened, node is drained"}
}
FEEDBACK: Example = {"total": 1, "limit": 100, "offset": 0, "feedback": [_FALSE_ALARM]}
REPAIRED: Example = {"node": "gpu068", "at": 1767229200.0, "cleared": "gpu068@1767225240"}
AUDIT: Example = {
    "total": 1,
    "limit": 100,
    "offset": 0,
    "entries": [
        {
            "number": 1,
            "at": 1767225660.0,
            "by": "kim",
            "action": "dismiss",
            "subject": "incident gpu068@1767225240",
            "note": "checkpoint writer, expected",
        }
    ],
}

"""Examples of every answer, shown in the OpenAPI description and checked against the schemas by a test."""

from __future__ import annotations

from typing import Any

Example = dict[str, Any]

_TIMED: Example = {"at": 1767225600.0, "data_age_s": 31.2, "is_partial": False}
_EVIDENCE: Example = {
    "metric": "backendai_async_task_count",
    "labels": {"instance": "gpu068:6001"},
    "part": "",
    "layer": "peer",
    "reason": "869 where peers have 47: 44 to 50 is ordinary",
    "score": 3.0,
    "value": 869.0,
    "peer_median": 47.0,
    "band": [44.0, 50.0],
    "since": 1767225240.0,
    "n_peers": 59,
    "target": "Scheduler",
    "side": "above",
    "parts": [],
    "n_siblings": 1,
    "with_pool": False,
}
_DIAGNOSIS: Example = {
    "class": "nvlink",
    "title": "NVLink of one GPU",
    "part": "gpu 3",
    "confidence": "likely",
    "reasons": ["XID 149 on gpu 3: NVLink network unit NETIR, in most forms a lost link"],
    "order": "GPU moved 90 s before Scheduler",
    "check": "read the sub-code in the kernel log and check the fabric manager, then reset the GPU",
    "also": [],
    "role": "",
    "role_reason": "",
}
_INCIDENT: Example = {
    "id": "gpu068@1767225240",
    "node": "gpu068",
    "state": "suspect",
    "active_at": 1767225240.0,
    "suspect_at": 1767225480.0,
    "cleared_at": None,
    "last_evidence_at": 1767225600.0,
    "healthy_s": 0.0,
    "peak_score": 2.4,
    "part": "gpu 3",
    "reason": "XID 149 on gpu 3, and async tasks unlike its peers'",
    "diagnosis": _DIAGNOSIS,
    "evidence": [_EVIDENCE],
    "acknowledged": {"by": "kim", "at": 1767225590.0, "note": "RMA opened, node is drained"},
    "dismissed": None,
}
_MUTED: Example = {
    "id": "m-4f1c2a9b7d30",
    "until": 1767232800.0,
    "reason": "swapping GPU 3",
    "by": "kim",
}
_NODE: Example = {
    "node": "gpu068",
    "pool": "busy",
    "status": "suspect",
    "score": 2.4,
    "part": "gpu 3",
    "since": 1767225240.0,
    "reason": "XID 149 on gpu 3, and async tasks unlike its peers'",
    "diagnosis": _DIAGNOSIS,
    "acknowledged": _INCIDENT["acknowledged"],
    "dismissed": None,
    "muted": _MUTED,
}
_QUALITY: Example = {
    "kind": "exporter_down",
    "node": "gpu012",
    "since": 1767225000.0,
    "reason": "dcgm-exporter of gpu012 is silent while all-smi still reports its GPUs",
}

SUSPECTS: Example = {
    **_TIMED,
    "suspects": [
        {
            "node": "gpu068",
            "score": 2.4,
            "since": 1767225240.0,
            "suspect_since": 1767225480.0,
            "part": "gpu 3",
            "reason": "XID 149 on gpu 3, and async tasks unlike its peers'",
            "pool": "busy",
            "incident_id": "gpu068@1767225240",
            "diagnosis": _DIAGNOSIS,
            "evidence": [_EVIDENCE],
            "acknowledged": _INCIDENT["acknowledged"],
            "muted": _MUTED,
        }
    ],
    "n_nodes": 63,
    "undetermined": {"no data": 1},
}
INCIDENTS: Example = {**_TIMED, "total": 1, "limit": 100, "offset": 0, "incidents": [_INCIDENT]}
INCIDENT: Example = {
    **_TIMED,
    "incident": _INCIDENT,
    "transitions": [
        {
            "incident_id": "gpu068@1767225240",
            "node": "gpu068",
            "at": 1767225480.0,
            "before": "pending",
            "after": "suspect",
            "reason": "XID 149 on gpu 3, and async tasks unlike its peers'",
        }
    ],
}
NODES: Example = {**_TIMED, "total": 63, "limit": 1, "offset": 0, "nodes": [_NODE]}
NODE: Example = {
    **_TIMED,
    "node": _NODE,
    "evidence": [_EVIDENCE],
    "incidents": [_INCIDENT],
    "data_quality": [_QUALITY],
}
GROUPS: Example = {
    **_TIMED,
    "total": 1,
    "limit": 100,
    "offset": 0,
    "groups": [
        {
            "pool": "busy",
            "unit": "gpu",
            "n_nodes": 60,
            "n_members": 480,
            "n_signals": 18,
            "undetermined": "",
        }
    ],
    "group_events": [
        {
            "id": "busy@1767221000",
            "pool": "busy",
            "started_at": 1767221000.0,
            "ended_at": 1767221900.0,
            "nodes": ["gpu001", "gpu002"],
            "metrics": ["DCGM_FI_DEV_GPU_UTIL"],
            "reason": "58 of 60 nodes moved together: nobody is to blame; "
            "shared: the whole pool: 58 of 60 nodes",
            "cause": "the whole pool: 58 of 60 nodes",
            "kind": "",
        }
    ],
    "data_quality": [_QUALITY],
}
SERIES: Example = {
    **_TIMED,
    "every_s": 30.0,
    "note": "",
    "series": [
        {
            "metric": "DCGM_FI_DEV_GPU_TEMP",
            "node": "gpu068",
            "part": "gpu 3",
            "labels": {"gpu": "3"},
            "times": [1767225570.0, 1767225600.0],
            "value": [82.0, None],
            "median": [61.0, 61.0],
            "low": [57.0, 57.0],
            "high": [65.0, 65.0],
            "lower_quartile": [60.2, 60.3],
            "upper_quartile": [61.8, 61.9],
            "above": [68.5, 68.5],
            "below": [None, None],
            "usual": [61.4, 61.4],
            "habit": 0.3,
            "n_peers": 479,
            "scope": "all",
            "has_slots": True,
            "peers": [{"node": "gpu011", "part": "gpu 5", "value": [60.0, 61.0]}],
        }
    ],
}
NEIGHBOURS: Example = {
    **_TIMED,
    "node": "gpu068",
    "shared": [
        {
            "label": "export",
            "value": "/data",
            "n_nodes": 3,
            "nodes": [{"node": "gpu011", "status": "pending"}, {"node": "gpu002", "status": "clear"}],
        }
    ],
}
HEALTH: Example = {"status": "ok"}
READY: Example = {"status": "ready", "reasons": [], "notes": []}
NOT_READY: Example = {
    "status": "not ready",
    "reasons": ["no evaluation for 312 s: http://vm:8428/api/v1/export answered 503"],
    "notes": [],
}
ROOT: Example = {"name": "oddnode", "links": {"suspects": "/v1/suspects", "ready": "/readyz"}}
METRICS = "# HELP oddnode_ticks_total Ticks that ended with an evaluation.\noddnode_ticks_total 120.0\n"


def error(code: str, message: str) -> Example:
    """Return an example of an error."""
    return {"error": {"code": code, "message": message}}

"""What a webhook is sent, in our own form and in those of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from detector.delivery.ledger import CLEARED, RAISED, Message
from detector.delivery.links import link_of, rfc3339
from detector.delivery.notice import Notice
from detector.settings_delivery import DeliverySettings

VERSION = 1
"""Of our own form: raised when a field changes its meaning or goes."""

CONDITION = "OddnodeSuspect"
MAX_KUBERNETES_CHARS = 1000
_SLURM_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_KUBERNETES_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PART = re.compile(r"([a-z][a-z_]*) (\S+)")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,:;/()%+_-]")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, but for address and credentials.

    Parameters
    ----------
    body
        What is sent.
    headers
        Its type among others.
    method, suffix
        How, and what follows the configured address.
    taken
        Statuses beside 2xx that mean that it was taken.
    """

    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    suffix: str = ""
    taken: frozenset[int] = field(default_factory=frozenset)


Form = Callable[[Message, DeliverySettings], Request | None]


def own_json(message: Message, settings: DeliverySettings) -> Request:
    """Return a message in our own form."""
    return _json(plain(message, settings))


def plain(message: Message, settings: DeliverySettings) -> dict[str, Any]:
    """Return a message in our own form as plain values."""
    return {
        "version": VERSION,
        "id": message.id,
        "event": message.event,
        "at": message.at,
        "cluster": settings.cluster or "",
        "labels": settings.labels,
        "link": link_of(message.notice, settings),
        "why": message.why,
        "about": msgspec.to_builtins(message.notice),
    }


def drain_line(notice: Notice) -> str | None:
    """Return the line that drains a node in Slurm, None when its name is none that Slurm takes.

    It is written, never executed. Name and reason come from outside and may be pasted into a shell:
    nothing but plain characters is left of them.
    """
    node = _bare(notice.node)
    if not _SLURM_NODE.fullmatch(node):
        return None
    reason = " ".join(_NOT_PLAIN.sub(" ", f"oddnode: {notice.summary}").split())[:200]
    return f'scontrol update nodename={node} state=drain reason="{reason}"'


def slurm(message: Message, settings: DeliverySettings) -> Request | None:
    """Return a drain line for a suspect that was raised; nothing for all else: who drains also resumes."""
    if message.event != RAISED or (line := drain_line(message.notice)) is None:
        return None
    return Request(f"{line}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"})


def nvsentinel(message: Message, settings: DeliverySettings) -> Request | None:
    """Return NVSentinel's ``HealthEvents`` in the JSON form of protobuf; nothing for a group event."""
    notice = message.notice
    if not notice.is_suspect:
        return None
    is_healthy = message.event != RAISED
    kind, value = _entity(notice)
    event = {
        "version": 1,
        "agent": "oddnode",
        "componentClass": kind,
        "checkName": CONDITION,
        "isFatal": False,
        "isHealthy": is_healthy,
        "message": message.why if is_healthy else notice.summary,
        "recommendedAction": "NONE" if is_healthy else "UNKNOWN",
        "errorCode": [],
        "entitiesImpacted": [{"entityType": kind, "entityValue": value}],
        "metadata": {
            "incident": notice.key,
            "fault_class": notice.fault_class,
            "check": notice.check,
            "score": f"{notice.score:g}",
            "link": link_of(notice, settings),
        },
        "generatedTimestamp": rfc3339(message.at),
        "nodeName": _bare(notice.node),
        "processingStrategy": "STORE_ONLY",
    }
    return _json({"version": 1, "events": [event]})


def kubernetes_condition(message: Message, settings: DeliverySettings) -> Request | None:
    """Return the change of a condition of a Kubernetes Node; nothing for a group event."""
    notice, node = message.notice, _bare(message.notice.node)
    if not notice.is_suspect or not _KUBERNETES_NODE.fullmatch(node):
        return None
    is_raised = message.event == RAISED
    condition = {
        "type": CONDITION,
        "status": "True" if is_raised else "False",
        "reason": "DeviatesFromPeers" if is_raised else _reason(message.event),
        "message": (notice.summary if is_raised else message.why)[:MAX_KUBERNETES_CHARS],
        "lastHeartbeatTime": _seconds(message.at),
        "lastTransitionTime": _seconds(message.at),
    }
    made = _json({"status": {"conditions": [condition]}})
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    return Request(made.body, headers, "PATCH", f"/api/v1/nodes/{node}/status")


def kubernetes_event(message: Message, settings: DeliverySettings) -> Request | None:
    """Return an Event about a Kubernetes Node; nothing for a group event."""
    notice, node = message.notice, _bare(message.notice.node)
    if not notice.is_suspect or not _KUBERNETES_NODE.fullmatch(node):
        return None
    is_raised = message.event == RAISED
    at = _seconds(message.at)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        # the same name for the same message: sent twice it exists already
        "metadata": {
            "name": f"{node[:200]}.{sha256(message.id.encode()).hexdigest()[:16]}",
            "namespace": "default",
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "reason": CONDITION if is_raised else f"{CONDITION}{_reason(message.event)}",
        "message": (notice.summary if is_raised else message.why)[:MAX_KUBERNETES_CHARS],
        "type": "Warning" if is_raised else "Normal",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": "oddnode"},
        "reportingComponent": "oddnode",
        "reportingInstance": settings.cluster or "oddnode",
    }
    made = _json(event)
    suffix = "/api/v1/namespaces/default/events"
    return Request(made.body, made.headers, "POST", suffix, frozenset({409}))


FORMS: Mapping[str, Form] = {
    "json": own_json,
    "slurm": slurm,
    "nvsentinel": nvsentinel,
    "kubernetes_condition": kubernetes_condition,
    "kubernetes_event": kubernetes_event,
}
"""What can be sent, by the name in ``format``."""


def _json(values: Mapping[str, Any]) -> Request:
    return Request(msgspec.json.encode(values), {"Content-Type": "application/json"})


def _bare(node: str) -> str:
    """Return the name that the node has in its own cluster."""
    return node.rpartition("/")[2]


def _entity(notice: Notice) -> tuple[str, str]:
    """Return kind and name of what is affected: a part, else the node."""
    named = _PART.fullmatch(notice.part)
    if named is None:
        return "node", _bare(notice.node)
    return ("GPU" if named[1] == "gpu" else named[1]), named[2]


def _reason(event: str) -> str:
    return "Cleared" if event == CLEARED else "Withdrawn"


def _seconds(at: float) -> str:
    """Return a time as Kubernetes writes it: whole seconds."""
    return rfc3339(float(int(at))).replace(".000Z", "Z")

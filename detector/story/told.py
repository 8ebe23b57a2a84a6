"""What a service told of an incident: the file beside an exported case, and the answers of the interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from detector.case_archive import STORY_NAME
from detector.control.model import AuditEntry
from detector.outcome import Incident, Transition
from detector.story.model import StoryError

MAX_BYTES = 16 << 20


class Told(msgspec.Struct, frozen=True):
    """An incident as a service knew it.

    Parameters
    ----------
    incident
        The incident.
    transitions, actions
        Its steps, and what operators did about it, oldest first.
    version, catalog_sha256
        What judged; empty when it is not known.
    """

    incident: Incident
    transitions: list[Transition] = []
    actions: list[AuditEntry] = []
    version: str = ""
    catalog_sha256: str = ""


def told_beside(folder: Path) -> Told | None:
    """Return what lies beside an exported case, None for a recording that a service did not export.

    Raises
    ------
    StoryError
        When it cannot be used; names the file.
    """
    file = folder / STORY_NAME
    try:
        if not file.exists():
            return None
        if file.stat().st_size > MAX_BYTES:
            raise StoryError(f"{file}: larger than {MAX_BYTES} bytes")
        return msgspec.json.decode(file.read_bytes(), type=Told)
    except OSError as error:
        raise StoryError(f"{file}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoryError(f"{file}: is not what an export writes: {error}") from None


def told_by_service(answer: Mapping[str, Any], trail: list[Mapping[str, Any]], version: str) -> Told:
    """Return what the interface answers of an incident.

    Parameters
    ----------
    answer
        Of ``GET /v1/incidents/{incident_id}``.
    trail
        Entries of ``GET /v1/audit`` that concern it, oldest first.
    version
        Of the service.

    Raises
    ------
    StoryError
        When it is not such an answer.
    """
    try:
        plain = dict(answer["incident"])
        diagnosis = plain.get("diagnosis")
        if diagnosis is not None:
            plain["diagnosis"] = {**diagnosis, "fault_class": diagnosis["class"]}
        plain["peak_score"] = plain.get("peak_score") or 0.0
        incident = msgspec.convert(plain, Incident)
        steps = msgspec.convert(answer["transitions"], list[Transition])
        return Told(incident, steps, msgspec.convert(trail, list[AuditEntry]), version)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise StoryError(f"the answer is not that of an Oddnode service: {error}") from None

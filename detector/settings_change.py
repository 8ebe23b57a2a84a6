"""What a changed settings file changes under a running service, and what waits for a restart."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from detector.settings import Settings

AT_ONCE = frozenset(
    {
        "catalog",
        "identity",
        "placement",
        "pools",
        "detection",
        "budget",
        "calibration",
        "auth",
        "log",
        "delivery",
        "what_if",
    }
)
"""Sections that are taken over while the service runs; all others need a restart."""

JUDGING = frozenset({"catalog", "identity", "placement", "pools", "detection", "budget", "calibration"})
"""Sections that decide how samples are judged."""


def applicable(in_effect: Settings, wanted: Settings) -> Settings:
    """Return `wanted` without what needs a restart."""
    sections = {name: getattr(wanted, name) for name in AT_ONCE}
    # the step has one home, and that one needs a restart
    sections["detection"] = replace(wanted.detection, step_s=in_effect.schedule.step_s)
    return in_effect.model_copy(update=sections)


def differences(before: Settings, after: Settings) -> tuple[str, ...]:
    """Return names of settings that differ, such as ``http.port``; no values, as they may be secret."""
    return tuple(
        f"{section}.{name}"
        for section in sorted(Settings.model_fields)
        for name in _names(getattr(before, section))
        if (section, name) != ("detection", "step_s")  # told as schedule.step_s
        and getattr(getattr(before, section), name) != getattr(getattr(after, section), name)
    )


def files_of(settings: Settings) -> tuple[Path, ...]:
    """Return files that settings name and that are read together with them."""
    named = (settings.catalog.path, *settings.catalog.overlays, settings.calibration.path)
    return tuple(path for path in named if path is not None)


def _names(section: Any) -> list[str]:
    if isinstance(section, BaseModel):
        return list(type(section).model_fields)
    assert is_dataclass(section)  # noqa: S101 (narrowing: a section is one of the two)
    return [field.name for field in fields(section)]

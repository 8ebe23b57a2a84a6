"""Settings that can be tried, with their ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from detector.control.problems import NotValidError
from detector.explanation import near
from detector.settings import Settings
from detector.settings_detection import check_parameters

BUDGET = "budget.false_alarms_per_month"
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting that can be tried.

    Parameters
    ----------
    name
        Section and key.
    least, most
        Range; both included.
    unit
        Unit of measure, empty for a plain number.
    text
        What turning it up does, in a few words.
    is_whole
        True when it is a whole number.
    """

    name: str
    least: float
    most: float
    unit: str
    text: str
    is_whole: bool = False

    def value(self, settings: Settings) -> float:
        """Return the value in effect."""
        section, _, key = self.name.partition(".")
        return float(getattr(getattr(settings, section), key))


KNOBS = (
    Knob("detection.z_threshold", 0.5, 1000, "robust deviations", "higher: fewer alarms, weak faults missed"),
    Knob("detection.continuity_s", 0, DAY_S, "s", "longer: later and fewer alarms"),
    Knob("detection.continuity_samples", 1, 1000, "steps", "the same as a number of steps", is_whole=True),
    Knob("detection.clear_after_s", 0, DAY_S, "s", "longer: suspects stay named, fewer repeated alarms"),
    Knob("detection.absence_after_s", 0, DAY_S, "s", "longer: series may be gone for longer"),
    Knob("detection.direct_hold_s", 0, DAY_S, "s", "longer: errors stay evidence for longer"),
    Knob("detection.habit_s", 60, 30 * DAY_S, "s", "longer: habits are learnt more slowly"),
    Knob("detection.stale_after_steps", 1, 1000, "steps", "higher: late samples still count"),
    Knob("detection.min_peers", 3, 100_000, "members", "higher: small groups are not judged", is_whole=True),
    Knob("detection.group_event_share", 0.01, 1, "share", "higher: more blame on nodes, fewer group events"),
    Knob("detection.group_event_min_nodes", 1, 100_000, "nodes", "higher: fewer group events", is_whole=True),
    Knob(BUDGET, 0.01, 1000, "per month", "higher: lower thresholds, learnt for it from the same hours"),
)
_BY_NAME = {knob.name: knob for knob in KNOBS}


def changed(settings: Settings, changes: Mapping[str, float]) -> Settings:
    """Return the settings with some of them turned.

    Parameters
    ----------
    settings
        In effect.
    changes
        Values by name, such as ``detection.z_threshold``.

    Raises
    ------
    NotValidError
        When one is unknown, no number, out of range, or none differs; names it.
    """
    sections: dict[str, dict[str, float]] = {}
    for name, value in changes.items():
        knob = _BY_NAME.get(name)
        if knob is None:
            raise NotValidError(
                f"{name[:100]!r} is no setting that can be tried{near(name, sorted(_BY_NAME))}"
            )
        if not math.isfinite(value) or not knob.least <= value <= knob.most:
            raise NotValidError(f"{name}: must be from {knob.least:g} to {knob.most:g}, not {value:g}")
        if knob.is_whole and value != int(value):
            raise NotValidError(f"{name}: must be a whole number, not {value:g}")
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = int(value) if knob.is_whole else float(value)
    if all(_BY_NAME[name].value(settings) == value for name, value in changes.items()):
        raise NotValidError("nothing is changed: give at least one value that differs from the one in effect")
    detection = replace(settings.detection, **sections.get("detection", {}))  # type: ignore[arg-type]
    try:
        check_parameters(detection)
    except ValueError as error:
        raise NotValidError(str(error)) from None
    budget = settings.budget.model_copy(update=sections.get("budget", {}))
    return settings.model_copy(update={"detection": detection, "budget": budget})


def advice(changes: Mapping[str, float]) -> tuple[str, ...]:
    """Return the lines of a settings file that would keep the changes."""
    lines: list[str] = []
    section = ""
    for name, value in sorted(changes.items()):
        here, _, key = name.partition(".")
        if here != section:
            section = here
            lines.append(f"{section}:")
        lines.append(f"  {key}: {int(value) if value == int(value) else value}")
    return tuple(lines)

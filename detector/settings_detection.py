"""Ranges of the knobs of detection."""

from __future__ import annotations

from detector.core.parameters import Parameters

_AT_LEAST = {
    "continuity_s": 0.0,
    "continuity_samples": 1,
    "clear_after_s": 0.0,
    "stale_after_steps": 1.0,
    "absence_after_s": 0.0,
    "min_peers": 3,
    "group_event_min_nodes": 1,
    "direct_hold_s": 0.0,
}
_MORE_THAN = {"z_threshold": 0.0, "group_event_share": 0.0, "habit_s": 0.0}


def check_parameters(parameters: Parameters) -> None:
    """Check the ranges of the knobs of detection.

    Raises
    ------
    ValueError
        Names the setting and its bound.
    """
    for name, least in _AT_LEAST.items():
        if not least <= getattr(parameters, name) < float("inf"):
            raise ValueError(f"detection.{name} must be at least {least:g}")
    for name, bound in _MORE_THAN.items():
        if not bound < getattr(parameters, name) < float("inf"):
            raise ValueError(f"detection.{name} must be more than {bound:g}")
    if parameters.group_event_share > 1:
        raise ValueError("detection.group_event_share must be at most 1")

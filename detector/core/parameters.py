"""The knobs of detection, with their defaults and what turning them does."""

from __future__ import annotations

from dataclasses import dataclass

LAYERS = (
    "direct",
    "absence",
    "peer",
    "habit",
    "trend",
    "standing",
    "independence",
    "one by one",
    "recurrence",
)
"""Layers of evidence, and the mechanisms by which one cause counts once and what befalls several nodes at one
moment not at all; see `Parameters.layers`."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Settings of the detection core; times in seconds.

    Parameters
    ----------
    step_s
        Distance between evaluations and the expected scrape interval.
    continuity_s
        How long peer evidence must last before a node is a suspect.
    continuity_samples
        ... and in how many samples it must have been seen (matters when the step is minutes).
    clear_after_s
        Healthy data, in seconds, that clears a suspect.
    stale_after_steps
        A sample older than this many steps is missing.
    absence_after_s
        How long series must be gone, while the peers' stay, before absence is evidence.
    min_peers
        Fewer members than this in a group: undetermined.
    z_threshold
        Robust z-score at which one signal counts as deviating.
    group_event_share
        Share of a pool that moves together before it is a group event.
    group_event_min_nodes
        ... and at least this many nodes.
    direct_hold_s
        How long a direct signal stays evidence after it was seen.
    habit_s
        Time constant with which a member's habitual offset is learnt.
    layers
        What takes part; all do, except to measure what each is worth.
    """

    step_s: float = 30.0
    continuity_s: float = 240.0
    continuity_samples: int = 3
    clear_after_s: float = 600.0
    stale_after_steps: float = 3.0
    absence_after_s: float = 150.0
    min_peers: int = 3
    z_threshold: float = 5.0
    group_event_share: float = 0.3
    group_event_min_nodes: int = 3
    direct_hold_s: float = 1800.0
    habit_s: float = 7200.0
    layers: tuple[str, ...] = LAYERS

    @property
    def full_s(self) -> float:
        """How long peer evidence must last, seconds: the continuity, or that many samples if it is longer."""
        return max(self.continuity_s, self.continuity_samples * self.step_s)

"""How a fault goes on over time: at once, growing, or coming and going."""

from __future__ import annotations

from dataclasses import replace

from simulator.faults import Fault

SHAPES = ("step", "ramp", "flap")


def shaped(fault: Fault, at: float) -> tuple[Fault, bool]:
    """Return the fault as strong as it is at a time at or after its onset, and whether it acts.

    Parameters
    ----------
    fault
        Its options say ``shape`` (``step`` by default); ``ramp_s``, the time in which a ramp
        reaches its severity; ``period_s`` and ``duty`` of a fault that flaps.
    at
        Epoch seconds.

    Raises
    ------
    ValueError
        When the shape is unknown.
    """
    shape = fault.options.get("shape", "step")
    age, active = at - fault.onset, at < fault.end
    if shape == "step":
        return fault, active
    if shape == "ramp":
        grown = min(1.0, age / max(fault.number("ramp_s", 600.0), 1.0))
        return replace(fault, severity=fault.severity * grown), active
    if shape == "flap":
        period = max(fault.number("period_s", 300.0), 1.0)
        return fault, active and age % period < fault.number("duty", 0.5) * period
    raise ValueError(f"shape of fault {fault.kind} must be one of {', '.join(SHAPES)}, not {shape!r}")

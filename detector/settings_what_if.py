"""Settings of trying other settings on recorded hours."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from detector.settings_section import Section


class WhatIfSettings(Section):
    """Whether the service tries other settings on its own recorded hours, and how much work that may be.

    Parameters
    ----------
    enabled
        False refuses it: a try takes as much memory as two further pipelines.
    max_hours
        How many of the last hours may be tried at once.
    max_series
        A try that meets more series than this is given up.
    time_limit_s
        A try that takes longer is given up, seconds.
    """

    enabled: bool = True
    max_hours: Annotated[float, Field(gt=0, le=168, allow_inf_nan=False)] = 6.0
    max_series: int = Field(default=500_000, ge=1)
    time_limit_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 1800.0

"""Settings of reading settings again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from detector.settings_section import Section


class ReloadSettings(Section):
    """When the settings file and the files that it names are read again.

    Parameters
    ----------
    every_s
        How often their content is looked at, seconds; 0 reads them at SIGHUP only.
    """

    every_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 5.0

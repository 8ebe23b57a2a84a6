"""Which thresholds the settings choose: a calibration, the shipped ones, or none."""

from __future__ import annotations

from dataclasses import dataclass

from detector.calibration.file import default_thresholds, load, thresholds_for
from detector.calibration.model import Calibration
from detector.core.thresholds import Thresholds
from detector.settings import Settings
from grouping.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Chosen:
    """Thresholds in effect.

    Parameters
    ----------
    thresholds
        For the pipeline; None for one threshold.
    calibration
        The user's file, None without one.
    """

    thresholds: Thresholds | None
    calibration: Calibration | None = None


def choose(settings: Settings, catalog: Catalog) -> Chosen:
    """Read what the settings name.

    Raises
    ------
    CalibrationError
        When the file cannot be used.
    """
    path = settings.calibration.path
    if path is None:
        return Chosen(default_thresholds(catalog))
    found = load(path)
    thresholds = thresholds_for(
        found,
        path,
        catalog,
        budget=settings.budget.false_alarms_per_month,
        z_threshold=settings.detection.z_threshold,
        continuity_s=settings.detection.continuity_s,
    )
    return Chosen(thresholds, found)

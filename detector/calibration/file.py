"""Calibration files (YAML or JSON): read with bounds and checks, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from detector.calibration.learn import CalibrationError, thresholds_of
from detector.calibration.model import FORMAT, Calibration
from detector.core.thresholds import SignalKey, Thresholds
from grouping.catalog import Catalog

MAX_BYTES = 16 << 20
MAX_SIGNALS = 20_000
MAX_THRESHOLD = 10_000.0
MAX_NOTES = 5

DEFAULT = Path(__file__).with_name("default.json")
"""Thresholds that are shipped, where there are any; used when no calibration is set."""


def save(calibration: Calibration, path: Path) -> None:
    """Write a calibration; an existing file is replaced only by a complete one.

    Raises
    ------
    CalibrationError
        When it cannot be written.
    """
    plain = dataclasses.asdict(calibration)
    part: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
        part = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if _is_yaml(path):
                yaml = YAML(typ="safe", pure=True)
                yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
                yaml.dump(json.loads(json.dumps(plain, allow_nan=False)), file)
            else:
                file.write(json.dumps(plain, allow_nan=False, indent=1) + "\n")
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise CalibrationError(f"{path}: cannot be written: {error.strerror or error}") from None


def load(path: Path) -> Calibration:
    """Read a calibration.

    Raises
    ------
    CalibrationError
        When it is missing, too big, or not a calibration of this format; names the file and the key.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise CalibrationError(f"{path}: is bigger than {MAX_BYTES} bytes")
    plain = _parsed(content, path)
    if not isinstance(plain, dict) or "catalog_sha256" not in plain:
        raise CalibrationError(f"{path}: is not a calibration; `oddnode calibrate` makes one")
    if plain.get("format") != FORMAT:
        raise CalibrationError(f"{path}: format is {plain.get('format')!r}; {FORMAT} is read here")
    try:
        found = msgspec.convert(plain, Calibration)
    except msgspec.ValidationError as error:
        raise CalibrationError(f"{path}: {error}") from None
    _check(found, path)
    return found


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def _parsed(content: bytes, path: Path) -> Any:
    try:
        if _is_yaml(path):
            return YAML(typ="safe", pure=True).load(content.decode("utf-8"))
        return msgspec.json.decode(content)
    except UnicodeDecodeError:
        raise CalibrationError(f"{path}: is not UTF-8 text") from None
    except (YAMLError, msgspec.DecodeError, RecursionError, ValueError) as error:
        kind = "YAML" if _is_yaml(path) else "JSON"
        raise CalibrationError(f"{path}: is not {kind}: {' '.join(str(error).split())[:200]}") from None


def _check(found: Calibration, path: Path) -> None:
    if len(found.signals) > MAX_SIGNALS:
        raise CalibrationError(f"{path}: has more than {MAX_SIGNALS} signals")
    if not 0 < found.budget_per_month < math.inf:
        raise CalibrationError(f"{path}: budget_per_month must be more than 0")
    if not 0.1 <= found.floor <= 1:
        raise CalibrationError(f"{path}: floor must be from 0.1 to 1")
    if not 1 <= found.node.threshold <= MAX_THRESHOLD:
        raise CalibrationError(f"{path}: node.threshold must be from 1 to {MAX_THRESHOLD:g}")
    for number, entry in enumerate(found.signals):
        if not 0 < entry.threshold <= MAX_THRESHOLD:
            raise CalibrationError(
                f"{path}: signals[{number}] ({entry.metric}): threshold must be more than 0 "
                f"and at most {MAX_THRESHOLD:g}"
            )


def thresholds_for(
    found: Calibration,
    path: Path,
    catalog: Catalog,
    *,
    budget: float,
    z_threshold: float,
    continuity_s: float,
) -> Thresholds:
    """Return what of a calibration holds for a catalog and settings.

    Parameters
    ----------
    found, path
        The calibration and its file.
    catalog
        In use.
    budget, z_threshold, continuity_s
        In use; others than those it was made for are told as a finding.

    Raises
    ------
    CalibrationError
        When it was made for another catalog; names both digests.
    """
    if found.catalog_sha256 != catalog.sha256:
        raise CalibrationError(
            f"{path}: was made for the catalog {found.catalog_sha256[:12]}, in use is {catalog.sha256[:12]}: "
            "run `oddnode calibrate` again"
        )
    notes = []
    unknown = sorted({e.metric for e in found.signals if e.metric not in catalog.by_name})
    if unknown:
        named = ", ".join(unknown[:MAX_NOTES])
        more = f" and {len(unknown) - MAX_NOTES} more" if len(unknown) > MAX_NOTES else ""
        notes.append(f"the calibration has metrics that the catalog does not have: {named}{more}")
    for name, made, used in (
        ("budget.false_alarms_per_month", found.budget_per_month, budget),
        ("detection.z_threshold", found.z_threshold, z_threshold),
        ("detection.continuity_s", found.continuity_s, continuity_s),
    ):
        if made != used:
            notes.append(f"the calibration was made for {name} {made:g}, in use is {used:g}")
    return _known(found, catalog, tuple(notes))


def default_thresholds(catalog: Catalog, path: Path = DEFAULT) -> Thresholds | None:
    """Return the shipped thresholds of the catalog's metrics, None when none are shipped.

    They only ever raise a threshold, so they hold for a catalog with overlays too.
    """
    if not path.is_file():
        return None
    return _known(load(path), catalog, ())


def _known(found: Calibration, catalog: Catalog, notes: tuple[str, ...]) -> Thresholds:
    made = thresholds_of(found.signals, found.node.threshold, found.floor)
    signals: dict[SignalKey, float] = {k: v for k, v in made.signals.items() if k.metric in catalog.by_name}
    return Thresholds(signals, made.node, made.floor, notes)

"""The page on the service names every setting, route and own metric, and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from api.app import create_app
from detector.settings import Settings
from detector.telemetry import Telemetry
from tests.test_api import FakeView, StoreReader

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\n]+)`", PAGE))
ALL_OF = {"placement", "pools", "detection"}


def test_every_setting_is_named() -> None:
    shown = Settings().describe()
    real = {f"{section}.{key}" for section, fields in shown.items() for key in fields}
    told = {word for word in WORDS if word.split(".")[0] in shown and "." in word}
    assert {name for name in real if name.split(".")[0] not in ALL_OF} <= told
    assert {f"{section}.*" for section in ALL_OF} <= told
    assert told <= real | {f"{section}.*" for section in ALL_OF}


def test_every_route_is_named(tmp_path: Path) -> None:
    paths = set(create_app(FakeView(StoreReader(tmp_path / "x.db"))).openapi()["paths"])
    told = {word for word in WORDS if word.startswith("/")}
    assert paths | {"/openapi.json"} == told


def test_every_own_metric_is_named() -> None:
    real = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in Telemetry().registry.collect()
    }
    told = {word for word in WORDS if re.fullmatch(r"oddnode_\w+", word)}
    assert real == told

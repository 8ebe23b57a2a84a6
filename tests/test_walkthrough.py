"""The walk-through of an incident, with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import script

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.mark.parametrize("store", ["postgresql", "sqlite"])
def test_one_fault_from_its_first_sign_to_the_repair(tmp_path: Path, store: str) -> None:
    told: list[str] = []
    script("walkthrough").walk(tmp_path, store, told.append)
    assert len(told) == 11, told

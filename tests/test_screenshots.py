"""The pictures of the console: those in the documentation, and the script that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests import test_console_browser as console
from tests.scripts import script
from tests.test_console_browser import Service

browser, case, service = console.browser, console.case, console.service

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("now", "node", "tune", "incidents", "incident", "back")
PICTURES = [
    f"console-{page}{mark}{shade}.png" for page in PAGES for mark in ("", "-1000") for shade in ("", "-dark")
]


def test_the_documentation_shows_each_page_for_few_and_many_nodes_light_and_dark() -> None:
    text = (ROOT / "docs" / "console.md").read_text()
    for name in PICTURES:
        assert f"](images/{name})" in text, name
    assert sorted(PICTURES) == sorted(path.name for path in (ROOT / "docs" / "images").glob("console-*"))


@pytest.mark.skipif(not console.CHROMIUM.exists(), reason="Debian's chromium is not installed: make servers")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pictures_of_all_pages_are_made_with_a_try_on_the_page_tune(
    service: Service, browser: Browser, tmp_path: Path
) -> None:
    made = script("screenshots")
    url = f"http://127.0.0.1:{service.port()}"
    made.try_settings(url)
    run = service.get("/v1/what-if")[1]["run"]
    assert run["state"] == "done"
    assert run["comparison"]["differences"], "the page has something to show"
    made.shoot(browser, url, tmp_path, sizes={made.DOCS: (640, 480, 0.5)})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        name for name in PICTURES if "-1000" not in name
    )
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())

"""The page of an incident in a real browser, over a real database: what is there, and what is no more."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from detector.outcome import Outcome
from detector.store import Store
from tests import test_console_browser as console
from tests.servers import Server
from tests.test_console_browser import Open, Service
from tests.test_service_live import FAULTY, STEP, feed
from tests.test_service_serve import wait_for
from tests.test_store import evidence, incident, moved

pytestmark = console.pytestmark
browser, tab = console.browser, console.tab


@pytest.mark.server
def test_an_incident_that_is_over_is_read_back_as_long_as_there_are_samples(
    fresh_vm: Server, tmp_path: Path, tab: Open
) -> None:
    feed(fresh_vm, n_steps=240, fault_steps=160)
    now = time.time()  # noqa: TID251 - a live database holds live times
    piece = replace(evidence(), metric="DCGM_FI_DEV_GPU_TEMP", part="gpu 2", labels={"gpu": "2"})
    made = []
    for began in (now - 160 * STEP, now - 60 * 86400.0):
        found = incident(FAULTY, "cleared", float(began // STEP * STEP), part="gpu 2")
        made.append(replace(found, evidence=(replace(piece, since=found.active_at),)))
    recent, old = made
    store = Store(tmp_path / "oddnode.db")
    steps = [moved(one, one.active_at + 240) for one in made]
    store.save(Outcome(now - 600, incidents=tuple(made), transitions=tuple(steps)))
    store.close()
    running = Service(tmp_path, {"source": {"url": fresh_vm.url}, "store": {"path": "oddnode.db"}})
    try:
        wait_for(lambda: running.get("/v1/fleet")[0] == 200, seconds=120, what=running.text)
        one = tab(running)
        page = one.go(f"/incidents/{quote(recent.id, safe='')}")
        plot = page.locator("#evidence .plot")
        expect(plot).to_have_attribute("aria-label", re.compile("Outside of the peers' band since 20"))
        assert console.colours(page, "#evidence canvas") > 10
        expect(page.locator("#evidence .legend")).to_contain_text("cleared")
        expect(page.locator("#evidence [data-missing]")).to_have_count(0)
        expect(page.locator("#head")).to_contain_text("It is over.")
        for action in ("Mute", "Repaired"):
            expect(page.get_by_role("button", name=action)).to_have_count(0)
        page.goto(f"{one.base}/incidents/{quote(old.id, safe='')}")
        expect(page.locator("#evidence [data-missing]")).to_contain_text("no samples of that time any more")
        expect(page.locator("#evidence figure")).to_contain_text("DCGM_FI_DEV_GPU_TEMP")
        expect(page.locator("#evidence canvas")).to_have_count(0)
        expect(page.locator("#steps .life")).to_be_visible()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Report").click()
        waiting.value.save_as(tmp_path / "old.html")
        assert "1 of 1 pieces of evidence have no chart" in (tmp_path / "old.html").read_text()
        assert one.complaints == []
        assert running.end() == 0
    finally:
        running.process.kill()
        running.process.wait(30)

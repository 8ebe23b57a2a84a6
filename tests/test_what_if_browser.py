"""The page Tune in a real browser: a value is changed, tried and cancelled, by keyboard; names stay text."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from detector.tokens import hash_of, make_token
from tests import test_console_browser as console
from tests.test_console_browser import FAULTY, SCRIPT, START, STEP, Open, Service, settings_of

pytestmark = console.pytestmark
browser, case, service, tab = console.browser, console.case, console.service, console.tab

THRESHOLD = "detection.z_threshold"


def put(page: Page, label: str, value: str) -> None:
    """Type a value over the one that is there."""
    field = page.get_by_label(label, exact=True)
    field.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(value)


def test_a_threshold_is_tried_by_keyboard_and_the_alarms_go(service: Service, tab: Open) -> None:
    one = tab(service)
    page = one.go("/")
    page.get_by_role("link", name="Tune").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tune")
    expect(page.locator(".knob").first).to_contain_text("in effect: 5;")
    put(page, THRESHOLD, "1000")
    expect(page.locator(".knob.changed")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#s-run progress")).to_be_visible()
    expect(page.locator("#try")).to_be_disabled()
    expect(page.locator("#result")).to_contain_text("2 lost")
    expect(page.locator("#said")).to_have_text("The try is done: 2 lost")
    expect(page.locator("#s-run")).to_be_hidden()
    rows = page.locator("#result tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text=FAULTY)).to_contain_text("would not be named; now it is, at 2026-01-01")
    expect(rows.filter(has_text=FAULTY).locator(".piece.before")).to_have_count(1)
    expect(rows.filter(has_text=FAULTY).locator(".piece.after")).to_have_count(0)
    expect(page.locator("#result pre")).to_have_text(re.compile(r"detection:\n  z_threshold: 1000"))
    expect(page.locator("#result")).to_contain_text("the service itself named then2")
    link = rows.filter(has_text=SCRIPT).get_by_role("link")
    expect(link).to_have_text(SCRIPT)
    assert page.locator("main img, main script").count() == 0
    link.click()
    expect(page.locator("h1")).to_have_text(SCRIPT)
    page.go_back()
    expect(page.locator("#result")).to_contain_text("2 lost")
    assert one.complaints == []
    assert all(url.startswith(one.base) for url in one.asked)


def test_what_is_wrong_is_told_and_a_try_is_called_off(service: Service, tab: Open) -> None:
    one = tab(service, viewport={"width": 360, "height": 740}, color_scheme="dark")
    page = one.go("/tune")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator("#problem")).to_contain_text("Nothing is changed yet")
    put(page, THRESHOLD, "0.1")
    page.keyboard.press("Enter")
    field = page.get_by_label(THRESHOLD, exact=True)
    assert field.evaluate("field => field.validity.rangeUnderflow"), "the browser holds it back"
    put(page, THRESHOLD, "x")
    page.keyboard.press("Enter")
    assert field.evaluate("field => field.validity.valueMissing"), "nothing is no value in effect"
    expect(page.locator("#s-run")).to_be_hidden()
    page.get_by_role("button", name="Values in effect").press("Enter")
    expect(field).to_have_value("5")
    expect(page.locator(".knob.changed")).to_have_count(0)
    put(page, "detection.continuity_s", "60")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_be_empty()
    page.get_by_role("button", name="Cancel").press("Enter")
    expect(page.locator("#result")).to_contain_text("It was called off.")
    expect(page.locator("#try")).to_be_enabled()
    expect(page.get_by_label("detection.continuity_s", exact=True)).to_have_value("60")
    page.get_by_role("button", name="Try it").press("Enter")
    expect(page.locator("#result")).to_contain_text(re.compile("[12] earlier"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert one.n_bytes < 400_000
    # that an answer is 422 a browser tells on its console
    assert [text for text in one.complaints if not re.search("status of (422|409)", text)] == []


def test_a_reader_may_look_and_not_try(case: Path, tmp_path: Path, tab: Open) -> None:
    reader = make_token()
    tokens = [{"name": "wall", "scope": "read", "sha256": hash_of(reader)}]
    running = Service(tmp_path, settings_of(case) | {"auth": {"tokens": tokens}})
    try:
        one = tab(running)
        page = one.go("/tune")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Token").fill(reader)
        dialog.get_by_role("button", name="Use it").click()
        put(page, THRESHOLD, "9")
        page.keyboard.press("Enter")
        expect(page.locator("#problem")).to_contain_text("the token may only read")
    finally:
        running.process.kill()
        running.process.wait(30)


def test_what_cannot_be_tried_is_told_at_its_field(service: Service, tab: Open) -> None:
    before = service.get("/v1/what-if")[1]["run"]
    one = tab(service)
    page = one.go("/tune")
    field = page.locator(".knob").filter(has=page.get_by_label(THRESHOLD, exact=True))
    for value, why in (("-3", "must be from"), ("", "a number is needed"), ("1e9", "must be from")):
        put(page, THRESHOLD, value) if value else page.get_by_label(THRESHOLD, exact=True).fill("")
        page.locator("#try").click()
        expect(field.locator(".wrong")).to_contain_text(why)
        expect(page.locator("#problem")).to_contain_text(f"Not tried: {THRESHOLD} {why}")
        expect(page.get_by_label(THRESHOLD, exact=True)).to_be_focused()
        expect(page.get_by_label(THRESHOLD, exact=True)).to_have_attribute("aria-invalid", "true")
    put(page, THRESHOLD, "6")
    expect(field.locator(".wrong")).to_be_empty()
    put(page, "Last hours", "0")
    page.locator("#try").click()
    expect(page.locator("#problem")).to_contain_text("hours must be from 0.01 to")
    page.get_by_role("button", name="Values in effect").click()
    expect(page.locator("#problem")).to_be_empty()
    assert service.get("/v1/what-if")[1]["run"] == before, "nothing was tried"
    assert one.complaints == []


def test_a_time_that_pages_are_turned_back_to_is_kept(service: Service, tab: Open) -> None:
    at = START + 50 * STEP
    one = tab(service)
    page = one.go(f"/?at={at}")
    expect(page.locator("#state")).to_contain_text("shown as of")
    page.get_by_role("link", name="Tune").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tune")
    assert page.url.endswith(f"/tune?at={at}")
    expect(page.locator("#ends")).to_contain_text("The hours end at the newest evaluation, not at 2026-01-01")
    page.get_by_role("link", name="Incidents", exact=True).click()
    expect(page.locator("#recording")).to_contain_text("as of 2026-01-01")
    assert f"at={at}" in page.url
    assert one.complaints == []

"""The console in a real browser, against the running service on a recorded incident."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect, sync_playwright

from detector.case_archive import case_name, unpack
from detector.source.incident_file import load_recording
from detector.tokens import hash_of, make_token
from tests.test_service_serve import Process, wait_for

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's chromium is not installed: make servers"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

START, STEP, N_STEPS = 1_767_225_600, 30, 90
FAULTY = "gpu007"
SCRIPT = "<script>alert(1)"
HOSTILE = {
    SCRIPT: 60,
    "\"><img src=x onerror='alert(2)'>": None,
    "\u202egnp": None,
    "n" * 1000: None,
}
"""Names and when they go bad. Without dots and slashes, as what follows one is no name."""

RACK = "<b>r2</b>"
WAIT_MS = 120_000


def write_recording(folder: Path, late: str = "") -> Path:
    """Make a small cluster, some of whose names are bad: two nodes get hot and slow, one after the other.

    Of the node `late`, if any, there is nothing before the 60th step.
    """
    rng = np.random.default_rng(5)
    folder.mkdir()
    onset = {f"gpu{n:03d}": 40 if f"gpu{n:03d}" == FAULTY else None for n in range(12)} | HOSTILE
    if late:
        onset[late] = None
    times = [(START + STEP * k) * 1000 for k in range(N_STEPS + 1)]
    lines = []
    for node, first in onset.items():
        for g in range(4):
            is_bad = np.array([first is not None and g == 2 and k >= first for k in range(N_STEPS + 1)])
            noise = rng.normal(0, 1, (3, N_STEPS + 1))
            signals = {
                "DCGM_FI_DEV_GPU_UTIL": 97 + noise[0] * 0.5 - 60 * is_bad,
                "DCGM_FI_DEV_GPU_TEMP": np.round(60 + noise[1] + 30 * is_bad),
                "DCGM_FI_DEV_POWER_USAGE": 800 + 5 * noise[2] - 500 * is_bad,
            }
            for name, values in signals.items():
                labels = {"__name__": name, "Hostname": node, "gpu": str(g), "UUID": f"GPU-{node[:40]}-{g}"}
                labels["rack"] = RACK if node in (FAULTY, SCRIPT, "gpu001") else "r1"
                first_step = 60 if node == late else 0
                lines.append(
                    {
                        "metric": labels,
                        "values": values[first_step:].tolist(),
                        "timestamps": times[first_step:],
                    }
                )
    with gzip.open(folder / "series.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    (folder / "incident.yaml").write_text(
        f"id: small\nstart: {START}\nend: {START + STEP * N_STEPS}\nstep_s: {STEP}\n"
        f"pool: {json.dumps(list(onset))}\n"
        "spares: []\nhealthy: true\nfaults: []\nprovenance: {source: test, licence: none, made: synthetic}\n"
    )
    return folder


class Service(Process):
    """A running service that may take its time to start: browsers and other tests want the machine too."""

    def port(self) -> int:
        return int(wait_for(self._listening, seconds=240, what=self.text))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("case") / "small")


def settings_of(case: Path) -> dict[str, Any]:
    return {"recording": {"path": str(case), "speed": 1500}}


@pytest.fixture(scope="module")
def service(case: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the tests that change nothing which others look at."""
    running = Service(tmp_path_factory.mktemp("service"), settings_of(case))
    try:
        wait_for(lambda: is_over(running), seconds=240, what=running.text)
        yield running
    finally:
        running.process.kill()
        running.process.wait(30)


def is_over(running: Service) -> bool:
    played = running.get("/v1/recording")[1].get("recording") or {}
    return played.get("last_at") == START + STEP * N_STEPS and len(suspects(running)) == 2


def suspects(running: Service) -> list[dict[str, Any]]:
    return list(running.get("/v1/suspects")[1].get("suspects", []))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=WAIT_MS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page, and all that it complained of and asked for."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    n_bytes: int = 0

    def go(self, path: str) -> Page:
        self.page.goto(self.base + path)
        return self.page

    def watch(self) -> None:
        self.page.on("console", lambda m: m.type == "error" and self.complaints.append(m.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("response", self._weigh)

    def _weigh(self, response: Response) -> None:
        self.n_bytes += int(response.headers.get("content-length", "0"))


Open = Callable[..., Tab]


@pytest.fixture
def tab(browser: Browser) -> Iterator[Open]:
    contexts: list[BrowserContext] = []

    def make(running: Service, **options: Any) -> Tab:
        context = browser.new_context(**options)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        made = Tab(context.new_page(), f"http://127.0.0.1:{running.port()}")
        made.watch()
        return made

    expect.set_options(timeout=WAIT_MS)
    yield make
    for context in contexts:
        context.close()


def colours(page: Page, canvas: str) -> int:
    """Count the different colours of a canvas: a blank one has one."""
    return int(
        page.eval_on_selector(
            canvas,
            """c => {
                const all = c.getContext("2d").getImageData(0, 0, c.width, c.height);
                return new Set(new Uint32Array(all.data.buffer)).size;
            }""",
        )
    )


WRITTEN = """
window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.written.push(text);
    return write.call(this, text, ...rest);
};
"""
"""Texts in a canvas can be read."""


def test_a_suspect_is_seen_opened_and_plotted(service: Service, tab: Open) -> None:
    one = tab(service)
    one.page.add_init_script(WRITTEN)
    page = one.go("/")
    card = page.locator(f'article[data-node="{FAULTY}"]')
    expect(card).to_contain_text("gpu 2")
    expect(card).to_contain_text("DCGM_FI_DEV_GPU_TEMP")
    expect(page.locator("#line")).to_have_text("live")
    expect(page.locator("#state")).to_contain_text("the recording has ended")
    expect(page.locator("#heat")).to_have_attribute("aria-label", re.compile("16 nodes: 2 suspect"))
    assert colours(page, "#heat") > 4
    written = page.evaluate("window.written")
    assert any(re.fullmatch("\u2068main\u2069: \u2068.* to .*\u2069", text) for text in written), (
        "who stands there"
    )
    # its strongest evidence is drawn where it is named
    expect(card.locator(".glance")).to_contain_text(re.compile(r"DCGM_FI_DEV_\w+ on gpu 2 against the peers"))
    expect(card.locator("canvas")).to_have_count(1)
    assert colours(page, f'article[data-node="{FAULTY}"] canvas') > 10
    expect(card.locator(".plot")).to_have_attribute(
        "aria-label", re.compile(f"Outside of the peers' band since 2026-01-01 {clock(START + STEP * 40)}")
    )
    card.get_by_role("link", name=FAULTY).click()
    expect(page.locator("h1")).to_have_text(FAULTY)
    expect(page.locator("#head .state.suspect")).to_contain_text("suspect")
    expect(page.locator("figure canvas").first).to_be_visible()
    n = len(service.get(f"/v1/nodes/{FAULTY}")[1]["evidence"])
    expect(page.locator("figure canvas")).to_have_count(min(n, 8))
    assert colours(page, "figure canvas") > 10
    expect(page.locator(".plot").first).to_have_attribute(
        "aria-label", re.compile(rf"Outside of the peers' band since 2026-01-01 {clock(START + STEP * 40)}")
    )
    # the onset is 25 minutes ago and the window that is kept is shorter: the chart begins before it
    expect(page.locator("[data-chart]").first).not_to_contain_text("before this time")
    expect(page.locator("#order li").first).to_contain_text("GPU")
    near = page.locator("#near li")
    expect(near).to_have_count(1)
    expect(near).to_contain_text(re.compile(rf"rack\s*{re.escape(RACK)}: 2 other nodes, .*suspect"))
    place = page.locator("[data-chart]").first
    expect(place).not_to_contain_text("the same slot")
    before = place.locator("canvas").screenshot()
    page.get_by_label("the same slot of other nodes").check()
    expect(place).to_contain_text("the same slot of 15 other nodes")
    expect(page.locator("[data-chart] .plot")).to_have_count(min(n, 8))
    assert place.locator("canvas").screenshot() != before
    told = service.get(f"/v1/explain?node={FAULTY}")[1]["explanation"]["summary"]
    expect(page.locator("#why")).to_contain_text(told)
    expect(page.locator("#decision")).to_contain_text("direct signals and absences")
    assert one.complaints == []
    assert all(url.startswith(one.base) for url in one.asked)


def test_acknowledged_muted_and_shown_in_history(service: Service, tab: Open) -> None:
    one = tab(service)
    page = one.go("/")
    card = page.locator(f'article[data-node="{FAULTY}"]')
    card.get_by_role("button", name="Acknowledge").click()
    page.get_by_label("Note").fill("RMA <b>opened</b>")
    page.get_by_label("Who").fill("kim")
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(card).to_contain_text("acknowledged by kim")
    expect(card).to_contain_text("RMA <b>opened</b>")
    card.get_by_role("button", name="Mute").click()
    page.get_by_label("Reason").fill("swapping it")
    page.get_by_role("dialog").get_by_role("button", name="Mute").click()
    expect(card).to_contain_text("muted until")
    expect(page.locator("#mutes")).to_contain_text("swapping it")
    found = next(item for item in suspects(service) if item["node"] == FAULTY)
    assert found["acknowledged"]["by"] == "kim"
    assert found["acknowledged"]["note"] == "RMA <b>opened</b>"
    assert found["muted"]["reason"] == "swapping it"
    page.get_by_role("link", name="Incidents").click()
    row = page.get_by_role("row", name=re.compile(FAULTY)).first
    expect(row).to_contain_text("fault, kim")
    # all bars stand on one scale: this one began first and is not over, the other one began later
    expect(
        row.get_by_role("img", name=re.compile(f"from .*{clock(START + STEP * 40)} to now"))
    ).to_be_visible()
    begun = "item => parseFloat(item.querySelector('.piece').style.left)"
    assert row.locator(".life").evaluate(begun) == 0
    assert page.get_by_role("row").filter(has_text=SCRIPT).locator(".life").evaluate(begun) > 20
    expect(row.locator(".life .piece.suspect")).to_be_visible()
    expect(page.locator("#trail")).to_contain_text("acknowledge")
    page.get_by_label("Node").fill("gpu001")
    page.get_by_label("Node").press("Enter")
    expect(page.locator("#list")).to_contain_text("no incident fits")
    page.get_by_label("Node").fill(FAULTY)
    page.get_by_label("Node").press("Enter")
    link = page.locator("#list td:nth-child(6) a").first
    redraw = """() => {
        for (const part of document.querySelectorAll("#list a, #trail table")) part.dataset.old = "";
        document.querySelector("#f-days").dispatchEvent(new Event("change"));
    }"""
    link.hover()
    page.mouse.down(button="right")  # whose release a menu may swallow
    page.evaluate(redraw)
    expect(page.locator("#list a[data-old]")).to_have_count(0)
    page.mouse.up(button="right")
    link.hover()
    page.mouse.down()
    page.evaluate(redraw)
    expect(page.locator("#trail table[data-old]")).to_have_count(0)
    assert page.locator("#list a[data-old]").count() > 0, "what is pressed stays until it is let go"
    page.mouse.up()
    expect(page.locator("#steps .timeline")).to_contain_text("pending")
    expect(page.locator("#steps li.suspect")).to_contain_text("suspect")
    expect(page.locator("#steps li.said").filter(has_text="acknowledge by kim")).to_be_visible()
    expect(page.locator("#feedback")).to_contain_text("acknowledged by kim")
    assert one.complaints == []


def test_an_incident_is_downloaded_as_a_case_by_one_click(
    service: Service, tab: Open, tmp_path: Path
) -> None:
    incident = next(item["incident_id"] for item in suspects(service) if item["node"] == FAULTY)
    one = tab(service)
    page = one.go(f"/incidents/{quote(incident, safe='')}")
    with page.expect_download(timeout=WAIT_MS) as waiting:
        page.get_by_role("button", name="Export").click()
    assert waiting.value.suggested_filename == f"{case_name(incident)}.tar"
    waiting.value.save_as(tmp_path / "case.tar")
    (tmp_path / "case").mkdir()
    unpack(tmp_path / "case.tar", tmp_path / "case", 1 << 28)
    recording = load_recording(tmp_path / "case")
    assert FAULTY in recording.pool
    assert recording.provenance["made"] == "synthetic", "a recording that is played stays what it is"
    expect(page.locator("#said")).to_contain_text("downloaded")
    expect(page.get_by_role("button", name="Export")).to_be_enabled()
    trail = service.get("/v1/audit")[1]["entries"]
    assert ("export", f"incident {incident}") in {(line["action"], line["subject"]) for line in trail}
    assert one.complaints == []


def test_an_incident_has_its_charts_its_time_line_and_its_report(
    service: Service, tab: Open, tmp_path: Path
) -> None:
    incident = next(item for item in suspects(service) if item["node"] == FAULTY)
    one = tab(service)
    page = one.go(f"/incidents/{quote(incident['incident_id'], safe='')}")
    plots = page.locator("#evidence figure .plot")
    expect(plots).to_have_count(min(8, len(incident["evidence"])))
    assert colours(page, "#evidence figure canvas") > 10
    expect(plots.first).to_have_attribute(
        "aria-label", re.compile(f"Outside of the peers' band since 2026-01-01 {clock(START + STEP * 40)}")
    )
    expect(page.locator("#evidence [data-missing]")).to_have_count(0)
    life = page.locator("#steps .life")
    expect(life).to_have_attribute(
        "aria-label", re.compile(f"named .*{clock(incident['suspect_since'])}, still open")
    )
    steps = page.locator("#steps .timeline li")
    expect(steps.filter(has_text="first sign of").first).to_contain_text(clock(START + STEP * 40))
    expect(steps.filter(has_text="suspect").last).to_contain_text(clock(incident["suspect_since"]))
    for action in ("Dismiss", "Repaired", "Report", "Export"):
        expect(page.get_by_role("button", name=action)).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^(Mute|Unmute)$"))).to_be_visible()
    with page.expect_download(timeout=WAIT_MS) as waiting:
        page.get_by_role("button", name="Report").click()
    assert waiting.value.suggested_filename == f"{case_name('report-' + incident['incident_id'])}.html"
    waiting.value.save_as(tmp_path / "report.html")
    report = one.page.context.new_page()
    report.goto((tmp_path / "report.html").as_uri())
    expect(report.locator("h1")).to_have_text(f"{FAULTY}, gpu 2")
    expect(report.locator("polyline.value").first).to_be_visible()
    assert one.complaints == []


COUNTED = """
const asked = window.fetch;
window.most = 0;
let now = 0;
window.fetch = async (path, options) => {
    if (!String(path).includes("v1/nodes/") || options?.method) return asked(path, options);
    now += 1;
    window.most = Math.max(window.most, now);
    window.n = (window.n ?? 0) + 1;
    const answer = await asked(path, options);
    await new Promise((done) => { setTimeout(done, 1500); });
    now -= 1;
    return answer;
};
"""
"""Answers about a node come late, and it is counted how many are waited for at a time."""


def test_what_a_button_has_changed_waits_for_the_redraw_under_way(service: Service, tab: Open) -> None:
    one = tab(service)
    one.page.add_init_script(COUNTED)
    page = one.go("/nodes/gpu003")
    page.get_by_role("button", name="Mute", exact=True).click()
    page.get_by_label("Reason").fill("rack work")
    page.emulate_media(color_scheme="dark")  # a redraw is under way when the button is pressed
    page.get_by_role("dialog").get_by_role("button", name="Mute", exact=True).click()
    expect(page.locator("#head")).to_contain_text("rack work")
    page.get_by_role("button", name="Unmute").click()
    page.get_by_role("dialog").get_by_role("button", name="Unmute").click()
    expect(page.locator("#head")).not_to_contain_text("muted until")
    assert page.evaluate("window.n") > 2
    assert page.evaluate("window.most") == 1
    assert one.complaints == []


def test_a_recording_is_turned_back_and_played(service: Service, tab: Open) -> None:
    extent = service.get("/v1/recording")[1]["recording"]
    named = next(mark for mark in extent["marks"] if mark["node"] == FAULTY)
    one = tab(service)
    page = one.go("/")
    slider = page.get_by_label("Time of the recording")
    card = page.locator(f'article[data-node="{FAULTY}"]')
    expect(card).to_be_visible()
    marks = page.locator(".rec-mark")
    expect(marks).to_have_count(2)
    expect(marks.first).to_have_attribute("title", re.compile(f"^{FAULTY} named 2026-01-01"))
    # back, by keyboard, to before anybody was named
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator("#suspects")).to_contain_text("No node can be judged now: 16 too few samples")
    expect(page.locator("#heat")).to_have_attribute("aria-label", re.compile("16 nodes: 0 suspect"))
    expect(page.locator("#state")).to_contain_text("shown as of")
    for of_now in ("the recording has ended", "ready", "old"):
        expect(page.locator("#state")).not_to_contain_text(of_now)
    assert f"at={START + STEP}" in page.url
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_value(str(START + 2 * STEP))
    # a mark leads to the moment, and links keep it
    marks.first.click()
    expect(card).to_be_visible()
    expect(page.locator("#recording")).to_contain_text("as of 2026-01-01")
    expect(card.get_by_role("button")).to_have_count(0)
    card.get_by_role("link", name=FAULTY).click()
    expect(page.locator("h1")).to_have_text(FAULTY)
    assert page.url.endswith(f"at={named['at']:.0f}")
    expect(page.locator("#head .state")).to_contain_text("suspect")
    expect(page.locator("#why")).to_contain_text("named:")
    expect(page.locator("figure canvas").first).to_be_visible()
    expect(page.locator(".chart .readout").first).to_contain_text(clock(named["at"]))
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#head .state")).to_contain_text("pending")
    expect(page.locator(".chart .readout").first).to_contain_text(clock(named["at"] - STEP))
    # its own past beside it
    key = page.locator(".legend").get_by_text("this node earlier")
    expect(key).to_have_count(0)
    first = page.locator("[data-chart]").first
    page.get_by_label("Own past").select_option(label="1 h earlier")
    expect(first).to_contain_text("own past: nothing is kept of then")
    page.get_by_label("Own past").select_option(label="10 min earlier")
    expect(key).to_be_visible()
    expect(first).not_to_contain_text("own past:")
    # played, and paused
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#head .state")).to_contain_text("suspect")
    page.get_by_role("button", name="Pause").click()
    held = slider.input_value()
    assert float(held) >= named["at"]
    page.wait_for_timeout(1200)
    assert slider.input_value() == held
    # history as it was
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_role("link", name="Incidents").click()
    expect(page.locator("#list")).to_contain_text("no incident fits")
    page.get_by_role("button", name="Newest").click()
    expect(page.locator("#list tbody tr")).to_have_count(2)
    assert "at=" not in page.url
    # what is over is played again from its beginning
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#recording")).to_contain_text("as of 2026-01-01 00:00:30")
    expect(page.locator("#recording")).to_contain_text("as of 2026-01-01 00:02:00")
    page.get_by_role("button", name="Pause").click()
    assert one.complaints == []


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"


def test_names_that_are_no_names_stay_text(service: Service, tab: Open) -> None:
    names = {item["node"] for item in service.get("/v1/nodes")[1]["nodes"]}
    strange = sorted(name for name in names if not name.startswith("gpu0"))
    assert SCRIPT in strange
    one = tab(service)
    page = one.go("/")
    card = page.locator("article").filter(has_text=SCRIPT)
    expect(card).to_have_count(1)
    page.get_by_text("Nodes as a list").click()
    for name in strange:
        expect(page.locator("#heat-list a").get_by_text(name, exact=True).first).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    card.get_by_role("link", name=SCRIPT).first.click()
    expect(page.locator("h1")).to_have_text(SCRIPT)
    expect(page.locator("figure canvas").first).to_be_visible()
    for name in [*strange, "../v1/suspects", "'\"><svg onload=alert(1)>"]:
        page.goto(f"{one.base}/nodes/{quote(name, safe='')}")
        expect(page.locator("h1")).to_have_text(name[:300])
        if name in strange and len(name) <= 253:
            expect(page.locator("#why")).to_contain_text("pool main of")
        else:
            expect(page.locator("#problem")).to_contain_text(re.compile("is not known|at most 253"))
        assert page.locator("main img, main script, main svg").count() == 0
    # that an answer is 404 or 422 a browser tells on its console
    assert [text for text in one.complaints if not re.search("status of (404|422)", text)] == []


def test_it_fits_a_phone_and_works_without_a_mouse(service: Service, tab: Open) -> None:
    incident = next(item["incident_id"] for item in suspects(service) if item["node"] == FAULTY)
    for path in (f"/nodes/{FAULTY}", "/incidents", f"/incidents/{incident}", "/"):
        one = tab(service, viewport={"width": 360, "height": 740}, color_scheme="dark")
        page = one.go(path)
        expect(page.locator("#line")).to_have_text("live")
        expect(page.get_by_text("loading", exact=True)).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert 60_000 < one.n_bytes < 400_000, path
        assert one.complaints == []
    expect(page.locator("article").first).to_be_visible()
    expect(page.locator("#heat")).to_be_visible()
    page.locator("#heat").focus()
    page.keyboard.press("End")
    first = page.locator("#heat-text").inner_text()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#heat-text")).not_to_have_text(first)
    second = page.locator("#heat-text").inner_text()
    page.keyboard.press("Home")
    expect(page.locator("#heat-text")).not_to_have_text(second)
    shown = page.locator("#heat-text b").inner_text()
    assert shown in {item["node"] for item in service.get("/v1/nodes")[1]["nodes"]}
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(shown)
    assert one.complaints == []


def test_a_restart_is_waited_for(case: Path, tmp_path: Path, tab: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = settings_of(case) | {"http": {"port": port}}
    first = Service(tmp_path, settings)
    second = None
    try:
        first.port()
        one = tab(first)
        page = one.go("/")
        page.evaluate("window.mark = 1")
        expect(page.locator("#line")).to_have_text(re.compile("live"))
        # an open page must not hold up the end
        assert first.end() == 0
        assert "timeout graceful shutdown exceeded" not in first.text()
        expect(page.locator("#line")).to_contain_text("no answer from the service")
        second = Service(tmp_path, settings)
        expect(page.locator("#line")).to_have_text(re.compile("live"), timeout=2 * WAIT_MS)
        expect(page.locator(f'article[data-node="{FAULTY}"]')).to_be_visible(timeout=2 * WAIT_MS)
        assert page.evaluate("window.mark") == 1, "the page was not loaded anew"
    finally:
        for process in (first, second):
            if process is not None:
                process.process.kill()
                process.process.wait(30)


def test_a_token_is_asked_for_and_kept_in_the_tab(case: Path, tmp_path: Path, tab: Open) -> None:
    reader, operator = make_token(), make_token()
    tokens = [
        {"name": "wall", "scope": "read", "sha256": hash_of(reader)},
        {"name": "kim", "scope": "operate", "sha256": hash_of(operator)},
    ]
    running = Service(tmp_path, settings_of(case) | {"auth": {"tokens": tokens}})
    try:
        assert running.get("/v1/suspects")[0] == 401
        one = tab(running)
        page = one.go("/")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("a token is needed")
        assert FAULTY not in page.content()
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button", name="Use it").click()
        expect(dialog).to_contain_text("not valid")
        dialog.get_by_label("Token").fill(reader)
        dialog.get_by_role("button", name="Use it").click()
        card = page.locator(f'article[data-node="{FAULTY}"]')
        expect(card).to_be_visible(timeout=2 * WAIT_MS)
        card.get_by_role("button", name="Acknowledge").click()
        dialog.get_by_role("button", name="Acknowledge").click()
        expect(dialog).to_contain_text("the token may only read")
        dialog.get_by_role("button", name="Cancel").click()
        page.evaluate("token => sessionStorage.setItem('oddnode-token', token)", operator)
        page.reload()
        card.get_by_role("button", name="Acknowledge").click()
        dialog.get_by_role("button", name="Acknowledge").click()
        expect(card).to_contain_text("acknowledged by kim")
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        assert all(reader not in url and operator not in url for url in one.asked)
    finally:
        running.process.kill()
        running.process.wait(30)


def test_a_page_turned_back_tells_nothing_that_came_later(tmp_path: Path, tab: Open) -> None:
    running = Service(tmp_path, settings_of(write_recording(tmp_path / "late", late="gpu020")))
    try:
        wait_for(lambda: is_over(running), seconds=240, what=running.text)
        incident = next(item for item in suspects(running) if item["node"] == FAULTY)
        named = incident["suspect_since"]
        one = tab(running)
        page = one.go("/")
        card = page.locator(f'article[data-node="{FAULTY}"]')
        card.get_by_role("button", name="Acknowledge").click()
        page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
        expect(card).to_contain_text("acknowledged by")
        page.locator(".rec-mark").first.click()
        expect(page.locator("#state")).to_contain_text("shown as of")
        expect(card).to_be_visible()
        expect(card).not_to_contain_text("acknowledged")
        # an incident that had not begun
        page.goto(f"{one.base}/incidents/{quote(incident['incident_id'], safe='')}?at={START + 10 * STEP}")
        expect(page.locator("#head")).to_contain_text(
            f"At 2026-01-01 {clock(START + 10 * STEP)} this incident had not begun"
        )
        expect(page.locator("#problem")).to_be_empty()
        page.get_by_role("link", name="Go to when it was named").click()
        expect(page.locator("#head .state")).to_contain_text("suspect")
        expect(page.locator("#feedback")).to_contain_text("nobody has said")
        expect(page.locator("#steps .said")).to_have_count(0)
        assert page.url.endswith(f"at={named:.0f}")
        # a node of which nothing had been seen, and one that never was
        page.goto(f"{one.base}/nodes/gpu020?at={START + 30 * STEP}")
        expect(page.locator("#head")).to_contain_text("this node was not there yet")
        expect(page.locator("#problem")).to_be_empty()
        page.get_by_role("button", name="Newest").click()
        expect(page.locator("#head .state")).to_be_visible()
        expect(page.locator("#head")).not_to_contain_text("not there yet")
        page.goto(f"{one.base}/nodes/gpu404?at={START + 30 * STEP}")
        expect(page.locator("#problem")).to_contain_text("is not known")
        assert [text for text in one.complaints if "status of 404" not in text] == []
    finally:
        running.process.kill()
        running.process.wait(30)


def test_after_a_repair_the_page_says_so_at_once(case: Path, tmp_path: Path, tab: Open) -> None:
    running = Service(tmp_path, settings_of(case))
    try:
        wait_for(lambda: is_over(running), seconds=240, what=running.text)  # no evaluation follows
        incident = next(item for item in suspects(running) if item["node"] == FAULTY)
        before = running.get(f"/v1/explain?node={FAULTY}")[1]["explanation"]["summary"]
        one = tab(running)
        page = one.go(f"/nodes/{FAULTY}")
        expect(page.locator("#why")).to_contain_text(before)
        page.get_by_role("button", name="Repaired").click()
        page.get_by_label("Note").fill("GPU swapped")
        page.get_by_label("Who").fill("kim")
        page.get_by_role("dialog").get_by_role("button", name="Repaired").click()
        expect(page.locator("#why")).to_contain_text("set healthy (repaired, said kim: GPU swapped)")
        expect(page.locator("#why")).to_contain_text("afresh")
        expect(page.locator("#why")).not_to_contain_text(before)
        expect(page.locator("#evidence")).to_contain_text("judged afresh at the next evaluation")
        expect(page.locator("#decision")).to_be_hidden()
        expect(page.get_by_role("button", name="Repaired")).to_have_count(0)
        # and the incident is over: its time line has an end, and nothing is left to do about the node there
        page.goto(f"{one.base}/incidents/{quote(incident['incident_id'], safe='')}")
        expect(page.locator("#steps li.cleared")).to_contain_text("repaired, said kim")
        expect(page.locator("#steps li.said")).to_contain_text("repaired by kim: GPU swapped")
        expect(page.locator("#head")).to_contain_text("It is over.")
        for action in ("Repaired", "Mute"):
            expect(page.get_by_role("button", name=action)).to_have_count(0)
        expect(page.locator("#evidence figure canvas").first).to_be_visible()
        assert one.complaints == []
    finally:
        running.process.kill()
        running.process.wait(30)

"""The report of an incident: what it tells, that it asks for nothing, hostile names, other names, PDF."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, sync_playwright
from typer.testing import CliRunner

from detector.case_archive import case_name
from detector.cli import app
from detector.control.desk import Desk
from detector.control.model import Action, AuditEntry
from detector.errors import OddnodeError
from detector.evaluation.model import Moment, Trace
from detector.evaluation.svg import time_ticks
from detector.outcome import GroupEvent, Outcome
from detector.replay import pipeline_for
from detector.store import Store
from detector.store_control import ControlStore
from detector.story.anonymous import anonymised
from detector.story.model import Compared, Piece, Story, StoryError
from detector.story.page import story_page
from detector.story.paper import pdf_of
from detector.story.replayed import story_of, without_samples
from detector.story.told import told_beside, told_by_service
from detector.tokens import entry_line, make_token
from grouping.catalog import load_catalog
from tests import test_console_browser as hostile
from tests.test_api import FakeView, latest
from tests.test_cli_top import served
from tests.test_service_serve import (
    FAULTY,
    N_STEPS,
    ONSET,
    START,
    STEP,
    Start,
    start,
    wait_for,
    write_recording,
)
from tests.test_store import T0, evidence, incident, moved

__all__ = ["start"]  # a fixture

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("report") / "small")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("Debian's chromium is not installed: make servers")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000)
        yield opened
        opened.close()


def reported(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    assert result.exit_code == code, f"{result.output} {result.exception}"
    return result.output


def refused(*words: object) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    assert isinstance(result.exception, OddnodeError), result.output
    return str(result.exception)


class Markup(HTMLParser):
    """Collects what a browser would take for markup, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def opened(browser: Browser, file: Path) -> tuple[Any, list[str]]:
    """Open a file and return the page, and all that it complained of or asked for beside itself."""
    page = browser.new_context().new_page()
    told: list[str] = []
    page.on("console", lambda m: told.append(m.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.on("request", lambda request: told.append(request.url))
    page.goto(file.as_uri())
    told.remove(file.as_uri())
    return page, told


@pytest.mark.slow
def test_a_recording_tells_who_where_since_when_and_why(case: Path, tmp_path: Path, browser: Browser) -> None:
    out = tmp_path / "report.html"
    assert f"{out}: {FAULTY}, gpu 2" in reported(case, "--to", out)
    page, told = opened(browser, out)
    assert told == [], "neither a complaint nor a request"
    assert page.locator("h1").inner_text() == f"{FAULTY}, gpu 2"
    facts = page.locator("dl").first.inner_text()
    assert "GPU-7-2" in facts, "by which the vendor knows it"
    assert "11 other nodes of pool main" in facts
    first = re.search(r"first sign\s+2026-01-01 00:(\d\d):\d\d UTC", facts)
    assert first is not None
    assert 0 <= int(first[1]) - ONSET * STEP // 60 <= 2
    assert "DCGM_FI_DEV_GPU_TEMP" in page.locator(".card").first.inner_text()
    assert "robust deviations" in page.locator("body").inner_text()
    for title in ("What moved first", "Steps", "What was compared, and by what"):
        assert page.get_by_role("heading", name=title).count() == 1
    plots = page.locator(".card svg")
    assert plots.count() == page.locator(".card").count() >= 3
    box = plots.first.locator("polyline.value").first.bounding_box()
    assert box["width"] > 400, "the line is drawn over the whole time"
    assert box["height"] > 30
    assert plots.first.locator("polygon.band").count() > 0
    colour = "e => getComputedStyle(e).stroke"
    assert plots.first.locator("polyline.value").first.evaluate(colour) == "rgb(26, 86, 219)"
    assert plots.first.locator("line.named").count() == 1
    axis = plots.first.locator("text").all_text_contents()
    assert "UTC" in axis
    clocks = [text for text in axis if re.fullmatch(r"(01-01 )?\d\d:\d\d", text)]
    assert 4 <= len(clocks) <= 7
    assert clocks[0].startswith("01-01 ")
    words = page.locator("dl").last.inner_text()
    for word in ("peers", "MAD", "robust deviations (z)", "worth"):
        assert word in words


@pytest.mark.slow
def test_names_that_are_markup_stay_text(tmp_path: Path, browser: Browser) -> None:
    recording = hostile.write_recording(tmp_path / "small")
    out = tmp_path / "report.html"
    reported(recording, "--node", hostile.SCRIPT, "--to", out)
    page, told = opened(browser, out)
    assert told == []
    assert page.locator("h1").inner_text() == f"{hostile.SCRIPT}, gpu 2"
    assert page.locator("script, img, iframe, object, link").count() == 0
    assert FAULTY in page.locator("h2:has-text('Other nodes') + ul").inner_text()
    assert "\u202e" not in out.read_text()
    reported(recording, "--to", out, "--anonymise")
    text = out.read_text()
    for name in (FAULTY, "gpu003", "alert(1)"):
        assert name not in text
    assert "<h1>node-1, gpu 2</h1>" in text


def test_what_cannot_be_told(case: Path, tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "none")
    assert "'gpu001' was not named; gpu007 was" in refused(case, "--node", "gpu001")
    assert "a PDF is not printed" in refused(case, "--pdf", "--to", "-")
    assert "no answer" in refused("gpu001@1", "--url", "http://127.0.0.1:9")
    calm = shutil.copytree(case, tmp_path / "calm")
    text = (calm / "incident.yaml").read_text().replace(
        f"end: {START + STEP * N_STEPS}", f"end: {START + STEP * 30}"
    )  # fmt: skip
    (calm / "incident.yaml").write_text(text)
    assert "no node was named in 30 evaluations" in refused(calm)
    (calm / "story.json").write_text("{}")
    with pytest.raises(StoryError, match=r"story.json: is not what an export writes"):
        told_beside(calm)
    assert told_beside(case) is None


@pytest.mark.slow
def test_an_incident_of_a_service_with_what_operators_did(
    case: Path, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, operator = make_token(), make_token()
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(entry_line("dashboard", reader, "read") + "\n" + entry_line("kim", operator, "operate"))
    service = start({"recording": {"path": str(case), "speed": 900}, "auth": {"tokens_file": str(tokens)}})
    url = f"http://127.0.0.1:{service.port()}"
    monkeypatch.setenv("ODDNODE_API_TOKEN", operator)

    def named() -> str | None:
        result = CliRunner().invoke(app, ["suspects", "--url", url])
        return FAULTY if FAULTY in result.output else None

    wait_for(named, what=service.text)
    found = CliRunner().invoke(app, ["feedback", "--json", "-", "--url", url, "--end", str(START + 9000)])
    (masked,) = json.loads(found.stdout)["masked"]
    identifier = f"{FAULTY}@{int(masked['onset'])}"
    acked = CliRunner().invoke(app, ["ack", identifier, "--note", "RMA 17 for gpu007", "--url", url])
    assert acked.exit_code == 0, acked.exception
    out = tmp_path / "report.html"
    reported(identifier, "--url", url, "--to", out)
    text = Markup(out.read_text()).text
    assert re.search(r"kim\s*acknowledge incident gpu007@\d+\s*RMA 17 for gpu007", text)
    assert "Verdict and evidence are those of the service; replaying the exported samples" in text
    assert "the service that named it" in text
    assert "<svg" in out.read_text()
    reported(identifier, "--url", url, "--to", out, "--anonymise")
    text = out.read_text()
    assert FAULTY not in text
    assert "kim" not in text
    assert "RMA 17 for node-1" in text
    monkeypatch.setenv("ODDNODE_API_TOKEN", reader)
    reported(identifier, "--url", url, "--to", out)
    text = Markup(out.read_text()).text
    assert "There are no charts: the service: answered 403: " in text
    assert "the token may only read" in text
    assert "pending to suspect" in text
    assert url not in text


def story(**changes: Any) -> Story:
    times = np.arange(40) * 30.0 + T0 - 600
    flat = np.full(40, 60.0)
    trace = Trace(
        Moment("gpu068", T0), "temp{host=gpu068.example.org}", "gpu 3", "hot", 59, times,
        np.where(times < T0, 60.0, 83.0), flat, flat - 4, flat + 4,
    )  # fmt: skip
    item = replace(evidence(), labels={"peer": "gpu012", "host": "gpu068.example.org:9400"})
    item = replace(item, reason="83 where gpu012 and GPU068 have 61")
    named = incident("gpu068", reason="gpu068: hot", evidence=(item,))
    made = Story(
        case="gpu068-nvlink",
        incident=named,
        pieces=(Piece(item, trace),),
        transitions=(moved(named, T0 + 240),),
        actions=(
            AuditEntry(
                at=T0, by="kim", action=Action.ACKNOWLEDGE, subject=f"incident {named.id}", note="by kim"
            ),
        ),
        events=(GroupEvent("e", "train", T0, None, ("gpu012", "7"), ("m",), "2 of 7 nodes, 7 s"),),
        also_named=("gpu0681, later",),
        compared=Compared(T0, T0 + 60, 30, 2, "train", 3, 4, 9, 9, 1, "recorded, gpu068 of rack 1"),
        notes=("<b>note</b>",),
        nodes=("gpu068", "gpu012", "gpu0681", "a/gpu99", "7"),
    )
    return replace(made, **changes)


def test_other_names_are_the_same_everywhere_and_complete() -> None:
    found = anonymised(story())
    assert found.incident.node == "node-1"
    assert found.incident.id == f"node-1@{int(T0)}"
    assert found.case == "node-1-nvlink"
    assert found.incident.evidence[0].reason == "83 where node-4 and node-1 have 61"
    assert found.pieces[0].evidence.labels == {"peer": "node-4", "host": "node-1:9400"}
    assert found.pieces[0].trace is not None
    assert found.pieces[0].trace.metric == "temp{host=node-1}"
    assert found.pieces[0].trace.moment.node == "node-1"
    assert found.also_named == ("node-5, later",), "a longer name is not cut"
    assert found.events[0].nodes == ("node-4", "node-2")
    assert found.events[0].reason == "2 of 7 nodes, 7 s", "a number stays one"
    assert (found.actions[0].by, found.actions[0].note) == ("operator-1", "by operator-1")
    assert found.actions[0].subject == f"incident {found.incident.id}"
    assert found.compared is not None
    assert found.compared.source == "recorded, node-1 of rack 1"
    assert not re.search(r"gpu\d|kim", story_page(found))
    clustered = anonymised(story(notes=("a/gpu99 and gpu99",)))
    assert clustered.notes == ("node-3 and node-3",)


def test_other_names_in_addresses_and_in_names_of_cases() -> None:
    long = "train/" + "gpu" * 40 + "068"
    for node in ("train/gpu068", "rack 1/gpu068", long):
        named = replace(incident(node), id=f"{node}@{int(T0)}")
        notes = (f"the service/v1/incidents/{quote(node, safe='')}@1/export", quote(node), case_name(node))
        found = anonymised(story(incident=named, case=case_name(named.id), notes=notes, nodes=(node,)))
        assert found.case == f"node-1-{int(T0)}"
        assert found.notes == ("the service/v1/incidents/node-1@1/export", "node-1", "node-1")


@pytest.fixture
def clustered(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Yield the address of a service that exports nothing, and an incident of it."""
    store = Store(tmp_path / "oddnode.db")
    named = incident("train/gpu068")
    store.save(Outcome(T0 + 240, incidents=(named,), transitions=(moved(named, T0 + 240),)))
    with served(FakeView(store, latest()), Desk(ControlStore(store), lambda: T0 + 300)) as url:
        yield url, named.id
    store.close()


def test_no_address_in_a_report_names_the_node(clustered: tuple[str, str], tmp_path: Path) -> None:
    url, identifier = clustered
    out = tmp_path / "report.html"
    reported(identifier, "--url", url, "--to", out, "--anonymise")
    text = out.read_text()
    assert "There are no charts: the service: answered 503: exports are not made here" in text
    assert "gpu068" not in text
    assert "train" not in text


def test_a_margin_that_a_service_does_not_take_is_an_error(
    clustered: tuple[str, str], tmp_path: Path
) -> None:
    url, identifier = clustered
    out = tmp_path / "report.html"
    told = refused(identifier, "--url", url, "--to", out, "--before", "99h")
    assert re.search(r"answered 422: before_s: .*less than or equal to 14400", told)
    assert not out.exists()


@pytest.mark.parametrize("at", [1e300, -1e15, 1e18])
def test_times_that_are_in_no_calendar_are_numbers(at: float) -> None:
    item = replace(evidence(), since=at)
    named = incident(active_at=T0, evidence=(item,))
    wild = story(
        incident=replace(named, active_at=at, suspect_at=at, cleared_at=at),
        pieces=(Piece(item, story().pieces[0].trace),),
        transitions=(moved(named, at),),
    )
    assert f"first sign{at:g}" in Markup(story_page(wild)).text


def test_the_page_allows_its_own_style_and_nothing_else() -> None:
    page = story_page(story())
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert (
        f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\""
        in page
    )
    markup = Markup(page)
    assert not markup.tags & {"script", "img", "link", "iframe", "object", "b note"}
    assert not {name for name in markup.attributes if name.startswith("on")} | (
        markup.attributes & {"src", "href", "style"}
    )
    assert "<b>note</b>" in markup.text
    assert 'quote "' in Markup(story_page(story(notes=('quote " newline \n',)))).text


def test_texts_and_rows_are_bounded() -> None:
    long = story(notes=("n" * 100_000,), transitions=tuple(moved(incident(), T0) for _ in range(5000)))
    assert len(story_page(long)) < 200_000
    assert "and 4800 more" in story_page(long)


def test_without_samples_the_rest_is_told() -> None:
    answer = {
        "incident": {
            "id": "a@1", "node": "a", "state": "cleared", "active_at": T0, "suspect_at": T0 + 60,
            "cleared_at": T0 + 900, "last_evidence_at": T0, "healthy_s": 0.0, "peak_score": None, "part": "",
            "reason": "hot", "evidence": [], "acknowledged": None, "dismissed": None,
            "diagnosis": {
                "class": "nvlink", "title": "NVLink", "part": "", "confidence": "likely", "reasons": ["XID"],
                "order": "", "check": "look", "also": ["PCIe"], "role": "", "role_reason": "",
            },
        },
        "transitions": [],
    }  # fmt: skip
    told = told_by_service(answer, [], "1.0")
    text = Markup(story_page(without_samples("a@1", told, ["a"], "the database forgot"))).text
    assert "likely: NVLink" in text
    assert "Check: look" in text
    assert "There are no charts: the database forgot" in text
    assert "the machine as a whole" in text
    for bad in ({}, {"incident": {}}, {"incident": {**answer["incident"], "node": 3}, "transitions": []}):
        with pytest.raises(StoryError, match="not that of an Oddnode service"):
            told_by_service(bad, [], "")


def test_charts_cover_the_whole_recording_without_a_seam(case: Path) -> None:
    catalog = load_catalog()
    done: list[tuple[int, int]] = []
    told = story_of(
        case,
        lambda recording, source: pipeline_for(recording, source, catalog),
        [],
        progress=lambda n, m: done.append((n, m)),
    )
    times = [START + STEP * k for k in range(1, N_STEPS + 1)]
    for piece in told.pieces:
        assert piece.trace is not None
        assert piece.trace.times.tolist() == times
    assert done[-1] == (2 * N_STEPS, 2 * N_STEPS)
    hot = next(piece for piece in told.pieces if piece.evidence.metric == "DCGM_FI_DEV_GPU_TEMP")
    assert hot.trace is not None
    assert hot.trace.part == "gpu 2"
    after = hot.trace.times >= START + STEP * ONSET
    assert hot.trace.value[after].min() > 80 > 70 > hot.trace.value[~after].max()


def test_a_pdf_is_made_and_tells_the_same(tmp_path: Path) -> None:
    pytest.importorskip("weasyprint", exc_type=(ImportError, OSError))  # type: ignore[arg-type]
    made = pdf_of(story_page(story(), for_paper=True))
    assert made.startswith(b"%PDF-")
    (tmp_path / "x.pdf").write_bytes(made)
    if shutil.which("pdftotext") is None:
        pytest.skip("poppler-utils is not installed: what the PDF says is not read")
    text = subprocess.run(
        ["pdftotext", "-layout", tmp_path / "x.pdf", "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "gpu068, gpu 3" in text
    assert "83 where gpu012 and GPU068 have 61" in text
    assert "acknowledge incident" in text


def test_paper_has_light_colours_in_every_drawing() -> None:
    page = story_page(story(), for_paper=True)
    assert "var(" not in page
    assert "prefers-color-scheme" not in page
    assert page.count("<svg") == page.count("<style>") - 1
    assert ".value { fill:none; stroke:#1a56db;" in page


def test_without_the_extra_it_is_said(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(StoryError, match=r"needs the extra pdf: pip install 'oddnode\[pdf\]'"):
        pdf_of("<p>x</p>")


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        (2, ["12-31 23:59:00", "23:59:30", "01-01 00:00:00", "00:00:30", "00:01:00"]),
        (45, ["12-31 23:40", "23:50", "01-01 00:00", "00:10", "00:20"]),
        (60 * 30, ["12-31 12:00", "18:00", "01-01 00:00", "06:00", "12:00"]),
        (
            60 * 24 * 60,
            ["12-08 00:00", "12-18 00:00", "12-28 00:00", "01-07 00:00", "01-17 00:00", "01-27 00:00"],
        ),
    ],
)
def test_axes_tell_round_times_of_day(minutes: int, told: list[str]) -> None:
    midnight = 1_767_225_600.0
    ticks = time_ticks(midnight - minutes * 30, midnight + minutes * 30)
    assert [text for _, text in ticks] == told
    assert all(midnight - minutes * 30 <= at <= midnight + minutes * 30 for at, _ in ticks)

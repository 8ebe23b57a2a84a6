"""The console in headless Chromium: first view, weight, and memory over an hour of live updates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.console_case import asked, cluster_of, served, wait_for, write_incident
from benchmarks.report import Row
from simulator.config import ClusterConfig

CHROMIUM = Path("/usr/bin/chromium")
FIRST_VIEW_S = {63: 1.0, 1000: 2.0}
MOST_KB = 400.0
MOST_GROWTH = 1.01
"""Of heap and document, between two readings of the very same content: there is nothing that may grow."""

MOST_WITH_CODE = 1.1
"""Of the heap as a whole: the engine goes on compiling what runs often, and keeps that."""

HELD_TYPES = frozenset(
    ("object", "array", "string", "concatenated string", "sliced string", "number", "closure", "regexp")
)
"""Kinds of nodes of a heap snapshot that scripts hold: all but compiled code and the browser's own."""

WARM = 20
"""Redraws of all pages before they are compared, so that the engine has compiled what it will."""

READINGS = 6

HELD = """function () {
    return this.filter((one) => one.classList?.contains("uplot") && !one.isConnected).length;
}"""

SEEN = """
const look = () => {
    const heat = document.querySelector("#heat")?.getAttribute("aria-label");
    if (heat && document.querySelector("#suspects article, #suspects .good")) {
        requestAnimationFrame(() => setTimeout(() => { window.seenMs = performance.now(); }));
    } else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
"""Tells when suspects and heat map were painted, counted from the start of the navigation."""

WHEN_SEEN = """new Promise((done) => {
    const look = () => (window.seenMs ? done(window.seenMs) : setTimeout(look, 50));
    look();
})"""

CHARTS = """
const look = () => {
    const plots = document.querySelectorAll("figure canvas").length;
    if (plots && plots === document.querySelectorAll("figure").length) {
        requestAnimationFrame(() => setTimeout(() => { window.seenMs = performance.now(); }));
    } else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def console_rows(
    sizes: Sequence[int] = (63, 1000), *, rounds: int = 7, minutes: int = 60, redraws: int = 120
) -> Iterator[Row]:
    """Measure the pages on simulated incidents, and yield the table.

    Parameters
    ----------
    sizes
        Numbers of nodes.
    rounds
        Loads of each page, each with an empty cache.
    minutes
        Time of the recording over which memory is measured, with the first size.
    redraws
        Redraws of one and the same state after it.
    """
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for n_nodes in sizes:
            config, case = cluster_of(n_nodes), Path(folder) / str(n_nodes)
            case.mkdir()
            write_incident(case, config, 25)
            yield from _first_views(browser, case, config, rounds)
        config, case = cluster_of(sizes[0]), Path(folder) / "hour"
        case.mkdir()
        write_incident(case, config, minutes)
        yield from _hour(browser, case, config, minutes, redraws)
        browser.close()


def _first_views(browser: Browser, case: Path, config: ClusterConfig, rounds: int) -> Iterator[Row]:
    end = config.start + 25 * 60
    with served(case, at=end) as url:
        wait_for(lambda: asked(f"{url}/v1/recording")["recording"]["last_at"] == end)
        suspects = [item["node"] for item in asked(f"{url}/v1/suspects")["suspects"]]
        n_series = asked(f"{url}/v1/fleet")["n_series"]
        shape = f"{config.n_nodes} nodes, {n_series} series, {len(suspects)} suspects, {rounds} loads"
        loads = [_load(browser, url, SEEN) for _ in range(rounds + 1)][1:]
        yield _time("first view of the page Now", shape, loads, FIRST_VIEW_S.get(config.n_nodes))
        yield _weight("- weight, nothing in the cache", shape, loads)
        if suspects:
            loads = [_load(browser, f"{url}/nodes/{suspects[0]}", CHARTS) for _ in range(rounds)]
            yield _time("first view of a suspect's page, charts drawn", shape, loads, None)
            yield _weight("- weight, nothing in the cache", shape, loads)


def _load(browser: Browser, url: str, seen: str) -> tuple[float, float]:
    """Return seconds until the page was seen, and its bytes."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    n_bytes = 0.0

    def loaded(event: dict[str, Any]) -> None:
        nonlocal n_bytes
        n_bytes += event["encodedDataLength"]

    session = context.new_cdp_session(page)
    session.on("Network.loadingFinished", loaded)
    session.send("Network.enable")
    page.add_init_script(seen)
    page.goto(url, wait_until="commit")
    took = float(page.evaluate(WHEN_SEEN)) / 1000
    page.wait_for_timeout(300)
    context.close()
    return took, n_bytes


def _time(what: str, shape: str, loads: list[tuple[float, float]], most: float | None) -> Row:
    took = [seconds for seconds, _ in loads]
    target = ("", None) if most is None else (f"< {most:g} s", median(took) < most)
    return Row(what, shape, f"{median(took):.2f} s, worst {max(took):.2f} s", *target)


def _weight(what: str, shape: str, loads: list[tuple[float, float]]) -> Row:
    kb = max(n_bytes for _, n_bytes in loads) / 1000
    return Row(what, shape, f"{kb:.0f} kB", f"< {MOST_KB:g} kB", kb < MOST_KB)


def _hour(browser: Browser, case: Path, config: ClusterConfig, minutes: int, redraws: int) -> Iterator[Row]:
    """Leave the pages Now and of a node open while a recording is played, one evaluation a second.

    What a page shows grows with the incident. So it is compared when the recording is over and all stays as
    it is: with a page opened then, and with itself after many redraws more.
    """
    # the first evaluations come at once: what is measured begins with a page that has something to show
    with served(case, speed=config.step_s, at=config.start + 300) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        paths = {"Now": "/", "of a node": f"/nodes/{config.node_names[1]}"}
        asks = dict.fromkeys(paths, 0)
        pages = {}
        for name, path in paths.items():
            page = pages[name] = context.new_page()
            page.on("request", _counter(asks, name, "/v1/fleet" if name == "Now" else "/v1/explain"))
            page.on("pageerror", _fail)
            page.goto(url + path)
        end = config.start + minutes * 60
        while asked(f"{url}/v1/recording")["recording"]["last_at"] < end:
            pages["Now"].wait_for_timeout(1000)
        pages["Now"].wait_for_timeout(5000)  # what came last is drawn
        hour = dict(asks)
        anew = {name: context.new_page() for name in paths}
        for name, path in paths.items():
            anew[name].goto(url + path)
        quiet = config.node_names[-1]
        _redraw(url, quiet, min(WARM, redraws), pages["Now"])
        before = {name: _reading(page) for name, page in pages.items()}
        fresh = {name: _reading(page) for name, page in anew.items()}
        warmed = dict(asks)
        _redraw(url, quiet, redraws, pages["Now"])
        for name, page in pages.items():
            after, opened, was = _reading(page), fresh[name], before[name]
            shape = f"{config.n_nodes} nodes, {minutes} min, {hour[name]} redraws"
            against = f"{name}, open / opened just now"
            yield _grown(f"what scripts hold, {against}", shape, opened.held_mb, was.held_mb, " MB")
            yield _grown(f"- nodes of the document, {against}", shape, opened.n_nodes, was.n_nodes)
            shape = f"{asks[name] - warmed[name]} redraws of one state"
            against = f"{name}, after / before"
            yield _grown(f"- what scripts hold, {against}", shape, was.held_mb, after.held_mb, " MB")
            yield _grown(f"- nodes of the document, {against}", shape, was.n_nodes, after.n_nodes)
            what = f"- heap with compiled code, {against}"
            yield _grown(what, shape, was.heap_mb, after.heap_mb, " MB", most=MOST_WITH_CODE)
            # while a page is drawn, the charts of before are there
            held = min(_held_charts(page) for _ in range(READINGS))
            what = f"- charts of before that are still held, {name}"
            yield Row(what, f"{asks[name]} redraws", str(held), "none", held == 0)
        context.close()


def _grown(
    what: str, shape: str, before: float, after: float, unit: str = "", *, most: float = MOST_GROWTH
) -> Row:
    ratio = after / before
    return Row(what, shape, f"{ratio:.3f} ({before:.4g} to {after:.4g}{unit})", f"< {most:g}", ratio < most)


@dataclass(frozen=True, slots=True)
class _Reading:
    held_mb: float
    heap_mb: float
    n_nodes: float


def _redraw(url: str, node: str, n: int, page: Page) -> None:
    """Change something as an operator and take it back: pages are told, and draw again what they drew."""
    for _ in range(n // 2):
        mute = asked(f"{url}/v1/mutes", {"node": node, "for_s": 86400, "reason": "to be drawn"})["mute"]
        page.wait_for_timeout(1200)  # longer than it takes the service to look what has changed
        asked(f"{url}/v1/mutes/{mute['id']}", method="DELETE")
        page.wait_for_timeout(1200)
    page.wait_for_timeout(3000)


def _reading(page: Page) -> _Reading:
    """Read what a page takes after forced collections, the least of some readings."""
    found = []
    for _ in range(READINGS):
        found.append((_heap_mb(page), float(_elements(page))))
        page.wait_for_timeout(300)
    return _Reading(_held_mb(page), min(heap for heap, _ in found), min(nodes for _, nodes in found))


def _held_mb(page: Page) -> float:
    """Return megabytes of all that scripts hold, by a snapshot of the heap."""
    session, pieces = page.context.new_cdp_session(page), []
    session.on("HeapProfiler.addHeapSnapshotChunk", lambda event: pieces.append(event["chunk"]))
    session.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
    session.detach()
    taken = json.loads("".join(pieces))
    fields, types = (taken["snapshot"]["meta"][key] for key in ("node_fields", "node_types"))
    kind, size, n = fields.index("type"), fields.index("self_size"), len(fields)
    nodes = taken["nodes"]
    return (
        sum(
            n_bytes
            for of, n_bytes in zip(nodes[kind::n], nodes[size::n], strict=True)
            if types[kind][of] in HELD_TYPES
        )
        / 1e6
    )


def _counter(asks: dict[str, int], name: str, path: str) -> Any:
    def count(request: Any) -> None:
        asks[name] += path in request.url

    return count


def _fail(error: Any) -> None:
    raise RuntimeError(f"a page failed: {error}")


def _heap_mb(page: Page) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6
    session.detach()
    return used


def _held_charts(page: Page) -> int:
    """Count charts that are alive after a collection and no part of the page any more."""
    session = page.context.new_cdp_session(page)
    session.send("Runtime.enable")
    session.send("HeapProfiler.collectGarbage")
    prototype = session.send("Runtime.evaluate", {"expression": "HTMLDivElement.prototype"})["result"]
    found = session.send("Runtime.queryObjects", {"prototypeObjectId": prototype["objectId"]})["objects"]
    asked_for = {"objectId": found["objectId"], "functionDeclaration": HELD, "returnByValue": True}
    held = int(session.send("Runtime.callFunctionOn", asked_for)["result"]["value"])
    session.detach()
    return held


def _elements(page: Page) -> int:
    session = page.context.new_cdp_session(page)
    found = int(session.send("Memory.getDOMCounters")["nodes"])
    session.detach()
    return found

"""The console in headless Chromium: first view, weight, and memory over an hour of live updates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
MOST_GROWTH = 1.1
"""Of the heap and of the document, from the second quarter of the hour to the last. Snapshots after forced
collections show what it is: code that the engine compiles, and points of charts, which begin before the onset
and have 120 at most. That no chart of before is held is measured by itself."""

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


def console_rows(sizes: Sequence[int] = (63, 1000), *, rounds: int = 7, minutes: int = 60) -> Iterator[Row]:
    """Measure the pages on simulated incidents, and yield the table.

    Parameters
    ----------
    sizes
        Numbers of nodes.
    rounds
        Loads of each page, each with an empty cache.
    minutes
        Time of the recording over which memory is measured, with the first size.
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
        yield from _hour(browser, case, config, minutes)
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


def _hour(browser: Browser, case: Path, config: ClusterConfig, minutes: int) -> Iterator[Row]:
    """Leave the pages Now and of a node open while a recording is played, one evaluation a second."""
    n = minutes * 2
    # the first evaluations come at once: what is measured begins with a page that has something to show
    with served(case, speed=config.step_s, at=config.start + 300) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        pages = {"Now": context.new_page(), "of a node": context.new_page()}
        asks = dict.fromkeys(pages, 0)
        for name, page in pages.items():
            page.on("request", _counter(asks, name, "/v1/fleet" if name == "Now" else "/v1/explain"))
            page.on("pageerror", _fail)
        faulty = config.node_names[1]
        pages["Now"].goto(url)
        pages["of a node"].goto(f"{url}/nodes/{faulty}")
        kept: dict[str, list[tuple[float, float]]] = {name: [] for name in pages}
        end = config.start + minutes * 60
        last = 0.0
        while last < end:
            time.sleep(2.0)
            last = asked(f"{url}/v1/recording")["recording"]["last_at"]
            for name, page in pages.items():
                kept[name].append((_heap_mb(page), _elements(page)))
        for name, page in pages.items():
            held = min(
                _held_charts(page) for _ in range(10)
            )  # while a page is drawn, those of before are there
            what = f"charts of before that are still held, {name}"
            yield Row(what, f"{asks[name]} redraws", str(held), "none", held == 0)
        for name, found in kept.items():
            shape = f"{config.n_nodes} nodes, {n} evaluations ({minutes} min), {asks[name]} redraws"
            for what, unit, values in (
                (f"heap of the page {name}", " MB", [heap for heap, _ in found]),
                (f"- nodes of its document, {name}", "", [elements for _, elements in found]),
            ):
                quarter = len(values) // 4
                second, newest = median(values[quarter : 2 * quarter]), median(values[-quarter:])
                yield Row(
                    f"{what}, last quarter / second",
                    shape,
                    f"{newest / second:.2f} ({second:.4g} to {newest:.4g}{unit})",
                    f"< {MOST_GROWTH:g}",
                    newest / second < MOST_GROWTH,
                )
        context.close()


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

"""Screenshots of every page of the console, light and dark, wide and as on a phone.

    python -m scripts.screenshots OUT [--case FOLDER | --url URL | --nodes N]

Plays a recording (the shipped one by default, or a simulated one of N nodes) to its end, or looks at a service that
runs already. Needs Debian's chromium and the dev dependencies.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from benchmarks.console_case import asked, cluster_of, served, wait_for, write_incident
from detector.source.incident_file import load_recording

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = "/usr/bin/chromium"
DOCS = "docs"
SIZES = {"wide": (1280, 800, 1.0), "phone": (390, 844, 1.0), DOCS: (1280, 1270, 0.7)}
"""Width, height and scale; pictures for `docs/images` are smaller and show what is on top."""

MINUTES = 25
TRIED = {"detection.z_threshold": 20, "detection.clear_after_s": 120}
"""Settings that the page Tune is to show the effect of."""


def try_settings(url: str) -> None:
    """Let the service try other settings on all of what was played, and wait for what comes of it."""
    most = asked(f"{url}/v1/what-if")["max_hours"]
    asked(f"{url}/v1/what-if", {"changes": TRIED, "hours": min(1.0, most)})
    wait_for(lambda: asked(f"{url}/v1/what-if")["run"]["state"] != "running")


def shoot(
    browser: Browser, url: str, out: Path, mark: str = "", sizes: Mapping[str, tuple[int, int, float]] = SIZES
) -> None:
    """Take all pictures; a mark tells those of one cluster from those of another."""
    suspect = asked(f"{url}/v1/suspects")["suspects"][0]
    pages = {
        "now": "/",
        "node": f"/nodes/{suspect['node']}",
        "tune": "/tune",
        "incidents": "/incidents",
        "incident": f"/incidents/{suspect['incident_id']}",
    }
    played = asked(f"{url}/v1/recording")["recording"]
    if played is not None:
        pages["back"] = f"{pages['node']}?at={suspect['since'] + 5 * played['step_s']:.0f}"
    for size, (width, height, scale) in sizes.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=scale
            )
            for name, path in pages.items():
                page = context.new_page()
                page.goto(url + path)
                page.wait_for_selector(".line.live, .line.poor", timeout=120_000)
                expect(page.get_by_text("loading", exact=True)).to_have_count(0, timeout=120_000)
                page.wait_for_timeout(500)
                if size == DOCS:
                    shade = "" if scheme == "light" else "-dark"
                    page.screenshot(path=out / f"console-{name}{mark}{shade}.png")
                else:
                    page.screenshot(path=out / f"{name}{mark}-{size}-{scheme}.png", full_page=True)
                page.close()
            context.close()


def shoot_case(case: Path, browser: Browser, out: Path, mark: str = "") -> None:
    """Take the pictures of a recording, as of its end."""
    end = load_recording(case).end
    with served(case, at=end) as url:
        wait_for(lambda: asked(f"{url}/v1/recording")["recording"]["last_at"] > end - 120)
        try_settings(url)
        shoot(browser, url, out, mark)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--case", type=Path, default=ROOT / "replay_data" / "gpu068-nvlink")
    which.add_argument("--url", help="a service that runs already")
    which.add_argument("--nodes", type=int, help="simulate a cluster of so many nodes, three of them faulty")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        if given.url:
            shoot(browser, given.url.rstrip("/"), given.out)
        elif given.nodes:
            write_incident(Path(folder), cluster_of(given.nodes), MINUTES)
            shoot_case(Path(folder), browser, given.out, f"-{given.nodes}")
        else:
            shoot_case(given.case, browser, given.out)
        browser.close()
    print(f"pictures are in {given.out}")


if __name__ == "__main__":
    main()

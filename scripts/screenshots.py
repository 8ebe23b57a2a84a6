"""Screenshots of every page of the console, light and dark, wide and as on a phone.

    python -m scripts.screenshots OUT [--case FOLDER] [--url URL]

Plays a recording (the shipped one by default) until a node is suspect, or looks at a service that runs already.
Needs Debian's chromium and the dev dependencies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = "/usr/bin/chromium"
SIZES = {"wide": (1280, 800), "phone": (390, 844)}
WAIT_S = 300


@contextmanager
def played(case: Path) -> Iterator[str]:
    """Run the service on a recording, yield its address once a node is suspect and the recording is over."""
    with tempfile.TemporaryDirectory(prefix="oddnode-shots-") as folder:
        log = Path(folder) / "log"
        settings = Path(folder) / "settings.yaml"
        settings.write_text(
            json.dumps(
                {
                    "recording": {"path": str(case), "speed": 300},
                    "http": {"port": 0},
                    "store": {"path": f"{folder}/oddnode.db"},
                }
            )
        )
        program = "import sys; from pathlib import Path; from detector.app import serve; from detector.settings import load_settings; sys.exit(serve(load_settings(Path(sys.argv[1]))))"
        with log.open("w") as out:
            process = subprocess.Popen([sys.executable, "-c", program, str(settings)], cwd=ROOT, stderr=out)
        try:
            yield _ready(process, log)
        finally:
            process.terminate()
            process.wait(30)


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + WAIT_S
    url = ""
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.5)
        found = [line for line in log.read_text().splitlines() if "listening url=" in line]
        url = found[0].split("url=")[1].split()[0] if found else ""
        if url and "the recording has ended" in str(asked(f"{url}/readyz")["notes"]):
            return url
    raise SystemExit(f"the recording was not played to its end: {log.read_text()[-500:]}")


def asked(url: str) -> Any:
    """GET as JSON, errors included."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def tried(url: str) -> None:
    """Try a setting, so that the page Tune has something to show."""
    body = json.dumps({"changes": {"detection.z_threshold": 20, "detection.clear_after_s": 120}, "hours": 1})
    request = urllib.request.Request(
        f"{url}/v1/what-if", body.encode(), {"Content-Type": "application/json"}, method="POST"
    )
    urllib.request.urlopen(request, timeout=10).close()
    while asked(f"{url}/v1/what-if")["run"]["state"] == "running":
        time.sleep(0.5)


def shoot(browser: Browser, url: str, out: Path) -> None:
    """Take all pictures."""
    suspect = asked(f"{url}/v1/suspects")["suspects"][0]
    pages = {
        "now": "/",
        "node": f"/nodes/{suspect['node']}",
        "tune": "/tune",
        "incidents": "/incidents",
        "incident": f"/incidents/{suspect['incident_id']}",
    }
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1
            )
            for name, path in pages.items():
                page = context.new_page()
                page.goto(url + path)
                page.wait_for_selector(".line.live, .line.poor", timeout=120_000)
                expect(page.get_by_text("loading", exact=True)).to_have_count(0, timeout=120_000)
                page.wait_for_timeout(500)
                page.screenshot(path=out / f"{name}-{size}-{scheme}.png", full_page=True)
                if size == "wide" and scheme == "light":
                    page.screenshot(path=out / f"console-{name}.png")  # as in docs/images
                page.close()
            context.close()


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--case", type=Path, default=ROOT / "replay_data" / "gpu068-nvlink")
    parser.add_argument("--url", help="a service that runs already")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        if given.url:
            shoot(browser, given.url.rstrip("/"), given.out)
        else:
            with played(given.case) as url:
                tried(url)
                shoot(browser, url, given.out)
        browser.close()
    print(f"pictures are in {given.out}")


if __name__ == "__main__":
    main()

"""The documentation site: generated pages are up to date, every page is reachable, examples work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from detector.telemetry import Telemetry
from grouping.catalog import load_catalog
from tests import servers
from tests.scripts import script
from tests.test_docs import blocks

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OPTIONAL = {"security.md", "control.md", "delivery.md"}


def test_the_catalog_reference_is_what_the_catalog_says() -> None:
    module = script("catalog_reference")
    catalog = load_catalog(ROOT / "metric_catalog.yaml")
    text = module.page(catalog)
    assert (DOCS / "catalog.md").read_text(encoding="utf-8") == text, "run scripts/catalog_reference.py"
    for spec in catalog.specs:
        assert text.count(f"| `{spec.name}` |") == 1, spec.name


def test_the_reference_of_own_metrics_is_what_the_service_has() -> None:
    module = script("metrics_reference")
    alerted = module.alerts()
    text = module.page(Telemetry(), alerted)
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == text, "run scripts/metrics_reference.py"
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `oddnode_")}
    assert set(alerted) <= set(rows)
    for name, names in alerted.items():
        for alert in names:
            assert f"(runbooks/{alert}.md)" in rows[name]


def pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        ((_, what),) = entry.items()
        if isinstance(what, list):
            yield from pages(what)
        else:
            yield what


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages(YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"]))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert len(set(listed)) == len(listed)
    assert set(listed) - OPTIONAL <= there <= set(listed)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is in the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "fonts.googleapis" not in home, "nothing is loaded from other hosts"
    for page in ("runbooks/OddnodeDown", "catalog", "project/SECURITY", "project/benchmarks/RESULTS"):
        assert (tmp_path / "site" / page / "index.html").exists(), page
    page = (tmp_path / "site" / "operations" / "index.html").read_text(encoding="utf-8")
    assert 'href="../project/benchmarks/RESULTS/"' in page


def test_the_overlay_in_the_tuning_page_does_what_it_says(tmp_path: Path) -> None:
    (overlay,) = blocks((DOCS / "tuning.md").read_text(encoding="utf-8"), "yaml")
    path = tmp_path / "overlay.yaml"
    path.write_text(overlay, encoding="utf-8")
    plain, laid = load_catalog(), load_catalog(overlays=[path])
    assert set(plain.by_name) - set(laid.by_name) == {"node_load1"}
    assert laid.by_name["node_netstat_Tcp_RetransSegs"].floor_abs == 20
    assert plain.by_name["node_netstat_Tcp_RetransSegs"].floor_abs != 20


@pytest.mark.server
def test_the_scrape_example_is_taken(tmp_path: Path) -> None:
    (example,) = blocks((DOCS / "monitoring.md").read_text(encoding="utf-8"), "yaml")
    with servers.prometheus(tmp_path, example) as server:
        assert servers.answers(server.port, "/-/ready")

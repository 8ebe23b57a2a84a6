"""Make docs/catalog.md from metric_catalog.yaml: `python scripts/catalog_reference.py` writes it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from grouping.catalog import Catalog, load_catalog
from grouping.model import MetricSpec

LASTING = 0.3
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "catalog.md"
HEAD = """# Metric catalog

<!-- Made by scripts/catalog_reference.py from metric_catalog.yaml; a test compares them. -->

What Oddnode compares: {n} metrics of {exporters} exporters. `oddnode catalog check` says which of them a database has. The file itself is
[metric_catalog.yaml](../metric_catalog.yaml); `catalog.path` and `catalog.overlays` in the [settings](settings.md) change it.

| column | meaning |
|---|---|
| kind | how it is read: {kinds} |
| unit | comparison unit: what is compared with its peers |
| worse | the side that is for the worse; deviations to the other side are ignored |
| smallest spread | peers are given at least this spread, in the metric's own unit (per second for counters), or this share of their median, the larger of the two |
| weight | share of a full vote that a deviation from the peers has; 0 is shown and never counted |
| fault | what of it is a direct signal: when it counts without peers, and how severe it is |
| besides | `trend`: growth over hours and days is compared too; `twin`: a metric of another exporter that must agree; `nodes`: means over a node's parts are compared as well; `lasting`: this share of the smallest spread holds for what lasts for minutes, in place of {lasting:g} |

| monitored target | metrics |
|---|---|
"""


def _fault(spec: MetricSpec) -> str:
    fault = spec.fault
    return "" if fault is None else f"{fault.on}, {fault.severity.value}"


def _besides(spec: MetricSpec) -> str:
    words = []
    if spec.trend is not None:
        words.append("trend")
    if spec.twin:
        words.append(f"twin `{spec.twin}`")
    if "node" in spec.compare and spec.unit != "node":
        words.append("nodes")
    if spec.floor_lasting != LASTING:
        words.append(f"lasting {spec.floor_lasting:g}")
    return ", ".join(words)


def _row(spec: MetricSpec) -> str:
    floor = f"{spec.floor_abs:g} or {100 * spec.floor_rel:g} %"
    direction = spec.direction.value
    cells = [
        f"`{spec.name}`", spec.kind.value, spec.unit, spec.measure, "" if direction == "both" else direction, floor,
        f"{spec.weight:g}", _fault(spec), _besides(spec),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def page(catalog: Catalog) -> str:
    """Return the page: a table per exporter and target, metrics in the catalog's order."""
    specs = sorted(catalog.specs, key=lambda spec: (spec.exporter, spec.target))
    text = HEAD.format(
        n=len(specs),
        lasting=LASTING,
        exporters=len({spec.exporter for spec in specs}),
        kinds=", ".join(
            f"`{kind.value}` ({count})" for kind, count in sorted(catalog.counts_by_kind().items())
        ),
    )
    text += "".join(
        f"| {target} | {count} |\n" for target, count in sorted(catalog.counts_by_target().items())
    )
    for (exporter, target), group in groupby(specs, key=lambda spec: (spec.exporter, spec.target)):
        text += f"\n## {target}: {exporter}\n\n"
        text += "| name | kind | unit | measure | worse | smallest spread | weight | fault | besides |\n"
        text += "|---|---|---|---|---|---|---|---|---|\n"
        text += "".join(_row(spec) for spec in group)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(load_catalog(ROOT / "metric_catalog.yaml")), encoding="utf-8")

"""A user's own catalog files: what they may say, and how they are told what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grouping.catalog import CatalogError, load_catalog
from grouping.catalog_yaml import MAX_FILE_BYTES, parse_document
from grouping.model import Kind

ENTRY = (
    "name: my_metric, exporter: mine, target: Other, unit: node, kind: gauge, measure: value, floor_abs: 1"
)

BASE = """
metrics:
- {name: node_load1, exporter: a, target: CPU, unit: node, kind: gauge, measure: count, floor_abs: 1,
   aliases: [load]}
"""


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str | bytes, name: str = "site.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def message(path: Path, overlays: list[Path] | None = None) -> str:
    with pytest.raises(CatalogError) as caught:
        load_catalog(path, overlays or ())
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_catalog_of_one(write) -> None:
    catalog = load_catalog(write(f"version: 1\nmetrics:\n- {{{ENTRY}}}\n"))
    (spec,) = catalog.specs
    assert (spec.name, spec.kind, spec.floor_abs, spec.floor_rel) == ("my_metric", Kind.GAUGE, 1.0, 0.0)


def test_fields_come_from_the_nearest_place(write) -> None:
    text = """
defaults: {floor_abs: 1, weight: 0.1, exporter: none}
exporters: {mine: {weight: 0.2, ignore: [pod]}}
units: {gpu: {part: [gpu], weight: 0.3}}
groups:
- group: a
  exporter: mine
  target: GPU
  unit: gpu
  kind: gauge
  measure: value
  metrics:
  - {name: from_unit}
  - {name: from_entry, weight: 0.5, ignore: []}
- group: b
  exporter: mine
  target: GPU
  unit: gpu
  kind: gauge
  measure: value
  weight: 0.4
  metrics:
  - {name: from_group}
"""
    catalog = load_catalog(write(text))
    weights = {spec.name: spec.weight for spec in catalog.specs}
    assert weights == {"from_unit": 0.3, "from_entry": 0.5, "from_group": 0.4}
    assert catalog.by_name["from_unit"].ignore == ("pod",)
    assert catalog.by_name["from_entry"].ignore == ()


def test_an_overlay_adds_overrides_and_disables(write) -> None:
    overlay = write(f"""
metrics:
- {{{ENTRY}}}
override:
- {{name: node_load1, floor_abs: 7, direction: above}}
disable: [all_smi_gpu_utilization, up]
""")
    base, changed = load_catalog(), load_catalog(overlays=[overlay])
    assert len(changed.specs) == len(base.specs) + 1 - 2
    assert changed.by_name["node_load1"].floor_abs == 7
    assert changed.by_name["node_load1"].unit == base.by_name["node_load1"].unit
    assert "up" not in changed.by_name
    assert changed.by_name["DCGM_FI_DEV_GPU_UTIL"].twin is None
    assert base.by_name["DCGM_FI_DEV_GPU_UTIL"].twin == "all_smi_gpu_utilization"


def test_an_overlay_may_use_what_the_shipped_units_say(write) -> None:
    overlay = write(
        "metrics:\n"
        "- {name: my_gpu, exporter: dcgm, target: GPU, unit: gpu, kind: gauge, measure: x, floor_abs: 1}\n"
    )
    spec = load_catalog(overlays=[overlay]).by_name["my_gpu"]
    assert spec.part == ("gpu",)
    assert "UUID" in spec.ignore


def test_an_overlay_replaces_everything(write) -> None:
    overlay = write(f"replace: true\nmetrics:\n- {{{ENTRY}}}\n")
    assert [spec.name for spec in load_catalog(overlays=[overlay]).specs] == ["my_metric"]


def test_a_disabled_metric_can_be_defined_anew(write) -> None:
    first = write("disable: [node_load1]\n", "one.yaml")
    entry = ENTRY.replace("my_metric", "node_load1")
    second = write(f"metrics:\n- {{{entry}}}\n", "two.yaml")
    assert load_catalog(overlays=[first, second]).by_name["node_load1"].exporter == "mine"


BAD_ENTRIES = [
    ("name: my_metric, flor_abs: 1", "field 'flor_abs'", "is unknown"),
    ("exporter: mine", "field 'name'", "is missing"),
    (f"{ENTRY}, trend: up", "my_metric: field 'trend'", "one of"),
    (ENTRY.replace("gauge", "counter") + ", trend: below", "my_metric: field 'trend'", "but rise"),
    (
        ENTRY.replace("gauge", "state") + ", trend: above, fault: {on: value, healthy: [1], severity: error}",
        "my_metric: field 'trend'",
        "kind is state",
    ),
    ("name: my metric", "field 'name'", "not a metric name"),
    (ENTRY.replace("kind: gauge", "kind: gage"), "my_metric: field 'kind'", "one of gauge, counter"),
    (ENTRY.replace("target: Other", "target: Gpu"), "my_metric: field 'target'", "must be one of"),
    (ENTRY.replace("floor_abs: 1", "floor_abs: -1"), "my_metric: field 'floor_abs'", "must be 0 or more"),
    (ENTRY.replace("floor_abs: 1", "floor_abs: .inf"), "my_metric: field 'floor_abs'", "must be 0 or more"),
    (ENTRY.replace("floor_abs: 1", "floor_abs: .nan"), "my_metric: field 'floor_abs'", "not NaN"),
    (
        ENTRY.replace("floor_abs: 1", "floor_abs: many"),
        "my_metric: field 'floor_abs'",
        "must be a number, not 'many'",
    ),
    (ENTRY.replace("floor_abs: 1", "floor_abs: true"), "my_metric: field 'floor_abs'", "must be a number"),
    (ENTRY.replace(", floor_abs: 1", ""), "my_metric: field 'floor_abs'", "is missing"),
    (ENTRY.replace(", measure: value", ""), "my_metric: field 'measure'", "is missing"),
    (ENTRY + ", role: device", "my_metric: field 'role'", "must be a list"),
    (ENTRY + ", role: [1]", "my_metric: field 'role'", "must be a string"),
    (ENTRY + ", role: [a-b]", "my_metric: field 'role'", "not a label name"),
    (ENTRY + ", role: [a, a]", "my_metric: field 'role'", "twice"),
    (ENTRY + ", part: ['a|']", "my_metric: field 'part'", "not a label name"),
    (ENTRY + ", compare: []", "my_metric: field 'compare'", "at least one"),
    (ENTRY + ", compare: [some]", "my_metric: field 'compare'", "one of all, slot, node"),
    (ENTRY + ", compare: [slot]", "my_metric: field 'compare'", "part names no label"),
    (ENTRY + ", weight: 1.5", "my_metric: field 'weight'", "between 0 and 1"),
    (ENTRY + ", activity: 1", "my_metric: field 'activity'", "true or false"),
    (ENTRY + ", role: [pod], ignore: [pod]", "my_metric: field 'ignore'", "part or the role"),
    (ENTRY + ", sum_over: [pod], ignore: [pod]", "my_metric: field 'sum_over'", "'pod'"),
    (ENTRY + ", reduce: sum", "my_metric: field 'reduce'", "sum_over"),
    (ENTRY + ", counter_bits: 32", "my_metric: field 'counter_bits'", "for counters"),
    (ENTRY.replace("gauge", "counter") + ", counter_bits: 16", "my_metric: field 'counter_bits'", "32 or 64"),
    (ENTRY.replace("gauge", "counter") + ", wrap_scale: 0", "my_metric: field 'wrap_scale'", "more than 0"),
    (ENTRY + ", valid_min: 2, valid_max: 1", "my_metric: field 'valid_min'", "not below"),
    (ENTRY + ", twin: nobody", "my_metric: field 'twin'", "names nobody"),
    (ENTRY + ", twin: my_metric", "my_metric: field 'twin'", "the metric itself"),
    (ENTRY + ", aliases: [node_load1]", "my_metric: field 'aliases'", "belongs to node_load1"),
    (ENTRY.replace("gauge", "state"), "my_metric: field 'fault'", "is missing: kind is state"),
    (
        ENTRY + ", fault: {on: value, severity: error}",
        "my_metric: field 'fault'",
        "for error_counter and state",
    ),
    (
        ENTRY.replace("gauge", "state") + ", fault: {on: rise, severity: error}",
        "my_metric: field 'fault'",
        "must be value or change",
    ),
    (
        ENTRY.replace("gauge", "state") + ", fault: {on: value, severity: error}",
        "my_metric: field 'fault'",
        "healthy",
    ),
    (
        ENTRY.replace("gauge", "state") + ", fault: {on: value}",
        "my_metric: field 'fault'",
        "lacks 'severity'",
    ),
    (
        ENTRY.replace("gauge", "state") + ", fault: {on: value, severity: bad, healthy: [1]}",
        "my_metric: field 'fault.severity'",
        "one of critical, error",
    ),
    (
        ENTRY.replace("gauge", "state")
        + ", fault: {on: change, severity: error, severities: {error: [1], warning: [1]}}",
        "my_metric: field 'fault.severities.warning'",
        "second severity",
    ),
    (ENTRY.replace("my_metric", "node_load1"), "node_load1", "is already defined in"),
    (ENTRY.replace("my_metric", "load"), "load", "is already defined in"),
]


@pytest.mark.parametrize(
    ("entry", "place", "problem"), BAD_ENTRIES, ids=[b[1] + "-" + b[2][:20] for b in BAD_ENTRIES]
)
def test_errors_name_file_line_entry_and_field(write, entry: str, place: str, problem: str) -> None:
    overlay = write(f"# a comment\nmetrics:\n\n- {{{entry}}}\n")
    text = message(write(BASE, "base.yaml"), [overlay])
    assert text.startswith(f"{overlay}, line 4: ")
    assert place in text
    assert problem in text


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("metrics: [\n", 2, "is not YAML"),
        ("a: 1\n b: 2\n", 2, "is not YAML"),
        ("- 1\n", 1, "must be a mapping, not a list"),
        ("just words\n", 1, "must be a mapping"),
        ("metrics: 3\n", 1, "must be a list, not '3'"),
        ("version: 1\nmetrics:\n- 5\n", 3, "must be a mapping"),
        ("version: 2\nmetrics: []\n", 1, "is not 1"),
        ("metric: []\n", 1, "field 'metric': is unknown"),
        ("version: 1\nversion: 1\n", 2, "given twice"),
        ("units: {gpu: {name: x}}\n", 1, "is unknown"),
        ("groups:\n- group: mine\n  unit: node\n", 2, "group mine: lists no metrics"),
        ("groups:\n- group: mine\n  unit: 3\n  metrics: []\n", 3, "group mine: field 'unit'"),
        ("replace: true\n", 1, "is for overlays"),
        ("disable: [up]\n", 1, "is for overlays"),
        ("a: &x 1\nb: *y\n", 2, "is not YAML"),
        ("--- {}\n--- {}\n", 2, "is not YAML"),
    ],
)
def test_errors_of_the_file_as_a_whole(write, text: str, line: int, problem: str) -> None:
    path = write(text)
    told = message(path)
    assert told.startswith(f"{path}, line {line}: ")
    assert problem in told


def test_errors_of_overlays_on_the_wrong_base(write) -> None:
    base = write(BASE, "base.yaml")
    unknown = write("override:\n- {name: nobody, floor_abs: 1}\n", "a.yaml")
    assert "a.yaml, line 2: nobody: field 'name': is not in the catalog" in message(base, [unknown])
    disabled = write("\ndisable: [nobody]\n", "b.yaml")
    assert "b.yaml, line 2: field 'disable': nobody is not in the catalog" in message(base, [disabled])
    broken = write("override:\n- name: node_load1\n  floor_abs: 0\n", "c.yaml")
    assert "c.yaml, line 3: node_load1: field 'floor_abs': must be more than 0" in message(base, [broken])


def test_files_that_are_none(write, tmp_path: Path) -> None:
    assert "No such file" in message(tmp_path / "absent.yaml")
    assert "Is a directory" in message(tmp_path)
    assert "is empty" in message(write(""))
    assert "no entries" in message(write("version: 1\n"))
    assert "line 2: is not UTF-8" in message(write(b"version: 1\n# \xff\n"))
    assert "is bigger than" in message(write("#" * (MAX_FILE_BYTES + 1)))
    assert "nested too deeply" in message(write("[" * 50_000))


def test_a_tag_makes_no_object(write) -> None:
    told = message(write("version: !!python/object/apply:os.getcwd []\n"))
    assert "line 1" in told


def test_references_cannot_blow_up_a_file(write) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "is unknown" in message(write("\n".join(lines)))


def complaint(text: str) -> str:
    try:
        parse_document(text.encode("utf-8", "surrogatepass"), "some.yaml").mapping(frozenset({"metrics"}))
    except CatalogError as error:
        return str(error)
    return ""


@given(st.text(max_size=200))
@example("{? [a] : b}")
@example("{[a]: b}")
@example("\x00")
@example("metrics: [{name: &a [*a]}]")
def test_whatever_a_file_holds_is_told_in_one_sentence(text: str) -> None:
    told = complaint(text)
    assert told == "" or told.startswith("some.yaml")
    assert "\n" not in told

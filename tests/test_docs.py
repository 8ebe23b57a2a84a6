"""The pages say what the code does: settings, routes, metrics, log lines, states, constants, commands."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel
from ruamel.yaml import YAML
from typer.main import get_command
from typer.testing import CliRunner

from api.app import create_app
from api.schemas import ErrorOut
from detector.cli import app as cli
from detector.core import incidents
from detector.outcome import Incident
from detector.settings import Settings, load_settings
from detector.source.incident_file import load_recording
from detector.telemetry import Telemetry
from tests.test_api import FakeView, StoreReader

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    {
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *DOCS.rglob("*.md"),
        *ROOT.glob("replay_data/**/*.md"),
    }
)
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def tables(text: str) -> Iterator[dict[str, str]]:
    """Yield each row of each table by the names of its columns."""
    header: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = cells
        elif not set("".join(cells)) <= set("-: "):
            assert len(cells) == len(header), line
            yield dict(zip(header, cells, strict=True))


def coded(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == language]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.upper().startswith("ODDNODE_"):
            monkeypatch.delenv(name)


def real_settings() -> dict[str, Any]:
    shown = Settings().describe()
    del shown["detection"]["step_s"]  # set by schedule.step_s, refused here
    return {f"{section}.{key}": value for section, fields in shown.items() for key, value in fields.items()}


def test_every_setting_is_told_once_and_none_is_invented() -> None:
    told = [coded(row["setting"])[0] for row in tables(text_of("settings.md")) if "default" in row]
    assert sorted(told) == sorted(real_settings())


def test_defaults_told_are_those_in_effect() -> None:
    page, real = text_of("settings.md"), real_settings()
    patterns = {coded(row["setting"])[0]: coded(row["patterns"]) for row in tables(page) if "patterns" in row}
    for row in tables(page):
        if "default" not in row:
            continue
        name = coded(row["setting"])[0]
        if name in patterns:
            assert patterns[name] == real[name], name
        else:
            assert json.loads(coded(row["default"])[0]) == real[name], name
        assert row["what it does"], name


def test_settings_named_on_other_pages_exist() -> None:
    real, sections = real_settings(), set(Settings.model_fields)
    for page in PAGES:
        for word in coded(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if re.fullmatch(r"[a-z]+\.[a-z_]+", word) and word.split(".")[0] in sections:
                is_file = word.rsplit(".")[1] in {"py", "md", "db"}
                assert is_file or word in real or word == "detection.step_s", f"{page.name}: {word}"


def test_examples_of_settings_are_valid(tmp_path: Path) -> None:
    examples = blocks(text_of("settings.md"), "yaml")
    assert len(examples) > 8
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.yaml"
        path.write_text(example, encoding="utf-8")
        found = load_settings(path)
        assert found.source.url is None or found.source.options().url


def test_examples_of_variables_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        line
        for body in blocks(text_of("settings.md"), "bash")
        for line in body.splitlines()
        if line.startswith("ODDNODE_")
    ]
    assert len(lines) > 4
    for line in lines:
        name, _, value = shlex.split(line)[0].partition("=")
        monkeypatch.setenv(name, value)
    found = load_settings()
    assert found.pools.declared[0].name == "train"
    assert found.schedule.step_s == found.detection.step_s == 15
    assert found.source.url == "http://victoria:8428"


def test_the_example_file_is_valid_and_names_real_keys(tmp_path: Path) -> None:
    path = ROOT / "examples" / "oddnode.yaml"
    assert load_settings(path).source.options().url == "http://victoria:8428"
    real = real_settings()
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"(?:# )?([a-z]+):$", line):
            section = found[1]
        elif found := re.match(r"(?:#  | ) ?(?:# )?([a-z_]+): ", line):
            assert f"{section}.{found[1]}" in real, line


def test_every_own_metric_is_told_with_its_type_and_labels() -> None:
    real = {}
    for metric in Telemetry().registry.collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        real[name] = metric.type
    rows = [row for row in tables(text_of("metrics.md")) if "metric" in row]
    assert {coded(row["metric"])[0]: row["type"] for row in rows} == real
    labelled = {
        collector._name + ("_total" if collector._type == "counter" else ""): list(collector._labelnames)
        for collector in _collectors()
    }
    assert {coded(row["metric"])[0]: coded(row["labels"]) for row in rows} == labelled


def test_every_reason_to_drop_a_sample_is_told() -> None:
    code = (ROOT / "detector" / "source" / "samples.py").read_text(encoding="utf-8")
    reasons = set(re.findall(r'_count\("(\w+)"', code))
    assert len(reasons) > 4
    (told,) = re.findall(
        r"Reasons of `oddnode_samples_dropped_total`: (.*?)\n\n", text_of("metrics.md"), re.DOTALL
    )
    assert set(coded(told)) == reasons


def _collectors() -> set[Any]:
    return set(Telemetry().registry._collector_to_names)


def test_rules_use_own_metrics_only() -> None:
    real = {coded(row["metric"])[0] for row in tables(text_of("metrics.md")) if "metric" in row}
    (rules,) = blocks(text_of("metrics.md"), "yaml")
    used = {
        name
        for group in YAML(typ="safe").load(rules)["groups"]
        for rule in group["rules"]
        for name in re.findall(r"oddnode_\w+", rule["expr"])
    }
    assert used
    assert used <= real


def routes(tmp_path: Path) -> tuple[dict[str, Any], dict[str, type[BaseModel]]]:
    app = create_app(FakeView(StoreReader(tmp_path / "x.db")))
    models = {
        f"{method} {route.path_format}": route.response_model
        for route in _all_routes(app.routes)
        if isinstance(route, APIRoute) and route.response_model is not None
        for method in route.methods
    }
    return app.openapi()["paths"], models


def _all_routes(found: Any) -> Iterator[Any]:
    for route in found:
        yield route
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if inner is not None:
            yield from _all_routes(inner.routes)


def sections() -> dict[str, str]:
    """Return the text under each route's heading."""
    pieces = re.split(r"^#{2,3} ", text_of("api.md"), flags=re.MULTILINE)
    found = {}
    for piece in pieces:
        if heading := re.match(r"`([A-Z]+ [^`]+)`\n", piece):
            found[heading[1]] = piece
    return found


def test_every_route_and_parameter_is_told(tmp_path: Path) -> None:
    paths, _ = routes(tmp_path)
    told = sections()
    operations = {f"{m.upper()} {path}": op for path, methods in paths.items() for m, op in methods.items()}
    assert set(told) == set(operations)
    for name, operation in operations.items():
        real = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
        rows = {coded(row["parameter"])[0] for row in tables(told[name]) if "parameter" in row}
        assert rows == real, name


def test_examples_of_answers_fit_the_schemas(tmp_path: Path) -> None:
    _, models = routes(tmp_path)
    assert len(models) > 9
    for path, model in models.items():
        examples = blocks(sections()[path], "json")
        assert examples, path
        for example in examples:
            model.model_validate_json(example)
    for example in blocks(text_of("api.md").split("## Errors")[1], "json"):
        ErrorOut.model_validate_json(example)


def test_every_kind_of_finding_is_told() -> None:
    used = set()
    for path in [*ROOT.glob("detector/core/*.py"), ROOT / "detector" / "pipeline.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_made = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DataQuality"
            if isinstance(node, ast.Call) and is_made and isinstance(node.args[0], ast.Constant):
                used.add(node.args[0].value)
            elif is_made:
                assert path.name == "completeness.py"  # which yields its kinds first
            if path.name == "completeness.py" and isinstance(node, ast.Yield):
                assert isinstance(node.value, ast.Tuple)
                used.add(ast.literal_eval(node.value.elts[0]))
    assert used == {coded(row["kind"])[0] for row in tables(text_of("api.md")) if "kind" in row}


def test_every_log_line_is_told() -> None:
    told = [coded(row["line begins with"])[0] for row in tables(text_of("operations.md")) if len(row) == 3
            and "line begins with" in row]  # fmt: skip
    used = set(_log_lines())
    assert len(used) > 20
    for line in used:
        assert any(line.startswith(start) for start in told), line
    for start in told:
        assert any(line.startswith(start) for line in used), f"{start} is never logged"
    words = set(coded(FENCE.sub("", text_of("operations.md"))))
    for line in used:
        if line.startswith("store path="):
            assert re.findall(r" (\w+)=", line)[1] in words, line


def _log_lines() -> Iterator[str]:
    for folder in ("detector", "api"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and getattr(node.func.value, "id", "") == "log"
                ):
                    assert isinstance(node.args[0], ast.Constant), ast.unparse(node)
                    yield str(node.args[0].value)


def test_reasons_of_readiness_are_told() -> None:
    page = text_of("operations.md")
    source = (ROOT / "detector" / "service_readiness.py").read_text(encoding="utf-8")
    texts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append":
            target = getattr(node.func, "value", None)
            if getattr(target, "id", "") == "reasons":
                first = node.args[0]
                literal = first.values[0] if isinstance(first, ast.JoinedStr) else first
                assert isinstance(literal, ast.Constant)
                texts.append(str(literal.value).strip())
    assert len(texts) > 5
    for text in texts:
        assert text in page, text


def test_the_state_table_is_that_of_the_code() -> None:
    told = [
        [row["from"], row["when"], row["to"], row["what it means"]]
        for row in tables(text_of("algorithm.md"))
        if "from" in row
    ]
    lines = (incidents.__doc__ or "").splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("===")]
    widths = [len(piece) for piece in lines[rules[0]].split()]
    real = []
    for line in lines[rules[1] + 1 : rules[2]]:
        cells, at = [], 0
        for width in widths:
            cells.append(line[at : at + width].strip())
            at += width + 2
        real.append(cells)
    assert told == real


def test_the_state_table_tells_every_transition_that_can_happen() -> None:
    told = {(row["from"], row["to"]) for row in tables(text_of("algorithm.md")) if "from" in row}
    happened = set()
    observations = [
        incidents.Observation(known=known, score=score, decided=decided, gone=gone)
        for known, score, decided, gone in itertools.product(
            (True, False), (0.0, 0.7, 1.5), (True, False), (True, False)
        )
    ]
    states: list[Incident | None] = [None]
    for _ in range(4):
        states = [
            incident
            for before in states
            for seen in observations
            for incident in [_stepped(before, seen, happened)]
            if incident is None or incident.state != incidents.CLEARED
        ]
        states = list({repr(state): state for state in states}.values())
    assert happened == told


def _stepped(
    before: Incident | None, seen: incidents.Observation, happened: set[tuple[str, str]]
) -> Incident | None:
    after, made = incidents.step("n", before, seen, at=1000.0, dt=300.0, clear_after_s=600.0)
    for transition in made:
        happened.add(("(none)" if transition.before == "clear" else transition.before, transition.after))
    return after


def _constants(path: Path) -> Iterator[tuple[str, float]]:
    name = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    module = importlib.import_module(name)
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.Assign):
            continue
        for node in ast.walk(statement.targets[0]):
            if isinstance(node, ast.Name) and node.id.isupper() and not node.id.startswith("_"):
                value = getattr(module, node.id)
                if isinstance(value, int | float) and node.id != "VERSION":
                    yield f"{name}.{node.id}", float(value)


def test_every_constant_is_told_with_its_value() -> None:
    files = [
        *ROOT.glob("detector/core/*.py"),
        ROOT / "detector" / "pipeline.py",
        ROOT / "grouping" / "pools.py",
        ROOT / "grouping" / "part_classes.py",
    ]
    real = {name: value for path in files for name, value in _constants(path)}
    told = {
        coded(row["constant"])[0]: float(row["value"])
        for row in tables(text_of("algorithm.md"))
        if "constant" in row
    }
    assert told == real
    short = {name.rpartition(".")[2] for name in real}
    for word in coded(FENCE.sub("", text_of("algorithm.md"))):
        if re.fullmatch(r"[A-Z][A-Z_]+", word):
            assert word in short, word


def test_severities_are_told_with_their_worth() -> None:
    from detector.core.direct import BASE_SCORE

    told = {
        row["severity"]: float(row["worth"]) for row in tables(text_of("algorithm.md")) if "severity" in row
    }
    assert told == {severity.value: worth for severity, worth in BASE_SCORE.items()}


def test_functions_named_in_the_method_exist() -> None:
    named = set(re.findall(r"`((?:detector|grouping|api)/[\w/]+\.py)(?::(\w+))?`", text_of("algorithm.md")))
    assert len(named) > 20
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert not function or function in names, f"{file}:{function}"


def test_reasons_of_undetermined_are_told() -> None:
    told = {
        coded(row["reason"])[0]
        for row in tables(text_of("algorithm.md"))
        if list(row)[:2] == ["reason", "when"]
    }
    source = ast.parse((ROOT / "detector" / "core" / "judgeable.py").read_text(encoding="utf-8"))
    real = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "reasons[node]":
            if isinstance(node.value, ast.Constant):
                real.add(node.value.value)
            else:
                real.add("fewer than 3 peers")
    assert told == real


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield page, command and arguments of everything in code that looks like a call of ours."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        pieces = [*(body for _, body in FENCE.findall(text)), *coded(FENCE.sub("", text))]
        for piece in pieces:
            for found in re.finditer(r"(?:^|[\s/])oddnode ([^\n#]*)", piece):
                if re.match(r"[a-z]", found[1]):
                    yield page.name, *_parted(found[1])


def _parted(call: str) -> tuple[str, str]:
    words = call.split()
    n = 2 if words[0] == "catalog" and len(words) > 1 and words[1].isalpha() else 1
    return " ".join(words[:n]), " ".join(words[n:])


def _command(path: str) -> Any:
    found: Any = get_command(cli)
    for word in path.split():
        found = found.commands.get(word)
        assert found is not None, f"there is no command {path}"
    return found


def test_commands_and_options_named_in_the_pages_exist() -> None:
    named = list(commands())
    assert len(named) > 12
    for page, path, arguments in named:
        options = {name for parameter in _command(path).params for name in parameter.opts}
        for option in re.findall(r"(?<!\S)\[?(-c|--[a-z-]+)", arguments):
            assert option in options, f"{page}: oddnode {path} has no {option}"


def test_commands_in_the_readme_tell_how_they_are_used() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = set()
    for row in tables(readme):
        if "command" not in row:
            continue
        first, *more = coded(row["command"])
        path, _ = _parted(first.removeprefix("oddnode "))
        paths |= {path, *(f"{path.split()[0]} {word}" for word in more)}
    assert len(paths) > 5
    for path in sorted(paths):
        result = CliRunner().invoke(cli, [*path.split(), "--help"])
        assert result.exit_code == 0, f"oddnode {path} --help: {result.output}"


def test_figures_of_the_readme_are_those_of_the_bench() -> None:
    """After a run of the bench its figures in the README are written anew."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    numbers = json.loads((ROOT / "benchmarks" / "detection.json").read_text(encoding="utf-8"))

    def of(share: list[int]) -> str:
        return f"{share[0]} of {share[1]}"

    def within(bounds: list[float]) -> str:
        return f"[{bounds[0]:.2f}, {bounds[1]:.2f}]"

    own = numbers["splits"]["test"]["detectors"]["Oddnode"]
    n = own["found"] + own["missed"]
    recorded = numbers["others"]["recorded"]["Oddnode"]
    n_recorded = recorded["found"] + recorded["missed"]
    told = [
        f"**{own['f1']:.2f}** {within(own['f1_interval'])}",
        f"{own['found']} of {n}, {own['recall']:.2f} {within(own['recall_interval'])}",
        f"{own['precision']:.2f} {within(own['precision_interval'])} | **{own['false_alarms']}**: "
        f"{own['false_per_month']:.1f} per cluster-month, at most {own['false_per_month_upper']:.1f}",
        f"{of(own['visible'])} are found",
        f"part in {of(own['part_right'])}",
        f"**{recorded['found']} of {n_recorded}** {within(recorded['recall_interval'])}",
        f"{recorded['false_alarms']} in {recorded['node_days']:.0f} node-days",
    ]
    text = " ".join(readme.split())
    assert [figure for figure in told if figure not in text] == []


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in get_command(cli).commands:  # type: ignore[attr-defined]
        assert f"oddnode {name}" in readme, name


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_links_resolve(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name}: {target}"


def test_paths_named_in_the_readme_are_answered(tmp_path: Path) -> None:
    paths, _ = routes(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    known = {*paths, "/openapi.json", "/v1"}
    for word in coded(FENCE.sub("", readme)):
        if word.startswith("/"):
            assert word in known, word
    for path in re.findall(r"(?:localhost|127\.0\.0\.1):8080(/[\w/.-]*)", readme):
        shape = re.sub(r"^(?:/v1)?(/nodes)/.+", r"/v1\1/{node}", path)
        assert shape in known, path


def test_keys_of_a_description_are_those_that_are_read(tmp_path: Path) -> None:
    rows = [row for row in tables(text_of("operations.md")) if list(row) == ["key", "required", "meaning"]]
    keys = {word for row in rows for word in coded(row["key"]) + coded(row["meaning"])}
    source = (ROOT / "detector" / "source" / "incident_file.py").read_text(encoding="utf-8")
    read = set(re.findall(r'entry\.(?:number|text|texts|flag|items|entries|_get)\("(\w+)"', source))
    assert read
    assert read <= {word.rpartition(".")[2] for word in keys}
    told = {word.partition(".")[0] for row in rows for word in coded(row["key"])}
    for case in (ROOT / "replay_data").glob("*/incident.yaml"):
        assert set(YAML(typ="safe").load(case)) <= told, case
    required = {
        word for row in rows if row["required"] == "yes" for word in coded(row["key"]) if "." not in word
    }
    least: dict[str, Any] = {"id": "x", "start": 0, "end": 60, "step_s": 30, "pool": [], "faults": []}
    assert required == set(least)
    path = tmp_path / "incident.yaml"
    path.write_text(json.dumps(least), encoding="utf-8")
    assert load_recording(tmp_path).healthy
    for key in least:
        path.write_text(json.dumps({k: v for k, v in least.items() if k != key}), encoding="utf-8")
        with pytest.raises(Exception, match=f"{key} is missing"):
            load_recording(tmp_path)

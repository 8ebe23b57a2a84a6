"""`oddnode catalog check --self-test`: what is planted into one's own samples is seen, or told."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from detector.cli import app
from detector.core.parameters import Parameters
from detector.errors import OddnodeError
from detector.sampled import Collected, SampledSeries
from detector.self_test import Rules, Seen, Tried, needed_s, self_test
from detector.self_test_plant import plant
from detector.source.opening import open_source
from detector.source.options import SourceOptions
from grouping.catalog import Catalog, load_catalog
from grouping.model import Direction
from tests import servers

TEMP, CLOCK = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK"
RETRIES = "node_netstat_Tcp_RetransSegs"
RULES = Rules(Parameters())
STEPS = int(needed_s(RULES.parameters) / 30) + 2
TIMES = 1.7e9 + 10.0 + 30.0 * np.arange(STEPS)
END = float(TIMES[-1])
CATALOG = load_catalog()


def gpus(name: str, level: float, noise: float, nodes: int = 5) -> list[SampledSeries]:
    rng = np.random.default_rng(11)
    return [
        SampledSeries(
            {"__name__": name, "Hostname": f"gpu{n:02}", "instance": f"10.0.0.{n}:9400", "gpu": str(g)},
            TIMES,
            rng.normal(level, noise, STEPS),
        )
        for n in range(nodes)
        for g in range(2)
    ]


def hosts(name: str, rate: float, nodes: int = 5) -> list[SampledSeries]:
    rng = np.random.default_rng(12)
    return [
        SampledSeries(
            {"__name__": name, "nodename": f"gpu{n:02}", "instance": f"10.0.0.{n}:9100"},
            TIMES,
            np.cumsum(rng.poisson(30 * rate, STEPS)).astype(float),
        )
        for n in range(nodes)
    ]


def tried(*series: SampledSeries, catalog: Catalog = CATALOG) -> Mapping[str, Tried]:
    return {one.name: one for one in self_test(catalog, Collected(series), RULES, END)}


def changed(name: str, **fields: object) -> Catalog:
    specs = [replace(spec, **fields) if spec.name == name else spec for spec in CATALOG.specs]  # type: ignore[arg-type]
    return Catalog.of(specs, path=Path("changed.yaml"))


def test_what_is_planted_is_named_where_it_was_planted() -> None:
    found = tried(*gpus(TEMP, 60, 1), *gpus(CLOCK, 1900, 10), *hosts(RETRIES, 2.0))
    assert [(one.name, one.seen) for one in found.values()] == [
        (spec.name, Seen.NAMED) for spec in CATALOG.specs if spec.name in {TEMP, CLOCK, RETRIES}
    ]
    assert (found[TEMP].node, found[TEMP].part) == ("gpu02", "gpu 0")
    assert found[TEMP].planted == "+50 celsius"
    assert found[CLOCK].planted.startswith("-")


def test_a_wrong_label_that_makes_groups_of_one_is_found_out() -> None:
    alone = tried(*gpus(TEMP, 60, 1), *gpus(CLOCK, 1900, 10), catalog=changed(TEMP, role=("instance",)))
    assert alone[TEMP].seen is Seen.UNSEEN
    assert alone[TEMP].note == "on 5 nodes of pool main"
    assert alone[CLOCK].seen is Seen.NAMED


def test_a_small_vote_is_evidence_and_none_is_not_counted() -> None:
    series = (*gpus(TEMP, 60, 1), *gpus(CLOCK, 1900, 10))
    assert tried(*series, catalog=changed(TEMP, weight=0.2))[TEMP].seen is Seen.EVIDENCE
    assert tried(*series, catalog=changed(TEMP, weight=0.0))[TEMP].seen is Seen.UNCOUNTED


def test_metrics_that_are_not_compared_are_told_with_the_reason() -> None:
    refused = [
        SampledSeries(
            {"__name__": "node_network_up", "device": "lo", "instance": f"10.0.0.{n}:9100"},
            TIMES,
            np.ones(STEPS),
        )
        for n in range(5)
    ]
    found = tried(*gpus(TEMP, 60, 1), *refused)["node_network_up"]
    assert (found.seen, found.node) == (Seen.UNTRIED, "")
    assert found.note


def test_with_too_few_nodes_nothing_can_be_said() -> None:
    with pytest.raises(OddnodeError, match="no node can be judged even with nothing planted"):
        tried(*gpus(TEMP, 60, 1, nodes=2))


@pytest.mark.parametrize(
    ("name", "values", "words", "last"),
    [
        ("DCGM_FI_DEV_XID_ERRORS", [0, 0, 0, 0], "set to ", None),
        ("up", [1, 1, 1, 1], "set to 0", 0),
        ("DCGM_FI_DEV_GPU_UTIL", [99, 99, 99, 99], "-", 19),
        ("node_infiniband_port_errors_received_total", [5, 5, 5, 5], "+1 count/s", 35),
    ],
    ids=["worst fault value", "below is for the worse", "no room above", "error counter rises"],
)
def test_what_is_planted(name: str, values: list[float], words: str, last: float | None) -> None:
    spec = CATALOG.by_name[name]
    times = 30.0 * np.arange(4)
    one = SampledSeries({"__name__": name}, times, np.array(values, dtype=float))
    found = plant(spec, [one, one], [True, False], 60.0)
    assert found is not None
    assert found.words.startswith(words)
    altered, left = found.series
    assert left is one
    assert altered.values[:2].tolist() == values[:2]
    assert last is None or altered.values[-1] == pytest.approx(last)
    assert altered.values[-1] not in (spec.fault.healthy if spec.fault else ())


def test_a_counter_that_should_not_be_low_stands_still() -> None:
    spec = replace(CATALOG.by_name[RETRIES], direction=Direction.BELOW)
    one = SampledSeries({}, 30.0 * np.arange(4), np.array([0.0, 10.0, 20.0, 30.0]))
    found = plant(spec, [one], [True], 60.0)
    assert found is not None
    assert found.series[0].values.tolist() == [0.0, 10.0, 10.0, 10.0]
    assert plant(spec, [SampledSeries({}, np.zeros(1), np.ones(1))], [True], 0.0) is None


def exported(series: list[SampledSeries], later_s: float = 0.0) -> bytes:
    """Return lines of VictoriaMetrics' export, so many seconds later."""
    lines = [
        msgspec.json.encode(
            {
                "metric": one.labels,
                "values": one.values.tolist(),
                "timestamps": (1000 * (one.times + later_s)).astype(int).tolist(),
            }
        )
        for one in series
    ]
    return b"\n".join(lines) + b"\n"


def recording(folder: Path, series: list[SampledSeries], end: float = END) -> Path:
    folder.mkdir()
    (folder / "series.jsonl").write_bytes(exported(series))
    (folder / "incident.yaml").write_text(
        f"id: {folder.name}\nstart: {TIMES[0] - 30}\nend: {end}\nstep_s: 30\nfaults: []\npool: []\n",
        encoding="utf-8",
    )
    return folder


def test_the_command_says_what_was_seen_and_how_it_went(tmp_path: Path) -> None:
    case = recording(tmp_path / "case", [*gpus(TEMP, 60, 1), *gpus(CLOCK, 1900, 10)])
    done = CliRunner().invoke(app, ["catalog", "check", "--self-test", "--json", "--case", str(case)])
    assert done.exit_code == 0, done.output
    assert {one["name"]: one["seen"] for one in json.loads(done.stdout)["tried"]} == {
        TEMP: "named",
        CLOCK: "named",
    }
    overlay = tmp_path / "wrong.yaml"
    overlay.write_text(f"version: 1\noverride:\n- {{name: {TEMP}, role: [instance]}}\n", encoding="utf-8")
    command = ["catalog", "check", "--self-test", "--case", str(case), "--overlay", str(overlay)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1, done.output
    assert "not seen" in done.output


def test_a_recording_that_is_too_short_is_refused(tmp_path: Path) -> None:
    case = recording(tmp_path / "case", gpus(TEMP, 60, 1), end=float(TIMES[20]))
    done = CliRunner().invoke(app, ["catalog", "check", "--self-test", "--case", str(case)])
    assert isinstance(done.exception, OddnodeError)
    assert "a self-test takes 22 minutes" in str(done.exception)


@pytest.mark.server
def test_a_live_database_is_only_read(tmp_path: Path) -> None:
    now = time.time_ns() / 1e9
    with servers.victoria_metrics(tmp_path, "-search.latencyOffset=0s") as database:
        servers.import_lines(database, exported([*gpus(TEMP, 60, 1), *gpus(CLOCK, 1900, 10)], now - END))
        command = ["catalog", "check", "--self-test", "--json", "--url", database.url]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert {one["name"] for one in json.loads(done.stdout)["tried"] if one["seen"] == "named"} == {
            TEMP,
            CLOCK,
        }
        source = open_source(SourceOptions(url=database.url))
        ((_, highest),) = source.query(f"max(max_over_time({TEMP}[1h]))", now)
        source.close()
        assert highest < 70

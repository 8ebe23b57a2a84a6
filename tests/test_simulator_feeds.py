"""The simulated cluster reaches real servers: import, scraped pages, text with times."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from simulator.__main__ import main
from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.exposition import Exposition, scrape_config, serving
from simulator.feed import Feeder, LineFormat, openmetrics_text
from tests import servers
from tests.simulated import QUIET, SMALL, STEP, Run, fault, small_run


class TestText:
    def test_lines_leave_out_what_was_not_scraped(self) -> None:
        series = [{"__name__": "a", "x": 'q"\\é'}, {"__name__": "b"}, {"__name__": "c"}]
        values = np.array([[1.0, np.nan, np.nan], [2.5, 3.0, np.nan]])
        ts = np.array([[1, 1, 1], [2, 2, 2]])
        lines = b"".join(LineFormat(series).pieces(values, ts)).splitlines()
        assert [json.loads(line) for line in lines] == [
            {"metric": series[0], "values": [1.0, 2.5], "timestamps": [1, 2]},
            {"metric": series[1], "values": [3.0], "timestamps": [2]},
        ]

    def test_openmetrics(self) -> None:
        series = [{"__name__": "a", "x": 'q"\\\n'}, {"__name__": "b"}, {"__name__": "a"}]
        text = openmetrics_text(series, np.array([[1.0, np.nan, 2.0]]), np.array([[1500, 1500, 1500]]))
        assert text == (
            '# TYPE a unknown\na{x="q\\"\\\\\\n"} 1.0 1.500\na 2.0 1.500\n# TYPE b unknown\n# EOF\n'
        )

    def test_pages_carry_the_exporters_own_labels_only(self) -> None:
        exposition = Exposition(Cluster(SMALL, 1, [fault("machine_down", minutes=60)]))
        exposition.update(SMALL.start)
        smi = (exposition.page("all-smi", "gpu002") or b"").decode()
        assert 'instance="gpu002"' in smi
        assert "exported_instance" not in smi
        assert 'job="' not in smi
        node = (exposition.page("node", "gpu002") or b"").decode()
        assert node.count("# TYPE node_load1 gauge\n") == 1
        assert "scrape_duration" not in node
        exposition.update(SMALL.start + 20 * STEP)
        assert exposition.page("node", "gpu003") is None
        assert exposition.page("node", "gpu004") is not None

    def test_pages_over_http(self) -> None:
        exposition = Exposition(Cluster(SMALL, 1))
        exposition.update(SMALL.start)
        with serving(exposition) as address:
            with urllib.request.urlopen(
                f"http://{address}/targets/dcgm/gpu001/metrics", timeout=10
            ) as answer:
                assert answer.read() == exposition.page("dcgm", "gpu001")
            for path, status in (("/targets/dcgm/gpu999/metrics", 503), ("/x", 404)):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"http://{address}{path}", timeout=10)
                assert refused.value.code == status
                refused.value.close()

    def test_scrape_config_names_every_target(self) -> None:
        config = json.loads(scrape_config(SMALL, "127.0.0.1:1", interval_s=1.5))
        targets = [t for job in config["scrape_configs"] for t in job["static_configs"]]
        assert len(targets) == 4 * SMALL.n_nodes
        assert config["global"]["scrape_interval"] == "1500ms"
        assert len({t["labels"]["instance"] for t in targets}) == len(targets)

    def test_command_line_prints_a_scrape_config(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["scrape-config", "--nodes", "4", "--spares", "1", "--cpus", "2"]) == 0
        assert len(json.loads(capsys.readouterr().out)["scrape_configs"]) == 4

    def test_command_line_tells_what_is_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        args = ["feed", "--url", "http://127.0.0.1:1", "--nodes", "4", "--spares", "1", "--cpus", "2"]
        assert main([*args, "--fault", "nonsense:gpu001"]) == 1
        assert "unknown kind of fault" in capsys.readouterr().err
        assert main([*args, "--metrics", "story"]) == 1
        assert "import failed" in capsys.readouterr().err


def exported(server: servers.Server, match: str) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"{server.url}/api/v1/export?match[]={match}", timeout=30) as answer:
        return [json.loads(line) for line in answer.read().splitlines()]


@pytest.mark.server
class TestServers:
    @pytest.mark.parametrize("uses_gzip", [False, True])
    def test_import_into_victoria_metrics(self, fresh_vm: servers.Server, uses_gzip: bool) -> None:
        cluster, again = Cluster(SMALL, 9), Run(Cluster(SMALL, 9), 10)
        feeder = Feeder(fresh_vm.url, cluster, uses_gzip=uses_gzip)
        sent = feeder.load(SMALL.start, SMALL.start + 8 * STEP, batch=4)
        sent += feeder.push(SMALL.start + 9 * STEP)
        assert servers.answers(fresh_vm.port, "/internal/force_flush")
        lines = exported(fresh_vm, "%7B__name__!=%22%22%7D")
        assert sum(len(line["values"]) for line in lines) == sent == np.isfinite(again.values).sum()  # type: ignore[arg-type]
        row = again.rows("DCGM_FI_DEV_POWER_USAGE")[3]
        found = [line for line in lines if line["metric"] == again.cluster.series[row]]
        assert found[0]["values"] == again.values[:, row].tolist()
        assert found[0]["timestamps"] == again.ts_ms[:, row].tolist()

    def test_refused_import_is_an_error(self) -> None:
        with servers.ScriptedServer([servers.reply(400, b"no")]) as server:
            feeder = Feeder(server.url, Cluster(SMALL, 9))
            with pytest.raises(OSError, match="import"):
                feeder.push(SMALL.start)

    def test_live_feed_stops_when_told(self, fresh_vm: servers.Server) -> None:
        config = ClusterConfig(train_nodes=2, spares=0, cpus=2, step_s=0.2, metrics={"node_load1"}, **QUIET)
        feeder, stopped = Feeder(fresh_vm.url, Cluster(config, 1)), threading.Event()
        thread = threading.Thread(target=feeder.live, args=(stopped, config.start))
        thread.start()
        servers.wait_until(
            lambda: (
                servers.answers(fresh_vm.port, "/internal/force_flush")
                and len(exported(fresh_vm, "node_load1")) == 2
            ),
            "two series",
        )
        stopped.set()
        thread.join(timeout=10)
        assert not thread.is_alive()

    def test_scraped_by_vmagent(self, fresh_vm: servers.Server, tmp_path: Path) -> None:
        config = ClusterConfig(train_nodes=3, spares=0, cpus=2, step_s=0.5, **QUIET)
        exposition = Exposition(Cluster(config, 1))
        exposition.update(config.start)
        with serving(exposition) as address:
            text = scrape_config(config, address, interval_s=0.5)
            with servers.vmagent(tmp_path / "agent", text, fresh_vm.url):

                def all_up() -> bool:
                    servers.answers(fresh_vm.port, "/internal/force_flush")
                    return len(exported(fresh_vm, "up")) == 12

                servers.wait_until(all_up, "12 targets")
                servers.wait_until(
                    lambda: len(exported(fresh_vm, "all_smi_gpu_utilization")) == 24, "24 GPUs"
                )
        smi = exported(fresh_vm, "all_smi_gpu_utilization")
        expected = [s for s in exposition.cluster.series if s["__name__"] == "all_smi_gpu_utilization"]
        assert sorted(json.dumps(line["metric"], sort_keys=True) for line in smi) == sorted(
            json.dumps(s, sort_keys=True) for s in expected
        )
        names = {line["metric"]["__name__"] for line in exported(fresh_vm, "%7B__name__!=%22%22%7D")}  # type: ignore[index]
        missing = {s["__name__"] for s in exposition.cluster.series} - names
        missing.discard("scrape_response_size_bytes")  # older agents do not give it
        assert all("failure" in name for name in missing), missing

    def test_openmetrics_into_prometheus(self, tmp_path: Path) -> None:
        run = small_run(4, metrics={"node_load1", "up", "node_cpu_seconds_total"})
        servers.blocks_from_openmetrics(
            tmp_path / "p", openmetrics_text(run.cluster.series, run.values, run.ts_ms)
        )
        at = SMALL.start + 3 * STEP
        with servers.prometheus(tmp_path / "p") as server:
            url = f"{server.url}/api/v1/query?query=count(node_load1)&time={at}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                result = json.loads(answer.read())["data"]["result"]
        assert result[0]["value"][1] == "8"

"""One fault from the first sign to the repair, with real servers: what on-call lives through, in two minutes.

Runs VictoriaMetrics, Alertmanager, PostgreSQL and ``oddnode serve`` on this machine, with a small simulated
cluster that sends a scrape every two seconds. Needs the servers that the tests need (`make servers`)::

    python scripts/walkthrough.py
    python scripts/walkthrough.py --store sqlite
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulator.cluster import Cluster
from simulator.config import ClusterConfig
from simulator.faults import Fault
from simulator.feed import Feeder
from tests import servers
from tests.delivery_bench import Catcher, get_json
from tests.end_to_end import Serving, command, fed_live, now_s, on_grid
from tests.servers import wait_until

STEP, HISTORY_S = 2.0, 120.0
N_TRAIN, N_SPARES = 12, 3
N_NODES = N_TRAIN + N_SPARES
FAULTY, PART = "gpu005", "10.2.0.10:/data"
LINK = "http://oddnode.example.com"
WAIT_S = 150.0
"""How long anything may take; a quiet machine needs a tenth of it."""

QUIET = 0.3
"""A score that is far from the threshold of 1."""

SOUND_S = 40.0
"""Seconds with such a score after which data is sound; one evaluation may look so by chance."""

RAISED, WITHDRAWN, CLEARED = "suspect_raised", "suspect_withdrawn", "suspect_cleared"

SETTINGS: dict[str, Any] = {
    "schedule": {"step_s": STEP, "evaluation_delay_s": STEP, "backfill_s": HISTORY_S, "tick_timeout_s": 90},
    # samples 2 s apart meet the phases of the job's loop, and habits of 5 samples are noisier than of 8
    "detection": {
        "continuity_s": 10,
        "clear_after_s": 300,
        "absence_after_s": 60,
        "direct_hold_s": 10,
        "z_threshold": 7,
    },
    "pools": {"settle_s": 10, "join_grace_s": 10},
    "reload": {"every_s": 0.5},
}
SOURCE = {"deadline_s": 80, "read_timeout_s": 60, "connect_timeout_s": 10, "kind": "victoriametrics"}

STORES = ("postgresql", "sqlite")

Tell = Callable[[str], None]


@dataclass
class Scene:
    """Everything that runs.

    Parameters
    ----------
    folder
        Settings, store and logs of the service.
    settings
        In its file.
    cluster
        Sends samples.
    manager
        Alertmanager.
    hook
        Takes messages.
    service
        The running ``oddnode serve``.
    """

    folder: Path
    settings: dict[str, Any]
    cluster: Cluster
    hook: Catcher
    service: Serving
    manager: servers.Server | None = None
    tell: Tell = field(default=print)

    def alerts(self) -> list[Any]:
        """Return open alerts of suspects in Alertmanager."""
        assert self.manager is not None
        found = get_json(self.manager.port, "/api/v2/alerts?filter=alertname%3DOddnodeSuspect")
        return list(found)

    def events(self) -> list[tuple[str, str]]:
        """Return messages about suspects that the webhook took: what, and about which incident.

        As receivers are told to, by their keys: a service that is killed between an answer and its note of
        it sends that very message again.
        """
        told: dict[str, Any] = {}
        for one in self.hook.taken():
            if one.path == "/":
                body = one.json()
                assert told.setdefault(one.headers["idempotency-key"], body) == body, "one key, two messages"
        return [
            (one["event"], one["about"]["key"]) for one in told.values() if one["about"]["kind"] == "suspect"
        ]

    def suspects(self) -> list[tuple[str, str]]:
        """Return suspect nodes and their incidents."""
        body = self.service.get("/v1/suspects")[1]
        return [(one["node"], one["incident_id"]) for one in body["suspects"]]

    def operate(self, *words: str) -> str:
        """Run a command of an operator against the service."""
        done = command(*words, "--by", "kim", "--url", f"http://127.0.0.1:{self.service._listens_on()}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def evaluations(self, count: int) -> None:
        """Wait for evaluations that are newer than now."""
        until = now_s() + (count - 1) * STEP
        self.service.wait_for("/v1/suspects", lambda body: body["at"] > until, "evaluations", WAIT_S)

    def kill_and_start(self) -> None:
        """End the service as a power cut would, and start it again."""
        self.service.kill()
        self.service = Serving(self.folder, self.settings)
        self.service.wait_for("/v1/suspects", lambda body: body["n_nodes"] == N_NODES, "it is back", WAIT_S)

    def put(self, settings: dict[str, Any]) -> None:
        """Replace the settings file under the running service."""
        self.service.put(settings)


def walk(folder: Path, store: str, tell: Tell = print) -> None:
    """Walk through; fails with an `AssertionError` or by a time-out where something is not as it must be.

    Parameters
    ----------
    folder
        An empty one.
    store
        Where the service keeps its incidents: one of ``STORES``.
    tell
        Is told of each step.
    """
    with ExitStack() as stack:
        am_port, hook_port = servers.free_port(), servers.free_port()
        vm = stack.enter_context(servers.victoria_metrics(folder / "vm"))
        cluster = _cluster(stack, vm.url)
        delivery: dict[str, Any] = {
            "alertmanagers": [{"url": f"http://127.0.0.1:{am_port}"}],
            "resend_s": 5,
            "webhooks": [{"name": "hook", "url": f"http://127.0.0.1:{hook_port}/"}],
            "write_back": {"url": vm.url},
            "external_url": LINK,
        }
        settings = {**SETTINGS, "source": {"url": vm.url, **SOURCE}, "delivery": delivery}
        if store == "postgresql":
            settings["store"] = {"url": stack.enter_context(servers.postgres()).new_database()}
        scene = Scene(
            folder, settings, cluster, Catcher(port=hook_port), Serving(folder, settings), tell=tell
        )
        stack.callback(lambda: scene.service.kill())
        incident = _named(scene)
        stack.enter_context(scene.hook)
        scene.manager = stack.enter_context(
            servers.alertmanager(folder / "am", f"{scene.hook.url}-am", am_port)
        )
        _told(scene, incident)
        _reloaded(scene, incident)
        _muted(scene, incident)
        _repaired(scene, incident)
        assert scene.service.end() == 0
        assert (folder / "oddnode.db").exists() == (store == "sqlite")
        _written_back(vm)


def _cluster(stack: ExitStack, url: str) -> Cluster:
    now = on_grid(now_s(), STEP)
    config = ClusterConfig(
        train_nodes=N_TRAIN, spares=N_SPARES, cpus=2,  start=now - HISTORY_S, step_s=STEP,
        missed_scrape=0.0, benign_per_node_hour=0.0, checkpoint_s=(90_000.0, 100_000.0),
    )  # fmt: skip
    cluster = Cluster(config, 4)
    feeder = Feeder(url, cluster)
    feeder.load(config.start, now)
    stack.enter_context(fed_live(feeder, now + STEP))
    return cluster


def _named(scene: Scene) -> str:
    """Plant the fault, wait until its node is named while there is nobody to tell, and pull the plug."""
    service = scene.service
    first = service.wait_for(
        "/v1/suspects", lambda body: body["n_nodes"] == N_NODES, "first verdicts", WAIT_S
    )
    assert first["suspects"] == []
    scene.tell(f"{N_NODES} nodes are compared, no suspect")
    onset = on_grid(now_s(), STEP) + STEP
    scene.cluster.faults = (Fault("nfs_slow", FAULTY, onset, onset + 3600, PART),)
    found = service.wait_for("/v1/suspects", lambda body: body["suspects"], "the fault is named", WAIT_S)
    (suspect,) = found["suspects"]
    assert (suspect["node"], suspect["part"]) == (FAULTY, PART)
    incident = str(suspect["incident_id"])
    scene.tell(
        f"{FAULTY} got slow storage and is named after {suspect['suspect_since'] - onset:.0f} s of data"
    )
    line = 'oddnode_delivery_queue{receiver="webhook/hook"}'
    wait_until(lambda: (service.metric(line) or 0) >= 1, "the message waits", WAIT_S)
    scene.kill_and_start()
    assert scene.suspects() == [(FAULTY, incident)]
    scene.tell("kill -9 while nobody can be told; it is back with the same incident")
    return incident


def _told(scene: Scene, incident: str) -> None:
    wait_until(lambda: len(scene.alerts()) == 1, "the alert is there", WAIT_S)
    (alert,) = scene.alerts()
    assert alert["labels"] == {"alertname": "OddnodeSuspect", "node": FAULTY, "pool": "main"}
    assert alert["annotations"]["incident"] == incident
    assert PART in alert["annotations"]["summary"]
    assert "peers" in alert["annotations"]["evidence"]
    path = alert["generatorURL"].removeprefix(LINK)
    status, explained = scene.service.get(path)
    assert status == 200, explained
    assert FAULTY in str(explained)
    wait_until(lambda: scene.events() == [(RAISED, incident)], "the webhook is told", WAIT_S)
    scene.tell(f"Alertmanager and the webhook are up and told; the link {path} answers")
    assert incident in scene.operate("ack", incident, "--note", "ticket 4711")
    wait_until(
        lambda: [one["annotations"].get("acknowledged") for one in scene.alerts()] == ["yes"],
        "the alert is acknowledged",
        WAIT_S,
    )
    scene.tell("acknowledged, and the alert says so")


def _reloaded(scene: Scene, incident: str) -> None:
    """Put a bad settings file in place, then a good one."""
    service, good = scene.service, scene.settings
    success = "oddnode_config_reload_success"
    scene.put({**good, "detection": {**good["detection"], "clear_aftr_s": 1}})
    wait_until(lambda: service.metric(success) == 0, "the bad file is noticed", WAIT_S)
    scene.evaluations(2)
    assert service.log().count("detection.clear_aftr_s is no setting") == 1
    assert scene.suspects() == [(FAULTY, incident)]
    scene.tell("a bad settings file changes nothing, and is told once")
    scene.settings = {
        **good,
        "detection": {**good["detection"], "clear_after_s": 400},
        "delivery": {**good["delivery"], "resend_s": 6},
    }
    scene.put(scene.settings)
    wait_until(lambda: service.metric(success) == 1, "the good file is taken over", WAIT_S)
    scene.evaluations(2)
    assert "changed=delivery.resend_s,detection.clear_after_s judging=new" in service.log()
    assert scene.suspects() == [(FAULTY, incident)]
    wait_until(lambda: len(scene.alerts()) == 1, "the alert is there", WAIT_S)
    assert scene.events() == [(RAISED, incident)]
    scene.tell("a good one is taken over; incident and alert go on, nobody is told twice")


def _muted(scene: Scene, incident: str) -> None:
    shown = scene.operate("mute", "--node", FAULTY, "--for", "2h", "--reason", "swap of the cable")
    mute = next(word.strip(",:;") for word in shown.split() if word.startswith("m-"))
    wait_until(lambda: scene.alerts() == [], "the alert leaves", WAIT_S)
    wait_until(lambda: scene.events()[1:] == [(WITHDRAWN, incident)], "the webhook is told", WAIT_S)
    assert scene.suspects() == [(FAULTY, incident)]
    scene.tell("muted: the alert leaves, the suspect stays on the list")
    scene.operate("unmute", mute)
    wait_until(lambda: len(scene.alerts()) == 1, "the alert is back", WAIT_S)
    wait_until(lambda: scene.events()[2:] == [(RAISED, incident)], "the webhook is told", WAIT_S)
    scene.kill_and_start()
    scene.evaluations(2)
    assert scene.suspects() == [(FAULTY, incident)]
    wait_until(
        lambda: [one["annotations"].get("acknowledged") for one in scene.alerts()] == ["yes"],
        "the alert is there, and acknowledged as before",
        WAIT_S,
    )
    assert len(scene.events()) == 3
    scene.tell("unmuted: it is back; kill -9 once more, and nothing is told twice")


def _repaired(scene: Scene, incident: str) -> None:
    scene.cluster.faults = ()
    # GPUs that waited for storage have cooled: they take a while to be like the others again
    scene.service.wait_for(f"/v1/nodes/{FAULTY}", _sound(), "its data is sound", 3 * WAIT_S)
    assert f"cleared {incident}" in scene.operate("repaired", FAULTY, "--note", "new cable")
    assert scene.suspects() == []
    wait_until(lambda: scene.alerts() == [], "the alert is resolved", WAIT_S)
    wait_until(lambda: scene.events()[3:] == [(CLEARED, incident)], "the webhook is told of the end", WAIT_S)
    scene.tell("the cable is new: repaired, the incident is cleared and the alert resolved")
    scene.kill_and_start()
    scene.evaluations(6)
    assert scene.suspects() == [], scene.service.get("/v1/suspects")[1]["suspects"]
    assert scene.alerts() == []
    assert len(scene.events()) == 4
    incidents = scene.service.get("/v1/incidents?was_suspect=true")[1]["incidents"]
    assert [(one["id"], one["state"]) for one in incidents] == [(incident, "cleared")]
    assert "repaired, said kim" in incidents[0]["reason"]
    audit = [one["action"] for one in scene.service.get("/v1/audit")[1]["entries"]]
    assert audit == ["repaired", "unmute", "mute", "acknowledge"]
    scene.tell("kill -9 a last time: samples from before the repair are read again, and blame nobody")


def _sound() -> Callable[[Any], bool]:
    """Return what tells whether the score was quiet in each answer for long enough."""
    since: list[float] = []

    def sound(body: Any) -> bool:
        score = body["node"]["score"]
        if score is None or score >= QUIET:
            since.clear()
            return False
        since.append(body["at"])
        return bool(since[-1] - since[0] >= SOUND_S)

    return sound


def _written_back(vm: servers.Server) -> None:
    assert servers.answers(vm.port, "/internal/force_flush")
    asked = f"/api/v1/query?query=max_over_time(oddnode_node_score%5B1h%5D)&time={now_s()}"
    scores = {
        one["metric"]["node"]: float(one["value"][1]) for one in get_json(vm.port, asked)["data"]["result"]
    }
    assert len(scores) == N_NODES
    assert max(scores, key=lambda node: scores[node]) == FAULTY


def main() -> None:
    """Walk through in a temporary folder and say how long each step took."""
    parser = argparse.ArgumentParser(description="One fault from the first sign to the repair.")
    parser.add_argument("--store", choices=STORES, default=STORES[0], help="where incidents are kept")
    store = parser.parse_args().store
    begun = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - begun:5.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="oddnode-walkthrough-") as folder:
        walk(Path(folder), store, tell)
    tell("done: nothing was lost, nothing was told twice")


if __name__ == "__main__":
    main()

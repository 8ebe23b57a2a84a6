"""kill -9 at random points: no incident is lost and none is raised twice."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from detector.outcome import Incident, Transition
from detector.store import Store

# a process of its own with one thread, because it forks: each child runs ticks until it is killed
PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path
from detector.service import Service
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.telemetry import Telemetry
from tests.service_fakes import STEP, T0, ManualClock, Plan, ScriptedPipeline, ScriptedSource

path, mode, rng = Path(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3]))
PLANS = [
    Plan(f"gpu{k:03d}", 30.0 * k, 30.0 * k + 120, 30.0 * k + 600 + 30 * (k % 7)) for k in range(0, 300, 5)
]
N_TICKS = 330

def run():
    store = Store(path, lock_wait_s=20)
    clock = ManualClock()
    schedule = ScheduleSettings(evaluation_delay_s=0, backfill_s=300)
    service = Service(
        schedule, ScriptedSource, ScriptedPipeline(PLANS), store, Telemetry(), clock, snapshot_s=0.01
    )
    last = store.last_evaluation()
    first = 0 if last is None else round((last - T0) / STEP)
    for k in range(first, N_TICKS):
        clock.t = T0 + k * STEP
        service.tick()
    service.finish(5)
    store.close()

if mode == "through":
    run()
    sys.exit(0)
n_killed = 0
while True:
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    time.sleep(rng.uniform(0.0, 0.04 + 0.002 * n_killed))  # grows, so that a slow machine ends as well
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        n_killed += 1
        continue
    assert os.WEXITSTATUS(status) == 0, status
    break
print(n_killed)
"""


def run(path: Path, mode: str, seed: int) -> int:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), mode, str(seed)],
        capture_output=True, text=True, timeout=250, check=False, cwd=root,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout or 0)


def contents(path: Path) -> tuple[list[Incident], list[Transition], float | None]:
    store = Store(path)
    found = store.incidents(limit=5000), store.transitions(limit=5000), store.last_evaluation()
    store.close()
    return found


def test_kill_9_loses_nothing_and_raises_nothing_twice(tmp_path: Path) -> None:
    run(tmp_path / "through.db", "through", 0)
    expected = contents(tmp_path / "through.db")
    assert len(expected[0]) == 60
    assert len(expected[1]) > 150
    n_killed = run(tmp_path / "killed.db", "killed", 7)
    assert n_killed >= 10
    assert contents(tmp_path / "killed.db") == expected
    assert not list(tmp_path.glob("*corrupt*"))


TORN = (
    "SELECT count(*) FROM incidents i WHERE NOT EXISTS "
    "(SELECT 1 FROM transitions t WHERE t.incident_id = i.id AND t.after = i.state)"
)


def test_readers_see_a_whole_evaluation_or_none(tmp_path: Path) -> None:
    path = tmp_path / "killed.db"
    Store(path).close()
    root = Path(__file__).resolve().parent.parent
    writer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), "killed", "3"], cwd=root, stdout=subprocess.DEVNULL
    )
    n_looks = 0
    try:
        while writer.poll() is None:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as reader:
                assert reader.execute(TORN).fetchone() == (0,)
            n_looks += 1
    finally:
        writer.kill()
        writer.wait(30)
    assert writer.returncode == 0
    assert n_looks > 20

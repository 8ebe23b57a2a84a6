"""What the store goes through in the field: disks that are full or read-only, damage, clocks, backups."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from detector.errors import StoreError
from detector.service import Service
from detector.settings import ScheduleSettings
from detector.store import Store
from detector.telemetry import Telemetry
from tests.service_fakes import STEP, T0, ManualClock, Plan, ScriptedPipeline, ScriptedSource

HOUR = 3600.0
FAULT = Plan("gpu003", 60.0, 180.0, 3000.0)
LIFE = [("clear", "pending"), ("pending", "suspect"), ("suspect", "cleared")]


class Bench:
    """A service on a store file, ticked by hand; `again` is a new process on the same file."""

    def __init__(self, path: Path, plans: tuple[Plan, ...] = (FAULT,)) -> None:
        self.path, self.plans = path, plans
        self.clock = ManualClock()
        self.start()

    def start(self) -> None:
        self.store = Store(self.path)
        self.pipeline = ScriptedPipeline(self.plans)
        self.telemetry = Telemetry()
        self.service = Service(
            ScheduleSettings(evaluation_delay_s=0, backfill_s=600),
            ScriptedSource, self.pipeline, self.store, self.telemetry, self.clock, snapshot_s=0.001,
        )  # fmt: skip

    def again(self) -> None:
        self.close()
        self.start()

    def ticks(self, first: float, last: float) -> None:
        """Run the ticks of ``T0 + first`` to ``T0 + last``, seconds."""
        at = first
        while at <= last:
            self.clock.t = T0 + at
            self.service.tick()
            at += STEP

    @property
    def suspects(self) -> list[str]:
        latest = self.service.latest()
        assert latest is not None
        return [i.node for i in latest.suspects]

    def life(self) -> list[tuple[str, str]]:
        """Return the steps of the one incident that the file knows."""
        (_,) = self.store.incidents()
        return [(t.before, t.after) for t in sorted(self.store.transitions(), key=lambda t: t.at)]

    def metric(self, name: str) -> float:
        return self.telemetry.registry.get_sample_value(name) or 0.0

    def close(self) -> None:
        self.service.finish(5)
        self.store.close()


Make = Callable[..., Bench]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Bench] = []

    def build(path: Path, *plans: Plan) -> Bench:
        made.append(Bench(path, plans or (FAULT,)))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill a disk with somebody else's file."""
    path = folder / "other.log"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert shutil.disk_usage(folder).free == 0
    return path


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def test_a_disk_that_fills_up_stops_no_verdict_and_loses_no_step(make: Make, small_disk: Path) -> None:
    bench = make(small_disk / "oddnode.db")
    bench.ticks(30, 90)
    filler = fill(small_disk)
    bench.ticks(120, 600)
    assert bench.suspects == ["gpu003"], "verdicts are published from memory"
    problem = " ".join(bench.service.readiness().reasons)
    assert "incidents are not stored" in problem
    assert bench.metric("oddnode_store_failures_total") > 5
    assert bench.metric("oddnode_store_pending") > 0
    filler.unlink()
    bench.ticks(630, 660)
    assert bench.service.readiness().reasons == ()
    assert bench.metric("oddnode_store_pending") == 0
    bench.again()
    bench.ticks(690, 3030)
    assert bench.life() == LIFE


def test_a_disk_that_is_full_at_start_changes_nothing(make: Make, small_disk: Path) -> None:
    bench = make(small_disk / "oddnode.db")
    bench.ticks(30, 240)
    bench.close()
    filler = fill(small_disk)
    # the file has room enough in itself to be opened: what matters is that it stays whole
    with suppress(StoreError):
        Store(bench.path).close()
    filler.unlink()
    bench.start()
    bench.ticks(270, 3030)
    assert bench.life() == LIFE


def test_writes_that_are_forbidden_for_a_while(make: Make, small_disk: Path) -> None:
    bench = make(small_disk / "oddnode.db")
    bench.ticks(30, 90)
    # what is open for writing forbids a remount, so the connection itself is told to refuse
    bench.store._writer.execute("PRAGMA query_only = 1")  # type: ignore[union-attr]
    bench.ticks(120, 300)
    assert bench.suspects == ["gpu003"]
    assert "incidents are not stored" in " ".join(bench.service.readiness().reasons)
    assert [i.state for i in bench.store.incidents()] == ["pending"], "readers see what was stored"
    bench.store._writer.execute("PRAGMA query_only = 0")  # type: ignore[union-attr]
    bench.ticks(330, 3030)
    assert bench.life() == LIFE


def test_a_read_only_disk_at_start_is_a_clear_end(make: Make, small_disk: Path) -> None:
    bench = make(small_disk / "oddnode.db")
    bench.ticks(30, 240)
    bench.close()
    remount(small_disk, "ro")
    with pytest.raises(StoreError, match=r"oddnode\.db.*cannot be opened: Read-only file system"):
        Store(bench.path)
    remount(small_disk, "rw")
    bench.start()
    bench.ticks(270, 3030)
    assert bench.life() == LIFE


def test_a_file_that_is_damaged_under_a_running_service_keeps_the_open_incident(
    make: Make, tmp_path: Path
) -> None:
    bench = make(tmp_path / "oddnode.db")
    bench.ticks(30, 300)
    (before,) = bench.store.incidents()
    assert bench.store._writer is not None
    bench.store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    bench.store._writer.execute("PRAGMA cache_size = 0")
    bench.store._writer.execute("PRAGMA shrink_memory")
    size = bench.path.stat().st_size
    with bench.path.open("r+b") as file:
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    bench.ticks(330, 360)
    assert bench.service.readiness().reasons == ()
    assert list(tmp_path.glob("oddnode.db.corrupt-*"))
    (after,) = bench.store.incidents()
    assert (after.id, after.state, after.suspect_at) == (before.id, "suspect", before.suspect_at)
    bench.again()
    bench.ticks(390, 3030)
    (cleared,) = bench.store.incidents()
    assert (cleared.id, cleared.state) == (before.id, "cleared")


def test_a_file_that_is_deleted_under_a_running_service(make: Make, tmp_path: Path) -> None:
    """Somebody tidied up: writing on to a file without a name would lose everything at the next start."""
    bench = make(tmp_path / "oddnode.db")
    bench.ticks(30, 300)
    (before,) = bench.store.incidents()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{bench.path}{suffix}").unlink(missing_ok=True)
    bench.ticks(330, 360)
    assert bench.suspects == ["gpu003"]
    assert bench.service.readiness().reasons == ()
    bench.again()
    assert [(i.id, i.state) for i in bench.store.incidents()] == [(before.id, "suspect")]


def test_a_lock_that_is_deleted_under_a_running_service_is_taken_anew(make: Make, tmp_path: Path) -> None:
    bench = make(tmp_path / "oddnode.db")
    bench.ticks(30, 300)
    for file in tmp_path.glob("oddnode.db*"):
        file.unlink()
    bench.ticks(330, 360)
    assert bench.service.readiness().reasons == ()
    with pytest.raises(StoreError, match="another evaluator"):
        Store(bench.path)


def test_of_two_evaluators_after_a_lock_was_deleted_the_first_to_write_stays(
    make: Make, tmp_path: Path
) -> None:
    bench = make(tmp_path / "oddnode.db")
    bench.ticks(30, 300)
    (tmp_path / "oddnode.db.lock").unlink()
    with closing(Store(bench.path)):
        bench.ticks(330, 360)
        (reason,) = bench.service.readiness().reasons
        assert "another evaluator" in reason
        assert bench.suspects == ["gpu003"], "detection goes on in memory"
    bench.ticks(390, 420)
    assert bench.service.readiness().reasons == ()


@pytest.mark.parametrize("hours", [1, 3, 26])
def test_a_clock_that_jumps_ahead_and_back_loses_and_doubles_nothing(
    hours: float, make: Make, tmp_path: Path
) -> None:
    """Time servers do this: what is evaluated goes on where it was when the clock is right again."""
    bench = make(tmp_path / "oddnode.db", Plan("gpu003", 60.0, 180.0, 200_000.0))
    bench.ticks(30, 300)
    (before,) = bench.store.incidents()
    bench.clock.t = T0 + 330 + hours * HOUR
    bench.service.tick()
    assert bench.suspects == ["gpu003"]
    bench.ticks(360, 900)
    reasons = " ".join((*bench.service.readiness().reasons, bench.service._waiting))
    assert "behind the newest evaluation" in reasons
    assert bench.suspects == ["gpu003"]
    bench.again()
    bench.ticks(930, 1200)
    assert "behind the newest evaluation" in bench.service._waiting
    bench.ticks(330 + hours * HOUR + 30, 330 + hours * HOUR + 300)
    assert bench.service.readiness().reasons == ()
    assert bench.suspects == ["gpu003"]
    assert [i.id for i in bench.store.incidents()] == [before.id]
    assert bench.life() == LIFE[:2]


def test_a_clock_that_jumps_back_and_ahead_loses_and_doubles_nothing(make: Make, tmp_path: Path) -> None:
    bench = make(tmp_path / "oddnode.db")
    bench.ticks(30, 300)
    bench.ticks(330 - 5 * HOUR, 600 - 5 * HOUR)
    assert bench.suspects == ["gpu003"]
    assert "behind the newest evaluation" in bench.service._waiting
    bench.ticks(630, 3030)
    assert bench.service.readiness().reasons == ()
    assert bench.life() == LIFE


@pytest.mark.parametrize(
    ("saved_at", "states"),
    [(30, []), (90, ["pending"]), (300, ["suspect"])],
    ids=["before the fault", "at its first sign", "while it is a suspect"],
)
def test_a_store_from_a_backup_goes_on_from_there(
    saved_at: float, states: list[str], make: Make, tmp_path: Path
) -> None:
    """Within the time that is filled anew, the store ends as if there had been no backup."""
    bench = make(tmp_path / "oddnode.db")
    bench.ticks(30, saved_at)
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(bench.path)) as live, closing(sqlite3.connect(backup)) as copy:
        live.backup(copy)
    bench.ticks(saved_at + STEP, 570)
    bench.close()
    for suffix in ("-wal", "-shm"):
        Path(f"{bench.path}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(backup, bench.path)
    bench.start()
    assert [i.state for i in bench.store.incidents()] == states
    bench.ticks(600, 3030)
    assert bench.life() == LIFE
    (incident,) = bench.store.incidents()
    assert incident.active_at == T0 + FAULT.pending

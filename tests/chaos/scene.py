"""What really happened: a small simulated cluster in a real database, with one planted fault."""

from __future__ import annotations

from dataclasses import dataclass

from detector.core.parameters import Parameters
from grouping.catalog import Catalog, load_catalog
from simulator.cluster import Cluster
from simulator.config import DEFAULT_START, ClusterConfig
from simulator.faults import Fault
from simulator.feed import Feeder
from tests import servers

STEP = 30.0
PAST = 24
"""Steps of data before the first tick: the window that a new service learns from."""

FAULTY = "gpu003"
METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_XID_ERRORS",
    "node_load1",
    "node_memory_MemAvailable_bytes",
    "up",
)
PARAMETERS = Parameters(
    step_s=STEP, continuity_s=120.0, clear_after_s=180.0, absence_after_s=150.0, direct_hold_s=300.0
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A stretch of time with one fault; times in steps after the first tick.

    Parameters
    ----------
    start
        Epoch seconds of step 0.
    onset, end
        The fault lasts from the one to the other.
    named_by
        When the fault must have been named.
    last
        When it must have been cleared: the last tick.
    calm
        Ranges of ticks, ends included, in which nothing goes wrong, so that it can be named and cleared.
    """

    start: float
    onset: int
    end: int
    named_by: int
    last: int
    calm: tuple[tuple[int, int], ...]

    def at(self, step: int) -> float:
        """Return the evaluation time of a step."""
        return self.start + STEP * step

    def is_calm(self, step: int) -> bool:
        """Tell whether nothing may go wrong at this step."""
        return any(low <= step <= high for low, high in self.calm)


SHORT = Scene(DEFAULT_START, 6, 32, 26, 58, ((16, 26), (36, 58)))
LONG = Scene(DEFAULT_START + 86_400.0, 6, 96, 92, 172, ((80, 92), (160, 172)))
"""Long enough for outages of half an hour."""


def catalog() -> Catalog:
    """Return the shipped catalog's entries of a few metrics."""
    whole = load_catalog()
    return Catalog.of([spec for spec in whole.specs if spec.name in METRICS], path=whole.path)


def load(url: str, scene: Scene) -> None:
    """Simulate a scene and import it."""
    config = ClusterConfig(
        train_nodes=6, spares=0, cpus=2, metrics=METRICS, start=scene.at(-PAST), step_s=STEP,
        missed_scrape=0.0, benign_per_node_hour=0.0, checkpoint_s=(90_000.0, 100_000.0),
    )  # fmt: skip
    # scrapes of a target are a few seconds before the step
    fault = Fault("gpu_throttle", FAULTY, scene.at(scene.onset) - STEP, scene.at(scene.end), "gpu 2")
    feeder = Feeder(url, Cluster(config, 4, (fault,)))
    feeder.load(config.start, scene.at(scene.last + 1), batch=100)


def load_all(server: servers.Server) -> None:
    """Import every scene and make it visible."""
    for scene in (SHORT, LONG):
        load(server.url, scene)
    assert servers.answers(server.port, "/internal/force_flush")

"""Which targets answer, and what the scraper writes about each scrape."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simulator.benign import HOUR_S, gaps_of_hour
from simulator.config import ClusterConfig
from simulator.mods import Floats
from simulator.moment import Drivers, Moment
from simulator.topology import ABSENT_HARDWARE, COLLECTORS, EXPORTERS

BYTES_PER_SAMPLE = {"node_exporter": 92.0, "dcgm": 260.0, "all_smi": 150.0, "backend_ai": 120.0}
DURATION_S = np.array([0.21, 0.018, 0.42, 0.035])
SCRAPE_TIMEOUT_S = 10.0
SLOW_COLLECTORS = {
    "netclass": 0.02,
    "mountstats": 0.006,
    "infiniband": 0.012,
    "cpu": 0.012,
    "filesystem": 0.004,
}


class TargetPhysics:
    """State of all scrape targets.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    samples
        Number of series that each exporter of a node gives.
    seed
        Seed of the cluster.
    """

    def __init__(
        self, config: ClusterConfig, rng: np.random.Generator, samples: Mapping[str, int], seed: int
    ) -> None:
        n = config.n_nodes
        self._seed = seed
        self._config, self._rng = config, rng
        self._samples = np.array([float(samples.get(x, 0)) for x in EXPORTERS])
        self._bytes = np.array([BYTES_PER_SAMPLE[x] for x in EXPORTERS])
        self._offset = np.exp(0.1 * rng.standard_normal((n, len(EXPORTERS))))
        self.phase_s = np.round(rng.uniform(0.01, config.step_s, (n, len(EXPORTERS))), 3)

    def scraped(self, at: float) -> Floats:
        """Return the epoch seconds of each target's newest scrape at `at`, in ``(at - step, at]``."""
        return at - self._config.step_s + self.phase_s

    def answers(self, m: Moment) -> NDArray[np.bool_]:
        """Return which targets answer, shape (nodes, exporters)."""
        missed = self._rng.random(self.phase_s.shape) < self._config.missed_scrape
        broken: NDArray[np.bool_] = m.mods.exporter_down | m.mods.down[:, None] | missed
        quirks, hour = self._config.quirks, int(m.at // HOUR_S)
        if quirks.gaps_per_target_day > 0:
            hours = (gaps_of_hour(quirks, len(broken), self._seed, h) for h in (hour - 1, hour))
            for gap in itertools.chain.from_iterable(hours):
                if gap.onset <= m.at < gap.end:
                    broken[gap.node, gap.exporter] = True
        return ~broken

    def drivers(self, m: Moment, up: NDArray[np.bool_], present: Floats) -> Drivers:
        """Return the drivers of the scraper's series and of the collectors.

        Parameters
        ----------
        up
            Which targets answer.
        present
            Share of its usual series that each target gives, shape (nodes, exporters).
        """
        noise = np.exp(0.12 * self._rng.standard_normal(up.shape))
        duration = DURATION_S * self._offset * noise * (1 + 3 * m.mods.sick[:, None] * np.array([0, 1, 1, 2]))
        samples = np.where(up, self._samples * present, 0.0)
        rate = np.zeros((len(up), 3))
        rate[:, 0] = 1 / self._config.step_s
        seconds = np.array([SLOW_COLLECTORS.get(name, 4e-4) for name in COLLECTORS])
        return {
            "t_up": up.astype(float),
            "t_duration": np.where(up, duration, SCRAPE_TIMEOUT_S + 0.001 * noise),
            "t_samples": samples,
            "t_added": np.zeros(up.shape),
            "t_bytes": np.rint(samples * self._bytes),
            "scrapes_by_code": rate,
            "gc_quantile": np.array([1.8e-5, 3e-5, 4.2e-5, 7e-5, 6e-4]) * np.ones((len(up), 1)),
            "collector_s": seconds * np.ones((len(up), 1)),
            "collector_ok": np.array([float(c not in ABSENT_HARDWARE) for c in COLLECTORS])
            * np.ones((len(up), 1)),
        }

"""Traffic and waiting times of the NFS mounts."""

from __future__ import annotations

import numpy as np

from simulator.config import ClusterConfig
from simulator.mods import Floats
from simulator.moment import Drift, Drivers, Moment, column
from simulator.topology import EXPORTS, OPERATIONS

_OP = {name: i for i, name in enumerate(OPERATIONS)}
_META = {
    "GETATTR": 5.0,
    "LOOKUP": 1.4,
    "ACCESS": 2.6,
    "READDIRPLUS": 0.08,
    "READDIR": 0.005,
    "CREATE": 0.01,
    "SETATTR": 0.02,
    "REMOVE": 0.008,
    "RENAME": 0.004,
    "MKDIR": 0.001,
    "READLINK": 0.05,
}
_PER_SCRAPE = {"FSSTAT": 0.034}
_RTT_S = {"READ": 2.6e-3, "WRITE": 5.5e-3, "COMMIT": 4e-3, "READDIRPLUS": 1.5e-3, "CREATE": 1.1e-3}
_RTT_DEFAULT_S = 4e-4
BLOCK_BYTES = float(1 << 20)
CHECKPOINT_BYTES_PER_S = 2.1e9


class NfsPhysics:
    """State of all mounts.

    Parameters
    ----------
    config
        Size of the cluster.
    rng
        Source of chance.
    """

    def __init__(self, config: ClusterConfig, rng: np.random.Generator) -> None:
        n, e = config.n_nodes, len(EXPORTS)
        self._rng, self._head = rng, config.workload.rank0_extra
        self._read = Drift((n, 1), 90.0, rng)
        self._meta = Drift((n, e), 240.0, rng)
        self._server = Drift((1, e), 300.0, rng)
        self._per_meta = np.zeros(len(OPERATIONS))
        for name, rate in _META.items():
            self._per_meta[_OP[name]] = rate
        self._rtt = np.array([_RTT_S.get(name, _RTT_DEFAULT_S) for name in OPERATIONS])
        self._node = 1 + 0.03 * rng.standard_normal((n, e, 1))
        self._idle = np.zeros((n, e))

    def drivers(self, m: Moment) -> Drivers:
        """Return the drivers per mount and per operation, and sums per node."""
        traffic_in, traffic_out = self._traffic(m)
        requests = self._requests(m, traffic_in, traffic_out)
        n = requests.shape[0]
        slow = m.mods.nfs_slow[:, :, None]
        congested = np.zeros_like(requests)
        congested[:, :, _OP["WRITE"]] = traffic_out > 1e8
        noise = np.exp(0.25 * self._rng.standard_normal(requests.shape) - 0.03)
        server = np.exp(0.12 * self._server.step(m.dt))[:, :, None]
        each = self._rtt * self._node * noise * server * slow * (1 + 1.5 * congested)
        response = requests * each
        queue = requests * (4e-5 * slow**1.2 + 13.0 * each * congested)
        sent, received = requests * 180.0, requests * 220.0
        sent[:, :, _OP["WRITE"]] += traffic_out
        received[:, :, _OP["READ"]] += traffic_in
        per_mount = requests.sum(axis=2)
        self._idle = np.where(per_mount > 0.2, 0.0, self._idle + m.dt)
        wait = np.log(m.mods.nfs_slow)
        flat = np.ones_like(per_mount)

        def by_op(values: Floats) -> Floats:
            return values.reshape(n, -1)

        return {
            "nfs_one": flat,
            "nfs_in": traffic_in,
            "nfs_out": traffic_out,
            "nfs_meta": self._meta_rate,
            "nfs_requests": per_mount,
            "nfs_backlog": 0.02 * per_mount + 4 * queue.sum(axis=2) * (1 + wait),
            "nfs_slots": flat * 64 + 1984 * (traffic_out > 1e8),
            "nfs_idle": self._idle,
            "nfs_reconnect": 0.004 * np.maximum(0.0, wait - 3),
            "nfs_reconnects": 0.004 * np.maximum(0.0, wait - 3).sum(axis=1, keepdims=True),
            "nfs_wait": wait.sum(axis=1, keepdims=True),
            "nfs_read": traffic_in.sum(axis=1, keepdims=True),
            "nfs_write": traffic_out.sum(axis=1, keepdims=True),
            "op_requests": by_op(requests),
            "op_again": by_op(0.002 * requests * np.maximum(0.0, wait - 2)[:, :, None]),
            "op_timeouts": by_op(0.0002 * requests * np.maximum(0.0, wait - 3)[:, :, None]),
            "op_sent": by_op(sent),
            "op_received": by_op(received),
            "op_queue": by_op(queue),
            "op_response": by_op(response),
            "op_request": by_op((queue + response) * 1.01),
            "all_requests": per_mount.sum(axis=1, keepdims=True),
            "method_requests": requests.sum(axis=1),
            "proto_packets": np.concatenate([per_mount.sum(axis=1, keepdims=True), np.zeros((n, 1))], axis=1),
        }

    def _traffic(self, m: Moment) -> tuple[Floats, Floats]:
        job = m.job
        reading = 7e6 * np.exp(0.5 * self._read.step(m.dt)) * column(job.train) * column(job.pace)
        reading = reading * (1 + 3 * column(job.evaluating))
        reading = (reading + 1.6e9 * column(job.loading)) / (1 + 0.1 * np.log(m.mods.nfs_slow[:, :1]))
        chance = np.exp(0.4 * self._rng.standard_normal((len(reading), 2)))
        traffic_in = np.concatenate([reading * (0.85 + 0.15 * chance[:, :1]), 2e3 * chance[:, 1:]], axis=1)
        logs = (
            2.5e4 * chance[:, :1] + 4e5 * (1 + 9 * self._head) * column(job.rank0) + 1e4 * column(job.train)
        )
        writes = CHECKPOINT_BYTES_PER_S * column(job.checkpoint) * (0.9 + 0.1 * chance[:, 1:])
        traffic_out = np.concatenate([logs, writes + 300 * chance[:, 1:]], axis=1)
        return traffic_in, traffic_out

    def _requests(self, m: Moment, traffic_in: Floats, traffic_out: Floats) -> Floats:
        job = m.job
        base = np.array([3.0, 0.8]) + column(job.train) * np.array([7.0, 0.6])
        base = (
            base
            + column(job.rank0) * np.array([22.0, 6.0])
            + 60 * column(job.checkpoint) * np.array([0.1, 1.0])
        )
        self._meta_rate = base * np.exp(0.3 * self._meta.step(m.dt))
        requests = self._meta_rate[:, :, None] * self._per_meta
        requests = requests * np.exp(0.2 * self._rng.standard_normal(requests.shape))
        requests[:, :, _OP["READ"]] = 1.05 * traffic_in / BLOCK_BYTES + 0.05
        requests[:, :, _OP["WRITE"]] = traffic_out / BLOCK_BYTES + 0.05
        requests[:, :, _OP["COMMIT"]] = 2e-9 * traffic_out + 0.002
        for name, rate in _PER_SCRAPE.items():
            requests[:, :, _OP[name]] = rate
        return np.asarray(requests)

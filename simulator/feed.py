"""Pushes simulated samples to a VictoriaMetrics through its import API."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import urllib3
from numpy.typing import NDArray

from simulator.cluster import Cluster
from simulator.mods import Floats
from simulator.recording import Int64s, ticks

IMPORT_PATH = "/api/v1/import"
PIECE_BYTES = 1 << 20
DEFAULT_BATCH = 20


class LineFormat:
    """Turns arrays of samples into import lines; label sets are serialised once.

    Parameters
    ----------
    series
        Label sets in the order of the arrays.
    """

    def __init__(self, series: Sequence[Mapping[str, str]]) -> None:
        dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
        self._heads = [f'{{"metric":{dump(dict(labels))},"values":[' for labels in series]

    def pieces(self, values: Floats, ts_ms: Int64s) -> Iterator[bytes]:
        """Yield import lines in pieces of about a MiB.

        Parameters
        ----------
        values : ndarray of shape (n_times, n_series)
            NaN is left out.
        ts_ms : ndarray of shape (n_times, n_series)
            Times in epoch milliseconds.
        """
        there: NDArray[np.bool_] = np.isfinite(values)
        is_whole = np.all(there, axis=0).tolist()
        step = max(1, PIECE_BYTES // (120 + 24 * len(values)))
        for low in range(0, len(self._heads), step):
            high = min(low + step, len(self._heads))
            numbers, times = values[:, low:high].T.tolist(), ts_ms[:, low:high].T.tolist()
            lines = []
            for k, i in enumerate(range(low, high)):
                own, when = numbers[k], times[k]
                if not is_whole[i]:
                    own, when = values[there[:, i], i].tolist(), ts_ms[there[:, i], i].tolist()
                    if not own:
                        continue
                lines.append(f'{self._heads[i]}{str(own)[1:-1]}],"timestamps":{when}}}\n')
            yield "".join(lines).encode()


def packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces as one gzip stream."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


class Feeder:
    """Runs a cluster and imports its samples.

    Parameters
    ----------
    url
        Address of the database, with a path prefix where there is one.
    cluster
        The cluster.
    uses_gzip
        True to send compressed; saves bytes and costs time, so False suits the same machine.

    Raises
    ------
    OSError
        From all methods, when the database refuses.
    """

    def __init__(self, url: str, cluster: Cluster, *, uses_gzip: bool = False) -> None:
        self.cluster = cluster
        self._url = url.rstrip("/") + IMPORT_PATH
        self._uses_gzip = uses_gzip
        self._format = LineFormat(cluster.series)
        self._pool = urllib3.PoolManager(timeout=urllib3.Timeout(connect=5, read=120), retries=False)

    def load(self, start: float, end: float, *, batch: int = DEFAULT_BATCH) -> int:
        """Import all scrapes from start to end as fast as possible, several per line.

        Returns
        -------
        int
            Number of samples sent.
        """
        times = ticks(start, end, self.cluster.config.step_s)
        sent = 0
        for low in range(0, len(times), batch):
            sent += self._tick_and_send(times[low : low + batch])
        return sent

    def push(self, at: float) -> int:
        """Import one scrape of all targets and return the number of samples."""
        return self._tick_and_send([at])

    def live(self, stopped: threading.Event, first: float) -> None:
        """Import every scrape when its time has come, until told to stop.

        Parameters
        ----------
        stopped
            Ends the loop.
        first
            Epoch seconds of the first scrape; missed ones are skipped.
        """
        step, at = self.cluster.config.step_s, first
        while not stopped.wait(max(0.0, at - time.time_ns() / 1e9)):
            self.push(at)
            late = max(0.0, time.time_ns() / 1e9 - at)
            at += step * (1 + late // step)

    def _tick_and_send(self, times: Sequence[float]) -> int:
        n = len(self.cluster.series)
        values, ts_ms = np.empty((len(times), n)), np.empty((len(times), n), dtype=np.int64)
        for k, at in enumerate(times):
            values[k], ts_ms[k] = self.cluster.tick(at)
        self._send(self._format.pieces(values, ts_ms))
        return int(np.isfinite(values).sum())

    def _send(self, pieces: Iterator[bytes]) -> None:
        headers = {"Content-Type": "application/json"}
        if self._uses_gzip:
            headers["Content-Encoding"] = "gzip"
            pieces = packed(pieces)
        try:
            answer = self._pool.request(
                "POST", self._url, body=(p for p in pieces if p), headers=headers, chunked=True
            )
        except urllib3.exceptions.HTTPError as error:
            raise OSError(f"{self._url}: import failed: {error}") from None
        if answer.status >= 300:
            raise OSError(f"{self._url}: import refused with status {answer.status}: {answer.data[:200]!r}")


def openmetrics_text(series: Sequence[Mapping[str, str]], values: Floats, ts_ms: Int64s) -> str:
    """Return samples as OpenMetrics text with times, from which promtool makes Prometheus blocks.

    Parameters
    ----------
    series
        Label sets.
    values, ts_ms
        As for `LineFormat.pieces`.
    """
    by_name: dict[str, list[int]] = {}
    for i, labels in enumerate(series):
        by_name.setdefault(labels["__name__"], []).append(i)
    out = []
    for name, indexes in by_name.items():
        out.append(f"# TYPE {name} unknown\n")
        for i in indexes:
            head = sample_head(series[i])
            for value, when in zip(values[:, i].tolist(), ts_ms[:, i].tolist(), strict=True):
                if value == value:
                    out.append(f"{head} {value} {when / 1000:.3f}\n")
    return "".join(out) + "# EOF\n"


def sample_head(labels: Mapping[str, str], left_out: frozenset[str] = frozenset()) -> str:
    """Return a series in text form: name and labels without those left out."""
    pairs = ",".join(
        f'{key}="{_escaped(value)}"'
        for key, value in labels.items()
        if key != "__name__" and key not in left_out
    )
    return f"{labels['__name__']}{{{pairs}}}" if pairs else labels["__name__"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

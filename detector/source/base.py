"""The one contract of every source of samples.

A source turns a time range into a `Batch` of raw samples. It knows series only by
the bytes of their label object and asks an `Interner` for the number behind them,
so a label set is parsed once in its life and not once per tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Interner(Protocol):
    """Gives a number to each distinct label object."""

    @property
    def codes(self) -> dict[bytes, int]:
        """Known label objects (JSON bytes, braces included): series number, or -1 for "not compared"."""

    def add_many(self, keys: Sequence[bytes]) -> None:
        """Parse label objects not in `codes` yet and enter each of them there."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Raw samples of one time range, by time of the sample and never by time of the question.

    Parameters
    ----------
    series : ndarray of shape (n_samples,), int32
        Series numbers from the interner, all >= 0.
    ts_ms : ndarray of shape (n_samples,), int64
        Sample times in epoch milliseconds, ascending within each series, no duplicates within a series.
    values : ndarray of shape (n_samples,), float64
        Finite numbers only; whatever was not is counted in `dropped`.
    is_partial
        True when the database said, or the transport showed, that data may be missing.
    dropped
        Count of samples or series left out, by reason (``nan``, ``inf``, ``future``, ``duplicate`` ...).
    notes
        Sentences about the data for the data-quality report.
    n_bytes
        Size of the answer as received.
    fetch_s, decode_s
        Seconds spent waiting for the answer and turning it into arrays.
    """

    series: NDArray[np.int32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    is_partial: bool = False
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    n_bytes: int = 0
    fetch_s: float = 0.0
    decode_s: float = 0.0


class Source(Protocol):
    """Where samples come from: a database or a recording."""

    def fetch(self, names: Sequence[str], start_ms: int, end_ms: int, interner: Interner) -> Batch:
        """Return every sample of the named metrics with ``start_ms < time <= end_ms``.

        Raises
        ------
        SourceError
            When nothing that can be trusted came back; the caller leaves all state as it was.
        """

    def close(self) -> None:
        """Free connections and files."""
